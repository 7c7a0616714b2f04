from __future__ import annotations

import pytest

from vakforge_probe.text import clean, nearest


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07plain", "plain"),
        ("a\nb\tc", "a b c"),
        ("\u202eevil\ufeff\U000e0041", "evil"),
        ("abcdef", "abcd…"),
    ],
)
def test_what_a_stranger_wrote_can_neither_move_nor_colour_a_terminal(
    text: str, shown: str
) -> None:
    assert clean(text, 5) == shown


def test_the_nearest_word_is_named_unless_none_is_like_it() -> None:
    known = ["agent onset", "agent end", "previous"]
    assert nearest("agent ends", known) == "agent end"
    assert nearest("xyz", known) is None
    assert nearest("xyz", known, least=0) in known
    assert nearest(5, []) is None
