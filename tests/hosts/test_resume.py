"""Turns that wait, on the command line: exit code 3, `resume`, SIGTERM, kill -9, and agents of one's own (T4, T5)."""

import asyncio
import json
import re
import shlex
import signal
from pathlib import Path

import pytest

from support.command_line import APP, BOUND, Done, Run, command, home, refusal, run, started
from support.hat_shop import agent, effects
from support.openai_stub import openai_stub
from support.pages import blocks
from support.processes import eventually
from worldagent.core.events import PauseClosed, TurnEnded, TurnStarted, parse_event

__all__ = ["home", "run"]  # fixtures

SECRET = "Answer as the keeper of the seventh lighthouse would answer."


pytestmark = [
    pytest.mark.requirement("T4"),
    pytest.mark.timeout(300),
]  # several processes one after the other, each of which loads a model library


@pytest.fixture(autouse=True)
def _in_its_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)


def check(done: Done, code: int) -> Done:
    assert done.code == code, done
    return done


async def test_a_task_that_waits_exits_with_3_and_another_command_answers(home: Path) -> None:
    words = ("task", "buy", "-p", "what=hat", "--thread", "t1", *APP)
    waits = check(await command(home, *words), 3)
    assert waits.out == ""
    assert "pay" in waits.told
    assert '"hat"' in waits.told
    assert "\n  worldagent resume t1 --app support.hat_shop:agent --approve\n" in waits.told
    assert effects(home) == []
    still = check(await command(home, "resume", "t1", *APP), 3)
    assert (still.out, still.told) == ("", waits.told)
    done = check(await command(home, "resume", "t1", *APP, "--approve"), 0)
    assert (done.out, done.told) == ("paid for the hat\n", "")
    assert effects(home) == ["paid hat"]


async def test_as_json_the_turn_names_what_waits_and_the_command_that_answers(home: Path, run: Run) -> None:
    waits = await run("task", "pick", "-p", "what=hat", "--json", *APP)
    turn = json.loads(waits.stdout)
    assert (waits.exit_code, turn["status"], turn["result"], waits.stderr) == (3, "paused", None, "")
    assert turn["resume"] == "worldagent resume main --app support.hat_shop:agent"
    pauses = {pause["kind"]: pause for pause in turn["pauses"]}
    assert set(pauses) == {"approval", "question"}
    assert (pauses["question"]["question"], pauses["question"]["options"]) == ("Which hat?", ["red", "blue"])
    assert (pauses["approval"]["function"], pauses["approval"]["arguments"]) == ("pay", {"what": "hat"})
    one = ("resume", "main", "--json", *APP, "--answer", f"{pauses['question']['id']}=2")
    left = json.loads((await run(*one)).stdout)
    assert [pause["id"] for pause in left["pauses"]] == [pauses["approval"]["id"]]
    events = await run("resume", "main", "--events", *APP, "--approve-all")
    told = [parse_event(line) for line in events.stdout.splitlines()]
    assert isinstance(told[0], TurnStarted)
    assert told[0].resumed
    assert [event.pause_id for event in told if isinstance(event, PauseClosed)] == [pauses["approval"]["id"]]
    assert isinstance(told[-1], TurnEnded)
    assert effects(home) == ["paid hat"]


@pytest.mark.requirement("T5")
async def test_a_turn_whose_process_was_killed_asks_about_its_open_call(home: Path) -> None:
    async with started(home, "task", "send", "-p", "what=hat", *APP) as process:
        assert await eventually(lambda: effects(home) == ["begun hat"], BOUND)
        process.send_signal(signal.SIGKILL)
        await process.wait()
    waits = check(await command(home, "resume", "main", *APP), 3)
    assert "deliver" in waits.told
    assert "worldagent resume main --app support.hat_shop:agent --answer ANSWER" in waits.told
    done = check(await command(home, "resume", "main", *APP, "--answer", 'happened "delivered the hat"'), 0)
    assert done.out == "delivered the hat, wrapped the hat\n"
    assert effects(home) == ["begun hat", "wrapped hat"]


@pytest.mark.requirement("T5")
async def test_sigterm_stops_a_turn_at_its_next_step_and_resume_continues(home: Path) -> None:
    async with started(home, "task", "send", "-p", "what=hat", *APP) as process:
        assert await eventually(lambda: effects(home) == ["begun hat"], BOUND)
        process.send_signal(signal.SIGTERM)
        (home / "go").touch()
        out, told = await asyncio.wait_for(process.communicate(), BOUND)
    assert (process.returncode, out) == (143, b"")
    assert told == b"the turn was stopped; resume it with: worldagent resume main --app support.hat_shop:agent\n"
    assert effects(home) == ["begun hat", "delivered hat"]
    assert check(await command(home, "resume", "main", *APP), 0).out == "delivered the hat, wrapped the hat\n"
    assert effects(home) == ["begun hat", "delivered hat", "wrapped hat"]


@pytest.mark.soak  # the command waits ten seconds for the model
@pytest.mark.requirement("T5")
async def test_sigterm_while_a_model_thinks_keeps_the_turn_and_resume_asks_it_again(home: Path) -> None:
    async with openai_stub() as stub:
        question = ("ask", "What is the capital of France?", "--thread", "main")
        words = (*question, "--lm", "openai/slow", "--json", "--role", SECRET)
        async with started(home, *words, WORLDAGENT_API_BASE=stub.url) as process:
            await asyncio.wait_for(stub.arrived.wait(), BOUND)
            process.send_signal(signal.SIGTERM)
            out, told = await asyncio.wait_for(process.communicate(), BOUND)
        turn = json.loads(out)
        assert (process.returncode, turn["status"], turn["resume"]) == (143, "stopped", "worldagent resume main")
        again = ("resume", "main", "--lm", "openai/answer", "--role", SECRET)
        done = check(await command(home, *again, WORLDAGENT_API_BASE=stub.url), 0)
    assert done.out == "Paris.\n"
    assert SECRET not in out.decode() + told.decode()


@pytest.mark.requirement("R13")
async def test_the_role_is_given_again_and_no_answer_is_taken_where_it_is_missing(home: Path, run: Run) -> None:
    waits = await run("task", "buy", "-p", "what=hat", "--role", SECRET, *APP)
    assert waits.exit_code == 3
    assert waits.stderr.endswith("\nwith the same --role\n")
    missing = await refusal(run, "resume", "main", "--approve", *APP, code=1)
    assert missing["code"] == "role_required"
    assert all(option in missing["remedy"] for option in ("--role", "--no-role", "--on-role-change refresh"))
    changed = await refusal(run, "resume", "main", "--approve", "--role", "Answer in verse.", *APP, code=1)
    assert changed["code"] == "role_changed"
    assert "=" not in missing["remedy"] + changed["remedy"]  # no argument of Python's
    done = await run("resume", "main", "--approve", "--role", SECRET, *APP, "-v")
    assert (done.exit_code, done.stdout, done.stderr) == (
        0,
        "paid for the hat\n",
        "role tiers: none\n",
    )  # its handler asks no model
    assert SECRET not in f"{waits.output} {missing} {changed} {done.output}"


@pytest.mark.requirement("R13")
@pytest.mark.parametrize("how", [("--no-role",), ("--on-role-change", "refresh")])
async def test_a_turn_is_resumed_without_its_role_on_purpose(home: Path, run: Run, how: tuple[str, ...]) -> None:
    assert (await run("task", "buy", "-p", "what=hat", "--role", SECRET, *APP)).exit_code == 3
    done = await run("resume", "main", "--approve", *how, *APP, "-v")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "paid for the hat\n", "role tiers: none\n")


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (("resume", "nobody"), 2, "has no thread 'nobody'"),
        (("resume", "talk"), 2, "the last turn of the thread 'talk' is done"),
        (("resume", "main", "--answer", "{id}x=red"), 2, "is not waiting, and may be answered already"),
        (("resume", "main", "--approve"), 2, "must name one of the 2"),
        (("ask", "Hello", "--thread", "main"), 1, "run `worldagent resume main --app support.hat_shop:agent`"),
    ],
)
async def test_invalid_resume_is_refused(home: Path, run: Run, words: tuple[str, ...], code: int, named: str) -> None:
    async with agent() as shop:
        await shop.thread("talk").converse("Hello")
        turn = await shop.thread("main").task("pick", {"what": "hat"})
    result = await run(*(word.format(id=turn.pauses[0].id) for word in words), *APP)
    assert result.exit_code == code, result.output
    assert named in result.output
    async with agent() as shop:
        assert {pause.id for pause in await shop.thread("main").pauses()} == {pause.id for pause in turn.pauses}
    assert effects(home) == []


# --- an agent of one's own ------------------------------------------------------------------------------------------


async def test_the_page_of_the_command_line_shows_what_happens(home: Path, run: Run) -> None:
    [source] = [block.code for block in blocks("python") if block.page.name == "cli.md"]
    (home / "shop.py").write_text(source, encoding="utf-8")
    [shown] = [block.code for block in blocks("console") if block.page.name == "cli.md"]
    told: list[str] = []
    for line in shown.splitlines():
        if line.startswith("$ worldagent "):
            result = await run(*shlex.split(line)[2:])
            told += [line, *re.sub(r"turn_[0-9a-f]{32}", "turn_1", result.output).splitlines()]
    assert told == shown.splitlines()


ODD = f"""
import asyncio
from worldagent import WorldAgent
def fails(): raise KeyError({SECRET!r})
def begun():
    agent = WorldAgent("shop", lm="local")
    asyncio.run(agent.start())
    return agent
"""
BROKEN = {
    "odd_shop": ODD,
    "failing_shop": f"secret = {SECRET!r}\n1 / 0\n",
    "needing_shop": "import nothing_of_this_name\n",
}


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ("nothing_of_this_name:agent", "the module 'nothing_of_this_name' does not exist"),
        ("odd_shop:nothing", "the module 'odd_shop' has no 'nothing'"),
        ("odd_shop:begun", "the agent of 'odd_shop:begun' is open already"),
        ("odd_shop:fails", "'odd_shop:fails' fails with KeyError in 'odd_shop.py', line 4"),
        ("failing_shop:agent", "importing 'failing_shop' fails with ZeroDivisionError in 'failing_shop.py', line 2"),
        ("needing_shop:agent", "the module 'nothing_of_this_name', which it needs, does not exist"),
    ],
)
async def test_invalid_app_is_named_without_its_code(home: Path, run: Run, spec: str, named: str) -> None:
    for name, source in BROKEN.items():
        (home / f"{name}.py").write_text(source, encoding="utf-8")
    result = await run("ask", "Hello", "--app", spec)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert named in result.stderr
    assert "\nremedy: " in result.stderr
    assert SECRET not in result.output


async def test_options_that_make_another_agent_are_refused_with_an_app(run: Run) -> None:
    worker, host = ("--worker", "critic=You judge."), ("--role-host", "embedded")
    others = (("--lm", "local"), worker, host, ("--profile", "coder"), ("--workspace", "novel"))
    for option, value in others:
        result = await run("ask", "Hello", *APP, option, value)
        assert (result.exit_code, result.stdout) == (2, ""), result.output
        assert option in result.stderr
