import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

from vakforge_eval.report.html_writer import to_html

Row = dict[str, Any]
VOID = {"meta"}


class Outline(HTMLParser):
    """Tags in order, with a check that each that was opened is closed."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def outline(html: str) -> Outline:
    parser = Outline()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    return parser


def test_the_page_is_well_formed_and_has_the_six_sections(document: Row) -> None:
    found = outline(to_html(document))
    ids = [value for tag, name, value in found.attributes if (tag, name) == ("section", "id")]
    assert ids == ["summary", "changes", "breakdowns", "latency", "samples", "provenance"]


def test_the_policy_allows_this_style_sheet_and_nothing_else(document: Row) -> None:
    html = to_html(document)
    styles = re.findall(r"<style>(.*?)</style>", html, flags=re.DOTALL)
    assert len(styles) == 1
    digest = base64.b64encode(hashlib.sha256(styles[0].encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    assert policy.group(1).replace("&#39;", "'").split("; ") == [
        "default-src 'none'",
        f"style-src 'sha256-{digest}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]


def test_nothing_is_loaded_and_no_inline_style_needs_an_exception(document: Row) -> None:
    found = outline(to_html(document))
    assert not {"script", "link", "img", "iframe", "audio", "object"} & set(found.tags)
    names = {name for _, name, _ in found.attributes}
    assert not names & {"src", "style", "srcset"}
    assert "url(" not in to_html(document)


def test_the_style_knows_dark_mode_and_print(document: Row) -> None:
    html = to_html(document)
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html


def test_one_dot_a_turn_is_drawn_with_its_value_as_title(tiny: Row) -> None:
    html = to_html(tiny)
    assert html.count('<g class="dot measured">') == 4
    assert "booking, turn 1: 520 ms ±0.2" in html


def test_base_and_tuned_differ_in_shape_not_only_in_colour(document: Row) -> None:
    html = to_html(document)
    assert 'r="3"/>' in html
    assert 'r="3.5"/>' in html
    assert ".base .dot { stroke: var(--base); fill: var(--paper)" in html


def test_early_and_missing_replies_have_their_own_marks(document: Row) -> None:
    html = to_html(document)
    assert '<g class="dot early">' in html
    assert '<g class="dot censored">' in html
    assert ">early</text>" in html
    assert ">never</text>" in html


def test_the_only_system_is_drawn_as_tuned(single: Row) -> None:
    html = to_html(single)
    assert '<g class="tuned">' in html
    assert '<g class="base">' not in html


def test_a_measurement_that_must_not_be_used_is_marked_gravely(
    document: Row,
) -> None:
    document["banners"] = [{"kind": "invalid", "text": "not valid", "reasons": ["stall"]}]
    html = to_html(document)
    assert '<div class="banner grave" role="note">' in html
    assert "<li>stall</li>" in html


def test_sample_calls_show_who_spoke_when(document: Row) -> None:
    html = to_html(document)
    assert html.count('<svg class="lanes"') == 16
    assert "ttfa_heard stop at 3,350 ms" in html


def test_the_same_document_gives_the_same_page(document: Row) -> None:
    assert to_html(document) == to_html(document)
