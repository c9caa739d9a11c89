"""The World Agent: one per workspace, with one identity, for many accounts, channels and threads (T1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext, suppress
from datetime import datetime
from os import PathLike
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from pydantic import BaseModel

from ..core import Clock, Scope, Tier, check_id
from ..core.capability import Capability
from ..core.clock import abandoned
from ..core.errors import CapabilityFailed, FunctionInvalid, InvalidArgument
from ..core.events import TurnEvent
from ..core.pauses import UnattendedMode
from ..core.validation import own_copy
from ..graphs import Shape
from ..harness import Function, Policy, Worker
from ..harness.gate import Approver
from ..harness.guard import OnError
from ..harness.inside import Inside
from ..harness.limits import Spent
from ..harness.trace import Trace, Traces, TraceSink
from ..memory.attachments import Attachments
from ..memory.examples import ExampleFilters, Feedback
from ..memory.reports import ReportMode
from ..profiles import Profile
from ..role_resolution import (
    Role,
    RoleExplanation,
)
from ..role_resolution.role import check_role, refuses_texts
from ..storage import Storage
from ..tools import BuiltinTools
from .assembly import Shorthands, open_agent, spec_of
from .background.tasks import BackgroundTask, check_report, dispatch, tasks_of
from .blocking import run_alone
from .following import EventFollower
from .requests import Request, Say, Skill, Task
from .roles import Roles, StoredRoles
from .runtime import TurnRunner, call_without_turn
from .runtime.inside import AgentRuntime
from .settings import UNSET, Settings, Unset
from .starts import Start
from .submitting import Submission, submit
from .thread import Thread, begin_pending
from .threads import ThreadFilters, ThreadState, ThreadStatus
from .turns import Turn, not_done
from .unattended import Notifier
from .upkeep import Upkeep

if TYPE_CHECKING:
    from ..graphs.outer import LangChainTool, MessagesGraph
    from ..signatures import LM, Converse, Program, TurnExample
    from ..skills import SkillCatalogue
    from .memory import WorkspaceMemory
    from .outer import Node, NodeAnswer, NodeMessage, NodeThread


T = TypeVar("T")


@refuses_texts
class WorldAgent:
    """The agent of one workspace. Use it as `async with WorldAgent(...) as agent:`, or call `ask` where nothing awaits.

    Creating one opens nothing and loads neither dspy nor langgraph; `start` does both. An agent belongs to the event
    loop that started it.

    Args:
        workspace: The workspace's id.
        identity: Who the agent is: static text of its Signatures, which no role changes.
        lm: A model string, `"local"` for the embedded model, or a `dspy.LM`. Default: the setting `lm`, else the
            embedded model, if its extra is installed.
        tools: What the conversation and the workers can call: Python functions with type hints and a docstring, results
        of `@tool` and `@flow`, `dspy.Tool`s, and tools of LangChain. A profile or the policy narrows it.
        workers: What it can dispatch to: workers, files and folders of workers, and functions that replace a worker
            (H6, H8). The workers in the folder of the setting `workers` are added to these.
        models: Models by names that workers and turns can use; they override those of the setting `models`.
        policy: Which calls run at once, require approval or are refused (H9). Default: the file that the setting
            `policy` names.
        approver: Answers approval requests in this process. A request that it does not answer pauses the turn.
        notifier: Is called for each pause of an unattended turn.
        shapes: Kinds of work besides `subagent`; those with a description are offered to the conversation.
        profile: What the agent starts with: a profile or its name. Default: the setting `profile` (P4).
        builtin_tools: What the built-in tools can access, such as the folders they work in. Default: the settings.
            The profile says which of the tools the agent has.
        storage: Where the agent keeps its files.
        roles: Where roles come from, and how several become one.
        programs: Optimised, role-free programs by Signature name, or the JSON files they were saved to (R12).
        converse: A subclass of `worldagent.signatures.Converse`: the conversation's own instructions, further inputs
            (`converse(..., inputs=...)`) and further outputs (`turn.outputs`) (T20).
        settings: The settings. Default: those from the environment and the settings file.
        trace: Where traces go besides the home, and what they capture (H5).
        on_error: Receives the original of every error that the agent replaces. It can hold a
            prompt: keep it in the process (D5).
        clock: Source of time.
        capabilities: Features beside the core, as objects or as names of installed ones.
        shorthands: `mcp`, `skills`, `memory`, `society` and `queue` stand for capabilities of this package; see
            `Shorthands`.

    Raises:
        InvalidArgument, NameTaken, FunctionInvalid, SettingsInvalid, PolicyInvalid, ProfileInvalid: An argument, a
            setting or the profile is invalid; the text names it.
        CapabilityFailed: A capability raised another error; the text names it.
    """

    def __init__(
        self,
        workspace: str = "default",
        *,
        identity: str | None = None,
        lm: str | LM | None = None,
        tools: Iterable[Function | Callable[..., Any]] = (),
        workers: Iterable[Worker | Function | PathLike[str]] = (),
        models: Mapping[str, str | LM] | None = None,
        shapes: Iterable[Shape[Any, Any]] = (),
        profile: str | Profile | None = None,
        builtin_tools: BuiltinTools | None = None,
        policy: Policy | None = None,
        approver: Approver | None = None,
        notifier: Notifier | None = None,
        storage: Storage | None = None,
        roles: Roles | None = None,
        programs: Mapping[str, Any] | None = None,
        converse: type[Converse] | None = None,
        settings: Settings | None = None,
        trace: Trace | TraceSink | Sequence[TraceSink] | None = None,
        on_error: OnError | None = None,
        clock: Clock | None = None,
        capabilities: Iterable[Capability[Any] | str] = (),
        **shorthands: Unpack[Shorthands],
    ) -> None:
        self._runtime = AgentRuntime(workspace)
        self._spec = spec_of(
            self._runtime,
            identity=identity,
            lm=lm,
            tools=tools,
            workers=workers,
            models=models,
            shapes=shapes,
            profile=profile,
            builtin_tools=builtin_tools,
            policy=policy,
            approver=approver,
            notifier=notifier,
            storage=storage,
            roles=roles,
            programs=programs,
            converse=converse,
            settings=settings,
            trace=trace,
            on_error=on_error,
            clock=clock,
            capabilities=capabilities,
            shorthands=shorthands,
        )
        self._runtime.spec, self.workspace, self.settings = self._spec, self._spec.workspace, self._spec.settings
        self._runner = TurnRunner(begin_pending)
        self._runtime.pending = self._runner.pending
        self._stack: AsyncExitStack | None = None
        self._lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._changer = 0  # the id of the task that holds the lock
        self._closing: asyncio.Task[None] | None = None
        self._alone = Lock()  # held while the agent is open for one turn of `run_sync`

    def __repr__(self) -> str:
        return f"WorldAgent({self.workspace!r})"

    def ask(self, text: str, *, role: Role | None = None, thread: Thread | str = "default") -> str:
        """Send a message and return the answer, in a script or a notebook: `WorldAgent("shop").ask("What is new?")`.

        Args:
            text: The person's message.
            role: The role for this one turn.
            thread: The conversation, which the message continues.

        Returns:
            The answer.

        Raises:
            ThreadPaused: The turn waits for a person, or was stopped; the text says how it continues.
            NothingToResume: The turn was cancelled.
            AgentClosed, InvalidArgument, WorldAgentError: As for `run_sync`.
        """
        turn = self.run_sync(Say(text, role=role), thread=thread)
        if turn.status == "done":
            return turn.text
        raise not_done(turn)

    def run_sync(self, request: Request, *, thread: Thread | str = "default") -> Turn:
        """Run a turn without `await`: open the agent, run the turn as `Thread.run` does, and close the agent.

        This works where an event loop runs, too: the turn has a thread with a loop of its own, and the caller's loop
        waits for it. Use `async with` and `await` to keep the agent open, or to run several turns at once. Ctrl-C stops
        the turn as `drain` does, so that `Resume()` continues it.

        Args:
            request: What the turn begins or continues with, such as `Say(text)` or `Resume(answers)`.
            thread: The thread, or its id.

        Returns:
            The turn, which can be `paused` for a person.

        Raises:
            AgentClosed: The agent is open in an event loop, which can be that of the caller, or for another thread's
                call of this.
            KeyboardInterrupt: The turn was stopped.
            WorldAgentError: As for `start` and `Thread.run`.
        """
        return run_alone(self, self.thread(thread) if isinstance(thread, str) else thread, request)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.aclose()
        except CapabilityFailed:  # `on_error` has the original
            if error is None:  # that of the block is the one to raise
                raise

    async def start(self) -> Self:
        """Open the databases and the model. Starting a started agent does nothing.

        Raises:
            ModelNotConfigured, MissingExtra: The model cannot be used.
            StorageUnavailable, StorageInvalid, SchemaTooNew: The home cannot be used; no file of it is changed.
            NameTaken, FunctionInvalid: Workers, shapes or programs do not match each other. Or a capability calls this
                while the agent opens or closes.
            CapabilityFailed: A capability could not be opened or started.
        """
        async with self._changing():
            self._changer = id(asyncio.current_task())
            if self._stack is None:
                opened, task = AsyncExitStack(), asyncio.current_task()
                try:
                    parts = await open_agent(self._spec, self._runtime, self._runner, opened)
                except BaseException:  # any error is raised again, and the parts opened so far have threads to end
                    if not abandoned(task):
                        with suppress(CapabilityFailed):  # as it closes; the first error is the one to raise
                            await opened.aclose()
                    raise
                self._stack, parts.stores.database.serving = opened, True
        return self

    async def aclose(self) -> None:
        """Cancel the running turns, then close everything. Closing a closed agent does nothing.

        Raises:
            CapabilityFailed: A capability raised as it closed, or had not closed after 30 seconds; all else is closed.
            FunctionInvalid: A capability calls this while the agent opens or closes.
        """
        self._changing()
        if not self._runner.inside():
            await self._close()
            return
        # Closing cancels the turn that runs this code, and that turn must still record its end.
        self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        async with self._changing():
            self._changer = id(asyncio.current_task())
            stack, self._stack = self._stack, None
            if stack is not None:
                await stack.aclose()

    async def drain(self, seconds: float = 10.0) -> None:
        """Close the agent so that running turns can resume later: each turn stops at its next step (T5).

        Draining a closed agent does nothing; each of two concurrent drains waits no longer than its own `seconds`.

        Args:
            seconds: How long to wait. A turn that has not stopped by then is interrupted, and can be resumed as well. A
                Postgres server that answers nothing is given up 5 seconds later; its turns can be resumed as after a
                kill. A capability that has not closed 30 seconds later is given up, too.

        Raises:
            CapabilityFailed, FunctionInvalid: As for `aclose`.
        """
        with self._runner.parts.stores.database.given_up_after(seconds) if self.is_open else nullcontext():
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
        return self._spec.storage

    @property
    def policy(self) -> Policy:
        """The policy that decides about its calls."""
        return self._spec.policy

    @property
    def is_open(self) -> bool:
        """Whether it is started, and neither closed nor drained."""
        return self._runner.is_open

    @property
    def profile(self) -> Profile:
        """The profile that the agent was started with; it does not change."""
        return self._spec.profile

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

    def get(self, kind: type[Capability[T]]) -> T:
        """Return what a capability of this agent offers: `agent.get(Members)` is its society.

        Args:
            kind: The class of the capability.

        Raises:
            AgentClosed: The agent is not open.
            InvalidArgument: The agent has no such capability, or `kind` is not the class of one.
        """
        if not (isinstance(kind, type) and issubclass(kind, Capability)):
            raise InvalidArgument("`kind` must be the class of a capability", remedy="pass a class such as Members")
        own = next((each.name for each in self._spec.capabilities if isinstance(each, kind)), "")
        name = getattr(kind, "name", kind.__name__)
        found: T = self._opened(own, f"this agent has no {name}", f"create it with capabilities=[{kind.__name__}(...)]")
        return found

    def _opened(self, name: str, problem: str, remedy: str) -> Any:
        self._runner.parts  # noqa: B018 -- it raises if the agent is closed
        if name not in self._runtime.opened:
            raise InvalidArgument(problem, remedy=remedy)
        return self._runtime.opened[name]

    @property
    def society(self) -> Any:
        """The members of the workspace, whom they know, and their messages.

        Raises:
            AgentClosed: The agent is not open.
            InvalidArgument: The agent has no society.
        """
        return self._opened("society", "this agent has no society", "create it with society=WorkspaceConfig(...)")

    @property
    def memory(self) -> WorkspaceMemory:
        """Add, search, edit and forget memory entries.

        Raises:
            AgentClosed: The agent is not open.
            InvalidArgument: The agent has no memory.
        """
        remedy = "create it with memory=Memory(), or set WORLDAGENT_MEMORY=true, and do not set long_term_memory: false"
        problem = "this agent has no memory, or its profile switches it off"
        memory: WorkspaceMemory = self._opened("memory", problem, f"{remedy} in its profile")
        return memory

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
    def skills(self) -> SkillCatalogue:
        """The skills by name, with those of MCP servers; none if the profile switches skills off.

        Raises:
            AgentClosed: The agent is not open.
        """
        from ..skills import SkillCatalogue as Catalogue

        self._runner.parts  # noqa: B018 -- it raises if the agent is closed
        found: SkillCatalogue = self._runtime.opened.get("skills", Catalogue(()))
        return found

    @property
    def upkeep(self) -> Upkeep:
        """Remove, export and import threads, prune checkpoints, make backups.

        Raises:
            AgentClosed: The agent is not open.
        """
        parts = self._runner.parts
        old = self.settings.society_age
        return Upkeep(parts.stores, self.workspace, parts.resolver.store, aged=parts.hooks.aged, society_age=old)

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
        start: Start | Say | Task | Skill,
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
            start: What starts: a `Say`, `Task` or `Skill` with options that can be stored, which are its `key`,
                `unattended`, `guard`, `inputs` and params; or a `StartMessage`, `StartTask` or `StartSkill`.
            thread: The thread, with the account that speaks. Turns of one thread run one after another.
            key: Makes a repeated submission the same turn; see `Say`. None makes a new key.
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

    async def background(
        self,
        request: Say | Task | Skill,
        *,
        thread: Thread,
        report: ReportMode = "turn",
        key: str | None = None,
        role: Unset | None = UNSET,
    ) -> BackgroundTask:
        """Let something work in the background of a conversation, and return at once (T17).

        It is a turn on a thread of its own. When it ends, waits for a person or fails, the conversation is told. It
        outlives the process: the next agent that opens this home goes on with it. Cancelling or removing the thread
        ends it. The stored roles that apply to the thread are resolved when it begins; work that is dispatched from
        inside of a call resolves none.

        Args:
            request: What to do, with options that can be stored; see `submit`.
            thread: The conversation that is told, with the account that the work is for.
            report: What happens where no turn of the conversation runs then: `"turn"` begins one, `"next"` waits for
                the next one, and `"event"` tells the conversation nothing; it is an event of the account in any case.
            key: Makes a repeated call the same work: 1 to 200 printable characters, unique in this thread.
            role: Must be left out, since a call role is never stored. If this process has set a role for the thread,
                pass None to work without it.

        Raises:
            InvalidArgument: An argument is invalid, or the agent was created without `background`.
            UnknownShape, UnknownWorker, UnknownSkill, ParamsInvalid: The work cannot be run. Nothing was written.
            RoleNotStorable: It would have a call role, or a thread role of this process.
            LimitReached: The conversation or the account has too much work in the background.
            KeyReused: The key was used on this thread for another request.
            AgentClosed: The agent is not open.
        """
        remedy = "create it with background=True, or start the command with --with background"
        self._opened("background", "this agent does not work in the background", remedy)
        checked = None if key is None else check_id("key", key)
        return await dispatch(self._runner, request, thread, report=check_report(report), key=checked, role=role)

    async def background_tasks(self, thread: Thread) -> tuple[BackgroundTask, ...]:
        """Return the work in the background of a conversation, of all accounts, oldest first, also what is over.

        Args:
            thread: The conversation.
        """
        return await tasks_of(self._runner, thread)

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

        A thread must match all given filters. The threads of background tasks are left out, unless a status is given or
        `archived` is None; `background_tasks` has those of one conversation.

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
    def events(self, *, account: str | None = None) -> AsyncIterator[TurnEvent]: ...
    def events(
        self, turn_id: str | None = None, *, after: int = 0, account: str | None = None
    ) -> EventFollower | AsyncIterator[TurnEvent]:
        """Follow a recorded turn, in whatever process it runs: `async for event in agent.events(turn_id, after=7)`.

        A turn is recorded if it was begun or resumed with `detach=True`, or begun with a key. The iterator gives the
        stored events and then new ones, each once and in order. It ends when the turn no longer runs: the turn is
        over, or `resume()` can take it up. You can stop iterating at any time.

        Without a turn it follows an account instead: `async for event in agent.events(account="ana")` gives a
        `PauseNotified` for each pause of the account's unattended turns in this process, from the call until the
        agent is closed, and the owner of a workspace with members gets a `StallFound` for each stall that a gateway in
        this process finds. None is all accounts of the workspace.

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
        turn = self._runner.parts.engine.graph
        return graph_of(self.thread, self.workspace, turn, checkpointer=checkpointer, account=account)

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
        """Held while the agent opens or closes, so that a second caller at the same time finds it done.

        Raises:
            FunctionInvalid: The calling code runs in the opening or the closing, which would wait for itself.
        """
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock[0] is not loop:
            self._lock = (loop, asyncio.Lock())
        if self._lock[1].locked() and self._changer == id(asyncio.current_task()):
            raise FunctionInvalid(
                "a capability cannot start or close its agent while the agent opens or closes",
                remedy="leave that to the program, or do it later in a task of your own",
            )
        return self._lock[1]


def _check_turn(turn_id: object) -> str:
    if not isinstance(turn_id, str):
        raise InvalidArgument("`turn_id` must be a string", remedy="use the id from an event or a Turn")
    return turn_id
