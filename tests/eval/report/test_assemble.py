from dataclasses import replace
from typing import Any

import pytest

from vakforge_eval.report.assemble import measurement_verdict, report_document, sample_rows
from vakforge_eval.report.json_writer import to_json
from vakforge_eval.report.markdown_writer import to_markdown
from vakforge_eval.report.schema import validate
from vakforge_eval.scoring.scores import ScoreSet
from vakforge_eval.timeline.values import Measured

Sets = tuple[ScoreSet, ScoreSet]
PROVENANCE: dict[str, Any] = {"seed": 1, "config_hash": "sha256:1", "versions": {"python": "3.11"}}


def spoil(scores: ScoreSet, n: int) -> ScoreSet:
    turns = tuple(replace(turn, valid=i >= n) for i, turn in enumerate(scores.turns))
    return replace(scores, turns=turns)


def test_scores_become_a_document_that_follows_the_schema(scores: Sets) -> None:
    document = report_document(*scores, provenance=PROVENANCE)
    validate(document)
    assert document["verdict"] == {"status": "valid", "reasons": []}
    assert document["provenance"]["versions"].keys() == {"python", "vakforge_eval"}
    assert set(document["provenance"]["scripts"]) == {turn.scenario for turn in scores[0].turns}


def test_one_system_alone_is_reported_without_comparison(scores: Sets) -> None:
    document = report_document(None, scores[1], provenance=PROVENANCE)
    validate(document)
    assert document["systems"] == ["tuned"]
    assert [banner["kind"] for banner in document["banners"]] == ["void", "no_baseline"]


def test_the_same_scores_give_the_same_bytes(scores: Sets) -> None:
    first, second = (report_document(*scores, provenance=PROVENANCE) for _ in range(2))
    assert to_json(first) == to_json(second)
    assert to_markdown(first) == to_markdown(second)


def test_samples_take_the_scenarios_in_turn_and_pair_the_answers(scores: Sets) -> None:
    samples = sample_rows(*scores)
    assert len(samples) == 10
    assert len({sample["scenario"] for sample in samples[:4]}) == 4
    assert {tuple(sample["answers"]) for sample in samples} == {("base", "tuned")}
    assert samples[0]["reference"] == "calls save; mentions done"
    assert samples[0]["answers"]["tuned"]["text"].endswith("(tuned)")


def test_a_turn_that_is_to_call_no_tool_says_so(scores: Sets) -> None:
    base, tuned = scores
    expected = {"tools": [{"name": ""}], "entities": [], "relevant_words": ["done"]}
    quiet = replace(tuned, turns=(replace(tuned.turns[0], expected=expected),))
    (sample,) = sample_rows(base, quiet)
    assert sample["reference"] == "calls no tool; mentions done"


def test_a_turn_that_only_one_system_had_is_no_paired_sample(scores: Sets) -> None:
    base, tuned = scores
    only = replace(base, turns=base.turns[:1])
    assert [sample["scenario"] for sample in sample_rows(only, tuned)] == [base.turns[0].scenario]


def test_a_good_measurement_is_valid(scores: Sets) -> None:
    assert measurement_verdict(scores)["status"] == "valid"


@pytest.mark.parametrize(("n", "status"), [(2, "valid"), (3, "indeterminate"), (48, "invalid")])
def test_more_than_five_percent_spoilt_turns_withhold_the_verdict(
    scores: Sets, n: int, status: str
) -> None:
    verdict = measurement_verdict([spoil(scores[0], n)])
    assert verdict["status"] == status
    if n == 3:
        assert verdict["reasons"] == ["base: the probe spoilt 3/48 (6.2 %) of the turns"]


@pytest.mark.parametrize(
    ("n", "status"), [(1, "valid"), (2, "indeterminate"), (36, "indeterminate")]
)
def test_spoilt_background_utterances_count_like_turns(scores: Sets, n: int, status: str) -> None:
    events = tuple(replace(event, valid=i >= n) for i, event in enumerate(scores[1].events))
    verdict = measurement_verdict([replace(scores[1], events=events)])
    assert verdict["status"] == status
    if n == 2:
        words = "tuned: the probe spoilt 2/36 (5.6 %) of the background utterances"
        assert verdict["reasons"] == [words]


@pytest.mark.parametrize(("share", "status"), [(0.7, "valid"), (0.71, "indeterminate")])
def test_a_probe_that_is_busy_withholds_the_verdict(
    scores: Sets, share: float, status: str
) -> None:
    busy = replace(scores[1].calls[0], values={"cpu_share": Measured(share)})
    verdict = measurement_verdict([replace(scores[1], calls=(busy,))])
    assert verdict["status"] == status
