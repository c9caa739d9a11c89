"""Random societies against a second, small statement of who may write to whom and how acquaintance spreads."""

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.databases import ENGINES, fresh
from support.role_specs import BRIEF, spec_of, template_of, workspace_of
from worldagent.core.errors import (
    BriefInvalid,
    ChainTooLong,
    InvalidArgument,
    MessageInvalid,
    RoleExists,
    UnknownContact,
    UnknownMember,
)
from worldagent.members import (
    Contact,
    Letter,
    RoleSpec,
    Society,
    TaskBrief,
)
from worldagent.members.mail.introductions import MAX_HOPS
from worldagent.members.mail.letters import letters_of
from worldagent.memory.members import SOCIETY
from worldagent.storage import Database, PostgresAddress
from worldagent.testing import VirtualClock

NAMES = ("a", "b", "c", "d", "e", "f")
EVERY = ("user", "root", *NAMES)
CHAIN = 6
CONTACT_HOURS = 2
TEMPLATE = template_of("t", "root", *NAMES, domains=("gardening",))
ASK = {"message_type": "introduction_request", "reason": "A question."}
TOLD = {"role_name": "Somebody", "interface_spec": None, "usage_advice": "Write."}
NUMBERS = itertools.count()


ENGINE = [each if each == "sqlite" else pytest.param(each, marks=pytest.mark.soak) for each in ENGINES]


@pytest.fixture(scope="module", params=ENGINE)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path | PostgresAddress:
    """One database for all examples: each has a workspace of its own."""
    return fresh(request.param, tmp_path_factory.mktemp("society"))


@dataclass(frozen=True)
class Seen:
    """All that is stored of a workspace at a moment."""

    now: datetime
    contacts: Mapping[tuple[str, str], Contact]
    letters: Mapping[str, Letter]

    def knows(self, owner: str, contact: str) -> bool:
        return (owner, contact) in self.contacts

    def open_from(self, sender: str, receiver: str, *, answers: str = "") -> list[Letter]:
        """The messages from one to another without a reply."""
        return [
            each
            for each in self.letters.values()
            if (each.message.from_id, each.message.to_id, each.answered) == (sender, receiver, False)
            and answers in ("", each.message.id)
        ]

    def chain_of(self, sender: str) -> int:
        handled = [each for each in self.letters.values() if each.state == "handling" and each.message.to_id == sender]
        return 0 if sender == "user" or not handled else handled[0].chain

    def path(self, request: Letter) -> list[Letter]:
        """A request for an introduction and those because of which it was made."""
        before = self.letters.get(request.message.correlation_id)
        return [request, *(self.path(before) if before else [])]


def spec(workspace: str, role_id: str, parent: str = "") -> RoleSpec:
    domain = "law" if role_id in "bd" else "gardening"
    above = "" if parent == "root" else parent
    return spec_of(role_id, above, workspace=workspace, domains=(domain,), reports_to=parent)


class World:
    """A society on a database that is closed and opened again, and what was seen of it before the last step."""

    def __init__(self, place: Path | PostgresAddress, **policy: Any) -> None:
        self.place, self.clock = place, VirtualClock()
        self.names: tuple[str, ...] = EVERY
        self.id = f"w{next(NUMBERS)}"
        self.config = workspace_of(TEMPLATE, id=self.id, **policy)

    async def open(self) -> None:
        self.database = await Database.open(self.place, schemas=[SOCIETY])
        self.society = Society(self.config, self.database, self.clock)

    async def close(self) -> None:
        await self.database.aclose()

    async def seen(self) -> Seen:
        contacts = {(owner, each.id): each for owner, each in await self.society.contacts.every()}
        rows = await self.database.read(lambda tx: [letters_of(tx, self.id, each, 1000) for each in self.names])
        found = {letter.message.id: letter for each in rows for letter in each}
        return Seen(self.clock.now(), contacts, found)


# --- the steps --------------------------------------------------------------------------------------------------------

MEMBER, ANYONE = st.sampled_from(NAMES), st.sampled_from(EVERY)
STEP = st.one_of(
    st.tuples(st.just("join"), MEMBER, st.sampled_from(("root", *NAMES))),
    st.tuples(st.just("spawn"), ANYONE, MEMBER, st.one_of(st.none(), ANYONE)),
    st.tuples(st.just("send"), ANYONE, ANYONE, st.booleans()),
    st.tuples(st.just("send"), ANYONE, ANYONE, st.booleans()),
    st.tuples(st.just("ask"), ANYONE, ANYONE, st.sampled_from(("law", "gardening", "music"))),
    st.tuples(st.just("tell"), MEMBER, ANYONE, ANYONE),
    st.tuples(st.just("settle"), st.integers(0, 5)),
    st.tuples(st.just("end"), st.integers(0, 5)),
    st.tuples(st.just("add"), ANYONE, MEMBER, st.booleans()),
    st.tuples(st.just("withdraw"), ANYONE, ANYONE),
    st.tuples(st.just("advance"), st.integers(0, CONTACT_HOURS)),
    st.tuples(st.just("reopen")),
)


async def head(world: World, number: int) -> Letter | None:
    found = await world.society.mail.waiting()
    return found[number % len(found)] if found else None


async def step(world: World, kind: str, *given: Any) -> str:
    """Do one step; returns who acts in it: a message of that step is from this member."""
    society = world.society
    if kind == "join":
        await society.join(spec(world.id, *given))
        return str(given[0])
    if kind == "spawn":
        spawner, name, known = given
        others = [] if known is None else [{"id": known, "role": "x", "note": "For this."}]
        brief = TaskBrief.from_json(BRIEF | {"collaborators": others})
        await society.spawn(spawner, "t", {"name": name}, brief)
        return "root" if spawner == "user" else str(spawner)
    if kind in ("send", "ask", "tell"):
        sender, receiver, what = given
        payload: dict[str, Any] = {"send": {"reason": "A question."} if what is True else {}}.get(kind, {})
        payload = ASK | {"required_capability": what} if kind == "ask" else payload
        payload = TOLD | {"message_type": "introduction_response", "target_id": what} if kind == "tell" else payload
        await society.mail.send(sender, receiver, "Hello.", payload=payload | {"from": "user"})
        return str(sender)
    if kind in ("settle", "end"):
        letter = await head(world, given[0])
        if letter is not None:
            await (society.mail.answer if kind == "settle" else society.mail.ended)(letter.message.id)
        return "" if letter is None else letter.message.to_id
    if kind == "add":
        until = world.clock.now() + timedelta(hours=CONTACT_HOURS) if given[2] else None
        await society.contacts.add(given[0], Contact(id=given[1], role="x", note="y", expires=until))
    elif kind == "withdraw":
        await society.contacts.withdraw(*given)
    elif kind == "advance":
        await world.clock.advance(3600 * given[0])
    else:
        await world.close()
        await world.open()
    return ""


# --- the second statement of the rules --------------------------------------------------------------------------------


def check_letter(was: Seen, new: Letter, kind: str, actor: str) -> None:
    message = new.message
    assert message.from_id == actor, "a message is from who sent it"
    assert kind in ("spawn", "send", "ask", "tell", "settle", "end")
    replies = was.open_from(message.to_id, message.from_id, answers=message.correlation_id)
    assert was.knows(message.from_id, message.to_id) or replies or kind == "spawn", "a message goes to a contact"
    assert new.chain == was.chain_of(message.from_id) + 1 or kind in ("settle", "end")
    assert new.chain <= CHAIN, "a chain of messages ends"


def check_contact(was: Seen, now: Seen, owner: str, new: Contact, kind: str, given: tuple[Any, ...]) -> None:
    fresh_letters = [each.message for id_, each in now.letters.items() if id_ not in was.letters]
    if new.introduced_by == "birth":
        child = given[0] if kind == "join" else given[1]
        assert kind in ("join", "spawn")
        assert child in (owner, new.id)
    elif new.introduced_by == "person":
        assert (kind, *given[:2]) == ("add", owner, new.id)
    elif new.introduced_by == "first message":
        assert [each for each in fresh_letters if (each.from_id, each.to_id) == (new.id, owner)]
    elif kind == "spawn":
        assert (new.introduced_by, owner, new.id) == given
        assert was.knows(new.introduced_by, new.id) or given[0] == "user"
    else:
        [told] = [each for each in fresh_letters if (each.from_id, each.to_id) == (new.introduced_by, owner)]
        assert (told.message_type, told.payload["target_id"]) == ("introduction_response", new.id)
        assert was.knows(new.introduced_by, new.id), "who introduces knows whom"
        assert was.open_from(owner, new.introduced_by, answers=told.correlation_id), "who is told had asked"


def check_gone(was: Seen, now: Seen, kind: str, given: tuple[Any, ...]) -> None:
    for pair in {*was.contacts} - {*now.contacts}:
        expires = was.contacts[pair].expires
        assert (kind, *given) == ("withdraw", *pair) or (expires is not None and expires <= now.now)


def check_paths(now: Seen) -> None:
    asked_for: set[tuple[str, str]] = set()
    for letter in now.letters.values():
        if letter.message.message_type == "introduction_request":
            path = now.path(letter)
            asked = [path[-1].message.from_id, *(each.message.to_id for each in path)]
            assert len(path) <= MAX_HOPS
            assert len({*asked}) == len(asked), "no member is asked twice in a row"
            assert (path[-1].message.id, letter.message.to_id) not in asked_for, "nor for one introduction"
            asked_for.add((path[-1].message.id, letter.message.to_id))


def check_refusal(was: Seen, refused: Exception, kind: str, given: tuple[Any, ...]) -> None:
    """A refusal says what is the case."""
    if isinstance(refused, UnknownContact) and kind == "send":
        assert not was.knows(given[0], given[1])
        assert not was.open_from(given[1], given[0])
    if isinstance(refused, UnknownContact) and kind == "ask":
        assert not was.knows(given[0], given[1])
    if isinstance(refused, ChainTooLong):
        assert was.chain_of(given[0]) >= CHAIN


REFUSALS = (BriefInvalid, ChainTooLong, InvalidArgument, MessageInvalid, RoleExists, UnknownContact, UnknownMember)


async def lives(place: Path | PostgresAddress, steps: list[tuple[Any, ...]]) -> None:
    world = World(place, message_chain=CHAIN)
    await world.open()
    try:
        for name, parent in (("a", "root"), ("b", "a"), ("c", "root")):
            await world.society.join(spec(world.id, name, parent))
        was = await world.seen()
        for kind, *given in steps:
            refused, actor = None, ""
            try:
                actor = await step(world, kind, *given)
            except REFUSALS as error:
                refused = error
            now = await world.seen()
            if refused is not None:
                assert (now.contacts, now.letters) == (was.contacts, was.letters), "a refusal changes nothing"
                check_refusal(was, refused, kind, tuple(given))
            for id_, letter in now.letters.items():
                if id_ not in was.letters:
                    check_letter(was, letter, kind, letter.message.from_id if kind == "join" else actor)
            for (owner, id_), contact in now.contacts.items():
                if not was.knows(owner, id_):
                    check_contact(was, now, owner, contact, kind, tuple(given))
            check_gone(was, now, kind, tuple(given))
            check_paths(now)
            was = now
    finally:
        await world.close()


@pytest.mark.requirement("C2.6", "C5.7", "C9.1")
@settings(max_examples=max(15, settings().max_examples // 4))
@given(st.lists(STEP, min_size=5, max_size=25))
def test_messages_go_to_contacts_and_acquaintance_spreads_by_the_rules(
    place: Path | PostgresAddress, steps: list[tuple[Any, ...]]
) -> None:
    asyncio.run(lives(place, steps))


# --- introductions in any graph ---------------------------------------------------------------------------------------

GRAPH = tuple("abcdefghij")


async def asks(place: Path | PostgresAddress, edges: set[tuple[str, str]], chain: int, fan: int) -> None:
    """`a` asks each of its contacts; each member asks up to `fan` of its own before its turn ends."""
    world = World(place, message_chain=chain)
    world.names = GRAPH
    await world.open()
    society = world.society
    try:
        for name in GRAPH:
            await society.members.register(spec_of(name, workspace=world.id, domains=("law",) if name == "j" else ()))
        for one, other in sorted(edges):
            await society.contacts.add(one, Contact(id=other, role=other, note="For this."))
        request = ASK | {"required_capability": "law"}
        first = await society.mail.send("a", "b", payload=request)
        turns = 0
        while found := await society.mail.waiting():
            for letter in found:
                turns += 1
                assert turns <= len(GRAPH) ** 2, "an introduction ends"
                if await society.mail.answer(letter.message.id):
                    continue
                me, left = letter.message.to_id, fan
                over = (await world.seen()).letters[first.message.id].answered
                for contact in await society.contacts.list(me):
                    if me == "a" or over or not left:
                        break
                    try:
                        await society.mail.send(me, contact.id, payload=request)
                        left -= 1
                    except (MessageInvalid, ChainTooLong):
                        continue
                await society.mail.ended(letter.message.id)
        seen = await world.seen()
        check_paths(seen)
        answers = [each for each in seen.letters.values() if each.message.correlation_id == first.message.id]
        told = [each.message for each in answers if each.message.type == "response"]
        if chain > 100:
            assert [each.to_id for each in told] == ["a"]
            assert seen.letters[first.message.id].answered
    finally:
        await world.close()


@pytest.mark.requirement("C3.5", "C3.6")
@settings(max_examples=max(15, settings().max_examples // 4))
@given(
    st.sets(st.tuples(st.sampled_from(GRAPH), st.sampled_from(GRAPH)).filter(lambda pair: pair[0] != pair[1])),
    st.sampled_from((3, 8, 1000)),
    st.integers(1, 3),
)
def test_an_introduction_ends_in_any_graph_of_contacts(
    place: Path | PostgresAddress, edges: set[tuple[str, str]], chain: int, fan: int
) -> None:
    asyncio.run(asks(place, edges | {("a", "b")}, chain, fan))


@settings(max_examples=max(15, settings().max_examples // 4))
@given(st.integers(2, 40), st.booleans())
def test_a_ping_pong_ends_at_the_length_of_the_chain(place: Path | PostgresAddress, chain: int, open_: bool) -> None:
    async def plays() -> None:
        world = World(place, message_chain=chain, discovery="open" if open_ else "introduced")
        await world.open()
        try:
            await world.society.join(spec(world.id, "a", "root"))
            letter = await world.society.mail.send("user", "root", "Go.")
            for number in range(2, chain + 2):
                await world.society.mail.answer(letter.message.id)
                one, other = letter.message.to_id, "a" if letter.message.to_id == "root" else "root"
                if number > chain:
                    with pytest.raises(ChainTooLong, match="report to the user"):
                        await world.society.mail.send(one, other, "Ping.")
                    await world.society.mail.ended(letter.message.id)
                    assert (await world.society.mail.send("user", "root", "Go on.")).chain == 1
                else:
                    letter, before = await world.society.mail.send(one, other, "Ping."), letter
                    await world.society.mail.ended(before.message.id)
                    assert letter.chain == number
        finally:
            await world.close()

    asyncio.run(plays())
