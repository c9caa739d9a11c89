"""A gateway that is killed at any point of a talk with a remote agent: one task, and one answer (A22)."""

import os
from typing import Any

import pytest

from support.a2a_peers import KINDS, Kind
from support.databases import Engine, on_every_database
from support.install_a2a import MISSING, find_python
from support.processes import run_program

pytestmark = pytest.mark.requirement("A22", "A12", "T5")

BOUND = 900  # seconds, with other work on the machine


def check(kill: dict[str, Any], kind: Kind, seed: int) -> None:
    about = (kill, seed)
    assert (kill["ended"], kill["broken"], kill["open"]) == (0, [], []), about
    answers = [content for _, content, answers, _ in kill["mail"] if answers == "m1"]
    assert len(kill["mail"]) == 2, about
    assert [answers[0].splitlines()[0]] == [{"js": "js: echo once", "fasta2a": "fast: echo once"}[kind]], about
    assert [state for id_, *_, state in kill["mail"] if id_ == "m1"] == ["handled"], about
    assert {*kill["sent"]} == {"m1"}, about  # a repeat has the same id
    # An agent that lists its tasks has one. Of another one nobody can know what it did with a call without an answer.
    unknown = kind == "fasta2a" and kill["point"][:2] in (
        ["after", "send"],
        ["before", "RemoteMembers._put"],
        ["within", "RemoteMembers._put"],
    )
    assert len(kill["effects"]) == 1 + (unknown and kill["point"][2] == 1), about


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.timeout(BOUND)
@on_every_database
def test_a_message_to_a_remote_agent_is_one_task_and_one_answer_wherever_a_kill_is(engine: Engine, kind: Kind) -> None:
    if kind == "fasta2a" and find_python() is None:
        pytest.skip(MISSING)
    seed = int.from_bytes(os.urandom(4), "big")
    kills = run_program("kill_remote_members", BOUND, engine=engine, kind=kind, sample=6, seed=seed)
    assert len(kills) == 6
    for kill in kills:
        check(kill, kind, seed)
