"""The threads of a workspace, joined from the stores of turns, calls, leases and events."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal, Self, get_args

from pydantic_core import to_jsonable_python

from ...core import Scope, Tier, check_id, utc_text
from ...core.errors import InvalidArgument, ThreadBusy
from ...core.events import TurnKind
from ...core.pauses import Pause, UnattendedMode, pause_id_of
from ...core.validation import check_integer, check_line, is_text
from ...harness.journal import pause_of
from ...memory import OPEN, TurnRecord, TurnStatus, thread_key
from ...memory.branches import Branch
from ...memory.titles import MAX_TITLE_CHARACTERS, ThreadSearch, check_query
from ..stores import Stores
from .ending import end_left

ThreadStatus = TurnStatus | Literal["cut_off", "forked"]
"""The status of a thread's newest turn. `cut_off` was interrupted with its process; `forked` has had no turn yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadState:
    """The state of a thread and its newest turn.

    Attributes:
        thread: The thread's id within its workspace.
        title: The title that `thread.rename` set, else the first words of the first message, 60 characters at most;
            None if the thread has no message.
        account: The account that the turn runs for.
        channel: The channel that the turn runs in.
        turn_id: The turn; empty if none has run on the thread since it was forked.
        kind: The surface that the turn came from; None without a turn.
        status: `paused` waits for a person. `stopped`, `failed` and `cut_off` can be resumed, as `paused` can.
            `running` has an owner. `done`, `cancelled` and `abandoned` are over. `forked` has no turn yet.
        since: When the status was written.
        pauses: How many pauses wait for a person.
        answers: How many answers no run has taken up yet.
        recorded: Whether the turn's events are stored: it was begun with `detach` or with a key, or was resumed with
            `detach`.
        needs: What must be passed to `resume()` again, since it is not stored: `role` for a turn that began with a call
            role, `skill` for one that runs a skill. Empty for a turn that cannot be resumed.
        unattended: What the turn does if a person would be asked; None asks them.
        role_tiers: The tiers whose roles reached a model.
        page_key: The position of the thread in a listing: `agent.threads(before=state.page_key)` gives the next page.
        archived: Whether the thread is archived.
        speaker: The member that speaks from the next turn on; None is the World Agent (A21).
    """

    thread: str
    title: str | None = None
    account: str | None = None
    channel: str | None = None
    turn_id: str = ""
    kind: TurnKind | None = None
    status: ThreadStatus
    since: datetime
    pauses: int = 0
    answers: int = 0
    recorded: bool = False
    needs: tuple[Literal["role", "skill"], ...] = ()
    unattended: UnattendedMode | None = None
    page_key: str = ""
    archived: bool = False
    speaker: str | None = None
    role_tiers: tuple[Tier, ...] = ()

    @property
    def resumable(self) -> bool:
        """Whether `resume()` can continue the turn."""
        return self.status in ("paused", "stopped", "failed", "cut_off")

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON, with the fields that the sidecar uses."""
        found = to_jsonable_python(self, exclude={"recorded", "needs", "role_tiers", "unattended"})
        return {**found, "turn_id": self.turn_id or None, "resumable": self.resumable}


MAX_THREADS: Final = 1000
_KNOWN: Final[tuple[ThreadStatus, ...]] = (*get_args(TurnStatus), "cut_off", "forked")
AFTER_ALL_KEYS: Final = "\x7f"  # sorts after every thread key


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """The position of a thread in a listing, which has the newest first.

    Attributes:
        at: When its newest turn began, or when it was forked.
        has_turn: Whether a turn has run on it; of two threads with the same time, the one with a turn comes first.
        id: The id of the turn, or the key of a thread without a turn.
    """

    at: datetime
    has_turn: bool
    id: str

    @classmethod
    def parse(cls, given: object) -> Self:
        """Return the position that a page key names. A time is the position before all threads that began then.

        Raises:
            InvalidArgument: `given` is neither.
        """
        if isinstance(given, datetime) and given.tzinfo is not None:
            with suppress(OverflowError):
                return cls(given.astimezone(UTC), False, "")
        elif isinstance(given, str):
            time, slash, name = given.partition("/")
            with suppress(ValueError, OverflowError):
                at = datetime.fromisoformat(time)
                if slash and name and at.tzinfo is not None:
                    return cls(at.astimezone(UTC), "/" not in name, name)
        raise InvalidArgument(
            "`before` must be a page key or a time with a time zone",
            remedy="pass the page_key of the last thread that you have, or a datetime with a tzinfo",
        )

    def __str__(self) -> str:
        return f"{utc_text(self.at)}/{self.id}"

    @property
    def for_turns(self) -> tuple[datetime, str]:
        """The bound for the turns after this position."""
        return self.at, self.id if self.has_turn else ""

    @property
    def for_branches(self) -> tuple[datetime, str]:
        """The bound for the threads without a turn after this position."""
        return self.at, AFTER_ALL_KEYS if self.has_turn else self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadFilters:
    """The filters of a listing; see `ThreadRegister.list`."""

    limit: int
    status: ThreadStatus | None
    account: str | None
    channel: str | None
    query: str | None
    archived: bool | None
    prefixes: tuple[str, ...]
    before: Place | None

    @classmethod
    def of(
        cls,
        *,
        limit: int = 100,
        status: object = None,
        account: str | None = None,
        channel: str | None = None,
        query: str | None = None,
        archived: bool | None = False,
        prefixes: Collection[str] | None = None,
        before: datetime | str | None = None,
    ) -> Self:
        """Validate the arguments of a listing.

        Raises:
            InvalidArgument: One of them is invalid.
        """
        check_integer("limit", limit, MAX_THREADS, remedy=f"pass limit= 1 to {MAX_THREADS}")
        known: ThreadStatus | None = next((each for each in _KNOWN if each == status), None)
        if status is not None and known is None:
            raise InvalidArgument(f"status {str(status)[:40]!r} is unknown", remedy=f"use one of {', '.join(_KNOWN)}")
        return cls(
            limit=limit,
            status=known,
            account=None if account is None else check_id("account", account),
            channel=None if channel is None else check_id("channel", channel),
            query=None if query is None else check_query(query),
            archived=_flag(archived),
            prefixes=("",) if prefixes is None else _prefixes(prefixes),
            before=None if before is None else Place.parse(before),
        )

    @property
    def filtered_after_read(self) -> bool:
        """Whether some threads are filtered out after they were read."""
        return self.query is not None or self.account is not None or self.status in ("running", "cut_off")

    @property
    def of_turns(self) -> TurnStatus | None:
        """The status of the turns to read. Which running ones were interrupted shows only after each is read."""
        match self.status:
            case "cut_off":
                return "running"
            case "forked":
                raise AssertionError("a forked thread has no turn")
            case status:
                return status


def _prefixes(given: Collection[str]) -> tuple[str, ...]:
    """Return prefixes of which none begins with another."""
    if isinstance(given, str) or not all(one == "" or is_text(one) for one in given):
        raise InvalidArgument(
            "`prefixes` must be a list of the first characters of ids", remedy="pass ['ana:'] for one"
        )
    found: list[str] = []
    for one in sorted(given):
        if not any(one.startswith(prefix) for prefix in found):
            found.append(one)
    return tuple(found)


def _flag(archived: object) -> bool | None:
    if archived is not None and not isinstance(archived, bool):
        raise InvalidArgument("`archived` must be a bool or None", remedy="pass None for both kinds of threads")
    return archived


MAX_SEARCHED_THREADS: Final = 1000
"""The threads of one status that are searched for pauses."""
_WITH_PAUSES: Final[tuple[ThreadStatus, ...]] = ("paused", "running", "stopped", "failed", "cut_off")
MAX_RUNNING_TURNS: Final = 1000
TITLE_REMEDY: Final = "shorten it, or pass None to use the first words said"
FILTERED_PAGE_THREADS: Final = 50  # threads of a page that is filtered after it was read
RELEASE_WAIT_SECONDS: Final = 1.0  # seconds that an owner can take to release a thread after its turn has ended


class ThreadRegister:
    """The state of threads.

    Args:
        stores: The stores of the database.
    """

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._search = ThreadSearch(stores.database)

    async def list(self, workspace: str, wanted: ThreadFilters) -> tuple[ThreadState, ...]:
        """Return the state of a workspace's threads; the thread with the newest turn comes first.

        The number of reads does not grow with the threads of a page. If threads are filtered out after they were read,
        for example by the search text, further pages are read until there are enough.

        Args:
            workspace: The workspace.
            wanted: The filters and the limit.
        """
        found: list[ThreadState] = []
        before = wanted.before
        size = max(wanted.limit, FILTERED_PAGE_THREADS) if wanted.filtered_after_read else wanted.limit
        if wanted.query is not None:
            size = FILTERED_PAGE_THREADS  # so that other database work does not wait long
        while len(found) < wanted.limit:
            page = await self._page(workspace, wanted, before, size)
            found += await self._matching(wanted, page)
            if len(page) < size:
                break
            before = _place(page[-1])
        return tuple(found[: wanted.limit])

    async def with_pauses(self, workspace: str) -> tuple[Sequence[ThreadState], Sequence[ThreadStatus]]:
        """The threads of a workspace whose turns can wait for a person.

        Returns:
            Their states, and the statuses of which only the newest `MAX_SEARCHED_THREADS` threads were searched.
        """
        found: dict[str, ThreadState] = {}  # a thread can change its status in between
        cut: dict[ThreadStatus, None] = {}
        for status in _WITH_PAUSES:
            wanted = ThreadFilters.of(limit=MAX_SEARCHED_THREADS, status=status, archived=None)
            listed = await self.list(workspace, wanted)
            found |= {state.thread: state for state in listed}
            if len(listed) == MAX_SEARCHED_THREADS:
                cut[status] = None
        return [*found.values()], [*cut]

    async def running(self) -> tuple[tuple[str, ThreadState], ...]:
        """Return the running and interrupted turns of all workspaces, with these; newest first, at most 1000.

        This reads all turns of the database. Use it to show them to people, not during each turn.
        """
        records = await self._stores.turns.running(limit=MAX_RUNNING_TURNS)
        found = zip(records, await self._states(records), strict=True)
        return tuple(
            (record.scope.workspace, state) for record, state in found if state.status in ("running", "cut_off")
        )

    async def rename(self, scope: Scope, title: str | None) -> str | None:
        """Set the title of a thread and return its title now; None restores the first words of the first message.

        Raises:
            InvalidArgument: `title` is invalid, or the thread does not exist.
        """
        key = thread_key(scope)
        if title is not None:
            check_line("title", title, MAX_TITLE_CHARACTERS, remedy=TITLE_REMEDY)
        if not await self._stores.titles.rename(key, title):
            raise InvalidArgument(f"thread {scope.thread!r} does not exist yet", remedy="send a message on it first")
        return (await self._stores.titles.of([key])).get(key)

    async def archive(self, scope: Scope, archived: bool) -> None:
        """Hide a thread in lists until its next turn, or show it again.

        Raises:
            InvalidArgument: The thread has no turn, or `archived` is not a bool.
        """
        if not isinstance(archived, bool):
            raise InvalidArgument("`archived` must be a bool", remedy="pass True or False")
        if not await self._stores.turns.archive(thread_key(scope), archived):
            raise InvalidArgument(f"thread {scope.thread!r} has no turn yet", remedy="send a message on it first")

    async def find(self, scope: Scope) -> ThreadState | None:
        """Return the state of one thread; None if it does not exist."""
        record = await self._stores.turns.latest(thread_key(scope))
        if record is not None:
            return (await self._states([record]))[0]
        branch = await self._stores.branches.get(thread_key(scope))
        if branch is None:
            return None
        return _forked(branch, (await self._stores.titles.of([branch.thread])).get(branch.thread))

    async def of_turn(self, workspace: str, turn_id: str) -> ThreadState | None:
        """Return the state of one turn, its thread's newest or not; None if the workspace does not have it."""
        record = await self._stores.turns.get(turn_id)
        if record is None or record.scope.workspace != workspace:
            return None
        return (await self._states([record]))[0]

    async def pauses(self, scope: Scope) -> tuple[Pause, ...]:
        """Return the pauses of a thread's turn, oldest first, including answered ones that no run has taken up yet."""
        record = await self._stores.turns.latest(thread_key(scope))
        if record is None or record.status not in OPEN:
            return ()
        calls = await self._stores.journal.load(record.id)
        found = [entry for entry in calls.values() if entry.open or entry.answered]
        return tuple(pause_of(entry) for entry in sorted(found, key=lambda entry: (entry.at, entry.id)))

    async def answered(self, scope: Scope) -> frozenset[str]:
        """Return the ids of the pauses of a thread's turn that have an answer."""
        record = await self._stores.turns.latest(thread_key(scope))
        found = {} if record is None else await self._stores.journal.load(record.id)
        return frozenset(pause_id_of(entry.id) for entry in found.values() if entry.settled)

    async def cancel(
        self, scope: Scope, here: Callable[[str], object] = lambda turn_id: None, *, only: str | None = None
    ) -> bool:
        """Cancel a thread's turn, whatever process runs it or while it waits, and end its work in the background.

        That work reports nothing any more.

        Args:
            scope: The thread.
            here: Is called with the turn's id, and cancels it if this process runs it.
            only: The id of the turn to cancel, without its thread's work; None cancels whatever turn the thread has.

        Returns:
            False if there is nothing to cancel.
        """
        stores = self._stores
        record = await stores.turns.latest(thread_key(scope))
        if only is not None and (record is None or only != record.id):
            return False
        asked = record is not None and await stores.turns.ask_to_cancel(record.id)
        if asked and record is not None:
            here(record.id)
            await self.end_waiting(scope, record.id)
        if only is None and await stores.background.of(scope):
            for task in await stores.background.silence(scope):
                asked = await self.cancel(task, here) or asked
        return asked

    async def end_waiting(self, scope: Scope, turn_id: str) -> None:
        """End a turn that no process runs; a running one ends itself because of the request."""
        key = thread_key(scope)
        found = await self._stores.turns.latest(key)
        # A process that has just recorded the pause still owns the thread for a moment and does not poll any more.
        wait = 0.0 if found is None or found.status == "running" else RELEASE_WAIT_SECONDS
        try:
            async with self._stores.leases.hold(key, wait=wait) as lease:
                latest = await self._stores.turns.latest(key)
                if latest is not None and latest.id == turn_id and latest.status in OPEN:
                    await end_left(self._stores, latest, "cancelled", lease=lease)
        except ThreadBusy:
            return

    async def _page(self, workspace: str, wanted: ThreadFilters, before: Place | None, size: int) -> Sequence[_Listed]:
        """Read the next threads of a workspace; some of them may be filtered out later."""
        page: list[_Listed] = []
        for prefix in wanted.prefixes:
            if wanted.status != "forked":
                page += await self._stores.turns.threads(
                    workspace,
                    limit=size,
                    status=wanted.of_turns,
                    channel=wanted.channel,
                    account=wanted.account,
                    archived=wanted.archived,
                    prefix=prefix,
                    before=None if before is None else before.for_turns,
                )
            if wanted.status in (None, "forked") and wanted.channel is None and not wanted.archived:
                bound = None if before is None else before.for_branches
                page += await self._stores.branches.of_workspace(workspace, limit=size, prefix=prefix, before=bound)
        return sorted(page, key=_place, reverse=True)[:size]

    async def _matching(self, wanted: ThreadFilters, page: Sequence[_Listed]) -> Sequence[ThreadState]:
        titles = await self._stores.titles.of([row.thread for row in page])
        if wanted.account is not None:
            spoken = await self._search.speaking(_heads(page), wanted.account)
            page = [row for row in page if isinstance(row, TurnRecord) or row.thread in spoken]
        if wanted.query is not None:
            said = await self._matching_text(wanted.query, page, titles)
            page = [row for row in page if row.thread in said]
        states = iter(await self._states([row for row in page if isinstance(row, TurnRecord)], titles))
        found = [_forked(row, titles.get(row.thread)) if isinstance(row, Branch) else next(states) for row in page]
        return [state for state in found if wanted.status in (None, state.status)]

    async def _matching_text(self, query: str, page: Sequence[_Listed], titles: Mapping[str, str]) -> set[str]:
        """Return the threads of a page whose title or conversation contains the text."""
        said = {key for key, title in titles.items() if query.lower() in title.lower()}
        left = [row for row in page if row.thread not in said]
        heads = await self._search.heads([row.id for row in left if isinstance(row, TurnRecord)])
        return said | await self._search.saying(heads | _heads(left), query)

    async def _states(
        self, records: Sequence[TurnRecord], titles: Mapping[str, str] | None = None
    ) -> tuple[ThreadState, ...]:
        if titles is None:
            titles = await self._stores.titles.of({record.thread for record in records})
        asked = await self._stores.journal.asked([record.id for record in records if record.status in OPEN])
        running = [record for record in records if record.status == "running"]
        recorded = await self._stores.events.recorded([record.id for record in records])
        owned = await self._stores.leases.owned(record.thread for record in running)
        unowned = [record for record in running if record.thread not in owned]
        # A turn may have ended, and its owner may have released the thread, since it was read.
        now = await self._stores.turns.again(unowned)
        states = (
            _state(now.get(item.id, item), asked.get(item.id, (0, 0)), item.id in now, item.id in recorded)
            for item in records
        )
        return tuple(replace(state, title=titles.get(item.thread)) for item, state in zip(records, states, strict=True))


_Listed = TurnRecord | Branch
"""A thread of a listing: its newest turn, or its branch if it has no turn."""


def _place(row: _Listed) -> Place:
    return Place(row.began, True, row.id) if isinstance(row, TurnRecord) else Place(row.at, False, row.thread)


def _heads(page: Sequence[_Listed]) -> dict[str, str]:
    """The messages that the threads without a turn continue from, by the keys of the threads."""
    return {row.thread: row.head for row in page if isinstance(row, Branch) and row.head is not None}


def _forked(branch: Branch, title: str | None) -> ThreadState:
    page_key = str(_place(branch))
    speaker = None if branch.handed is None else branch.handed.member
    return ThreadState(
        thread=branch.name, title=title, status="forked", since=branch.at, page_key=page_key, speaker=speaker
    )


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
        page_key=str(_place(record)),
        pauses=pauses,
        answers=answers,
        recorded=recorded,
        needs=_needs(record),
        role_tiers=record.sent_tiers,
        unattended=record.unattended,
        archived=record.archived,
        speaker=None if record.handed is None else record.handed.member,
    )


def _needs(record: TurnRecord) -> tuple[Literal["role", "skill"], ...]:
    """Return what a caller must pass again to resume a turn."""
    if record.status not in OPEN:
        return ()
    role: tuple[Literal["role"], ...] = ("role",) if Tier.CALL.value in record.role.get("tiers", ()) else ()
    return role if record.prompt is None else (*role, "skill")  # a package is found by its name
