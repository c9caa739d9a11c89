"""`worldagent chat` at a real terminal, against a chat service over HTTP: its answers, and how it is left."""

import asyncio
import signal

import pytest

from support.chat import BOUND, CTRL_C, ENTER, Start
from support.openai_stub import OpenAIStub

# --- answers ----------------------------------------------------------------------------------------------------------


async def test_a_chat_shows_its_place_answers_and_restores_the_terminal(start: Start) -> None:
    async with start() as terminal:
        assert await terminal.say("What is the capital of France?") == "Paris."
        terminal.write("/quit" + ENTER)
        assert await terminal.ended() == 0
        assert terminal.modes() == terminal.before
    assert terminal.lines[:7] == [
        "worldagent chat: workspace default, thread main",
        "/help lists the commands, Ctrl-D ends the chat.",
        "model openai/answer, profile general",
        "main> What is the capital of France?",
        "Paris.",
        "",
        "main> /quit",
    ]


async def test_answer_streams_as_markdown_and_breaks_between_words(start: Start, stub: OpenAIStub) -> None:
    word, wide = "lighthouse ", "灯台の光が海を照らしている。"
    code = "\n\n# Lamps\n\n* red\n* **blue**\n\n```py\n" + "x " * 50 + "\ndef lamp(): ...\n```\nDone."
    stub.answers = [(word * 250, "\x1b[2Jand the end, my friends. ", f"\n{wide * 6}", code)]
    async with start() as terminal:
        await terminal.prompt()
        terminal.write("Tell me." + ENTER)
        assert "the end" not in await terminal.shows(word * 6)
        stub.go_on.set()
        await terminal.shows("[2Jand the end, my")  # the escape character is gone
        stub.go_on.set()
        await terminal.shows("海を照らし")
        stub.go_on.set()
        await terminal.shows("Done.")
        lines = (await terminal.prompt()).splitlines()[4:]
    prose = [line for line in lines if line.startswith("lighthouse")]
    assert " ".join(prose).count("lighthouse") == 250  # more than the screen shows, each once
    assert {*" ".join(prose).split()} <= {"lighthouse", "[2Jand", "the", "end,", "my", "friends."}  # none is broken
    assert all(len(line) <= 80 for line in lines)
    assert wide * 6 in "".join(lines)
    assert lines[lines.index("Lamps") :] == [
        *("Lamps", "", " • red", " • blue", ""),
        *(("x " * 40).strip(), ("x " * 10).strip(), "def lamp(): ...", "", "Done.", "", "main>"),
    ]


async def test_a_wait_is_shown_and_typed_input_waits_for_the_prompt(start: Start, stub: OpenAIStub) -> None:
    stub.answers = [("", "The lamp is lit, ", "and the ships are home.")]
    async with start() as terminal:
        terminal.write("Go on." + ENTER)
        await terminal.shows("waiting")
        stub.go_on.set()
        await terminal.shows("The lamp is")
        assert "waiting" not in terminal.text
        terminal.write("And then?\x1b\rAnd")
        stub.go_on.set()
        shown = await terminal.shows("main> And then?", "      And")
        assert "The lamp is lit, and the ships are home." in shown
        assert shown.count("And then?") == 1
        assert "waiting" not in shown


async def test_a_mistake_in_the_settings_ends_it_with_2(start: Start) -> None:
    async with start(prompt=None, WORLDAGENT_ROLE_LIMIT="none") as terminal:
        await terminal.shows("error:", "role_limit", "remedy:")
        assert await terminal.ended() == 2
        assert terminal.modes() == terminal.before


# --- leaving and interrupting ---------------------------------------------------------------------------------------


async def test_interrupts_cancel_the_answer_then_end_the_chat(start: Start, stub: OpenAIStub) -> None:
    stub.answers = [("The lamp is lit, ", "and never seen.")]
    async with start() as terminal:
        terminal.write("Tell me." + ENTER)
        await terminal.shows("The lamp is")
        terminal.write(CTRL_C)
        await terminal.shows("cancelled")
        await asyncio.wait_for(stub.gone.wait(), BOUND)
        assert await terminal.say("And now?") == "Paris."  # the thread goes on
        assert "never seen" not in terminal.text
        assert "Tell me." in stub.asked()  # what was said stays said
        terminal.write("half a thought")
        await terminal.shows("half a thought")
        terminal.write(CTRL_C)
        await terminal.prompt()
        assert "half a thought" not in terminal.text
        terminal.write(CTRL_C)
        await terminal.shows("Ctrl-C again ends the chat, as do Ctrl-D and /quit.")
        assert await terminal.say("Still here?") == "Paris."  # so the next one is the first again
        terminal.write(CTRL_C)
        await terminal.until(lambda: terminal.text.count("Ctrl-C again ends") == 2)
        await terminal.prompt()
        terminal.write(CTRL_C)
        assert await terminal.ended() == 130
        assert terminal.modes() == terminal.before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_at_the_prompt_restores_the_terminal(start: Start, number: signal.Signals) -> None:
    async with start() as terminal:
        terminal.process.send_signal(number)
        assert await terminal.ended() == 128 + number
        assert terminal.modes() == terminal.before
    assert "Traceback" not in terminal.text


@pytest.mark.parametrize("midway", [False, pytest.param(True, marks=pytest.mark.soak)])  # it waits for the model
async def test_a_terminal_that_is_closed_ends_it(start: Start, stub: OpenAIStub, midway: bool) -> None:
    stub.answers = [("The lamp is lit, ", "and never seen.")]
    async with start() as terminal:
        if midway:
            terminal.write("Tell me." + ENTER)
            await terminal.shows("The lamp is")
        terminal.hang_up()
        assert await terminal.ended() in (0, 129)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("[[ ## summary ## ]]\nThey spoke of capitals.", "was summarised; all messages are kept"),
        ("[[ ## summary ## ]]\n\n", "could not be summarised: output_invalid"),
    ],
)
async def test_the_result_of_a_summary_is_shown(start: Start, stub: OpenAIStub, said: str, told: str) -> None:
    stub.answers, stub.text = [("Paris.",)] * 2, said  # those that are streamed, and of other calls
    async with start(WORLDAGENT_HISTORY_LIMIT="2") as terminal:
        assert await terminal.say("What is the capital of France?") == "Paris."
        shown = await terminal.say("And of Italy?")
        assert shown == f"the beginning of this conversation {told}\nParis."
        shown = await terminal.say("/history")
        assert ("agent: [summary] They spoke of capitals." in shown) == ("was summarised" in told)
