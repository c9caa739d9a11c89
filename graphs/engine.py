"""The turns of one agent behind one interface, which `agent` uses. It compiles the graphs once and runs many turns."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, ClassVar

from langgraph.types import Command
from pydantic import BaseModel

from ..core import ROOT, Emitter, ModelUsage, Scope, canonical_json
from ..core.errors import (
    Diverged,
    GraphChanged,
    InvalidArgument,
    ModelFacing,
    ParamsInvalid,
    StorageInvalid,
    UnknownMessage,
    UsageError,
    WorldAgentError,
)
from ..core.events import TurnEvent, TurnKind
from ..core.pauses import UnattendedMode
from ..core.validation import read_model, same_declaration
from ..harness import CallContext, Function, Registry, ServiceTool, Worker
from ..harness.gate import CODE, Gate, Sources, changes_something, leaves
from ..harness.handles import has_handles
from ..harness.journal import CallRecord, Drive, Frame, pause_of
from ..harness.limits import Budget, Use
from ..harness.schema import result_of
from ..memory import Draft, Message, Tail
from ..memory.attachments import Attachment
from ..memory.branches import Branch, Branches
from ..memory.conversation import SPEAKER, output_schema
from ..memory.entries.recall import RECALL, read_context, recalled_marks
from ..memory.examples import KeptExample
from ..memory.inbox import Reading
from ..memory.reports import mark_of_worker
from ..role_resolution import NO_ROLE
from ..signatures import (
    CONVERSE,
    REPLY_DEMOS,
    RUN_SKILL,
    ModelCaller,
    Predictor,
    PredictorPool,
    Program,
    Signature,
    converse_signature,
)
from ..signatures.converse import ConverseClass
from ..signatures.examples import TurnExample, example_of_turn
from ..signatures.signature import CHECK, READ
from ..signatures.summaries import DISTIL, SUMMARISE, without_roles
from ..storage import Known, Lease, Transaction
from .attached import check_taken, room_of
from .checkpoints import CheckpointSaver
from .checkpoints.saver import Heads
from .checkpoints.tables import next_nodes
from .context import Services, TurnContext
from .examples import ExampleKeeper
from .history import body_of, untrusted_in
from .loop.conversation import Conversation
from .loop.finding import FINDING, ToolSearch
from .loop.graph import ACT, THINK, LoopGraph, conversation_graph, node_of, task_graph
from .loop.loop import HostTask, LoopState, first_state, run_graph
from .loop.reading import ASKING
from .loop.subagents import Subagents
from .loop.tools import Tools
from .requests import GraphOptions, TurnOutcome, TurnRequest, TurnRun
from .shape import OPERATOR, SKILL, SUBAGENT, Shape, Work, storable
from .tasks import calls_of

_TEXTS: Mapping[str, str] = {SUBAGENT: "text", OPERATOR: "text", SKILL: "reply"}
"""The field of a result, by the key of its shape, that is all that it says."""
_STRUCTURED = 64  # the limit of cached Signatures of answers in JSON
_AS_BEFORE = "resume it with the code that began it, or cancel it and begin a new turn"


class TurnEngine:
    """Runs the turns of one agent.

    Args:
        saver: Stores checkpoints; None stores none, for measurements.
        services: The values that all turns share. The engine adds the shapes, their predictors and the options.
        shapes: Shapes of tasks.
        branches: Where threads were branched off.
        identity: Who the agent is.
        prompt: The prompt of its profile.
        options: The limits of a turn with a model.
        programs: Optimised programs by the names of their Signatures.
        operators: Whether the host can run operators of members; see `OPERATOR`.
        converse: The class of the conversation's entry Signature.

    Attributes:
        services: The values that all turns share.
        converse: The class of the conversation's entry Signature.
        heads: The last messages of threads.
        graph: The graph of a conversation's turn.

    Raises:
        NameTaken: Two shapes have the same key, or a worker has the name of the conversation's Signature.
        FunctionInvalid: A Signature cannot carry a role.
    """

    GRAPH: ClassVar[str] = "turn/2"
    """The version of the graph that turns run in. It changes when the nodes or channels change."""

    RETIRED: ClassVar[frozenset[str]] = frozenset({"turn/1"})
    """Older versions of the graph: their tasks and skills resume in this one, their conversations do not."""

    def __init__(
        self,
        saver: CheckpointSaver | None,
        services: Services,
        *,
        shapes: Iterable[Shape[Any, Any]],
        branches: Branches | None = None,
        identity: str | None = None,
        prompt: str | None = None,
        options: Callable[[ModelCaller], GraphOptions] = lambda _: GraphOptions(),
        programs: Mapping[str, Any] | None = None,
        operators: bool = False,
        converse: ConverseClass | None = None,
    ) -> None:
        self.converse = converse = converse or ConverseClass()
        caller, registry = services.caller, services.registry
        memory = services.recall is not None
        limits = options(caller)
        self._search = ToolSearch(limits.find_tools_above, registry.has_source)
        registry.add_unlisted(FINDING)
        self._subagents = subagents = Subagents(registry, memory=memory, search=self._search)
        all_shapes = subagents.with_subagent(shapes, operators=operators)
        registry.check_tools()
        if registry.complete:  # a rule can name a function of a source that cannot be reached now
            for each in (services.policy, *registry.worker_policies.values()):
                each.check(registry.declared, registry.absent_prefixes)
        # A turn can use a model of the other kind. The agent's own is last, because optimised programs are for it.
        kinds = sorted((False, True), key=lambda plain: plain == caller.plain)
        spoken_by = partial(converse_signature, prompt=prompt, memory=memory, declared=converse.declared)
        signature_of = self._spoken_by = lru_cache(_STRUCTURED)(
            lambda identity, plain, schema: spoken_by(
                identity, plain=plain, output=None if schema is None else json.loads(schema)
            )
        )
        self._identity = identity
        self._converse = {plain: signature_of(identity, plain, None) for plain in kinds}
        demos = {True: () if converse.digest else REPLY_DEMOS, False: ()}  # they lack further fields
        predictors = PredictorPool()
        predictors.add(*(Predictor(self._converse[plain], demos=demos[plain]) for plain in kinds))
        predictors.add(SUMMARISE)
        predictors.add(CHECK)
        predictors.add(READ)
        if limits.reader is not None:
            services.models.check(limits.reader, who="the setting `reader`")
        if services.recall is not None:
            predictors.add(DISTIL)
        subagents.signatures(predictors, services.models)
        for shape in all_shapes.shapes.values():
            for signature in shape.all_signatures():
                predictors.add(signature)
        predictors.use_programs(programs or {})
        self.services = replace(services, shapes=all_shapes, predictors=predictors, options=limits)
        self._offered_in(registry)
        self.heads = Heads(saver, branches)
        self._options = options
        self._entries = (CONVERSE, RUN_SKILL) if SKILL in all_shapes.shapes else (CONVERSE,)
        self._running: dict[str, TurnContext] = {}
        self._stopping = False
        self._saver = saver
        self.graph = conversation_graph(saver, self._task_nodes())
        self._task_graphs: dict[str, LoopGraph] = {}

    def _task_nodes(self) -> dict[str, Any]:
        """The nodes for the tasks that the conversation can call, with their subgraphs."""
        shapes = self.services.shapes.shapes.values()
        called = [shape for shape in shapes if shape.key == SUBAGENT or shape.function.offered]
        return {node_of(shape.key): shape.subgraph for shape in called if node_of(shape.key) != ACT}

    def _task_graph(self, shape: str) -> LoopGraph:
        """The graph of the tasks of a shape that the host dispatches."""
        if shape not in self._task_graphs:
            found = self.services.shapes.get(shape)
            self._task_graphs[shape] = task_graph(self._saver, node_of(shape), found.subgraph)
        return self._task_graphs[shape]

    def work(self, shape: str, params: Mapping[str, Any] | BaseModel) -> Work:
        """Check a task before anything is written.

        Raises:
            UnknownShape, UnknownWorker, ParamsInvalid, ToolNotAllowed: The task is invalid; the text names the problem.
        """
        self.services.registry.check_allowed(shape)
        found = self.services.shapes.get(shape)
        checked = found.check_params(params)
        found.check_starter(checked, by_model=False)
        found.names_for(checked, self.services.shapes)
        return {"to": shape, "shape": shape, "params": storable(checked, what=f"params of shape {shape!r}")}

    def signatures(self, work: Work | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of a turn's entry Signatures and of its other ones.

        They are those of the conversation, or of the task's shape.
        """
        if work is None:
            return self._entries, ()
        shape = self.services.shapes.get(work["shape"])
        return shape.names_for(shape.read_params(work["params"]), self.services.shapes)

    def check_trained(self, name: str, *earlier: str) -> None:
        """Refuse a name that examples cannot have.

        Args:
            name: The name of a Signature.
            earlier: Names that are accepted besides those of the agent.

        Raises:
            InvalidArgument: No Signature has the name.
        """
        entries = [shape.entry.__name__ for shape in self.services.shapes.shapes.values() if shape.entry is not None]
        known = dict.fromkeys((*self.services.predictors.names, *entries))
        if name not in known and name not in earlier:
            raise InvalidArgument(f"no Signature is called {name!r}", remedy=f"the Signatures are: {', '.join(known)}")

    def program(self, name: str) -> Program:
        """A copy of the program of one Signature, without role, which you can optimise and save.

        Raises:
            InvalidArgument: The agent has no Signature with this name.
        """
        found = self.services.predictors.named(name)
        if found is None:
            known = ", ".join(self.services.predictors.names)
            raise InvalidArgument(f"no Signature is called {name!r}", remedy=f"the Signatures are: {known}")
        worker = self.services.registry.workers.get(name)
        tools = None if worker is None else self._subagents.tools(worker)
        if name == CONVERSE:
            tools = self._offered_in(self.services.registry)
        # Lists, as the Signature declares them: dspy warns of tuples.
        inputs = {} if tools is None else {field: list(offered) for field, offered in tools.offered.inputs.items()}
        return found.program(weights=self.services.caller.connection.weights, inputs=inputs)

    def use_program(self, name: str, program: Any) -> None:
        """Replace the program of one Signature for turns that begin from now on, or resume from now on.

        Args:
            name: The name of the Signature.
            program: An optimised program without role, or the JSON file of a saved one.

        Raises:
            FunctionInvalid: No Signature has the name, the file cannot be read, or the program has other fields
                or code of its own.
        """
        predictors = self.services.predictors.copy()  # turns that run keep theirs
        predictors.use_programs({name: program})
        self.services = replace(self.services, predictors=predictors)

    def add_worker(self, worker: Worker, *, trust: Callable[[Function], float] | None = None) -> None:
        """Add a worker, and how much it is trusted. Conversations that begin or resume from now on are offered it.

        Raises:
            NameTaken: A function, worker, shape or Signature has its name.
            ToolNotAllowed: The profile excludes it.
            FunctionInvalid: It is not a worker, its Signature cannot be made, or none of its tools exists.
            ModelNotConfigured: It names a model that cannot exist.
            PolicyInvalid: Its policy names a function, a caller or an argument that does not exist.
        """
        services = self.services
        services.registry.add_worker(worker, trust=trust)
        try:
            if worker.policy is not None and services.registry.complete:
                worker.policy.check(services.registry.declared, services.registry.absent_prefixes)
            self._subagents.add(worker, services.predictors, services.models)
        except WorldAgentError:
            services.registry.remove_worker(worker.name)
            self._subagents.forget(worker.name)
            raise

    def remove_worker(self, name: str) -> None:
        """Remove a worker.

        Raises:
            UnknownWorker: No worker has this name.
            ToolNotAllowed: The profile excludes it.
        """
        self.services.registry.remove_worker(name)
        self._subagents.forget(name)
        self.services.predictors.remove(name)

    def is_taken(self, name: str) -> bool:
        """Whether no member of a workspace can have this name, since something of the agent has it (H10)."""
        registry, predictors = self.services.registry, self.services.predictors
        own = registry.workers.get(name)
        if own is not None and own.variant:  # the worker of a member
            return False
        return not registry.is_free(name, "") or name in predictors.names

    async def head(self, thread_key: str, *, lease: Lease | None = None) -> str | None:
        """The head of a thread's log, or None for a new thread."""
        return (await self.heads.position(thread_key, lease=lease)).head

    def read(self, transaction: Transaction, thread_key: str) -> Known:
        """The initial values of a lease's `known` for its thread. Errors are left to the code that needs the values."""
        known, log = Known(), self.services.log
        with suppress(StorageInvalid, UnknownMessage):
            known, head = self.heads.read(transaction, thread_key)
            known[Tail] = log.tail_of(transaction, head, self.services.options.history_limit)
        return known

    def graph_of(self, kind: TurnKind) -> str:
        """The graph that a turn begins in, with a digest of the further fields of the conversation, if it has any.

        Args:
            kind: The surface of the turn.
        """
        fields = "" if kind in ("task", "skill") else self.converse.digest
        return f"{self.GRAPH}+{fields}" if fields else self.GRAPH

    def check_graph(self, kept: str, kind: TurnKind) -> None:
        """Compare the graph that a turn began in with this one (D15).

        Args:
            kept: The graph that the turn began in.
            kind: The surface of the turn.

        Raises:
            GraphChanged: The graph is another one, or the conversation has other fields.
        """
        if kept.partition("+")[0] not in (self.GRAPH, *self.RETIRED):
            raise GraphChanged(
                f"the turn began in the graph {kept!r}, and this version runs {self.GRAPH!r}",
                remedy="resume it with the version that began it, or cancel it and send the message again",
            )
        if not self.resumes(kept, kind):
            raise GraphChanged(
                f"a paused conversation of the graph {kept!r} cannot resume in {self.GRAPH!r}",
                remedy="send the message again; that ends this turn, and its messages are kept",
            )
        if kept not in self.RETIRED and kept != self.graph_of(kind):
            raise GraphChanged(
                f"the inputs or outputs of {self.converse.declared.__name__!r} have changed since the turn began",
                remedy=_AS_BEFORE,
            )

    def resumes(self, kept: str, kind: TurnKind) -> bool:
        """Whether a turn of a graph can resume in this one. New input replaces a turn that never can."""
        return kept not in self.RETIRED or kind in ("task", "skill")

    def check_prompt(self, kept: str | None, prompt: str | None, kind: TurnKind, *, refreshed: bool) -> None:
        """Compare a skill's prompt, or a message's context, with the digest that the paused turn stores.

        Args:
            kept: The stored digest.
            prompt: The prompt, or the context as JSON.
            kind: The surface of the turn.
            refreshed: Whether a prompt is accepted that cannot be compared because the key is another one.

        Raises:
            InvalidArgument: The prompt is missing, differs, or the turn runs no skill.
            RoleKeyMismatch: The digest was made with another key.
        """
        key = self.services.resolver.key
        given = None if prompt is None else key.named(key.maker(kept or "")).digest_of(prompt)
        if given is not None and kept is not None and not key.made(kept):
            if not refreshed:
                raise key.mismatch("the paused turn noted its skill or context", key.maker(kept))
        elif given != kept and kind != "skill":
            raise InvalidArgument(
                "the paused turn began with context=, and this is not the same"
                if kept
                else "the paused turn began without context=",
                remedy="resume it with the context that it began with",
            )
        elif given != kept:
            problem = "runs a skill" if prompt is None else "runs another skill, or none"
            raise InvalidArgument(
                f"the paused turn {problem}",
                remedy="resume it in the program that began it, with the skill that it began with",
            )

    async def check_calls(self, turn_id: str) -> None:
        """Check that the role digests of a turn's calls can be compared.

        Raises:
            RoleKeyMismatch: A digest was made with another key.
        """
        assert self.services.journal is not None, "only a turn with a journal can resume"
        key = self.services.resolver.key
        for record in (await self.services.journal.load(turn_id)).values():
            if record.role is not None and not key.made(record.role):
                raise key.mismatch(f"the turn {turn_id!r} noted the role of a task", key.maker(record.role))

    def check_model(self, names: Sequence[str], *, who: str) -> None:
        """Refuse names of models that cannot exist. No model is opened.

        Raises:
            ModelNotConfigured: A name is neither a model string nor the name of a model.
        """
        for name in names:
            self.services.models.check(name, who=who)

    async def open_model(self, names: Sequence[str]) -> None:
        """Open the first of a turn's models. The fallbacks open when they are tried.

        Raises:
            ModelNotConfigured, MissingExtra, InvalidArgument: The model cannot be used.
        """
        await self._services_with(names)

    async def _services_with(self, model: Sequence[str], account: str | None = None) -> Services:
        services = replace(self.services, registry=self.services.registry.of(account))
        if not model:
            return services
        caller = await self.services.models.get(model[0])
        return replace(services, caller=caller, fallbacks=tuple(model[1:]), options=self._options(caller))

    def _offered_in(self, registry: Registry) -> Tools:
        """What conversations are offered now, of the agent's registry or that of an account."""

        def make() -> Tools:
            signature = self._converse[self.services.caller.plain]
            tools = Tools.of_conversation(signature, registry, self.services.policy, self._search)
            return replace(tools, outputs=self.converse.outputs)

        return registry.made_of(make)

    def _conversation(self, services: Services, request: TurnRequest) -> Tools:
        """The tools of the conversation of one turn, with an answer in JSON if its message requires one."""
        plain, schema, identity = services.caller.plain, output_schema(request.body), self._identity
        if request.speaker is None:
            tools = self._offered_in(services.registry)
        else:
            worker = services.registry.worker(request.speaker.member)
            identity, search = worker.instructions, self._search
            made = Tools.of_conversation(self._converse[plain], services.registry, services.policy, search, worker)
            tools = replace(made, outputs=self.converse.outputs)
        if schema is None:
            own = self._converse[plain] if request.speaker is None else self._spoken_by(identity, plain, None)
            return replace(tools, signature=own)
        result = request.output or result_of("the answer", json.loads(schema))
        signature = self._spoken_by(identity, plain, schema)
        return replace(tools, signature=signature, result=result, as_said=True)

    async def check_attached(self, attachments: Sequence[Attachment], model: Sequence[str]) -> None:
        """Refuse attachments that a turn's model does not accept, unless it can get only their names.

        Args:
            attachments: The attachments of the turn's message.
            model: The names of the turn's models.

        Raises:
            AttachmentNotTaken: The model does not accept this kind.
            AttachmentInvalid: Their total size is too large.
        """
        services = await self._services_with(model)
        caller, room = services.caller, room_of(services.attachments)
        if services.options.attachment_fallback == "fail":
            check_taken(attachments, caller.takes, model=caller.connection.name, room=room)

    async def message(self, message_id: str) -> Message:
        """One message of a log."""
        [found] = await self.services.log.history(message_id, limit=1)
        return found

    def body(self, message: Message) -> Mapping[str, Any]:
        """The body of a message.

        Raises:
            StorageInvalid: The message does not have the form of its kind.
        """
        return body_of(message)

    async def load_opening_message(self, asked: str, kind: TurnKind) -> tuple[Message, Work | None]:
        """Load the message that a turn began with, and the task that it dispatches.

        Args:
            asked: The id of the message.
            kind: The surface of the turn.

        Raises:
            StorageInvalid: The message does not exist or cannot be read.
            GraphChanged: The task's shape or worker is gone, or takes other params (D15).
        """
        message = None
        with suppress(UnknownMessage):
            message = await self.message(asked)
        if message is None:
            raise StorageInvalid(
                f"the turn began with the message {asked[:100]!r}, which does not exist",
                remedy="restore the log from a copy, or cancel the turn",
            )
        body = body_of(message, kind)
        return message, self._work_again(body["shape"], body["params"]) if kind in ("task", "skill") else None

    async def ended(self, thread_key: str, work: Work | None, *, head: str | None = None) -> TurnOutcome:
        """The outcome of a turn that is over.

        `head` is its last message; pass it if the thread can have a later one.
        """
        head = head or await self.head(thread_key)
        assert head is not None, "a finished turn has a message"
        return self._outcome({}, work, await self._said_at(head, work))

    async def begin(
        self, request: TurnRequest, *, turn_id: str, lease: Lease | None = None, branch: Branch | None = None
    ) -> str:
        """Append the turn's message to the log, after changes since the last one, and return its id.

        Args:
            request: The request of the surface.
            turn_id: The turn's id.
            lease: The ownership of the thread; None if nothing is stored.
            branch: The branch that the thread moves to as the turn begins, if any.
        """
        threads, thread = self.services.resolver.threads, request.scope.thread or ""
        changes = threads.changes(thread)
        drafts = [
            Draft(request.author, "role", {"change": change.id, "at": change.at.isoformat()}) for change in changes
        ]
        head = await self._head_with_results(request, lease) if branch is None else branch.head
        asked = await self.services.log.append(
            head,
            [*drafts, Draft(request.author, request.kind, request.body)],
            thread=request.thread_key,
            turn_id=turn_id,
            lease=lease,
        )
        if lease is None or not changes:
            threads.written(thread, changes)
        else:
            lease.after(lambda: threads.written(thread, changes))
        return asked

    async def _head_with_results(self, request: TurnRequest, lease: Lease | None) -> str | None:
        """The head of a thread, after the results of calls that its last turn made and ended before the log had them.

        A turn ends so if it is cancelled, interrupted or given up while one of its calls waits or runs. Without this, a
        model would not know of an effect, and could have it again (T16).
        """
        thread, journal = request.thread_key, self.services.journal
        head, turn, is_open = await self.heads.position(thread, lease=lease)
        if head is None or journal is None or (turn and not is_open):
            return head
        last = await self.message(head)
        found = await self.heads.values(thread, lease=lease) if turn else None
        if found is not None:
            rounds, asked = int(found["round"]), await self.message(found["asked"])
        elif last.kind == "plan" and last.turn_id:  # a fork of a thread whose turn had come so far
            turn, own = last.turn_id, await self._messages_of(last)
            rounds = sum(each.kind == "plan" for each in own) - 1
            asked = next((each for each in own if each.kind != "role"), last)
        else:
            return head
        if asked.kind not in ("message", "schedule"):  # what a task or a skill did is not in the log
            return head
        records = await journal.load(turn, lease=lease)
        calls, thought = f"{turn}/{Conversation.ACT}.{rounds}.", f"{turn}/{THINK}.{rounds}"
        begun = any(id.startswith(calls) and record.begun for id, record in records.items())
        if not begun or thought not in records:  # versions before 0.2 do not record the thought
            return head
        services = await self._services_with((), request.scope.account)
        emit = Emitter(turn, self.services.clock, _unheard)
        # As of a turn that is not guarded: what strangers can have written marks all results.
        body = {name: value for name, value in asked.body.items() if name != "guard"}
        ended = TurnRequest("message" if asked.kind == "message" else "schedule", request.scope, body)
        run = TurnRun(turn_id=turn, role=NO_ROLE, emit=emit, lease=lease, use=None)
        context = self._context(ended, run, records, services)
        context.gate.mark(*untrusted_in([last]), *context.gate.all_marks)
        loop = Conversation(context, self._conversation(services, ended))
        return await context.append(head, await loop.left(rounds, last.body))

    async def _messages_of(self, last: Message) -> list[Message]:
        """The messages of a turn up to its last one, the oldest first."""
        own, before = [last], last.id
        while page := await self.services.log.history(last.id, before=before):
            own[:0] = [each for each in page if each.turn_id == last.turn_id]
            if page[0].turn_id != last.turn_id:
                break
            before = page[0].id
        return own

    async def run(self, request: TurnRequest, run: TurnRun, *, asked: str, resumed: bool = False) -> TurnOutcome:
        """Run a turn from its message, or from its checkpoint, until it ends or waits.

        Args:
            request: The request of the surface.
            run: The values of this run.
            asked: The id of the turn's message.
            resumed: Whether the turn began before, in any process (T5).
        """
        services = await self._services_with(request.model, request.scope.account)
        if not resumed:
            turn = self._context(request, run, {}, services)
            return await self._driven(turn, request, first_state(turn, request.kind, asked, request.work))
        assert services.journal is not None, "only a turn with a journal can resume"
        records = await services.journal.load(run.turn_id)
        self._check_declared(records, services.registry)
        if run.use is not None:
            run.use.recall(record.id for record in records.values() if record.counts)
        turn = self._context(request, run, records, services)
        await _recall_words(turn)
        found = await self.heads.values(turn.thread_key, lease=run.lease)
        if found is None or found.get("turn") != run.turn_id:  # it was interrupted before its first step was stored
            return await self._driven(turn, request, first_state(turn, request.kind, asked, request.work))
        if not request.guard:  # a run that continues with calls does not read again what the model had read
            turn.gate.mark(*untrusted_in([await self.message(str(found["head"]))]))
        self._check_open(run.turn_id, found, records, services.registry)
        if found.get("status") == "done":
            return self._done(turn, request, await self._said_at(str(found["head"]), request.work))
        return await self._driven(turn, request, found=found)

    def check_speaker(self, kind: TurnKind, body: Mapping[str, Any]) -> None:
        """Check that the member is there that speaks in a turn which is to resume.

        Args:
            kind: The surface of the turn.
            body: The body of the message that began it.

        Raises:
            GraphChanged: It is gone.
        """
        member = None if kind in ("task", "skill") else body.get(SPEAKER)
        if member is not None and member not in self.services.registry.workers:
            raise GraphChanged(
                f"the member {member!r} speaks in the turn, and is no longer there",
                remedy="cancel the turn; the World Agent answers the next message",
            )

    async def check_work(self, turn_id: str, thread_key: str, account: str | None) -> None:
        """Check that the functions, shapes and workers that a turn needs to resume are those that it began with.

        Args:
            turn_id: The turn.
            thread_key: Its thread.
            account: Its account.

        Raises:
            HostError: One comes from a source, such as an MCP server, that cannot be reached.
            GraphChanged: One is gone or has another declaration.
        """
        assert self.services.journal is not None, "only a turn with a journal can resume"
        records = await self.services.journal.load(turn_id)
        registry = self.services.registry.of(account)
        self._check_declared(records, registry)
        found = await self.heads.values(thread_key)
        if found is not None and found.get("turn") == turn_id:
            self._check_open(turn_id, found, records, registry)

    def _check_declared(self, records: Mapping[str, CallRecord], registry: Registry) -> None:
        """Compare the recorded declarations of a turn's calls with the current ones, if it needs them again (D15).

        Raises:
            HostError: One comes from a source, such as an MCP server, that cannot be reached.
            GraphChanged: One is gone, takes other params, or changed between leaf and flow.
        """
        services = self.services
        again = {record.id for record in records.values() if not record.over}
        own = {name: each for shape in services.shapes.shapes.values() for name, each in shape.own_functions.items()}
        own |= registry.unlisted
        for record in records.values():
            above = records.get(record.parent)
            runs = above is not None and above.name == SUBAGENT and not above.over
            thinks = record.kind == "model" and "/think." in record.id.removeprefix(record.parent)
            if thinks and (runs or (record.version and above is None)):
                self._check_worker(record)
            if record.kind not in ("leaf", "flow", "task", "offer") or again.isdisjoint((record.id, record.parent)):
                continue
            known = services.shapes.shapes if record.kind == "task" else registry.functions
            found: Function | Shape[Any, Any] | None = known.get(record.name) or own.get(record.name)
            absent = registry.absent(record.name) if found is None and record.kind != "task" else None
            if absent is not None:
                raise absent
            kind: str = found.kind if isinstance(found, Function) else "task"
            if record.kind == "offer" and isinstance(found, ServiceTool):
                kind = "offer"
            if isinstance(found, Shape):
                same = found.check_version(record.version)
            else:
                same = found is not None and same_declaration(record.version, found.declared)
            if not same or kind != record.kind:
                raise GraphChanged(
                    f"{record.name!r}, which the turn calls, is gone or has changed since the turn began",
                    remedy=_AS_BEFORE,
                )

    def _check_worker(self, record: CallRecord) -> None:
        """Check that the worker of a recorded step still exists, in the same variant.

        Raises:
            GraphChanged: It does not.
        """
        try:
            worker = self.services.registry.worker(record.name)
        except ModelFacing as error:
            problem = error.problem
        else:
            if worker.variant == (record.version or worker.variant):
                return
            problem = f"{worker.name!r} has changed since then"
        raise GraphChanged(f"a task of the turn cannot run as it was dispatched: {problem}", remedy=_AS_BEFORE)

    def _check_open(
        self, turn_id: str, state: Mapping[str, Any], records: Mapping[str, CallRecord], registry: Registry
    ) -> None:
        """Check the task, or the calls of the current step, of a turn.

        Raises:
            HostError: A function comes from a source, such as an MCP server, that cannot be reached.
            GraphChanged: One is gone, takes other params, or has begun and is not offered any more.
        """
        for item in state["work"]:
            self._work_again(item["shape"], item["params"])
        record = records.get(f"{turn_id}/think.{state['round']}")
        said = {} if record is None or record.result is None else json.loads(record.result)
        for place, call in enumerate(said.get("calls", ())):
            if call["tool"] == ASKING.name and ASKING.name not in registry.functions:
                continue
            begun = records.get(f"{turn_id}/{Conversation.ACT}.{state['round']}.{place}:{call['tool']}")
            try:
                function = registry.function(call["tool"])
                if not has_handles(call["arguments"]):  # else their values are checked as the call is made
                    what = f"arguments of {call['tool']!r}"
                    read_model(function.params, call["arguments"], what=what, error=ParamsInvalid)
            except (ModelFacing, UsageError) as error:
                problem = error.problem
            else:
                if function.offered or function is FINDING or begun is None or begun.over:
                    continue
                problem = f"{function.name!r} is not offered any more"
            raise GraphChanged(f"a call of the turn cannot be made as requested: {problem}", remedy=_AS_BEFORE)

    def _work_again(self, shape: str, params: Mapping[str, Any]) -> Work:
        """Check a task that a turn began, as when it was dispatched."""
        try:
            return self.work(shape, params)
        except ModelFacing as error:
            problem = error.problem
        raise GraphChanged(f"a task of the turn cannot run as it was dispatched: {problem}", remedy=_AS_BEFORE)

    def stop(self, turn_id: str | None = None) -> None:
        """Let running turns reach a point where they can be resumed later, and begin nothing new in any turn.

        Args:
            turn_id: The only turn to stop; None also stops those that begin later.
        """
        self._stopping = self._stopping or turn_id is None
        for turn in self._running.values():
            if turn_id in (None, turn.turn_id):
                turn.drive.stopping = True

    def interrupt(self, turn_id: str) -> bool:
        """Let a running turn end after its calls under way; False if it makes none, so that it can be cancelled.

        Results that the log does not have yet count as under way.
        """
        turn = self._running.get(turn_id)
        if turn is None:
            return False
        loop = None if turn.reading is None else turn.reading.loop  # its model can think, as that of a conversation
        if not (turn.nodes.keys() - {loop} or turn.drive.acting):
            return False
        turn.drive.stopping = turn.drive.interrupted = True
        return True

    async def has_loop(self, asked: str, kind: TurnKind) -> bool:
        """Whether a turn of a task or a skill has a loop of a model, which can read messages.

        Raises:
            StorageInvalid, GraphChanged: See `load_opening_message`.
        """
        _, work = await self.load_opening_message(asked, kind)
        if work is None:
            return True
        shape = self.services.shapes.get(work["shape"])
        return shape.subgraph is not None and shape.stand_in(shape.read_params(work["params"])) is None

    def without_roles(self, turn_id: str, text: str) -> str:
        """A text without what it has in common with a role of a running turn or of its tasks, also a short one (R7)."""
        turn = self._running.get(turn_id)
        return text if turn is None else without_roles(text, (turn.turn_role, *turn.task_roles), short=True)

    async def _driven(
        self,
        turn: TurnContext,
        request: TurnRequest,
        state: LoopState | None = None,
        *,
        found: Mapping[str, Any] | None = None,
    ) -> TurnOutcome:
        """Run a turn until it ends or waits, and again as long as answers arrive meanwhile.

        Args:
            turn: The turn.
            request: The request of its surface.
            state: The input of a new turn.
            found: The channels of the checkpoint that it resumes from.
        """
        journal, tools = self.services.journal, None
        if request.kind not in ("task", "skill"):
            tools = self._conversation(turn.services, request)
        while True:
            self._running[turn.turn_id] = turn
            try:
                run: Conversation | HostTask
                if tools is None:
                    assert request.work is not None, "a task or a skill has one"
                    node = node_of(request.work["shape"])
                    run, graph = HostTask(turn), self._task_graph(request.work["shape"])
                else:
                    node, graph = ACT, self.graph
                    run = Conversation(turn, tools, graph.nodes)
                given: LoopState | Command[Any] | None = state
                if found is not None:
                    given, nodes = _continued(graph, found, otherwise=node)
                    if isinstance(run, Conversation):
                        step, head, asked = int(found.get("step", 0)), found["head"], found["asked"]
                        await run.find(int(found["round"]), nodes, step=step, head=head, asked=asked)
                values = await run_graph(graph, given, turn=turn, context=run, view=request.view)
            finally:
                del self._running[turn.turn_id]
            recalled = run.recalled if self.services.recall is not None and isinstance(run, Conversation) else ()
            if "__interrupt__" not in values:
                said = run.outcome or await self._said_at(values["head"], request.work)
                return self._done(turn, request, said, recalled)
            assert journal is not None, "only a turn with a journal can wait"
            if turn.drive.stopping:
                return TurnOutcome(status="stopped", usage=turn.budget.ledger.bill, withheld=turn.withheld)
            records = await journal.load(turn.turn_id, lease=turn.lease)
            pauses = tuple(pause_of(record) for record in records.values() if record.open)
            answered = any(record.answered for record in records.values())
            if turn.drive.left:
                raise Diverged(
                    f"the turn did not repeat calls that were answered: {', '.join(map(repr, turn.drive.left))}",
                    remedy="make bodies depend only on their params and the results of their calls, or cancel the turn",
                )
            if not answered:
                usage, withheld = turn.budget.ledger.bill, turn.withheld
                return TurnOutcome(status="paused", usage=usage, pauses=pauses, recalled=recalled, withheld=withheld)
            last = turn.drive
            drive = self._new_drive(
                turn.turn_id, records, turn.lease, last.refreshed, last.unattended, last.on_behalf_of, last.handed
            )
            drive.also = last.also
            turn, found = replace(turn, drive=drive), await self.heads.values(turn.thread_key, lease=turn.lease)
            await _recall_words(turn)

    async def _said_at(self, head: str, work: Work | None) -> Mapping[str, Any]:
        """The body of the last message of a turn that is over."""
        return body_of(await self.message(head), "answer" if work is None else "result")

    def _done(
        self, turn: TurnContext, request: TurnRequest, said: Mapping[str, Any], recalled: tuple[str, ...] = ()
    ) -> TurnOutcome:
        """The outcome of a turn that this run, or an earlier one before it could write the end, has finished."""
        outcome = self._outcome(turn.budget.ledger.bill, request.work, said, recalled)
        quoted = request.on_behalf_of != ROOT or request.reports is not None
        roleless = _roleless(turn, said) if quoted else None
        marks = _reported_marks(turn, request, said)
        return replace(outcome, roleless=roleless, withheld=turn.withheld, marks=marks)

    def _outcome(
        self,
        usage: Mapping[str, ModelUsage],
        work: Work | None,
        body: Mapping[str, Any],
        recalled: tuple[str, ...] = (),
    ) -> TurnOutcome:
        if work is None:
            outputs, labels = body.get("outputs", {}), body.get("labels", {})
            return TurnOutcome(
                text=str(body["text"]),
                result=body.get("result"),
                outputs=outputs,
                labels=labels,
                usage=usage,
                recalled=recalled,
            )
        shape = self.services.shapes.get(work["shape"])
        return TurnOutcome(result=shape.read_result(body["result"]), labels=body.get("labels", {}), usage=usage)

    def _context(
        self, request: TurnRequest, run: TurnRun, records: dict[str, CallRecord], services: Services
    ) -> TurnContext:
        inbox, handed = services.inbox, request.handed
        gate = Gate(
            services.policy,
            approver=services.approver,
            clock=self.services.clock,
            workers=services.registry.workers,
            trust=None if handed else services.registry.trust,  # approvals are the person's
            sources=partial(Sources, _said(request), partial(_is_trusted, services), partial(_writes, services)),
            records=records,
            places=services.places,
        )
        if records:
            _recall(gate, records, services, guarded=request.guard)
        if request.origin is not None:
            gate.mark(*request.origin.marks)
        if "untrusted" in request.body:
            gate.mark(*request.body["untrusted"])
        drive = self._new_drive(
            run.turn_id, records, run.lease, run.refreshed, request.unattended, request.on_behalf_of, handed
        )
        drive.also = run.note if run.role.tiers else None
        return TurnContext(
            turn_id=run.turn_id,
            thread_key=request.thread_key,
            scope=request.scope,
            services=services,
            role=run.role,
            emit=run.emit,
            lease=run.lease,
            stream=run.stream,
            prompt=request.prompt if request.kind == "skill" else None,
            context=() if request.prompt is None or request.kind == "skill" else read_context(request.prompt),
            drive=drive,
            role_key=run.role_key,
            gate=gate,
            caller=request.caller,
            depth=-1 if request.origin is None else request.origin.depth,
            budget=Budget(clock=self.services.clock) if run.use is None else run.use.budget,
            # Examples are of the agent's own program; what a member says is none of it.
            examples=self._keeper(run.turn_id, run.lease) if request.example and request.speaker is None else None,
            turn_role=run.role,
            guard="guard" in request.body,  # as in `TurnRequest.guard`
            reading=None if run.lease is None or inbox is None else Reading(inbox, run.unread),
            speaker=request.speaker,
        )

    def _keeper(self, turn_id: str, lease: Lease | None) -> ExampleKeeper | None:
        examples = self.services.examples
        if lease is None or examples is None:
            return None
        return ExampleKeeper(turn_id, lease, examples, self.services.clock)

    def example(self, kept: KeptExample) -> TurnExample:
        """A kept example with the types of its Signature, if the agent has one of this name."""
        found = self.services.predictors.named(kept.signature)
        own = {name: getattr(kept, name) for name in ("signature", "turn", "feedback", "note")}
        return example_of_turn(kept.inputs, kept.outputs, None if found is None else found.signature, **own)

    def root(self, path: str, scope: Scope, emit: Emitter, use: Use | None = None) -> CallContext:
        """The context of calls outside any turn. They have no role, and no person can be asked.

        Args:
            path: The path id of the parent of these calls.
            scope: The ids they run under.
            emit: Receives their events.
            use: What they can use.
        """
        run = TurnRun(turn_id=path, role=NO_ROLE, emit=emit, lease=None, use=use)
        services = replace(self.services, registry=self.services.registry.of(scope.account))
        turn = self._context(TurnRequest("task", scope, {}), run, {}, services)
        drive = Drive(path, clock=self.services.clock)
        return calls_of(replace(turn, drive=drive), Frame(drive, path, 0), CODE)

    async def ask(
        self,
        signature: Signature,
        inputs: Mapping[str, Any],
        *,
        path: str,
        scope: Scope,
        emit: Emitter,
        use: Use,
        model: str | None = None,
    ) -> Mapping[str, Any]:
        """Ask a model outside of any turn, without a role.

        Args:
            signature: What is asked.
            inputs: Its input fields.
            path: The id of the call.
            scope: The ids it runs under.
            emit: Receives its events.
            use: What it can use.
            model: The name of the model; None is the agent's.
        """
        services = await self._services_with(() if model is None else (model,))
        run = TurnRun(turn_id=path, role=NO_ROLE, emit=emit, lease=None, use=use)
        return await self._context(TurnRequest("task", scope, {}), run, {}, services).ask_without_role(
            signature, inputs
        )

    def _new_drive(
        self,
        turn_id: str,
        records: dict[str, CallRecord],
        lease: Lease | None,
        refreshed: bool,
        unattended: UnattendedMode | None,
        on_behalf_of: str,
        handed: bool,
    ) -> Drive:
        drive = Drive(
            turn_id,
            records=records,
            journal=self.services.journal,
            lease=lease,
            clock=self.services.clock,
            thinkers=(SUBAGENT,),
            on_behalf_of=on_behalf_of,
            handed=handed,
        )
        drive.refreshed = refreshed
        drive.unattended = unattended
        drive.stopping = self._stopping
        return drive


def _said(request: TurnRequest) -> Iterator[str]:
    """What the person wrote to begin a turn; nothing if another turn, a member or untrusted text began it."""
    if request.origin or request.sender or request.on_behalf_of != ROOT or request.body.get("untrusted"):
        return
    composed = request.kind == "skill" and request.body.get("shape") != SKILL  # its params are partly the skill's own
    given = [request.body.get("text"), None if composed else request.body.get("params")]
    for each in given:
        yield from (str(leaf) for _, leaf in leaves(each))


async def _recall_words(turn: TurnContext) -> None:
    """Let a run of a turn read again what earlier runs read of the inbox, and what came since."""
    if turn.reading is not None:
        await turn.reading.recall(turn.turn_id)
        turn.reading.unread.set()


def _is_trusted(services: Services, name: str) -> bool:
    """Whether results of a function count as the person's: it is the host's, and trusted.

    With the context of its call it can reach what others wrote, or a role: memory, members, messages. What a skill
    brings is not in the registry.
    """
    function = services.registry.functions.get(name)
    return function is not None and function.kind == "leaf" and not function.untrusted and not function.context


def _unheard(event: TurnEvent) -> None:
    """Where events go of a turn that is over."""


def _recall(gate: Gate, records: Mapping[str, CallRecord], services: Services, *, guarded: bool) -> None:
    """Let a gate learn of the calls of earlier runs."""
    registry = services.registry
    # A function that is missing, such as one of a server that is down, counts as untrusted.
    own = {name for name, function in registry.unlisted.items() if not function.untrusted}
    gone = {each.name for each in records.values() if each.kind in ("leaf", "flow")}
    gone -= registry.functions.keys() | own
    gate.recall((*registry.untrusted, *gone), partial(_writes, services), registry.restricted)
    for record in records.values():  # what the entries that it recalled and the replies that it got were made of
        if services.recall is not None and record.name == RECALL and record.result:
            hidden = guarded and record.kind == RECALL  # a guarded model saw them as outlines
            (gate.hold if hidden else gate.mark)(*recalled_marks(record.result), at=record.id)
        gate.mark(*record.reply_marks, at=record.id)


def _writes(services: Services, name: str) -> bool:
    """Whether a recorded call of a function can have changed something; also if the function is gone."""
    registry = services.registry
    function = registry.functions.get(name) or registry.unlisted.get(name)
    for shape in services.shapes.shapes.values() if function is None else ():
        function = function or shape.own_functions.get(name)
    return function is None or changes_something(function)


def _continued(
    graph: LoopGraph, found: Mapping[str, Any], *, otherwise: str
) -> tuple[Command[Any] | None, frozenset[str]]:
    """The input with which a graph continues from a checkpoint, and the nodes that then run.

    Args:
        graph: The graph.
        found: The channels of the checkpoint.
        otherwise: The node in place of one that the graph does not have: tasks had none in earlier versions, and shapes
            come and go.
    """
    nodes = next_nodes(found)
    there = nodes & graph.nodes.keys()
    return (None, nodes) if there == nodes else (Command(goto=otherwise), there | {otherwise})


def _reported_marks(turn: TurnContext, request: TurnRequest, said: Mapping[str, Any]) -> Collection[str]:
    """The marks of what work in the background reports: those that its caller would have if it had waited for it.

    A result that is bounded carries no text of the worker, so it has only the marks of what the worker changed.
    """
    of, work = (request.reports or {}).get("of"), request.work
    if of is None:
        return ()
    shape = None if work is None else turn.services.shapes.get(work["shape"])
    bounds = None if shape is None or work is None else shape.callee(shape.read_params(work["params"])).bounds
    if bounds is None or not bounds.hold(str(said["result"].get("text", ""))):
        return {*turn.gate.marks, mark_of_worker(of)}
    before = () if request.origin is None else request.origin.marks
    return turn.gate.marks - {*before, *request.body.get("untrusted", ())}


def _roleless(turn: TurnContext, said: Mapping[str, Any]) -> str:
    """What a turn said, without anything of the turn's roles, also of short ones (R7)."""
    result, field = said.get("result"), _TEXTS.get(said.get("shape", ""))
    text = said["text"] if "text" in said else result.get(field) if isinstance(result, Mapping) else None
    text = text if isinstance(text, str) else canonical_json(result)
    return without_roles(text, (turn.turn_role, *turn.task_roles), short=True)
