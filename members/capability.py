"""The members of a workspace as a capability: `WorldAgent(..., society=WorkspaceConfig(...))`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

from ..agent.runtime import RunnerParts
from ..agent.runtime.inside import inside
from ..agent.threads import ThreadRegister
from ..core import ROOT, Emitter, Scope, new_id
from ..core.capability import Capability, Runtime
from ..core.errors import InvalidArgument, UnknownMember
from ..core.events import TurnEnded, TurnStarted
from ..harness import Function
from .budgets import no_price
from .data.store import Notice, Refusal, emit_notices
from .data.workspace import Event, WorkspaceConfig
from .functions import SocietyFunctions
from .life.aging import prune_members
from .life.reading import reader_of
from .mail.wakeups import wakeups_of
from .society import Society
from .workers import MemberWorkers

WORKERS: Final = "member_workers"
"""The name under which an open agent has the workers of its members."""


class Members(Capability[Society]):
    """Makes the agent the root of a workspace of members that know each other by introduction.

    Messages need approval, unless the policy has `SEND_RULES`.

    Args:
        config: The workspace.

    Raises:
        InvalidArgument: It is no `WorkspaceConfig`, or when the agent is created, it is that of another workspace.
    """

    name = "society"

    def __init__(self, config: WorkspaceConfig) -> None:
        if not isinstance(config, WorkspaceConfig):
            raise InvalidArgument(
                f"`society` must be a WorkspaceConfig, got {type(config).__name__!r}",
                remedy="pass a worldagent.members.WorkspaceConfig, or omit it",
            )
        self.config: Final = config

    def functions(self, runtime: Runtime) -> Iterable[Function]:
        if self.config.id != runtime.workspace:
            raise InvalidArgument(
                f"the society is of the workspace {self.config.id!r}, and the agent of {runtime.workspace!r}",
                remedy="use the same id",
            )
        agent = inside(runtime)
        return SocietyFunctions(self.config, lambda: agent.opened[self.name], lambda: agent.attachments).functions

    @asynccontextmanager
    async def opened(self, runtime: Runtime) -> AsyncGenerator[Society]:
        agent, hooks = inside(runtime), runtime.hooks

        def is_taken(name: str) -> bool:  # the engine is made once all capabilities are open
            return agent.parts.engine.is_taken(name)

        society = Society(
            self.config,
            runtime.database,
            runtime.clock,
            notify=lambda notices: _trace(agent.parts, runtime.workspace, notices),
            wakeups=wakeups_of(runtime.database, agent.spec.settings.nats_url),
            is_taken=is_taken,
            threads=ThreadRegister(agent.stores),
        )
        workers = MemberWorkers(society, agent)

        async def enlist(member: str) -> None:
            """Give a member its worker before a turn of it resumes: without it the gate would refuse all its calls."""
            if member != ROOT:
                with suppress(UnknownMember):  # it was removed: the turn is checked without its worker
                    await workers.enlist(member)

        async def post(fields: Mapping[str, Any], to: str | None) -> None:
            await society.events.post(Event(**fields), to=to)

        async def bootstrap() -> None:
            await society.bootstrap()
            _check_prices(self.config, agent.parts)
            agent.parts.usage.purse = society.budgets.purse

        agent.opened[WORKERS], agent.operators = workers, True
        hooks.readers.append(partial(reader_of, society))
        hooks.resuming.append(enlist)
        hooks.marks.append(workers.marks_of)
        hooks.speaking.append(workers.speaking)
        hooks.rated.append(society.outcomes.rate_turn)
        hooks.stuck.append(society.mail.notify_owner)
        hooks.post.append(post)
        hooks.aged["society"] = prune_members
        hooks.started.append(bootstrap)
        async with aclosing(society):
            yield society


def _check_prices(config: WorkspaceConfig, parts: RunnerParts) -> None:
    """Refuse limits in dollars, before any work begins, if the agent's model has no known price (A16).

    Raises:
        BudgetInvalid: It has none.
    """
    all_limits = {each.role_id: each.limits for each in config.roles}
    all_limits |= {id_: each.limits for id_, each in config.role_templates.items()}
    caller = parts.engine.services.caller
    for id_, limits in all_limits.items():
        if limits is not None and limits.cost is not None and caller.cost_of(1, 1) is None:
            raise no_price(id_, caller.connection.name)


def _trace(parts: RunnerParts, workspace: str, notices: Sequence[Notice]) -> None:
    """Trace messages that no call of a turn sent: those of host code, and those that answer without a turn."""
    path, tap = new_id("call"), parts.tracer.tap(Scope(workspace=workspace))
    emit = Emitter(path, parts.stores.clock, tap, tap)
    emit(TurnStarted, thread="", kind="call")
    emit_notices(emit, notices)
    last = notices[-1]
    if isinstance(last, Refusal):
        emit(TurnEnded, status="failed", code=last.code)
    else:
        emit(TurnEnded, status="done")
