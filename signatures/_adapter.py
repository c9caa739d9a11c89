"""The two adapters: how a Signature's inputs become a prompt, and a completion its outputs (R5, R15, R17, D17).

Both render a Signature without a role exactly as one with a role, up to the role's own section at the end. Both escape
every value, so that no input can pass for another field. They do not call a model; `_predictor` does.
"""

from __future__ import annotations

import copy
import json
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import EnumMeta
from itertools import groupby
from types import UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin

import dspy
from dspy.adapters.utils import apply_output_field_defaults, format_field_value, parse_value, serialize_for_json
from dspy.utils.exceptions import AdapterParseError
from pydantic import BaseModel, ValidationError, create_model

from ._bounds import LONGEST, MOST_SECTIONS, JsonReader, Unreadable
from ._escape import escape_markers
from ._fields import ChatFieldParser, FieldParser, JsonFieldParser, PlainFieldParser
from .media import MEDIA_FIELDS, parts_of

ROLE = "role"
"""The name of the role's input field, always the last one."""

TOOLS = "offered_tools"
"""The name of the input that holds tools as model services take them; it goes beside the messages, not into them."""

LM = dspy.BaseLM
Program = dspy.Predict
Signature = type[dspy.Signature]
_Message = dict[str, Any]

# At the beginning of a line as `str.splitlines` sees lines, since dspy reads completions by it.
_HEADER = re.compile(r"(?:\A|(?<=[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]))[^\S\n]*\[\[ ## (\w+) ## \]\]")
_FENCE, _FENCE_BEGIN = "```", re.compile(r"```\w*")
MEDIA_DESCRIPTIONS = {
    "attachments": "What is attached to the message, each by its name, and texts with their content; it is data",
    "images": "The images among the attachments",
    "files": "The documents among the attachments",
}
"""What the model is told of the fields of `MEDIA_FIELDS`."""

_NOTHING = frozenset({"", "none", "null", "n/a", "[]"})


@dataclass(frozen=True, slots=True)
class Past:
    """One earlier message of the same call.

    Attributes:
        kind: `input` (what was asked), `output` (what was answered) or `note` (data that is neither).
        fields: Values by field name; a note has its text under `text`. An input may have those of `MEDIA_FIELDS` too.
    """

    kind: Literal["input", "output", "note"]
    fields: Mapping[str, Any]


class RoleAdapter(dspy.ChatAdapter):
    """dspy's chat format, with the system message rendered once per Signature and every value escaped.

    Args:
        escape: What makes a rendered value harmless.
    """

    def __init__(self, *, escape: Callable[[str], str] = escape_markers) -> None:
        super().__init__(use_json_adapter_fallback=False)
        self._escape = escape
        self._past: Sequence[Past] = ()
        self._system: weakref.WeakKeyDictionary[Signature, tuple[str | None, str]] = weakref.WeakKeyDictionary()
        self._bare: weakref.WeakKeyDictionary[Signature, Signature] = weakref.WeakKeyDictionary()
        self._untooled: weakref.WeakKeyDictionary[Signature, Signature] = weakref.WeakKeyDictionary()

    def with_past(self, past: Sequence[Past]) -> RoleAdapter:
        """This adapter with earlier messages of one call; what is rendered once stays shared."""
        if not past:
            return self
        fork = copy.copy(self)
        fork._past = past
        return fork

    def sent(self, value: object) -> str:
        """A text value as it stands in the prompt."""
        return self._escape(whole_text(str(value)))

    def parser(self, signature: Signature, field: str) -> FieldParser:
        """What reads `field` out of a completion as it streams in."""
        return ChatFieldParser(field)

    def options(self, signature: Signature) -> dict[str, Any]:
        """What a call of `signature` needs beside its messages."""
        return {}

    # dspy wraps `format` and `parse` of every subclass in callbacks; ours never has any.
    def format(self, signature: Signature, demos: list[Any], inputs: dict[str, Any]) -> list[_Message]:
        bare = self._bare_of(signature)
        messages: list[_Message] = [{"role": "system", "content": self.format_system_message(signature)}]
        messages += self.format_demos(bare, [_without_role_value(demo) for demo in demos])
        messages += [self._format_past(bare, past) for past in self._past]
        content = self.format_user_message_content(signature, inputs, main_request=True)
        # dspy would expand `<<CUSTOM-TYPE-...>>` in a user's text into images here; text stays text.
        return [*messages, {"role": "user", "content": content}]

    def _call_preprocess(
        self, lm: dspy.BaseLM, lm_kwargs: dict[str, Any], signature: Any, inputs: dict[str, Any]
    ) -> Any:
        """Dspy would ask the model's abilities, for which it may load a list over the network."""
        if TOOLS not in inputs or self.without_tools(signature) is signature:
            return super()._call_preprocess(lm, lm_kwargs, signature, inputs)
        lm_kwargs["tools"] = inputs[TOOLS]
        return self.without_tools(signature)

    def without_tools(self, signature: Signature) -> Signature:
        """The Signature as it stands in the prompt where the service has a place of its own for tools."""
        found = self._untooled.get(signature)
        if found is None:
            calls = [name for name, info in signature.output_fields.items() if info.annotation is dspy.ToolCalls]
            found = signature
            for name in (TOOLS, *calls) if calls else ():
                found = found.delete(name)
            self._untooled[signature] = found
        return found

    def format_system_message(self, signature: Signature) -> str:
        kept = self._system.get(signature)
        # The instructions live in __doc__ and can be set in place.
        if kept is None or kept[0] is not signature.__doc__:
            kept = self._system[signature] = (signature.__doc__, self._render_system_message(signature))
        return kept[1]

    def _render_system_message(self, signature: Signature) -> str:
        return str(super().format_system_message(signature))

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
            media = parts_of(inputs[name])
            if media is None:
                pieces.append(f"[[ ## {name} ## ]]\n{self.sent(_rendered(info, inputs[name]))}")
            else:
                pieces += [f"[[ ## {name} ## ]]", *media]
        if main_request:
            pieces.append(self.user_message_output_requirements(signature))
        if suffix:
            pieces.append(suffix)
        return _content(pieces)

    def format_assistant_message_content(
        self, signature: Signature, outputs: dict[str, Any], missing_field_message: str | None = None
    ) -> str:
        parts = [
            f"[[ ## {name} ## ]]\n{self.sent(_rendered(info, outputs.get(name, missing_field_message)))}"
            for name, info in signature.output_fields.items()
        ]
        return "\n\n".join(parts).strip() + "\n\n[[ ## completed ## ]]\n"

    def parse(self, signature: Signature, completion: str) -> dict[str, Any]:
        _check_length(completion)
        found = list(_HEADER.finditer(completion))
        if len(found) > MOST_SECTIONS:
            raise Unreadable
        headers = {header[1] for header in found}
        if not signature.output_fields.keys() & headers:
            read = _read_as_json(signature, completion)
            if read is not None:
                return read
        only = sole_text_output(signature)
        if only and only not in headers:
            # A model that leaves the markers out has still answered.
            return {only: completion[: found[0].start() if found else None].strip()}
        fields = _fields_in(_sections(completion, found, signature), signature, JsonReader())
        if fields is None:
            _refuse("ChatAdapter", signature)
        return fields

    def _call_postprocess(
        self, processed_signature: Any, original_signature: Any, outputs: list[Any], lm: Any, lm_kwargs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Read what a model answered, in its text or as calls of its service's own."""
        try:
            bounded = [_bounded(output) for output in outputs]
            return list(super()._call_postprocess(processed_signature, original_signature, bounded, lm, lm_kwargs))
        except (ValueError, RecursionError, MemoryError) as error:  # the last two where dspy reads literals of Python
            _refuse(type(self).__name__, original_signature, error)

    def _format_past(self, bare: Signature, past: Past) -> _Message:
        fields = dict(past.fields)
        match past.kind:
            case "input":
                return {"role": "user", "content": self.format_user_message_content(bare, fields)}
            case "output":
                for name, info in bare.output_fields.items():
                    fields.setdefault(name, "" if info.is_required() else info.get_default(call_default_factory=True))
                return {"role": "assistant", "content": self.format_assistant_message_content(bare, fields)}
            case "note":
                return {"role": "user", "content": self.sent(fields["text"])}

    def _bare_of(self, signature: Signature) -> Signature:
        """The Signature without what this call alone may have, so that what stands before it is the same without."""
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
    """The embedded model's format: instructions, bare messages, and JSON where the outputs are more than one text.

    A tiny model loses its way in field markers, so a lone input stands bare; the role stands last under its header.
    """

    def parser(self, signature: Signature, field: str) -> FieldParser:
        return PlainFieldParser() if sole_text_output(signature) else JsonFieldParser(field)

    def options(self, signature: Signature) -> dict[str, Any]:
        if sole_text_output(signature):
            return {}
        fields = {name: info.annotation for name, info in signature.output_fields.items()}
        schema = _object_schema(fields)
        return {"response_format": {"type": "json_schema", "json_schema": {"name": "outputs", "schema": schema}}}

    def _render_system_message(self, signature: Signature) -> str:
        text = str(signature.instructions)
        if not sole_text_output(signature):
            text += f"\nReply as JSON with the keys {', '.join(signature.output_fields)}."
        # Descriptions of tools are part of it, and may hold the model's control tokens.
        return self._escape(text)

    def format_user_message_content(
        self,
        signature: Signature,
        inputs: dict[str, Any],
        prefix: str = "",
        suffix: str = "",
        main_request: bool = False,
    ) -> Any:
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
        shown = {name: serialize_for_json(outputs.get(name)) for name in signature.output_fields}
        return self.sent(json.dumps(shown, ensure_ascii=False))

    def parse(self, signature: Signature, completion: str) -> dict[str, Any]:
        _check_length(completion)
        only = sole_text_output(signature)
        if only:
            return {only: completion.strip()}
        reader = JsonReader()
        read = reader.read(completion)
        fields = _fields_in(read if isinstance(read, dict) else {}, signature, reader)
        if fields is None:
            _refuse("PlainAdapter", signature)
        return fields


def _refuse(adapter: str, signature: Any, cause: BaseException | None = None) -> NoReturn:
    # The answer itself is left out: it is as long as the model made it.
    raise AdapterParseError(adapter_name=adapter, signature=signature, lm_response="") from cause


def _check_length(text: str) -> None:
    if len(text) > LONGEST:
        raise Unreadable


def _bounded(output: Any) -> Any:
    """An answer as dspy reads it, with the arguments of calls as values, which dspy would repair without a bound."""
    calls = output.get("tool_calls") if isinstance(output, dict) else None
    if not calls:
        return output
    if len(calls) > MOST_SECTIONS:
        raise Unreadable
    reader = JsonReader()
    return {**output, "tool_calls": [_with_arguments(call, reader) for call in calls]}


def _with_arguments(call: Any, reader: JsonReader) -> dict[str, Any]:
    function = _item(call, "function") or {}
    # One interface of OpenAI's has them beside the name, the other inside of `function`.
    given = _item(function, "arguments") or _item(call, "arguments") or {}
    return {
        "id": _item(call, "call_id") or _item(call, "id"),
        "function": {
            "name": _item(function, "name") or _item(call, "name"),
            "arguments": reader.read(given) if isinstance(given, str) else given,
        },
    }


def _item(of: Any, name: str) -> Any:
    return of.get(name) if isinstance(of, Mapping) else getattr(of, name, None)


def _sections(completion: str, found: Sequence[re.Match[str]], signature: Signature) -> dict[str, str]:
    """The texts of the output fields, as dspy reads them: the first of a name counts, and any marker ends it.

    Sections of optional fields that say nothing are left out, so that their defaults stand instead of an error.
    """
    sections: dict[str, str] = {}
    ends = [*(header.start() for header in found[1:]), len(completion)]
    for header, end in zip(found, ends, strict=True):
        info = signature.output_fields.get(header[1])
        if info is None or header[1] in sections:
            continue
        # What stands behind the marker in its line is stripped by itself.
        first, *lines = completion[header.end() : end].splitlines() or [""]
        text = "\n".join([first.strip(), *lines]).strip()
        if info.is_required() or text.strip("`").strip().lower() not in _NOTHING:
            sections[header[1]] = text
    return sections


def _is_read_as_json(annotation: Any) -> bool:
    """Whether dspy reads a text as JSON for a field of this type (`parse_value`)."""
    origin, kinds = get_origin(annotation), get_args(annotation)
    if annotation is str or isinstance(annotation, EnumMeta) or origin is Literal:
        return False
    return not (origin in (Union, UnionType) and str in kinds and type(None) in kinds)


def sole_text_output(signature: Signature) -> str | None:
    """The name of the only output field, if it is a text."""
    outputs = signature.output_fields
    name = next(iter(outputs))
    return name if len(outputs) == 1 and outputs[name].annotation is str else None


def _given(signature: Signature, inputs: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The fields that have a value, in order; an earlier message has its media behind them."""
    fields = signature.input_fields
    named = [(name, info) for name, info in fields.items() if name in inputs]
    return [*named, *((name, None) for name in MEDIA_FIELDS if name in inputs and name not in fields)]


def _is_of_the_call(signature: Signature, name: str) -> bool:
    """Whether a field was put there for one call, and is not one of the Signature's own that is called the same."""
    info: Any = signature.input_fields.get(name)
    return info is not None and (name == ROLE or info.json_schema_extra.get("desc") == MEDIA_DESCRIPTIONS[name])


def _content(pieces: Sequence[str | _Message]) -> str | list[_Message]:
    """One text where there is nothing else; else texts and other parts in their order."""
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


def _without_role_value(demo: Any) -> dict[str, Any]:
    return {name: value for name, value in dict(demo).items() if name != ROLE}


def _read_as_json(signature: Signature, completion: str) -> dict[str, Any] | None:
    """The output fields of a completion that is one JSON object which holds them, bare or in a fence; else None.

    Models that know other formats answer so now and then. Nothing is repaired: what is not JSON is not one of these.
    """
    text = completion.strip()
    if text.startswith(_FENCE) and text.endswith(_FENCE):
        text = text.removesuffix(_FENCE)[_FENCE_BEGIN.match(text).end() :].strip()  # type: ignore[union-attr]  # it begins so
    if not (text.startswith("{") and text.endswith("}")):
        return None
    reader = JsonReader()
    try:
        given = reader.read(text, repair=False)
        texts = [name for name, info in signature.output_fields.items() if info.annotation is str]
        sound = all(isinstance(given.get(name, ""), str) for name in texts)
        return _fields_in(given, signature, reader) if sound else None
    except ValueError:
        return None


def _fields_in(given: Mapping[str, Any], signature: Signature, reader: JsonReader) -> dict[str, Any] | None:
    """The output fields from what a completion gives; None where one is missing or is not of its type."""
    fields: dict[str, Any] = {}
    for name, info in signature.output_fields.items():
        if name in given:
            try:
                fields[name] = parse_value(_sound(given[name], info.annotation, reader), info.annotation)
            except (ValueError, ValidationError):
                return None
    fields = apply_output_field_defaults(signature, fields)
    return fields if fields.keys() == signature.output_fields.keys() else None


def _sound(value: Any, annotation: Any, reader: JsonReader) -> Any:
    """A value that may be JSON in a text of JSON."""
    if not isinstance(value, str) or not _is_read_as_json(annotation):
        return value
    read = reader.read(value)
    return value if read == "" else json.dumps(read)


def whole_text(text: str) -> str:
    """Replace halves of surrogate pairs: models emit them, JSON lets them in, and nothing can send or store them."""
    # A text of ASCII alone, the usual case, has none.
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _rendered(info: Any, value: Any) -> str:
    # dspy builds a pydantic TypeAdapter for every value; a plain text needs none.
    return value if type(value) is str else str(format_field_value(info, value))


def _object_schema(fields: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {name: (annotation, ...) for name, annotation in fields.items()}
    model: type[BaseModel] = create_model("outputs", **made)
    return model.model_json_schema()
