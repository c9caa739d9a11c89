"""Members whose process is killed: no message is lost, handled twice or out of order, no member is half (A3, A12)."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent
from support.databases import Engine, on_every_database
from support.homes import change, database_of
from support.kill_organisation import agent_of, wrong
from support.kill_society import CASES, join, workspace
from support.kill_week import EFFECTS
from support.processes import add, run_program
from support.role_specs import BRIEF
from support.society_tables import problems

pytestmark = pytest.mark.requirement("A3", "A12", "A19", "T5")

BOUND = 1500  # seconds, with other work on the machine


def check(kill: dict[str, Any], seed: int | None = None) -> None:
    """What must hold wherever it was killed."""
    assert kill["broken"] == [], (kill, seed)
    assert kill["differs"] == {}, (
        kill,
        seed,
    )  # messages, effects, contacts and turns are those of a run without a kill


@pytest.mark.timeout(BOUND)
@on_every_database
def test_members_go_on_where_their_process_was_killed(engine: Engine) -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    kills = run_program("kill_society", BOUND, engine=engine, cases=[*CASES], sample=1, seed=seed)
    assert len(kills) == 2 * len(CASES)
    for kill in kills:
        check(kill, seed)


@pytest.mark.timeout(BOUND)
@on_every_database
def test_a_gateway_goes_on_while_another_one_is_killed(engine: Engine) -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    for kill in run_program("kill_society", BOUND, engine=engine, cases=["deliver"], sample=1, seed=seed, two=True):
        check(kill, seed)


@pytest.mark.timeout(BOUND)
@on_every_database
def test_no_message_is_lost_where_sender_gateways_and_broker_are_killed(engine: Engine) -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    for run in run_program("kill_gateways", BOUND, engine=engine, count=3, kills=4, runs=1, seed=seed):
        assert run["wrong"] == [], (run, seed)


def check_week(week: dict[str, Any], seed: int) -> None:
    """Nothing is lost, done twice or stuck, and trust is that of a replay."""
    assert week["wrong"] == [], (week, seed)
    assert week["kills"] > 0


@pytest.mark.requirement("A8", "A13")
@pytest.mark.timeout(BOUND)
def test_a_week_with_kills_and_edits_of_souls_loses_nothing() -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    [week] = run_program("kill_week", BOUND, engine="sqlite", events=24, each=12, seed=seed)
    check_week(week, seed)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE wa_mailbox SET waiting=waiting + 1",
        "UPDATE wa_mailbox SET last=last + 1",
        "DELETE FROM wa_mailbox",
        "DELETE FROM wa_mail",
        "UPDATE wa_mail SET state='handling'",
        "UPDATE wa_mail SET answers='other'",
        "DELETE FROM wa_brief",
        "UPDATE wa_brief SET member='coo'",
        "UPDATE wa_brief SET state='accepted'",
        "UPDATE wa_brief SET unmet=1",
        "UPDATE wa_society SET members=1",
        "UPDATE wa_society SET steps=1",
        "UPDATE wa_member SET status='terminated' WHERE id='bdr'",
        "INSERT INTO wa_memory_due VALUES('novel', 1, 'bdr', '', 'delete', '[]')",
        "DELETE FROM wa_member_domain WHERE member='cro'",
        "DELETE FROM wa_contact WHERE owner='bdr'",
        "DELETE FROM wa_contact WHERE owner='root' AND id='cro'",
        "UPDATE wa_contact SET introduced_by='first message' WHERE owner='cro' AND id='bdr'",
        "UPDATE wa_contact SET introduced_by='coo' WHERE owner='cro' AND id='bdr'",
        'UPDATE wa_member SET spec=REPLACE(spec, \'"created_by":""\', \'"created_by":"root"\')',
    ],
)
async def test_tables_of_a_society_that_do_not_agree_are_found(tmp_path: Path, statement: str) -> None:
    async with scripted_agent(tmp_path, answering(), society=workspace()) as agent:
        await join(agent)
        for text in ("Go.", "Go on."):
            await agent.society.mail.send("root", "cro", text)
        task = {"message_type": "task_assignment", "task_brief": BRIEF}
        await agent.society.mail.send("root", "cro", payload=task)
        assert await database_of(agent).read(lambda transaction: problems(transaction.execute)) == []
        await change(agent, statement, ())
        assert await database_of(agent).read(lambda transaction: problems(transaction.execute))


@pytest.mark.soak
@pytest.mark.timeout(3 * BOUND)
@pytest.mark.parametrize(("case", "two"), [*((case, False) for case in CASES), ("deliver", True)])
@on_every_database
def test_members_go_on_wherever_their_process_was_killed(engine: Engine, case: str, two: bool) -> None:
    kills = run_program("kill_society", 3 * BOUND, engine=engine, cases=[case], two=two)
    assert kills
    for kill in kills:
        check(kill)


@pytest.mark.soak
@pytest.mark.timeout(3 * BOUND)
@on_every_database
def test_no_message_is_lost_however_often_sender_gateways_and_broker_are_killed(engine: Engine) -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    runs = run_program("kill_gateways", 3 * BOUND, engine=engine, count=6, kills=8, runs=12, seed=seed)
    assert [run for run in runs if run["wrong"]] == [], seed


@pytest.mark.soak
@pytest.mark.requirement("A8", "A13")
@pytest.mark.timeout(3 * BOUND)
@on_every_database
def test_a_week_of_300_events_with_kills_edits_and_a_full_inbox_loses_nothing(engine: Engine) -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    [week] = run_program("kill_week", 3 * BOUND, engine=engine, events=300, each=12, seed=seed)
    check_week(week, seed)
    assert (week["inbox"], week["ended"] > 0, week["versions"] > 5) == (40, True, True), (week, seed)


def check_company(week: dict[str, Any], seed: int) -> None:
    """Our books and those of the company agree: nothing is lost, done twice, stuck, or beyond what somebody may do."""
    assert week["wrong"] == [], (week, seed)
    assert week["kills"] > 0
    assert set(week["effects"]) == {"qualify", "pay", "note", "answer", "review"}


@pytest.mark.requirement("A1", "A8", "A9", "A20", "C2")
@pytest.mark.timeout(BOUND)
def test_a_company_of_17_members_does_nothing_twice_and_nothing_that_somebody_hostile_wants() -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    [week] = run_program("kill_organisation", BOUND, engine="sqlite", events=36, each=18, seed=seed)
    check_company(week, seed)


@pytest.mark.parametrize(
    "line",
    [["cro", "pay", "mallory47"], ["cro", "qualify", "e18"], ["bdr-0", "qualify", "mallory14"], ["cto", "x", "y"]],
)
async def test_the_books_of_a_company_find_what_is_beyond_somebody_and_what_is_twice(
    tmp_path: Path, line: list[str]
) -> None:
    async with agent_of(tmp_path):
        pass
    for each in (["cro", "qualify", "e18"], line):
        add(tmp_path / EFFECTS, json.dumps(each))
    assert any(str(line[2]) in each for each in wrong(tmp_path, 48))


@pytest.mark.soak
@pytest.mark.requirement("A1", "A8", "A9", "A20", "C2")
@pytest.mark.timeout(3 * BOUND)
@on_every_database
def test_a_week_of_a_company_with_300_events_of_which_a_third_is_hostile(engine: Engine) -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    [week] = run_program("kill_organisation", 3 * BOUND, engine=engine, events=300, each=12, seed=seed)
    check_company(week, seed)
