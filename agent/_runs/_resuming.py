"""Which turns can go on, and which answers are taken (T4). Who runs the turn then is `_running`'s matter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core import Scope
from ...core.errors import (
    AlreadyAnswered,
    AnswerInvalid,
    InvalidArgument,
    NothingToResume,
    UnknownPause,
    UsageError,
)
from ...core.pauses import call_id_of, pause_id_of
from ...harness.journal import decision_of, pause_of
from ...memory import OPEN, TurnRecord, thread_key
from ._work import RunnerParts


async def resumable(parts: RunnerParts, scope: Scope, answers: Mapping[str, object]) -> TurnRecord:
    """The turn of a thread that can go on.

    Args:
        parts: What the agent works with.
        scope: The thread.
        answers: What it is to go on with, by the ids of pauses.

    Raises:
        AlreadyAnswered: The turn has come to its end with an answer to one of these pauses.
        NothingToResume: There is none; the text says why.
    """
    key = thread_key(scope)
    record = await parts.turns.latest(key)
    if record is None:
        raise NothingToResume(f"thread {key!r} has no turn", remedy="say something on it first")
    if record.status in OPEN:
        return record
    if record.status == "done" and isinstance(answers, Mapping) and answers:
        records = await parts.journal.load(record.id)
        for pause_id in answers:
            found = records.get(call_id_of(str(pause_id)))
            if found is not None and found.settled:
                raise AlreadyAnswered(
                    f"the pause {pause_id!r} is answered already, and the turn {record.id!r} is done",
                    remedy="look at the thread's history for what became of it, or begin a new turn",
                )
    raise NothingToResume(
        f"the last turn {record.id!r} of thread {key!r} is {record.status}", remedy="begin a new turn"
    )


def ended(latest: TurnRecord | None, turn_id: str, thread: str) -> NothingToResume | None:
    """Why a turn that was to go on does not any more, where it was ended without coming to its own end.

    Args:
        latest: The thread's newest turn now.
        turn_id: The turn that was to go on.
        thread: The thread's key.
    """
    if latest is not None and latest.id == turn_id and latest.status not in ("cancelled", "abandoned"):
        return None
    became = latest.status if latest is not None and latest.id == turn_id else "ended"
    return NothingToResume(
        f"the turn {turn_id!r} of thread {thread!r} was {became} meanwhile", remedy="begin a new turn"
    )


async def take_answers(
    parts: RunnerParts, record: TurnRecord, answers: Mapping[str, object], *, account: str | None
) -> tuple[str, ...]:
    """Write down a person's answers, all or none that fits; give the ids of the pauses.

    Args:
        parts: What the agent works with.
        record: The turn.
        answers: Answers by the ids of pauses.
        account: Who answers.

    Raises:
        NotAnApprover: The policy does not let this account answer.
        UnknownPause, AlreadyAnswered, AnswerInvalid, InvalidArgument: An answer cannot be taken.
        NothingToResume: The turn was ended meanwhile.
    """
    if not isinstance(answers, Mapping):
        raise InvalidArgument("answers is no mapping", remedy="map ids of pauses to answers")
    if not answers:
        return ()
    try:
        return await _take(parts, record, answers, account)
    except (UnknownPause, AlreadyAnswered) as error:
        refused: UsageError = error
    # What is cancelled asks nothing any more, and nobody has answered it for that.
    raise ended(await parts.turns.latest(record.thread), record.id, record.thread) or refused


async def _take(
    parts: RunnerParts, record: TurnRecord, answers: Mapping[str, object], account: str | None
) -> tuple[str, ...]:
    records = await parts.journal.load(record.id)
    decisions: dict[str, Any] = {}
    for pause_id, answer in answers.items():
        found = records.get(call_id_of(str(pause_id)))
        if found is None or found.ask is None or not found.made:  # nor one that nobody waits for any more
            known = ", ".join(repr(pause_id_of(entry.id)) for entry in records.values() if entry.open) or "none"
            raise UnknownPause(
                f"{str(pause_id)[:200]!r} is no pause of turn {record.id!r}", remedy=f"the open pauses are: {known}"
            )
        if not found.open:
            raise _answered(pause_id)
        if found.late(parts.clock.now()):
            raise AnswerInvalid(
                f"the answer to the pause {pause_id!r} comes after its end",
                remedy="go on without an answer to it; it fails with PauseExpired",
            )
        if found.id in decisions:  # under its present id and under the path id that 0.1.0 used
            raise InvalidArgument(f"the pause {pause_id!r} is answered twice", remedy="answer each pause once")
        decisions[found.id] = decision_of(pause_of(found), answer, account)
    for call_id in await parts.journal.answer(record.id, decisions):
        raise _answered(pause_id_of(call_id))
    return tuple(map(pause_id_of, decisions))


def _answered(pause_id: str) -> AlreadyAnswered:
    return AlreadyAnswered(
        f"the pause {pause_id!r} is answered already", remedy="resume the turn without an answer to it"
    )
