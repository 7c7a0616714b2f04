"""Thirty hostile texts through every text field of the document, read by independent parsers."""

import copy
import unicodedata
from html.parser import HTMLParser
from typing import Any

import pytest
from markdown_it import MarkdownIt

from vakforge_eval.report.document import build_document
from vakforge_eval.report.html_writer import to_html
from vakforge_eval.report.json_writer import to_json
from vakforge_eval.report.markdown_writer import to_markdown
from vakforge_eval.report.schema import validate
from vakforge_eval.report.terminal import banner_lines, summary_notes, summary_rows, to_lines

Row = dict[str, Any]

PAYLOADS = [
    "<script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "</textarea></svg><img src=x onerror=alert(1)>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    '" onmouseover="alert(1)',
    "' onfocus='alert(1)' autofocus='",
    "<a href=javascript:alert(1)>x</a>",
    "[x](javascript:alert(1))",
    "![x](http://evil.test/x.png)",
    "[ref]: http://evil.test",
    "http://evil.test/track www.evil.test",
    "<!-- --><b>",
    "]]><script>alert(1)</script>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;script&#62;",
    "{{ 7*7 }}{% for x in y %}",
    "{{ ''.__class__.__mro__ }}",
    "${7*7}#{7*7}<%= 7*7 %>",
    "a | b | c |\n| --- |",
    "`` ` ``` code",
    "\n# heading\n\n- item\n\n    code\n",
    "*bold* __bold__ ~~gone~~ \\",
    "\x1b[31mred\x1b]0;owned\x07\x1b[2J",
    "\u202egnp.exe\u2066\u2069\u200f",
    "\x00\x08\x7f\x9b31m\ufffe\ud800",
    "W" * 5000,
    "+ADw-script+AD4-alert(1)+ADw-/script+AD4-",
]

KEPT = {"unit", "better", "p95_label", "status", "arrow", "resolution"}
"""Fields with a closed list of words: the schema refuses anything else in them."""


def tainted(text: str, payload: str) -> str:
    """Put the payload first, where most tricks work, unless it would push all else out."""
    return f"{payload}{text}" if len(payload) < 500 else f"{text}{payload}"


def infect(obj: Any, payload: str) -> Any:
    """Return the inputs with the payload in every text and in every key of a free mapping."""
    if isinstance(obj, str):
        return tainted(obj, payload)
    if isinstance(obj, list | tuple):
        return [infect(item, payload) for item in obj]
    if not isinstance(obj, dict):
        return obj
    free = (
        "systems",
        "metrics",
        "answers",
        "scripts",
        "versions",
        "hardware",
        "facts",
        "undefined",
    )
    out: Row = {}
    for key, value in obj.items():
        if key in KEPT:
            out[key] = value
        elif key == "definition":  # ends in its version by the schema
            out[key] = f"{payload[:500]}{value}"
        elif key in free and isinstance(value, dict):
            out[key] = {tainted(k, payload): infect(v, payload) for k, v in value.items()}
        else:
            out[key] = infect(value, payload)
    return out


SHOWN = {"ttfa", "total_response", "early_rate", "greeting_latency", "frames_late", "cpu_share"}


def few(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["metric"] in SHOWN]


def build(inputs: Row, payload: str) -> Row:
    part = copy.deepcopy(
        {
            **inputs,
            "summary": few(inputs["summary"]),
            "turns": inputs["turns"][4:8] + inputs["turns"][60:62],
            "breakdowns": [
                {**item, "summary": few(item["summary"])} for item in inputs["breakdowns"][:6]
            ],
            "samples": inputs["samples"][:1],
            "calls": inputs["calls"][:1] + inputs["calls"][-1:],
            "verdict": {"status": "invalid", "reasons": ["a stall"]},
        }
    )
    part["calls"][0]["failure"] = {"kind": "closed", "phase": "call", "message": "bye"}
    part["provenance"]["note"] = {"free": ["text", {"more": "text"}]}
    infected: Row = infect(part, payload)
    return build_document(**infected)


@pytest.fixture
def hostile(run: Row, request: pytest.FixtureRequest) -> Row:
    return build(run, request.param)


@pytest.fixture(scope="module")
def harmless_tags(run: Row) -> tuple[list[str], list[str]]:
    """Return the tags of the same page, and of its markdown rendered, without any trick."""
    document = build(run, "no harm ")
    return tags_of(to_html(document)).tags, tags_of(render(to_markdown(document))).tags


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment was opened: {data!r}")


def tags_of(html: str) -> Tags:
    parser = Tags()
    parser.feed(html)
    parser.close()
    return parser


def unwanted_characters(text: str) -> set[str]:
    bidi = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")
    return {
        c
        for c in text
        if c in bidi or (unicodedata.category(c) in ("Cc", "Cs", "Cn") and c != "\n")
    }


every_payload = pytest.mark.parametrize(
    "hostile", PAYLOADS, indirect=True, ids=[f"payload{i}" for i in range(len(PAYLOADS))]
)


def test_there_are_thirty_payloads() -> None:
    assert len(set(PAYLOADS)) == 30


def render(markdown: str) -> str:
    return str(MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown))


@every_payload
def test_no_writer_lets_a_hostile_text_become_more_than_text(
    hostile: Row, harmless_tags: tuple[list[str], list[str]]
) -> None:
    validate(hostile)
    html_tags, markdown_tags = harmless_tags

    html = to_html(hostile)
    page = tags_of(html)
    assert page.tags == html_tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert all(value.startswith("#") for name, value in page.attributes if name == "href")
    assert html.count("<style>") == html.count("</style>") == 1

    markdown = to_markdown(hostile)
    rendered = tags_of(render(markdown))
    assert rendered.tags == markdown_tags
    assert not [value for name, value in rendered.attributes if name in ("href", "src")]
    assert "<" not in markdown

    table = to_lines(summary_rows(hostile, 80))
    terminal = "\n".join([*banner_lines(hostile), *table, *summary_notes(hostile)])
    for output in (html, markdown, terminal, to_json(hostile).decode()):
        assert unwanted_characters(output) == set()


@pytest.mark.parametrize("hostile", ["<i>&\"'"], indirect=True)
def test_a_hostile_text_is_shown_as_it_was_not_dropped(hostile: Row) -> None:
    text = tags_of(to_html(hostile)).text
    for place in ("I'd like to book", "bye", "a stall", "text", "kernel", "int8"):
        assert f"<i>&\"'{place}" in text


@pytest.mark.parametrize("hostile", ["W" * 5000], indirect=True)
def test_a_huge_word_is_cut_in_every_output(hostile: Row) -> None:
    assert "W" * 2001 not in to_html(hostile)
    assert "W" * 601 not in to_markdown(hostile)
    assert max(len(line) for line in to_lines(summary_rows(hostile, 200))) <= 200
