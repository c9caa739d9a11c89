"""D18: what is streamed of a field adds up to what dspy parses in the end."""

import json
from collections.abc import Callable
from typing import Any

import dspy
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.agents import Ask, cut
from worldagent.signatures.streaming import ChatFieldParser, FieldParser, JsonFieldParser, PlainFieldParser


class Converse(Ask):
    """Answer the message."""

    calls: str = dspy.OutputField()


def streamed(parser: FieldParser, chunks: list[str]) -> str:
    return "".join(map(parser.feed, chunks)) + parser.close()


cuts = st.one_of(st.just([1] * 200), st.lists(st.integers(0, 9), max_size=40))
bits = st.sampled_from(
    [
        "[[ ## reply ## ]]", "[[ ## calls ## ]]", "[[ ## completed ## ]]", "[[ ## r\u00e9_1 ## ]]", "[[ ##  ## ]]",
        "[[ ## reply ##", "[[", " ## ]]", "[[ ## ", "]", " ", "  ", "\t", "\n", "\n\n", "\r\n", "\r", "\x0b", "\x1e",
        "\x1f", "\x85", "\u2028", "\u00a0", "a", "b c", "\U0001f600", "\u0301", ".",
    ]
)  # fmt: skip
completions = st.lists(st.one_of(bits, st.text(max_size=5)), max_size=16).map("".join)
chat = st.one_of(
    completions, completions.map("[[ ## reply ## ]]\n{}".format), completions.map("[[ ## reply ## ]]{}".format)
)


@given(chat, cuts)
@example("  [[ ## reply ## ]] indented", [1] * 40)
@example("[[ ## reply ## ]] a \n b", [])
@example("[[ ## reply ## ]]\n\n a\r\n\r\nb \n[[ ## reply ## ]]\nsecond", [1] * 60)
def test_a_chat_field_is_what_the_chat_adapter_parses(completion: str, sizes: list[int]) -> None:
    tail = "\n[[ ## reply ## ]]\n\n[[ ## calls ## ]]\n"  # so that no field is missing; the first of a name wins
    parsed = dspy.ChatAdapter().parse(Converse, completion + tail)

    for field in ("reply", "calls"):
        assert streamed(ChatFieldParser(field), cut(completion + tail, sizes)) == parsed[field]


@given(chat, cuts)
@example("a\r\n\n a", [1] * 60)
@example("\r\r\n[[ ## completed ## ]]", [1] * 60)
def test_a_chat_field_that_the_completion_ends_in_is_whole(completion: str, sizes: list[int]) -> None:
    completion = f"[[ ## reply ## ]]\n{completion}"
    parsed = dspy.ChatAdapter().parse(Ask, completion)

    assert streamed(ChatFieldParser("reply"), cut(completion, sizes)) == parsed["reply"]


values = st.one_of(
    st.text(), completions, st.just('"}, {"reply": "x"'), st.just('\\u0041 \\ " \ud83d \ude00 \U0001f600')
)


@given(
    values, values, st.booleans(), st.sampled_from([None, 1]), st.sampled_from(["", "Here it is:\n", "```json\n"]), cuts
)
def test_a_json_field_is_the_value_of_its_key(
    reply: str, other: str, ascii_only: bool, indent: int | None, preamble: str, sizes: list[int]
) -> None:
    value: dict[str, Any] = {"note": [{"reply": other}], other + "!": other, "reply": reply, "calls": {"reply": other}}
    completion = preamble + json.dumps(value, ensure_ascii=ascii_only, indent=indent)

    assert streamed(JsonFieldParser("reply"), cut(completion, sizes)) == reply


@pytest.mark.parametrize("completion", ["", '{"reply": 4}', '["reply"]'])
def test_a_json_completion_without_a_string_under_the_key_streams_nothing(completion: str) -> None:
    assert streamed(JsonFieldParser("reply"), list(completion)) == ""


@pytest.mark.parametrize(
    ("parser", "before"),
    [
        (lambda: ChatFieldParser("reply"), "[[ ## reply ## ]]\n"),
        (lambda: JsonFieldParser("reply"), '{"reply": "'),
        (PlainFieldParser, ""),
    ],
)
def test_text_goes_out_at_once(parser: Callable[[], FieldParser], before: str) -> None:
    fields = parser()
    fields.feed(before)

    words = ["The", " capital", " [of", "]", " France"]
    assert [fields.feed(word) for word in words] == words
