"""The calls about one thread or all threads of a workspace: arguments come in, records go out.

An open agent and the database of a home (`home`) both have the threads that these functions need, so a listing needs
no model. `turns` begins and resumes turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from ...agent.threads import ThreadState
from ...core.errors import NameTaken, ThreadBusy
from ...role_resolution import Role
from . import records
from .answers import pause_record
from .arguments import (
    ArchiveArguments,
    ExplainArguments,
    ForkArguments,
    HandOverArguments,
    HistoryArguments,
    RenameArguments,
    RoleArgument,
    RoleSetArguments,
    ThreadArguments,
    ThreadsArguments,
)
from .call import Call, Grant, Refused, check_thread, check_turn
from .next_steps import to_call
from .operation import Surface, operation
from .pauses import unanswered

if TYPE_CHECKING:
    from ...agent import Thread, WorldAgent
    from .home import OneThread, Workspace

MAX_STEM_CHARACTERS: Final = 180  # characters of a thread's id that a fork's id keeps, before its number
MAX_PAGE_THREADS: Final = 1000  # threads of a page that is searched for those that a caller reaches
OPEN: Final = ("running", "paused", "stopped", "cut_off")
"""The statuses of a turn that runs, waits or was interrupted."""


@operation("Cancel a turn", "Cancel the thread's turn, wherever it runs or waits.", effect="changes")
async def cancel(call: Call[ThreadArguments], workspace: Workspace) -> records.CancelAnswer:
    """Cancel a thread's turn.

    Raises:
        Refused: The turn belongs to another account.
    """
    thread = one_thread(call, workspace)
    state = await thread.state()
    if state is not None:
        check_turn(call.caller, state)
        call.facts.turn = state.turn_id or None
    return records.CancelAnswer(cancelled=await thread.cancel())


@operation(
    "Fork a thread",
    "Make a thread that continues from a message of this one, which stays as it is.",
    effect="adds",
    idempotent=False,
)
async def fork(call: Call[ForkArguments], workspace: Workspace) -> records.ForkAnswer:
    """Make a thread that continues from a message of another one.

    Raises:
        Refused: The caller does not reach the new thread's id.
        WorldAgentError: As for `Thread.fork`.
    """
    given, grant, thread = call.given, call.caller.grant, one_thread(call, workspace)
    stem = f"{given.thread[:MAX_STEM_CHARACTERS]}."
    to = None if given.to is None else grant.own_thread(given.to)
    if to is not None or grant.allows_threads_after(stem):
        if to is not None:
            check_thread(grant, to)
        made = await thread.fork(at=given.at, to=to)
        return records.ForkAnswer(thread=made.scope.thread or "")
    # The agent could make an id that the caller does not reach, so this makes the id and checks it first.
    for number in count(2):
        if not grant.allows_thread(f"{stem}{number}"):
            raise Refused(
                "forbidden",
                "the token does not reach the name that the new thread would get",
                remedy="set `to` to a name that the token reaches",
            )
        with suppress(NameTaken, ThreadBusy):
            made = await thread.fork(at=given.at, to=f"{stem}{number}")
            return records.ForkAnswer(thread=made.scope.thread or "")
    raise AssertionError("numbers do not end")


@operation("Rename a thread", "Set what a thread is called in lists; no model sees it.", effect="changes")
async def thread_rename(call: Call[RenameArguments], workspace: Workspace) -> records.RenameAnswer:
    """Set a thread's title."""
    return records.RenameAnswer(title=await one_thread(call, workspace).rename(call.given.title))


@operation(
    "Hand a thread over",
    "Let a member speak in a thread from the next turn on, within what both it and the conversation may do.",
    effect="changes",
)
async def thread_hand_over(call: Call[HandOverArguments], workspace: Workspace) -> records.HandedAnswer:
    """Let a member speak in a thread.

    Raises:
        Refused: The turn belongs to another account.
        WorldAgentError: As for `Thread.hand_over`.
    """
    thread, given = await _thread_of_caller(call, workspace), call.given
    await thread.hand_over(given.member, messages=given.messages)
    return records.HandedAnswer(speaker=given.member)


@operation("Hand a thread back", "Let the World Agent speak in a thread from the next turn on.", effect="changes")
async def thread_hand_back(call: Call[ThreadArguments], workspace: Workspace) -> records.HandedAnswer:
    """Let the World Agent speak in a thread again.

    Raises:
        Refused: The turn belongs to another account.
        WorldAgentError: As for `Thread.hand_back`.
    """
    await (await _thread_of_caller(call, workspace)).hand_back()
    return records.HandedAnswer(speaker=None)


async def _thread_of_caller(call: Call[Any], workspace: Workspace) -> OneThread:
    """A thread whose newest turn the caller may change.

    Raises:
        Refused: It belongs to another account.
    """
    thread = one_thread(call, workspace)
    if (state := await thread.state()) is not None:
        check_turn(call.caller, state)
    return thread


@operation(
    "Archive a thread",
    "Hide a thread in lists until its next turn, or show it again. Where the agent distils threads, an archived "
    "one is distilled soon.",
    effect="changes",
)
async def thread_archive(call: Call[ArchiveArguments], workspace: Workspace) -> records.ArchiveAnswer:
    """Hide a thread in lists until its next turn, or show it again."""
    await one_thread(call, workspace).archive(call.given.archived)
    return records.ArchiveAnswer(archived=call.given.archived)


@operation("List pauses", "The status of a thread, and what its turn waits for a person to say.")
async def pauses(call: Call[ThreadArguments], workspace: Workspace) -> records.PausesAnswer:
    """Return a thread's status and what its turn waits for."""
    thread = one_thread(call, workspace)
    state, found = await thread.state(), await thread.pauses()
    if state is None:
        return records.PausesAnswer(thread=call.given.thread)
    call.note_turn(state)
    return records.PausesAnswer(
        thread=state.thread,
        turn_id=state.turn_id or None,
        status=state.status,
        pauses=[pause_record(pause) for pause in found],
        next=to_call(call, state.status, state.turn_id, unanswered(found)),
    )


@operation("Read the history", "A page of the conversation, oldest first.")
async def history(call: Call[HistoryArguments], workspace: Workspace) -> records.HistoryAnswer:
    """Return a page of a thread's messages."""
    page = await one_thread(call, workspace).history(before=call.given.before, limit=call.given.limit)
    messages = [records.MessageRecord.model_validate(message.to_json()) for message in page]
    return records.HistoryAnswer(messages=messages)


@operation("List threads", "The status of the workspace's threads, the one with the newest turn first.")
async def threads(call: Call[ThreadsArguments], workspace: Workspace) -> records.ThreadsAnswer:
    """Return the threads that the caller reaches."""
    given = call.given
    reached = await reached_threads(
        call.caller.grant,
        workspace,
        limit=given.limit,
        status=given.status,
        account=given.of_account,
        channel=given.channel,
        query=given.query,
        archived=given.archived,
        before=given.before,
    )
    return records.ThreadsAnswer(threads=[records.ThreadRecord.model_validate(state.to_json()) for state in reached])


async def reached_threads(
    grant: Grant, workspace: Workspace, *, limit: int, before: str | None = None, **filters: Any
) -> list[ThreadState]:
    """Return the newest threads that a grant reaches, however many newer ones there are that it does not reach.

    Args:
        grant: The grant.
        workspace: Where they are.
        limit: The number of threads.
        before: The next page, and `filters`: see `WorldAgent.threads`.
    """
    prefixes = grant.thread_prefixes
    size = limit if all(map(grant.allows_threads_after, prefixes)) else MAX_PAGE_THREADS
    reached: list[ThreadState] = []
    while len(reached) < limit:
        found = await workspace.threads(limit=size, prefixes=prefixes, before=before, **filters)
        reached += [state for state in found if grant.allows_thread(state.thread)]
        if len(found) < size:
            break
        before = found[-1].page_key
    return reached[:limit]


# --- roles, which only an open agent has ------------------------------------------------------------------------------

_IN_MEMORY: Final[Mapping[Surface, str]] = {
    "command": "a command ends, and the memory of its process holds the role of a thread; `chat` has /role"
}


@operation(
    "Set the thread's role",
    "Set or replace the thread's role; it is held in memory alone.",
    effect="changes",
    absent=_IN_MEMORY,
)
async def thread_role_set(call: Call[RoleSetArguments], agent: WorldAgent) -> records.RoleSetAnswer:
    """Set a thread's role.

    Raises:
        Refused: The thread has an open turn of another account.
    """
    role = role_of(call.given.role)
    assert role is not None, "the arguments require a role"
    (await _own_thread(call, agent)).role.set(role, ttl=call.given.ttl)
    return records.RoleSetAnswer()


@operation("Clear the thread's role", "Take the thread's role away.", effect="changes", absent=_IN_MEMORY)
async def thread_role_clear(call: Call[ThreadArguments], agent: WorldAgent) -> records.RoleClearAnswer:
    """Remove a thread's role.

    Raises:
        Refused: The thread has an open turn of another account.
    """
    return records.RoleClearAnswer(cleared=(await _own_thread(call, agent)).role.clear())


@operation(
    "Explain the role", "Which tiers of role would be active now, in what order and how long; no content is shown."
)
async def explain_role(call: Call[ExplainArguments], agent: WorldAgent) -> records.ExplainAnswer:
    """Say which tiers of role would be active now, without their contents."""
    explanation = await agent.explain_role(thread_of(agent, call), role=role_of(call.given.role))
    return records.ExplainAnswer(
        policy=explanation.policy,
        tiers=[
            records.TierRecord(
                tier=one.tier.value,
                state=one.state,
                name=one.name,
                length=one.length,
                signatures=list(one.signatures),
            )
            for one in explanation.tiers
        ],
    )


def thread_of(agent: WorldAgent, call: Call[Any], *, name: str | None = None) -> Thread:
    """Return the agent's handle of the thread that a call names.

    Args:
        agent: The agent.
        call: The call.
        name: The display name of the person who speaks.
    """
    given: ThreadArguments = call.given
    return agent.thread(given.thread, account=call.caller.account, channel=given.channel, name=name)


def role_of(given: RoleArgument | None) -> Role | None:
    """Return the role that a call sends."""
    if given is None:
        return None
    return Role(given.name, given.content, applies_to=given.applies_to, exclusive=given.exclusive, echo=given.echo)


def one_thread(call: Call[Any], workspace: Workspace) -> OneThread:
    """Return the thread that a call names, of an open agent or of a home."""
    given: ThreadArguments = call.given
    return workspace.thread(given.thread, account=call.caller.account, channel=given.channel)


async def _own_thread(call: Call[Any], agent: WorldAgent) -> Thread:
    """Return the thread that a call names, if its role cannot reach an open turn of another account."""
    thread = thread_of(agent, call)
    await check_open_turn(call, thread)
    return thread


async def check_open_turn(call: Call[Any], thread: Thread) -> None:
    """Refuse to interrupt another account's turn, or to give it a role.

    Raises:
        Refused: The thread's turn has not ended, and belongs to another account.
    """
    state = await thread.state()
    if state is not None and state.status in OPEN:
        check_turn(call.caller, state)
