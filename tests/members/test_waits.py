"""Members that wait for each other's replies: a wait that would close a circle is refused where it begins (A18)."""

import asyncio
import itertools
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.databases import ENGINES, Engine, fresh, on_every_database
from support.role_specs import spec_of, workspace_of
from worldagent.core.errors import WaitInCircle
from worldagent.members import Letter, Society
from worldagent.memory.members import SOCIETY
from worldagent.storage import Database, PostgresAddress
from worldagent.testing import VirtualClock

NAMES = tuple("abcde")
HOURS = 2
REASON = {"reason": "A test."}
NUMBERS = itertools.count()
ENGINE = [each if each == "sqlite" else pytest.param(each, marks=pytest.mark.soak) for each in ENGINES]


@pytest.fixture(scope="module", params=ENGINE)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path | PostgresAddress:
    """One database for all examples: each has a workspace of its own."""
    return fresh(request.param, tmp_path_factory.mktemp("waits"))


class Office:
    """Members each of which is in a turn on a message, in a workspace that two processes have open."""

    def __init__(self, place: Path | PostgresAddress) -> None:
        self._place, self.clock = place, VirtualClock()
        self._config = workspace_of(id=f"w{next(NUMBERS)}", discovery="open")
        self._made = itertools.count()
        self.on: dict[str, str] = {}

    async def __aenter__(self) -> "Office":
        self._databases = [await Database.open(self._place, schemas=[SOCIETY]) for _ in range(2)]
        self.first, self.second = (Society(self._config, each, self.clock) for each in self._databases)
        for name in NAMES:
            await self.first.members.register(spec_of(name, workspace=self._config.id))
            await self.begin(name)
        return self

    async def __aexit__(self, *raised: object) -> None:
        for each in self._databases:
            await each.aclose()

    async def begin(self, name: str) -> None:
        """Begin a turn of a member on a new message."""
        letter = await self.first.mail.send("root", name, "Work.", payload=REASON)
        await self.first.mail.answer(letter.message.id)
        self.on[name] = letter.message.id

    async def end(self, name: str) -> None:
        """End its turn, and begin the next."""
        await self.first.mail.ended(self.on[name])
        await self.begin(name)

    async def ask(self, asker: str, asked: str, society: Society | None = None, **more: Any) -> Letter | None:
        """Let a member wait for another one's reply; None if that is refused."""
        given: dict[str, Any] = {"kind": "request", "payload": REASON, "waits": 3600 * HOURS} | more
        try:
            return await (society or self.first).mail.send(asker, asked, "Well?", **given)
        except WaitInCircle:
            return None

    async def letters(self) -> dict[str, Letter]:
        found = [each for name in NAMES for each in await self.first.mail.of(name)]
        return {each.message.id: each for each in found}


def leads(first: str, last: str, waits: Collection[tuple[str, str]]) -> bool:
    """Whether one waits for another, directly or through others."""
    reached, before = {first}, set[str]()
    while reached != before:
        before, reached = reached, reached | {other for one, other in waits if one in reached}
    return last in reached


# --- the steps of random examples -------------------------------------------------------------------------------------

PAIR = st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)).filter(lambda pair: pair[0] != pair[1])
STEP = st.one_of(
    st.tuples(st.just("ask"), PAIR),
    st.tuples(st.just("ask"), PAIR),
    st.tuples(st.just("race"), PAIR, PAIR),
    st.tuples(st.just("reply"), PAIR),
    st.tuples(st.just("end"), st.sampled_from(NAMES)),
    st.tuples(st.just("advance"), st.integers(1, HOURS)),
)


async def waits_at_random(place: Path | PostgresAddress, steps: list[tuple[Any, ...]]) -> None:
    async with Office(place) as office:
        asked: dict[str, tuple[str, str, str, float]] = {}  # asker, asked, the turn that waits, until when

        async def waiting() -> set[tuple[str, str]]:
            replies = {each.message.correlation_id for each in (await office.letters()).values()}
            now = office.clock.now().timestamp()
            return {
                (asker, other)
                for id_, (asker, other, turn, until) in asked.items()
                if id_ not in replies and office.on[asker] == turn and until > now
            }

        def note(letter: Letter | None) -> None:
            if letter is not None:
                asker, until = letter.message.from_id, office.clock.now().timestamp() + 3600 * HOURS
                asked[letter.message.id] = (asker, letter.message.to_id, office.on[asker], until)

        for kind, *given in steps:
            before = await waiting()
            if kind == "ask":
                letter = await office.ask(*given[0])
                assert (letter is None) == leads(given[0][1], given[0][0], before), "what closes a circle is refused"
                note(letter)
            elif kind == "race":
                (one, other), (third, fourth) = given
                both = (office.ask(one, other, office.first), office.ask(third, fourth, office.second))
                for letter in await asyncio.gather(*both):
                    note(letter)
            elif kind == "reply":
                one, other = given[0]
                await office.first.mail.send(one, other, "Yes.", payload=REASON)
            elif kind == "end":
                await office.end(given[0])
            else:
                await office.clock.advance(3600 * given[0])
            now = await waiting()
            assert not any(leads(other, one, now) for one, other in now), "members never wait for each other"


@pytest.mark.requirement("A18")
@settings(max_examples=max(15, settings().max_examples // 4))
@given(st.lists(STEP, min_size=5, max_size=20))
def test_waits_never_form_a_circle(place: Path | PostgresAddress, steps: list[tuple[Any, ...]]) -> None:
    asyncio.run(waits_at_random(place, steps))


@pytest.mark.requirement("A18")
@on_every_database
async def test_of_waits_that_begin_in_two_processes_at_once_one_is_refused(engine: Engine, tmp_path: Path) -> None:
    async with Office(fresh(engine, tmp_path)) as office:
        for one, other in (("a", "b"), ("c", "d"), ("d", "e")):
            both = (office.ask(one, other, office.first), office.ask(other, one, office.second))
            assert [*await asyncio.gather(*both)].count(None) == 1


@pytest.mark.requirement("A18")
async def test_the_refusal_names_the_circle_and_says_what_to_do(tmp_path: Path) -> None:
    async with Office(fresh("sqlite", tmp_path)) as office:
        await office.ask("a", "b")
        await office.ask("b", "c")
        before = await office.letters()
        with pytest.raises(WaitInCircle, match=r"'a' waits for your reply.* c -> a -> b -> c") as refused:
            await office.first.mail.send("c", "a", "Well?", kind="request", payload=REASON, waits=60)
        assert refused.value.remedy == "answer what you were asked, or use send_message and finish without the reply"
        assert await office.letters() == before


@pytest.mark.requirement("A18")
async def test_a_wait_that_is_sent_again_is_the_first_one(tmp_path: Path) -> None:
    async with Office(fresh("sqlite", tmp_path)) as office:
        first = await office.ask("a", "b", message_id="m1")
        assert await office.ask("b", "a") is None
        assert await office.ask("a", "b", office.second, message_id="m1") == first


@pytest.mark.requirement("A18")
async def test_who_does_not_wait_closes_no_circle(tmp_path: Path) -> None:
    async with Office(fresh("sqlite", tmp_path)) as office:
        assert await office.ask("a", "b", waits=None) is not None
        assert await office.ask("b", "a") is not None
        assert await office.ask("a", "b", waits=None) is not None
