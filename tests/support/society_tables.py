"""Whether the tables of a society agree with each other, wherever a process was killed (A3, C2, C3).

It holds for societies from which no member, contact or message was taken. A new table gets a function in `_CHECKS`.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from support.databases import rows_of
from worldagent.members.data.roles import ROOT, USER
from worldagent.members.mail.contacts import BIRTH, FIRST_MESSAGE, PERSON

Read = Callable[[str], Sequence[tuple[Any, ...]]]
"""Gives the rows that a query finds."""

_MAIL: Final = "SELECT id, place, sender, receiver, payload, answers, state, answered FROM wa_mail ORDER BY place"


def problems_of(home: Path) -> list[str]:
    """Say what is wrong in the tables of a home that is not open."""
    return problems(lambda query: rows_of(home, query))


def problems(read: Read) -> list[str]:
    """Say what is wrong in the tables that `read` reads."""
    return [problem for check in _CHECKS for problem in check(read)]


def _mailboxes(read: Read) -> list[str]:
    """A mailbox counts what waits in it, has its messages without a gap, and is handled in their order."""
    boxes, queues = defaultdict[str, list[tuple[int, str]]](list), defaultdict[str, list[str]](list)
    for _, place, _, receiver, _, answers, state, _ in read(_MAIL):
        if not place:  # it is held, or was taken back while it was
            continue
        boxes[receiver].append((place, state))
        queues[receiver] += [] if answers else [state]  # a turn that waits for an answer gets it at once
    counted = {
        member: (waiting, last) for member, waiting, last in read("SELECT member, waiting, last FROM wa_mailbox")
    }
    wrong = [f"the mailbox of {member} is missing" for member in boxes.keys() - counted.keys()]
    for member, (waiting, last) in counted.items():
        places, states = [place for place, _ in boxes[member]], [state for _, state in boxes[member]]
        if places != [*range(1, last + 1)]:
            wrong.append(f"the mailbox of {member} has the places {places}, and its last is {last}")
        if waiting != (left := sum(state != "handled" for state in states)):
            wrong.append(f"the mailbox of {member} counts {waiting} messages that wait, and {left} do")
        queue = queues[member]
        if member != USER and queue != sorted(queue, key=("handled", "handling", "waiting").index):
            wrong.append(f"the mailbox of {member} was not handled in its order: {queue}")
        if states.count("handling") > 1:
            wrong.append(f"{member} handles more than one message")
    return wrong


def _members(read: Read) -> list[str]:
    """All members are counted, with their domains, and know those that they come from, and these know them."""
    members = read("SELECT id, place, status, parent, spec FROM wa_member ORDER BY place")
    counts = [tuple(row) for row in read("SELECT members, last FROM wa_society")] or [(0, 0)]
    live = sum(status != "terminated" for _, _, status, _, _ in members)
    wrong = [] if counts == [(live, len(members))] else [f"{live} of {len(members)} members live, counted as {counts}"]
    wrong += [f"the members are not numbered: {members}"] if [row[1] for row in members] != _upto(len(members)) else []
    domains = {(member, domain) for member, domain in read("SELECT member, domain FROM wa_member_domain")}
    contacts = {(owner, id_) for owner, id_ in read("SELECT owner, id FROM wa_contact")}
    tasks = {row[3] for row in read(_MAIL) if json.loads(row[4]).get("message_type") == "task_assignment"}
    expected = set[tuple[str, str]]()
    for id_, _, status, parent, text in members:
        spec, above = json.loads(text), parent or ROOT
        expected |= {(id_, domain) for domain in spec["domains"]}
        pairs = ((id_, above), (above, id_)) if status != "terminated" else ()
        wrong += [
            f"{owner} does not know {other} from birth" for owner, other in pairs if (owner, other) not in contacts
        ]
        if spec["created_by"] and id_ not in tasks:
            wrong.append(f"{id_} was made without a task")
    return [*wrong, *(f"a domain too many or too few: {each}" for each in domains ^ expected)]


def _upto(most: int) -> list[int]:
    return [*range(1, most + 1)]


def _contacts(read: Read) -> list[str]:
    """Who wrote to one another knows one another, and each contact has the message that made it."""
    contacts = {(owner, id_): by for owner, id_, by in read("SELECT owner, id, introduced_by FROM wa_contact")}
    pairs, told = set[tuple[str, str]](), set[tuple[str, str, str]]()
    about_events = set[tuple[str, str]]()
    for id_, _, sender, receiver, text, _, _, _ in read(_MAIL):
        payload = json.loads(text)
        pairs.add((sender, receiver))
        about_events |= {(sender, receiver)} if id_.startswith("event.") else set()
        told.add((sender, receiver, str(payload.get("target_id"))))
        told |= {(sender, receiver, each["id"]) for each in payload.get("task_brief", {}).get("collaborators", ())}
    gone = {id_ for (id_,) in read("SELECT id FROM wa_member WHERE status='terminated'")}
    known = {(receiver, sender) for sender, receiver in pairs}
    known |= {each for each in pairs - about_events if each[0] != USER}
    known -= {(USER, ROOT), (ROOT, USER)}  # they always know one another
    known = {pair for pair in known if not gone & {*pair}}
    wrong_ones = [pair for pair in contacts if gone & {*pair}]
    wrong = [f"{owner} does not know {id_}, and there is a message" for owner, id_ in known - contacts.keys()]
    wrong += [f"{owner} knows {id_}, and one of them is terminated" for owner, id_ in wrong_ones]
    for (owner, id_), by in contacts.items():
        if by == FIRST_MESSAGE and (id_, owner) not in pairs:
            wrong.append(f"{owner} knows {id_} by a first message that is not there")
        if by not in (BIRTH, PERSON, FIRST_MESSAGE) and (by, owner, id_) not in told:
            wrong.append(f"{owner} knows {id_} by {by}, who wrote no such message")
    return wrong


def _answers(read: Read) -> list[str]:
    """What is referred to is there, and one that has an answer about an introduction has one, and is marked."""
    mail = {row[0]: row for row in read(_MAIL)}
    wrong, answered = list[str](), list[str]()
    for id_, _, _, _, text, answers, _, _ in mail.values():
        if answers and answers not in mail:
            wrong.append(f"{id_} answers {answers}, which is not there")
        elif json.loads(text).get("message_type") == "introduction_response":
            answered.append(answers)
            wrong += [] if mail[answers][7] else [f"{answers} has an answer and is not marked"]
    return [*wrong, *(f"{each} was answered twice" for each in {*answered} if answered.count(each) > 1)]


def _briefs(read: Read) -> list[str]:
    """Each task has its brief on the board, which one member has, and which waits for those before it."""
    mail = {row[0]: row for row in read(_MAIL)}
    briefs = {row[0]: row for row in read("SELECT id, member, state, message, unmet FROM wa_brief")}
    needs = read("SELECT brief, needs FROM wa_brief_after")
    wrong = list[str]()
    for id_, _, _, receiver, text, _, state, _ in mail.values():
        payload = json.loads(text)
        if payload.get("message_type") != "task_assignment" or state == "recorded":
            continue
        brief = briefs.get(payload.get("task", id_))
        if brief is None:
            wrong.append(f"the task {id_} is not on the board")
        elif brief[3] != id_ and state in ("waiting", "held"):
            wrong.append(f"{receiver} waits for {id_}, and {brief[1]} has the brief {brief[0]}")
    for id_, member, state, message, unmet in briefs.values():
        letter = mail.get(message)
        left = sum(briefs[other][2] != "done" for each, other in needs if each == id_)
        wrong += [] if unmet == left or state == "done" else [f"{id_} waits for {unmet}, and {left} are not done"]
        if letter is None:
            wrong += [f"{id_} has no message"] if message else []
        elif letter[3] != member:
            wrong.append(f"{member} has {id_}, and {letter[3]} its message")
        elif state in ("open", "accepted") and (state == "open") != (letter[6] == "waiting"):
            wrong.append(f"{id_} is {state}, and its message {letter[6]}")
    return wrong


_FOLLOWS: Final = {"draft testing", "testing active", "active suspended", "suspended active", "suspended terminated"}


def _lives(read: Read) -> list[str]:
    """Each step can follow the one before, the last is the member's state, and nothing is left of one that ended."""
    members = read("SELECT id, status, parent FROM wa_member")
    steps = read("SELECT member, status, number FROM wa_member_step ORDER BY number")
    counted = [tuple(row) for row in read("SELECT steps FROM wa_society")] or [(0,)]
    wrong = [] if counted == [(len(steps),)] else [f"there are {len(steps)} steps, counted as {counted}"]
    last = dict[str, str]()
    for id_, status, _ in steps:
        if id_ in last and f"{last[id_]} {status}" not in _FOLLOWS:
            wrong.append(f"{id_} went from {last[id_]} to {status}")
        last[id_] = status
    states = {id_: status for id_, status, _ in members}
    wrong += [
        f"{id_} is {states.get(id_)}, and its last step is {status}"
        for id_, status in last.items()
        if states.get(id_) != status
    ]
    gone = {id_ for id_, status in states.items() if status == "terminated"}
    wrong += [
        f"{id_} lives, and its parent does not" for id_, _, parent in members if parent in gone and id_ not in gone
    ]
    left = read("SELECT id, receiver FROM wa_mail WHERE state IN ('waiting', 'handling')")
    wrong += [f"{id_} waits for {receiver}, who is terminated" for id_, receiver in left if receiver in gone]
    open_ones = read("SELECT id, receiver FROM wa_mail WHERE kind='request' AND answered=0")
    wrong += [f"{id_} is not answered, and {who} is terminated" for id_, who in open_ones if who in gone]
    due = read("SELECT member, work FROM wa_memory_due")
    wrong += [f"{id_} inherits, and it is terminated" for id_, work in due if work == "inherit" and id_ in gone]
    return [*wrong, *(f"{work} is due, and {id_} lives" for id_, work in due if work != "inherit" and id_ not in gone)]


def _events(read: Read) -> list[str]:
    """Open events are counted, each has a place, and the trust of a member is that of its outcomes in their order."""
    rows = read("SELECT id, place, member, state, decision, result FROM wa_occurrence ORDER BY place")
    counts = [tuple(row) for row in read("SELECT waiting, last FROM wa_occurrence_count")] or [(0, 0)]
    left = sum(row[3] != "done" for row in rows)
    wrong = [] if counts[0][0] == left else [f"{left} events are open, counted as {counts}"]
    wrong += [f"a place is taken twice: {rows}"] if len({row[1] for row in rows}) != len(rows) else []
    wrong += [f"an event is past its last place: {rows}" for row in rows if row[1] > counts[0][1]]
    wrong += [f"{row[0]} is {row[3]} with {row[5]}" for row in rows if (row[3] == "done") != (row[5] is not None)]
    wrong += [f"{row[0]} is {row[3]} without a decision" for row in rows if row[3] != "waiting" and row[4] is None]
    return [*wrong, *_trust(read)]


def _trust(read: Read) -> list[str]:
    outcomes = read("SELECT member, capability, succeeded, feedback FROM wa_outcome ORDER BY member, place")
    wrong = list[str]()
    for id_, spec, trust in read("SELECT id, spec, trust FROM wa_member"):
        stored = json.loads(trust)
        scores = dict((json.loads(spec).get("trust") or {}).get("scores", {}))
        for _, capability, succeeded, feedback in (row for row in outcomes if row[0] == id_):
            change = {"good": 5, "bad": -15, None: 5 if succeeded else 0}[feedback]
            hundredths = min(100, max(0, round(scores.get(capability, stored["default"]) * 100) + change))
            scores |= {capability: hundredths / 100} if change else {}
        wrong += [f"the trust in {id_} is {stored}, not {scores}"] if stored["scores"] != scores else []
    return wrong


def _budgets(read: Read) -> list[str]:
    """What is counted for a member is at least that of all below it, and no limit is exceeded (A16)."""
    kinds = ("turns", "calls", "tokens", "cost")
    counted = {row[0]: row[1:] for row in read(f"SELECT holder, {', '.join(kinds)} FROM wa_budget WHERE span='life'")}
    limits = {holder: json.loads(body) for holder, body in read("SELECT holder, limits FROM wa_limit")}
    below = defaultdict[str, list[str]](list)
    for id_, spec in read("SELECT id, spec FROM wa_member"):
        below[f"member {json.loads(spec)['reports_to']}"].append(f"member {id_}")
    over = {id_ for (id_,) in read("SELECT id FROM wa_mail WHERE state='handled'")}
    wrong = [f"{id_} is over, and has reserved" for (id_,) in read("SELECT work FROM wa_reserved") if id_ in over]
    prepared = "SELECT receiver, COUNT(*) FROM wa_mail WHERE prepared IS NOT NULL GROUP BY receiver"
    begun = {f"member {member}": count for member, count in read(prepared)}
    for holder, used in counted.items():
        children = [counted[each] for each in below[holder] if each in counted]
        for place, kind in enumerate(kinds):
            most, had, parts = limits.get(holder, {}).get(kind), used[place], sum(each[place] for each in children)
            wrong += [f"{holder} used {had} {kind} of {most}"] if most is not None and had > most else []
            wrong += [f"the children of {holder} used {parts} {kind}, it {had}"] if parts > had else []
        own = used[0] - sum(each[0] for each in children)
        wrong += [f"{holder} began {begun.get(holder)} turns, counted as {own}"] if own != begun.get(holder) else []
    return wrong


_CHECKS: Final = (_mailboxes, _members, _contacts, _answers, _briefs, _lives, _events, _budgets)
