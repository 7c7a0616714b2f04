"""Text of a hostile target through a whole call: kept exactly on disk, harmless in each report."""

from __future__ import annotations

import html.parser
import json
import re
from typing import Any

PAYLOADS: dict[str, str] = {
    "ansi": "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J \x08\x7f",
    "bidi": "abc\u202edcba\u202c \u2066x\u2069 \u200f \u061c",
    "script": "<script>boom()</script><img src=x onerror=boom()>",
    "closing": "</script></pre></td><!-- ]]> {{7*7}} ${7*7} {% raw %}",
    "markdown": "| a | `b` | [x](javascript:boom()) ![](http://x.invalid/p) **c** ~~d~~ <b>",
    "lines": "one\r\ntwo\u2028three\u2029four\x0bfive\x85six",
    "nul": "a\x00b\ufffe\uffff",
    "long word": "w" * 900_000,
    "combining": "e" + "\u0301" * 20_000,
    "emoji": "🏳️‍🌈" * 2_000,
}
_FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c]"
)


class Tags(html.parser.HTMLParser):
    """Collects what a browser would take for tags, and where it would run something."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts = 0
        self.handlers: list[str] = []
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]


def tags_of(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    return tags


def saying(text: str) -> Any:
    """Return a target that puts `text` wherever a target can put text."""

    async def behave(peer: Any) -> None:
        await peer.open_session(instructions=text, voice=text)
        short = text[:400]
        for turn in range(2):
            name = f"{turn}{short}"
            await peer.begun()
            await peer.say("input_audio_buffer.speech_started", audio_start_ms=1, item_id=short)
            await peer.spoken()
            await peer.say(
                "conversation.item.input_audio_transcription.completed",
                item_id=short,
                transcript=text[:400_000],
            )
            await peer.say(f"vendor.{text}")
            await peer.say("error", error={"code": text, "message": text})
            await peer.say("response.created", response={"id": name})
            await peer.say(
                "response.output_audio_transcript.delta",
                response_id=name,
                item_id=short,
                delta=text[:50_000],
            )
            await peer.speak(0.5, name, short)
            call = {"name": short, "call_id": name, "arguments": text}
            await peer.say("response.function_call_arguments.done", response_id=name, **call)
            await peer.done(name, usage={text[:1000]: text}, status_details={"reason": text})
        await peer.connection.close(4000, short[:20])

    return behave


def is_clean(text: str) -> bool:
    return _FORBIDDEN.search(text) is None


def test_hostile_text_is_kept_on_disk_and_harmless_in_every_report(bench: Any) -> None:
    judged = bench.judge_all({name: saying(text) for name, text in PAYLOADS.items()})
    for name, one in judged.items():
        one.failed("closed", "call")
        said = [line["text"] for line in one.of("text_delta")]
        assert said == [PAYLOADS[name][:50_000]] * 2
        heard = [line["text"] for line in one.of("user_transcript")]
        assert heard == [PAYLOADS[name][:400_000]] * 2
    texts = next(iter(judged.values())).texts
    for name in ("terminal", "report.md", "report.html", "report.json"):
        assert is_clean(texts[name]), (name, _FORBIDDEN.search(texts[name]))
    assert len(texts["terminal"]) < 20_000
    assert len(texts["report.md"]) < 300_000
    assert len(texts["report.html"]) < 1_000_000
    tags = tags_of(texts["report.html"])
    own = tags_of(bench.judge(saying("hello")).texts["report.html"])
    assert (tags.scripts, tags.handlers) == (own.scripts, own.handlers)
    assert not [source for source in tags.sources if "javascript" in source or "invalid" in source]
    assert "<script" not in texts["report.md"].replace("\\<", "")
    assert not re.search(r"(?<!\\)\]\(javascript:", texts["report.md"])
    for turn in json.loads(texts["report.json"])["turns"]:
        assert turn["metrics"]["ttfa"]["value"] > 0


def test_a_fatal_error_with_hostile_text_is_one_clean_line(bench: Any) -> None:
    def refusing(text: str) -> Any:
        async def behave(peer: Any) -> None:
            await peer.say("error", error={"code": text, "message": text, "param": text})
            await peer.listen()

        return behave

    judged = bench.judge_all({name: refusing(text) for name, text in PAYLOADS.items()})
    for one in judged.values():
        line = str(one.failed("refused", "ready"))
        assert is_clean(line)
        assert len(line) < 600
        assert "\n" not in line
    texts = next(iter(judged.values())).texts
    assert all(is_clean(text) for text in texts.values())
    assert tags_of(texts["report.html"]).handlers == []


def test_a_breach_quotes_the_target_in_one_clean_line(bench: Any) -> None:
    def breaking(text: str) -> Any:
        async def behave(peer: Any) -> None:
            await peer.open_session()
            await peer.raw(json.dumps({"type": "response.created", "response": text})[:-1] + text)
            await peer.listen()

        return behave

    judged = bench.judge_all({name: breaking(text) for name, text in PAYLOADS.items()})
    for one in judged.values():
        line = str(one.failed("protocol_error", "call"))
        assert is_clean(line)
        assert len(line) < 700
    assert all(is_clean(text) for text in next(iter(judged.values())).texts.values())
