"""The tables of a capability over its releases: which rows go with their account, and what is refused at opening."""

from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent
from worldagent.agent.memory import Memory
from worldagent.agent.runtime.inside import inside
from worldagent.core.capability import Capability
from worldagent.core.errors import InvalidArgument
from worldagent.memory.owned import OwnedTable

COLUMNS = "(workspace TEXT, account TEXT, id TEXT, PRIMARY KEY(workspace, account, id))"


class Pets(Capability["Pets"]):
    name = "pets"
    migrations = ((f"CREATE TABLE pets_pet{COLUMNS}", f"CREATE TABLE pets_toy{COLUMNS}"),)
    owned = (OwnedTable(name="pets_pet", account="account"), OwnedTable(name="pets_toy", account="account"))


class Renamed(Pets):
    migrations = (*Pets.migrations, ("ALTER TABLE pets_pet RENAME TO pets_animal",))
    owned = (OwnedTable(name="pets_animal", account="account"),)


def capability(**more: Any) -> Capability[Any]:
    """One named `pets` with these attributes."""
    made: Capability[Any] = type("Made", (Capability,), {"name": "pets", **more})()
    return made


async def rows(agent: Any, table: str) -> list[Any]:
    return await inside(agent).database.read(lambda tx: tx.execute(f"SELECT id FROM {table}"))


@pytest.mark.requirement("M4")
@pytest.mark.on_every_database
async def test_an_account_is_removed_after_a_release_that_renames_an_owned_table(tmp_path: Path) -> None:
    def agent(*capabilities: Capability[Any]) -> Any:
        return scripted_agent(tmp_path, answering(), capabilities=capabilities, memory=Memory())

    async with agent(Pets()) as first:
        for table in ("pets_pet", "pets_toy"):
            add = f"INSERT INTO {table} VALUES('novel', 'ana', 'rex')"
            await inside(first).database.transact(lambda tx, add=add: tx.execute(add))
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
            await inside(agent).database.transact(lambda tx, statement=statement: tx.execute(statement))
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
