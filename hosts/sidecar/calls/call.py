"""One call of a tool, after its arguments and its token were checked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from mcp.server.context import ServerRequestContext
from mcp.types import CallToolRequestParams

from ....agent import Thread, WorldAgent
from ....agent.threads import ThreadState
from ....role_resolution import Role
from ..access import Grant
from ..client_roles import ClientRoles
from ..contract.words import RoleArgument, ThreadArguments, WorkspaceArguments
from ..pool import Agents, Limits
from ..ports import Caller, owns_turn

A = TypeVar("A", bound=WorkspaceArguments)
Context = ServerRequestContext[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarParts:
    """The parts that all calls share.

    Attributes:
        agents: The agents by workspace.
        limits: The limits of the sidecar.
        ending: Set when the sidecar ends; calls that wait for events then stop.
        client_roles: The roles of the single client, for a client that can keep roles.
    """

    agents: Agents
    limits: Limits
    ending: asyncio.Event
    client_roles: ClientRoles | None = None


@dataclass(slots=True, kw_only=True)
class CallFacts:
    """Facts that a call collects while it runs.

    Attributes:
        tool, workspace, thread, turn: Ids for the request log. The caller was found to reach them.
        code: The code of the answer, for the request log.
        own: Whether the caller can resume the turn. Otherwise they can only answer.
        recorded: Whether the turn's events are kept.
        kept: How many answers of a person were saved before the newest run of the turn.
        sent_events: Whether a run of the turn sent any event.
        needs: The arguments that `resume` needs again (`ThreadState.needs`).
    """

    tool: str | None = None
    workspace: str | None = None
    thread: str | None = None
    turn: str | None = None
    code: str = "ok"
    own: bool = True
    recorded: bool = True
    kept: int = 0
    sent_events: bool = False
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[A]):
    """One call.

    Attributes:
        house: The parts that all calls share.
        ctx: The request.
        params: Its params. When a client repeats the call with a person's answers, they hold these too.
        given: The arguments.
        grant: The grant of the token.
        caller: The workspace and account of the call.
        noted: Facts that the call collects.
    """

    house: SidecarParts
    ctx: Context = field(repr=False)
    params: CallToolRequestParams = field(repr=False)
    given: A = field(repr=False)
    grant: Grant
    caller: Caller
    noted: CallFacts

    @property
    def tool(self) -> str:
        """The tool's name."""
        return self.params.name

    @property
    def ids(self) -> dict[str, str]:
        """The ids to repeat in the next call."""
        given = self.given
        named = {"workspace": self.caller.workspace, "account": self.caller.account}
        if isinstance(given, ThreadArguments):
            named |= {"channel": given.channel, "thread": given.thread}
        return {name: value for name, value in named.items() if value is not None}

    def note_turn(self, state: ThreadState) -> bool:
        """Record the turn that the call is about, and return whether it is the caller's own."""
        self.noted.turn, self.noted.recorded = state.turn_id or None, state.recorded
        self.noted.own, self.noted.needs = owns_turn(self.caller, state), state.needs
        return self.noted.own

    @property
    def wants_progress(self) -> bool:
        """Whether the client sent a progress token."""
        meta: Mapping[str, Any] = self.ctx.meta or {}
        return meta.get("progress_token", meta.get("progressToken")) is not None


def thread_of(agent: WorldAgent, call: Call[Any], *, name: str | None = None) -> Thread:
    """Return the handle of the thread that a call names."""
    given: ThreadArguments = call.given
    return agent.thread(given.thread, account=call.caller.account, channel=given.channel, name=name)


def role_of(given: RoleArgument | None) -> Role | None:
    """Return the role that a call sends."""
    if given is None:
        return None
    return Role(given.name, given.content, applies_to=given.applies_to, exclusive=given.exclusive)


__all__ = ["Call", "CallFacts", "Context", "SidecarParts", "role_of", "thread_of"]
