"""The tools that read pauses, history, threads, and the role that would be active. `events` has the tool `events`."""

from __future__ import annotations

from typing import Final

from ....agent import WorldAgent
from ....agent.threads import ThreadState
from ...pauses import unanswered
from ..contract.answers import (
    ExplainAnswer,
    HistoryAnswer,
    MessageRecord,
    PausesAnswer,
    ThreadRecord,
    ThreadsAnswer,
    TierRecord,
)
from ..contract.arguments import ExplainArguments, HistoryArguments, ThreadsArguments
from ..contract.words import ThreadArguments
from ..pauses import pause_result
from .answering import to_call
from .call import Call, role_of, thread_of

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


__all__ = ["explain_role", "history", "pauses", "threads"]
