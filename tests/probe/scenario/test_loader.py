from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from vakforge_probe.errors import ConfigError
from vakforge_probe.limits import Limits
from vakforge_probe.scenario.clips import data_root
from vakforge_probe.scenario.loaded import LoadedSuite
from vakforge_probe.scenario.loader import find_suite, load_suite

Load = Callable[[str], LoadedSuite]

SCENARIO = """\
schema: 1
id: other
locale: en-GB
language: {primary: en}
seed: 5
steps:
  - say: null
    clip: en/booking_name
"""

SUITE = """\
schema: 1
repeats: 4
seed: 9
defaults:
  locale: en-US
  language: {primary: en}
  condition: noisy
scenarios:
  - file: sub/other.yaml
  - id: own
    repeats: 2
    steps:
      - say: null
        clip: en/booking_request
"""


def test_a_suite_takes_scenarios_from_files_and_its_own_list(load: Load, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "other.yaml").write_text(SCENARIO)
    other, own = load(SUITE).scenarios
    assert (other.scenario.id, other.scenario.locale, other.scenario.condition) == (
        "other",
        "en-GB",
        "noisy",
    )
    assert (other.repeats, other.seed) == (4, 5)
    assert (own.repeats, own.seed) == (2, 9)
    assert own.scenario.locale == "en-US"


def test_a_fault_in_a_referred_file_names_that_file(load: Load, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "other.yaml").write_text(SCENARIO.replace("clip:", "clop:"))
    with pytest.raises(ConfigError) as caught:
        load(SUITE)
    assert (Path(caught.value.file or "").name, caught.value.line) == ("other.yaml", 8)
    assert caught.value.nearest == "clip"


@pytest.mark.parametrize(
    ("key", "where", "text"),
    [
        ("background", "background.clip", "{clip: background/rooom}"),
        ("background", "background.level", "{clip: background/room, level: 40}"),
        ("budgets", "budgets.reply", "{reply: 0 s}"),
        ("tools", "tools[1].name", "[{name: a}, {name: a}]"),
        ("tools", "tools[0].parameters", "[{name: a, parameters: {type: list}}]"),
    ],
)
def test_a_fault_in_the_defaults_is_named_where_it_stands(
    load: Load, tmp_path: Path, key: str, where: str, text: str
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "other.yaml").write_text(SCENARIO)
    with pytest.raises(ConfigError) as caught:
        load(SUITE.replace("  condition: noisy", f"  {key}: {text}"))
    assert (caught.value.key, caught.value.line) == (f"defaults.{where}", 7)
    assert "other.yaml" not in str(caught.value)
    # A scenario that says it itself is where it is looked for.
    own = SUITE.replace("    repeats: 2", f"    {key}: {text}")
    with pytest.raises(ConfigError) as caught:
        load(own)
    assert (caught.value.key, caught.value.line) == (f"scenarios[1].{where}", 11)


def test_a_suite_is_found_by_its_path_or_by_its_shipped_name() -> None:
    shipped = data_root() / "suites" / "demo.yaml"
    assert find_suite(str(shipped)) == shipped
    assert find_suite("demo") == shipped
    with pytest.raises(ConfigError, match="did you mean 'demo'"):
        find_suite("demoo")


def test_own_clips_come_before_shipped_ones(load: Load, tmp_path: Path) -> None:
    shipped = data_root() / "clips" / "en" / "booking_name"
    own = tmp_path / "clips" / "en"
    own.mkdir(parents=True)
    for suffix in (".flac", ".json"):
        (own / f"booking_name{suffix}").write_bytes(shipped.with_suffix(suffix).read_bytes())
    library = load(SCENARIO).scenarios[0].library
    assert library.roots == (tmp_path / "clips", data_root() / "clips")
    assert library.get("en/booking_name").text == library.get("en/booking_name").text
    assert library.get("en/booking_request").text


def test_the_clips_key_names_another_folder(load: Load, tmp_path: Path) -> None:
    (tmp_path / "sounds").mkdir()
    library = load(SCENARIO + "clips: sounds\n").scenarios[0].library
    assert library.roots[0] == tmp_path / "sounds"


def test_a_link_out_of_the_suites_folder_is_refused(load: Load, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    (outside / "other.yaml").write_text(SCENARIO)
    (tmp_path / "sub").symlink_to(outside)
    with pytest.raises(ConfigError, match="a symbolic link leads out"):
        load(SUITE)
    (tmp_path / "clips").symlink_to(outside)
    with pytest.raises(ConfigError, match="a symbolic link leads out"):
        load(SCENARIO)


def test_a_suite_that_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "suite.yaml")
    with pytest.raises(ConfigError, match="no such file or suite"):
        load_suite(tmp_path / "suite.yaml")


def test_a_suite_larger_than_the_limit_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "suite.yaml"
    file.write_text("#" * 5000)
    with pytest.raises(ConfigError, match="larger than 4096 bytes"):
        load_suite(file, limits=Limits(max_yaml_bytes=4096))


def test_what_a_file_says_cannot_reach_the_terminal_raw(load: Load) -> None:
    with pytest.raises(ConfigError) as caught:
        load(SCENARIO + 'title: "\\e[31m\\u202Ered"\nx: 1\n')
    assert "\x1b" not in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        load(SCENARIO + '"\\e[31m\\nkey": 1\n')
    assert "\x1b" not in str(caught.value)
    assert "\n" not in str(caught.value)
