"""Turns that can never resume, because what they began with has changed (D15, A13).

A turn that a person began waits until the old declaration is back, or is cancelled. One that a message, an event or a
schedule began would hold up all that comes after it, and nobody looks at it. So gateways and
schedulers look for one that cannot resume, tell people, and continue: the turn is ended when the next one of its thread
begins, or after the setting `graph_changed_grace`. Until then it resumes if the old declaration is back.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from traceback import clear_frames
from typing import Final

from ...core import Scope
from ...core.errors import GraphChanged, ThreadBusy, WorldAgentError
from ...memory import OPEN, TurnRecord, thread_key
from ...storage import Lease
from ..threads import end_left
from .resume import opening
from .versions import at_least
from .work import RunnerParts

_LOG: Final = logging.getLogger("worldagent.turns")


@dataclass(frozen=True, slots=True)
class Stale:
    """A turn that waits, or was interrupted, and that this process can never resume.

    Attributes:
        turn: The turn.
        error: Why not.
        may_end: Whether this process can end it. A newer version wrote it otherwise, and may be able to resume it.
    """

    turn: TurnRecord
    error: GraphChanged
    may_end: bool


async def find_stale(parts: RunnerParts, scope: Scope) -> Stale | None:
    """Find out whether the newest turn of a thread waits and can never resume.

    None if it can, is over, runs, or was begun by a person, who is told by the error of `resume`. Errors that pass,
    such as of a server that is down, and those about roles say nothing about it.

    Args:
        parts: What the agent works with.
        scope: The thread.
    """
    record = await parts.stores.turns.latest(thread_key(scope))
    if record is None or record.status not in OPEN or record.given_up or record.unattended is None:
        return None
    if record.status == "running" and await parts.stores.leases.owned([record.thread]):
        return None
    return await _checked(parts, record)


async def _checked(parts: RunnerParts, record: TurnRecord) -> Stale | None:
    try:
        await opening(parts, record)
        parts.engine.check_graph(record.graph, record.kind)
        await parts.engine.check_work(record.id, record.thread, record.scope.account)
    except GraphChanged as error:
        clear_frames(error.__traceback__)
        found = Stale(record, error, at_least(record.version))
    except WorldAgentError:
        return None
    else:
        return None
    if not found.may_end:
        _LOG.warning("the turn %r is left to the version %s, which wrote it", record.id, record.version)
    return found


async def to_give_up(parts: RunnerParts, record: TurnRecord) -> bool:
    """Whether new input ends a turn that waits: it was noted as one that cannot resume, and that is still so."""
    found = None if record.stale is None else await _checked(parts, record)
    return found is not None and found.may_end


async def give_up(parts: RunnerParts, record: TurnRecord, lease: Lease) -> None:
    """End a turn that can never resume with its error, and withdraw what it asks."""
    if await end_left(parts.stores, record, "failed", lease=lease, code=GraphChanged.code):
        parts.unread(record.scope)


async def end_stale(parts: RunnerParts, workspace: str) -> None:
    """End the turns that were noted as such before the setting `graph_changed_grace`, and still cannot resume.

    Args:
        parts: What the agent works with.
        workspace: Whose turns.
    """
    before = parts.stores.clock.now() - timedelta(seconds=parts.settings.graph_changed_grace)
    for record in await parts.stores.turns.stale(workspace, before=before):
        if not await to_give_up(parts, record):
            continue
        with suppress(ThreadBusy):  # another process resumes or ends it
            async with parts.stores.leases.hold(record.thread, wait=0) as lease:
                latest = await parts.stores.turns.latest(record.thread)
                if latest is not None and (latest.id, latest.status, latest.stale) == (
                    record.id,
                    record.status,
                    record.stale,
                ):
                    await give_up(parts, latest, lease)


__all__ = ["Stale", "end_stale", "find_stale", "give_up", "to_give_up"]
