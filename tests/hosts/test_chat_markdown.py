"""What `worldagent chat` draws and keeps: no answer steers the terminal, and no role is in the history of input."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pyte
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType
from rich.live import Live

from worldagent.hosts.cli.chat.commands import COMMANDS, may_be_kept
from worldagent.hosts.cli.chat.prompt import ENTRIES, LENGTH, FileHistory
from worldagent.hosts.cli.chat.screen import AnswerStream
from worldagent.hosts.service.pauses import printable

STYLE = re.compile(r"\x1b\[[0-9;]*m")
STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
PARTS = (
    *("word", "灯台", "x y", "\n", "\n\n", " ", "    ", "# ", "## ", "- ", "1. ", "> ", "*", "**", "_", "`", "```\n"),
    *(
        "```py\n",
        "~~~",
        "---\n",
        "===\n",
        "| a | b |\n|---|---|\n",
        "| c |",
        "[t](u)",
        "[t]",
        "[t]: u\n",
        "<b>",
        "</b>",
    ),
    *("<!--", "-->", "![i](u)", "<http://u>", "\\", "&amp;", "&#27;", "&#x9b;", "&#x202e;", "&#x2028;", "\x1b[2J"),
    *("\x9b", "\u202e", "[/red]", "[red]", ":smile:", "~~", "\t", "\r\n", "\x1b]8;;http://u\x07", "[link=u]"),
)
ANSWERS = st.lists(st.sampled_from(PARTS) | st.text(max_size=5), max_size=40)


def console(width: int = 40, height: int = 24) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=True, width=width, height=height, highlight=False, markup=False, emoji=False
    )


def shown(renderable: RenderableType, width: int = 40) -> str:
    """What a terminal gets."""
    with (drawing := console(width)).capture() as capture:
        drawing.print(renderable)
    return capture.get()


def streamed(pieces: list[str], width: int = 40) -> str:
    """What a terminal gets for good of an answer that comes in these pieces."""
    with (drawing := console(width)).capture() as capture:
        stream = AnswerStream(drawing)
        for piece in pieces:
            stream.feed(piece)
        stream.end()
    return capture.get()


def plain(output: str) -> str:
    return STYLE.sub("", output)


@given(ANSWERS)
def test_no_answer_steers_the_terminal(pieces: list[str]) -> None:
    assert not STEERING.search(plain(streamed(pieces)))


@given(ANSWERS)
def test_what_is_still_growing_steers_no_terminal_and_fits_the_screen(pieces: list[str]) -> None:
    stream = AnswerStream(console())
    for piece in pieces:
        stream.feed(piece)
        if (block := stream.growing(5)) is not None:
            output = plain(shown(block))
            assert not STEERING.search(output)
            assert output.count("\n") <= 5


@given(st.lists(st.sampled_from([*PARTS, "word " * 30, "\n" + "line\n\n" * 9]), max_size=60))
def test_what_is_drawn_anew_erases_nothing_that_is_to_stay(pieces: list[str]) -> None:
    drawing = console(80, height=10)
    stream = AnswerStream(drawing)
    live = Live(console=drawing, get_renderable=lambda: stream.growing(9) or "", auto_refresh=False, transient=True)
    with drawing.capture() as capture, live:
        for piece in pieces:
            stream.feed(piece)
            live.refresh()
        stream.end()
    screen = pyte.HistoryScreen(80, 10, history=10_000, ratio=0.5)
    pyte.Stream(screen).feed(capture.get().replace("\n", "\r\n"))
    gone = ["".join(line[at].data for at in range(80)) for line in screen.history.top]
    lines = [line.rstrip() for line in [*gone, *screen.display]]
    expected = plain(streamed(pieces, width=80)).splitlines()
    assert lines[: len(expected)] == expected
    assert not any(lines[len(expected) :])


@given(ANSWERS)
def test_an_answer_does_not_depend_on_the_pieces_it_comes_in(pieces: list[str]) -> None:
    assert streamed(pieces) == streamed(["".join(pieces)])


def test_the_address_of_a_link_is_shown_and_no_link_of_the_terminal_is_made() -> None:
    output = streamed(["[your bank](https://evil.example/x)"], width=80)
    assert "your bank (https://evil.example/x)" in plain(output)
    assert "\x1b]8" not in output


def test_what_turns_the_order_of_characters_around_reaches_no_terminal_and_separators_are_line_feeds() -> None:
    for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x1B, 0x9B):
        assert printable(f"one{chr(code)}two") == "onetwo"
    assert printable("one\u2028two\u2029three\u200f\u200e\tfour\n") == "one\ntwo\nthree\u200f\u200e\tfour\n"


@given(st.text(), st.sampled_from(["/role ", "/rol ", "/Role ", " /role\n", "/rolf", "/roles a b", "/thread a ", "/"]))
def test_nothing_that_sets_a_role_or_may_have_been_meant_to_is_kept(text: str, begin: str) -> None:
    name, *given = (begin + text).split()
    if name.startswith("//") or (name in COMMANDS.keys() - {"/role"} and len(given) < 2):
        return
    assert not may_be_kept(begin + text)


def opened(file: Path) -> FileHistory:
    history = FileHistory(may_be_kept, lambda: "main")
    history.open(file, "shop/{}".format)
    return history


async def test_the_history_of_input_is_bounded(tmp_path: Path) -> None:
    file = tmp_path / "history"
    history = opened(file)
    for number in range(2 * ENTRIES + 5):
        history.append_string(f"message {number}")
    history.append_string("x" * (LENGTH + 1))
    assert len(file.read_text(encoding="utf-8").splitlines()) == ENTRIES + 5
    strings = opened(file).get_strings()
    assert (len(strings), strings[-1]) == (ENTRIES, f"message {2 * ENTRIES + 4}")
    assert file.stat().st_mode & 0o777 == 0o600
    assert [found.name for found in tmp_path.iterdir()] == ["history"]
