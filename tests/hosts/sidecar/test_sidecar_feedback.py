"""The sidecar's tool that rates a turn: who can rate which, and that examples carry it."""

from pathlib import Path

import pytest

from support.agents import answering
from support.sidecar_served import agents, caller_of, served, tokens
from worldagent import Settings
from worldagent.hosts.sidecar import Grant, Sidecar

pytestmark = pytest.mark.requirement("T10")

KNOWN = tokens(
    ana=Grant(("novel",), ("ana",), ("shared", "ana-*")),
    ben=Grant(("novel",), ("ben",), ("shared", "ben-*")),
    operator=Grant(("novel",), ("*",), operator=True),
)
NOTE = "It said nothing of the seventh keeper."


async def test_an_account_rates_its_own_turns_and_an_operator_all(tmp_path: Path) -> None:
    settings = Settings(model_attempts=1, model_backoff=0, examples="all")
    make = agents(tmp_path, lm=answering("Aye."), settings=settings)
    async with (
        served(Sidecar(make, tokens=KNOWN)) as url,
        caller_of(url, "auto", "ana") as ana,
        caller_of(url, "auto", "ben") as ben,
        caller_of(url, "auto", "operator") as operator,
    ):
        own = (await ana("converse", thread="ana-1", text="Who is it?"))["turn"]["id"]
        shared = (await ana("converse", thread="shared", text="And who is this?"))["turn"]["id"]
        assert await ana("turn_feedback", turn_id=own, feedback="good") == {"contract": 1, "rated": True}
        assert (await ana("turn_feedback", turn_id=own, feedback="bad", note=NOTE))["rated"] is True
        for turn_id, code in ((own, "unknown_turn"), ("turn_0", "unknown_turn"), (shared, "forbidden")):
            assert (await ben.refused("turn_feedback", turn_id=turn_id, feedback="good"))["code"] == code
        assert (await operator("turn_feedback", turn_id=shared, feedback="good"))["rated"] is True
        for given in ({"feedback": NOTE}, {"feedback": "good", "note": NOTE * 100}, {"feedback": "good", "note": " "}):
            error = await ana.refused("turn_feedback", turn_id=own, **given)
            assert error["code"] == "invalid_argument"
            assert NOTE not in str(error)
    async with make("novel") as agent:
        kept = {each.turn: (each.feedback, each.note) for each in await agent.examples("Converse")}
    assert kept == {own: ("bad", NOTE), shared: ("good", None)}
