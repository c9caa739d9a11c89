"""`worldagent chat` while a turn runs: what is typed steers it, waits for its end, or interrupts it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from support.chat import BOUND, COMMAND, CTRL_C, CTRL_D, ENTER, Start, Terminal, shopping, starting
from support.openai_stub import OpenAIStub
from support.processes import eventually
from worldagent.hosts.chat.prompt import Typing

pytestmark = pytest.mark.requirement("T15", "T16")

PAINTER = (*COMMAND, "--app", "support.painter:agent")


@asynccontextmanager
async def painting(environment: dict[str, str], home: Path) -> AsyncGenerator[Terminal]:
    """A chat whose turn paints, until there is a file `go`."""
    async with starting(shopping(environment), PAINTER, "workspace shop")() as terminal:
        terminal.write("Paint the door." + ENTER)
        assert await eventually((home / "begun").exists, BOUND)
        yield terminal


async def test_a_line_that_is_typed_while_a_turn_runs_steers_it(environment: dict[str, str], home: Path) -> None:
    async with painting(environment, home) as terminal:
        terminal.write("rather in re")
        await terminal.shows("> rather in re")
        terminal.write("\x7f\x7fblue" + ENTER)
        await terminal.shows("> rather in blue")
        assert "waits for the end of the turn" not in terminal.text
        terminal.write("/model" + ENTER)
        await terminal.shows("/model waits for the end of the turn")
        (home / "go").touch()
        await terminal.shows("user said meanwhile: rather in blue", "In blue.")
        shown = await terminal.prompt()
        assert shown.count("In blue.") == 1
        assert await terminal.say("/history") != ""
        assert "user: rather in blue" in terminal.text


async def test_messages_wait_in_order_and_are_answered_after_the_turn(environment: dict[str, str], home: Path) -> None:
    async with painting(environment, home) as terminal:
        terminal.write("/queue And the window?" + ENTER)
        await terminal.shows("queued; 1 message waiting")
        terminal.write("/queue And the roof?" + ENTER)
        await terminal.shows("queued; 2 messages waiting")
        terminal.write("/queue And the garden?" + ENTER)
        await terminal.shows("queued; 3 messages waiting")
        terminal.write("/withdraw 2" + ENTER)
        await terminal.shows("withdrawn: And the roof?")
        terminal.write("/withdraw 7" + ENTER)
        await terminal.shows("takes a number, 1 to 2")
        terminal.write("/queued" + ENTER)
        await terminal.shows("/withdraw N deletes one.")
        (home / "go").touch()
        shown = await terminal.shows("main> And the window?", "main> And the garden?")
        await terminal.until(lambda: terminal.text.count("In red.") == 3)
        await terminal.prompt()
        assert "main> And the roof?" not in shown
        assert await terminal.say("/queued") == "nothing waits on the thread 'main'"


async def test_an_interrupting_message_ends_the_turn_and_is_answered(environment: dict[str, str], home: Path) -> None:
    async with painting(environment, home) as terminal:
        terminal.write("/interrupt No, in blue." + ENTER)
        await terminal.shows("the turn ends at its next safe point")
        (home / "go").touch()
        await terminal.shows("main> No, in blue.", "In blue.")
        await terminal.prompt()


async def test_what_was_not_read_is_the_next_message_and_half_a_line_stays(start: Start, stub: OpenAIStub) -> None:
    stub.answers = [("The lamp is lit, ", "and the ships are home.")]
    async with start() as terminal:
        terminal.write("Tell me." + ENTER)
        await terminal.shows("The lamp is")
        terminal.write("What is the capital of France?" + ENTER)
        await terminal.shows("> What is the capital of France?")
        terminal.write("And of Sp")
        await terminal.shows("> And of Sp")
        stub.go_on.set()
        await terminal.shows("main> What is the capital of France?", "Paris.", "main> And of Sp")
        terminal.write(CTRL_C + CTRL_D)
        assert await terminal.ended() == 0


async def test_after_a_cancelled_answer_what_waits_is_answered(start: Start, stub: OpenAIStub) -> None:
    stub.answers = [("The lamp is lit, ", "and never seen.")]
    async with start() as terminal:
        terminal.write("Tell me." + ENTER)
        await terminal.shows("The lamp is")
        terminal.write("/queue What is the capital of France?" + ENTER)
        await terminal.shows("queued; 1 message waiting")
        terminal.write(CTRL_C)
        await terminal.shows("cancelled", "main> What is the capital of France?", "Paris.")
        await terminal.prompt()
        assert "never seen" not in terminal.text


async def test_without_a_turn_nothing_is_steered_and_a_queued_message_is_sent(start: Start) -> None:
    async with start() as terminal:
        assert "no turn of thread" in " ".join((await terminal.say("/steer rather in blue")).split())
        assert await terminal.say("/queue What is the capital of France?") == "Paris."
        assert "takes a message" in await terminal.say("/queue")


async def test_keys_that_are_pressed_while_a_turn_runs() -> None:
    typing = Typing()
    for keys, text, line in (
        (b"rather", "rather", None),
        ("\x7f\u00fc".encode(), "ratheü", None),
        (b" in red\x17blue\x1b[D", "ratheü in blue", None),
        (b"\r", "", "ratheü in blue"),
        (b"a\\\r", "a\n", None),
        (b"b\x1b\rc\r", "", "a\nb\nc"),
        (b"one\rtwo\r", "", "one\ntwo"),
        (b"\x15\x04", "", None),
    ):
        assert (typing.press(keys), typing.text) == (line, text), keys
    assert typing.taken() == ("", True)
    assert typing.taken() == ("", False)


async def test_it_ends_by_ctrl_d_after_the_answer(start: Start, stub: OpenAIStub) -> None:
    stub.answers = [("The lamp is lit, ", "and the ships are home.")]
    async with start() as terminal:
        terminal.write("Tell me." + ENTER)
        await terminal.shows("The lamp is")
        terminal.write(CTRL_D)
        await asyncio.sleep(0)
        stub.go_on.set()
        assert await terminal.ended() == 0
        assert "the ships are home" in terminal.text
