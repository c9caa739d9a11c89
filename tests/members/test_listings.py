"""What lists members and events takes pages, and reads no more than it returns (A3, A12)."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from support.role_specs import spec_of, workspace_of
from worldagent.core.errors import InvalidArgument, UnknownMember
from worldagent.members import Event, Society
from worldagent.members.data.workspace import RoutingDecision
from worldagent.members.life.members import InMemoryRegistry, RoleRegistry
from worldagent.storage import Database, Transaction

NOW = datetime(2026, 2, 18, tzinfo=UTC)


@pytest.fixture
def society(database: Database) -> Society:
    return Society(workspace_of(id="w", max_roles=1000), database)


class Reading:
    """Counts the rows that the transactions of a database read."""

    def __init__(self, society: Society, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = 0
        database = society.members._store.database
        read = database.read

        def counted(work: Callable[[Transaction], Any]) -> Any:
            return read(lambda tx: work(Counted(tx, self)))  # type: ignore[arg-type]  # it has all that is called

        monkeypatch.setattr(database, "read", counted)

    def taken(self) -> int:
        rows, self.rows = self.rows, 0
        return rows


class Counted:
    def __init__(self, tx: Transaction, reading: Reading) -> None:
        self._tx, self._reading = tx, reading

    def execute(self, sql: str, params: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        rows = self._tx.execute(sql, params)
        self._reading.rows += len(rows)
        return rows


async def fill(society: Society, members: int) -> None:
    for number in range(members):
        domains = ("sales", "law") if number % 2 else ("law",)
        await society.join(spec_of(f"m{number:03}", workspace="w", domains=domains))


@pytest.mark.requirement("A3")
async def test_members_are_listed_in_pages(society: Society, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(society, 30)
    await society.terminate("m003")
    in_memory = InMemoryRegistry()
    for number in (each for each in range(30) if each != 3):
        await in_memory.register((await society.members.member("w", f"m{number:03}")).spec)
    registry: RoleRegistry
    reading = Reading(society, monkeypatch)
    for registry in (society.members, in_memory):
        whole = await registry.list_roles("w")
        assert [each.id for each in whole] == [f"m{number:03}" for number in range(30) if number != 3]
        assert whole[1].domains == ("sales", "law"), "in the order of the definition"
        reading.taken()
        first = await registry.list_roles("w", limit=10)
        assert reading.taken() <= 10
        rest = await registry.list_roles("w", after=first[-1].id)
        assert [*first, *rest] == whole
        sales = await registry.find_by_domain("w", "sales")
        assert [each.id for each in sales] == [f"m{number:03}" for number in range(1, 30, 2) if number != 3]
        some = await registry.find_by_domain("w", "sales", limit=4)
        assert [*some, *await registry.find_by_domain("w", "sales", after=some[-1].id)] == sales
        with pytest.raises(UnknownMember, match="'nobody'"):
            await registry.list_roles("w", after="nobody")
    with pytest.raises(InvalidArgument, match="limit"):
        await society.members.list_roles("w", limit=1001)


@pytest.mark.requirement("A9")
async def test_members_that_wait_for_approval_are_found_among_many(
    society: Society, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(society, 10)
    await society.members.queue_spawn(spec_of("late", workspace="w"))
    reading = Reading(society, monkeypatch)
    assert [each.id for each in await society.spawns()] == ["late"]
    assert reading.taken() == 1


def event(number: int) -> Event:
    return Event(id=f"e{number}", type="lead.created", source="hubspot", domain="law", payload={}, timestamp=NOW)


@pytest.mark.requirement("A12")
async def test_what_waits_behind_the_first_event_of_a_line_is_not_read(
    society: Society, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(society, 4)
    for number in range(60):
        await society.events.post(event(number), to="m000")
    for number in (60, 61):
        await society.events.post(event(number), to=f"m00{number - 59}")
    delegated = RoutingDecision(action="delegate", reason="by its route", operator_id="price")
    for number in range(20):  # wait for a person
        posted = await society.events.get(f"e{number}")
        assert posted is not None
        await society.events.route(posted, delegated)
        await society.events.pause(f"e{number}")
    reading = Reading(society, monkeypatch)
    assert [each.event.id for each in await society.events.next(5)] == ["e20", "e60", "e61"]
    assert reading.taken() <= 4 * 5 + 3 + 3
    assert [each.event.id for each in await society.events.next(2)] == ["e20", "e60"]
    assert [each.event.id for each in await society.events.next()] == ["e20", "e60", "e61"]
