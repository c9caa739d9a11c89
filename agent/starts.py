"""What a schedule or a submission starts: a message of the conversation, a task or a skill. They are stored as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Annotated, Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field

from ..core.errors import InvalidArgument, ScheduleInvalid
from ..core.validation import is_line, is_text, storable_json
from ..graphs import Composed
from ..harness.function import check_name
from .choices import check_said
from .requests import Say, Skill, Task

STRICT: Final = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)
"""How such values are read from JSON: no undeclared fields, and no conversions."""

_MAX_NAME: Final = 64


def copied_json(what: str, value: object) -> Any:
    """Return an own copy of a JSON value.

    Raises:
        ScheduleInvalid: It is not JSON; the error does not show it.
    """
    try:
        return json.loads(storable_json(value))
    except (TypeError, ValueError) as error:
        problem = type(error).__name__
    raise ScheduleInvalid(f"{what} must be JSON ({problem})", remedy="use JSON values, and text that UTF-8 can hold")


def check_label(what: str, name: object) -> None:
    """Refuse what cannot be the name of a skill or a target.

    Raises:
        ScheduleInvalid: It is not a line of 1 to 64 characters.
    """
    if not is_line(name, _MAX_NAME):
        raise ScheduleInvalid(
            f"the name of a {what} must be 1 to {_MAX_NAME} printable characters, got {str(name)[:80]!r}",
            remedy=f"give the name of a {what}",
        )


@dataclass(frozen=True, slots=True)
class StartMessage:
    """Start a turn of the conversation.

    Attributes:
        message: The message.
        inputs: The further inputs of the agent's `Converse`, as JSON.

    Raises:
        ScheduleInvalid: The message is empty or not text, or the inputs are not a mapping of JSON values.
    """

    message: str
    inputs: Annotated[Mapping[str, Any], Field(exclude_if=lambda inputs: not inputs)] = field(default_factory=dict)

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def __post_init__(self) -> None:
        if not is_text(self.message):
            raise ScheduleInvalid("`message` must be text that is not blank", remedy="give the message of the turn")
        if not isinstance(self.inputs, Mapping):
            raise ScheduleInvalid("the inputs of the message must be a mapping", remedy="pass each by its name")
        object.__setattr__(self, "inputs", copied_json("the inputs of the message", dict(self.inputs)))


@dataclass(frozen=True, slots=True)
class StartTask:
    """Start a task.

    Attributes:
        task: The key of its shape, such as `subagent`.
        params: Its params, as JSON.

    Raises:
        FunctionInvalid: `task` cannot be the key of a shape.
        ScheduleInvalid: The params are not a mapping of JSON values.
    """

    task: str
    params: Mapping[str, Any] = field(default_factory=dict)

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def __post_init__(self) -> None:
        check_name("shape", self.task)
        what = f"the params of the task {self.task!r}"
        if not isinstance(self.params, Mapping):
            raise ScheduleInvalid(f"{what} must be a mapping", remedy="pass the fields of the shape's params by name")
        object.__setattr__(self, "params", copied_json(what, dict(self.params)))


@dataclass(frozen=True, slots=True)
class StartSkill:
    """Run a skill.

    Attributes:
        skill: Its name.
        input: Its input: a text, or the fields of its input schema.

    Raises:
        ScheduleInvalid: The name is invalid, or the input is not JSON.
    """

    skill: str
    input: str | Mapping[str, Any]

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def __post_init__(self) -> None:
        check_label("skill", self.skill)
        what = f"the input of the skill {self.skill!r}"
        if not is_text(self.input) and not isinstance(self.input, Mapping):
            raise ScheduleInvalid(f"{what} must be a text or a mapping", remedy="give the request, or named fields")
        given = self.input if isinstance(self.input, str) else dict(self.input)
        object.__setattr__(self, "input", copied_json(what, given))


Start = StartMessage | StartTask | StartSkill
"""What starts a turn."""

_KINDS: Final[Mapping[str, type[Start]]] = {"message": StartMessage, "task": StartTask, "skill": StartSkill}


def start_to_json(start: Start) -> dict[str, Any]:
    """A start as JSON, which `read_start` reads."""
    return {name: value for name, value in asdict(start).items() if name != "inputs" or value}


def read_start(stored: Mapping[str, Any]) -> Start:
    """A start that was stored as JSON."""
    return next(kind for name, kind in _KINDS.items() if name in stored)(**stored)


_STORED: Final = frozenset({"text", "inputs", "shape", "params", "skill", "key", "unattended", "guard"})


def request_of(start: Start, **options: Any) -> Say | Task | Skill:
    """Return the request of a start.

    Args:
        start: The start.
        options: Its `key`, `unattended`, `guard`, `model` and `detach`.
    """
    match start:
        case StartMessage(message=text, inputs=inputs):
            return Say(text, inputs=inputs, **options)
        case StartTask(task=shape, params=params):
            return Task(shape, params, **options)
        case StartSkill(skill=name, input=given):
            return Skill(name, {"request": given} if isinstance(given, str) else given, **options)


def start_of(request: Start | Say | Task | Skill) -> Start:
    """Return the start that a request is stored as, without its `key`, `unattended` and `guard`.

    Raises:
        InvalidArgument: It is something else, or has an option that is not stored; the text has its name and no value.
        ScheduleInvalid, FunctionInvalid: As for the start.
    """
    if isinstance(request, StartMessage | StartTask | StartSkill):
        return request
    if not isinstance(request, Say | Task | Skill):
        raise InvalidArgument(
            f"`start` must be a Say, Task or Skill, got a {type(request).__name__}",
            remedy="import them from worldagent.agent",
        )
    for each in fields(request):
        composed = each.name == "skill" and isinstance(getattr(request, each.name), Composed)
        if composed or (each.name not in _STORED and getattr(request, each.name) != each.default):
            raise InvalidArgument(
                f"a submitted turn cannot have {f'a composed {each.name}' if composed else f'`{each.name}`'}, which is "
                "not stored",
                remedy="leave it out, or start the turn in this process",
            )
    match request:
        case Say():
            check_said(request.text)
            return StartMessage(request.text, request.inputs or {})
        case Task(params=params):
            stored = params.model_dump(mode="json") if isinstance(params, BaseModel) else params
            return StartTask(request.shape, stored)
        case Skill(skill=skill):
            return StartSkill(str(skill), request.params or {})
