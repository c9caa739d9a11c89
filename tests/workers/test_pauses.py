"""A paused worker resumes in another process, and a killed one loses and repeats nothing (H3, T5)."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.agents import SHOPPER, calls, paying, price, scripted_agent, to, told
from support.databases import Engine, contents_of, made
from support.loop_child import INSIDE, ROLE
from support.processes import run_child
from worldagent.core.pauses import Approve, Reject
from worldagent.testing import ScriptedLM, assert_no_role_leak

pytestmark = pytest.mark.requirement("T5", "H3")

KILLED = -9


def child(home: Path, what: str, kill: int, surface: str, how: str = "json") -> tuple[int, str]:
    """Run the child in a process of its own; gives its status and what it said."""
    order = {"home": str(home), "what": what, "kill": kill, "surface": surface, "how": how}
    code, found, _ = asyncio.run(run_child("loop_child", **order))
    return code, found[0] if found else ""


def lines(home: Path, name: str) -> list[str]:
    return (home / name).read_text(encoding="utf-8").splitlines()


def effects(home: Path) -> list[str]:
    """What was done; the two calls of the first step are made side by side, in any order."""
    done = lines(home, "effects")
    return [*sorted(done[:2]), *done[2:]]


def none_is_kept(home: Path) -> None:
    assert_no_role_leak([contents_of(home)], ROLE.content)


@pytest.fixture
def home(database_engine: Engine, tmp_path: Path) -> Path:
    """A home whose database is on the engine, for processes that have no environment of this test's."""
    return made(database_engine, tmp_path / "home")


@pytest.mark.requirement("R6", "R7")
@pytest.mark.parametrize(("surface", "how"), [("converse", "native"), ("task", "json")])
def test_paused_worker_resumes_in_another_process(home: Path, surface: str, how: str) -> None:
    assert child(home, "begin", 0, surface, how) == (0, "paused pay")
    assert effects(home) == ["one", "two", "three"]
    asked = lines(home, "asked")
    assert child(home, "approve", 0, surface, how) == (0, "done")
    assert effects(home) == ["one", "two", "three", "four"]
    role = "role" if surface == "task" else "none"
    mine = [f"worker {notes} {role}" for notes in (0, 2, 3)]
    assert asked == (["planner 0 role", *mine] if surface == "converse" else mine)
    last = [f"worker 4 {role}", *(["planner 1 role"] if surface == "converse" else [])]
    assert lines(home, "asked") == [*asked, *last], "nothing was thought twice"
    none_is_kept(home)


POINTS = [("begin", 2), ("begin", 4), ("approve", 1), ("approve", 2)]


@pytest.mark.on_every_database
@pytest.mark.requirement("R7")
@pytest.mark.parametrize(("what", "at"), POINTS)
def test_killed_worker_loses_and_repeats_nothing(home: Path, what: str, at: int) -> None:
    if what == "approve":
        assert child(home, "begin", 0, "converse") == (0, "paused pay")
    assert child(home, what, at, "converse")[0] == KILLED
    if what == "begin":
        assert child(home, "resume", 0, "converse") == (0, "paused pay")
        assert child(home, "approve", 0, "converse") == (0, "done")
    else:
        assert child(home, "resume", 0, "converse") == (0, "done")
    assert effects(home) == ["one", "two", "three", "four"]
    # Answers of models of the last second may not be on the disk (D21).
    assert max(Counter(lines(home, "asked")).values()) <= 2
    none_is_kept(home)


def test_interrupted_call_of_a_worker_is_answered_by_a_person(home: Path) -> None:
    assert child(home, "begin", INSIDE, "converse")[0] == KILLED
    assert child(home, "resume", 0, "converse") == (0, "paused put")
    assert child(home, "approve", 0, "converse") == (0, "paused pay")
    assert child(home, "approve", 0, "converse") == (0, "done")
    assert effects(home) == ["one", "two", "three", "four"]
    assert len(lines(home, "asked")) == len(set(lines(home, "asked"))) == 6


@pytest.mark.requirement("H9")
async def test_several_calls_of_one_step_wait_and_are_answered_one_by_one(tmp_path: Path) -> None:
    done: list[str] = []
    asked = calls(("pay", {"what": "hat"}), ("price", {"what": "hat"}), ("pay", {"what": "coat"}))
    lm = ScriptedLM([to("shopper"), asked, {"result": "Bought."}, {"reply": "Done."}])

    def agent() -> Any:
        return scripted_agent(tmp_path, lm, workers=[SHOPPER], tools=[price, paying(done)])

    async with agent() as first:
        turn = await first.thread("t").converse("Go")
        assert [pause.arguments for pause in turn.pauses] == [{"what": "hat"}, {"what": "coat"}]
        assert {pause.caller for pause in turn.pauses} == {"shopper"}
    async with agent() as second:
        thread = second.thread("t")
        [hat, coat] = await thread.pauses()
        turn = await thread.resume({coat.id: Reject("too dear")})
        assert (turn.status, [pause.id for pause in turn.pauses], done) == ("paused", [hat.id], [])
    async with agent() as third:
        turn = await third.thread("t").resume({hat.id: Approve({"what": "cap"})})
        assert (turn.status, turn.text, done) == ("done", "Done.", ["cap"])
    lm.assert_all_used()
    assert [note.rsplit("\n", 1)[-1] for note in told(lm.calls[2])[:2]] == ["paid cap", "3"]
    assert "too dear" in told(lm.calls[2])[2]
    assert "It failed (call_refused)" in told(lm.calls[2])[2]
