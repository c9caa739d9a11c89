"""A member as a class: its definition, what it does with an event, and how it answers and remembers.

```python
class Cro(AutonomousRole):
    role_id = "cro"
    soul = "souls/cro.md"
    domains = ["revenue"]
    operator_ids = ["revenue_ops"]
    authority = AuthorityConfig(autonomous=["lead.created"])

    def _match_operator(self, event):
        return ("revenue_ops", None) if event.type == "lead.created" else (None, None)
```
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..core import new_id
from ..core.checks import check_text
from ..core.errors import InvalidArgument, ToolNotAllowed
from ..core.files import read_limited
from ..harness.yaml import LONGEST
from ..role_resolution.role import refuses_texts
from .capability import Members
from .data.brief import Language
from .data.limits import MemberLimits
from .data.remote import RemoteAgent
from .data.roles import (
    SOUL_FILE,
    Authority,
    AuthorityConfig,
    ClearanceProfile,
    MemoryPolicy,
    Objective,
    RoleLifecycle,
    RoleSpec,
    RoleStatus,
    Route,
    TrustProfile,
    active,
    goals_text,
)
from .data.workspace import Event, RoutingDecision
from .events.routing import Roster, route, route_as, route_of, run_by
from .life.designing import design_role
from .life.memory import AgentMemory, MemoryFiles, Values
from .life.recommending import recommend
from .mail.messages import RoleMessage
from .mail.transport import REPLY_SECONDS
from .responding import Operator, respond

if TYPE_CHECKING:
    from ..agent import WorldAgent
    from ..agent.turns import Turn
    from ..memory.entries import Insight, Passage
    from ..role_resolution import Role
    from .data.brief import TaskBrief
    from .data.workspace import RoleTemplateDraft, SpawnRecommendation


def read_soul(soul: str, folder: Path | None = None) -> str:
    """The text of a soul, which is given as it is or as the path of a `.md` file (A14).

    Args:
        soul: The text, or a path that ends in `.md` and has no blanks.
        folder: What a relative path is relative to; the current folder by default.

    Raises:
        InvalidArgument: The file cannot be read, or it is empty or too long.
    """
    if not isinstance(soul, str) or not SOUL_FILE.fullmatch(soul):
        return soul
    data = read_limited((folder or Path()) / soul, LONGEST)
    text, failure = "", data if isinstance(data, str) else ""
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else ""
    except UnicodeDecodeError:
        failure = "it is not UTF-8"
    if failure:
        raise InvalidArgument(
            f"the soul {soul[:200]!r} cannot be read: {failure}",
            remedy="create this file, or write the soul itself",
        )
    check_text(f"the soul {soul[:200]}", text)
    return text


@refuses_texts
class AutonomousRole:
    """A member of a workspace that decides what to do with events.

    A subclass sets the fields of `RoleSpec` as class attributes, and code can override `_match_operator`. An instance
    keeps them as immutable values of its own, in `spec` and under their names.

    Args:
        spec: The definition. Without it, the class attributes and `given` are the definition.
        lifecycle: Where it is in its life; None counts as active.
        trust: The trust in it; the definition's by default.
        roster: All members, for events of other domains.
        agent: An open agent with a society whose member it is. `handle` and what is about it alone need none.
        llm: The model that it thinks with, by name or as a model string; None is the agent's.
        config: What else a host gives it, for code of a subclass.
        given: Fields of `RoleSpec` that replace those of the class.

    Attributes:
        spec: Its definition.
        lifecycle: Where it is in its life.
        roster: The last roster that was handed over.
        agent: The agent.
        llm: The model.
        config: What else it was given.

    Raises:
        InvalidArgument: A field is not known or invalid.
    """

    role_id: str = ""
    workspace: str = ""
    soul: str = ""
    domains: Sequence[str] = ()
    reports_to: str = ""
    operator_ids: Sequence[str] = ()
    authority: AuthorityConfig = AuthorityConfig()
    clearance: ClearanceProfile | None = None
    goals: Sequence[Objective] = ()
    trust: TrustProfile | None = None
    parent_role_id: str = ""
    created_by: str = ""
    ttl: str | None = None
    memory_policy: MemoryPolicy = "archive"
    routes: Sequence[Route] = ()
    language: Language | None = None
    untrusted: Sequence[str] = ()
    remote: RemoteAgent | None = None
    limits: MemberLimits | None = None

    def __init__(
        self,
        spec: RoleSpec | None = None,
        *,
        lifecycle: RoleLifecycle | None = None,
        trust: TrustProfile | None = None,
        roster: Roster | None = None,
        agent: WorldAgent | None = None,
        llm: str | None = None,
        config: Mapping[str, Any] | None = None,
        **given: Any,
    ) -> None:
        unknown = [name for name in given if name not in _FIELDS or spec is not None]
        if unknown:
            raise InvalidArgument(
                f"{type(self).__name__} takes no {unknown[0]!r}{'' if spec is None else ' beside a spec'}",
                remedy=f"its fields are: {', '.join(_FIELDS)}" if spec is None else "change the spec with replace()",
            )
        if spec is None:
            made: dict[str, Any] = {name: getattr(type(self), name) for name in _FIELDS} | given
            made["soul"] = read_soul(made["soul"])
            spec = RoleSpec(**made)
        self.spec = spec
        self.lifecycle = lifecycle
        self.roster = roster
        self.agent = agent
        self.llm = llm
        self.config = dict(config or {})
        for name in _FIELDS:
            object.__setattr__(self, name, getattr(spec, name))
        if trust is not None:
            self.trust = trust

    def __setattr__(self, name: str, value: object) -> None:
        if name in _FIXED and "spec" in self.__dict__:
            raise AttributeError(
                f"{name!r} is part of the definition of {self.role_id!r}; make another role with a changed spec"
            )
        object.__setattr__(self, name, value)

    def handle(self, event: Event, roster: Roster | None = None) -> RoutingDecision:
        """Decide what to do with an event. Nothing is done: a gateway executes the decision (A2, A12).

        If the roster lists the member, its definition, state and trust there count, and of the class only its code.

        Args:
            event: The event.
            roster: All members of the workspace; by default the last that was handed over.
        """
        known = self.roster if roster is None else roster
        code = None if type(self)._match_operator is AutonomousRole._match_operator else self._match_operator
        listed = None if known is None else known.members.get(self.role_id)
        if known is not None and listed is not None:
            return route(listed, event, known, code)
        status = RoleStatus.ACTIVE if self.lifecycle is None else self.lifecycle.status
        return route_as(self.spec, status, self.trust or TrustProfile(), event, known, code)

    def can_act(self, capability: str) -> Authority:
        """What it may do with a capability: `autonomous`, `needs_approval` or `forbidden`.

        Args:
            capability: The capability. One that is not listed needs approval.
        """
        return self.spec.authority.of(capability)

    def active_goals(self) -> list[Objective]:
        """Its goals that are `active` or `at_risk`, in their order (A5)."""
        return active(self.spec.goals)

    def goal_context(self) -> str:
        """Its active goals as text for a prompt; empty if it has none (A5)."""
        return goals_text(self.spec.goals)

    # --- what it does with a model ------------------------------------------------------------------------------------

    async def respond(
        self,
        message: str,
        context: str | Sequence[str | Passage] = "",
        *,
        role: Role | None = None,
        channel: str | None = None,
        key: str | None = None,
    ) -> Turn:
        """Answer a message. It can look into its memory, its goals, whom it knows and its authority, and do nothing.

        It is a turn on the member's thread, for its account. Roles of all tiers apply on top of the soul. Each that
        is over is recorded as one episode, also one that failed.

        Args:
            message: The message.
            context: Passages that it is shown with its memory, and that are kept nowhere; the agent needs memory.
            role: The call role.
            channel: Where it takes place; its role is the channel tier.
            key: Makes a repeated call the same turn, with one episode; see `Thread.converse`.

        Returns:
            The turn, with the answer in `text`.

        Raises:
            UnknownMember: It is not in the workspace.
            MessageInvalid: It is not live.
            InvalidArgument: An argument is invalid, or it has no agent.
            ThreadPaused, ThreadBusy: A turn of the member waits for a person, or runs.
            HostError, OutputInvalid: The model failed.
        """
        return await respond(
            self._opened, self.role_id, message, context, role=role, channel=channel, key=key, llm=self.llm
        )

    async def reflect(self) -> tuple[Insight, ...]:
        """Let a model say what follows from what it did; see `AgentMemory.reflect`.

        Then look for spawn signals in what it did; see `spawn_recommendations`.
        """
        found = await self.agent_memory.reflect()
        await recommend(self._opened, self.role_id)
        return found

    async def spawn(
        self, template_id: str, params: Mapping[str, str], brief: TaskBrief | Mapping[str, Any] | None = None
    ) -> str:
        """Make a child of a template; returns its id, after `pending:` if the owner approves it first (A9).

        Args:
            template_id: The template.
            params: The parameters of the template.
            brief: What its first task is, also as JSON; see `Society.spawn`.

        Raises:
            BriefInvalid, ParamsInvalid, UnknownTemplate, DraftRequired, SpawnForbidden: As for `Society.spawn`.
            UnknownMember, UnknownContact, RoleExists, RolesFull, InvalidArgument: As for `Society.spawn`.
        """
        return await self._opened.get(Members).spawn(self.role_id, template_id, params, brief)

    async def spawn_recommendations(self) -> tuple[SpawnRecommendation, ...]:
        """The children that its episodes speak for and that were not made yet, the oldest first (A15).

        `reflect` looks for them. Each is posted as the event `spawn.recommended` and waits for the owner, who makes the
        child with `agent.society.spawn`. Under the policy `auto_spawn` it is made at once where it needs no brief.
        """
        found = await self._opened.get(Members).recommendations.open(self.role_id)
        return tuple(each.recommendation for each in found)

    async def design_role(self, intent: str) -> RoleTemplateDraft:
        """Let a model design a role template, with what the member knows, for a person to review (A10).

        Its members can do, know and run no more than this one. It has no `allowed_spawners`: a person sets them. It is
        stored in `agent.society.drafts`, and nothing of it can be used before a person approves it there.

        Args:
            intent: What is needed.

        Raises:
            UnknownMember: It is not in the workspace.
            InvalidArgument: `intent` is blank, or it has no agent.
            HostError, OutputInvalid: The model failed, or designed no valid template.
        """
        return await design_role(self._opened, self.role_id, intent, llm=self.llm)

    # --- what it says to others ---------------------------------------------------------------------------------------

    async def request_role(
        self, target_id: str, message: str, payload: Mapping[str, Any] | None = None, *, seconds: float = REPLY_SECONDS
    ) -> RoleMessage:
        """Send a request to a member or a person, and wait for the reply (A4).

        It is for code outside of turns. In a turn, the function `request_role` pauses the turn instead.

        Args:
            target_id: Who is asked. It must be a contact.
            message: What is asked.
            payload: What comes with it; `reason` says why it writes, in a first message.
            seconds: How long to wait.

        Raises:
            UnknownContact, MessageInvalid, MailboxFull, ChainTooLong: As for `Society.send`.
            PauseExpired: No reply came in time. The request stays where it is.
            InvalidArgument: It has no agent.
        """
        asked = RoleMessage(
            id=new_id("msg"),
            type="request",
            from_id=self.role_id,
            to_id=target_id,
            content=message,
            payload={} if payload is None else payload,
        )
        return await self._opened.get(Members).mail.request(self.role_id, target_id, asked, seconds=seconds)

    async def notify_role(self, target_id: str, message: str, payload: Mapping[str, Any] | None = None) -> RoleMessage:
        """Send a message to a member or a person, and do not wait (A4).

        Args:
            target_id: Who gets it. It must be a contact.
            message: The text.
            payload: What comes with it; `reason` says why it writes, in a first message.

        Raises:
            UnknownContact, MessageInvalid, MailboxFull, ChainTooLong: As for `Society.send`.
            InvalidArgument: It has no agent.
        """
        letter = await self._opened.get(Members).mail.send(self.role_id, target_id, message, payload=payload)
        return letter.message

    def build_system_prompt(self) -> str:
        """The static text that models get for it: its soul. It is for inspection, and no way to a model (A14)."""
        return self.spec.soul

    # --- what it can run and what it knows ----------------------------------------------------------------------------

    def list_operators(self) -> tuple[str, ...]:
        """The ids of its operators."""
        return self.spec.operator_ids

    @property
    def operators(self) -> tuple[Operator, ...]:
        """Its operators, bound to it.

        Raises:
            InvalidArgument: It has no agent.
        """
        return tuple(map(self.get_operator, self.spec.operator_ids))

    def get_operator(self, operator_id: str) -> Operator:
        """One of its operators, bound to it.

        Args:
            operator_id: Its id.

        Raises:
            ToolNotAllowed: It is none of its operators.
            InvalidArgument: It has no agent.
        """
        if operator_id not in self.spec.operator_ids:
            known = ", ".join(self.spec.operator_ids) or "none"
            raise ToolNotAllowed(
                f"{str(operator_id)[:60]!r} is not an operator of {self.role_id!r}",
                remedy=f"its operators are: {known}",
            )
        return Operator(self._opened, self.role_id, operator_id)

    @property
    def agent_memory(self) -> AgentMemory:
        """Its episodes, its insights and the facts that it may know.

        Raises:
            InvalidArgument: It has no agent, or that has no society.
        """
        return AgentMemory(self._opened, self.role_id, llm=self.llm)

    @property
    def memory(self) -> Values:
        """A small store of texts by names, for host code."""
        return Values(self.agent_memory)

    @property
    def memory_fs(self) -> MemoryFiles:
        """What it may read, as folders and files."""
        return MemoryFiles(self.agent_memory)

    @property
    def _opened(self) -> WorldAgent:
        if self.agent is None:
            raise InvalidArgument(
                f"the role {self.role_id!r} has no agent", remedy="create it with agent=, an open agent with a society"
            )
        return self.agent

    def _match_operator(self, event: Event) -> tuple[str | None, str | None]:
        """The operator and the trigger for an event; None for each if there is none. It must be pure.

        By default these are those of the first route that fits. Code overrides this for rules that a glob cannot say.
        """
        return run_by(route_of(self.spec, event.type))


_FIELDS: Final = tuple(each.name for each in fields(RoleSpec))
_FIXED: Final = frozenset(_FIELDS) - {"trust"} | {"spec"}
