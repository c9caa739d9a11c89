"""The entry Signature of the conversation, which a host can subclass (T20).

The subclass keeps the name `Converse` for roles, programs and examples. `graphs` runs it; this module decides which
subclasses are possible, and checks their inputs and outputs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from keyword import iskeyword
from typing import Annotated, Any, Final, Self

import dspy
from dspy.signatures import make_signature
from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation

from ..core import canonical_json, digest
from ..core.errors import FunctionInvalid, InvalidArgument, ResultInvalid
from ..core.validation import describe_failure, is_text, json_of_value, validate_value
from .adapter import LEFT_OUT, NOTE, ROLE, Signature
from .calling import CALLS, MEMORY, TOOLS, memory_field, with_calls
from .media import MEDIA_FIELDS
from .signature import (
    CONVERSE,
    DEFAULT_IDENTITY,
    REPLY,
    ROLE_DESCRIPTION,
    brief_instructions,
    check_signature,
    describe_own_role,
    json_output,
)


class Converse(dspy.Signature):
    """Reply to the message."""

    history: dspy.History = dspy.InputField(default=dspy.History(messages=[]))  # so that dspy alone can run it, too
    message: str = dspy.InputField()
    role: str | None = dspy.InputField(default=None, desc=ROLE_DESCRIPTION)
    reply: str = dspy.OutputField()


_RESERVED: Final = (MEMORY, *MEDIA_FIELDS, CALLS, TOOLS, NOTE)
_ELSEWHERE: Final[Mapping[str, str]] = {
    ROLE: "pass role=Role(...)",
    "history": "the agent adds the history of the thread itself",
    "message": "pass the message as the text of the turn",
    MEMORY: "pass passages with context=",
    "attachments": "pass attachments=[...]",
}
"""Where a value goes that is not an input of a class."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConverseClass:
    """A class of the conversation, and the types of what it has in addition to `Converse`.

    Attributes:
        declared: The class.
        inputs: The types of its further inputs, by name.
        outputs: The types of its further outputs, by name.
        digest: A digest of the names and types of its further fields; empty if it has none.
    """

    declared: Signature = Converse
    inputs: Mapping[str, TypeAdapter[Any]] = field(default_factory=dict)
    outputs: Mapping[str, TypeAdapter[Any]] = field(default_factory=dict)
    digest: str = ""

    @classmethod
    def of(cls, given: object) -> Self:
        """Read a subclass of `Converse`.

        Raises:
            FunctionInvalid: It is something else, changes a field of `Converse`, or has a field that cannot be one.
        """
        if not (isinstance(given, type) and issubclass(given, Converse)):
            got = f"the class {given.__name__!r}" if isinstance(given, type) else f"a {type(given).__name__!r}"
            raise FunctionInvalid(
                f"converse= must be a subclass of Converse, got {got}",
                remedy="derive it: class Moody(Converse), with Converse from worldagent.signatures",
            )
        check_signature(given)
        declared: Signature = given
        name = declared.__name__
        for each, own in Converse.fields.items():
            found: Any = declared.fields.get(each)
            same = found is not None and (found.annotation == own.annotation or each == ROLE)
            if not same or _side(found) != _side(own):
                raise FunctionInvalid(
                    f"{name!r} must not change the field {each!r} of Converse",
                    remedy="leave it out, or change only its description",
                )
        inputs, outputs = _types(name, declared.input_fields), _types(name, declared.output_fields)
        schemas = [{each: kind.json_schema() for each, kind in kinds.items()} for kinds in (inputs, outputs)]
        fields = digest(schemas, length=16) if inputs or outputs else ""
        return cls(declared=declared, inputs=inputs, outputs=outputs, digest=fields)

    @property
    def changing(self) -> frozenset[str]:
        """The inputs whose default is made anew for each turn."""
        fields: Any = self.declared.input_fields
        return frozenset(name for name in self.inputs if fields[name].default_factory is not None)

    def checked_inputs(self, given: object) -> dict[str, Any]:
        """Return the inputs of a turn as JSON, with the defaults of those that were left out.

        Args:
            given: A mapping, or None.

        Raises:
            InvalidArgument: It is not a mapping, an input is missing, unknown, or does not fit its type.
        """
        if given is not None and not isinstance(given, Mapping):
            raise InvalidArgument(
                f"`inputs` must be a mapping, got a {type(given).__name__!r}", remedy="pass inputs={'NAME': value}"
            )
        values: Mapping[Any, Any] = given or {}
        for name in values:
            if name not in self.inputs:
                known = f"the inputs are: {', '.join(self.inputs)}" if self.inputs else "pass WorldAgent(converse=...)"
                raise InvalidArgument(
                    f"the conversation has no input {str(name)[:80]!r}", remedy=_ELSEWHERE.get(name, known)
                )
        return {name: value for name in self.inputs if (value := self._input(name, values)) is not None}

    def kept_inputs(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body of a message that begins another turn, with its inputs as this class takes them.

        An input that the class no longer has is left out.

        Raises:
            InvalidArgument: An input is missing, or does not fit its type.
        """
        rest = {name: value for name, value in body.items() if name != "inputs"}
        kept = {name: value for name, value in body.get("inputs", {}).items() if name in self.inputs}
        inputs = self.checked_inputs(kept)
        return {**rest, "inputs": inputs} if inputs else rest

    def read_outputs(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs of an answer as their types. What does not fit the class any more stays JSON."""
        return {name: self._read(name, value) for name, value in stored.items()}

    def _read(self, name: str, value: Any) -> Any:
        kind = self.outputs.get(name)
        try:
            return value if kind is None else kind.validate_json(canonical_json(value))
        except ValidationError:
            return value

    def _input(self, name: str, values: Mapping[str, Any]) -> Any:
        """One input as JSON; None if it has no value."""
        info: Any = self.declared.input_fields[name]
        if name not in values:
            if info.is_required():
                raise InvalidArgument(
                    f"the input {name!r} is missing",
                    remedy=f"pass inputs={{{name!r}: value}}, or declare a default in {self.declared.__name__!r}",
                )
            value = info.get_default(call_default_factory=True)
            if value is None:
                return None
        else:
            value = values[name]
        return json_input(name, self.inputs[name], value)


def with_inputs(given: object, fields: Iterable[tuple[str, str, Any, str]]) -> type[Converse]:
    """A subclass of a class of the conversation that has further inputs, which can be left out.

    Args:
        given: The class; None is `Converse`.
        fields: The capability, the name, the type and the description of each.

    Raises:
        FunctionInvalid: Two fields have one name, or a name, a type or a description is not possible.
    """
    base: Any = Converse if given is None else given
    made: dict[str, Any] = {"__annotations__": {}, "__doc__": base.instructions, "__module__": base.__module__}
    for capability, name, kind, about in fields:
        of = f"of the capability {capability!r}"
        taken = name in (*base.fields, *made, *_RESERVED) or (isinstance(name, str) and hasattr(base, name))
        if taken or not (isinstance(name, str) and name.isidentifier()) or name.startswith("_") or iskeyword(name):
            raise FunctionInvalid(
                f"the input {str(name)[:80]!r} {of} has no possible name, or one that is taken",
                remedy="give it an identifier that no other field and no attribute of the conversation has",
            )
        if not is_text(about):
            raise FunctionInvalid(f"the input {name!r} {of} has no description", remedy="say what the model reads")
        if kind is None or isinstance(kind, str):
            raise FunctionInvalid(
                f"the input {name!r} {of} has no type, got {kind!r}", remedy="give it a type such as int"
            )
        _adapter(f"the input {name!r} {of}", kind, kind)
        made["__annotations__"][name] = kind | None
        made[name] = dspy.InputField(default=None, desc=about)
        made[name].json_schema_extra[LEFT_OUT] = True
    derived: type[Converse] = type(base.__name__, (base,), made)
    return derived


def converse_signature(
    identity: str | None,
    prompt: str | None = None,
    *,
    plain: bool = False,
    memory: bool = False,
    output: Mapping[str, Any] | None = None,
    declared: Signature = Converse,
) -> Signature:
    """The entry Signature of a conversation, which offers tools.

    Args:
        identity: The identity of the agent; None is the default identity.
        prompt: Text after the identity in the instructions, such as a profile's.
        plain: Whether it is for the embedded model, which needs short instructions.
        memory: Whether it has the field `memory`, for what the turn recalls.
        output: The JSON Schema of the answer; None is a text.
        declared: `Converse` or a subclass. Its instructions follow the identity.
    """
    who = "\n\n".join(filter(None, ((identity or DEFAULT_IDENTITY).strip(), prompt)))
    base: Any = declared  # mypy takes no class for a key
    task = declared.instructions
    instructions = brief_instructions(who) if plain and task == Converse.instructions else f"{who}\n\n{task}"
    if output is None:
        return _conversation(base, instructions, memory)
    fields = {**_fields(declared, memory), REPLY: json_output(output)}
    return with_calls(make_signature(fields, instructions, CONVERSE), REPLY)


@lru_cache(maxsize=64)  # agents that are opened one after the other have the same
def _conversation(declared: Signature, instructions: str, memory: bool) -> Signature:
    return with_calls(make_signature(_fields(declared, memory), instructions, CONVERSE), REPLY)


def _fields(declared: Signature, memory: bool) -> dict[str, Any]:
    fields: dict[str, Any] = dict(declared.fields)
    if not describe_own_role(declared):  # then the field is added as to any Signature (R18)
        del fields[ROLE]
    fields["history"] = copy.copy(fields["history"])
    fields["history"].default = None  # it is what examples and traces of a turn have without one
    if not memory:
        return fields
    return {"history": fields["history"], MEMORY: memory_field(), **fields}


def checked_outputs(outputs: Mapping[str, TypeAdapter[Any]], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs of a model's answer as JSON.

    Args:
        outputs: Their types.
        given: Their values; one that is missing is None.

    Raises:
        ResultInvalid: One is missing or has another type. The text names it and no value.
    """
    return {name: _checked_output(f"the output {name!r}", kind, given.get(name)) for name, kind in outputs.items()}


def _checked_output(what: str, kind: TypeAdapter[Any], value: Any) -> Any:
    try:
        checked = validate_value(kind, value, what=what, error=ResultInvalid)
        return json_of_value(kind, checked, what=what, error=ResultInvalid)
    except ResultInvalid:
        if value is not None:
            raise
    raise ResultInvalid(f"{what} is missing", remedy="give each output")


def json_input(name: str, kind: TypeAdapter[Any], value: object) -> Any:
    """Return the value of an input as JSON.

    Raises:
        InvalidArgument: It does not fit its type.
    """
    # A value that was stored or sent is JSON, which strict types read otherwise.
    ways: tuple[Callable[[Any], Any], ...] = (
        kind.validate_python,
        lambda given: kind.validate_json(canonical_json(given)),
    )
    problem = ""
    for validate in ways:
        try:
            checked = validate(value)
        except ValidationError as error:
            problem = problem or describe_failure(error)
        except (TypeError, ValueError):  # it is not JSON either
            break
        else:
            return json_of_value(kind, checked, what=f"the input {name!r}", error=InvalidArgument)
    raise InvalidArgument(f"the input {name!r} does not fit its type: {problem}", remedy="pass a value of this type")


def _types(name: str, fields: Mapping[str, Any]) -> dict[str, TypeAdapter[Any]]:
    """The types of further fields.

    Raises:
        FunctionInvalid: A name is reserved, or a type has no JSON Schema.
    """
    further = {each: info for each, info in fields.items() if each not in Converse.fields}
    reserved = [each for each in further if each in _RESERVED]
    if reserved:
        raise FunctionInvalid(
            f"{name!r} must not have a field with the reserved name {reserved[0]!r}", remedy="rename the field"
        )
    return {each: _type(name, each, info) for each, info in further.items()}


def _type(name: str, each: str, info: Any) -> TypeAdapter[Any]:
    constraints = tuple(info.metadata)
    kind: Any = Annotated[(info.annotation, *constraints)] if constraints else info.annotation
    return _adapter(f"the field {each!r} of {name!r}", info.annotation, kind)


def _adapter(what: str, annotation: Any, kind: Any) -> TypeAdapter[Any]:
    problem = "is a type of dspy"
    if annotation is not dspy.History and not dspy.Type.extract_custom_type_from_annotation(annotation):
        try:
            made = TypeAdapter[Any](kind)
            made.json_schema()
            return made
        except (PydanticUserError, PydanticUndefinedAnnotation, TypeError) as error:
            problem = f"has no JSON Schema ({type(error).__name__})"
    raise FunctionInvalid(
        f"{what} {problem}",
        remedy="declare a type that pydantic can validate and write as JSON; images and files are attachments",
    )


def _side(info: Any) -> Any:
    return info.json_schema_extra["__dspy_field_type"]
