"""The only module that reveals a role and calls a model (D1, D4, D5, D18).

A `Predictor` belongs to one Signature and holds two prebuilt `dspy.Predict`: one with the role field and one without.
It stores nothing of a call. Other modules define turns and decide which role applies; this one only passes the text on.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import dspy
from dspy.lm15 import CacheConfig, Message
from pydantic import BaseModel

from ..core import ModelUsage, Purse, digest
from ..core.errors import (
    ModelNotConfigured,
    ModelRateLimited,
    ModelRefused,
    ModelTimeout,
    OutputInvalid,
    RoleEchoed,
    WorldAgentError,
)
from ..role_resolution import NO_ROLE, Echo, ResolvedRole
from .adapter import ROLE, SUMMARY, PastStep, RoleAdapter, Signature, fixed_texts, without_unpaired_surrogates
from .callbacks import Watch
from .calling import CALLS, TOOLS, ServiceOffer, ToolsOfStep
from .disclosure import RoleGuard
from .dspy_log import redirected
from .echo import Hidden
from .engines.classification import ToolsRefused, classify, is_written_call, refuses_form, tools_refused
from .engines.connect import ModelConnection, connect_model, highest_cost, most_received
from .engines.costs import CostTracker, RateLimitWait
from .engines.providers import is_local, sending
from .engines.sending import FOUND
from .forms import Forms, user_follows
from .matching import in_turns
from .media import MEDIA_FIELDS, Media, MediaKind
from .programs import Program, RoleFreePredict, adapter_of, fitting_program
from .signature import describe_role, named, with_media, with_role, without_role
from .streaming import AnswerStream
from .structured import StructuredAdapter
from .texts import with_texts

STRUCTURED: Final = StructuredAdapter()
"""The adapter of all calls whose answer a service holds to a schema."""

_REASONING: Final = frozenset({"reasoning_effort", SUMMARY})

T = TypeVar("T")

Takes = Literal["auto", "text", "images", "files"]
Tools = Literal["auto", "native", "json"]
Schemas = Literal["auto", "off"]
CacheHints = Literal["auto", "on", "off"]
OnError = Callable[[BaseException], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """The options of model calls.

    Attributes:
        timeout: Seconds that one call can take with all its tries, besides waiting as long for a rate limit.
        attempts: How often a call is tried that failed for a temporary reason.
        backoff: Seconds before the second try; it doubles with each further one.
        echo: What happens to a role that the model gives back, if the role does not say (R16).
        takes: The media that it accepts in addition to text: `text` is none, `images`, or `files` (images and
            documents). `auto` is what is known of the model, or everything if nothing is known.
        tools: How it is offered tools: `native`, by its service, or `json`, in words; `auto` uses what is known of the
            model.
        schemas: Whether a service that can is asked to hold an answer to its schema.
        cache_hints: Whether a service gets hints about which part of a prompt to cache. With `auto` a server at a
            custom address gets none.
        workspace: The workspace whose prompts are kept separate from those of others.
    """

    timeout: float = 120.0
    attempts: int = 3
    backoff: float = 0.5
    echo: Echo = "disclosure"
    takes: Takes = "auto"
    tools: Tools = "auto"
    schemas: Schemas = "auto"
    cache_hints: CacheHints = "auto"
    workspace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCaller:
    """The shared values of all calls of one agent: the model, the adapter, the options.

    Attributes:
        connection: The model.
        adapter: Writes prompts and reads completions.
        options: Time limits, retries, the echo setting.
        on_error: Receives the original of a model error in this process. It can hold the prompt. Off by default (D5).
        generation: The generation settings, such as `temperature`, by dspy's names.
        headers: Headers for the model's service. The embedded model and an LM of the user get none.
    """

    connection: ModelConnection
    adapter: RoleAdapter
    options: ModelOptions = field(default_factory=ModelOptions)
    on_error: OnError | None = None
    generation: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def vendor(self) -> str:
        """The beginning of the model's name."""
        return self.connection.name.partition("/")[0]

    @property
    def sent(self) -> Mapping[str, Any]:
        """The part of `generation` that the model accepts: the embedded one cannot reason."""
        return {name: value for name, value in self.generation.items() if not (self.plain and name in _REASONING)}

    @property
    def plain(self) -> bool:
        """Whether this is the embedded model."""
        return self.connection.plain

    @property
    def takes(self) -> frozenset[MediaKind]:
        """The media that the model accepts in addition to text."""
        by_setting: dict[Takes, frozenset[MediaKind]] = {
            "text": frozenset(),
            "images": frozenset({"image"}),
            "files": frozenset({"image", "file"}),
        }
        return by_setting.get(self.options.takes, self.connection.takes)

    def cache_of(self, signature: str) -> CacheConfig | None:
        """The cache hints for the prompts of a Signature; None for no hints."""
        hints, options = self.connection.cache, self.options
        if hints is None or options.cache_hints == "off" or (hints.own and options.cache_hints == "auto"):
            return None
        key = digest([options.workspace, signature]) if hints.key else None
        # The adapter knows where the repeated part ends.
        return CacheConfig(key=key, prefix="history" if hints.mark else None)

    def cost_of(self, sent: int, received: int) -> float | None:
        """What tokens cost at most, in US dollars; None if the model has no known price."""
        return highest_cost(self.connection, sent, received)

    def schema_of(self, signature: Signature) -> str | None:
        """The schema that a service can be asked to hold answers of a Signature to; None for none."""
        if self.options.schemas == "off":
            return None
        return STRUCTURED.schema(signature)

    @property
    def history_characters(self) -> int | None:
        """How many characters of history fit next to a long message, if the model's context is known."""
        return self.connection.context  # a character a token: at the usual four of a token, a quarter of it

    async def aclose(self) -> None:
        """Release the model."""
        await self.connection.aclose()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of one call.

    Attributes:
        fields: The output fields, without what must not be shown of the role (R16).
        withheld: How many characters were withheld of each field, and of the `reasoning`.
        message: The model's own message, which its service can require back at the next step. It is not scrubbed, and
            must not be stored beyond the turn. None if tools were not sent natively.
        served: The calls that the service made itself, as `Listener.served` gets them.
    """

    fields: Mapping[str, Any]
    withheld: Mapping[str, int] = field(default_factory=dict)
    message: Message | None = field(default=None, repr=False)
    served: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """The callbacks of a running call.

    Attributes:
        usage: Receives the usage of every try, and by name `model`, `seconds`, and `tokens` and `cost`, which count
            against limits.
        field: The text output field whose deltas are streamed, or None.
        emit: Receives each piece of its text.
        withdraw: Called when emitted text becomes invalid.
        reason: Receives each piece of the model's reasoning, if its service shows it; None if it is not streamed.
        argue: Receives the place of a call in the answer, the name of its tool as the model's service has it, and a
            piece of its arguments as JSON; None if they are not streamed. A model that is offered tools in words gives
            all arguments of a call at once.
        prompt: Receives the messages of every try, with `[role: N characters]` in place of the role; None for no one.
        withheld: Receives how many characters of the role were withheld of each field.
        served: Receives the calls that the service made itself in a try: each with `tool`, `arguments`, `result` and
            `failed`. Of a try whose answer is not used, it gets the tools only.
        waiting: Called with the model's name and a number of seconds before a call waits for the model's service.
        before: Called before every try. An exception is passed on, and the model is not called.
        after: Awaited when the call is over, successful or not.
        watch: Notifies callbacks of the call; None if there are none.
        purse: Reserves the most that each try can use, before it; None if nothing does.
    """

    usage: Callable[..., None] = lambda used, **more: None
    field: str | None = None
    emit: Callable[[str], None] = lambda text: None
    withdraw: Callable[[], None] = lambda: None
    reason: Callable[[str], None] | None = None
    argue: Callable[[int, str, str], None] | None = None
    prompt: Callable[[list[dict[str, Any]]], None] | None = None
    withheld: Callable[[Mapping[str, int]], None] = lambda characters: None
    served: Callable[[Sequence[Mapping[str, Any]]], None] = lambda calls: None
    waiting: Callable[[str, float], None] = lambda model, seconds: None
    before: Callable[[], None] = lambda: None
    after: Callable[[], Awaitable[None]] | None = None
    watch: Watch | None = None
    purse: Purse | None = None


async def open_model(
    lm: str | dspy.BaseLM,
    *,
    api_base: str | None = None,
    options: ModelOptions | None = None,
    generation: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    on_error: OnError | None = None,
) -> ModelCaller:
    """Prepare a model for calls from this event loop.

    Args:
        lm: A model string, `local`, or a `dspy.LM`.
        api_base: The address of a model string's service, if not the usual one; other models have none.
        options: Time limits, retries, the echo setting.
        generation: The generation settings, by dspy's names.
        headers: Headers for a model string's service; other models get none.
        on_error: Receives the original exception of a model error.

    Raises:
        ModelNotConfigured, MissingExtra, InvalidArgument: The text names the problem.
    """
    hosted = isinstance(lm, str) and not is_local(lm)
    connection = await connect_model(lm, api_base=api_base if hosted else None)
    try:
        adapter = adapter_of(connection.weights)
    except BaseException:
        await connection.aclose()
        raise
    return ModelCaller(
        connection=connection,
        adapter=adapter,
        options=options or ModelOptions(),
        on_error=on_error,
        generation=generation or {},
        headers=(headers or {}) if hosted else {},
    )


_SILENT = Listener()
_UNSAID: Final = ModelUsage(calls=1, input_tokens=None, output_tokens=None, cost=None)
_SERVED: Final = "service_calls"
_LONGEST_PAUSE: Final = 5.0  # seconds between two tries
CHARACTERS_PER_TOKEN: Final = 4  # characters of a token, an estimate
BYTES_PER_TOKEN: Final = 2  # where the most tokens of a text are estimated
MEDIA_TOKENS: Final = 4000  # of an image or a file, where the most tokens are estimated


class Predictor:
    """One Signature, ready to be called with or without a role (R5, R12).

    Args:
        signature: The Signature. It can declare `role` (R18); otherwise the field is added for calls with a role.
        demos: Static examples, shown to the model before the call's own messages. A role in them is dropped.
        about_role: The description of the field `role`; None is that of the Signature.

    Attributes:
        declared: The Signature as it was passed.
        signature: Its plain form, without a role.

    Raises:
        FunctionInvalid: The Signature cannot carry a role.
    """

    def __init__(
        self, signature: Signature, *, demos: Sequence[Mapping[str, Any]] = (), about_role: str | None = None
    ) -> None:
        self.declared = signature
        self.signature = without_role(signature)
        self.name = signature.__name__
        self._about_role = about_role or describe_role(signature)
        self._plain = dspy.Predict(self.signature)
        self._plain.demos = [{name: value for name, value in demo.items() if name != ROLE} for demo in demos]

    def program(self, *, weights: Path | None = None, inputs: Mapping[str, Any] | None = None) -> Program:
        """A copy of the program without role, which you can optimise and save. It never holds a role (R12).

        Args:
            weights: The file of the embedded model; None is any other model.
            inputs: The values of input fields that a call does not pass.
        """
        predict = RoleFreePredict(self.signature)
        predict.demos = copy.deepcopy(self._plain.demos)
        return Program(predict, weights=weights, inputs=inputs)

    def optimised(self, program: dspy.Module | str | os.PathLike[str]) -> Predictor:
        """This predictor with an optimised program without role. The one with role is derived from it (D19).

        Args:
            program: The program, a predictor, or the JSON file of a saved one.

        Raises:
            FunctionInvalid: The file cannot be read, or the program has other fields than this Signature or code of its
                own.
        """
        fitting = fitting_program(program, self.signature)
        found: Any = fitting.signature
        own = named(found, self.name, found.instructions)
        return Predictor(own, demos=[dict(demo) for demo in fitting.demos], about_role=self._about_role)

    def prompted(self, prompt: str) -> Predictor:
        """This predictor, demos included, with `prompt` added to its instructions."""
        instructions = f"{self.signature.instructions}\n\n{prompt}"
        own = named(self.signature, self.name, instructions)
        return Predictor(own, demos=self._plain.demos, about_role=self._about_role)

    def with_media(self, fields: Sequence[str]) -> Predictor:
        """This predictor, demos included, with the given `MEDIA_FIELDS` as additional input fields."""
        own = with_media(self.signature, fields)
        return Predictor(own, demos=self._plain.demos, about_role=self._about_role)

    async def __call__(
        self,
        inputs: Mapping[str, Any],
        caller: ModelCaller,
        *,
        role: ResolvedRole = NO_ROLE,
        steps: Sequence[PastStep] = (),
        final: bool = False,
        services: Sequence[ServiceOffer] = (),
        listener: Listener = _SILENT,
    ) -> Answer:
        """Call the model once. Temporary failures are retried.

        Args:
            inputs: The Signature's input fields, without the role.
            caller: The model, the adapter and the options.
            role: The turn's resolved role. It is revealed here, and only if it has a text for this Signature.
            steps: The previous steps, if the answer takes several.
            final: Whether the model must answer and can no longer call tools.
            services: Tools of the model's service. Those that it lacks are left out.
            listener: Receives deltas and tokens.

        Raises:
            OutputInvalid: The completion cannot be parsed as the output fields.
            RoleEchoed: The model disclosed a role whose `echo` is `fail`.
            HostError: The model failed. The text holds nothing of the prompt.
        """
        call = _Call(self, inputs, caller, role, listener, steps=steps, final=final, services=services)
        watch = listener.watch
        watched = None if watch is None else watch.began(self._plain, inputs)
        failure: WorldAgentError | None = None
        answer: Answer | None = None
        try:
            answer = await with_retries(call.run, caller.options)
        except WorldAgentError as error:
            failure = error
        finally:
            call.forget()
            if watch is not None and watched is not None:
                watch.ended(watched, None if answer is None else answer.fields, failure)
        if listener.after is not None:
            await listener.after()
        if answer is None:
            assert failure is not None
            raise failure
        return answer

    def predict(self, *, roled: bool) -> dspy.Predict:
        """The module with or without the role field."""
        return self._roled if roled else self._plain

    @cached_property  # most Signatures of an agent never get a role
    def _roled(self) -> dspy.Predict:
        made = dspy.Predict(with_role(self.signature, self._about_role))
        made.demos = self._plain.demos
        return made


class _Call(Hidden):
    """One call with its retries. It holds the role's text only for as long as the call lasts.

    The traceback of its exceptions keeps its frames. So no local variable of a frame that raises may hold the text, or
    an answer that is not scrubbed yet.
    """

    def __init__(
        self,
        predictor: Predictor,
        inputs: Mapping[str, Any],
        caller: ModelCaller,
        role: ResolvedRole,
        listener: Listener,
        *,
        steps: Sequence[PastStep],
        final: bool,
        services: Sequence[ServiceOffer],
    ) -> None:
        self._predictor, self._inputs, self._caller = predictor, inputs, caller
        self._role, self._listener, self._steps, self._final = role.reveal(predictor.name), listener, steps, final
        self._services = [each for each in services if each.name in caller.connection.services]
        demos = predictor.predict(roled=False).demos
        follows = user_follows(steps, role=self._role is not None) or any(demo.get(CALLS) for demo in demos)
        offered = (inputs.get(TOOLS) if TOOLS in predictor.signature.input_fields else None) or ()
        # Some models take no functions beside tools of their service, and few hold an answer to a schema then.
        self._apart = bool(self._services) and not caller.connection.combines
        self._forms = Forms(
            caller.connection,
            tools="json" if self._apart else caller.options.tools,
            offered=offered,
            user_follows=follows,
            schema=None
            if self._services or caller.connection.learned.schemas == "never"
            else caller.schema_of(predictor.signature),
        )
        self._adapter = self._adapter_now()
        self._refused = False  # whether the last try was refused, possibly because of its form
        self._written = False  # whether a call stands in the text of the last try
        self._unfit: ToolsRefused | None = None  # which of the tools of the last try were refused
        self._deadline = 0.0  # of the try, in whatever forms, by the clock of the loop
        self._emitted = ""
        self._argued: dict[int, str] = {}  # the arguments that were emitted, by the place of the call
        self._guard: RoleGuard | None = None
        self._stream: AnswerStream | None = None
        echo = caller.options.echo
        if any((part.echo or echo) != "allow" for part in role.reveal_parts(predictor.name)):
            others = [text for value in inputs.values() for text in _texts(value)]
            texts = [*others, *self._adapter.step_texts]
            fixed = frozenset(fixed_texts(predictor.signature, inputs))
            self._guard = RoleGuard(role.reveal_parts(predictor.name), texts, echo=echo, fixed=fixed)

    async def run(self, left: float) -> Answer:
        """Make one try.

        Args:
            left: The seconds that it can take, after it has waited that long at most for a rate limit.
        """
        options, connection = self._caller.options, self._caller.connection
        name, waiting = connection.name, self._listener.waiting
        async with connection.pace.place(
            left, backoff=options.backoff, model=name, waiting=lambda seconds: waiting(name, seconds)
        ):
            self._deadline = asyncio.get_running_loop().time() + left
            return await self._ask_in_forms()

    def _adapter_now(self) -> RoleAdapter:
        steps, form = self._steps, self._forms.now
        if form.tools == "steps_in_words":
            steps = [step if isinstance(step, str) else replace(step, message=None) for step in steps]
        adapter = STRUCTURED if form.schema else self._caller.adapter
        fork = adapter.for_call(self._inputs, steps=steps, native=form.tools != "words", final=self._final)
        if fork.is_native:
            fork.native_steps, fork.native_tools = form.tools == "native", self._forms.native_tools
            fork.reads_calls = self._forms.reads_calls
        fork.services = self._services
        fork.cache = self._caller.cache_of(self._predictor.name)
        return fork

    async def _ask_in_forms(self) -> Answer:
        """Ask once, in another form if the service could have refused the first one."""
        while True:
            try:
                answer = await self._try()
            except WorldAgentError as error:
                failed = error
            else:
                if not self._apart:  # functions in words do not say here that the service refuses them
                    self._forms.taken(calls=bool(answer.fields.get(CALLS)))
                return answer
            if self._has_another_form(failed):
                self._adapter = self._adapter_now()
            elif isinstance(failed, OutputInvalid | RoleEchoed):  # the model has answered
                if not self._apart:
                    self._forms.taken()
                raise failed
            elif self._forms.first is not None and isinstance(failed, ModelRefused | ModelNotConfigured):
                self._forms.restart()
                self._adapter = self._adapter_now()
                raise self._forms.first
            else:
                raise failed

    def _has_another_form(self, failed: WorldAgentError) -> bool:
        """Whether a try has failed because of its form, and there is another one."""
        if self._written:
            return self._forms.wrote_call()
        if self._unfit is not None and self._forms.refused_tools(self._unfit):
            return True
        return self._refused and self._forms.refused(failed)

    async def _try(self) -> Answer:
        purse = self._listener.purse
        if purse is None:
            return await self._tried()
        self._listener.before()
        settle = await purse.reserve(*self._most(), model=self._caller.connection.name)
        self._used: tuple[int, float] | None = (0, 0.0)
        try:
            return await self._tried()
        except (asyncio.CancelledError, ModelTimeout):  # the service may have charged all of it
            self._used = None
            raise
        finally:
            await settle(self._used)

    def _most(self) -> tuple[int, float | None]:
        """The most tokens that the next try can use, and what they cost at most, if the model has a known price."""
        predict, connection = self._predictor.predict(roled=self._role is not None), self._caller.connection
        signature: Any = predict.signature
        shown = self._adapter.shown(signature, predict.demos, self._inputs, self._role)
        texts = (str(shown), str(self._inputs.get(TOOLS) or ""), self._role or "")
        media = sum(isinstance(each, Media) for name in MEDIA_FIELDS for each in self._inputs.get(name) or ())
        sent = sum(len(each.encode(errors="replace")) for each in texts) // BYTES_PER_TOKEN + media * MEDIA_TOKENS
        received = most_received(connection, self._caller.sent)
        return sent + received, self._caller.cost_of(sent, received)

    async def _tried(self) -> Answer:
        self._refused, self._written, self._unfit = False, False, None
        self._listener.before()
        self._stream = self._open_stream()
        usage, began = CostTracker(), time.perf_counter()
        answer: Answer | None = None
        settled = False
        try:
            answer = await self._settle(await self._read(await self._ask(usage)))
            settled = True
            if answer.withheld:
                self._listener.withheld(answer.withheld)
            return answer
        finally:
            if (self._emitted or self._argued) and not settled:
                self._listener.withdraw()
            used = usage.used() or (_UNSAID if settled or self._adapter.served else None)
            if self._adapter.served:
                self._listener.served(answer.served if settled and answer is not None else self._bare_served())
            if used is not None:
                self._note(used, usage, {} if answer is None else answer.fields, seconds=time.perf_counter() - began)

    def _note(self, used: ModelUsage, usage: CostTracker, said: Mapping[str, Any], *, seconds: float) -> None:
        """Report the usage of a try. For limits, usage that the service does not report is estimated."""
        sent, received, cost = used.input_tokens, used.output_tokens, used.cost
        if sent is None:
            texts = [self._predictor.signature.instructions, self._role or "", *self._adapter.step_texts]
            sent = sum(map(len, (*texts, *_texts(self._inputs)))) // CHARACTERS_PER_TOKEN
        if received is None:
            received = sum(map(len, _texts(said))) // CHARACTERS_PER_TOKEN
        if cost is None and None in (used.input_tokens, used.output_tokens):
            cost = usage.estimated(sent, received)
        name = self._caller.connection.name
        used = replace(used, service_calls=len(self._adapter.served))
        if self._listener.purse is not None:
            charged = cost or self._caller.cost_of(sent, received) or 0.0
            self._used = sent + received, charged
        self._listener.usage(used, model=name, seconds=seconds, tokens=sent + received, cost=cost or 0.0)

    def forget(self) -> None:
        """Release the role's text and the model's answer."""
        self._role = self._guard = self._stream = None
        self._adapter.message, self._adapter.served = None, ()
        self._emitted, self._argued = "", {}

    async def _ask(self, usage: CostTracker) -> dspy.Prediction:
        """Call dspy. Every exception is replaced by a new error, outside the `except` (D5)."""
        options, name = self._caller.options, self._caller.connection.name
        failure: BaseException
        problem: Exception | None = None
        limit = asyncio.timeout(None)
        try:
            async with limit:
                # A cancelled timer keeps its context until its time. Ours would keep the turn and its role.
                Context().run(limit.reschedule, self._deadline)
                return await self._acall(usage)
        except asyncio.CancelledError:
            # The frames of the original hold the role. A new exception cancels just as well.
            failure = asyncio.CancelledError()
        except Exception as error:
            problem = error
            failure = classify(error, model=name)
            self._refused, self._written = refuses_form(error), is_written_call(error)
            self._unfit = tools_refused(error, self._adapter.sent_tools)
            if isinstance(error, TimeoutError) and limit.expired():
                failure = ModelTimeout(
                    f"the model {name!r} did not answer within {options.timeout:g} s",
                    remedy="try again, or raise the setting model_timeout",
                )
        if problem is not None and self._caller.on_error is not None:
            self._caller.on_error(problem)
        del problem
        raise failure

    async def _acall(self, usage: CostTracker) -> dspy.Prediction:
        inputs = dict(self._inputs)
        predict = self._predictor.predict(roled=self._role is not None)
        if self._role is not None:
            inputs[ROLE] = self._role
        settings = {
            "lm": self._caller.connection.lm,
            "adapter": self._adapter,
            "disable_history": True,
            "trace": None,
            "callbacks": [],
            "track_usage": False,
            "usage_tracker": usage,
            "warn_on_type_mismatch": False,
            "send_stream": self._stream,
            "stream_listeners": [],
        }
        signature: Any = predict.signature
        config = {**self._caller.sent, "cache": False, **self._adapter.options(signature)}
        own = sending(self._caller.headers) if self._caller.headers else contextlib.nullcontext()
        tools = inputs.get(TOOLS)
        FOUND.set(tools.found_names if isinstance(tools, ToolsOfStep) else frozenset())
        with _no_instrumentation(), own, redirected(), dspy.context(**settings):
            if self._listener.prompt is not None:  # here, so that no callback sees an answer in earlier steps
                self._listener.prompt(self._adapter.shown(signature, predict.demos, inputs, self._role))
            return await predict.acall(**inputs, config=config)

    async def _read(self, prediction: dspy.Prediction) -> Answer:
        fields = {name: prediction[name] for name in self._predictor.signature.output_fields}
        del prediction
        fields = with_texts(fields, lambda text, in_key: without_unpaired_surrogates(text))
        if self._adapter.ends_reasoning is not None:
            self._caller.connection.learned.ends_reasoning = self._adapter.ends_reasoning
        message = self._adapter.message if self._adapter.is_native else None
        if self._adapter.served:
            self._adapter.served = with_texts(
                self._adapter.served, lambda text, in_key: without_unpaired_surrogates(text)
            )
        if self._guard is None:
            return Answer(fields=fields, message=message, served=self._adapter.served)
        steps = self._guard.scrubbing(fields)
        del fields  # the turn can be cancelled in the meantime
        scrubbed = await in_turns(steps)
        answer = Answer(fields=scrubbed.fields, withheld=scrubbed.withheld, message=message)
        failed = scrubbed.failed
        if self._adapter.served:  # apart, so that what strangers say does not decide about the answer
            served = await in_turns(self._guard.scrubbing({_SERVED: self._adapter.served}))
            withheld = {**answer.withheld, **served.withheld}
            answer = replace(answer, withheld=withheld, served=served.fields[_SERVED])
            failed = failed or served.failed
        if failed:
            del message, answer  # they are not scrubbed
            raise RoleEchoed(
                f"the model {self._caller.connection.name!r} disclosed its role",
                remedy="try again, or set echo='disclosure', which withholds it",
            )
        return answer

    def _bare_served(self) -> list[dict[str, Any]]:
        """The calls of the service without texts, which are not scrubbed."""
        return [{**each, "arguments": {}, "result": None} for each in self._adapter.served]

    def _open_stream(self) -> AnswerStream | None:
        listener, self._emitted, self._argued = self._listener, "", {}
        if listener.field is None and listener.reason is None and listener.argue is None:
            return None
        parser = None if listener.field is None else self._adapter.parser(self._predictor.signature, listener.field)
        reason = None if listener.reason is None else self._think
        argue = None if listener.argue is None else self._argue
        ends = self._caller.connection.learned.ends_reasoning
        return AnswerStream(parser, self._guard, self._emit, reason, argue, ends_reasoning=ends)

    def _think(self, text: str) -> None:
        if self._listener.reason is not None:
            self._listener.reason(without_unpaired_surrogates(text))

    def _emit(self, text: str) -> None:
        text = without_unpaired_surrogates(text)
        self._emitted += text
        self._listener.emit(text)

    def _argue(self, place: int, tool: str, text: str) -> None:
        if self._listener.argue is not None:
            text = without_unpaired_surrogates(text)
            self._argued[place] = self._argued.get(place, "") + text
            self._listener.argue(place, tool, text)

    async def _settle(self, answer: Answer) -> Answer:
        """The final answer is authoritative.

        Emit what the stream lacks, or withdraw it and emit the complete answer (D18). Return the answer, with what was
        withheld of its reasoning.
        """
        stream, listener = self._stream, self._listener
        if stream is None:
            return answer
        hidden = await stream.close(answer=listener.field not in answer.withheld)
        if hidden:
            answer = replace(answer, withheld={**answer.withheld, "reasoning": hidden})
        # The text as it was shown in pieces: a surrogate pair in two deltas was replaced by two marks.
        final, shown = "" if listener.field is None else str(answer.fields[listener.field]), self._emitted
        calls = () if listener.argue is None else answer.fields.get(CALLS) or ()
        if not final.startswith(shown):
            listener.withdraw()
            shown, self._argued = "", {}
        if missing := final[len(shown) :]:
            listener.emit(missing)
        for place, call in enumerate(calls):
            if listener.argue is not None and place not in self._argued:
                listener.argue(place, call.tool, json.dumps(call.arguments, ensure_ascii=False))
        return answer


def _texts(value: Any) -> Iterator[str]:
    """Every text in an input, as the model can repeat it."""
    match value:
        case Media() | dspy.Type():
            return  # not a text
        case Mapping():
            for key, item in value.items():
                yield from (*_texts(key), *_texts(item))
        case list() | tuple() | set() | frozenset():
            for item in value:
                yield from _texts(item)
        case BaseModel():
            yield from _texts(dict(value))
        case _:
            yield str(value)


async def with_retries(run: Callable[[float], Awaitable[T]], options: ModelOptions) -> T:
    """Retry until it succeeds, fails permanently, or has used up its attempts or its time.

    The pause doubles, with some jitter. All tries share the time of the call, so that one that hangs is not repeated.

    Args:
        run: Makes one try. It gets the seconds that are left.
        options: The number of attempts, the pause and the time.

    Raises:
        WorldAgentError: The last error.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + options.timeout
    pause = 0.0
    for attempt in range(options.attempts):
        try:
            return await run(deadline - clock())
        except WorldAgentError as error:
            if attempt + 1 == options.attempts or not error.retryable or isinstance(error, RateLimitWait):
                raise
            if not isinstance(error, ModelRateLimited):  # the rate limiter of the model makes the next try wait
                pause = options.backoff * 2.0**attempt + random.uniform(0.0, options.backoff)
                pause = min(pause, _LONGEST_PAUSE)
            if clock() + pause >= deadline:
                raise
        await asyncio.sleep(pause)
        pause = 0.0
    raise AssertionError("retries end with an answer or an error")


@contextlib.contextmanager
def _no_instrumentation() -> Generator[None]:
    """Block instrumentation that patches dspy's methods and would record prompts; `callbacks=[]` does not affect it."""
    instrumentation = sys.modules.get("opentelemetry.instrumentation.utils")
    if instrumentation is None:
        yield
        return
    with instrumentation.suppress_instrumentation():
        yield
