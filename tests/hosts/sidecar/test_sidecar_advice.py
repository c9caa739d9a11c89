"""What a caller is told where a turn does not go on that could: what became of answers, who goes on, what to call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from support.agents import scripted_agent
from support.sidecar_served import Shop, call
from worldagent import Role, Roles, Tier, WorldAgent
from worldagent.core import Scope
from worldagent.harness import Policy, tool
from worldagent.harness.gate import Rule
from worldagent.hosts.sidecar import Grant, Sidecar
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T4")

ROLE = {"content": "Be brief, and speak of the tide."}


class Source:
    """The channel's role, which can be away."""

    def __init__(self) -> None:
        self.away = False
        self.role: Role | None = None

    async def __call__(self, scope: Scope) -> Role | None:
        if self.away:
            raise OSError("the channel's roles are away")
        return self.role


class Desk:
    """People at one home, each at a sidecar of their own; the agent buys what it is told to, with the lead's leave."""

    def __init__(self, home: Path) -> None:
        self.shop, self.source, self._home = Shop(), Source(), home
        self.held = asyncio.Event()

    def agent(self) -> WorldAgent:
        leave = Rule(decision="ask", function="pay", approvers=("lead",), name="money")
        return scripted_agent(
            self._home,
            ScriptedLM(self._reply),
            tools=[tool(approval=True)(self.shop.pay)],
            shapes=self.shop.shapes(),
            policy=Policy(rules=(leave,)),
            roles=Roles(sources={Tier.CHANNEL: self.source}),
        )

    async def _reply(self, call: ScriptedCall) -> dict[str, Any]:
        if "hold" in call.fields["message"]:
            self.held.set()
            await asyncio.Event().wait()
        bought = bool(call.steps)
        if "buy" in call.fields["message"] and not bought:
            return {"reply": "", "calls": [{"tool": "buy", "arguments": {"what": "hat"}}]}
        return {"reply": "Fine.", "calls": []}

    @asynccontextmanager
    async def of(self, who: str) -> AsyncGenerator[tuple[Sidecar, Client]]:
        async with (
            Sidecar(lambda workspace: self.agent(), grant=Grant({"novel"}, {who})) as sidecar,
            Client(sidecar.server) as client,
        ):
            yield sidecar, client

    async def __call__(self, who: str, tool_name: str, **given: Any) -> dict[str, Any]:
        async with self.of(who) as (_, client):
            return await call(client, tool_name, thread="t1", channel="c", **given)

    async def refused(self, who: str, tool_name: str, **given: Any) -> dict[str, Any]:
        error: dict[str, Any] = (await self(who, tool_name, **given))["error"]
        return error

    async def begin(self, **more: Any) -> str:
        """Ana's turn waits for the lead; gives its pause."""
        paused = await self("ana", "converse", text="buy a hat", **more)
        [pause] = paused["turn"]["pauses"]
        return str(pause["id"])


def tools_of(steps: list[dict[str, Any]]) -> list[str]:
    return [step["tool"] for step in steps]


# --- answers that were kept -------------------------------------------------------------------------------------------


async def test_an_approver_is_told_that_the_answer_is_kept_and_who_brings_the_role(tmp_path: Path) -> None:
    at = Desk(tmp_path)
    pause = await at.begin(role=ROLE)
    error = await at.refused("lead", "resume", answers={pause: {"approve": {}}})
    assert (error["code"], error["retryable"]) == ("role_required", False)
    assert "your answers are kept" in error["problem"]
    assert "'ana'" in error["remedy"]
    assert not any(word in error["remedy"] for word in ("the role again", "role=", "on_role_change"))
    assert tools_of(error["next"]) == ["pauses"]
    [step] = error["next"]
    stands = await at("lead", "pauses")
    assert step["arguments"] == {"workspace": "novel", "account": "lead", "channel": "c", "thread": "t1"}
    assert (stands["status"], stands["next"]) == ("paused", []), "nothing of it is the lead's"
    assert [(item["id"], item["answered"]) for item in stands["pauses"]] == [(pause, True)]
    assert at.shop.done == []

    [step] = (await at("ana", "pauses"))["next"]
    assert (step["tool"], step["why"]) == (
        "resume",
        "it is answered; resume continues it; add the role that the turn began with",
    )
    done = await at("ana", "resume", role=ROLE)
    assert (done["turn"]["status"], at.shop.done) == ("done", ["hat"])


@pytest.mark.parametrize("away", [True, False])
async def test_an_approver_cannot_mend_a_role_that_changed_or_is_away_and_is_not_asked_to(
    tmp_path: Path, away: bool
) -> None:
    at = Desk(tmp_path)
    pause = await at.begin()
    at.source.away, at.source.role = away, Role("other", "Be long, and speak of the land.")
    error = await at.refused("lead", "resume", answers={pause: {"approve": {}}})
    code = "role_source_unavailable" if away else "role_changed"
    assert (error["code"], error["retryable"], tools_of(error["next"])) == (code, False, ["pauses"])
    assert "kept" in error["problem"] + error["remedy"]
    assert "on_role_change" not in error["remedy"]
    at.source.away, at.source.role = False, None
    assert (await at("ana", "resume"))["turn"]["status"] == "done"
    assert at.shop.done == ["hat"]


async def test_a_running_turn_that_keeps_no_events_is_the_owners_to_wait_for(tmp_path: Path) -> None:
    at = Desk(tmp_path)
    async with at.of("ana") as (_, client):
        held = asyncio.create_task(call(client, "converse", thread="t1", channel="c", text="hold", detach=False))
        await asyncio.wait_for(at.held.wait(), 20)
        of_ana, of_bob = [await at(who, "pauses") for who in ("ana", "bob")]
        assert (of_ana["status"], tools_of(of_ana["next"])) == ("running", ["resume"])
        assert (of_bob["status"], of_bob["next"]) == ("running", [])
        assert (await call(client, "cancel", thread="t1", channel="c"))["cancelled"] is True
        assert (await asyncio.wait_for(held, 20))["turn"]["status"] == "cancelled"


# --- threads that take nothing new ------------------------------------------------------------------------------------


async def test_new_input_on_a_stopped_turn_is_told_that_nothing_waits_for_an_answer(tmp_path: Path) -> None:
    at = Desk(tmp_path)
    async with at.of("ana") as (sidecar, client):
        held = asyncio.create_task(call(client, "converse", thread="t1", channel="c", text="hold", key="k"))
        await asyncio.wait_for(at.held.wait(), 20)
        await sidecar.drain(0.1)
        stopped = (await asyncio.wait_for(held, 20))["turn"]
    assert stopped["status"] == "stopped"
    error = await at.refused("ana", "converse", text="And?")
    assert (error["code"], error["turn_id"], error["pauses"]) == ("thread_paused", stopped["id"], [])
    assert "is stopped" in error["problem"]
    assert "answer" not in error["remedy"]
    assert tools_of(error["next"]) == ["resume", "cancel"]
    assert [set(step["arguments"]) for step in error["next"]] == [{"workspace", "account", "channel", "thread"}] * 2
    assert "step" in error["next"][0]["why"]
    other = await at.refused("bob", "converse", text="And?")
    assert "'ana'" in other["remedy"]
    assert tools_of(other["next"]) == ["pauses"]
    assert (await at.refused("bob", "resume"))["code"] == "forbidden"


async def test_new_input_on_a_paused_turn_is_told_who_answers(tmp_path: Path) -> None:
    at = Desk(tmp_path)
    pause = await at.begin(role=ROLE)
    for who, tools, word in (
        ("ana", ["resume", "cancel"], "with an answer to each pause"),
        ("lead", ["resume"], "with an answer to each pause that names you"),
        ("bob", ["pauses"], "wait until the turn's account 'ana' resumes the turn"),
    ):
        error = await at.refused(who, "converse", text="And?")
        assert (error["code"], tools_of(error["next"]), [each["id"] for each in error["pauses"]]) == (
            "thread_paused",
            tools,
            [pause],
        )
        assert word in error["remedy"]
    await at.refused("lead", "resume", answers={pause: {"approve": {}}})
    answered = await at.refused("ana", "converse", text="And?")
    assert (answered["pauses"], "to continue the turn" in answered["remedy"]) == ([], True)
    assert answered["next"][0]["why"] == "it is answered; resume continues it; add the role that the turn began with"
