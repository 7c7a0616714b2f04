"""One file a sin; what is said about it stands beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from vakforge_probe.errors import ConfigError, ExitCode, exit_code
from vakforge_probe.scenario.loader import load_suite

BAD = Path(__file__).parent / "bad"


@pytest.mark.parametrize("name", sorted(p.stem for p in BAD.glob("*.yaml")))
def test_a_bad_file_is_refused_with_file_line_key_and_the_nearest_right_key(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_suite(BAD / f"{name}.yaml")
    said = str(caught.value).replace(f"{BAD}/", "")
    assert said == (BAD / f"{name}.expected").read_text(encoding="utf-8").rstrip("\n")
    assert exit_code(caught.value) == ExitCode.CONFIG


def test_every_expectation_has_its_file() -> None:
    assert {p.stem for p in BAD.glob("*.expected")} == {p.stem for p in BAD.glob("*.yaml")}


def test_every_refusal_of_a_key_names_a_line() -> None:
    without = [
        p.stem for p in BAD.glob("*.expected") if not p.read_text().split(":")[1].strip().isdigit()
    ]
    assert without == ["empty"]
