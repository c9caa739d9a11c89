"""Distilling: a model notes what later conversations should know of a thread that is quiet (M1); and what expires.

Each account's part of a thread is read alone, so nothing that one account said becomes an entry of another. The notes
and the mark of how far the thread is read are one transaction: a process that dies in between writes neither.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from ..core import Emitter, Scope, new_id
from ..core.errors import InvalidArgument, ThreadBusy, WorldAgentError
from ..core.events import TurnEnded, TurnStarted
from ..memory import MAY_HOLD_ROLE, Message, thread_key
from ..memory.entries import Draft, Entries, Entry, Reader, Source, as_passages
from ..memory.entries.entry import MAX_ENTRY_CHARACTERS, class_of
from ..memory.upkeep import chain_of
from .roles import THREAD_ROLE

if TYPE_CHECKING:
    from .runtime import RunnerParts

_MAX_TURNS: Final = 100  # that are read at once; later ones follow
_MAX_MESSAGES: Final = 200  # of one turn
_MAX_CHARACTERS: Final = 40_000  # of what a model reads at once; the newest count
_MAX_NOTES: Final = 20
_KNOWN: Final = 20  # entries of the account that a model is shown, so that it can replace them
_POLL_SECONDS: Final = 60.0
_SWEEP_SECONDS: Final = 600.0  # an expired entry can cost a rewrite of SQLite's file, so they go together
_THREADS: Final = 20  # quiet threads that one look takes up


async def distil(parts: RunnerParts, workspace: str, thread_id: str) -> tuple[Entry, ...]:
    """Note what later conversations should know of the turns of a thread that were not read yet.

    Args:
        parts: The parts of the agent.
        workspace: Its workspace.
        thread_id: The thread.

    Returns:
        The new entries; none if nothing is worth it, nothing is new, or another process was faster.

    Raises:
        InvalidArgument: The agent's memory is a store of the host's, which distils itself. Or the thread has no turn.
        ThreadBusy: A turn of the thread runs.
        HostError: The model failed. What it noted of earlier turns is kept.
    """
    entries = _entries_of(parts)
    key = thread_key(Scope(workspace=workspace, thread=thread_id))
    latest = await parts.stores.turns.latest(key)
    if latest is None:
        raise InvalidArgument(f"thread {thread_id!r} has no turn yet", remedy="send a message on it first")
    if latest.status == "running":
        raise ThreadBusy(f"a turn of the thread {thread_id!r} runs", remedy="distil it once the turn is over")
    found: tuple[Entry, ...] = ()
    while True:
        before, turns = await entries.undistilled(key, limit=_MAX_TURNS)
        if not turns:
            return found
        made: list[tuple[Draft, str | None]] = []
        for account, own in groupby(sorted(turns, key=lambda turn: turn[1] or ""), key=lambda turn: turn[1]):
            if account is not None:  # an entry needs an account
                made += await _notes(parts, workspace, thread_id, account, [turn for turn, _ in own])
        found += await entries.distilled(workspace, key, made, before=before, after=turns[-1][0])


async def _notes(
    parts: RunnerParts, workspace: str, thread_id: str, account: str, turns: Sequence[str]
) -> list[tuple[Draft, str | None]]:
    """The entries that a model makes of one account's turns, each with the id of the entry that it replaces."""
    from ..graphs.history import said_by, untrusted_in  # these load langgraph and dspy
    from ..signatures.summaries import DISTIL

    scope = Scope(workspace=workspace, account=account, thread=thread_id)
    messages = await _messages(parts, scope, turns)
    here = await _conversation(parts, thread_key(scope))
    # In this order: what an edit replaced can say that a message of the conversation became a role.
    read = [message for message in _without_roles(messages, parts.settings.echo) if message.id in here]
    said = "\n\n".join(text for text in map(said_by, read) if text is not None)[-_MAX_CHARACTERS:]
    if not said:
        return []
    untrusted = untrusted_in(messages)
    found = await _entries_of(parts).search(Reader(workspace=workspace, account=account), said, limit=_KNOWN)
    # An entry with other marks is not shown: a note could repeat it without them (M5).
    known = {entry.id: entry for entry, _ in found if entry.account == account and untrusted.issuperset(entry.marks)}
    # What was made of untrusted content replaces nothing that was not.
    replaceable = {entry.id for entry in known.values() if entry.untrusted or not untrusted}
    fields = await ask_model(parts, scope, DISTIL, {"known": as_passages([*known.values()]), "conversation": said})
    return [
        (
            Draft(
                text=note.text.strip(),
                account=account,
                source=Source(by="distilled", thread=thread_id, turn=turns[-1]),
                untrusted=tuple(sorted(untrusted)),
                classification=class_of(untrusted),
            ),
            note.replaces if note.replaces in replaceable else None,
        )
        for note in fields["notes"][:_MAX_NOTES]
        if note.text.strip() and len(note.text.strip()) <= MAX_ENTRY_CHARACTERS and "\0" not in note.text
    ]


async def _messages(parts: RunnerParts, scope: Scope, turns: Sequence[str]) -> list[Message]:
    found, key = list[Message](), thread_key(scope)
    for turn in turns:
        page = await parts.stores.log.of_turn(key, turn, limit=_MAX_MESSAGES)
        found += [message for message in page if message.turn_id == turn]
    return found


async def _conversation(parts: RunnerParts, key: str) -> frozenset[str]:
    """The ids of a thread's messages, without those that an edit replaced."""
    head = (await parts.stores.position(key)).head
    if head is None:
        return frozenset()
    return frozenset(await parts.stores.database.read(lambda tx: chain_of(tx, head)[0]))


def _without_roles(messages: Sequence[Message], echo: str) -> list[Message]:
    """The messages without those that can have the text of a role: it never becomes an entry (R7, R10)."""
    roles = {_made_role(message.body) for message in messages}
    said = ("message", "word", "schedule")
    kinds = said if echo == "allow" else (*said, "answer", "result")
    return [
        message
        for message in messages
        if message.id not in roles and message.kind in kinds and not message.body.get(MAY_HOLD_ROLE)
    ]


def _made_role(body: Mapping[str, Any]) -> str | None:
    """The id of the message that became the role of the thread by this result, if it is one (R10)."""
    result = body.get("result") if body.get("to") == THREAD_ROLE else None
    return result.get("message_id") if isinstance(result, Mapping) else None


async def ask_model(
    parts: RunnerParts, scope: Scope, signature: Any, inputs: Mapping[str, Any], *, model: str | None = None
) -> Any:
    """Ask a model outside of any turn, without a role. It counts in the usage of the account, and has a trace.

    Args:
        parts: The parts of the agent.
        scope: The ids that it is asked under.
        signature: What is asked.
        inputs: Its input fields.
        model: The name of the model; None is the agent's.

    Raises:
        HostError, OutputInvalid: The model failed.
    """
    path, tap = new_id("distil"), parts.tracer.tap(scope)
    emit = Emitter(path, parts.stores.clock, tap, tap)
    use = await parts.usage.open(path, scope)
    emit(TurnStarted, thread=scope.thread or "", kind="call")
    status = "failed"
    try:
        fields = await parts.engine.ask(signature, inputs, path=path, scope=scope, emit=emit, use=use, model=model)
        status = "done"
        return fields
    finally:
        emit(TurnEnded, status=status)
        await use.close()


async def undistilled(parts: RunnerParts, workspace: str, quiet: float) -> tuple[str, ...]:
    """The ids of all threads that have been quiet for so many seconds and were not distilled since."""
    found, last = list[str](), ""
    before = parts.stores.clock.now().timestamp() - quiet
    while page := await _entries_of(parts).quiet(workspace, before, after=last, limit=_MAX_TURNS):
        found += [thread for thread, _ in page]
        last = page[-1][1]
    return tuple(found)


class MemoryUpkeep:
    """Deletes expired entries and distils the quiet threads of a workspace, in the background of an agent.

    Args:
        parts: The parts of the agent.
        workspace: Its workspace.
        quiet: After how many seconds without a turn a thread is distilled; None distils none.
    """

    def __init__(self, parts: RunnerParts, workspace: str, quiet: float | None) -> None:
        self._parts = parts
        self._workspace = workspace
        self._quiet = quiet
        self._failed: dict[str, str] = {}  # the newest turns of threads that could not be distilled, by their ids
        self._task = asyncio.ensure_future(self._run())

    async def aclose(self) -> None:
        """Stop. What is being distilled is dropped, and done again later."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        clock, swept = self._parts.stores.clock, float("-inf")
        period = _SWEEP_SECONDS if self._quiet is None else min(self._quiet, _POLL_SECONDS)
        while True:
            now = clock.now().timestamp()
            with contextlib.suppress(WorldAgentError):  # a database that is down is looked at again
                if now - swept >= _SWEEP_SECONDS:
                    swept = now
                    await _entries_of(self._parts).forget_expired()
                if self._quiet is not None:
                    await self._distil(now - self._quiet)
            await clock.sleep(period)

    async def _distil(self, before: float) -> None:
        """Distil some of the threads that have been quiet since a time."""
        tried, last = 0, ""
        while tried < _THREADS:
            page = await _entries_of(self._parts).quiet(self._workspace, before, after=last, limit=_THREADS)
            if not page:
                return
            for thread, last in page[: _THREADS - tried]:
                if self._failed.get(thread) == last:
                    continue
                tried += 1
                try:
                    await distil(self._parts, self._workspace, thread)
                except WorldAgentError:  # it has a trace; the thread is tried again after its next turn
                    self._failed[thread] = last


def _entries_of(parts: RunnerParts) -> Entries:
    recall = parts.engine.services.recall
    if recall is not None and isinstance(recall.source, Entries):
        return recall.source
    raise InvalidArgument(
        "only entries in the agent's database are distilled", remedy="let the store of the host distil, or omit source="
    )
