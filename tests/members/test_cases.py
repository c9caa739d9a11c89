"""All that follows from one event, one message of a person or one turn is one case with one trail (A17)."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from support.agents import open_pauses
from support.desk import Desk, cro, event, handled, thread_of
from support.role_specs import BRIEF
from support.society import delivered, doing, enlisted, office, request, send, who_of
from worldagent import Approve, Role
from worldagent.core.errors import UnknownCase
from worldagent.members import CaseStep, case_of
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("A17")


def building(call: ScriptedCall) -> dict[str, Any]:
    """The World Agent has a page made when it is asked for one, and the developer reports."""
    if "task" in call.fields:
        return doing(call, send("root", "Built."))
    spawns = ("spawn_agent", {"template": "developer", "params": {"name": "Dana"}, "brief": BRIEF})
    return doing(call, *([spawns] if "I need" in call.user else []), text="Good.")


def lines(steps: Iterable[CaseStep], *kinds: str) -> list[tuple[str, str, str]]:
    """Who did what, and what came of it."""
    return [(each.who, each.what, each.result) for each in steps if each.kind in kinds]


@pytest.mark.on_every_database
async def test_what_follows_from_a_turn_of_a_person_is_one_case(tmp_path: Path) -> None:
    async with office(tmp_path, ScriptedLM(building)) as agent:
        turn = await agent.thread("t", account="charles").converse("I need a page.", role=Role("r", "Be a pirate."))
        await delivered(agent)
        case = await case_of(agent, turn.id)
        assert case.id == turn.id
        assert not case.open
        assert lines(case.steps, "spawn", "message") == [
            ("root", f"makes developer-dana: {BRIEF['objective']}", "handled"),
            ("developer-dana", "notification to root: Built.", "handled"),
        ]
        assert lines(case.steps, "turn") == [
            ("charles", "works on the thread 't'", "done"),
            ("developer-dana", "works on the thread 'member developer-dana'", "done"),
            ("root", "works on the thread 'member root'", "done"),
        ]
        spawned = next(each for each in case.steps if each.kind == "call")
        assert spawned.what == "calls spawn_agent"
        assert spawned.authority.startswith("approve by rule")
        assert {who: used.calls for who, used in case.costs.items()} == {"developer-dana": 2, "root": 1}
        assert case.usage.calls == 3  # the turn of the person has no key, and keeps no events
        for each in case.steps:  # each part of it leads to the whole
            assert await case_of(agent, each.turn_id if each.kind == "call" else each.id) == case
        assert "pirate" not in str(case.to_json())


@pytest.mark.on_every_database
async def test_the_trail_of_an_event_says_who_decided_what_and_why(tmp_path: Path) -> None:
    desk = Desk()
    async with handled(desk, tmp_path, event(type_="deal.price")) as agent:
        waits = await case_of(agent, "e1")
        assert waits.open
        assert next(each for each in waits.steps if each.kind == "call").result == "waits for a person"
        thread = thread_of(agent)
        [pause] = await open_pauses(thread)
        await agent.thread("event e1", account="charles").resume({pause.id: Approve()})
        await delivered(agent)
        case = await case_of(agent, "event.e1")
        assert not case.open
        assert lines(case.steps, "event", "decision") == [
            ("hubspot", "deal.price in revenue", "done"),
            ("cro", "escalate price to charles", ""),
        ]
        decided = next(each for each in case.steps if each.kind == "decision")
        assert decided.authority == "capability price, watched report"
        assert decided.why == "'price' needs approval for 'cro'"
        called = next(each for each in case.steps if each.kind == "call")
        assert (called.what, called.authority, called.result) == (
            'calls price {"lead":"Ada"}',
            "approve by person charles",
            "done",
        )


async def test_cases_that_a_member_works_on_at_once_are_kept_apart(tmp_path: Path) -> None:
    desk = Desk()

    def act(call: ScriptedCall) -> dict[str, Any]:
        return doing(call, send("user", f"About {'the letter' if 'letter' in call.user else 'the note'}."))

    events = [event("n1", "note.made", note="the note")]
    async with desk.agent(tmp_path, ScriptedLM(act), policy=office(tmp_path / "p", act).policy) as agent:
        await agent.society.join(cro())
        asked = await agent.society.mail.send("root", "cro", "The letter?")
        for each in events:
            await agent.society.events.post(each)
        await delivered(agent)
        texts = {each.message.content: each.case for each in await agent.society.mail.inbox()}
        assert texts["About the letter."] == asked.message.id == asked.case


async def test_a_reply_belongs_to_the_case_of_what_it_answers(tmp_path: Path) -> None:
    def act(call: ScriptedCall) -> dict[str, Any]:
        who = who_of(call, "cro", "coo")
        return doing(call, request("coo", "How many?") if who == "cro" else send("cro", "Three."))

    async with office(tmp_path, ScriptedLM(act)) as agent:
        await enlisted(agent, "cro", "coo")
        first = await agent.society.mail.send("root", "cro", "How many have we sold?")
        await delivered(agent)
        case = await case_of(agent, first.message.id)
        assert [each.who for each in case.steps if each.kind == "message"] == ["root", "cro", "coo"]
        assert len([each for each in case.steps if each.kind == "turn"]) == 2


async def test_a_person_on_the_thread_of_a_member_begins_a_case_of_its_own(tmp_path: Path) -> None:
    def act(call: ScriptedCall) -> dict[str, Any]:
        return doing(call, ("deploy", {"where": "all"}) if "Go." in call.user else send("user", "Direct."))

    async with office(tmp_path, ScriptedLM(act)) as agent:
        await enlisted(agent, "ada")
        asked = await agent.society.mail.send("ada", "root", "Go.")
        await delivered(agent)  # the turn of the World Agent on it waits
        turn = await agent.thread("member root", account="mallory").converse("Direct?", interrupt=True)
        [told] = await agent.society.mail.inbox()
        assert (told.case, asked.case) == (turn.id, asked.message.id)


async def test_an_unknown_case_is_refused(tmp_path: Path) -> None:
    async with office(tmp_path, ScriptedLM(building)) as agent:
        with pytest.raises(UnknownCase, match="'nothing'"):
            await case_of(agent, "nothing")
