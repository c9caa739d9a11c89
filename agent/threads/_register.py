"""The threads of a workspace over the stores that know of them: turns, calls, owners, events."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import merge
from typing import Final, Literal, get_args

from ...core import Scope, Tier
from ...core.errors import InvalidArgument, ThreadBusy
from ...core.pauses import Pause, pause_id_of
from ...harness.journal import Journal, pause_of
from ...memory import OPEN, TurnRecord, TurnRegister, TurnStatus, thread_key
from ...memory.branches import Branch, Branches
from ...memory.events import EventLog
from ...storage import Leases
from ._state import ThreadState, ThreadStatus

_MOST: Final = 1000
_LET_GO: Final = 1.0  # seconds that an owner may take to let go of a thread whose turn has come to its end
_KNOWN: Final[tuple[ThreadStatus, ...]] = (*get_args(TurnStatus), "cut_off", "forked")


class ThreadRegister:
    """Where threads stand.

    Args:
        turns: What became of their turns.
        journal: What the turns called, and whom they ask.
        leases: Who owns them.
        branches: Which of them were branched off.
        events: Whose events are kept.
    """

    def __init__(
        self, turns: TurnRegister, journal: Journal, leases: Leases, branches: Branches, events: EventLog
    ) -> None:
        self._turns = turns
        self._journal = journal
        self._leases = leases
        self._branches = branches
        self._events = events

    async def list(
        self, workspace: str, *, limit: int = 100, status: ThreadStatus | None = None
    ) -> tuple[ThreadState, ...]:
        """Where the threads of a workspace stand, the newest turn first. Five reads of the database, however many.

        Args:
            workspace: The workspace.
            limit: How many, 1 to 1000.
            status: Only those that stand so.

        Raises:
            InvalidArgument: `limit` is out of bounds, or there is no such status.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _MOST:
            raise InvalidArgument(f"limit {limit!r} is out of bounds", remedy=f"give limit 1 to {_MOST}")
        if status is not None and status not in _KNOWN:
            raise InvalidArgument(f"status {str(status)[:40]!r} is unknown", remedy=f"use one of {', '.join(_KNOWN)}")
        forks: list[ThreadState] = []
        if status in (None, "forked"):
            forks = [_forked(branch) for branch in await self._branches.of_workspace(workspace, limit=limit)]
        if status == "forked":
            return tuple(forks)
        kept: TurnStatus | None = "running" if status == "cut_off" else status
        # Which of the running ones have an owner is known only when each is looked at, so all of them are.
        most = _MOST if kept == "running" else limit
        records = await self._turns.threads(workspace, limit=most, status=kept)
        found = [state for state in await self._states(records) if status in (None, state.status)]
        if forks:
            began = {record.id: record.began for record in records}
            found = list(merge(found, forks, key=lambda state: began.get(state.turn_id, state.since), reverse=True))
        return tuple(found[:limit])

    async def running(self) -> tuple[tuple[str, ThreadState], ...]:
        """The turns of all workspaces that run or were cut off, each with its workspace; newest first, 1000 at most.

        It reads all turns of the database: for people, and not for what is done with each turn.
        """
        records = await self._turns.running(limit=_MOST)
        found = zip(records, await self._states(records), strict=True)
        return tuple(
            (record.scope.workspace, state) for record, state in found if state.status in ("running", "cut_off")
        )

    async def find(self, scope: Scope) -> ThreadState | None:
        """Where one thread stands; None where there is no such thread."""
        record = await self._turns.latest(thread_key(scope))
        if record is not None:
            return (await self._states([record]))[0]
        branch = await self._branches.get(thread_key(scope))
        return None if branch is None else _forked(branch)

    async def of_turn(self, workspace: str, turn_id: str) -> ThreadState | None:
        """Where one turn stands, its thread's newest or not; None where the workspace has none of this id."""
        record = await self._turns.get(turn_id)
        if record is None or record.scope.workspace != workspace:
            return None
        return (await self._states([record]))[0]

    async def pauses(self, scope: Scope) -> tuple[Pause, ...]:
        """The pauses of a thread's turn, oldest first, with those that are answered and that no run has taken up."""
        record = await self._turns.latest(thread_key(scope))
        if record is None or record.status not in OPEN:
            return ()
        found = [entry for entry in (await self._journal.load(record.id)).values() if entry.open or entry.answered]
        return tuple(pause_of(entry) for entry in sorted(found, key=lambda entry: (entry.at, entry.id)))

    async def answered(self, scope: Scope) -> frozenset[str]:
        """The ids of the pauses of a thread's turn that somebody has answered."""
        record = await self._turns.latest(thread_key(scope))
        found = {} if record is None else await self._journal.load(record.id)
        return frozenset(pause_id_of(entry.id) for entry in found.values() if entry.settled)

    async def ask_to_cancel(self, scope: Scope) -> str | None:
        """Ask for the end of a thread's turn, whatever process runs it; gives the turn's id, None where there is none.

        Its owner ends it. `end_waiting` ends one that nobody runs.
        """
        record = await self._turns.latest(thread_key(scope))
        if record is None or not await self._turns.ask_to_cancel(record.id):
            return None
        return record.id

    async def end_waiting(self, scope: Scope, turn_id: str) -> None:
        """End a turn that nobody runs; one that runs ends itself, since it was asked to."""
        key = thread_key(scope)
        found = await self._turns.latest(key)
        # Who has just written that it waits still owns it for a moment, and does not look for its end any more.
        wait = 0.0 if found is None or found.status == "running" else _LET_GO
        try:
            async with self._leases.hold(key, wait=wait) as lease:
                latest = await self._turns.latest(key)
                if latest is not None and latest.id == turn_id and latest.status in OPEN:
                    await self._turns.end(latest, "cancelled", lease=lease)
                    await self._journal.withdraw(turn_id)
        except ThreadBusy:
            return

    async def _states(self, records: Sequence[TurnRecord]) -> tuple[ThreadState, ...]:
        asked = await self._journal.asked([record.id for record in records if record.status in OPEN])
        running = [record for record in records if record.status == "running"]
        recorded = await self._events.recorded([record.id for record in records])
        owned = await self._leases.owned(record.thread for record in running)
        unowned = [record for record in running if record.thread not in owned]
        # A turn may have ended since it was read, and its owner have let go.
        now = await self._turns.again(unowned)
        return tuple(
            _state(now.get(item.id, item), asked.get(item.id, (0, 0)), item.id in now, item.id in recorded)
            for item in records
        )


def _forked(branch: Branch) -> ThreadState:
    return ThreadState(thread=branch.name, status="forked", since=branch.at)


def _state(record: TurnRecord, asked: tuple[int, int], unowned: bool, recorded: bool) -> ThreadState:
    pauses, answers = asked
    return ThreadState(
        thread=record.scope.thread or "",
        account=record.scope.account,
        channel=record.scope.channel,
        turn_id=record.id,
        kind=record.kind,
        status="cut_off" if unowned and record.status == "running" else record.status,
        since=record.changed,
        pauses=pauses,
        answers=answers,
        recorded=recorded,
        needs=_needs(record),
        unattended=record.unattended,
    )


def _needs(record: TurnRecord) -> tuple[Literal["role", "skill"], ...]:
    """What a caller must bring again to resume a turn."""
    if record.status not in OPEN:
        return ()
    role: tuple[Literal["role"], ...] = ("role",) if Tier.CALL.value in record.role.get("tiers", ()) else ()
    return (*role, "skill") if record.kind == "skill" else role
