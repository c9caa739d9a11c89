"""`worldagent background list`, `start`, `steer` and `cancel`: a command leaves the work to a process that stays."""

from pathlib import Path
from typing import Any

import pytest

from support.background import settled, shop
from support.command_line import Run, as_json, home, refusal, run

__all__ = ["home", "run"]  # fixtures

pytestmark = pytest.mark.requirement("T10", "T17")

APP = ("--app", "support.background:shop")
SHOP = ("--workspace", "shop")


async def tasks(run: Run) -> list[tuple[str, str]]:
    found = (await as_json(run, "background", "list", "t1", *SHOP))["tasks"]
    return [(each["name"], each["status"]) for each in found]


async def test_what_a_command_starts_waits_for_a_process_that_stays(home: Path, run: Run) -> None:
    assert "has no background tasks" in (await run("background", "list", "t1", *SHOP)).stderr
    read = ("background", "start", "t1", "Read Moby Dick.", "--to", "reader", "--report", "next", "--key", "k", *APP)
    made = await run(*read)
    assert (made.exit_code, "a process that stays begins it" in made.stderr) == (0, True)
    task = made.stdout.strip()
    assert (await as_json(run, *read))["task"]["id"] == task
    assert await tasks(run) == [("reader", "queued")]
    steered = await run("background", "steer", "t1", task, "Only the first chapter.", *APP)
    assert (steered.exit_code, task in steered.stdout) == (0, True)
    other = await refusal(run, "background", "steer", "t1", task, "Stop.", "--account", "ben", *APP)
    assert (other["code"], "--account" in other["remedy"]) == ("not_steerable", True)
    async with shop() as agent:
        await settled(agent)
        child = (await agent.background_tasks(agent.thread("t1")))[0].thread
        assert [each.kind for each in await child.history()] == ["task", "word", "result"]
    assert await tasks(run) == [("reader", "done")]
    shown = (await run("background", "list", "t1", *SHOP)).stdout.splitlines()
    assert (shown[0].split()[:3], shown[1].split()[:3]) == (["TASK", "NAME", "STATUS"], [task, "reader", "done"])
    over = await refusal(run, "background", "cancel", "t1", task, *SHOP, code=1)
    assert (over["code"], "was over" in over["message"]) == ("not_found", True)
    assert (await refusal(run, "background", "steer", "t1", task, "x", *APP))["code"] == "nothing_to_steer"


async def test_a_turn_of_a_command_says_that_its_work_waits(home: Path, run: Run) -> None:
    desk = ("--app", "support.background:desk")
    done = await run("ask", "What is Moby Dick about?", "--thread", "t1", *desk)
    assert (done.stdout.strip(), done.exit_code) == ("I let it be read.", 0)
    assert "work in the background waits for a process that stays" in done.stderr
    assert await tasks(run) == [("reader", "queued")]


async def test_a_task_is_cancelled_without_a_model(home: Path, run: Run) -> None:
    made = await as_json(run, "background", "start", "t1", "Think about whales.", *APP)
    task = made["task"]["id"]
    assert (made["task"]["name"], made["task"]["report"]) == ("conversation", "turn")
    assert (await run("background", "cancel", "t1", task, *SHOP)).stdout.strip() == f"{task}: cancelled"
    async with shop() as agent:
        await settled(agent)
        thread = agent.thread("t1")
        assert await thread.state() is None, "it never began, and its report begins no turn"
        assert [each.text for each in await thread.queued()] == [
            f"The background task {task} (conversation) was cancelled."
        ]
    unknown = await refusal(run, "background", "cancel", "t1", "nothing", *SHOP)
    assert (unknown["code"], unknown["remedy"]) == ("unknown_task", "use one of `worldagent background list`")


async def test_an_agent_of_options_works_in_the_background(
    home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    options = ("--worker", "reader=You read books.", "--lm", "openai/none", *SHOP)
    made = await as_json(run, "background", "start", "t1", "Read Moby Dick.", "--to", "reader", *options)
    assert made["task"]["name"] == "reader"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("x", "--role", "Be terse."), "invalid_argument"),
        (("x", "--task", "subagent"), "invalid_argument"),
        (("x", "--params", "{}"), "invalid_argument"),
        (("x", "--report", "never"), "invalid_argument"),
        (("--task", "subagent", "--to", "reader"), "invalid_argument"),
        (("--task", "nothing"), "unknown_shape"),
        (("x", "--to", "nothing"), "unknown_worker"),
    ],
)
async def test_what_a_command_cannot_start_is_refused(home: Path, run: Run, words: Any, code: str) -> None:
    assert (await refusal(run, "background", "start", "t1", *words, *APP))["code"] == code
    assert await tasks(run) == []
