"""One call of a tool, after its arguments and its token were looked at: what the tools work with."""

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
from ..people import is_of
from ..pool import Agents, Limits
from ..ports import Caller

A = TypeVar("A", bound=WorkspaceArguments)
Context = ServerRequestContext[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """What all calls share.

    Attributes:
        agents: The agents by workspace.
        limits: What is done at once.
        ending: Set when what waits without an end of its own is to end.
        client_roles: The roles of the one client that is served, where it may keep roles.
    """

    agents: Agents
    limits: Limits
    ending: asyncio.Event
    client_roles: ClientRoles | None = None


@dataclass(slots=True, kw_only=True)
class Noted:
    """What is noted of a call as it goes on.

    Attributes:
        tool, workspace, thread, turn: What the request log may say: ids that the caller was found to reach.
        code: How it was answered, for the request log.
        own: Whether the turn is the caller's to go on with; where it is not, they only answer.
        recorded: Whether the turn's events are kept.
        kept: How many answers of a person were written down before the newest run at the turn.
        told: Whether a run at the turn told anything.
        needs: What `resume` must be given again (`ThreadState.needs`).
    """

    tool: str | None = None
    workspace: str | None = None
    thread: str | None = None
    turn: str | None = None
    code: str = "ok"
    own: bool = True
    recorded: bool = True
    kept: int = 0
    told: bool = False
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[A]):
    """One call.

    Attributes:
        house: What all calls share.
        ctx: The request.
        params: Its params, with what a client sends when it comes again with a person's answers.
        given: The arguments.
        grant: What the token reaches.
        caller: On whose behalf.
        noted: What the request log may say of it.
    """

    house: House
    ctx: Context = field(repr=False)
    params: CallToolRequestParams = field(repr=False)
    given: A = field(repr=False)
    grant: Grant
    caller: Caller
    noted: Noted

    @property
    def tool(self) -> str:
        """The tool's name."""
        return self.params.name

    @property
    def ids(self) -> dict[str, str]:
        """The ids to repeat in a call that goes on from this one."""
        given = self.given
        named = {"workspace": self.caller.workspace, "account": self.caller.account}
        if isinstance(given, ThreadArguments):
            named |= {"channel": given.channel, "thread": given.thread}
        return {name: value for name, value in named.items() if value is not None}

    def meets(self, state: ThreadState) -> bool:
        """Note the turn that the call is about; gives whether it is the caller's own."""
        self.noted.turn, self.noted.recorded = state.turn_id or None, state.recorded
        self.noted.own, self.noted.needs = is_of(self.caller, state), state.needs
        return self.noted.own

    @property
    def wants_progress(self) -> bool:
        """Whether the client sent a progress token."""
        meta: Mapping[str, Any] = self.ctx.meta or {}
        return meta.get("progress_token", meta.get("progressToken")) is not None


def thread_of(agent: WorldAgent, call: Call[Any], *, name: str | None = None) -> Thread:
    """The handle on the thread that a call names."""
    given: ThreadArguments = call.given
    return agent.thread(given.thread, account=call.caller.account, channel=given.channel, name=name)


def role_of(given: RoleArgument | None) -> Role | None:
    """The role that a call brings."""
    if given is None:
        return None
    return Role(given.name, given.content, applies_to=given.applies_to, exclusive=given.exclusive)


__all__ = ["Call", "Context", "House", "Noted", "role_of", "thread_of"]
