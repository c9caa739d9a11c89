"""Runs a call of a tool: checks its arguments, then its token, then calls the tool. Errors follow the contract.

This is independent of the transport. A validation error names fields and rules, and has no value that the caller sent.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, Final

from mcp.types import CallToolRequestParams, CallToolResult, InputRequiredResult

from ...agent import Thread, WorldAgent
from ...agent.threads import ThreadState
from ...core.errors import AgentClosed, InvalidArgument, NameTaken, ThreadBusy, WorldAgentError
from ..sidecar.access import Grant
from ..sidecar.asking import pause_result
from ..sidecar.calls import (
    Call,
    CallFacts,
    Context,
    SidecarParts,
    answered,
    checked,
    failed,
    role_of,
    thread_of,
    to_call,
)
from ..sidecar.contract import (
    TOOLS,
    ExplainArguments,
    ForkArguments,
    HistoryArguments,
    RenameArguments,
    RoleSetArguments,
    ThreadsArguments,
)
from ..sidecar.following import events
from ..sidecar.turns import resume, surface
from .arguments import ThreadArguments
from .caller import Refused, check_turn
from .next_steps import advised, name_turn
from .pauses import unanswered
from .records import (
    Answer,
    CancelAnswer,
    ExplainAnswer,
    ForkAnswer,
    HistoryAnswer,
    MessageRecord,
    PausesAnswer,
    RenameAnswer,
    RoleClearAnswer,
    RoleSetAnswer,
    ThreadRecord,
    ThreadsAnswer,
    TierRecord,
)
from .validation import ArgumentsInvalid

MAX_STEM_CHARACTERS: Final = 180  # characters of a thread's id that a fork's id keeps, before its number
_OPEN: Final = ("running", "paused", "stopped", "cut_off")


async def cancel(call: Call[ThreadArguments], agent: WorldAgent) -> CancelAnswer:
    """Run `cancel`."""
    thread = thread_of(agent, call)
    state = await thread.state()
    if state is not None:
        check_turn(call.caller, state)
        call.noted.turn = state.turn_id or None
    return CancelAnswer(cancelled=await thread.cancel())


async def fork(call: Call[ForkArguments], agent: WorldAgent) -> ForkAnswer:
    """Run `fork`."""
    given, grant, thread = call.given, call.grant, thread_of(agent, call)
    stem = f"{given.thread[:MAX_STEM_CHARACTERS]}."
    if given.to is not None or grant.allows_threads_after(stem):
        if given.to is not None:
            grant.check_thread(given.to)
        made = await thread.fork(at=given.at, to=given.to)
        return ForkAnswer(thread=made.scope.thread or "")
    # The agent could make an id that the token does not reach, so this makes the id and checks it first.
    for number in count(2):
        if not grant.allows_thread(f"{stem}{number}"):
            raise Refused(
                "forbidden",
                "the token does not reach the name that the new thread would get",
                remedy="set `to` to a name that the token reaches",
            )
        with suppress(NameTaken, ThreadBusy):
            made = await thread.fork(at=given.at, to=f"{stem}{number}")
            return ForkAnswer(thread=made.scope.thread or "")
    raise AssertionError("numbers do not end")


async def thread_rename(call: Call[RenameArguments], agent: WorldAgent) -> RenameAnswer:
    """Run `thread_rename`."""
    return RenameAnswer(title=await thread_of(agent, call).rename(call.given.title))


async def thread_role_set(call: Call[RoleSetArguments], agent: WorldAgent) -> RoleSetAnswer:
    """Run `thread_role_set`."""
    role = role_of(call.given.role)
    assert role is not None, "the contract requires a role"
    thread = await _own_thread(call, agent)
    thread.role.set(role, ttl=call.given.ttl)
    held = agent.settings.thread_role_ttl if call.given.ttl is None else call.given.ttl
    call.house.agents.hold_role(call.caller.workspace, held)
    return RoleSetAnswer()


async def thread_role_clear(call: Call[ThreadArguments], agent: WorldAgent) -> RoleClearAnswer:
    """Run `thread_role_clear`."""
    thread = await _own_thread(call, agent)
    return RoleClearAnswer(cleared=thread.role.clear())


async def _own_thread(call: Call[Any], agent: WorldAgent) -> Thread:
    """Return the thread that a call names, if its role cannot reach an open turn of another account.

    Raises:
        Refused: The thread has an open turn of another account.
    """
    thread = thread_of(agent, call)
    state = await thread.state()
    if state is not None and state.status in _OPEN:
        check_turn(call.caller, state)
    return thread


MAX_PAGE_THREADS: Final = 1000  # threads of a page that is searched for those that a token reaches


async def pauses(call: Call[ThreadArguments], agent: WorldAgent) -> PausesAnswer:
    """Run `pauses`."""
    thread = thread_of(agent, call)
    state, found = await thread.state(), await thread.pauses()
    if state is None:
        return PausesAnswer(thread=call.given.thread)
    call.note_turn(state)
    return PausesAnswer(
        thread=state.thread,
        turn_id=state.turn_id or None,
        status=state.status,
        pauses=[pause_result(pause) for pause in found],
        next=to_call(call, state.status, state.turn_id, unanswered(found)),
    )


async def history(call: Call[HistoryArguments], agent: WorldAgent) -> HistoryAnswer:
    """Run `history`."""
    page = await thread_of(agent, call).history(before=call.given.before, limit=call.given.limit)
    return HistoryAnswer(messages=[MessageRecord.model_validate(message.to_json()) for message in page])


async def threads(call: Call[ThreadsArguments], agent: WorldAgent) -> ThreadsAnswer:
    """Run `threads`. The answer has only threads that the token reaches."""
    given, grant = call.given, call.grant
    limit = given.limit if grant.allows_any_thread else MAX_PAGE_THREADS
    reached: list[ThreadState] = []
    before = given.before
    while len(reached) < given.limit:
        found = await agent.threads(
            limit=limit,
            status=given.status,
            account=given.of_account,
            channel=given.channel,
            query=given.query,
            before=before,
        )
        reached += [state for state in found if grant.allows_thread(state.thread)]
        if len(found) < limit:
            break
        before = found[-1].page_key
    return ThreadsAnswer(threads=[ThreadRecord.model_validate(state.to_json()) for state in reached[: given.limit]])


async def explain_role(call: Call[ExplainArguments], agent: WorldAgent) -> ExplainAnswer:
    """Run `explain_role`."""
    explanation = await agent.explain_role(thread_of(agent, call), role=role_of(call.given.role))
    return ExplainAnswer(
        policy=explanation.policy,
        tiers=[
            TierRecord(
                tier=one.tier.value,
                state=one.state,
                name=one.name,
                length=one.length,
                signatures=list(one.signatures),
            )
            for one in explanation.tiers
        ],
    )


_log = logging.getLogger("worldagent.sidecar")

Tool = Callable[[Any, WorldAgent], Awaitable[Answer | InputRequiredResult]]

_RUN: Final[dict[str, Tool]] = {
    "converse": surface,
    "task": surface,
    "run_skill": surface,
    "run_scheduled": surface,
    "resume": resume,
    "events": events,
    "pauses": pauses,
    "cancel": cancel,
    "history": history,
    "fork": fork,
    "thread_rename": thread_rename,
    "thread_role_set": thread_role_set,
    "thread_role_clear": thread_role_clear,
    "explain_role": explain_role,
    "threads": threads,
}


async def call_tool(
    house: SidecarParts, ctx: Context, params: CallToolRequestParams, *, grant: Grant, noted: CallFacts
) -> CallToolResult | InputRequiredResult:
    """Run one of the contract's tools. Except for cancellation, it raises nothing.

    Args:
        house: The parts that all calls share.
        ctx: The request.
        params: Its params.
        grant: The grant of the caller's token.
        noted: Collects facts about the call, for the request log among others.
    """
    advice: Mapping[str, Any] = {}
    failure: WorldAgentError | Refused
    try:
        if house.client_roles is not None:
            house.client_roles.serve(ctx.session)
        call = _checked(house, ctx, params, grant, noted)
        async with house.agents.use(call.caller.workspace) as agent:
            try:
                answer = await _RUN[call.tool](call, agent)
            except WorldAgentError as error:
                await name_turn(call, agent, error)
                advice = await advised(call, agent, error)
                raise
        return answered(answer) if isinstance(answer, Answer) else _asking(answer, noted)
    except AgentClosed as error:
        failure = house.agents.refusal() if house.agents.draining else error
    except (WorldAgentError, Refused) as error:
        failure = error
    except Exception as error:  # of any type: custom code runs below; the text can hold what the caller sent
        _log.error("%s failed: %s", params.name, type(error).__name__)
        failure = Refused(
            "internal",
            "the sidecar failed with an internal error",
            remedy="look at its log, or ask its operator",
            turn_id=noted.turn,
        )
    noted.code, noted.turn = failure.code, advice.get("turn_id") or failure.turn_id or noted.turn
    return failed(failure, advice)


def _checked(
    house: SidecarParts, ctx: Context, params: CallToolRequestParams, grant: Grant, noted: CallFacts
) -> Call[Any]:
    model = TOOLS[params.name].arguments
    given = checked(model, params.arguments or {})
    if isinstance(given, ArgumentsInvalid):
        raise InvalidArgument(f"the arguments are invalid: {given.problem}", remedy=given.remedy)
    caller = grant.caller(given.workspace, given.account)
    noted.workspace = caller.workspace
    if isinstance(given, ThreadArguments):
        grant.check_thread(given.thread)
        noted.thread = given.thread
    return Call(house=house, ctx=ctx, params=params, given=given, grant=grant, caller=caller, noted=noted)


def _asking(result: InputRequiredResult, noted: CallFacts) -> InputRequiredResult:
    noted.code = "input_required"
    return result
