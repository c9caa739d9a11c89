"""The World Agent: one per workspace, with one identity, for many accounts, channels and threads (T1)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext
from dataclasses import replace
from datetime import datetime
from functools import partial
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

from pydantic import BaseModel

from ..core import STORED_TIERS, Clock, Scope, SystemClock, Tier, check_id
from ..core.clock import Expiring, abandoned
from ..core.errors import HostError, InvalidArgument, ModelNotConfigured
from ..core.events import Event
from ..core.pauses import UnattendedMode
from ..core.validation import is_text, own_copy
from ..graphs import Shape, ShapeRegistry
from ..harness import Function, Policy, Worker
from ..harness.gate import Approver
from ..harness.guard import OnError, harmless
from ..harness.inside import Inside
from ..harness.limits import Spent
from ..harness.trace import Trace, Traces, TraceSink
from ..harness.trace.index import TraceIndex
from ..harness.trace.tracer import Tracer
from ..mcp_client import HostRoleStore, HttpHost, StdioHost
from ..mcp_client.logins import LoginStore
from ..mcp_client.tools import McpServer, McpSources
from ..memory.attachments import Attachments
from ..memory.examples import ExampleFilters, Feedback
from ..profiles import Profile
from ..role_resolution import (
    ResolvedRole,
    ResolverOptions,
    Role,
    RoleExplanation,
    RoleResolver,
    RoleStore,
    SqliteRoleStore,
)
from ..role_resolution.role import check_role, refuses_texts
from ..skills import SkillCatalogue
from ..storage import Storage
from ..tools import BuiltinTools
from .choices import (
    all_models,
    all_tools,
    all_workers,
    allowed_tools,
    check_approver,
    check_kinds,
    check_notifier,
    check_profile,
    check_queue,
    chosen_profile,
    converse_class,
    generation_options,
    graph_options,
    listed,
    model_options,
    open_usage,
    prompt_of,
    registry_of,
    servers_of,
    skill_catalogue,
    society_functions,
)
from .following import EventFollower
from .memory import Memory, MemoryFunctions, WorkspaceMemory, open_memory
from .recording import Recorder
from .roles import RoleRequests, Roles, StoredRoles
from .runtime import RunnerParts, TurnRunner, call_without_turn, trace_messages
from .settings import UNSET, Settings, Unset
from .starts import Start
from .stores import Stores
from .submitting import Submission, Submissions, TurnQueue, submit
from .thread import Thread
from .threads import ThreadFilters, ThreadState, ThreadStatus
from .unattended import AccountEvents, Notifier
from .upkeep import Retention, Upkeep

if TYPE_CHECKING:
    from ..graphs.outer import LangChainTool, MessagesGraph
    from ..memory.entries import Recall
    from ..signatures import LM, Converse, ModelCaller, Program, TurnExample
    from ..society import Society, WorkspaceConfig
    from .outer import Node, NodeAnswer, NodeMessage, NodeThread


@refuses_texts
class WorldAgent:
    """The agent of one workspace. Use it as `async with WorldAgent(...) as agent:`.

    Creating one opens nothing and loads neither dspy nor langgraph; `start` does both. An agent belongs to the event
    loop that started it.

    Args:
        workspace: The workspace's id.
        identity: Who the agent is: static text of its Signatures, which no role changes.
        lm: A model string, `"local"` for the embedded model, or a `dspy.LM`. Default: the setting `lm`.
        tools: What the conversation and the workers can call: Python functions with type hints and a docstring, results
        of `@tool` and `@flow`, `dspy.Tool`s, and tools of LangChain. A profile or the policy narrows it.
        workers: What it can dispatch to: workers, files and folders of workers, and functions that replace a worker
            (H6, H8). The workers in the folder of the setting `workers` are added to these.
        models: Models by names that workers and turns can use; they override those of the setting `models`.
        policy: Which calls run at once, require approval or are refused (H9). Default: the file that the setting
            `policy` names.
        approver: Answers approval requests in this process. A request that it does not answer pauses the turn.
        notifier: Is called for each pause of an unattended turn.
        mcp: MCP servers by name, whose tools it can also call; they override those of the setting `mcp_servers`.
        shapes: Kinds of work besides `subagent`; those with a description are offered to the conversation.
        skills: Folders with skill packages, or a `SkillCatalogue`. Its conversations are offered them, and
            `thread.run_skill` runs one by name (T6).
        profile: What the agent starts with: a profile or its name. Default: the setting `profile` (P4).
        builtin_tools: What the built-in tools can access, such as the folders they work in. Default: the settings.
            The profile says which of the tools the agent has.
        storage: Where the agent keeps its files.
        roles: Where roles come from, and how several become one.
        memory: What it remembers across threads. Default: the setting `memory`. If off, no prompt has a place for it.
        society: Makes it the root of a workspace of members that know each other by introduction: a
            `worldagent.society.WorkspaceConfig` with the workspace's id. Messages need approval, unless the policy
            has `worldagent.society.SEND_RULES`.
        programs: Optimised, role-free programs by Signature name, or the JSON files they were saved to (R12).
        converse: A subclass of `worldagent.signatures.Converse`: the conversation's own instructions, further inputs
            (`converse(..., inputs=...)`) and further outputs (`turn.outputs`) (T20).
        queue: Keeps submitted turns until a worker process begins them: a `worldagent.scheduling.Queue` (D10).
        settings: The settings. Default: those from the environment and the settings file.
        trace: Where traces go besides the home, and what they capture (H5).
        on_error: Receives the original of every error that the agent replaces. It can hold a
            prompt: keep it in the process (D5).
        clock: Source of time.

    Raises:
        InvalidArgument, NameTaken, FunctionInvalid, SettingsInvalid, PolicyInvalid, ProfileInvalid: An argument, a
            setting or the profile is invalid; the text names it.
    """

    def __init__(
        self,
        workspace: str,
        *,
        identity: str | None = None,
        lm: str | LM | None = None,
        tools: Iterable[Function | Callable[..., Any]] = (),
        workers: Iterable[Worker | Function | PathLike[str]] = (),
        models: Mapping[str, str | LM] | None = None,
        mcp: Mapping[str, McpServer] | None = None,
        shapes: Iterable[Shape[Any, Any]] = (),
        skills: SkillCatalogue | Iterable[PathLike[str]] = (),
        profile: str | Profile | None = None,
        builtin_tools: BuiltinTools | None = None,
        policy: Policy | None = None,
        approver: Approver | None = None,
        notifier: Notifier | None = None,
        storage: Storage | None = None,
        roles: Roles | None = None,
        memory: Memory | None = None,
        society: WorkspaceConfig | None = None,
        programs: Mapping[str, Any] | None = None,
        converse: type[Converse] | None = None,
        queue: TurnQueue | None = None,
        settings: Settings | None = None,
        trace: Trace | TraceSink | Sequence[TraceSink] | None = None,
        on_error: OnError | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.workspace = check_id("workspace", workspace)
        check_kinds(storage=(storage, Storage), roles=(roles, Roles), settings=(settings, Settings))
        check_kinds(policy=(policy, Policy), builtin_tools=(builtin_tools, BuiltinTools))
        check_approver(approver)
        check_notifier(notifier)
        check_queue(queue)
        self._queue = queue
        self._notifier = notifier
        self.settings = settings if settings is not None else Settings()
        self._lm = lm if lm is not None else self.settings.lm
        if self._lm is None:
            raise ModelNotConfigured(
                "no model is configured",
                remedy="pass lm='local', a model string such as 'openai/gpt-4o', or a dspy.LM, or set the environment "
                "variable WORLDAGENT_LM",
            )
        if identity is not None and not is_text(identity):
            raise InvalidArgument("`identity` must be a non-empty string", remedy="say who the agent is, or omit it")
        self._identity = identity
        self._role_settings = roles if roles is not None else Roles()
        self._requests = RoleRequests(self._role_settings.on_request)
        self._models = all_models(models, self.settings)
        own_shapes = ShapeRegistry(listed("shapes", shapes)).shapes.values()
        self._shapes = (*own_shapes, *self._requests.shapes)
        self._skills = skill_catalogue(skills)
        self._profile = chosen_profile(profile, self.settings)
        self._tools = allowed_tools(builtin_tools, self.settings)
        check_kinds(memory=(memory, Memory))
        if memory is None and self.settings.memory:
            memory = Memory(embedder=self.settings.memory_embedder)
        self._memory = memory if self._profile.memory.long_term_memory else None
        self._memory_functions = MemoryFunctions(self._memory)
        self._society_functions = society_functions(society, self.workspace)
        members = () if self._society_functions is None else self._society_functions.functions
        own = (*all_tools(tools), *self._requests.functions, *self._memory_functions.functions, *members)
        self._storage = self.settings.storage(storage)
        every = all_workers(workers, self.settings)
        self._registry = registry_of(own, every, self._profile, self._tools, home=self._storage.resolve())
        self._policy = self.settings.gate_policy(policy)
        self._approver = approver
        self._servers = servers_of(self._profile, self.settings, mcp)
        check_profile(self._profile, self._registry, self._shapes, self._servers, self._tools)
        self._programs = dict(programs or {})
        self._converse = converse_class(converse)
        self._trace = Trace.of(trace)
        self._on_error = None if on_error is None else harmless(on_error)
        self._clock = clock or SystemClock()
        self._runner = TurnRunner()
        self._stack: AsyncExitStack | None = None
        self._lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._closing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"WorldAgent({self.workspace!r})"

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def start(self) -> Self:
        """Open the databases and the model. Starting a started agent does nothing.

        Raises:
            ModelNotConfigured, MissingExtra: The model cannot be used.
            StorageUnavailable, StorageInvalid, SchemaTooNew: The home cannot be used; no file of it is changed.
            NameTaken, FunctionInvalid: Workers, shapes or programs do not match each other.
        """
        async with self._changing():
            if self._stack is None:
                opened, task = AsyncExitStack(), asyncio.current_task()
                try:
                    parts = await self._open(opened)
                    if self._society_functions is not None:
                        parts = self._open_society(self._society_functions.config, parts)
                    self._requests.open(parts)
                    opened.callback(self._requests.close)
                    self._memory_functions.open(parts)
                    opened.callback(self._memory_functions.close)
                    if self._memory is not None and self._memory.source is None:
                        from .distilling import MemoryUpkeep

                        upkeep = MemoryUpkeep(parts, self.workspace, self._memory.distil_after)
                        opened.push_async_callback(upkeep.aclose)
                    self._runner.open(parts)
                    if self._society_functions is not None and parts.members is not None:
                        society = parts.members.society
                        self._society_functions.open(society, parts.stores.attachments)
                        await society.bootstrap()
                        opened.callback(self._society_functions.close)
                        opened.push_async_callback(society.aclose)
                except BaseException:  # any error is raised again, and the parts opened so far have threads to end
                    if not abandoned(task):
                        await opened.aclose()
                    raise
                self._stack, parts.stores.database.serving = opened, True
        return self

    async def aclose(self) -> None:
        """Cancel the running turns, then close everything. Closing a closed agent does nothing."""
        if not self._runner.inside():
            await self._close()
            return
        # Closing cancels the turn that runs this code, and that turn must still record its end.
        self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        async with self._changing():
            stack, self._stack = self._stack, None
            if stack is not None:
                # The turns are also ended if waiting for them is cancelled.
                stack.push_async_callback(self._runner.close)
                await stack.aclose()

    async def drain(self, seconds: float = 10.0) -> None:
        """Close the agent so that running turns can resume later: each turn stops at its next step (T5).

        Draining a closed agent does nothing; each of two concurrent drains waits no longer than its own `seconds`.

        Args:
            seconds: How long to wait. A turn that has not stopped by then is interrupted, and can be resumed as well. A
                Postgres server that answers nothing is given up 5 seconds later; its turns can be resumed as after a
                kill.
        """
        with self.stores.database.given_up_after(seconds) if self._runner.is_open else nullcontext():
            await self._runner.drain(seconds)
            await self.aclose()

    def thread(
        self,
        thread_id: str,
        *,
        account: str | None = None,
        channel: str | None = None,
        name: str | None = None,
        tiers: Collection[Tier] | None = None,
    ) -> Thread:
        """Return a handle on one conversation, as one account sees it. This costs nothing.

        Args:
            thread_id: The conversation's id within the workspace.
            account: The account that speaks; its role is the account tier.
            channel: Where the conversation takes place; its role is the channel tier.
            name: The speaker's display name in messages, 1 to 80 printable characters. It grants no rights.
            tiers: The tiers whose stored roles the turns have that begin here, such as `[Tier.WORKSPACE]`; None is all.
                A call role always counts. A resumed turn keeps this.

        Raises:
            InvalidArgument: An id or the name is invalid.
        """
        scope = Scope(workspace=self.workspace, account=account, channel=channel, thread=check_id("thread", thread_id))
        return Thread(self._runner, scope, name, None if tiers is None else tuple(tiers))

    @property
    def storage(self) -> Storage:
        """Where the agent keeps its files."""
        return self._storage

    @property
    def policy(self) -> Policy:
        """The policy that decides about its calls."""
        return self._policy

    @property
    def clock(self) -> Clock:
        """The agent's source of time."""
        return self._clock

    def check_shared(self) -> Self:
        """Return this agent if other machines can resume its turns, as far as it is configured for them (D10).

        On Postgres, its stored roles must be at a role host or in a store of the embedder, and it must have been given
        the role key: as the setting `role_key`, or as a file in its home. Call it before the agent opens, which creates
        the file.

        Raises:
            SettingsInvalid: Stored roles are in this home alone, or the role key would be a new one.
        """
        if self._storage.url is not None:
            self._role_settings.check_shared(self.settings, self._storage)
        return self

    @property
    def is_open(self) -> bool:
        """Whether it is started, and neither closed nor drained."""
        return self._runner.is_open

    @property
    def queue(self) -> TurnQueue | None:
        """The queue of submitted turns that it was created with."""
        return self._queue

    @property
    def stores(self) -> Stores:
        """The stores of its database, for `worldagent.scheduling`.

        Raises:
            AgentClosed: The agent is not open.
        """
        return self._runner.parts.stores

    @property
    def parts(self) -> RunnerParts:
        """Its parts, for `worldagent.autonomy`.

        Raises:
            AgentClosed: The agent is not open.
        """
        return self._runner.parts

    @property
    def profile(self) -> Profile:
        """The profile that the agent was started with; it does not change."""
        return self._profile

    @property
    def functions(self) -> tuple[Function, ...]:
        """All callables by name: functions, workers and shapes.

        Raises:
            AgentClosed: The agent is not open.
        """
        registry = self._runner.parts.engine.services.registry
        return tuple(registry.function(name) for name in registry.names)

    def find(self, capability: str) -> tuple[Function, ...]:
        """Return those of `functions` that list this capability in their `capabilities` (H10).

        Raises:
            AgentClosed: The agent is not open.
        """
        return self._runner.parts.engine.services.registry.find(capability)

    def add_worker(self, worker: Worker, *, trust: Callable[[Function], float] | None = None) -> None:
        """Add a worker while turns run. It lasts as long as this object, unless it is removed.

        Conversations that begin or resume from now on are offered it, unless it is declared with `offered=False`. Code,
        and workers that begin in a running turn, can call it at once.

        Args:
            worker: The worker.
            trust: Returns how much it is trusted with calls of a function, from 0 to 1. Above 0.70 a call that the
                policy has no rule for, and would ask about, needs no approval, if the worker has a ceiling with
                `authority` under which the call is `autonomous`. Destructive calls, and turns that have read untrusted
                content, ask as before (A8).

        Raises:
            NameTaken: A function, worker, shape or Signature has its name.
            ToolNotAllowed: The profile excludes it.
            FunctionInvalid: It is not a worker, its Signature cannot be made, or none of its tools exists.
            ModelNotConfigured: It names a model that cannot exist.
            PolicyInvalid: Its policy names a function, a caller or an argument that does not exist.
            AgentClosed: The agent is not open.
        """
        self._runner.parts.engine.add_worker(worker, trust=trust)

    def remove_worker(self, name: str) -> None:
        """Remove a worker while turns run. Its name can be used again.

        What it does now runs to its end, but the gate refuses further calls that it makes. New calls of it raise
        `UnknownWorker`, also in turns that run. A turn that waits below it cannot resume: `resume()` raises
        `GraphChanged` and takes no answer, until a worker with this name and these params is added again.

        Args:
            name: Its name.

        Raises:
            UnknownWorker: No worker has this name.
            ToolNotAllowed: The profile excludes it.
            AgentClosed: The agent is not open.
        """
        self._runner.parts.engine.remove_worker(name)

    @property
    def roles(self) -> StoredRoles:
        """The stored roles.

        Raises:
            AgentClosed: The agent is not open.
        """
        return StoredRoles(self._runner.parts.resolver, self.workspace)

    @property
    def society(self) -> Society:
        """The members of the workspace, whom they know, and their messages.

        Raises:
            AgentClosed: The agent is not open.
            InvalidArgument: The agent has no society.
        """
        self._runner.parts  # noqa: B018 -- it raises if the agent is closed
        if self._society_functions is None:
            raise InvalidArgument("this agent has no society", remedy="create it with society=WorkspaceConfig(...)")
        return self._society_functions.society

    @property
    def memory(self) -> WorkspaceMemory:
        """Add, search, edit and forget memory entries.

        Raises:
            AgentClosed: The agent is not open.
            InvalidArgument: The agent has no memory.
        """
        parts = self._runner.parts
        recall = parts.engine.services.recall
        if recall is None:
            raise InvalidArgument(
                "this agent has no memory, or its profile switches it off",
                remedy="create it with memory=Memory(), or set WORLDAGENT_MEMORY=true, and do not set "
                "long_term_memory: false in its profile",
            )
        return WorkspaceMemory(recall.source, self.workspace, parts)

    @property
    def attachments(self) -> Attachments:
        """Add, open and list the images and files that messages refer to.

        Raises:
            AgentClosed: The agent is not open.
        """
        return self._runner.parts.stores.attachments

    @property
    def traces(self) -> Traces:
        """List and read the traces of turns and calls in the home.

        Raises:
            AgentClosed: The agent is not open.
        """
        return self._runner.parts.tracer.traces(self.workspace)

    @property
    def mcp(self) -> McpSources:
        """The MCP servers by name: their availability, tools and resources.

        Raises:
            AgentClosed: The agent is not open.
        """
        return self._runner.parts.mcp

    @property
    def skills(self) -> SkillCatalogue:
        """The skills by name, with those of MCP servers; none if the profile switches skills off.

        Raises:
            AgentClosed: The agent is not open.
        """
        return self._runner.parts.skills

    @property
    def upkeep(self) -> Upkeep:
        """Remove, export and import threads, prune checkpoints, make backups.

        Raises:
            AgentClosed: The agent is not open.
        """
        parts = self._runner.parts
        old = self.settings.society_age
        return Upkeep(parts.stores, self.workspace, parts.resolver.store, society_age=old)

    async def call(self, name: str, input: Mapping[str, Any] | BaseModel, *, account: str | None = None) -> Any:
        """Call one function, worker or shape by name, without a turn.

        Args:
            name: The function, worker or shape.
            input: Its parameters.
            account: The account to call it for.

        Raises:
            UnknownFunction, ParamsInvalid, ResultInvalid, TaskFailed: See `worldagent.harness.call`.
            FunctionInvalid: Code inside a call uses this; it must use its call context instead.
            AgentClosed: The agent is not open.
        """
        Inside.refuse(name)
        scope = Scope(workspace=self.workspace, account=account)
        # The call begins in its own task, so later changes by the caller must not reach it.
        given = own_copy(input, lambda: input)
        return await self._runner.own(call_without_turn(self._runner.parts, scope, name, given))

    async def submit(
        self,
        start: Start,
        *,
        thread: Thread,
        key: str | None = None,
        role: Unset | None = UNSET,
        unattended: UnattendedMode | None = None,
        priority: int | None = None,
    ) -> Submission:
        """Submit a turn to the queue and return at once. A worker process with this agent begins it (D10).

        The turn is unattended. The stored roles that apply to its thread are resolved when a worker begins it.

        Args:
            start: What starts: a `StartMessage`, `StartTask` or `StartSkill`.
            thread: The thread, with the account that speaks. Turns of one thread run one after another.
            key: Makes a repeated submission the same turn; see `Thread.converse`. None makes a new key.
            role: Must be left out, since a call role is never stored. If this process has set a role for the thread,
                pass None to submit the turn without it.
            unattended: What the turn does if a person would be asked; None uses the setting `unattended`.
            priority: Starts with a lower number come first, 1 to 2,147,483,647; None comes before all numbers.

        Returns:
            A handle with the turn's status, events and result.

        Raises:
            InvalidArgument: An argument is invalid, or the agent has no queue. Nothing was written, as for all errors.
            UnknownShape, UnknownWorker, ParamsInvalid: The task cannot be run.
            UnknownTier, RoleNotStorable: The turn would have a call role, or a thread role of this process.
            KeyReused: The key was used on this thread for another request.
            MissingExtra: The extra `durable` is not installed.
            StorageUnavailable: The queue cannot be reached.
            AgentClosed: The agent is not open.
        """
        return await submit(self._runner, start, thread, key=key, role=role, unattended=unattended, priority=priority)

    def submission(self, thread: Thread, key: str) -> Submission:
        """Return the handle of a submitted turn, in any process.

        Args:
            thread: Its thread.
            key: Its key.
        """
        return Submission(self._runner, thread, key)

    async def usage(self, *, account: str | None = None) -> Spent:
        """Return today's usage (UTC) by all processes. A running turn's usage is added at its end at the latest.

        Args:
            account: The account; None is the entire workspace.

        Raises:
            InvalidArgument: `account` is not an id.
            AgentClosed: The agent is not open.
        """
        if account is not None:
            check_id("account", account)
        return await self._runner.parts.usage.used(self.workspace, account)

    async def explain_role(self, thread: Thread, *, role: Role | None = None) -> RoleExplanation:
        """Return the roles that a conversation turn would use now, with their order and lengths but without content.

        Args:
            thread: The thread that gives the tiers.
            role: A call role to include.
        """
        parts, call = self._runner.parts, check_role(role) if role is not None else None
        entry, others = parts.engine.signatures(None)
        return await parts.resolver.explain(thread.scope, call=call, entry=entry, signatures=others)

    async def threads(
        self,
        *,
        limit: int = 100,
        status: ThreadStatus | None = None,
        account: str | None = None,
        channel: str | None = None,
        query: str | None = None,
        archived: bool | None = False,
        prefixes: Collection[str] | None = None,
        before: datetime | str | None = None,
    ) -> tuple[ThreadState, ...]:
        """List the workspace's threads with their state; the thread whose newest turn began last comes first.

        A thread must match all given filters.

        Args:
            limit: The number of threads, 1 to 1000.
            status: Only threads with this status, such as `paused`.
            account: Only those on which a turn has run for this account. A thread that was forked or imported and has
                no turn yet matches if the account wrote one of its messages.
            channel: Only those whose newest turn ran in this channel, which the `channel` of the result shows.
            query: Only those whose title or conversation contains this text, 1 to 200 characters, in any letter case.
                The search covers messages, answers, and the inputs and results of tasks, skills and schedules, but
                neither what an edit replaced nor roles, which are not stored.
            archived: True lists the archived threads alone, and None both kinds.
            prefixes: Only those whose id begins with one of these, such as `ana:`.
            before: The next page: the `page_key` of the last thread that you have. An aware time gives the threads
                whose newest turn began before it. A thread without a turn counts from the time of its fork.

        Raises:
            InvalidArgument: `limit` is out of bounds, `status` is unknown, an id, `query`, `archived` or a prefix is
                invalid, or `before` is neither a page key nor an aware time.
            AgentClosed: The agent is not open.
        """
        wanted = ThreadFilters.of(
            limit=limit,
            status=status,
            account=account,
            channel=channel,
            query=query,
            archived=archived,
            prefixes=prefixes,
            before=before,
        )
        return await self._runner.parts.threads.list(self.workspace, wanted)

    async def turn(self, turn_id: str) -> ThreadState | None:
        """Return the state of a turn of the workspace, whether or not it is its thread's newest; None if it is unknown.

        Args:
            turn_id: The turn's id, as its events and a `Turn` carry it.

        Raises:
            InvalidArgument: `turn_id` is not a string.
            AgentClosed: The agent is not open.
        """
        return await self._runner.parts.threads.of_turn(self.workspace, _check_turn(turn_id))

    @overload
    def events(self, turn_id: str, *, after: int = 0) -> EventFollower: ...
    @overload
    def events(self, *, account: str | None = None) -> AsyncIterator[Event]: ...
    def events(
        self, turn_id: str | None = None, *, after: int = 0, account: str | None = None
    ) -> EventFollower | AsyncIterator[Event]:
        """Follow a recorded turn, in whatever process it runs: `async for event in agent.events(turn_id, after=7)`.

        A turn is recorded if it was begun or resumed with `detach=True`, or begun with a key. The iterator gives the
        stored events and then new ones, each once and in order. It ends when the turn no longer runs: the turn is
        over, or `resume()` can take it up. You can stop iterating at any time.

        Without a turn it follows an account instead: `async for event in agent.events(account="ana")` gives a
        `PauseNotified` for each pause of the account's unattended turns in this process, from the call until the
        agent is closed. None is all accounts of the workspace.

        Args:
            turn_id: The turn's id.
            after: The number (`seq`) of the last event that you have; 0 starts with the first one.
            account: The account, if no turn is given.

        Raises:
            InvalidArgument: `turn_id` is not a string, or `after` is not a non-negative integer.
            AgentClosed: The agent is not open.
            UnknownTurn: The turn does not exist. This error and those below are raised while iterating.
            InvalidArgument: `after` is beyond the turn's last event; the text names that event.
            EventsGone: The turn is not recorded, or its events after `after` have been removed (`event_age`).
            StorageInvalid, StorageUnavailable: They cannot be read.
        """
        if isinstance(after, bool) or not isinstance(after, int) or after < 0:
            raise InvalidArgument(
                "`after` must be a non-negative integer", remedy="pass the seq of the last event that you have"
            )
        if turn_id is None:
            return self._runner.parts.account_events.read(self.workspace, account)
        recorder = self._runner.parts.recorder
        return EventFollower(recorder, _check_turn(turn_id), workspace=self.workspace, after=after)

    def program(self, signature: str) -> Program:
        """Return a copy of one Signature's role-free program, to optimise, save and pass back as `programs=` (R12).

        Args:
            signature: Its name: `Converse` for the conversation, a worker's name, or a shape's Signature.

        Raises:
            InvalidArgument: No Signature has this name.
        """
        return self._runner.parts.engine.program(signature)

    async def use_program(self, signature: str, program: Any) -> None:
        """Use an optimised program in turns that begin or resume from now on. Running turns keep theirs (R12).

        It lasts until the agent closes; `programs=` is for all starts.

        Args:
            signature: The Signature's name: `Converse`, a worker's name, or a shape's Signature.
            program: The optimised, role-free program, or the JSON file that it was saved to.

        Raises:
            FunctionInvalid: No Signature has this name, the file cannot be read, or the program has other fields
                or code of its own.
        """
        self._runner.parts.engine.use_program(signature, program)

    def as_node(
        self, *, message: NodeMessage = "messages", answer: NodeAnswer = "messages", thread: NodeThread = None
    ) -> Node:
        """Return this agent as a node of a LangGraph graph: `builder.add_node("shop", agent.as_node())`.

        Each task of the node is one turn, also if the graph retries it or resumes it in another process. While the turn
        waits for a person, the graph is interrupted with `{"turn", "thread", "pauses"}` as JSON, and
        `Command(resume={pause_id: {"approve": {}}})` answers. An answer that is refused interrupts it again, with a
        `problem`. While an earlier turn of the thread waits, the graph is interrupted for that one, and the message is
        sent after it. The turn's events go to the graph's stream `custom`. The role is that of the graph's `context`: a
        `Role`, or an object or mapping with `role`. A `GraphContext` also has account, channel and inputs. Run the
        graph with `ainvoke` or `astream`, in this agent's loop.

        Args:
            message: Where the message is: a key of the state with a text or with messages, whose last human one is
                taken, or a function of the state that returns the text.
            answer: The key of the state that gets the answer: a message for `messages`, else the text. Or a function of
                the `Turn` that returns the node's update.
            thread: The thread, or a function of the graph's `Runtime` that returns one. Default: the thread with the id
                of the graph's `thread_id`, with the account and the channel of a `GraphContext`.

        Returns:
            The node's function. It raises the errors of `converse` and `resume`, `FunctionInvalid` outside of a graph
            and if the turn waits for a person in a graph without a checkpointer, `InvalidArgument` without a message or
            a `thread_id` and if the graph is resumed under another account, channel or inputs, `AgentClosed` if the
            agent is not open or the turn was stopped, and `NothingToResume` if the turn was cancelled.

        Raises:
            InvalidArgument: An argument has the wrong type.
        """
        from .outer import node_of

        return node_of(self.thread, message=message, answer=answer, thread=thread)

    def as_tool(self, name: str, description: str, *, thread: Thread | None = None) -> LangChainTool:
        """Return this agent as a tool of LangChain, which runs a turn for a text and returns its answer.

        In a graph the role is that of the graph's `context`, as for `as_node`. The tool is async: call it with
        `ainvoke`, and an agent that has it too.

        A turn that waits for a person is an error that the calling model reads, and the turn can be resumed. Set
        `tool.handle_tool_error = False` to raise it, a `ThreadPaused`, instead.

        Args:
            name: The tool's name: 1 to 64 letters, digits, `_` or `-`.
            description: What the agent does, for the model that calls the tool.
            thread: The thread of all calls. Default: each call has a new one.

        Returns:
            The tool. It raises the other errors of `converse`.

        Raises:
            InvalidArgument: An argument has the wrong type, a text is blank, or model services refuse the name.
        """
        from .outer import tool_of

        return tool_of(self.thread, name=name, description=description, thread=thread)

    def graph(self, *, checkpointer: Any = None, account: str | None = None) -> MessagesGraph:
        """Return this agent as a LangGraph graph of messages, which runs by itself and can be drawn (T19).

        `await graph.ainvoke({"messages": [("user", "Hi")]}, config, context=GraphContext(account="ana"))` runs a turn
        on the thread with the `thread_id` of the config. Its node is `converse`, which behaves as `as_node` says, and
        a turn is the subgraph of that node, with the tasks as subgraphs of the turn. The turn keeps its own
        checkpoints. The context is a `GraphContext` or a mapping with its fields. As a subgraph it takes `account`,
        `channel` and `role` from the context of the graph around it, if they are there.

        On a LangGraph server the account is the user that the server has authenticated, and a context with an account
        or a role is refused, because the server stores it. `worldagent.hosts.langgraph:graph` is the graph for one.

        Args:
            checkpointer: The graph's own checkpointer, which it needs to be interrupted while a turn waits for a
                person. A LangGraph server brings one.
            account: The account of runs that name none.

        Raises:
            AgentClosed: The agent is not open.
            InvalidArgument: `account` is not a valid id.
        """
        from .outer import graph_of

        if account is not None:
            check_id("account", account)
        return graph_of(self, self._runner.parts.engine.graph, checkpointer=checkpointer, account=account)

    async def examples(
        self,
        signature: str | None = None,
        *,
        account: str | None = None,
        feedback: Feedback | None = None,
        limit: int = 1000,
    ) -> list[TurnExample]:
        """Return recorded turns as examples of dspy, to evaluate and optimise programs.

        There is one for each step of a model, and one for each run of a module shape with an entry Signature.

        The setting `examples` says which turns are kept. Only turns that are done are returned, newest first, and the
        steps of a turn in their order. An example has no role and no text that a role of its turn shares. Its inputs
        are those that the model got; what it knew from earlier calls of the turn is at the end of the history.

        Args:
            signature: Only steps of this Signature, such as `Converse` or a worker's name.
            account: Only turns of this account.
            feedback: Only turns with this feedback.
            limit: The number of examples, 1 to 10,000.

        Raises:
            InvalidArgument: `feedback` or `limit` is invalid, or no Signature of the agent, nor of a kept example, has
                the name.
            AgentClosed: The agent is not open.
        """
        wanted = ExampleFilters(signature=signature, account=account, feedback=feedback, limit=limit)
        parts = self._runner.parts
        found = await parts.stores.examples.list(self.workspace, wanted)
        if signature is not None and not found:
            # A Signature that the agent had earlier is known by its examples.
            earlier = await parts.stores.examples.list(self.workspace, ExampleFilters(signature=signature, limit=1))
            parts.engine.check_trained(signature, *(kept.signature for kept in earlier))
        return await asyncio.to_thread(lambda: [parts.engine.example(kept) for kept in found])

    def _changing(self) -> asyncio.Lock:
        """Held while the agent opens or closes, so that a second caller at the same time finds it done."""
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock[0] is not loop:
            self._lock = (loop, asyncio.Lock())
        return self._lock[1]

    async def _open_skills(self, mcp: McpSources, opened: AsyncExitStack) -> SkillCatalogue:
        catalogue = self._skills
        if not self._profile.skills.enabled:
            return SkillCatalogue(())
        if any(server.skills for server in self._servers.values()):
            from ..skills.hosted import fetch_skills

            folder = Path(opened.enter_context(TemporaryDirectory(prefix="worldagent-skills-")))
            catalogue = catalogue.with_hosts(await fetch_skills(self._servers, mcp, folder))
        return catalogue

    def _skill_shapes(self, catalogue: SkillCatalogue, resolver: RoleResolver) -> tuple[Shape[Any, Any], ...]:
        if not catalogue.usable:
            return ()
        from ..skills.composer import SkillComposer

        made = SkillComposer(
            catalogue,
            self._registry,
            self._policy,
            self._identity,
            lambda: resolver.key,
            memory=self._memory is not None,
            find_tools_above=self.settings.find_tools_above,
        )
        return (made.shape(),)

    async def _open_model(self) -> ModelCaller:
        from ..signatures import open_model

        settings, generation = self.settings, generation_options(self.settings, self._profile)
        assert self._lm is not None
        return await open_model(
            self._lm,
            api_base=settings.api_base,
            options=model_options(settings, self.workspace),
            generation=generation.sent(),
            headers=generation.revealed_headers(),
            on_error=self._on_error,
        )

    def _open_society(self, config: WorkspaceConfig, parts: RunnerParts) -> RunnerParts:
        """Return the parts with the members of the workspace."""
        from ..society import Society
        from ..society.wakeups import wakeups_of
        from ..society.workers import MemberWorkers

        stores, engine, notify = parts.stores, parts.engine, partial(trace_messages, parts, self.workspace)
        wakeups = wakeups_of(stores.database, self.settings.nats_url)
        is_taken = engine.is_taken
        society = Society(config, stores.database, stores.clock, notify=notify, wakeups=wakeups, is_taken=is_taken)
        known = engine.services.registry.workers
        members = MemberWorkers(society, known, add=engine.add_worker, remove=engine.remove_worker)
        return replace(parts, members=members)

    async def _open(self, opened: AsyncExitStack) -> RunnerParts:
        # Imported here, since this loads dspy and langgraph: a program that only imports `WorldAgent` must not wait.
        from ..graphs import CheckpointSaver, TurnEngine
        from ..graphs.context import Services
        from ..signatures.models import Models

        settings, caller = self.settings, await self._open_model()
        opened.push_async_callback(caller.aclose)
        models = Models(caller, self._models, api_base=settings.api_base, on_error=self._on_error)
        opened.push_async_callback(models.aclose)
        limit, wait = settings.attachment_limit, settings.thread_wait
        stores = await Stores.open(self._storage, self._clock, limit=limit, wait=wait)
        opened.push_async_callback(stores.aclose)
        tracer = self._open_traces(opened)
        usage = open_usage(settings, stores, self.workspace)
        opened.push_async_callback(usage.aclose)
        resolver = await self._open_resolver(opened)
        mcp = await self._open_servers(stores.attachments, opened)
        skills = await self._open_skills(mcp, opened)
        recall = await self._open_memory(stores, opened)
        submissions = Submissions(self._queue, self._storage, self.workspace)
        opened.push_async_callback(submissions.aclose)
        services = Services(
            caller=caller,
            models=models,
            registry=self._registry,
            resolver=resolver,
            log=stores.log,
            clock=self._clock,
            summary_cooldown=Expiring(self._clock),
            on_error=self._on_error,
            journal=stores.journal,
            attachments=stores.attachments,
            examples=stores.examples,
            kept=stores.kept,
            recall=recall,
            policy=self._policy,
            approver=self._approver,
            callbacks=tuple(self._trace.callbacks),
        )
        engine = TurnEngine(
            await CheckpointSaver(stores.database).create_tables(),
            services,
            shapes=(*self._shapes, *self._skill_shapes(skills, resolver)),
            branches=stores.branches,
            identity=self._identity,
            prompt=prompt_of(self._profile, self._registry, self._tools),
            options=graph_options(settings, self._profile),
            programs=self._programs,
            converse=self._converse,
            operators=self._society_functions is not None,
        )
        pins = Expiring[ResolvedRole](self._clock)
        recorder = Recorder(stores.events, stores.leases, age=settings.event_age)
        opened.push_async_callback(recorder.aclose)
        account_events = AccountEvents()
        opened.callback(account_events.close)

        def removed(thread: str, turn: str) -> None:
            resolver.threads.forget(thread)
            pins.drop(turn)

        keep, age = settings.checkpoint_keep or None, settings.checkpoint_age
        return RunnerParts(
            engine=engine,
            resolver=resolver,
            stores=replace(stores, heads=engine.heads, removed=removed, flush=tracer.flush),
            settings=settings,
            pins=pins,
            retention=Retention(stores.checkpoints, self._clock, keep, age),
            usage=usage,
            mcp=mcp,
            skills=skills,
            profile=self._profile,
            recorder=recorder,
            notifier=self._notifier,
            account_events=account_events,
            tracer=tracer,
            submissions=submissions,
        )

    async def _open_memory(self, stores: Stores, opened: AsyncExitStack) -> Recall | None:
        if self._memory is None:
            return None
        recall = await open_memory(self._memory, stores.entries, self.workspace, self.settings, opened)
        if self._society_functions is None:
            return recall
        from ..society import Society
        from ..society.reading import reader_of

        society = Society(self._society_functions.config, stores.database, self._clock)
        return replace(recall, readers=partial(reader_of, society))

    def _open_traces(self, opened: AsyncExitStack) -> Tracer:
        """Open the tracer; the home's trace file is created with the first trace."""
        clock = self._clock
        index = TraceIndex(self._storage.traces, age=self.settings.trace_age, clock=lambda: clock.now().timestamp())
        tracer = self._trace.tracer(index, on=self.settings.trace)
        opened.push_async_callback(tracer.aclose)
        return tracer

    async def _open_servers(self, attachments: Attachments, opened: AsyncExitStack) -> McpSources:
        async def keep(scope: Scope | None, content: bytes, media_type: str, kind: str) -> Mapping[str, Any]:
            store = attachments if scope is None else attachments.reached_by(scope)
            return (await store.add(content, name=kind, media_type=media_type)).to_json()

        logins = LoginStore(self._storage.resolve(), self.workspace)
        sources = McpSources(self._servers, registry=self._registry, clock=self._clock, keep=keep, logins=logins)
        opened.push_async_callback(sources.aclose)
        await sources.start()
        return sources

    async def _open_resolver(self, opened: AsyncExitStack) -> RoleResolver:
        settings = self.settings
        key = self._storage.role_key if settings.role_key is None else settings.role_key.get_secret_value()
        resolver = RoleResolver(
            await self._open_role_store(opened),
            self._role_settings.sources,
            options=ResolverOptions(
                policy=self._role_settings.policy,
                on_unavailable=self._role_settings.on_unavailable,
                limit=settings.role_limit,
                timeout=settings.role_timeout,
                cache_ttl=settings.role_cache_ttl,
                key=key,
            ),
            clock=self._clock,
        )
        await resolver.load_key()
        return resolver

    async def _open_role_store(self, opened: AsyncExitStack) -> RoleStore:
        host = self._role_settings.host_of(self.settings)
        if isinstance(host, HttpHost | StdioHost):
            reached = HostRoleStore(host, clock=self._clock)
            opened.push_async_callback(reached.aclose)
            # A host that is down fails a turn or is skipped by it (R14); the agent starts without it.
            with contextlib.suppress(HostError, TimeoutError):
                async with asyncio.timeout(self.settings.role_timeout):
                    await reached.connect()
            return reached
        if host is not None:
            return host
        # If the embedder passes a source for the channel tier, the embedded store does not offer that tier.
        offered = frozenset(STORED_TIERS) - self._role_settings.sources.keys()
        store = await SqliteRoleStore.open(self._storage.roles, limit=self.settings.role_limit, tiers=offered)
        opened.push_async_callback(store.aclose)
        return store


def _check_turn(turn_id: object) -> str:
    if not isinstance(turn_id, str):
        raise InvalidArgument("`turn_id` must be a string", remedy="use the id from an event or a Turn")
    return turn_id
