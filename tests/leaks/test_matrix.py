"""Whatever is asked, wherever the role comes from, however it ends: the role is nowhere afterwards."""

from pathlib import Path

import pytest

from support.leak_cases import PLANNED, Case, sample, sample_of_values, soaked
from support.leak_turns import expected_error, host_log, run_case
from support.leaks import Watch, on_the_server, traces_of, watch
from support.role_hosts import TOKEN
from worldagent.agent import Turn
from worldagent.agent.stores import SCHEMAS
from worldagent.graphs.checkpoints import DURABILITY
from worldagent.storage.copies import tables_of
from worldagent.testing import assert_no_role_leak

SAMPLE = sample()
REST = [case for case in soaked() if case not in set(SAMPLE)]
IN_TABLES = sample_of_values()
MORE_IN_TABLES = [case for case in SAMPLE if case.store == "embedded" and case not in set(IN_TABLES)]
MADE = {table.name for table in tables_of(SCHEMAS)} | {"checkpoints", "checkpoint_blobs", "checkpoint_writes"}
on_postgres = pytest.mark.parametrize("database_engine", ["postgres"], indirect=True)


def turns_of(seen: Watch) -> list[Turn]:
    """The turns that a case gave, streamed or not."""
    given = [each for kept in seen.kept for each in (kept if isinstance(kept, list) else [kept])]
    return [each for each in given if isinstance(each, Turn)]


async def check(case: Case, home: Path) -> None:
    DURABILITY.set(case.mode)
    with watch(home) as seen:
        sent = await run_case(case, seen)
    assert case.content in sent, "the role never reached the model, so the case shows nothing"
    seen.assert_clean(*traces_of(case.content))
    assert not [turn for turn in turns_of(seen) if turn.text.startswith("{")] or case.surface not in PLANNED
    if case.store != "embedded":
        log = host_log(home)
        assert b": mcp." in log.read_bytes(), "the host logged nothing, so its log shows nothing"
        assert_no_role_leak(log, [case.content, case.label, TOKEN])
        assert_no_role_leak([home, *seen.logs.scannable, *map(repr, seen.errors), *map(repr, seen.kept)], TOKEN)
    assert [type(error) for error in seen.errors if isinstance(error, Exception)] == [
        *filter(None, [expected_error(case)])
    ]


@pytest.mark.requirement("R7", "R8")
@pytest.mark.parametrize("case", SAMPLE, ids=str)
async def test_a_role_is_nowhere_after_its_turn(tmp_path: Path, case: Case) -> None:
    await check(case, tmp_path / "home")


@pytest.mark.soak
@pytest.mark.parametrize("case", REST, ids=str)
async def test_a_role_is_nowhere_after_any_turn(tmp_path: Path, case: Case) -> None:
    await check(case, tmp_path / "home")


async def check_tables(case: Case, home: Path) -> None:
    await check(case, home)
    assert on_the_server().keys() >= MADE, "not all tables were looked into, so this shows nothing"


@pytest.mark.requirement("R7", "R8")
@pytest.mark.parametrize("case", IN_TABLES, ids=str)
@on_postgres
async def test_a_role_is_in_no_table_after_its_turn(tmp_path: Path, case: Case) -> None:
    await check_tables(case, tmp_path / "home")


@pytest.mark.soak
@pytest.mark.parametrize("case", MORE_IN_TABLES, ids=str)
@on_postgres
async def test_a_role_is_in_no_table_after_any_turn(tmp_path: Path, case: Case) -> None:
    await check_tables(case, tmp_path / "home")
