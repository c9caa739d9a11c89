"""The tables of a capability over its releases: which rows go with their account, and what is refused at opening."""

from pathlib import Path
from typing import Any, ClassVar

import pytest

from support.agents import answering, scripted_agent
from worldagent.agent.memory import Memory
from worldagent.agent.runtime.inside import inside
from worldagent.core.capability import Capability
from worldagent.core.errors import CapabilityFailed, InvalidArgument
from worldagent.memory.owned import OwnedTable
from worldagent.storage import Transaction

COLUMNS = "(workspace TEXT, account TEXT, id TEXT, PRIMARY KEY(workspace, account, id))"

Steps = tuple[tuple[str, ...], ...]


class Pets(Capability["Pets"]):
    name = "pets"
    migrations: ClassVar[Steps] = ((f"CREATE TABLE pets_pet{COLUMNS}", f"CREATE TABLE pets_toy{COLUMNS}"),)
    owned: ClassVar[tuple[OwnedTable, ...]] = (
        OwnedTable(name="pets_pet", account="account"),
        OwnedTable(name="pets_toy", account="account"),
    )


class Renamed(Pets):
    migrations = (*Pets.migrations, ("ALTER TABLE pets_pet RENAME TO pets_animal",))
    owned = (OwnedTable(name="pets_animal", account="account"),)


def capability(**more: Any) -> Capability[Any]:
    """One named `pets` with these attributes."""
    made: Capability[Any] = type("Made", (Capability,), {"name": "pets", **more})()
    return made


async def write(agent: Any, statement: str) -> None:
    def work(transaction: Transaction) -> None:
        transaction.execute(statement)

    await inside(agent).database.transact(work)


async def rows(agent: Any, table: str) -> list[Any]:
    return await inside(agent).database.read(lambda tx: tx.execute(f"SELECT id FROM {table}"))


@pytest.mark.requirement("M4")
@pytest.mark.on_every_database
async def test_an_account_is_removed_after_a_release_that_renames_an_owned_table(tmp_path: Path) -> None:
    def agent(*capabilities: Capability[Any]) -> Any:
        return scripted_agent(tmp_path, answering(), capabilities=capabilities, memory=Memory())

    async with agent(Pets()) as first:
        for table in ("pets_pet", "pets_toy"):
            await write(first, f"INSERT INTO {table} VALUES('novel', 'ana', 'rex')")
        await first.memory.add("likes tea", account="ana")
    async with agent(Renamed()) as second:
        assert await inside(second).database.read(lambda tx: tx.execute("SELECT name FROM wa_owned")) == [
            ("pets_animal",)
        ]
        assert (await second.upkeep.remove_account("ana")).entries == 1
        assert await rows(second, "pets_animal") == []
        assert await rows(second, "pets_toy") == [("rex",)]  # it is no longer owned
    async with agent() as third:
        await third.memory.add("likes hats", account="ana")
        assert (await third.upkeep.remove_account("ana")).entries == 1


@pytest.mark.requirement("M4")
@pytest.mark.on_every_database
async def test_a_table_that_is_gone_does_not_keep_an_account_from_being_removed(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering(), capabilities=[Pets()], memory=Memory()) as agent:
        await agent.memory.add("likes tea", account="ana")
        for statement in ("DROP TABLE pets_pet", "INSERT INTO pets_toy VALUES('novel', 'ana', 'ball')"):
            await write(agent, statement)
        assert (await agent.upkeep.remove_account("ana")).entries == 1
        assert await rows(agent, "pets_toy") == []


@pytest.mark.requirement("M4")
@pytest.mark.parametrize(
    ("owned", "problem"),
    [
        (OwnedTable(name="pets_pets", account="account"), "'pets', which owns rows of it, make no table 'pets_pets'"),
        (OwnedTable(name="checkpoints", account="account"), "'pets', .* make no table 'checkpoints'"),
        (OwnedTable(name="pets_pet", account="acount"), "'pets', .* make no column 'acount' in the table 'pets_pet'"),
    ],
)
async def test_an_owned_table_that_the_migrations_do_not_make_is_refused(
    tmp_path: Path, owned: OwnedTable, problem: str
) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        await scripted_agent(
            tmp_path, answering(), capabilities=[capability(migrations=Pets.migrations, owned=(owned,))]
        ).start()
    assert not (tmp_path / "agent.db").exists()


ITEM = "CREATE TABLE item(id TEXT PRIMARY KEY)"
REFUSED: dict[str, tuple[Any, str]] = {
    "a text": (ITEM, "must be a tuple of steps, each a tuple of statements; write"),
    "texts": ((ITEM,), "must be a tuple of steps, each a tuple of statements; write"),
    "no texts": (((3,),), "must be a tuple of steps, each a tuple of statements; write"),
    "a typing error": ((("CREATE TABEL item(id TEXT)",),), 'step 1 cannot be run: near "TABEL"'),
    "two statements": (((f"{ITEM};{ITEM}",),), "step 1 cannot be run: .* one statement at a time"),
    "a second table": (((ITEM,), (ITEM,)), "step 2 cannot be run: table item already exists"),
    "a table of ours": ((("DROP TABLE IF EXISTS wa_turn",),), "step 1 names a table of worldagent; use tables of its"),
    "a checkpoint": ((("DELETE FROM Checkpoints",),), "step 1 names a table of worldagent"),
    "a checkpoint's": ((('CREATE INDEX x ON "writes"(id)',),), "step 1 names a table of worldagent"),
    "no key": ((("CREATE TABLE item(id TEXT)",),), "the table 'item' has no primary key; declare one"),
    "a name in quotes": (
        (('CREATE TABLE "an item"(id TEXT PRIMARY KEY)',),),
        "the table 'an item', or a column .* quot",
    ),
    "a column in quotes": (
        (('CREATE TABLE item("order" TEXT PRIMARY KEY)',),),
        "the table 'item', or a column .* quotes",
    ),
    "a circle": (
        (
            (
                "CREATE TABLE a(id TEXT PRIMARY KEY, b TEXT REFERENCES b(id))",
                "CREATE TABLE b(id TEXT PRIMARY KEY, a TEXT REFERENCES a(id))",
            ),
        ),
        "the tables .* refer to each other",
    ),
    "itself": ((("CREATE TABLE a(id TEXT PRIMARY KEY, b TEXT REFERENCES a(id))",),), "the table 'a' refers to itself"),
}


@pytest.mark.parametrize(("migrations", "problem"), REFUSED.values(), ids=REFUSED)
async def test_migrations_that_cannot_be_used_are_refused_before_they_reach_the_database(
    tmp_path: Path, migrations: Any, problem: str
) -> None:
    agent = scripted_agent(tmp_path, answering(), capabilities=[capability(migrations=migrations)])
    with pytest.raises(InvalidArgument, match=f"`migrations` of the capability 'pets' cannot be used: .*{problem}"):
        await agent.start()
    assert not (tmp_path / "agent.db").exists()


@pytest.mark.on_every_database
async def test_a_migration_that_the_database_refuses_names_its_capability_and_changes_nothing(tmp_path: Path) -> None:
    def agent(*capabilities: Capability[Any]) -> Any:
        return scripted_agent(tmp_path, answering(), capabilities=capabilities)

    other = capability(name="other", migrations=((ITEM,),))
    with pytest.raises(CapabilityFailed, match=r"'pets' cannot be migrated to version 1: .*item.* exists"):
        await agent(other, capability(migrations=((ITEM,),))).start()
    first = ((ITEM, "CREATE TABLE pets_pet(id TEXT PRIMARY KEY, owner TEXT)"),)
    async with agent(capability(migrations=first)) as made:
        for name in ("rex", "rob"):
            await write(made, f"INSERT INTO pets_pet VALUES('{name}', 'a secret')")
    unique = (*first, ("CREATE UNIQUE INDEX pets_owner ON pets_pet(owner)",))
    with pytest.raises(CapabilityFailed, match="'pets' cannot be migrated to version 2") as failed:
        await agent(capability(migrations=unique)).start()
    assert "secret" not in str(failed.value)
    assert failed.value.__context__ is None
    async with agent(capability(migrations=first)) as again:
        assert await rows(again, "pets_pet") == [("rex",), ("rob",)]
