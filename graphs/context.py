"""Three lifetimes: `Services` lives as long as the agent, `TurnContext` as long as a turn, `TaskContext` as a task.

Only `TurnContext` carries the role. LangGraph passes it as `context=` and never stores it (D1).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..core import Clock, Emitter, ModelUsage, Scope, SystemClock
from ..core.clock import Expiring
from ..core.errors import ModelRateLimited, ModelTimeout, ModelUnavailable
from ..core.events import (
    Deltas,
    ModelWaiting,
    ReasoningDelta,
    RoleWithheld,
    TaskArgumentsDelta,
    TaskReasoningDelta,
    TaskTextDelta,
    TextDelta,
    TextReplaced,
    UnnumberedEvent,
    Usage,
)
from ..harness import Policy, Registry
from ..harness.gate import CODE, Approver, Caller, Gate
from ..harness.guard import OnError
from ..harness.journal import Drive, Journal
from ..harness.limits import Budget
from ..harness.places import Places
from ..memory import MAY_HOLD_ROLE, ConversationLog, Draft
from ..memory.attachments import Attachments
from ..memory.conversation import SPEAKER, KeptMessages
from ..memory.entries import Passage, Recall
from ..memory.examples import Examples
from ..memory.inbox import Inbox, Reading
from ..role_resolution import NO_ROLE, ResolvedRole, RoleResolver
from ..signatures import CONVERSE, Listener, ModelCaller, PastStep, PredictorPool, Signature
from ..signatures.callbacks import Watch, dspy_callbacks
from ..signatures.models import Models
from ..signatures.summaries import ask_without_role, scrubbed, without_roles
from ..storage import Lease
from .examples import ExampleKeeper
from .requests import GraphOptions
from .shape import ShapeRegistry
from .speaking import Speaker

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig


T = TypeVar("T")

_OUTAGE: Final = (ModelUnavailable, ModelTimeout, ModelRateLimited)

AGENT = "agent"
"""The author of the agent's own messages."""

WAITING, STOPPED = "waiting", "stopped"
"""The value of an interrupt that stops a graph before its end. It only informs readers of a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The values that all turns of one agent share; process lifetime.

    A turn with another model has a copy with that model.

    Attributes:
        caller: The default model.
        fallbacks: The names of the models that are tried if it cannot be reached.
        models: The models that a turn can name.
        registry: Functions and workers.
        shapes: Shapes of tasks.
        predictors: The programs of the Signatures.
        resolver: Resolves roles; its key makes the digests of roles that are stored.
        log: The conversation log.
        attachments: Contents of attachments.
        clock: Tells the time.
        summary_cooldown: The threads whose summaries failed recently in this process, and are not tried at every turn.
        options: The limits of a turn.
        on_error: Receives exceptions that code of the embedder raised.
        journal: The calls of turns; None stores none, and then a turn is over when its run ends.
        places: The marks of what functions write; None knows none.
        kept: Messages that people marked.
        inbox: Messages that came beside turns.
        examples: Knows which turns are kept as examples; None keeps none.
        recall: Recalls memory entries; None recalls none, and then no prompt has a place for them.
        policy: Decides what requires approval.
        approver: Decides in place of a person.
        callbacks: What `Trace(callbacks=...)` names, of LangChain and of dspy.
    """

    caller: ModelCaller
    fallbacks: tuple[str, ...] = ()
    models: Models
    registry: Registry
    shapes: ShapeRegistry = field(default_factory=ShapeRegistry)
    predictors: PredictorPool = field(default_factory=PredictorPool)
    resolver: RoleResolver
    log: ConversationLog
    attachments: Attachments
    clock: Clock = field(default_factory=SystemClock)
    summary_cooldown: Expiring[bool] = field(default_factory=lambda: Expiring(SystemClock()))
    options: GraphOptions = field(default_factory=GraphOptions)
    on_error: OnError | None = None
    journal: Journal | None = None
    places: Places | None = None
    kept: KeptMessages | None = None
    inbox: Inbox | None = None
    examples: Examples | None = None
    recall: Recall | None = None
    policy: Policy = field(default_factory=Policy)
    approver: Approver | None = None
    callbacks: tuple[object, ...] = ()

    @property
    def signatures(self) -> tuple[str, ...]:
        """The names of all Signatures of the agent, which a role can name."""
        entries = [shape.entry.__name__ for shape in self.shapes.shapes.values() if shape.entry is not None]
        return tuple(dict.fromkeys((*self.predictors.names, *entries, *self.registry.workers)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnContext:
    """The context of one turn. It holds the role and is never stored.

    Attributes:
        turn_id: The turn's id.
        thread_key: The id of the checkpointed thread, made from workspace and thread.
        scope: The ids the turn runs under.
        services: What all turns share.
        role: The resolved role of the turn, or of the task this context was made for.
        emit: Receives its events.
        lease: The ownership of the thread, or None if nothing is stored.
        stream: What a client wants in parts.
        prompt: A skill's prompt, for the entry Signature of the task this turn runs.
        context: The passages that the message was given along.
        drive: The run of this process through the turn's calls.
        role_key: The id of the key for the digest of the turn's role; empty is the current key.
        gate: Decides about its calls.
        caller: The caller of its tasks: the conversation, the host's own code, or a call that began the turn;
            for a task, the code that dispatched it.
        depth: The nesting depth of the code that dispatches tasks.
        task: The path id of the task that this context was made for; empty for the turn itself.
        budget: What the turn, or the task, can still use.
        examples: Keeps model steps as examples; None keeps none.
        turn_role: The role of the turn, whatever the role of the task.
        task_roles: The roles of the tasks that it dispatched in this run.
        nodes: The configs of the nodes that make calls now, by the path ids of these calls.
        withheld: How many characters of a role were withheld of each output field in this run.
        guard: Whether none of its models that call tools reads what a stranger can have written.
        reading: What it reads of the inbox of its thread while it runs; None reads nothing.
        speaker: The member that speaks in it, if the person's conversation was handed to one.
    """

    turn_id: str
    thread_key: str
    scope: Scope
    services: Services
    role: ResolvedRole
    emit: Emitter
    lease: Lease | None = None
    stream: Deltas = "none"
    prompt: str | None = None
    context: tuple[Passage, ...] = ()
    drive: Drive
    role_key: str = ""
    gate: Gate = field(default_factory=Gate)
    caller: Caller = CODE
    depth: int = -1
    task: str = ""
    budget: Budget = field(default_factory=Budget)
    examples: ExampleKeeper | None = None
    turn_role: ResolvedRole = NO_ROLE
    task_roles: list[ResolvedRole] = field(default_factory=list)
    nodes: dict[str, RunnableConfig] = field(default_factory=dict, repr=False)
    withheld: dict[str, int] = field(default_factory=dict)
    guard: bool = False
    reading: Reading | None = None
    speaker: Speaker | None = None

    @property
    def author(self) -> str:
        """The author of what its model says in the conversation."""
        return AGENT if self.speaker is None else self.speaker.member

    def node_above(self, path: str) -> RunnableConfig | None:
        """The config of the node that a task runs in: that of its own call, or of the nearest call above it.

        It has the role of that node in it, so no code of a task may get it.
        """
        while path and path not in self.nodes:
            path = path.rpartition("/")[0]
        return self.nodes.get(path)

    async def append(self, head: str, drafts: Sequence[Draft]) -> str:
        """Append messages to the log after `head`, and return the id of the last one."""
        if marks := self.gate.marks:  # messages written after untrusted content was read can be influenced by it
            drafts = [
                replace(draft, body={**draft.body, "untrusted": sorted({*draft.body.get("untrusted", ()), *marks})})
                for draft in drafts
            ]
        if any(role.allows_echo for role in (self.role, self.turn_role, *self.task_roles)):
            drafts = [replace(draft, body={**draft.body, MAY_HOLD_ROLE: True}) for draft in drafts]
        if self.speaker is not None:
            drafts = [replace(draft, body={**draft.body, SPEAKER: self.speaker.member}) for draft in drafts]
        return await self.services.log.append(
            head, drafts, thread=self.thread_key, turn_id=self.turn_id, lease=self.lease
        )

    def role_digest(self, role: ResolvedRole) -> str | None:
        """The digest of a role that a turn or a task stores, under the key that the turn began with.

        It is None without a role (R13).
        """
        if self.services.journal is None:
            return None
        return self.services.resolver.key.named(self.role_key).digest(role)

    async def ask(self, call: Callable[[ModelCaller], Awaitable[T]], names: Sequence[str | None] = (None,)) -> T:
        """Ask a model, and the next one if it cannot be reached.

        Args:
            call: Asks one model.
            names: The names of the models; None is the turn's model and its fallbacks.

        Raises:
            ModelUnavailable, ModelTimeout, ModelRateLimited: The last model cannot be reached either.
        """
        services = self.services
        callers = [each for name in names for each in ((name,) if name is not None else (None, *services.fallbacks))]
        for name in callers[:-1]:
            try:
                return await self._asked(call, name)
            except _OUTAGE:
                continue
        return await self._asked(call, callers[-1])

    async def _asked(self, call: Callable[[ModelCaller], Awaitable[T]], name: str | None) -> T:
        async with self.budget.ledger.slots if self.caller.model_influenced else nullcontext():
            return await call(self.services.caller if name is None else await self.services.models.get(name))

    async def ask_without_role(
        self,
        signature: Signature,
        inputs: Mapping[str, Any],
        names: Iterable[str] = (CONVERSE,),
        *,
        model: str | None = None,
    ) -> Mapping[str, Any]:
        """Ask a model without the role; see `signatures.summaries.ask_without_role`.

        Args:
            signature: What is asked.
            inputs: Its input fields.
            names: The Signatures that the role can be attached to.
            model: The name of the model; None is the turn's.
        """
        predictor, listener = self.services.predictors.get(signature), self.listener(signature.__name__)
        return await self.ask(
            lambda caller: ask_without_role(predictor, inputs, caller, role=self.role, listener=listener, names=names),
            (model,),
        )

    def keep_example(
        self,
        path: str,
        signature: Signature,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        steps: Sequence[PastStep] = (),
    ) -> None:
        """Keep a model step as an example, if those of the turn are kept; see `ExampleKeeper.keep`.

        A skill's prompt is not stored, so a step with one gives no example.
        """
        if self.examples is not None and self.prompt is None:
            roles = (self.turn_role, self.role)
            self.examples.keep(path, signature, inputs, outputs, roles=roles, steps=steps)

    def with_withheld(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body of the turn's last message, which says what was withheld of its roles in this run."""
        hidden = self.withheld
        return {**body, "withheld": {"characters": sum(hidden.values()), "fields": list(hidden)}} if hidden else body

    def hide_roles(self, value: T) -> T:
        """Return what callbacks see of a value: it is without the roles of the task and of the turn (R7)."""
        return without_roles(value, (self.role, self.turn_role), short=True)

    def listener(
        self,
        signature: str,
        field: str | None = None,
        *,
        step: int | None = None,
        tools: Mapping[str, str] | None = None,
    ) -> Listener:
        """The listener for one model call of this turn.

        Args:
            signature: The Signature's name.
            field: The output field whose deltas are streamed.
            step: The step of the conversation, of a worker or of a skill; None for a call that is not streamed.
            tools: The names of the tools that it can call, by those that models know.
        """
        call_id = self.task or self.turn_id
        budget = self.budget

        def count(used: ModelUsage, *, model: str, seconds: float, tokens: int, cost: float) -> None:
            budget.spend(model, used, tokens, cost)
            usage_fields = asdict(used)
            del usage_fields["calls"]
            self.emit(Usage, signature=signature, call_id=call_id, model=model, seconds=seconds, **usage_fields)

        def keep(messages: list[dict[str, Any]]) -> None:
            # A text of a person that also became a role is in the prompts of calls without a role, too.
            self.emit.keep(call_id, "prompts", scrubbed(messages, self.role))

        def wait(model: str, seconds: float) -> None:
            self.emit(ModelWaiting, model=model, seconds=round(seconds, 3), call_id=call_id)

        def withhold(characters: Mapping[str, int]) -> None:
            for name, count in characters.items():
                self.withheld[name] = self.withheld.get(name, 0) + count
            total, names = sum(characters.values()), tuple(characters)
            self.emit(RoleWithheld, signature=signature, characters=total, fields=names, call_id=call_id)

        prompt = keep if self.emit.wants("prompts") else None
        seen = dspy_callbacks(self.services.callbacks) if self.services.callbacks else []
        silent = Listener(
            usage=count,
            prompt=prompt,
            withheld=withhold,
            waiting=wait,
            before=budget.check,
            after=budget.settle,
            purse=budget.ledger.purse,
            watch=Watch(seen, self.hide_roles) if seen else None,
        )
        if step is None or self.stream == "none":
            return silent
        if self.task:
            if self.stream != "all":
                return silent
            return _TaskStep(self.emit, self.task, step, tools or {}).listening(silent, field)
        return replace(
            silent,
            field=field,
            emit=lambda text: self.emit(TextDelta, text=text, step=step),
            withdraw=lambda: self.emit(TextReplaced, text="", step=step),
            reason=lambda text: self.emit.unnumbered(ReasoningDelta, text=text, step=step),
        )


class _TaskStep:
    """The deltas of one step of a task, over all attempts to get an answer from its models.

    Args:
        emit: Receives them.
        task: The path id of the task.
        step: The step.
        tools: The names of its tools by those that models know. A model can make up other names, which are not sent.
    """

    def __init__(self, emit: Emitter, task: str, step: int, tools: Mapping[str, str]) -> None:
        self._emit, self._of, self._tools = emit, {"task_id": task, "step": step}, tools
        self._attempt, self._begun = 0, False

    def listening(self, silent: Listener, field: str | None) -> Listener:
        """A listener that also emits the deltas of the task."""

        def before() -> None:
            silent.before()
            self._restart()

        return replace(
            silent,
            field=field,
            emit=partial(self._send, TaskTextDelta),
            withdraw=self._withdraw,
            reason=partial(self._send, TaskReasoningDelta),
            argue=self._argue,
            before=before,
        )

    def _send(self, kind: type[UnnumberedEvent], text: str, **more: Any) -> None:
        self._begun = True
        self._emit.unnumbered(kind, **self._of, attempt=self._attempt, text=text, **more)

    def _argue(self, place: int, tool: str, text: str) -> None:
        if tool in self._tools:
            self._send(TaskArgumentsDelta, text, call=place, tool=self._tools[tool])

    def _restart(self) -> None:
        self._attempt += self._begun
        self._begun = False

    def _withdraw(self) -> None:
        self._restart()
        self._send(TaskTextDelta, "")
        self._begun = False
