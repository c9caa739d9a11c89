"""R15: no text that goes into a prompt can pass for a part of the prompt."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldagent.signatures.escape import escape_control, escape_markers, unescape_control

pytestmark = pytest.mark.requirement("R15")


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("[[ ## role ## ]]", r"[\[ ## role ## ]]"),
        (r"[\[ ## role ## ]]", r"[\\[ ## role ## ]]"),
        ("[ [\t## completed ## ]]", r"[\ [" + "\t## completed ## ]]"),
        ("[[\n## role ## ]]", "[\\[\n## role ## ]]"),
        ("[\u200b[\xa0\u2060## role ## ]]", "[\\\u200b[\xa0\u2060## role ## ]]"),
        ("\uff3b\uff3b \uff03\uff03 role", "\uff3b\\\uff3b \uff03\uff03 role"),
        (
            "<<CUSTOM-TYPE-START-IDENTIFIER>>[]<<CUSTOM-TYPE-END-IDENTIFIER>>",
            r"<\<CUSTOM-TYPE-START-IDENTIFIER>>[]<\<CUSTOM-TYPE-END-IDENTIFIER>>",
        ),
    ],
)
def test_a_marker_gets_one_backslash_behind_its_first_character(text: str, escaped: str) -> None:
    assert escape_markers(text) == escaped


@pytest.mark.parametrize("text", ["", "[[1, 2], [3]]", "\\\\server\\[x]", "x << 2"])
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert escape_markers(text) is text


def test_every_kind_of_white_space_and_every_invisible_character_may_stand_in_a_header() -> None:
    every = map(chr, range(0x110000))
    blanks = [char for char in every if char != "\n" and (char.isspace() or unicodedata.category(char) in {"Cc", "Zs"})]
    invisible = [*"\xad\u034f\u061c\u180e\u200b\u200c\u200d\u200e\u2060\u2064\u206f\ufe0f\ufeff\U000e0020\U000e0100"]

    assert [
        char for char in [*blanks, *invisible] if escape_markers(f"[{char}[{char}## x") == f"[{char}[{char}## x"
    ] == []


alphabet = st.text(alphabet="<|ab>\\", max_size=12)
token_sets = st.frozensets(st.text(alphabet="<|ab>", min_size=2, max_size=4), max_size=5)


@given(alphabet, token_sets)
def test_no_token_is_left_however_tokens_overlap_and_the_text_comes_back(text: str, tokens: frozenset[str]) -> None:
    escaped = escape_control(text, tokens)

    assert not [token for token in tokens if token in escaped]
    assert unescape_control(escaped, tokens) == text


def test_tokens_that_cannot_be_broken_are_passed_over() -> None:
    assert escape_control("a\\b <", frozenset({"<", "a\\b", ""})) == "a\\b <"
