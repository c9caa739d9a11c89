"""Turns that wait for a person at `worldagent chat`: answered, left, picked up again, and under their roles.

A real terminal, and an agent of `--app` whose functions require approval.
"""

import signal
from pathlib import Path

import pytest

from support.chat import COMMAND, CTRL_D, ENTER, SHOP, Start, Terminal, chatted, dispatching, piped, shopping
from support.openai_stub import OpenAIStub
from support.sidecars import bought
from worldagent.testing import assert_no_role_leak

pytestmark = pytest.mark.requirement("T4")

SECRET = "Answer as the keeper of the seventh lighthouse would answer."
AWAITED = "main answer>"
APPROVAL = """\
The turn waits for an answer: /later ends the chat, /cancel ends the turn.
approval of a call: pay
  what: "hat"
risk: write, network
description: Pay for something.
called by: buy
reason: nothing in the policy allows it
answer: yes; no REASON; edit FIELD=VALUE ...; always, for equal arguments in
this turn; or always any, for any"""


async def buying(terminal: Terminal, stub: OpenAIStub, shape: str = "buy", then: str = AWAITED) -> str:
    """Have the model hand a task to a shape, up to its first question."""
    stub.answers.insert(0, dispatching(shape))
    return await terminal.say("Buy me a hat.", then=then)


# --- answers ----------------------------------------------------------------------------------------------------------


async def test_an_approval_is_asked_for_until_the_answer_is_clear(shop: Start, stub: OpenAIStub, home: Path) -> None:
    async with shop() as terminal:
        shown = await buying(terminal, stub)
        assert shown == f"I shall see.\nworking on it: buy\n{APPROVAL}"
        shown = " ".join((await terminal.say("sure, why not", prompt=AWAITED)).split())
        assert "neither a clear yes nor a clear no" in shown
        assert "remedy: answer with yes; no REASON; edit FIELD=VALUE ...; always, for equal arguments" in shown
        assert bought(home) == []
        assert await terminal.say("yes", prompt=AWAITED, then="main>") == "working on it: buy\nParis."
        assert bought(home) == ["hat"]
        assert "paid for the hat" in stub.asked()
        terminal.write(CTRL_D)
        assert await terminal.ended() == 0
        assert terminal.modes() == terminal.before
    assert "Resume it with" not in terminal.text
    assert all(len(line) <= 80 for line in terminal.lines)


async def test_pauses_are_answered(shop: Start, stub: OpenAIStub, home: Path, environment: dict[str, str]) -> None:
    async with shop() as terminal:
        shown = await buying(terminal, stub, "choose", then="main answer 1/2>")
        assert "The turn waits for 2 answers: /pauses shows all, /cancel ends the turn." in shown
        told = await terminal.say("/pauses", prompt="main answer 1/2>")
        assert "  1  red\n  2  blue\nanswer: the number or the text of an option\n\napproval of a call: pay" in told
        assert "approval of a call: pay" in await terminal.say("2", prompt="main answer 1/2>", then="main answer 2/2>")
        assert bought(home) == []
        assert "1 answer is given and not sent" in await terminal.say("/pauses", prompt="main answer 2/2>")
        shown = await terminal.say("yes", prompt="main answer 2/2>", then=AWAITED)
        assert "  street  text, length at least 3\n  number  whole number, at least 1" in shown
        shown = await terminal.say("street=Elm number=0", prompt=AWAITED)
        assert "number: 0 is less than the minimum of 1" in shown
        shown = await terminal.say("street=Elm road number=4", prompt=AWAITED, then="main>")
        assert shown == "working on it: choose\nParis."
        terminal.write(CTRL_D)
        assert await terminal.ended() == 0
    assert bought(home) == ["hat"]
    assert "blue: paid for the hat, to Elm road 4" in stub.asked()
    history = home / "chat-history.jsonl"
    assert "street=Elm road" in history.read_text(encoding="ascii")
    removed = (*COMMAND[:-1], "threads", "rm", "main", "--yes", "--workspace", "shop")
    assert (await piped(environment, b"", argv=removed))[0] == 0
    assert history.read_text(encoding="ascii") == ""


async def test_a_waiting_turn_is_cancelled_and_the_thread_is_free(shop: Start, stub: OpenAIStub, home: Path) -> None:
    async with shop() as terminal:
        await buying(terminal, stub)
        shown = await terminal.say("/cancel", prompt=AWAITED, then="main>")
        assert shown == "the turn on the thread 'main' is cancelled"
        assert await terminal.say("Hello") == "Paris."
        assert await terminal.say("/cancel") == "no turn waits or runs on the thread 'main'"
        assert await terminal.say("/pauses") == "nothing waits on the thread 'main'"
        assert "error:" in await terminal.say("/resume")
    assert bought(home) == []


# --- another day ------------------------------------------------------------------------------------------------------


async def test_the_next_chat_continues_a_paused_turn(shop: Start, stub: OpenAIStub, home: Path) -> None:
    async with shop() as terminal:
        await buying(terminal, stub)
        terminal.write("/later" + ENTER)
        assert await terminal.ended() == 0
        command = "worldagent chat --thread main --app support.shop:agent"
        assert terminal.text.endswith(f"The turn of the thread 'main' waits. Resume it with:\n{command}")
    async with shop(prompt=AWAITED) as terminal:
        assert f"The last turn of this thread has not ended.\n{APPROVAL}" in terminal.text
        shown = await terminal.say("no, too dear", prompt=AWAITED, then="main>")
        assert shown == "working on it: buy\nbuy failed: call_refused\nParis."
    assert bought(home) == []


async def test_input_before_a_question_does_not_answer_it(shop: Start, stub: OpenAIStub, home: Path) -> None:
    async with shop() as terminal:
        await buying(terminal, stub)
        terminal.write(CTRL_D)
        await terminal.ended()
    async with shop(prompt=None) as terminal:
        terminal.write("yes" + ENTER)  # before the agent is loaded
        assert (await terminal.prompt(AWAITED)).count("approval of a call: pay") == 1
        assert bought(home) == []
        await terminal.say("yes", prompt=AWAITED, then="main>")
    assert bought(home) == ["hat"]


@pytest.mark.requirement("T5")
async def test_next_chat_resumes_a_turn_that_sigterm_stopped(shop: Start, stub: OpenAIStub, home: Path) -> None:
    said, plan = dispatching("buy")[0].split("\n", 1)
    stub.answers = [(said, f"\n{plan}")]
    async with shop() as terminal:
        terminal.write("Buy me a hat." + ENTER)
        await terminal.shows("I shall")
        terminal.process.send_signal(signal.SIGTERM)
        await terminal.shows("I shall see.\nstopping at the next step")
        stub.go_on.set()
        assert await terminal.ended() == 143
        assert terminal.modes() == terminal.before
    assert "The turn of the thread 'main' was stopped. Resume it with:\nworldagent chat --thread main" in terminal.text
    asked = len(stub.requests)
    async with shop() as terminal:
        await terminal.shows("The last turn of this thread was stopped. /resume resumes it")
        assert "nothing was sent" in await terminal.say("Hello")
        assert "approval of a call: pay" in await terminal.say("/resume", then=AWAITED)
        assert len(stub.requests) == asked  # the model's plan was recorded
        await terminal.say("yes", prompt=AWAITED, then="main>")
    assert bought(home) == ["hat"]


async def test_a_turn_whose_model_was_down_is_resumed(start: Start, stub: OpenAIStub) -> None:
    async with start(argv=(*COMMAND, "--lm", "openai/down-500")) as terminal:
        assert (await terminal.say("Hello there")).endswith("/resume resumes the same turn.")
    async with start() as terminal:
        await terminal.shows("The last turn of this thread failed. /resume resumes it")
        assert await terminal.say("/resume") == "Paris."
        assert stub.said().count("Hello there") == 1


# --- roles ------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R7", "R10", "R13")
async def test_resume_needs_the_role_of_its_turn(shop: Start, stub: OpenAIStub, home: Path, tmp_path: Path) -> None:
    async with shop() as terminal:
        await terminal.say(f"/role {SECRET}")
        assert "role: thread" in await buying(terminal, stub)
        assert_no_role_leak([home], SECRET)
        terminal.write(CTRL_D)
        await terminal.ended()
    async with shop(prompt=AWAITED) as terminal:
        shown = " ".join((await terminal.say("yes", prompt=AWAITED, then="main>")).split())
        assert "had a thread role, which is now missing; remedy: set it again" in shown.replace(" remedy", "; remedy")
        assert "use /resume refresh to resume with the roles that are active now" in shown
        assert "/role TEXT sets the role of the thread" in shown
        assert bought(home) == []
        await terminal.say(f"/role {SECRET}")
        assert await terminal.say("/resume") == "role: thread\nworking on it: buy\nParis."
        assert f"[[ ## role ## ]]\n{SECRET}" in stub.said()
        terminal.write(CTRL_D)
        await terminal.ended()
    assert bought(home) == ["hat"]
    assert_no_role_leak([home, tmp_path], SECRET)


# --- pipes ------------------------------------------------------------------------------------------------------------


async def test_piped_chat_exits_with_3_at_pauses(environment: dict[str, str], stub: OpenAIStub, home: Path) -> None:
    stub.answers = [dispatching("buy")]
    [turn] = await chatted(shopping(environment), "Buy me a hat.", argv=SHOP, code=3)
    assert (turn["status"], turn["pauses"][0]["function"]) == ("paused", "pay")
    assert turn["resume"] == "worldagent resume main --app support.shop:agent"
    found = await chatted(shopping(environment), "perhaps", argv=SHOP, code=3)
    assert [value.get("status") for value in found] == ["paused", None]
    assert found[0]["pauses"] == turn["pauses"]
    assert found[1]["error"]["code"] == "invalid_argument"
    code, out, told = await piped(shopping(environment), b"yes\nHello\n", argv=SHOP)
    assert (code, out) == (0, "Paris.\nParis.\n")
    assert "approval of a call: pay" in told
    assert bought(home) == ["hat"]


async def test_piped_chat_names_answers_it_took(environment: dict[str, str], stub: OpenAIStub, home: Path) -> None:
    stub.answers = [dispatching("choose")]
    lines = ("Buy me a hat.", "blue", "yes", '{"street": "Elm", "number": 4}')
    found = await chatted(shopping(environment), *lines, argv=SHOP, code=0)
    first, second = (pause["id"] for pause in found[0]["pauses"])
    assert found[1] == {"answered": first, "open": [second]}
    assert [value.get("status") for value in found] == ["paused", None, "paused", "done"]
    assert "blue: paid for the hat, to Elm 4" in stub.asked()
    assert bought(home) == ["hat"]
