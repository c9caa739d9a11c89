"""What `worldagent chat` draws and keeps: no answer steers the terminal, and no role is in the history of input."""

import io
import re

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from worldagent.hosts.chat.commands import COMMANDS, MAX_KEPT_CHARACTERS, may_be_kept
from worldagent.hosts.chat.screen import Answer
from worldagent.hosts.service.pauses import printable

STYLE = re.compile(r"\x1b\[[0-9;]*m")
STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
PARTS = (
    *("word", "灯台", "x y", "\n", "\n\n", " ", "    ", "# ", "## ", "- ", "1. ", "> ", "*", "**", "_", "`", "```\n"),
    *("```py\n", "~~~", "---\n", "===\n", "| a | b |\n|---|---|\n", "| c |", "[t](u)", "[t]", "[t]: u\n", "<b>"),
    *("</b>", "<!--", "-->", "![i](u)", "<http://u>", "\\", "&amp;", "&#27;", "&#x9b;", "&#x202e;", "&#x2028;"),
    *("\x1b[2J", "\x9b", "\u202e", "[/red]", "[red]", ":smile:"),
    *("~~", "\t", "\r\n", "\x1b]8;;http://u\x07", "[link=u]"),
)
ANSWERS = st.lists(st.sampled_from(PARTS) | st.text(max_size=5), max_size=40)


def shown(source: str, width: int = 40, last: int = 0) -> str:
    """What a terminal gets of an answer, without styles."""
    drawing = Console(
        file=io.StringIO(), force_terminal=True, width=width, height=24, highlight=False, markup=False, emoji=False
    )
    with drawing.capture() as capture:
        drawing.print(Answer(source, last=last))
    return STYLE.sub("", capture.get())


@given(ANSWERS)
def test_no_answer_steers_the_terminal_and_a_growing_one_fits_the_screen(pieces: list[str]) -> None:
    source = "".join(pieces)
    assert not STEERING.search(output := shown(source))
    assert output.endswith(growing := shown(source, last=5))
    assert growing.count("\n") <= 5


@given(st.lists(st.sampled_from(["> ", "- ", "1. ", "    ", "* > "]), max_size=30))
def test_no_depth_of_an_answer_loses_its_text(levels: list[str]) -> None:
    assert "lighthouse" in shown("".join(levels) + "lighthouse")


def test_the_address_of_a_link_is_shown_and_no_link_of_the_terminal_is_made() -> None:
    output = shown("[your bank](https://evil.example/x)", width=80)
    assert "your bank (https://evil.example/x)" in output
    assert "\x1b]8" not in output


def test_characters_that_reverse_text_reach_no_terminal_and_separators_are_line_feeds() -> None:
    for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x1B, 0x9B):
        assert printable(f"one{chr(code)}two") == "onetwo"
    assert printable("one\u2028two\u2029three\u200f\u200e\tfour\n") == "one\ntwo\nthree\u200f\u200e\tfour\n"


@given(st.text(), st.sampled_from(["/role ", "/rol ", "/Role ", " /role\n", "/rolf", "/roles a b", "/thread a ", "/"]))
def test_input_that_sets_a_role_or_resembles_it_is_not_kept(text: str, begin: str) -> None:
    name, *given = (begin + text).split()
    if name.startswith("//") or (name in COMMANDS.keys() - {"/role"} and len(given) < 2):
        return
    assert not may_be_kept(begin + text)


def test_a_very_long_text_is_not_kept() -> None:
    assert may_be_kept("x" * MAX_KEPT_CHARACTERS)
    assert not may_be_kept("x" * (MAX_KEPT_CHARACTERS + 1))
