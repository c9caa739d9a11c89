"""The agents of a sidecar: opened once, bounded, tried again; limits on turns; the end; and that nothing grows."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.agents import Thinking, answering
from support.counters import growing, held
from support.processes import eventually
from support.role_hosts import BOUND, Mode
from support.sidecar_served import Caller, Held, agents, caller_of, served
from worldagent import WorldAgent
from worldagent.core.errors import InvalidArgument, StorageUnavailable
from worldagent.hosts.sidecar import Limits, Sidecar
from worldagent.storage import lease
from worldagent.testing import ScriptedLM


class Makers:
    """Makes agents and tells what became of them."""

    def __init__(self, home: Path, lm: ScriptedLM, *, fail: int = 0) -> None:
        self._make = agents(home, lm=lm)
        self._fail = fail
        self.made: list[str] = []
        self.closed: list[str] = []

    def __call__(self, workspace: str) -> WorldAgent:
        self.made.append(workspace)
        if self._fail:
            self._fail -= 1
            raise StorageUnavailable("the disk is gone", remedy="bring it back")
        agent = self._make(workspace)
        close = agent.aclose

        async def aclose() -> None:
            await close()
            self.closed.append(workspace)

        agent.aclose = aclose  # type: ignore[method-assign]  # to see it
        return agent


async def say(ask: Caller, workspace: str, thread: str = "t1") -> dict[str, Any]:
    return await ask("converse", workspace=workspace, thread=thread, text="Well?")


async def test_concurrent_calls_open_an_agent_once(tmp_path: Path) -> None:
    make = Makers(tmp_path, answering())
    async with served(Sidecar(make)) as url, caller_of(url, "auto") as ask:
        await asyncio.gather(*(say(ask, "novel", f"t{number}") for number in range(20)))
    assert make.made == ["novel"]
    assert make.closed == ["novel"]


async def test_an_agent_that_cannot_open_is_a_typed_error_and_tried_again(tmp_path: Path) -> None:
    make = Makers(tmp_path, answering(), fail=1)
    async with served(Sidecar(make)) as url, caller_of(url, "auto") as ask:
        error = await ask.refused("converse", workspace="novel", thread="t1", text="Well?")
        assert error["code"] == "storage_unavailable"
        assert (await say(ask, "novel"))["turn"]["status"] == "done"
    assert make.made == ["novel", "novel"]


@pytest.mark.requirement("T16")
async def test_an_agent_that_runs_what_was_queued_is_not_closed_for_another(tmp_path: Path) -> None:
    model = Thinking()
    make = Makers(tmp_path, model.lm)
    async with served(Sidecar(make, limits=Limits(workspaces=1))) as url, caller_of(url, "auto") as ask:
        await ask("thread_queue", workspace="one", thread="t1", text="Well?")
        await asyncio.wait_for(model.asked.wait(), BOUND)
        error = await ask.refused("converse", workspace="two", thread="t1", text="Well?")
        assert (error["code"], make.closed) == ("too_many_turns", [])
        model.may.set()
        async with asyncio.timeout(BOUND):
            while (await ask("pauses", workspace="one", thread="t1"))["status"] != "done":
                pass
        assert (await say(ask, "two"))["turn"]["status"] == "done"


async def test_idle_agents_make_room_for_others_and_are_made_again(tmp_path: Path) -> None:
    make = Makers(tmp_path, answering())
    sidecar = Sidecar(make, limits=Limits(workspaces=2))
    async with served(sidecar) as url, caller_of(url, "auto") as ask:
        for workspace in ("one", "two", "one", "three"):
            await say(ask, workspace)
            assert sidecar.health()["workspaces"] <= 2
        assert make.closed == ["two"]
        await say(ask, "two")
        assert make.made == ["one", "two", "three", "two"]
        assert make.closed == ["two", "one"]


async def test_an_agent_that_holds_a_role_in_memory_is_closed_last(tmp_path: Path) -> None:
    make = Makers(tmp_path, answering())
    async with served(Sidecar(make, limits=Limits(workspaces=2))) as url, caller_of(url, "auto") as ask:
        await ask("thread_role_set", workspace="one", thread="t1", role={"content": "Speak of the tide."})
        for workspace in ("two", "three", "four"):
            await say(ask, workspace)
        answer = await say(ask, "one")
    assert answer["turn"]["role_tiers"] == ["thread"]
    assert make.closed[:2] == ["two", "three"]


async def test_agents_in_use_are_never_closed_for_others(tmp_path: Path) -> None:
    gate = Held()
    make = Makers(tmp_path, ScriptedLM(gate))
    async with served(Sidecar(make, limits=Limits(workspaces=1))) as url, caller_of(url, "auto") as ask:
        asking = asyncio.create_task(say(ask, "one"))
        await asyncio.wait_for(gate.begun.acquire(), BOUND)
        error = await ask.refused("converse", workspace="two", thread="t1", text="Well?")
        assert (error["code"], error["retryable"]) == ("too_many_turns", True)
        gate.go.set()
        assert (await asking)["turn"]["status"] == "done"
        await say(ask, "two")


async def test_a_workspace_has_so_many_turns_at_once_and_no_more(tmp_path: Path) -> None:
    gate = Held()
    sidecar = Sidecar(Makers(tmp_path, ScriptedLM(gate)), limits=Limits(turns=2))
    async with served(sidecar) as url, caller_of(url, "auto") as ask:
        asking = [asyncio.create_task(say(ask, "one", f"t{number}")) for number in range(2)]
        for _ in asking:
            await asyncio.wait_for(gate.begun.acquire(), BOUND)
        error = await ask.refused("converse", workspace="one", thread="t3", text="Well?")
        assert (error["code"], error["retryable"]) == ("too_many_turns", True)
        await ask("history", workspace="one", thread="t3")  # what begins no turn is not counted
        other = asyncio.create_task(say(ask, "two"))
        await asyncio.wait_for(gate.begun.acquire(), BOUND)
        gate.go.set()
        assert {answer["turn"]["status"] for answer in await asyncio.gather(*asking, other)} == {"done"}
        await say(ask, "one", "t3")
        assert sidecar.health() == {"draining": False, "workspaces": 2, "turns": 0}


@pytest.mark.requirement("T10")
async def test_a_repeated_start_follows_its_turn_though_the_workspace_is_full(tmp_path: Path) -> None:
    gate = Held()
    sidecar = Sidecar(Makers(tmp_path, ScriptedLM(gate)), limits=Limits(turns=1))
    start: dict[str, Any] = {"workspace": "one", "thread": "t1", "text": "Well?", "key": "k", "detach": True}
    async with served(sidecar) as url, caller_of(url, "auto") as ask, caller_of(url, "auto") as other:
        first = asyncio.create_task(ask("converse", **start))
        await asyncio.wait_for(gate.begun.acquire(), BOUND)
        repeated = asyncio.create_task(other("converse", **start))
        await asyncio.wait_for(other.come.wait(), BOUND)  # it follows the turn that the workspace is full with
        assert sidecar.health()["turns"] == 1
        assert (await other.refused("converse", **start | {"text": "And?"}))["code"] == "key_reused"
        for another in ({"key": "k2"}, {"thread": "t2"}, {"key": None}):
            assert (await ask.refused("converse", **start | another))["code"] == "too_many_turns"
        gate.go.set()
        one, two = await asyncio.gather(first, repeated)
        assert (one["turn"]["status"], two["turn"]) == ("done", one["turn"])

        gate.go.clear()
        busy = asyncio.create_task(ask("converse", workspace="one", thread="t2", text="Well?"))
        await asyncio.wait_for(gate.begun.acquire(), BOUND)
        assert (await other("converse", **start))["turn"] == one["turn"]  # full with another one, and this is over
        gate.go.set()
        await busy
        assert sidecar.health()["turns"] == 0


async def test_at_the_end_turns_stop_and_new_calls_are_refused(tmp_path: Path) -> None:
    gate = Held()
    first = Sidecar(Makers(tmp_path, ScriptedLM(gate)))
    async with served(first) as url, caller_of(url, "auto") as ask:
        asking = asyncio.create_task(ask("converse", workspace="one", thread="t1", text="Well?", key="k"))
        await asyncio.wait_for(gate.begun.acquire(), BOUND)
        ending = asyncio.create_task(first.drain(0.2))
        answer = await asking
        await ending
        assert answer["turn"]["status"] in ("stopped", "cancelled")
        error = await ask.refused("history", workspace="one", thread="t1")
        assert (error["code"], error["retryable"]) == ("draining", True)
        assert await first.ready() == {"ready": False, "draining": True, "workspaces": 0, "turns": 0}
    async with served(Sidecar(Makers(tmp_path, answering()))) as url, caller_of(url, "auto") as ask:
        stands = await ask("pauses", workspace="one", thread="t1")
        assert stands["status"] == "stopped"
        [step] = stands["next"]
        assert step["tool"] == "resume"
        again = await ask("resume", **step["arguments"])
        assert (again["turn"]["id"], again["turn"]["status"]) == (answer["turn"]["id"], "done")


async def test_call_waiting_for_an_agent_is_refused_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opening = asyncio.Event()

    async def start(agent: WorldAgent) -> None:
        opening.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(WorldAgent, "start", start)
    sidecar = Sidecar(agents(tmp_path, lm=answering()))
    async with served(sidecar) as url, caller_of(url, "auto") as ask:
        asking = asyncio.create_task(ask.refused("converse", workspace="one", thread="t1", text="Well?"))
        await asyncio.wait_for(opening.wait(), BOUND)
        await sidecar.drain(0)
        assert (await asking)["code"] == "draining"


@pytest.mark.parametrize(("name", "value"), [("turns", 0), ("workspaces", -1), ("reader_stall", float("nan"))])
def test_a_limit_that_is_none_is_refused(name: str, value: float) -> None:
    limits: dict[str, Any] = {name: value}
    with pytest.raises(InvalidArgument, match=rf"{name} must be above 0 .*; give a number above 0"):
        Limits(**limits)


# --- growth -----------------------------------------------------------------------------------------------------------


_TURNS, _FEWEST, _MOST = 40, 3, 10
_REMEMBERED = 32  # threads of which an agent keeps in memory what their last owner knew

STARTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "recorded": {"role": {"content": "You are a lighthouse keeper of few words."}, "detach": True, "key": "first"},
}


@pytest.mark.requirement("T10")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("start", "mode"),
    [
        ("recorded", "auto"),
        pytest.param("plain", "legacy", marks=pytest.mark.soak),
        pytest.param("plain", "auto", marks=pytest.mark.soak),
        pytest.param("recorded", "legacy", marks=pytest.mark.soak),
    ],
)
async def test_threads_leave_no_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode, start: str) -> None:
    monkeypatch.setattr(lease, "MAX_KNOWN_KEYS", _REMEMBERED)
    lm = answering()
    sidecar = Sidecar(agents(tmp_path, lm=lm))
    async with served(sidecar) as url, caller_of(url, mode) as ask:

        async def turns(count: int, prefix: str) -> None:
            for number in range(count):
                where: dict[str, Any] = {"workspace": "one", "account": "ana", "thread": f"{prefix}{number}"}
                assert (await ask("converse", **where, text="Hi", **STARTS[start]))["turn"]["status"] == "done"
                ask.events.clear()
                ask.progress.clear()
                lm.calls.clear()
            assert await eventually(lambda: not sidecar.health()["turns"], BOUND)  # it has answered

        await turns(_REMEMBERED, "before")  # that memory is full from now on
        looks: list[Counter[str]] = []
        while len(looks) < _FEWEST or (len(looks) < _MOST and growing(looks, _TURNS)):  # what leaks does so each time
            await turns(_TURNS, f"round{len(looks)}-")
            looks.append(held())
        assert growing(looks, _TURNS) == {}
