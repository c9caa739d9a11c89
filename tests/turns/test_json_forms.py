"""JSON forms of turns, messages, pauses and thread states, and ids of pauses that fit URLs and shells (T4)."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from support.agents import Thinking, scripted_agent
from support.sidecar_served import Shop, call
from worldagent.core.errors import AlreadyAnswered, InvalidArgument
from worldagent.core.pauses import Approve, Reject, call_id_of, pause_id_of
from worldagent.hosts.sidecar import Sidecar

pytestmark = pytest.mark.requirement("T4")

SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
BOUND = 20.0


@pytest.mark.parametrize("at_once", [True, False])
async def test_cancelled_turn_names_its_thread(tmp_path: Path, at_once: bool) -> None:
    model = Thinking()
    async with scripted_agent(tmp_path, model.lm) as agent:
        async with agent.thread("t1").stream("Hello", key="k") as stream:
            if not at_once:
                await asyncio.wait_for(model.asked.wait(), BOUND)
        assert (stream.turn.status, stream.turn.thread) == ("cancelled", "t1")
        assert stream.turn.to_json()["thread"] == "t1"


async def test_json_forms_are_those_of_the_wire(tmp_path: Path) -> None:
    shop = Shop()
    async with (
        Sidecar(lambda workspace: shop.agent(tmp_path)) as sidecar,
        Client(sidecar.server) as client,
    ):
        given = {"thread": "t1", "shape": "buy", "params": {"what": "hat"}, "pauses": "return"}
        sent = (await call(client, "task", account="ana", **given))["turn"]
        pauses = (await call(client, "pauses", account="ana", thread="t1"))["pauses"]
        messages = (await call(client, "history", account="ana", thread="t1"))["messages"]
        threads = (await call(client, "threads", account="ana"))["threads"]
    async with shop.agent(tmp_path) as agent:
        thread = agent.thread("t1", account="ana")
        [pause], [state] = await thread.pauses(), await agent.threads()
        assert as_json(pause.to_json()).items() <= pauses[0].items()
        assert as_json([message.to_json() for message in await thread.history()]) == messages
        assert as_json([state.to_json()]) == threads
        turn = await thread.resume({pause.id: Approve()})
    made = as_json(turn.to_json())
    assert made.keys() == sent.keys()
    assert made["usage"].keys() == sent["usage"].keys()
    assert (made["id"], made["thread"], made["status"]) == (sent["id"], "t1", "done")
    assert made["result"] == {"text": "paid for the hat"}


async def test_earlier_form_of_a_pause_id_is_taken(tmp_path: Path) -> None:
    shop = Shop()
    async with shop.agent(tmp_path) as agent:
        thread = agent.thread("t1", account="ana")
        [pause] = (await thread.task("buy", {"what": "hat"})).pauses
        earlier = call_id_of(pause.id)
        assert "/" in earlier
        assert ":" in earlier
        with pytest.raises(InvalidArgument, match="answered twice"):
            await thread.resume({pause.id: Approve(), earlier: Reject()})
        assert (await thread.resume({earlier: Approve()})).status == "done"
        with pytest.raises(AlreadyAnswered):
            await thread.resume({earlier: Approve()})
    assert shop.done == ["hat"]


@pytest.mark.parametrize("call_id", ["turn_1/step.0.0:a-b/p~y:k%2Fé=+ .1", "turn_1/task:x/y::-2F", "turn_1/a:"])
def test_pause_ids_lead_back_to_their_calls(call_id: str) -> None:
    made = pause_id_of(call_id)
    assert SAFE.fullmatch(made)
    assert call_id_of(made) == call_id_of(call_id) == call_id


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))
