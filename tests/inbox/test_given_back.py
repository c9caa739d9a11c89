"""A message whose turn a kill took before the conversation had it is read once by another turn (T15, T16, T17)."""

import pytest

from support.databases import Engine, on_every_database
from support.processes import run_program

BOUND = 300

pytestmark = [pytest.mark.requirement("T15", "T16", "T17"), pytest.mark.timeout(BOUND)]

TEXTS = {"steer": "steer", "queue": "queue", "report": "re report"}


@on_every_database
def test_message_of_an_abandoned_turn_that_the_conversation_lacks_is_read_again(engine: Engine) -> None:
    for case in run_program("kill_beginning", BOUND, engine=engine):
        kind, text = case["kind"], TEXTS[case["kind"]]
        before = [] if case["fresh"] else [["message", "first"]]
        asked = [*before, ["message", "next"]]
        if kind != "queue" and case["account"] == "ana":  # the next turn reads it
            read = [*asked, ["word", text]]
            assert (case["after"]["said"], case["after"]["queued"]) == (read, []), case
        elif case["interrupt"]:  # it ended the turn of that message
            read = asked
            assert (case["after"]["said"], case["after"]["queued"]) == (asked, []), case
        else:  # it has a turn of its own
            read = [*asked, ["message", text]]
            assert (case["after"]["said"], case["after"]["queued"]) == (asked, [kind]), case
        assert (case["last"]["said"], case["last"]["queued"]) == (read, []), case
