"""Random groups, answers, deadlines and restarts against a second, small statement of what a group is told (A20)."""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.agents import open_pauses
from support.role_specs import spec_of, workspace_of
from support.society import delivered, doing, enlisted, office, who_of
from worldagent.core.errors import MessageInvalid, UnknownContact
from worldagent.members import Contact, Society
from worldagent.memory.members import SOCIETY
from worldagent.storage import Database
from worldagent.testing import ScriptedCall, ScriptedLM, VirtualClock

pytestmark = [pytest.mark.requirement("A20"), pytest.mark.timeout(600)]

NAMES = ("a", "b", "c", "d", "e")
PAIRS = st.sets(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)).filter(lambda pair: pair[0] != pair[1]))
CHOICE = st.one_of(
    st.fixed_dictionaries({"members": st.lists(st.sampled_from((*NAMES, "user", "root", "nobody")), max_size=4)}),
    st.fixed_dictionaries({"domain": st.sampled_from(("law", "web", "music"))}),
    st.just({"children": True}),
)


@settings(max_examples=max(15, settings().max_examples // 4))
@given(PAIRS, st.sets(st.sampled_from(NAMES[1:])), st.lists(CHOICE, min_size=1, max_size=6), st.booleans())
def test_a_group_reaches_contacts_only_and_all_of_it_or_nobody(
    pairs: set[tuple[str, str]], away: set[str], choices: list[dict[str, Any]], checked: bool
) -> None:
    async def asks() -> None:
        with tempfile.TemporaryDirectory() as folder:
            database = await Database.open(Path(folder) / "a.db", schemas=[SOCIETY])
            society = Society(workspace_of(), database, VirtualClock())
            for name in NAMES:  # `a` made `d` and `e`
                domain = "law" if name in "bd" else "web"
                await society.join(spec_of(name, "a" if name in "de" else "", domains=(domain,)))
            for one, other in pairs:
                await society.contacts.add(one, Contact(id=other, role=other.upper()))
            for name in away:
                await society.suspend(name)
            near = {each.id for each in await society.contacts.list("a")} - away
            for number, choice in enumerate(choices):
                await _ask(society, number, choice, near, checked=checked)
            await database.aclose()

    asyncio.run(asks())


def _meant(choice: dict[str, Any], near: set[str]) -> set[str]:
    """Whom a choice means among contacts that can be asked; nobody if it names anybody else."""
    if "members" in choice:
        return {*choice["members"]} if {*choice["members"]} <= near else set()
    return near & (
        {"d", "e"} if "children" in choice else {"law": {*"bd"}, "web": {*"ace"}}.get(choice["domain"], set())
    )


async def _ask(society: Society, number: int, choice: dict[str, Any], near: set[str], *, checked: bool) -> None:
    """Ask a group, with a look at its members before or without it, and say who must have been reached."""
    groups, before = society.mail.groups, {each.message.id for each in await society.mail.of("a")}
    try:
        members = await groups.chosen("a", **choice) if checked or "members" not in choice else choice["members"]
        asked = {f"m{number}-{place}": each for place, each in enumerate(dict.fromkeys(members))}
        await groups.send("a", asked, "Which?", "A question.")
    except (MessageInvalid, UnknownContact):
        pass
    reached = [each.message.to_id for each in await society.mail.of("a") if each.message.id not in before]
    assert sorted(reached) == sorted(_meant(choice, near))


# --- the turn ---------------------------------------------------------------------------------------------------------

PANEL = ("ada", "bob", "kim")
SECONDS = 60
STEP = st.one_of(
    st.tuples(st.just("answer"), st.sampled_from(PANEL)),
    st.tuples(st.just("answer"), st.sampled_from(PANEL)),
    st.tuples(st.just("answer"), st.sampled_from(PANEL)),
    st.tuples(st.just("pass"), st.sampled_from((1, 29, 40))),
    st.tuples(st.just("deliver"), st.none()),
    st.tuples(st.just("restart"), st.none()),
)


class Chair:
    """What the asker of a group must be told, by a small statement of the rules.

    Args:
        quorum: How many answers are enough.
    """

    def __init__(self, quorum: int) -> None:
        self.quorum = quorum
        self.now = 0
        self.sent: list[tuple[int, str, str]] = []  # when, by whom and what
        self.told: dict[str, str] | None = None

    def deliver(self) -> None:
        late, found = self.now >= SECONDS, dict[str, str]()
        for at, member, text in self.sent:
            if at <= SECONDS:
                found.setdefault(member, text)
        if self.told is None and (late or len(found) >= self.quorum):
            self.told = found

    @property
    def others(self) -> list[str]:
        """The messages that are no answers of the group."""
        return [text for _, member, text in self.sent if (self.told or {}).get(member) != text]


@settings(max_examples=max(6, settings().max_examples // 12))
@given(st.integers(1, 3), st.lists(STEP, max_size=9))
def test_a_turn_pauses_and_resumes_once_and_counts_each_answer_once(quorum: int, steps: list[tuple[str, Any]]) -> None:
    asyncio.run(_plays(quorum, steps))


async def _plays(quorum: int, steps: list[tuple[str, Any]]) -> None:
    asks = ("ask_group", {"members": [*PANEL], "request": "Which?", "quorum": quorum, "deadline": SECONDS})
    chair, clock, pauses = Chair(quorum), VirtualClock(), set[str]()

    def act(call: ScriptedCall) -> dict[str, Any]:
        return doing(call, *([asks] if "Decide." in str(call.fields["message"]) else []))

    lm = ScriptedLM(act)
    with tempfile.TemporaryDirectory() as folder:
        todo: list[tuple[str, Any]] = [
            ("deliver", None),
            *steps,
            ("deliver", None),
            ("pass", SECONDS + 1),
            ("deliver", None),
        ]
        agent = office(Path(folder), lm, clock=clock)
        await agent.__aenter__()
        await enlisted(agent, "cro")
        for each in PANEL:
            await enlisted(agent, each)
            for one, other in (("cro", each), (each, "cro")):
                await agent.society.contacts.add(one, Contact(id=other, role=other.upper()))
        await agent.society.mail.send("root", "cro", "Decide.")
        for kind, what in todo:
            if kind == "answer":
                text = f"Answer {len(chair.sent)}."
                await agent.society.mail.send(what, "cro", text)
                chair.sent.append((chair.now, what, text))
            elif kind == "pass":
                await clock.advance(what)
                chair.now += what
            elif kind == "restart":
                await agent.aclose()
                agent = office(Path(folder), lm, clock=clock)
                await agent.__aenter__()
            else:
                await delivered(agent)
                chair.deliver()
                open_ones = await open_pauses(agent.thread("member cro"))
                pauses |= {each.id for each in open_ones}
                assert bool(open_ones) == (chair.told is None)
        await agent.aclose()
    own = [call for call in lm.calls if who_of(call, "cro", *PANEL) == "cro"]
    decided = [call for call in own if "Decide." in str(call.fields["message"])]
    assert (len(pauses), len(decided)) == (1, 2), "it paused once and resumed once"
    told = json.JSONDecoder().raw_decode(decided[-1].text[decided[-1].text.rindex('{"answers"') :])[0]
    assert {each: text.splitlines()[-1] for each, text in told["answers"].items()} == chair.told
    assert ({*told["missing"]}, told["enough"]) == ({*PANEL} - {*told["answers"]}, len(told["answers"]) >= quorum)
    heard = [str(call.fields["message"]) for call in own if call not in decided]
    assert [next(text for text in chair.others if text in each) for each in heard] == chair.others
