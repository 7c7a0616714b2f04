"""``validate`` and ``schema``: files are checked, and described for editors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from vakforge_probe.scenario.clips import data_root


def test_all_shipped_suites_are_valid(cli: Any) -> None:
    suites = sorted((data_root() / "suites").glob("*.yaml"))
    said = cli("validate", *suites, "--json")
    assert said.code == 0
    rows = said.document["files"]
    assert [row["file"] for row in rows] == list(map(str, suites))
    assert all(row["ok"] and row["holds"].endswith("scenarios") for row in rows)


def test_a_suite_is_found_by_name_and_a_scenario_by_id(cli: Any) -> None:
    said = cli("validate", "latency", "latency#questions")
    assert said.code == 0
    assert said.out == "latency: ok, 2 scenarios\nlatency#questions: ok, 1 scenario\n"


def test_a_targets_file_is_checked_without_its_secrets(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "targets.yaml").write_text(
        "schema: 1\ntargets:\n  a:\n    url: wss://h/\n"
        '    headers: {Authorization: "Bearer ${env:NO_SUCH_KEY}"}\n'
    )
    said = cli("validate", "targets.yaml")
    assert (said.code, said.out) == (0, "targets.yaml: ok, 1 target\n")


def test_a_bad_file_is_exit_2_and_does_not_hide_the_next(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("schema: 1\nscenarois: []\n")
    said = cli("validate", "bad.yaml", "demo", "nowhere.yaml", "--json")
    assert said.code == 2
    bad, good, missing = said.document["files"]
    assert (bad["ok"], good["ok"], missing["ok"]) == (False, True, False)
    error = bad["error"]
    assert (error["file"], error["line"], error["key"]) == ("bad.yaml", 2, "scenarois")
    assert error["nearest"] == "scenarios"
    assert "bad.yaml:2: scenarois: unknown key; did you mean 'scenarios'?" in said.err
    assert "no such file or suite" in missing["error"]["message"]


def test_an_unknown_protocol_is_no_fault_of_the_file(cli: Any) -> None:
    said = cli("validate", "demo", "--protocol", "openai-realtme", "--json")
    assert said.code == 2
    assert said.document["error"]["nearest"] == "openai-realtime"


def test_control_characters_of_a_file_do_not_reach_the_terminal(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text('schema: 1\n"\\e[31mred": 1\n')
    said = cli("validate", "bad.yaml")
    assert said.code == 2
    assert "\x1b" not in said.err
    assert "red" in said.err


@pytest.mark.parametrize("name", ["scenario", "targets", "report"])
def test_schemas_are_valid_and_describe_our_files(cli: Any, record: Any, name: str) -> None:
    said = cli("schema", name)
    assert said.code == 0
    schema = said.document
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)
    if name == "report":
        record("")
        jsonschema.validate(cli("report", "run", "--json").document, schema)


def test_the_shipped_schema_is_the_one_that_is_printed(cli: Any) -> None:
    shipped = json.loads((data_root() / "scenario.schema.json").read_text("utf-8"))
    assert cli("schema", "scenario").document == shipped
