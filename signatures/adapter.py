"""The two adapters: they render a Signature's inputs as a prompt, and read its outputs from a completion.

See R5, R15 and R17. Both render a Signature with and without a role identically, up to the role's own section at
the end. Both escape every value, so that no input can imitate another field. `predictor` calls the model.
"""

from __future__ import annotations

import copy
import json
import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import EnumMeta
from functools import lru_cache
from itertools import groupby
from types import UnionType
from typing import Any, Final, Literal, NoReturn, Union, cast, get_args, get_origin

import dspy
from dspy.adapters.utils import (
    apply_output_field_defaults,
    format_field_value,
    get_field_description_string,
    parse_value,
    serialize_for_json,
)
from dspy.clients.backend_selection import CLIENT_KEYS
from dspy.lm15 import (
    BuiltinTool,
    CacheConfig,
    DataPart,
    Message,
    Reasoning,
    RefusalPart,
    Request,
    Response,
    TextPart,
    ToolCallPart,
    request_from_openai_chat,
)
from dspy.utils.exceptions import AdapterParseError
from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError, create_model

from ..core.validation import describe_failure
from .calling import (
    ANSWER,
    CALLS,
    DECLARED,
    LAST_STEP,
    MAX_CHARACTERS,
    MAX_SECTIONS,
    TOOLS,
    JsonReader,
    ServiceOffer,
    ToolCall,
    ToolsOfStep,
    Unfit,
    Unreadable,
    found_in_words,
    in_words,
    is_bare_call,
    read_arguments,
)
from .echo import EchoGuard
from .engines.classification import WrittenCall
from .engines.grammars import GrammarUnfit, bounded
from .engines.reading.base import served_in
from .escape import escape_markers
from .media import MEDIA_FIELDS, parts_of
from .streaming import AnswerFieldParser, ChatFieldParser, FieldParser, JsonFieldParser, PlainFieldParser
from .texts import fixed_in
from .thinking import answer_in, unopened_end

ROLE = "role"
"""The name of the role's input field, which is always the last one."""

SUMMARY: Final = "reasoning_summary"
"""The option that requests the model's reasoning. Options have the form of chat completions, which lacks it."""

NOTE: Final = "note"
"""The key of a history entry that is neither a message nor an answer, such as a summary."""

LEFT_OUT: Final = "left_out"
"""Marks an input field, in its `json_schema_extra`, that the prompt does not have if its value is None."""

LM = dspy.BaseLM
Signature = type[dspy.Signature]
_Message = dict[str, Any]

# A header counts at the beginning of a line as `str.splitlines` defines lines, because dspy reads completions this way.
_HEADER = re.compile(r"(?:\A|(?<=[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]))[^\S\n]*\[\[ ## (\w+) ## \]\]")
_FENCE, _FENCE_BEGIN = "```", re.compile(r"```\w*")
MEDIA_DESCRIPTIONS = {
    "attachments": "What is attached to the message, each by its name, and texts with their content; it is data",
    "images": "The images among the attachments",
    "files": "The documents among the attachments",
}
"""The descriptions of `MEDIA_FIELDS` for the model."""

_UNREAD: Final = "partial_json"  # lm15's key for arguments that it cannot parse

COMPLETE_FINISH_REASONS: Final = frozenset({None, "stop", "tool_call"})
"""The finish reasons of a complete response."""

_NOTHING = frozenset({"", "none", "null", "n/a", "[]"})


History = Sequence[Mapping[str, Any]]
"""The earlier messages, oldest first: values by field name, or a text under `NOTE`. An entry can also have the fields
of `MEDIA_FIELDS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallMade:
    """A call that a model requested, and its outcome.

    Attributes:
        tool: The tool's name.
        arguments: Its arguments.
        result: Its result, or the reason why it failed, as the model reads it.
    """

    tool: str
    arguments: Mapping[str, Any]
    result: str

    @property
    def text(self) -> str:
        """The call and its result in words."""
        asked = json.dumps(self.arguments, ensure_ascii=False, sort_keys=True)
        return f"You called {self.tool!r} with {asked}. {self.result}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepMade:
    """A previous step of the same turn that ended in calls.

    Attributes:
        calls: Its calls and their results.
        message: The model's own message, if this run still has it, because its service requires it back unchanged.
            Without it the step is sent in words.
        served: The calls that the service made itself. They are in the message, too.
    """

    calls: Sequence[CallMade]
    message: Message | None = None
    served: Sequence[CallMade] = ()


PastStep = StepMade | str
"""A step that ended in calls, or a note about the model's last answer."""


STAND_IN: Final = "(the result of this example is left out)"
"""The result of the calls of an example, whose own results belonged to another conversation."""


def demo_calls(demo: Mapping[str, Any]) -> list[CallMade]:
    """The calls in an example, as a program has them or as its file does.

    Raises:
        ValueError: They cannot be read.
    """
    found = demo.get(CALLS) or []
    if not isinstance(found, list):
        raise ValueError("the calls must be a list")
    made = [ToolCall.model_validate(each) for each in found]
    return [CallMade(tool=each.tool, arguments=each.arguments, result=STAND_IN) for each in made]


def step_texts(step: PastStep) -> list[str]:
    """The text of a previous step, as a model reads it in words."""
    return [step] if isinstance(step, str) else [call.text for call in (*step.served, *step.calls)]


_Mode = Literal["bare", "words", "native"]
"""How tools are sent: not at all, in the system message, or natively by the service."""

_NOT_SENT = CLIENT_KEYS | {SUMMARY, "cache", "n", "num_generations", "num_retries", "prompt_cache", "rollout_id"}
"""Options of an LM that are not part of a request."""


class RoleAdapter(dspy.ChatAdapter):
    """dspy's chat format. The system message is rendered once per Signature, and every value is escaped.

    The message comes before the steps of its turn, and the role comes last, in a separate message. So everything before
    the role is the same from step to step and from role to role.

    Args:
        escape: Escapes a rendered value.
    """

    def __init__(self, *, escape: Callable[[str], str] = escape_markers) -> None:
        super().__init__(use_json_adapter_fallback=False)
        self._escape = escape
        self._steps: Sequence[PastStep] = ()
        self._mode: _Mode | None = None
        self._final = False
        self._truncated = False
        self.native_steps = True
        self.native_tools: Sequence[Mapping[str, Any]] | None = None
        self.reads_calls = True
        self.ends_reasoning: str | None = None
        self.message: Message | None = None
        self.services: Sequence[ServiceOffer] = ()
        self.served: Sequence[Mapping[str, Any]] = ()
        self.cache: CacheConfig | None = None
        self._system: weakref.WeakKeyDictionary[Signature, dict[_Mode, tuple[str | None, Any, str]]]
        self._system = weakref.WeakKeyDictionary()
        self._bare: weakref.WeakKeyDictionary[Signature, Signature] = weakref.WeakKeyDictionary()
        self._forms: weakref.WeakKeyDictionary[Signature, dict[bool, Signature]] = weakref.WeakKeyDictionary()

    def for_call(
        self, inputs: Mapping[str, Any], *, steps: Sequence[PastStep] = (), native: bool = False, final: bool = False
    ) -> RoleAdapter:
        """This adapter for one call. Content that is rendered once is shared.

        Args:
            inputs: The call's inputs; `offered_tools` holds the tools, if any.
            steps: The previous steps.
            native: Whether tools are sent natively.
            final: Whether the model must answer: the tools are still sent, but it must not call them.
        """
        fork = copy.copy(self)
        fork._mode = self._mode_of(bool(inputs.get(TOOLS)), native=native)
        fork._steps, fork._final, fork.message, fork.served = steps, final, None, ()
        if final and fork._mode == "words":
            fork._steps = [*steps, LAST_STEP]
        return fork

    @property
    def is_native(self) -> bool:
        """Whether tools are sent natively in this call."""
        return self._mode == "native"

    @property
    def sent_tools(self) -> list[str]:
        """The names of the tools that are sent natively, in their order."""
        return [each["function"]["name"] for each in self._offered(self.native_tools or ())] if self.is_native else []

    @property
    def step_texts(self) -> list[str]:
        """The texts of the previous steps, which the model can repeat."""
        return [text for step in self._steps for text in step_texts(step)]

    def _mode_of(self, tools: bool, *, native: bool) -> _Mode:
        return "bare" if not tools else "native" if native else "words"

    def sent(self, value: object) -> str:
        """A text value as it appears in the prompt."""
        return self._escape(without_unpaired_surrogates(str(value)))

    def parser(self, signature: Signature, field: str) -> FieldParser:
        """The parser that reads `field` from a streamed completion."""
        return (
            AnswerFieldParser(field)
            if self._mode == "native" and not further_fields(signature)
            else ChatFieldParser(field)
        )

    def options(self, signature: Signature) -> dict[str, Any]:
        """The options that a call of `signature` needs in addition to its messages."""
        return {}

    async def acall(
        self, lm: dspy.BaseLM, lm_kwargs: dict[str, Any], signature: Any, demos: list[Any], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Send one request to a model through lm15, and read its response."""
        call = self._for_program(lm, inputs)
        request = call.request(lm, lm_kwargs, signature, demos, inputs)
        return [call.read(signature, await lm.acall(request, cache=False))]

    def __call__(
        self, lm: dspy.BaseLM, lm_kwargs: dict[str, Any], signature: Any, demos: list[Any], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        call = self._for_program(lm, inputs)
        request = call.request(lm, lm_kwargs, signature, demos, inputs)
        return [call.read(signature, lm(request, cache=False))]

    def _for_program(self, lm: dspy.BaseLM, inputs: Mapping[str, Any]) -> RoleAdapter:
        """This adapter for a call by a program outside of a turn, where no service is tried in several forms."""
        if self._mode is not None:
            return self
        return self.for_call(inputs, native=bool(getattr(lm, "supports_function_calling", False)))

    def request(
        self,
        lm: dspy.BaseLM,
        options: Mapping[str, Any],
        signature: Signature,
        demos: list[Any],
        inputs: dict[str, Any],
    ) -> Request:
        """Build the request of one call.

        Args:
            lm: The model.
            options: Options of the call, which override the model's own.
            signature: The Signature.
            demos: Examples.
            inputs: The values of its input fields.
        """
        given = {**lm.kwargs, **options}
        body = {name: value for name, value in given.items() if value is not None and name not in _NOT_SENT}
        body |= {"model": lm.model, "messages": self.format(signature, demos, inputs)}
        if self._mode == "native":
            tools = self._offered(inputs[TOOLS] if self.native_tools is None else self.native_tools)
            body |= {"tools": tools, "tool_choice": "none" if self._final else "auto"}
        request = _with_summary(request_from_openai_chat(body), given.get(SUMMARY))
        if self.services:
            own = tuple(BuiltinTool(name=each.name, config=dict(each.options)) for each in self.services)
            request = replace(request, tools=(*request.tools, *own))
        kept = (step.message for step in self._steps if isinstance(step, StepMade) and step.message is not None)
        messages = [next(kept, message) if message.parts_of(ToolCallPart) else message for message in request.messages]
        return self._with_cache(replace(request, messages=tuple(messages)), signature, inputs)

    def _with_cache(self, request: Request, signature: Signature, inputs: Mapping[str, Any]) -> Request:
        """Add the cache hints to the request. A prompt that is used once does not need one."""
        hints = self.cache
        if hints is None:
            return request
        if hints.prefix is not None:
            again = self._mode != "bare" or bool(histories(signature))
            own = inputs.get(ROLE) is not None or (self._mode == "words" and bool(self._steps))  # in a separate message
            place = len(request.messages) - 1 - own
            hints = replace(hints, prefix=None, prefix_until_index=place if again and place >= 0 else None)
        if hints == CacheConfig():  # this would mark the static part
            return request
        return replace(request, config=replace(request.config, cache=hints))

    def _offered(self, tools: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """The tools as they are sent natively."""
        return list(tools)

    # dspy wraps `format` and `parse` of every subclass in callbacks; this adapter never has any.
    def format(self, signature: Signature, demos: list[Any], inputs: dict[str, Any]) -> list[_Message]:
        if self._mode is None:
            return self.for_call(inputs).format(signature, demos, inputs)
        shown, conversations = self._form(signature), histories(signature)
        bare = self._bare_of(shown)
        messages: list[_Message] = [{"role": "system", "content": self._system_message(shown, inputs.get(TOOLS))}]
        without_role = [{name: value for name, value in dict(demo).items() if name != ROLE} for demo in demos]
        if TOOLS in signature.input_fields:
            messages += self.format_demos(bare, without_role)
        else:  # its `calls`, if it has a field of this name, are not of tools
            messages += super().format_demos(bare, without_role)
        for name in conversations:
            for entry in history_entries(inputs.get(name)):
                messages += self._format_entry(bare, entry)
        role = inputs.get(ROLE)
        last = [f"[[ ## {ROLE} ## ]]\n{self.sent(role)}"] if role is not None else []
        own = {name: value for name, value in inputs.items() if name not in (TOOLS, ROLE, *conversations)}
        alone = not last and not self._steps
        # dspy would expand `<<CUSTOM-TYPE-...>>` in a user's text into images here. Text must remain text.
        messages.append({"role": "user", "content": self.format_user_message_content(shown, own, main_request=alone)})
        for place, step in enumerate(self._steps):
            messages += self._format_step(place, step)
        if not alone:
            last += filter(None, [self.user_message_output_requirements(shown)])
        if self._mode == "words" and isinstance(offered := inputs.get(TOOLS), ToolsOfStep):
            last.append(found_in_words(offered))
        return [*messages, {"role": "user", "content": "\n\n".join(last)}] if last else messages

    def shown(
        self, signature: Signature, demos: list[Any], inputs: Mapping[str, Any], role: str | None
    ) -> list[_Message]:
        """The messages of a call as a person may see them: with `[role: N characters]` in place of the role (H5, R7).

        Args:
            signature: The call's Signature.
            demos: Its examples.
            inputs: Its input fields.
            role: The role, if one is active.
        """
        given = {**inputs, ROLE: f"[role: {len(role)} characters]"} if role is not None else dict(inputs)
        messages = [_without_media(message) for message in self.format(signature, demos, given)]
        # A text of a person that became a role is in the log unchanged, and is copied nowhere else (R10).
        return messages if role is None else list(EchoGuard(role).scrub_value(messages)[0])

    def format_system_message(self, signature: Signature) -> str:
        return self._system_message(signature, None)

    def _system_message(self, shown: Signature, tools: Any) -> str:
        kept = self._system.setdefault(shown, {})
        mode = self._mode or "bare"
        # The instructions are stored in __doc__ and can be changed in place.
        tools = tools.always if isinstance(tools, ToolsOfStep) else tools
        if mode not in kept or kept[mode][0] is not shown.__doc__ or kept[mode][1] is not tools:
            kept[mode] = (shown.__doc__, tools, self._render_system_message(shown, tools))
        return kept[mode][2]

    def _render_system_message(self, shown: Signature, tools: Any) -> str:
        if self._mode == "native" and not further_fields(shown):  # several outputs need their markers
            return _native_system_message(shown, self.format_task_description(shown))
        text = str(super().format_system_message(shown))
        return f"{text}\n\n{in_words(tools, answer_fields(shown))}" if self._mode == "words" else text

    def user_message_output_requirements(self, signature: Signature) -> str:
        if self._mode == "native" and not further_fields(signature):
            return ""
        return str(super().user_message_output_requirements(signature))

    def format_user_message_content(
        self,
        signature: Signature,
        inputs: dict[str, Any],
        prefix: str = "",
        suffix: str = "",
        main_request: bool = False,
    ) -> Any:
        pieces: list[str | _Message] = [prefix] if prefix else []
        for name, info in _given(signature, inputs):
            media = None if isinstance(inputs[name], str) else parts_of(inputs[name])
            if media is None:
                pieces.append(f"[[ ## {name} ## ]]\n{self.sent(_rendered(info, inputs[name]))}")
            else:
                pieces += [f"[[ ## {name} ## ]]", *media]
        if main_request:
            pieces += filter(None, [self.user_message_output_requirements(signature)])
        if suffix:
            pieces.append(suffix)
        return _content(pieces)

    def format_assistant_message_content(
        self, signature: Signature, outputs: dict[str, Any], missing_field_message: str | None = None
    ) -> str:
        absent = frozenset() if missing_field_message else further_fields(signature) - outputs.keys()
        shown = {
            name: self.sent(_rendered(info, outputs.get(name, missing_field_message)))
            for name, info in signature.output_fields.items()
            if name not in absent
        }
        if self._mode == "native" and not further_fields(signature):
            return "\n\n".join(shown.values())
        parts = [f"[[ ## {name} ## ]]\n{value}" for name, value in shown.items()]
        return "\n\n".join(parts).strip() + "\n\n[[ ## completed ## ]]\n"

    def read(self, signature: Signature, response: Response) -> dict[str, Any]:
        """Read the output fields of a response from its text, and from the calls that a service returns separately.

        Raises:
            AdapterParseError: The fields cannot be read.
            WrittenCall: The text is a call, and the service is not known to read those.
        """
        self._truncated = response.finish_reason not in COMPLETE_FINISH_REASONS
        if self.services:
            self.served = served_in(response.message)
        shown = self._form(signature)
        if self._final and CALLS in shown.output_fields:  # no call is made, so none can invalidate the answer
            shown = shown.delete(CALLS)
        said = "".join(map(_text_of, response.message.parts))
        if said.strip():
            self.ends_reasoning = unopened_end(said) if "/" in said else ""
        text = answer_in(said)
        try:
            calls = _calls_in(response.message) if self._mode == "native" else []
            written = self._mode == "native" and not (calls or self.reads_calls) and self._is_bare_call(shown, text)
            fields = {} if written else self._read_text(shown, text, calls)
        except (ValueError, RecursionError, MemoryError) as error:  # the last two if dspy parses Python literals
            _refuse(type(self).__name__, signature, error)
        if written:
            raise WrittenCall
        if calls and _is_sendable(response.message):  # its size is within the limits of an answer now
            self.message = response.message
        return _defaulted(signature, fields | ({CALLS: calls} if calls else {}))

    def _is_bare_call(self, shown: Signature, text: str) -> bool:
        """Whether a completion is a call instead of an answer. It is not made: what it quotes can look the same."""
        only = answer_field(shown)
        if only is None or shown.output_fields[only].annotation is not str:  # the JSON can be the answer
            return False
        return is_bare_call(unfenced(text), self.sent_tools)

    def _read_text(self, shown: Signature, text: str, calls: Sequence[ToolCall]) -> dict[str, Any]:
        if not text.strip() and self._mode == "native":  # no text at all, or only calls
            return _defaulted(shown, {} if calls else {str(answer_field(shown)): ""})
        if not text.strip():
            _refuse(type(self).__name__, shown)
        try:
            return dict(self.parse(shown, text))
        except (AdapterParseError, ValueError):
            # Text next to calls need not be an answer.
            calls_in_text = {} if calls else self._calls_in_words(shown, text)
            if calls_in_text is None:
                raise
            return calls_in_text

    def _calls_in_words(self, shown: Signature, text: str) -> dict[str, Any] | None:
        """The calls in a completion whose answer cannot be read; None if it has none."""
        if answer_field(shown) is None or CALLS not in shown.output_fields:
            return None
        for name in answer_fields(shown):
            shown = shown.delete(name)
        try:
            found = dict(self.parse(shown, text))
        except (AdapterParseError, ValueError):
            return None
        return found if found.get(CALLS) else None

    def parse(self, signature: Signature, completion: str) -> dict[str, Any]:
        check_length(completion)
        reader = JsonReader(repairs=not self._truncated)
        found = list(_HEADER.finditer(completion))
        if len(found) > MAX_SECTIONS:
            raise Unreadable
        headers = {header[1] for header in found}
        if not signature.output_fields.keys() & headers:
            native, only = self._mode == "native", answer_field(signature)
            read = _read_as_json(signature, completion, alone=native)
            if read is not None:
                return read
            if only is not None and signature.output_fields[only].annotation is str:
                # A model that omits the markers has still answered. A native answer can contain markers as content.
                ends = found and not (native and headers.isdisjoint({CALLS, "completed"}))
                return _defaulted(signature, {only: completion[: found[0].start() if ends else None].strip()})
            if only is not None and (native or not found):
                return fields_in({only: unfenced(completion)}, signature, reader)
        return fields_in(_sections(completion, found, signature), signature, reader)

    def _form(self, signature: Signature) -> Signature:
        """The Signature as it appears in the prompt, without its history and tools as fields."""
        words = self._mode == "words"
        forms = self._forms.setdefault(signature, {})
        if words not in forms:
            found = signature
            for name in histories(signature):
                found = found.delete(name)
            if CALLS in found.output_fields and TOOLS in found.input_fields:
                found = found.delete(TOOLS) if words else found.delete(TOOLS).delete(CALLS)
            if found is signature:  # storing it here would make it refer to itself
                return signature
            forms[words] = found
        return forms[words]

    def _format_entry(self, bare: Signature, entry: Mapping[str, Any]) -> Iterator[_Message]:
        if NOTE in entry and NOTE not in bare.fields:
            yield {"role": "user", "content": self.sent(entry[NOTE])}
            return
        if any(name in entry for name in bare.input_fields):
            yield {"role": "user", "content": self.format_user_message_content(bare, dict(entry))}
        if any(name in entry for name in bare.output_fields):
            outputs = _defaulted(bare, dict(entry))
            for name in further_fields(bare) - entry.keys():  # the answer is from before the conversation had it
                outputs.pop(name, None)
            yield {"role": "assistant", "content": self.format_assistant_message_content(bare, outputs)}

    def format_demos(self, signature: Signature, demos: list[dict[str, Any]]) -> list[_Message]:
        calls = [demo_calls(demo) for demo in demos]
        messages: list[_Message] = super().format_demos(
            signature, [demo for demo, made in zip(demos, calls, strict=True) if not made]
        )
        if self._mode == "bare":  # there is nothing to call
            return messages
        for place, (demo, made) in enumerate(zip(demos, calls, strict=True)):
            if made:
                messages += self._format_demo(f"d{place}", signature, demo, StepMade(calls=made))
        return messages

    def _format_demo(self, name: str, signature: Signature, demo: dict[str, Any], step: StepMade) -> Iterator[_Message]:
        """An example that ends in calls. As an answer it would be empty, which would teach the model to say nothing."""
        yield {"role": "user", "content": self.format_user_message_content(signature, demo)}
        if self._mode == "words":
            content = self.format_assistant_message_content(signature, _defaulted(signature, demo))
            yield {"role": "assistant", "content": content}
        if self._mode == "native" and self.native_steps:
            asked = [(f"{name}_{at}", _plain_name(call.tool)) for at, call in enumerate(step.calls)]
            yield from self._format_native(step, asked)
        else:
            yield from self._format_words(step)

    def _format_step(self, place: int, step: PastStep) -> Iterator[_Message]:
        if isinstance(step, str) or step.message is None or self._mode != "native":
            yield from self._format_words(step)
        else:
            asked = step.message.parts_of(ToolCallPart)
            yield from self._format_native(step, [(part.id, part.name) for part in asked])

    def _format_words(self, step: PastStep) -> Iterator[_Message]:
        for text in step_texts(step):
            yield {"role": "user", "content": self.sent(text)}

    def _format_native(self, step: StepMade, asked: Sequence[tuple[str, str]]) -> Iterator[_Message]:
        """Calls with their results as services take them; `asked` is the id and the name of each."""
        shown = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": self._arguments(call)}}
            for (call_id, name), call in zip(asked, step.calls, strict=True)
        ]
        yield {"role": "assistant", "content": None, "tool_calls": shown}
        for (call_id, name), call in zip(asked, step.calls, strict=True):
            yield {"role": "tool", "tool_call_id": call_id, "name": name, "content": self.sent(call.result)}

    def _arguments(self, call: CallMade) -> str:
        return json.dumps(call.arguments, ensure_ascii=False)

    def _bare_of(self, signature: Signature) -> Signature:
        """The Signature without fields for this call only, so that the prompt before them is the same without them."""
        own = [name for name in (ROLE, *MEDIA_FIELDS) if _is_of_the_call(signature, name)]
        if not own:
            return signature
        bare = self._bare.get(signature)
        if bare is None:
            bare = signature
            for name in own:
                bare = bare.delete(name)
            self._bare[signature] = bare
        return bare


class PlainAdapter(RoleAdapter):
    """The embedded model's format: instructions, bare messages, and JSON if the outputs are more than one text.

    Field markers confuse a tiny model, so a single input appears without one. The role comes last, under its header.
    Steps are sent back as calls and results, also those of an earlier run.
    """

    def for_call(
        self, inputs: Mapping[str, Any], *, steps: Sequence[PastStep] = (), native: bool = False, final: bool = False
    ) -> RoleAdapter:
        # Its own messages hold only calls, and are not escaped.
        bare = [step if isinstance(step, str) else replace(step, message=None) for step in steps]
        return super().for_call(inputs, steps=bare, native=native, final=final)

    def _mode_of(self, tools: bool, *, native: bool) -> _Mode:
        return "native" if tools and native else "bare"

    def _offered(self, tools: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """The tools without control tokens. A tool whose arguments need control tokens cannot be offered."""
        safe: list[Mapping[str, Any]] = []
        for each in tools:
            function = each["function"]
            needed = json.dumps([function["name"], function["parameters"]], ensure_ascii=False)
            if self._escape(needed) == needed:
                about = self._escape(function["description"])
                safe.append({**each, "function": {**function, "description": about}})
        return safe

    def _format_step(self, place: int, step: PastStep) -> Iterator[_Message]:
        if isinstance(step, str) or self._mode != "native":
            yield from super()._format_step(place, step)
        else:
            asked = [(f"c{place}_{at}", _plain_name(call.tool)) for at, call in enumerate(step.calls)]
            yield from self._format_native(step, asked)

    def _arguments(self, call: CallMade) -> str:
        return "{}"  # the model reads results, and the engine reads the names of the called tools

    def parser(self, signature: Signature, field: str) -> FieldParser:
        return PlainFieldParser() if sole_text_output(self._form(signature)) else JsonFieldParser(field)

    def options(self, signature: Signature) -> dict[str, Any]:
        shown = self._form(signature)
        if sole_text_output(shown):
            return {}
        schema = _object_schema({name: info.annotation for name, info in shown.output_fields.items()})
        for name, info in shown.output_fields.items():
            with suppress(GrammarUnfit):  # otherwise the grammar allows any JSON
                if (declared := declared_schema(info)) is not None:
                    schema["properties"][name] = bounded(declared)
        return {"response_format": {"type": "json_schema", "json_schema": {"name": "outputs", "schema": schema}}}

    def user_message_output_requirements(self, signature: Signature) -> str:
        return ""

    def _render_system_message(self, shown: Signature, tools: Any) -> str:
        text = str(shown.instructions)
        if not sole_text_output(shown):
            text += f"\nReply as JSON with the keys {', '.join(shown.output_fields)}."
        # It contains descriptions of tools, which can hold the model's control tokens.
        return self._escape(text)

    def format_user_message_content(self, signature: Signature, inputs: dict[str, Any], *_: Any, **__: Any) -> Any:
        given = _given(signature, inputs)
        lone = len([name for name, _ in given if name != ROLE]) == 1
        parts = []
        for name, info in given:
            value = self.sent(_rendered(info, inputs[name]))
            parts.append(value if lone and name != ROLE else f"[[ ## {name} ## ]]\n{value}")
        return "\n\n".join(parts).strip()

    def format_assistant_message_content(
        self, signature: Signature, outputs: dict[str, Any], missing_field_message: str | None = None
    ) -> str:
        only = sole_text_output(signature)
        if only:
            return self.sent(outputs.get(only, ""))
        absent = further_fields(signature) - outputs.keys()
        shown = {name: serialize_for_json(outputs.get(name)) for name in signature.output_fields if name not in absent}
        return self.sent(json.dumps(shown, ensure_ascii=False))

    def parse(self, signature: Signature, completion: str) -> dict[str, Any]:
        check_length(completion)
        only = sole_text_output(signature)
        if only:
            return {only: completion.strip()}
        reader = JsonReader(repairs=not self._truncated)
        read = reader.read(completion)
        return fields_in(read if isinstance(read, dict) else {}, signature, reader)


def _without_media(message: _Message) -> _Message:
    content = message.get("content")
    if not isinstance(content, list):
        return dict(message)
    shown = [part if part.get("type") == "text" else {"type": part.get("type")} for part in content]
    return {**message, "content": shown}


def _with_summary(request: Request, summary: Any) -> Request:
    """Request reasoning. The engine only requests it in combination with an effort."""
    effort = request.config.reasoning or Reasoning(effort="medium")
    if summary is None or effort.is_off:
        return request
    return replace(request, config=replace(request.config, reasoning=replace(effort, summary=summary)))


def _refuse(adapter: str, signature: Any, cause: BaseException | None = None) -> NoReturn:
    # The answer itself is left out, because a model can make it very long.
    raise AdapterParseError(adapter_name=adapter, signature=signature, lm_response="") from cause


def _text_of(part: Any) -> str:
    if isinstance(part, TextPart | RefusalPart):
        return str(part.text)
    # For a schema with a choice, the engine replaces the JSON of an answer by its value.
    return json.dumps(part.value) if isinstance(part, DataPart) else ""


def check_length(text: str) -> None:
    """Refuse a completion that is too long to be read.

    Raises:
        Unreadable: It is.
    """
    if len(text) > MAX_CHARACTERS:
        raise Unreadable


def _plain_name(name: str) -> str:
    """The wire name of a tool, ignoring suffixes for names that are equal there."""
    return name.replace(".", "_")[:64]


def _calls_in(message: Message) -> list[ToolCall]:
    """The calls of a response. Their arguments are within the limits of an answer."""
    parts = message.parts_of(ToolCallPart)
    if len(parts) > MAX_SECTIONS:
        raise Unreadable
    reader = JsonReader()
    return [ToolCall(tool=part.name, arguments=_arguments(part.input, reader)) for part in parts]


def _arguments(given: Mapping[str, Any], reader: JsonReader) -> Any:
    text = given.get(_UNREAD)
    if len(given) == 1 and isinstance(text, str):
        return read_arguments(text, reader)  # not repaired: truncated arguments would be another call
    reader.count(given)
    return dict(given)


def unfenced(completion: str) -> str:
    """The completion without blanks, and without a code fence, around it."""
    text = completion.strip()
    if not (text.startswith(_FENCE) and text.endswith(_FENCE)):
        return text
    begin = _FENCE_BEGIN.match(text)
    return text.removesuffix(_FENCE)[begin.end() if begin else 0 :].strip()


def _defaulted(signature: Signature, fields: dict[str, Any]) -> dict[str, Any]:
    return dict(apply_output_field_defaults(signature, fields))


def histories(signature: Signature) -> list[str]:
    """The names of the input fields that hold a conversation."""
    return [name for name, info in signature.input_fields.items() if info.annotation is dspy.History]


def history_entries(history: Any) -> History:
    """The messages of a conversation in any of its forms."""
    if isinstance(history, Mapping):  # the form in a saved example
        history = history.get("messages")
    return history.messages if isinstance(history, dspy.History) else history or ()


def _native_system_message(shown: Signature, task: str) -> str:
    """The system message if the complete answer is the completion."""
    only = answer_field(shown)
    assert only is not None, "a Signature with tools must have one answer"
    info: Any = shown.output_fields[only]
    desc = info.json_schema_extra.get("desc", "")
    about = "" if desc == f"${{{only}}}" else f" {desc}"  # dspy's own is the name in braces
    how = "Answer with the text alone" if info.annotation is str else "Answer with the JSON value alone"
    return (
        f"Your input fields are:\n{get_field_description_string(shown.input_fields)}\n\n"
        f"Each of them follows a line with its name, such as [[ ## {next(iter(shown.input_fields))} ## ]]. "
        f"{how}, without such lines.{about}\n\n{task}"
    )


def _sections(completion: str, found: Sequence[re.Match[str]], signature: Signature) -> dict[str, str]:
    """The texts of the output fields, as dspy reads them: the first section of a name counts, and any marker ends it.

    Empty sections of optional fields are left out, so that they get their defaults instead of an error. A further
    output can have such a value, for example an empty list.
    """
    sections: dict[str, str] = {}
    further = further_fields(signature)
    ends = [*(header.start() for header in found[1:]), len(completion)]
    for header, end in zip(found, ends, strict=True):
        info = signature.output_fields.get(header[1])
        if info is None or header[1] in sections:
            continue
        # Text after the marker on its line is stripped separately.
        first, *lines = completion[header.end() : end].splitlines() or [""]
        text = "\n".join([first.strip(), *lines]).strip()
        empty = not (info.is_required() or info.annotation is str) and text.strip("`").strip().lower() in _NOTHING
        if not empty or (header[1] in further and _is_value(text, info.annotation)):
            sections[header[1]] = text
    return sections


def _is_value(text: str, annotation: Any) -> bool:
    try:
        parse_value(text, annotation)
    except ValueError:
        return False
    return True


def _is_read_as_json(annotation: Any) -> bool:
    """Whether dspy reads a text as JSON for a field of this type (`parse_value`)."""
    origin, kinds = get_origin(annotation), get_args(annotation)
    if annotation is str or isinstance(annotation, EnumMeta) or origin is Literal:
        return False
    return not (origin in (Union, UnionType) and str in kinds and type(None) in kinds)


def answer_fields(signature: Signature) -> list[str]:
    """The names of the output fields of an answer: all but `calls`."""
    return [name for name in signature.output_fields if name != CALLS]


def answer_field(signature: Signature) -> str | None:
    """The name of the output field that is the answer; None if there are several and none is marked as the answer."""
    names, outputs = answer_fields(signature), signature.output_fields
    return names[0] if len(names) == 1 else next((name for name in names if _is_marked(outputs[name])), None)


def _further_fields(signature: Signature) -> frozenset[str]:
    names, outputs = answer_fields(signature), signature.output_fields
    further = frozenset(name for name in names if not _is_marked(outputs[name]))
    return further if len(further) < len(names) else frozenset()


_cached: Any = lru_cache(maxsize=256)  # mypy takes no class for a key
further_fields: Callable[[Signature], frozenset[str]] = _cached(_further_fields)
"""The names of the output fields next to the one that is marked as the answer. Every message of a prompt needs them."""


def _is_marked(info: Any) -> bool:
    return ANSWER in info.json_schema_extra


def sole_text_output(signature: Signature) -> str | None:
    """The name of the only output field, if it is a text."""
    outputs = signature.output_fields
    name = next(iter(outputs))
    return name if len(outputs) == 1 and outputs[name].annotation is str else None


def _given(signature: Signature, inputs: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The fields that have a value, in order. In an earlier message, media fields come after the others."""
    fields = signature.input_fields
    named = [
        (name, info)
        for name, info in fields.items()
        if name in inputs and (inputs[name] is not None or LEFT_OUT not in cast("Any", info.json_schema_extra))
    ]
    return [*named, *((name, None) for name in MEDIA_FIELDS if name in inputs and name not in fields)]


def _is_of_the_call(signature: Signature, name: str) -> bool:
    """Whether a field was added for one call, and is not a field of the Signature with the same name."""
    info: Any = signature.input_fields.get(name)
    return info is not None and (name == ROLE or info.json_schema_extra.get("desc") == MEDIA_DESCRIPTIONS[name])


def _content(pieces: Sequence[str | _Message]) -> str | list[_Message]:
    """One text if there is nothing else, otherwise texts and other parts in their order."""
    texts = [piece for piece in pieces if isinstance(piece, str)]
    if len(texts) == len(pieces):
        return "\n\n".join(texts).strip()
    content: list[_Message] = []
    for is_text, run in groupby(pieces, key=lambda piece: isinstance(piece, str)):
        if is_text:
            content.append({"type": "text", "text": "\n\n".join(map(str, run)).strip()})
        else:
            content += [part for part in run if not isinstance(part, str)]
    return content


def _read_as_json(signature: Signature, completion: str, *, alone: bool) -> dict[str, Any] | None:
    """The output fields of a completion that is one JSON object with these fields, bare or in a fence; else None.

    Models that know other formats sometimes answer this way. Nothing is repaired: invalid JSON is not such an answer.

    Args:
        signature: The Signature with the fields.
        completion: The completion.
        alone: Whether other keys are forbidden, because the completion can be the answer itself.

    Raises:
        Unfit: It is the object, and a field is missing or has another type.
    """
    text = unfenced(completion)
    if not (text.startswith("{") and text.endswith("}")):
        return None
    reader = JsonReader()
    given: Any = None
    try:
        given = reader.read(text, repair=False)
        if not isinstance(given, dict) or not signature.output_fields.keys() & given.keys():
            return None
        if _declares_one_of(signature, given) or (alone and given.keys() - signature.output_fields.keys()):
            return None  # the object is the answer itself
        return fields_in(given, signature, reader)
    except Unfit:
        if answer_field(signature) is None or further_fields(signature) & given.keys():
            raise
        return None  # the object can be the answer itself
    except ValueError:
        return None


def fields_in(given: Mapping[str, Any], signature: Signature, reader: JsonReader) -> dict[str, Any]:
    """The output fields from the values of a completion.

    Raises:
        Unfit: One is missing or has another type.
    """
    fields: dict[str, Any] = {}
    for name, info in signature.output_fields.items():
        if name in given:
            if info.annotation is str and not isinstance(given[name], str):  # dspy would show Python's form of it
                raise Unfit(f"the output {name!r} does not fit: Input should be a valid string")
            try:
                fields[name] = parse_value(_sound(given[name], info.annotation, reader), info.annotation)
            except ValueError as error:
                problem = _misfit(info.annotation, error)
            else:
                continue
            raise Unfit(f"the output {name!r} does not fit: {problem}")
    fields = apply_output_field_defaults(signature, fields)
    for name in signature.output_fields:
        if name not in fields:
            raise Unfit(f"the output {name!r} is missing")
    return fields


def _misfit(annotation: Any, error: ValueError) -> str:
    """Why a value is not of a type. Keys are shown if the type declares them, because a role can be in any other."""
    if isinstance(error, Unreadable):
        return "it is not JSON"
    kind: TypeAdapter[Any] = TypeAdapter(annotation)
    names: set[str] = set()
    with suppress(PydanticUserError):
        names.update(re.findall(r"\w+", json.dumps(kind.json_schema(), ensure_ascii=False)))
    if not isinstance(error, ValidationError):  # dspy's own for an enum, which has the value in its text
        try:
            kind.validate_python(None)
        except ValidationError as failure:
            error = failure
        else:
            return "it has another type"
    return describe_failure(error, names=names).removeprefix("value: ")


def _declares_one_of(signature: Signature, names: Iterable[str]) -> bool:
    """Whether the value of an output field declares a field with the name of an output field, one of `names`."""
    names = signature.output_fields.keys() & set(names)
    for info in signature.output_fields.values():
        schema = declared_schema(info) or {}
        kind = schema.get("$defs", {}).get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
        if not kind.get("properties", {}).keys().isdisjoint(names):
            return True
    return False


def _is_sendable(message: Message) -> bool:
    """Whether a model's message can be sent back. Unpaired surrogates, which models emit, cannot."""
    try:
        json.dumps(asdict(message), ensure_ascii=False, default=str).encode()
    except (TypeError, ValueError):
        return False
    return True


def _sound(value: Any, annotation: Any, reader: JsonReader) -> Any:
    """A value that can be JSON in a text of JSON."""
    if not isinstance(value, str) or not _is_read_as_json(annotation):
        return value
    read = reader.read(value)
    return value if read == "" else json.dumps(read)


def without_unpaired_surrogates(text: str) -> str:
    """Replace unpaired surrogates. Models emit them and JSON allows them, but nothing can send or store them."""
    # A pure ASCII text, the usual case, has none.
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _rendered(info: Any, value: Any) -> str:
    # dspy builds a pydantic TypeAdapter for every value, which plain text does not need.
    return value if type(value) is str else str(format_field_value(info, value))


def declared_schema(info: Any) -> Any:
    """The JSON Schema of its value that an output field stores; None if it stores none."""
    return json.loads(info.json_schema_extra.get(DECLARED, "null"))


def fixed_texts(signature: Signature, inputs: Mapping[str, Any]) -> Iterator[str]:
    """The texts of an answer that the program fixes: those of the schemas of its outputs and its tools."""
    tools = inputs.get(TOOLS) or ()
    yield from (tool["function"]["name"] for tool in tools)
    yield from fixed_in(tools)
    for name, info in signature.output_fields.items():
        kind: Any = info.annotation
        if name != CALLS and kind is not str:
            with suppress(PydanticUserError):
                yield from fixed_in(declared_schema(info) or TypeAdapter(kind).json_schema())


def _object_schema(fields: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {name: (annotation, ...) for name, annotation in fields.items()}
    model: type[BaseModel] = create_model("outputs", **made)
    return model.model_json_schema()
