"""The loop: think, pass the calls through the gate, think again, until there is an answer (H3).

The subclasses in `conversation` and `subagents` define how a conversation and a worker differ. The graphs whose nodes
are these steps are in `graph`, and the code that decides about a call is in `harness`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, ClassVar, Final, Literal, Protocol, cast

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs
from langgraph.config import get_config
from langgraph.errors import NodeCancelledError
from langgraph.runtime import Runtime
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from ...core import ROOT, canonical_json
from ...core.errors import (
    FunctionInvalid,
    HostError,
    LimitReached,
    ModelFacing,
    ModelNotConfigured,
    ModelUnavailable,
    OutputInvalid,
    ParamsInvalid,
    ResultInvalid,
    RoleEchoed,
    WorldAgentError,
)
from ...core.events import MemoryRecalled, MessageTaken, TurnKind
from ...core.validation import json_of_value, read_model
from ...harness import CallContext, Function
from ...harness.gate.labels import CONTEXT, Label
from ...harness.handles import GUIDE, HandleInvalid, Question, Resolved, questions_in
from ...harness.journal import ABOUT_THE_TURN, SUSPENDED, CallRecord, Frame, Step
from ...harness.pipeline import Call, run_call
from ...harness.service_tool import ServiceTools
from ...memory import Draft, Message
from ...memory.conversation import SPEAKER
from ...memory.entries import Entry, Recall, as_passages
from ...memory.inbox import Inbox, InboxRow
from ...signatures import (
    CallMade,
    Listener,
    ModelCaller,
    PastStep,
    Predictor,
    ServiceOffer,
    StepMade,
    Thought,
)
from ...signatures.calling import FIND_TOOLS, memory_fields
from ...signatures.summaries import without_role_in
from ...storage import Transaction
from ..checkpoints.saver import DURABILITY
from ..context import STOPPED, WAITING, TurnContext
from ..history import as_guarded, result_text, word_text
from ..nesting import LEASE, apart, chain_callbacks, nested
from ..shape import Work
from ..tasks import Dispatched, calls_of, dispatched
from .guarded import Guarded
from .reading import ASKING, answer_of, question_of
from .tools import Tools

_LOG = logging.getLogger("worldagent.tools")
_NEVER_BEGUN: Final = "model"  # the kind of a record of a call that failed before it began, and had no effects
_MOST_SHOWN: Final = 2000  # characters of an answer that was rejected
_UNREAD: Final = "it could not be read; give the fields that are asked for, in the form that is asked for"


@dataclass(slots=True)
class CallingStep:
    """A step that ended in calls.

    Attributes:
        id: The path id of the model call.
        said: The model's message: `calls`, and optionally `text`, and `served`, the calls that its service made.
        outcomes: The outcomes of the calls, in their order: a `value`, or `code` and `problem`; also `arguments` if a
            person replaced those of the model.
        own: The model's own message and its connection's name, if this run has them; its service requires it back.
    """

    id: str
    said: Mapping[str, Any]
    own: tuple[str, Any] | None = field(default=None, repr=False)
    outcomes: Sequence[Mapping[str, Any]] = ()

    @property
    def calls(self) -> Sequence[Mapping[str, Any]]:
        """Its calls: each with `tool` and `arguments`."""
        return list(self.said["calls"])


class Loop:
    """One run of a loop. It holds the role and is never stored.

    Args:
        turn: The turn, with the role of this loop's entry Signature.
        calls: The context of its calls: the conversation or the worker is the caller.
        tools: The tools that it can call.
        guard: Whether its model reads no result that a stranger can have written, if there are tools.
    """

    ACT: ClassVar = "act"
    """The beginning of the path ids of its calls."""

    REPORTED: ClassVar[tuple[type[WorldAgentError], ...]] = (ModelFacing, HostError)
    """Failures of calls that are reported to the model; any other ends the loop."""

    def __init__(self, turn: TurnContext, calls: CallContext, tools: Tools, *, guard: bool = False) -> None:
        self.guard = Guarded(turn.gate) if guard and tools.functions else None
        if self.guard is not None:
            tools = tools.guarded()
        elif guard:  # it reads, so it can do nothing, and a service asks nobody
            tools = replace(tools, services=())
        self.turn, self.calls, self.tools = turn, calls, tools
        self.steps: list[CallingStep] = []
        self.round = 0
        self.step = 0  # as events of text number them; rejected steps and answers count too
        self._words: list[tuple[int, str]] = []  # messages that came meanwhile, each with the number of steps before it
        self._left_out = 0  # how many of its own steps are omitted because the model's context is too short
        self._fault = self._unused = ""  # the second one is the answer itself, for as long as the turn runs here
        self._recalled: Sequence[Entry] | None = None  # None until it is looked up
        self._own: tuple[str, Any] | None = None  # belongs to the last model call
        self._asked: tuple[Mapping[str, Any], Sequence[PastStep], Mapping[str, Any]] | None = None  # the last call
        self._service_tools: ServiceTools | None = None
        self._services: list[ServiceOffer] = []  # those that the next model call offers
        self._served: list[Mapping[str, Any]] = []  # what the service did in the last one

    @property
    def models(self) -> Sequence[str | None]:
        """The names of its models, each a fallback of the one before; None is the turn's model."""
        return (None,)

    # --- thinking ---------------------------------------------------------------------------------------------------

    async def think_once(self, *, final: bool) -> Any:
        """Let the model think once, and return `calls`, a `result` or a `fault`; `SUSPENDED` if a person must answer.

        Args:
            final: Whether it must answer.
        """
        self._own = self._asked = None
        if self.tools.services and await self._judge_services() is SUSPENDED:
            return SUSPENDED
        try:
            thought = await self.ask_model(final)
        except (OutputInvalid, RoleEchoed) as error:
            await self._record_served()
            if isinstance(error, RoleEchoed):
                raise
            self._unused = ""
            return {"fault": error.fault or _UNREAD}
        if self.guard is None:
            said = self.tools.checked(thought)
        else:
            given = [thought.answer, dict(thought.outputs), *(arguments for _, arguments in thought.calls)]
            await self.guard.load(given, self.turn.services.attachments)
            said = self.guard.checked(self.tools, thought)
        self._unused = _shown(thought) if "fault" in said else ""
        if self._served:
            said["served"] = await self._record_served()
        return said

    async def _judge_services(self) -> Any:
        """Let the gate judge which tools of the model's service are offered; `SUSPENDED` if a person is asked."""
        services, name = self.turn.services, self.models[0]
        connection = (services.caller if name is None else await services.models.get(name)).connection
        for tool in self.tools.services:
            if tool.name not in connection.services:
                _warn_left_out(tool.name, connection.name)
        if self._service_tools is None:
            self._service_tools = ServiceTools(self.tools.services, self.calls)
        found = await self._service_tools.offered(self.think_id, connection.services)
        if found is not SUSPENDED:
            self._services = [ServiceOffer(name=each.name, options=each.options) for each in found]
        return found

    async def _record_served(self) -> list[Mapping[str, Any]]:
        served, self._served = self._served, []
        if served and self._service_tools is not None:
            await self._service_tools.record(self.think_id, served)
        return served

    async def ask_model(self, final: bool) -> Thought:
        """Ask its models."""
        raise NotImplementedError

    async def ask(
        self, inputs: Mapping[str, Any], *, final: bool, notes: Sequence[str] = (), field: str | None = None
    ) -> Thought:
        """Ask a model, and the next one if it cannot be reached.

        Args:
            inputs: The input fields of the entry Signature.
            final: Whether it must answer.
            notes: Texts for the model about its last answer.
            field: The output field whose text is streamed, if a client listens.
        """
        tools = self.tools
        listener = self.turn.listener(tools.signature.__name__, field, step=self.step, tools=tools.offered.names)
        if self._services:
            listener = replace(listener, served=self._served.extend)
        if self.guard is not None:
            listener = self.guard.listening(listener)
        # Not a closure: its frames are not cleared, and an error that is kept would keep the role.
        ask = partial(self._ask_one, inputs=inputs, final=final, notes=notes, listener=listener)
        return await self.turn.ask(ask, self.models)

    async def _ask_one(
        self, caller: ModelCaller, *, inputs: Mapping[str, Any], final: bool, notes: Sequence[str], listener: Listener
    ) -> Thought:
        turn, tools, caller, predictor = self.turn, self.tools, self.tuned(caller), self.predictor(inputs)
        if self.guard is not None:
            caller = _for_guarded(caller)
        offered = tools.offered.inputs
        if tools.searched:
            offered = tools.inputs(pair for step in self.steps for pair in zip(step.calls, step.outcomes, strict=True))
        given, past = {**inputs, **offered}, self.past(caller)
        answer = await predictor(
            given,
            caller,
            role=turn.role,
            steps=[*past, *notes],
            final=final,
            services=self._services,
            listener=listener,
        )
        self._own = None if answer.message is None else (caller.connection.name, answer.message)
        self._asked = given, past, answer.fields
        return Thought.of(answer, tools.signature, tools.offered, final=final)

    async def without_role(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """The output fields of a guarded model without what they disclose of the role, now that they have values (R16).

        Raises:
            RoleEchoed: They disclose a role whose `echo` is `fail`.
        """
        turn, name, echo = self.turn, self.tools.signature.__name__, self.turn.services.caller.options.echo
        inputs = {} if self._asked is None else self._asked[0]
        found = await without_role_in(fields, inputs, turn.role, name, echo)
        if found.withheld:
            turn.listener(name).withheld(found.withheld)
        return found.fields

    def predictor(self, inputs: Mapping[str, Any]) -> Predictor:
        """The predictor of its entry Signature for these inputs."""
        prompt = self.turn.prompt
        if self.guard is not None:
            prompt = GUIDE if prompt is None else f"{prompt}\n\n{GUIDE}"
        return self.turn.services.predictors.get(self.tools.signature, prompt, inputs)

    def keep_example(self) -> None:
        """Keep the last model call as an example, if those of the turn are kept, once its answer is accepted."""
        if self._asked is not None:
            inputs, past, fields = self._asked
            self.turn.keep_example(self.think_id, self.tools.signature, inputs, fields, past)

    def on_step(self, think_id: str, said: Mapping[str, Any]) -> None:
        """A step ended in calls, which are made next."""
        own, self._own = self._own, None
        self.steps.append(CallingStep(think_id, said, own))

    def tuned(self, caller: ModelCaller) -> ModelCaller:
        """The model with the options of the loop."""
        return caller

    def past(self, caller: ModelCaller) -> list[PastStep]:
        """The previous steps, as a model gets them.

        A model's own message is included only for this model and in this run, and not if it has calls of a tool of the
        service that is no longer offered: a service can refuse them then.
        """
        found: list[PastStep] = []
        words = [*self._words]
        for place, step in enumerate(self.steps):
            while words and words[0][0] <= place:
                found.append(words.pop(0)[1])
            if place < self._left_out:
                continue
            name, message = step.own or ("", None)
            made = [
                CallMade(tool=call["tool"], arguments=call["arguments"], result=result_text(outcome))
                for call, outcome in zip(step.calls, step.outcomes, strict=True)
            ]
            served = calls_served(step.said) if "served" in step.said else ()
            own = message if name == caller.connection.name and not self._has_withdrawn(served) else None
            found.append(StepMade(calls=made, message=own, served=served))
        return [*found, *(text for _, text in words)]

    async def read_words(self, head: str, *, round: int, step: int) -> str:
        """Read the messages that came while the turn runs, if this is the loop that does; returns the new head (T15).

        The row of the inbox and the message in the log are written in one commit before the model gets them. The row
        keeps the step, so that a turn that resumes reads the same at the same place.

        Args:
            head: The last message of the thread.
            round: How many of its steps have ended in calls.
            step: The step that is next.
        """
        turn, reading = self.turn, self.turn.reading
        if reading is None or reading.loop != turn.task or not (step or reading.unread.is_set() or reading.again):
            return head
        again, fresh, taken = reading.again.pop(step, []), list[InboxRow](), list[InboxRow]()
        if turn.drive.recorded(self.think_id) is None:  # nothing can be added to what a recorded thought has read
            member = turn.drive.on_behalf_of if turn.speaker is None else ROOT  # the inbox is that of the person
            fresh = await reading.found(turn.thread_key, turn.scope, member)
            if turn.speaker is not None:  # a report that it may not see waits
                fresh = [row for row in fresh if row.kind != "report" or turn.speaker.admits(row.marks)]
        if not again and not fresh:
            return head

        def take(transaction: Transaction) -> Sequence[Draft]:
            new = [row for row in fresh if Inbox.take(transaction, row.id, turn=turn.turn_id, round=round, step=step)]
            taken[:] = [*again, *new]
            said = {} if turn.speaker is None else {SPEAKER: turn.speaker.member}
            return [Draft(row.author, "word", {**row.body, **said}) for row in taken]

        assert turn.lease is not None, "only a turn that is stored has an inbox"
        log, of = turn.services.log, {"thread": turn.thread_key, "turn_id": turn.turn_id}
        made = await log.append_made(head, take, lease=turn.lease, **of)
        for row, message in zip(taken, made, strict=True):
            if row.kind != "queue":
                shown = {"author": message.author, "name": message.name, "text": row.text, "step": step}
                turn.emit(MessageTaken, id=row.id, message_id=message.id, kind=row.kind, **shown)
            self.show_word(row, message)
        return made[-1].id if made else head

    def show_word(self, row: InboxRow, message: Message) -> None:
        """Show the model a message of the inbox, as it is in the log, after its steps so far."""
        composed = (row.start["sender"], row.start["on_behalf_of"], row.start["origin"]) != (None, ROOT, None)
        # What code of a turn, or a member, says is not the person's; and to a member, nothing counts as the person's.
        if row.kind == "steer" and not row.marks and not composed and self.turn.speaker is None:
            self.turn.gate.say(row.text)
        self.turn.budget.lower(row.id, row.start.get("spent", {}))
        marks = message.body.get("untrusted", ())
        (self.turn.gate.mark if self.guard is None else self.turn.gate.hold)(*marks)
        shown = message if self.guard is None else as_guarded(message, self.guard)
        self._words.append((len(self.steps), word_text(shown)))

    def _has_withdrawn(self, served: Sequence[CallMade]) -> bool:
        """Whether calls of a service have one of a tool that is no longer offered."""
        if not served:
            return False
        withdrawn = {each.name for each in self.tools.services} - {each.name for each in self._services}
        return any(call.tool in withdrawn for call in served)

    def fault_notes(self) -> list[str]:
        """The texts for the model about an answer that could not be used."""
        if not self._fault:
            return []
        said = f" It was: {self._unused}" if self._unused else ""
        return [f"Your last answer could not be used: {self._fault}. Correct it, or answer now.{said}"]

    def limit_reached(self) -> bool:
        """Whether one of the last calls was refused by a limit that no further call can pass."""
        if not self.steps or all(each.get("code") != LimitReached.code for each in self.steps[-1].outcomes):
            return False
        # A called function can reach its own limit; then other calls are still possible.
        counters = self.turn.budget.counters
        return any(each.limits.calls is not None and each.spent.calls >= each.limits.calls for each in counters)

    # --- remembering ------------------------------------------------------------------------------------------------

    @property
    def recalled(self) -> tuple[str, ...]:
        """The ids of the memory entries that it recalled, in this run or an earlier one."""
        record = self.calls.frame.drive.recorded(self._recall_id)
        found = [] if record is None or record.result is None else json.loads(record.result)
        return tuple(each["id"] for each in found)

    async def recall(self, recall: Recall, text: str) -> dict[str, Any]:
        """The input field with the memory entries that fit a text; nothing if the Signature has no such field.

        They are looked up once, and are the same at each step.

        Args:
            recall: Looks them up.
            text: The message or the request.
        """
        names = memory_fields(self.tools.signature)
        if not names:
            return {}
        if self._recalled is None:
            self._recalled = await self._look_up(recall, text)
        shown, guard = self._recalled, self.guard
        if guard is not None:
            shown = [guard.entry(each) for each in shown]
        return {names[0]: as_passages(shown)}

    def with_context(self, recalled: dict[str, Any]) -> dict[str, Any]:
        """The field for what is remembered with the passages of the host before it."""
        context, gate, guard = self.turn.context, self.turn.gate, self.guard
        if not all(each.trusted for each in context):
            (gate.mark if guard is None else gate.hold)(CONTEXT)
        if guard is None:
            given = [{"from": each.source, "text": each.text} for each in context]
        else:
            given = [guard.passage(place, each) for place, each in enumerate(context)]
        return {name: [*given, *entries] for name, entries in recalled.items()}

    @property
    def _recall_id(self) -> str:
        return f"{self.calls.frame.path}/recall"

    async def _look_up(self, recall: Recall, text: str) -> Sequence[Entry]:
        turn, drive = self.turn, self.calls.frame.drive
        reader = await recall.reader(turn.scope, drive.on_behalf_of)
        again = drive.recorded(self._recall_id) is not None

        async def find(_: Any) -> Any:
            return await recall.find(reader, text)

        step = Step(
            id=self._recall_id, parent=self.calls.frame.path, name="recall", kind="recall", input=text, body=find
        )
        found = await drive.run(step)
        if found is SUSPENDED:
            interrupt(STOPPED)
        entries = await recall.read(reader, cast("Sequence[Mapping[str, Any]]", found))
        hidden = self.guard is not None and turn.guard
        (turn.gate.hold if hidden else turn.gate.mark)(*(mark for entry in entries for mark in entry.marks))
        if not again:
            turn.emit(MemoryRecalled, entries=tuple(entry.id for entry in entries), call_id=turn.task or turn.turn_id)
        return entries

    # --- acting -----------------------------------------------------------------------------------------------------

    async def acted(self, within: RunnableConfig | None = None) -> bool:
        """Make the calls of the last step concurrently; False if one waits for a person, or has to stop.

        Args:
            within: The config of the node that makes them; None if all of them are recorded.
        """
        outcomes = await self.make(range(len(self.steps[-1].calls)), within)
        return await self.made(outcomes)

    async def make(self, places: Sequence[int], within: RunnableConfig | None) -> list[Any]:
        """Make calls of the last step concurrently, and return their outcomes, of which some can be exceptions.

        Args:
            places: Which calls.
            within: The config of the node that makes them. The loops of their tasks are subgraphs of it.
        """
        step, ids, nodes = self.steps[-1], self.act_ids, self.turn.nodes
        if within is not None:
            nodes.update((ids[place], within) for place in places)
        try:
            with apart():
                running = (self._called(step.calls[place], ids[place]) for place in places)
                return await asyncio.gather(*running, return_exceptions=True)
        finally:
            for place in places:
                nodes.pop(ids[place], None)

    async def made(self, outcomes: Sequence[Any]) -> bool:
        """Take the outcomes of all calls of the last step; False if one waits for a person, or has to stop.

        Raises:
            BaseException: The failure of the first call that failed.
        """
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        await self.calls.frame.drive.settle(self.calls.path)
        done = [outcome for outcome in outcomes if isinstance(outcome, Mapping)]
        if len(done) < len(outcomes):
            return False
        self.steps[-1].outcomes = done
        return True

    async def _called(self, call: Mapping[str, Any], call_id: str) -> Any:
        """The outcome of a call: its value, or the failure as the model reads it; `SUSPENDED` if it waits."""
        record, name, made = self.calls.frame.drive.recorded(call_id), call["tool"], None
        again = self.is_over(call_id)
        if self.guard is not None and self.tools.functions.get(name) is ASKING:
            return await self._asked_reader(self.guard, call, call_id)
        settled = None if record is None else self._settled(call, call_id, record)
        if settled is not None:
            return settled
        try:
            # If its source is gone since the model requested the call, the registry reports that.
            function = self.tools.functions.get(name) or self.calls.registry.function(name)
            given, resolved = call["arguments"], None
            if self.guard is not None:
                given = await self.read(given, call_id)
                if given is SUSPENDED:
                    return SUSPENDED
                resolved = self.guard.handles.resolved(given)
                given = resolved.value
            params = read_model(function.params, given, what=f"arguments of {name!r}", error=ParamsInvalid)
            ctx = replace(self.calls, tools=None) if name == FIND_TOOLS else self.calls  # no glob names it
            if resolved is not None:
                ctx = replace(ctx, resolved=resolved.read(params))
            made = Call(function=function, input=params, ctx=ctx, id=call_id, waits=False)
            value = await run_call(made)
            if value is SUSPENDED:
                return SUSPENDED
            value = _json(function, value)
            outcome = {"value": value} if self.guard is None else self.guard.outcome(made, value, again=again)
            return {**outcome, **self._changed(name, call_id)}
        except ABOUT_THE_TURN:
            raise
        except self.REPORTED as error:
            failure: WorldAgentError = error
        await self._keep(call, call_id, failure)
        failed = {"code": failure.code, "problem": failure.for_model}
        if self.guard is not None:
            failed = self.guard.failed(failed, call, made, self.calls.frame.drive.recorded(call_id))
        return failed | self._changed(name, call_id)

    def _settled(self, call: Mapping[str, Any], call_id: str, record: CallRecord) -> Mapping[str, Any] | None:
        """The recorded outcome of a call that never began, or is done although it could not be called now."""
        name = call["tool"]
        if record.kind == _NEVER_BEGUN and record.result is not None:
            failed = _failure(json.loads(record.result))
            return failed if self.guard is None else self.guard.failed(failed, call, None, record)
        if not record.over or name in self.tools.functions:
            return None
        found = outcome_of(record)
        if self.guard is not None:
            found = self.guard.outcome_of(record, call, found)
        return found | self._changed(name, call_id)

    async def read(self, said: Any, path: str) -> Any:
        """What a guarded model said, with handles of answers in the place of its questions; `SUSPENDED` if it waits.

        Args:
            said: JSON, or a text.
            path: The path id of what needs it, such as a call.

        Raises:
            OutputInvalid: A reader gave nothing of the kind that was asked for.
        """
        if self.guard is None:
            return said
        await self.guard.load(said, self.turn.services.attachments)
        questions = questions_in(said)
        if not questions:
            return said
        found: list[Resolved] = []
        for number, given in enumerate(questions):
            question = self.guard.handles.question(given)
            answer = await answer_of(self.turn, question, path=f"{path}/ask.{number}", parent=self.calls.path)
            if answer is None:
                return SUSPENDED
            found.append(answer)
        return self.guard.with_answers(said, found)

    async def _asked_reader(self, guard: Guarded, call: Mapping[str, Any], call_id: str) -> Any:
        """The outcome of a call of `ask`."""
        try:
            await guard.load(call["arguments"], self.turn.services.attachments)
            question = guard.handles.question(question_of(call["arguments"]))
            assert isinstance(question, Question), "`question_of` makes one"
            found = await answer_of(self.turn, question, path=call_id, parent=self.calls.path)
        except HandleInvalid as error:
            return {"code": ParamsInvalid.code, "problem": str(error)}
        except (OutputInvalid, HostError) as error:
            return {"code": error.code, "problem": error.for_model}
        return SUSPENDED if found is None else guard.told(call_id, question, found)

    def _changed(self, name: str, call_id: str) -> dict[str, Any]:
        """The arguments of a person that replaced the model's, if any. The model then reads what ran."""
        record = self.calls.frame.drive.recorded(call_id)
        changed = None if record is None else (record.recorded_decision or {}).get("arguments")
        if changed is None:
            return {}
        if self.guard is not None:  # what the person left unchanged can be a stranger's
            return {"changed": True}
        if self.is_worker(name):  # a worker is called by its name, and approved as a task for it
            changed = {key: value for key, value in changed.items() if key != "worker"}
        return {"arguments": changed}

    def is_worker(self, name: str) -> bool:
        """Whether a call of this name runs a worker, which can be removed meanwhile, or a function in its place."""
        function = self.tools.functions.get(name)
        return (function is not None and function.kind == "worker") or self.calls.registry.is_worker(name)

    async def _keep(self, call: Mapping[str, Any], call_id: str, failure: WorldAgentError) -> None:
        """Record a call that failed before it reached the journal, so that a replay reports the same failure."""
        drive = self.calls.frame.drive
        if not drive.can_ask or drive.recorded(call_id) is not None:
            return
        step = Step(
            id=call_id, parent=self.calls.path, name=call["tool"], kind=_NEVER_BEGUN, input=call, refusal=failure
        )
        try:
            await drive.run(step)
        except type(failure):
            return

    # --- ids --------------------------------------------------------------------------------------------------------

    @property
    def think_id(self) -> str:
        """The path id of the model call of this step."""
        return f"{self.calls.frame.path}/think.{self.round}"

    @property
    def act_ids(self) -> list[str]:
        """The path ids of the calls of the last step."""
        head = f"{self.calls.path}/{self.ACT}{self.steps[-1].id.removeprefix(f'{self.calls.path}/think')}"
        return [f"{head}.{place}:{call['tool']}" for place, call in enumerate(self.steps[-1].calls)]

    def is_over(self, call_id: str) -> bool:
        """Whether the journal has the outcome of a call."""
        record = self.calls.frame.drive.recorded(call_id)
        return record is not None and record.over


def _for_guarded(caller: ModelCaller) -> ModelCaller:
    """A model for guarded loops. Its service is not asked to hold answers to a schema, since handles do not fit it.

    Raises:
        ModelNotConfigured: It is the embedded model.
    """
    if caller.plain:
        raise ModelNotConfigured(
            "the embedded model cannot write handles, so it cannot be guarded and call tools",
            remedy="use another model, take its tools away so that it only reads, or begin the turn with guard=False",
        )
    return replace(caller, options=replace(caller.options, schemas="off"))


def calls_served(said: Mapping[str, Any]) -> list[CallMade]:
    """The calls that the model's service made itself at a step, as a model reads them."""
    return [
        CallMade(tool=each["tool"], arguments=each["arguments"], result=result_text({"value": each["result"]}))
        for each in said["served"]
    ]


def outcome_of(record: CallRecord) -> dict[str, Any]:
    """The outcome of a finished call, from the journal."""
    result = json.loads(record.result or "null")
    if record.state == "failed":
        return _failure(result)
    is_worker = isinstance(result, dict) and result.keys() == {"worker", "text"}
    return {"value": result["text"] if is_worker else result}


@cache
def _warn_left_out(tool: str, model: str) -> None:
    """Name a tool that a model's service lacks, once for each."""
    _LOG.warning(
        "the service of the model %r has no tool %r, so the model is not offered it; the guide on model services says "
        "which service has which",
        *(model, tool),
    )


def _failure(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """A recorded failure as the model reads it."""
    failure = WorldAgentError.kind_of(recorded["code"])(recorded["problem"], remedy=recorded["remedy"])
    return {"code": recorded["code"], "problem": failure.for_model}


def _json(function: Function, value: Any) -> Any:
    return json_of_value(function.result, value, what=f"the result of {function.name!r}", error=ResultInvalid)


class LoopState(TypedDict, total=False):
    """The position of a loop. A turn has all fields but `worker`; a worker has `worker`, `round` and `status`."""

    turn: str
    kind: TurnKind
    asked: str
    head: str
    round: int
    step: int
    work: list[Work]
    rejections: int
    fault: str | None
    status: Literal["open", "done", "think", "act", "waiting"]
    worker: str


class Run(Protocol):
    """The object that the nodes work with. A graph has only the nodes that its run knows."""

    async def compose(self, state: LoopState) -> Command[str]:
        """Make a skill ready."""
        ...

    async def think(self, state: LoopState) -> Command[str]:
        """Let a model think."""
        ...

    async def act(self, node: str, state: LoopState) -> Command[str]:
        """Make the calls of a node."""
        ...


async def run_graph(
    graph: Any,
    state: LoopState | Command[Any] | None,
    *,
    turn: TurnContext,
    context: Any,
    steps: int | None = None,
    within: RunnableConfig | None = None,
    view: RunnableConfig | None = None,
    name: str | None = None,
) -> dict[str, Any]:
    """Run a compiled graph to its end. Start and recovery both use this function (D8).

    Args:
        graph: The compiled graph.
        state: Its input; None resumes the thread from its checkpoint.
        turn: The turn it runs for.
        context: The context that its nodes get.
        steps: The limit of its steps; None derives it from the turn's rounds and the checks of its answers.
        within: The config of the node that runs it as its subgraph; None runs it on its own.
        view: What it gets of a node of another graph that shows it as a subgraph; see `view_of`.
        name: The name of the run for callbacks; None is that of the graph.
    """
    options = turn.services.options
    config: RunnableConfig = {
        "configurable": {"thread_id": turn.thread_key, LEASE: turn.lease},
        "callbacks": chain_callbacks(turn.services.callbacks),
    }
    if within is not None:
        config = nested(within)
    elif view is not None:
        config = merge_configs(view, config)
    config["recursion_limit"] = 3 * options.max_rounds + 2 * options.verifications + 10 if steps is None else steps
    if name is not None:
        config["run_name"] = name
    mode = DURABILITY.get()
    extra: dict[str, Any] = {"durability": mode} if graph.checkpointer else {}
    if graph.checkpointer and mode != "sync" and turn.lease is not None:
        await turn.lease.flush()  # no checkpoint precedes the first node, so the beginning of the turn is written now
    try:
        with apart():
            return dict(await graph.ainvoke(state, config, context=context, **extra))
    except NodeCancelledError:
        pass  # the turn was not cancelled: only what a node awaited was, and tasks report that themselves
    raise ModelUnavailable(
        f"a call of the model {turn.services.caller.connection.name!r} was cancelled from within", remedy="try again"
    )


def first_state(turn: TurnContext, kind: TurnKind, head: str, work: Work | None) -> LoopState:
    """The input of a new turn. It resets every channel that a turn uses."""
    return {
        "turn": turn.turn_id,
        "kind": kind,
        "asked": head,
        "head": head,
        "round": 0,
        "step": 0,
        "work": [] if work is None else [work],
        "rejections": 0,
        "fault": None,
        "status": "open",
    }


class HostTask:
    """One run of a task or skill that the host dispatched.

    It has the turn's role, and its failure is the turn's failure.

    Args:
        turn: The turn.
    """

    def __init__(self, turn: TurnContext) -> None:
        self._turn = turn
        self.outcome: Mapping[str, Any] | None = None  # the body of its result, set when it is in the log

    async def act(self, node: str, state: LoopState) -> Command[str]:
        """Run the task, and append its result to the log."""
        turn, [item] = self._turn, state["work"]
        shape = turn.services.shapes.get(item["shape"])
        params = shape.read_params(item["params"])
        ctx = calls_of(turn, Frame(turn.drive, turn.turn_id, turn.depth), turn.caller)
        how = Dispatched(shape=shape, role=turn.role, prompted=True, raw=True)
        path = f"{turn.turn_id}/task:{item['shape']}"
        is_code = shape.subgraph is None or shape.stand_in(params) is not None
        if turn.reading is not None:
            turn.reading.head, turn.reading.loop = state["head"], None if is_code else path
        turn.nodes[path], turn.drive.acting = get_config(), is_code
        try:
            with apart():
                result = await dispatched(how, params, ctx, path=path, waits=False)
        finally:
            del turn.nodes[path]
        turn.drive.acting = True  # until its result is in the log
        if result is SUSPENDED:
            interrupt(WAITING)
        body = {"to": item["to"], "shape": item["shape"], "status": "done", "result": result}
        if turn.guard and turn.gate.marks:
            body["labels"] = {"result": Label.of_marks(turn.gate.marks).to_json()}
        self.outcome = body = turn.with_withheld(body)
        last = state["head"] if turn.reading is None else turn.reading.head
        head = await turn.append(last, [Draft(item["to"], "result", body)])
        update = {"head": head, "work": [], "round": state["round"] + 1, "status": "done"}
        return Command(update=update, goto="__end__")


async def think(state: LoopState, runtime: Runtime[Any]) -> Command[str]:
    """The function of the node in which a model thinks."""
    return await run_of(runtime).think(state)


async def compose(state: LoopState, runtime: Runtime[Any]) -> Command[str]:
    """The function of the node in which a skill is made ready."""
    return await run_of(runtime).compose(state)


def run_of(runtime: Runtime[Any]) -> Run:
    """The object that a node works with.

    Raises:
        FunctionInvalid: The graph does not run in a turn.
    """
    run: Run | None = runtime.context
    if run is None:
        raise FunctionInvalid(
            "the graph of a turn runs only in a turn of an agent",
            remedy="run agent.graph(), or begin a turn with agent.thread(...).converse(...)",
        )
    return run


def _shown(thought: Thought) -> str:
    """An answer that was rejected, as far as the model needs it to see what was wrong."""
    calls = [{"tool": name, "arguments": arguments} for name, arguments in thought.calls]
    return (canonical_json(calls) if calls else str(thought.answer or ""))[:_MOST_SHOWN]
