"""What a thread waits for, and which answers are taken (T4). Who runs the turn then is `_running`'s matter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core import Scope
from ...core.errors import AlreadyAnswered, InvalidArgument, NothingToResume, ThreadBusy, UnknownPause
from ...core.pauses import Pause
from ...harness.journal import decision_of, pause_of
from ...memory import TurnRecord
from ._work import RunnerParts, thread_key

_OPEN = ("running", "paused", "stopped", "failed")


async def resumable(parts: RunnerParts, scope: Scope) -> TurnRecord:
    """The turn of a thread that can go on.

    Raises:
        NothingToResume: There is none; the text says why.
    """
    key = thread_key(scope)
    record = await parts.turns.latest(key)
    if record is None:
        raise NothingToResume(f"thread {key!r} has no turn", remedy="say something on it first")
    if record.status not in _OPEN:
        raise NothingToResume(
            f"the last turn {record.id!r} of thread {key!r} is {record.status}", remedy="begin a new turn"
        )
    return record


async def open_pauses(parts: RunnerParts, record: TurnRecord) -> tuple[Pause, ...]:
    """What a turn waits for, in the order in which it was asked."""
    if record.status not in _OPEN:
        return ()
    found = [entry for entry in (await parts.journal.load(record.id)).values() if entry.open]
    return tuple(pause_of(entry) for entry in sorted(found, key=lambda entry: (entry.at, entry.id)))


async def take_answers(parts: RunnerParts, record: TurnRecord, answers: Mapping[str, object]) -> tuple[str, ...]:
    """Write down a person's answers, all or none that fits; give the ids of the pauses.

    Raises:
        UnknownPause, AlreadyAnswered, AnswerInvalid, InvalidArgument: An answer cannot be taken.
    """
    if not isinstance(answers, Mapping):
        raise InvalidArgument("answers is no mapping", remedy="map ids of pauses to answers")
    if not answers:
        return ()
    records = await parts.journal.load(record.id)
    decisions: dict[str, Any] = {}
    for pause_id, answer in answers.items():
        found = records.get(pause_id)
        if found is None or found.ask is None:
            known = ", ".join(repr(entry.id) for entry in records.values() if entry.open) or "none"
            raise UnknownPause(
                f"{str(pause_id)[:200]!r} is no pause of turn {record.id!r}", remedy=f"the open pauses are: {known}"
            )
        if not found.open:
            raise _answered(pause_id)
        decisions[pause_id] = decision_of(pause_of(found), answer)
    for pause_id, decision in decisions.items():
        if not await parts.journal.answer(record.id, pause_id, decision):
            raise _answered(pause_id)
    return tuple(decisions)


async def cancel_waiting(parts: RunnerParts, record: TurnRecord) -> None:
    """End a turn that nobody runs; one that runs ends itself, since it was asked to."""
    try:
        async with parts.leases.hold(record.thread, wait=0) as lease:
            latest = await parts.turns.latest(record.thread)
            if latest is not None and latest.id == record.id and latest.status in _OPEN:
                await parts.journal.withdraw(record.id)
                await parts.turns.end(latest, "cancelled", lease=lease)
    except ThreadBusy:
        return


def _answered(pause_id: str) -> AlreadyAnswered:
    return AlreadyAnswered(
        f"the pause {pause_id!r} is answered already", remedy="call resume() without an answer to it"
    )
