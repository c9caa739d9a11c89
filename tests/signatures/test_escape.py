"""R15: no text that goes into a prompt can pass for a part of the prompt."""

from __future__ import annotations

import re
import unicodedata

import pytest
from dspy.adapters.chat_adapter import field_header_pattern
from hypothesis import given
from hypothesis import strategies as st

from worldagent.signatures.escape import escape_control, escape_markers, unescape_control, unescape_markers

pytestmark = pytest.mark.requirement("R15")

# What a model could read as the beginning of a header, said apart from the implementation: drop everything that does
# not show; what is left starts a header.
LOOSE = re.compile(r"\[\[#")

pieces = st.sampled_from(
    ["[", "[[", "]]", "#", "##", " ", "\t", "\n", "\n\n", "\r\n", "\\", "\\\\", "\xa0", "\u200b", "\ufeff", "x", "role"]
)
texts = st.one_of(st.text(), st.lists(pieces, max_size=14).map("".join))


def shown(text: str) -> str:
    """The text without what nobody sees, blank lines kept."""
    text = re.sub(r"\n[^\S\n]*\n", "|", text.replace("\u200b", "").replace("\ufeff", ""))
    return re.sub(r"\s", "", text)


@given(texts)
def test_unescaping_gives_back_every_text(text: str) -> None:
    assert unescape_markers(escape_markers(text)) == text


@given(st.lists(texts, min_size=1, max_size=4))
def test_escaped_values_put_together_hold_no_header(values: list[str]) -> None:
    joined = "\n\n".join(map(escape_markers, values))

    assert not field_header_pattern.search(joined)
    assert not LOOSE.search(shown(joined))


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


@given(texts)
def test_the_two_escapes_go_together_in_any_order(text: str) -> None:
    tokens = frozenset({"<|im_end|>", "[[", "##"})

    assert escape_markers(escape_control(text, tokens)) == escape_control(escape_markers(text), tokens)


def test_tokens_that_cannot_be_broken_are_passed_over() -> None:
    assert escape_control("a\\b <", frozenset({"<", "a\\b", ""})) == "a\\b <"
