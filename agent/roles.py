"""An embedder's options for roles, the stored roles (R9), the role of a thread, and requests for one in words (R10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from ..core import ROOT, Scope, Tier, check_id
from ..core.capability import Capability, Runtime
from ..core.errors import InvalidArgument, LeaseLost, SettingsInvalid, UnknownMessage, UnknownTier
from ..core.scope import workspace_of
from ..core.validation import ClosedModel
from ..graphs import Shape, TaskContext
from ..harness import CallContext, Function, flow
from ..mcp_client import HttpHost, StdioHost
from ..memory import Message, thread_key
from ..role_resolution import Role, RoleResolver, RoleSource, RoleStore
from ..role_resolution.role import check_applies, check_role, refuses_texts
from ..storage import Storage
from .runtime import TurnRunner
from .runtime.inside import AgentRuntime, inside
from .settings import Settings

_SOURCE_TIERS = (Tier.THREAD, Tier.CHANNEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """Where roles come from, and how several become one.

    Attributes:
        host: Keeps workspace and account roles, and channel roles if it offers them: a host that is reached over MCP,
            or the embedder's own store. None means the setting `role_host`, else the embedded store.
        sources: Functions that give the thread and channel tiers that the host does not offer.
        policy: `stack` joins all tiers that apply into one text, `block` uses only the highest (R4).
        on_unavailable: `fail` ends a turn before any model call if a source is down, `skip` does without it (R14).
        on_request: How a person's request in words for a role of their thread is handled. `ignore` does nothing; with
            `ask` the conversation can make the message the thread's role, once a person has approved (R10).
    """

    host: HttpHost | StdioHost | RoleStore | None = None
    sources: Mapping[Tier, RoleSource] = field(default_factory=dict)
    policy: Literal["stack", "block"] = "stack"
    on_unavailable: Literal["fail", "skip"] = "fail"
    on_request: Literal["ignore", "ask"] = "ignore"

    def __post_init__(self) -> None:
        for name, value, known in (
            ("policy", self.policy, ("stack", "block")),
            ("on_unavailable", self.on_unavailable, ("fail", "skip")),
            ("on_request", self.on_request, ("ignore", "ask")),
        ):
            if value not in known:
                raise InvalidArgument(f"{name} {value!r} is unknown", remedy=f"use {' or '.join(map(repr, known))}")
        if self.host is not None and not isinstance(self.host, HttpHost | StdioHost | RoleStore):
            raise InvalidArgument(
                f"the role host {type(self.host).__name__!r} is neither HttpHost, StdioHost nor a RoleStore",
                remedy="pass HttpHost(url), StdioHost(argv), or an object with tiers, list, get, put and delete",
            )
        for tier, source in self.sources.items():
            if Tier.parse(tier) not in _SOURCE_TIERS:
                raise UnknownTier(
                    f"the {tier} tier takes no source", remedy="pass sources for the thread or channel tier only"
                )
            if not callable(source):
                raise InvalidArgument(
                    f"the source of the {tier} tier is not callable", remedy="pass an async function of the scope"
                )

    def host_of(self, settings: Settings) -> HttpHost | StdioHost | RoleStore | None:
        """Return where stored roles are, completed by the settings; None is the embedded store."""
        return self.host or settings.host()

    def check_shared(self, settings: Settings, storage: Storage) -> None:
        """Refuse roles and a role key that are in this home alone, if other machines use the same database.

        Raises:
            SettingsInvalid: They are.
        """
        home, flag = (
            str(storage.resolve()),
            "if all machines share this home, or there is only one, start with --home-roles",
        )
        if self.host_of(settings) is None:
            raise SettingsInvalid(
                f"the database is on a server, and stored roles are in the home {home!r}, which other machines lack",
                remedy=f"keep roles at a role host and set role_host; {flag}",
            )
        if settings.role_key is None and not storage.role_key.exists():
            raise SettingsInvalid(
                f"the database is on a server, and the home {home!r} would get a role key that other machines lack",
                remedy=f"set role_key to the same key on all machines; {flag}",
            )


@refuses_texts
class StoredRoles:
    """Read and change the stored roles: `agent.roles`. They are stored at the role host, or in the embedded store.

    Args:
        resolver: Resolves roles from the store.
        workspace: The agent's workspace, used if no scope is given.
    """

    def __init__(self, resolver: RoleResolver, workspace: str) -> None:
        self._store = resolver.store
        self._workspace = workspace

    async def list(
        self, scope_ids: Mapping[Tier, str] | None = None, *, other_workspace: bool = False
    ) -> dict[Tier, Role]:
        """Return all roles that are set for these scopes.

        Args:
            scope_ids: The scope of each tier to look at; None is this workspace alone.
            other_workspace: Whether they can be another workspace, or the account of a member of one.

        Raises:
            UnknownTier: A tier is not one that is stored here.
            InvalidArgument: A scope is of another workspace.
        """
        given = scope_ids if scope_ids is not None else {Tier.WORKSPACE: self._workspace}
        scopes = [await self._scope(tier, scope_id, other_workspace) for tier, scope_id in given.items()]
        return await self._store.list(dict(scopes))

    async def get(self, tier: Tier | str, *, scope_id: str | None = None, other_workspace: bool = False) -> Role | None:
        """Return the role of one tier and scope, or None.

        Args:
            tier: `workspace`, `account`, or `channel` where the store offers it.
            scope_id: The id of the scope; None is this workspace, the other tiers need one.
            other_workspace: Whether it can be another workspace, or the account of a member of one.

        Raises:
            UnknownTier, InvalidArgument: The tier is not stored here, or its scope is missing or of another workspace.
        """
        return await self._store.get(*await self._scope(tier, scope_id, other_workspace))

    async def put(
        self, tier: Tier | str, role: Role, *, scope_id: str | None = None, other_workspace: bool = False
    ) -> None:
        """Set or replace the role of one tier and scope.

        Args:
            tier: `workspace`, `account`, or `channel` where the store offers it.
            role: The role. It must not have `applies_to`, `exclusive` or `echo`.
            scope_id: The id of the scope; None is this workspace, the other tiers need one.
            other_workspace: Whether it can be another workspace, or the account of a member of one.

        Raises:
            RoleNotStorable, RoleTooLong, UnknownTier, InvalidArgument: The role or its place is invalid; no change.
        """
        await self._store.put(*await self._scope(tier, scope_id, other_workspace), check_role(role))

    async def delete(self, tier: Tier | str, *, scope_id: str | None = None, other_workspace: bool = False) -> bool:
        """Clear the role of one tier and scope; returns True if there was one.

        Args:
            tier: `workspace`, `account`, or `channel` where the store offers it.
            scope_id: The id of the scope; None is this workspace, the other tiers need one.
            other_workspace: Whether it can be another workspace, or the account of a member of one.

        Raises:
            UnknownTier, InvalidArgument: The tier is not stored here, or its scope is missing or of another workspace.
        """
        return await self._store.delete(*await self._scope(tier, scope_id, other_workspace))

    async def _scope(self, tier: Tier | str, scope_id: str | None, other_workspace: bool) -> tuple[Tier, str]:
        parsed = Tier.parse(tier)
        if parsed is Tier.CHANNEL and parsed not in self._store.tiers:
            await self._store.connect()  # a host says only once it is connected whether it offers channel roles
        if parsed not in self._store.tiers:
            known = ", ".join(sorted(self._store.tiers))
            raise UnknownTier(f"the {parsed} role is not stored here", remedy=f"use one of {known}")
        if scope_id is None and parsed is Tier.WORKSPACE:
            scope_id = self._workspace
        if scope_id is None:
            raise InvalidArgument(f"the {parsed} role needs a scope", remedy="pass scope_id=, the id of its " + parsed)
        check_id(f"{parsed} scope", scope_id)
        if not other_workspace:
            self._check_own(parsed, scope_id)
        return parsed, scope_id

    def _check_own(self, tier: Tier, scope_id: str) -> None:
        """Refuse the role of another workspace, and that of a member of one (A1)."""
        own = (self._workspace, None) if tier is Tier.ACCOUNT else (self._workspace,)
        scope = workspace_of(scope_id) if tier is Tier.ACCOUNT else scope_id
        if tier in (Tier.WORKSPACE, Tier.ACCOUNT) and scope not in own:
            raise InvalidArgument(
                f"the {tier} role of {scope_id[:80]!r} is not of the workspace {self._workspace!r}",
                remedy="use an agent of the other workspace, or pass other_workspace=True",
            )


@refuses_texts
@dataclass(frozen=True, slots=True)
class ThreadRole:
    """Sets and clears the role of one thread. Only memory holds it; the conversation records that it changed.

    Attributes:
        scope: Workspace, account, channel and thread.
    """

    _runner: TurnRunner = field(repr=False)
    scope: Scope

    def set(self, role: Role, *, ttl: float | None = None) -> None:
        """Set or replace the role. It applies from the next turn on and overrides the embedder's thread source.

        Args:
            role: The role for the turns of this thread.
            ttl: Seconds after which it expires; None is the setting `thread_role_ttl`.

        Raises:
            RoleInvalid, RoleTooLong, InvalidArgument: `role` is invalid or too long, or `ttl` is invalid.
            AgentClosed: The agent is not open.
        """
        parts, checked = self._runner.parts, check_role(role)
        check_applies(checked, parts.engine.services.signatures)
        parts.resolver.threads.set(self._thread, checked, parts.settings.thread_role_ttl if ttl is None else ttl)
        self._runner.pending.role_set(self.scope)

    def get(self) -> Role | None:
        """Return the role that applies to the thread's next turn, if this process has set one.

        Raises:
            AgentClosed: The agent is not open.
        """
        return self._runner.parts.resolver.threads.get(self.scope)

    def clear(self) -> bool:
        """Remove the role; returns True if there was one.

        Raises:
            AgentClosed: The agent is not open.
        """
        return self._runner.parts.resolver.threads.clear(self._thread)

    @property
    def _thread(self) -> str:
        assert self.scope.thread is not None
        return self.scope.thread


_FUNCTION: Final = "set_thread_role"
FUNCTION_DESCRIPTION: Final = "Make a message of the person's the role of its thread, from the next turn on."
THREAD_ROLE: Final = "thread_role"
"""The key of the shape that makes a message the role of its thread."""

SHAPE_DESCRIPTION: Final = (
    "only where the person asks in this message for another manner for the rest of the conversation: makes this "
    "message the guide of the turns after this one, once a person has confirmed it"
)
_ID: Final = "[0-9a-f]{32}"
OWN_MESSAGE_REMEDY: Final = (
    "name a message that this account wrote on this thread, or none for the message of this turn"
)

# Only an id matches the pattern, so that no plan can carry a text.
MessageId = Annotated[str, Field(pattern=f"^{_ID}$", description="the id of the person's message")]


class RoleRequest(ClosedModel):
    """The params of the shape."""

    message_id: str = Field("", pattern=f"^({_ID})?$", description="leave it out; it is the message of this turn then")


class RoleRequested(ClosedModel):
    """The result of the shape."""

    message_id: str
    note: str


class RoleRequests(Capability["RoleRequests"]):
    """Lets users ask for a role of their thread.

    Its function makes a message the role of its thread and requires approval. Its shape, which the conversation can
    call, checks the message and calls the function.
    """

    name = "role_requests"

    def functions(self, runtime: Runtime) -> Iterable[Function]:
        # A flow, since a leaf does not know its thread. A repeated call is safe: it sets the same role in memory.
        decorate = flow(name=_FUNCTION, description=FUNCTION_DESCRIPTION, approval=True, offered=False)
        return [decorate(_Requests(inside(runtime)).set)]

    def shapes(self, runtime: Runtime) -> Iterable[Shape[Any, Any]]:
        run = _Requests(inside(runtime)).request
        return [Shape(THREAD_ROLE, RoleRequest, RoleRequested, run, description=SHAPE_DESCRIPTION)]


@dataclass(frozen=True)
class _Requests:
    agent: AgentRuntime

    async def request(self, params: RoleRequest, ctx: TaskContext) -> RoleRequested:
        # Requests that cannot succeed are refused before a person is asked.
        message = await self._find_message(ctx.calls, params.message_id)
        await ctx.call(_FUNCTION, {"message_id": message.id})
        return RoleRequested(message_id=message.id, note="This message guides the turns after this one.")

    async def set(self, ctx: CallContext, message_id: MessageId) -> str:
        message = await self._find_message(ctx, message_id)
        parts, thread = self.agent.parts, ctx.scope.thread
        assert thread is not None, "a turn has a thread"
        parts.resolver.threads.set(thread, _role_of(message), parts.settings.thread_role_ttl, turn=ctx.frame.drive.turn)
        return message.id

    async def _find_message(self, ctx: CallContext, message_id: str) -> Message:
        """Return the message, if this turn's account wrote it on this thread and it can be a role.

        Raises:
            UnknownMessage: It is not in this conversation, another account wrote it, or it is not a person's message.
            RoleTooLong: It exceeds the limit of a role.
            LeaseLost: Another owner has taken over the thread.
        """
        parts = self.agent.parts
        turn = await parts.stores.turns.latest(thread_key(ctx.scope))
        if turn is None or turn.id != ctx.frame.drive.turn:
            raise LeaseLost(
                f"the turn {ctx.frame.drive.turn!r} no longer owns its thread", remedy="begin a new turn on it"
            )
        wanted = message_id or turn.asked
        await parts.engine.services.log.history(turn.asked, before=wanted, limit=1)  # raises if it is not found there
        message = await parts.engine.message(wanted)
        if message.kind != "message":
            raise UnknownMessage(
                f"the message {wanted!r} must be a person's message to become a role, but its kind is {message.kind!r}",
                remedy=OWN_MESSAGE_REMEDY,
            )
        if message.author != turn.author:
            raise UnknownMessage(f"the message {wanted!r} was written by another account", remedy=OWN_MESSAGE_REMEDY)
        if turn.on_behalf_of != ROOT or "untrusted" in message.body:
            raise UnknownMessage(f"the message {wanted!r} was not written by a person", remedy=OWN_MESSAGE_REMEDY)
        parts.resolver.threads.check(_role_of(message))
        return message


def _role_of(message: Message) -> Role:
    return Role(f"message {message.id}", message.body["text"])
