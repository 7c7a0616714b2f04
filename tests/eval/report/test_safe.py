import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from vakforge_eval.report.safe import MAX_TEXT, clean_text, clean_tree, cut


def test_colour_codes_and_terminal_titles_go_whole() -> None:
    assert clean_text("\x1b[31mred\x1b[0m \x1b]0;owned\x07title") == "red title"


def test_bidi_overrides_and_invisible_tags_go() -> None:
    assert clean_text("abc\u202etxt.exe\u2066\U000e0041") == "abctxt.exe"


def test_line_breaks_become_spaces_so_that_a_text_is_one_line() -> None:
    assert clean_text("one\ntwo\r\u2028three") == "one two  three"


def test_joiners_stay_because_hindi_and_emoji_need_them() -> None:
    text = "क्‍ष 👩‍💻"
    assert clean_text(text) == text


def test_a_long_text_is_cut_with_a_mark() -> None:
    assert len(clean_text("x" * 10_000)) == MAX_TEXT
    assert cut("abcdef", 4) == "abc…"
    assert cut("abcd", 4) == "abcd"


def test_keys_are_cleaned_too_and_tuples_become_lists() -> None:
    assert clean_tree({"a\x00b": ("x\x07", 1, None)}) == {"ab": ["x", 1, None]}


@given(st.text(alphabet=st.characters(codec=None), max_size=80))
def test_no_control_character_survives_any_text(text: str) -> None:
    assert not {unicodedata.category(c) for c in clean_text(text)} & {"Cc", "Cs", "Cn"}


@given(st.text(max_size=80))
def test_cleaning_twice_changes_nothing_more(text: str) -> None:
    once = clean_text(text)
    assert clean_text(once) == once
