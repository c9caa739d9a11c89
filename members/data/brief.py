"""The task brief and the interface spec: what work is, and how a member wants to be asked for it (C1, C4)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, get_args

from ...core import check_id
from ...core.checks import check_choice, check_text, ids, items, to_json
from ...core.errors import BriefInvalid, InvalidArgument
from ...core.validation import check_integer
from .limits import MemberLimits, limits_of

Language = Literal["en", "zh"]
"""The languages of prompts and of the form in which messages are delivered."""

Priority = Literal["low", "normal", "high"]

REQUIRED: Final = ("objective", "constraints", "inputs", "outputs", "completion_criteria")
"""The fields that each task brief has (C1.2)."""

MAX_COLLABORATORS: Final = 50
MAX_REFERENCES: Final = 50
MAX_AFTER: Final = 50
MAX_ATTEMPTS: Final = 20

_DURATION: Final = re.compile(r"([1-9][0-9]{0,3}) ?([mhdw])")
_UNITS: Final = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceSpec:
    """What a member does for others, and the form in which it wants to be asked (C4).

    Attributes:
        services: What it does for others.
        input_format: The form of a request.
        output_format: The form of its answer.
        examples: Examples of requests and answers.

    Raises:
        InvalidArgument: A field is not a text.
    """

    services: str
    input_format: str
    output_format: str
    examples: str = ""

    def __post_init__(self) -> None:
        for each in fields(self):
            check_text(each.name, getattr(self, each.name), empty=each.name == "examples")

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON."""
        read: dict[str, Any] = to_json(self)
        return read


@dataclass(frozen=True, slots=True, kw_only=True)
class Collaborator:
    """A member that the child can write to from the start (C7).

    Attributes:
        id: Its id.
        role: What it is.
        note: What to write to it about.
        interface: How it wants to be asked.

    Raises:
        InvalidArgument: A field is invalid.
    """

    id: str
    role: str
    note: str
    interface: InterfaceSpec | None = None

    def __post_init__(self) -> None:
        check_id("the id of a collaborator", self.id)
        check_text("role", self.role)
        check_text("note", self.note)
        if not isinstance(self.interface, InterfaceSpec | None):
            raise InvalidArgument("`interface` must be an InterfaceSpec", remedy="omit it where there is none")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskBrief:
    """The first task of a child, from the parent that makes it (C1). The first five fields are required.

    Attributes:
        objective: The goal.
        constraints: The technical constraints, such as "a static page, no framework"; say "none" where there are none.
        inputs: What the child works with, such as files.
        outputs: What the child delivers.
        completion_criteria: How both see that the work is done.
        collaborators: Members that the child can write to from the start.
        references: Addresses and titles worth reading.
        priority: Its priority.
        deadline: Until when it must be done: a time with a zone, or how long after it is sent: `45m`, `8h`, `3d` or
            `2w`. Once it is over the giver is told, and the brief can still be done (A19).
        after: The ids of briefs that must be done before. The brief is delivered once all of them are.
        attempts: How many times it is delivered at most, if its turns fail.
        limits: What the child and all below it can use while it is the child's last task; None sets no limit (A16).

    Raises:
        BriefInvalid: A required field is missing or blank, or another one is invalid; the text names each.
    """

    objective: str = ""
    constraints: str = ""
    inputs: str = ""
    outputs: str = ""
    completion_criteria: str = ""
    collaborators: tuple[Collaborator, ...] = ()
    references: tuple[str, ...] = ()
    priority: Priority = "normal"
    deadline: datetime | str | None = None
    after: tuple[str, ...] = ()
    attempts: int = 1
    limits: MemberLimits | None = None

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in REQUIRED}
        _check_required(
            [name for name, value in given.items() if isinstance(value, str | None) and not (value or "").strip()]
        )
        problem = ""
        try:
            for name, value in given.items():
                check_text(name, value)
            object.__setattr__(self, "collaborators", items("collaborators", self.collaborators, Collaborator))
            object.__setattr__(self, "references", items("references", self.references, str))
            for reference in self.references:
                check_text("references", reference, most=2000)
            check_choice("priority", self.priority, get_args(Priority))
            object.__setattr__(self, "deadline", _deadline(self.deadline))
            object.__setattr__(self, "after", ids("after", self.after))
            check_integer("attempts", self.attempts, MAX_ATTEMPTS, remedy="choose another number")
            object.__setattr__(self, "limits", limits_of(self.limits))
        except InvalidArgument as error:
            problem = error.problem
        bounds = {"collaborators": MAX_COLLABORATORS, "references": MAX_REFERENCES, "after": MAX_AFTER}
        for name, most in bounds.items():
            if not problem and len(getattr(self, name)) > most:
                problem = f"`{name}` has more than {most} items"
        if problem:
            raise _invalid(problem)

    @classmethod
    def from_json(cls, given: object) -> TaskBrief:
        """Read a brief from JSON. A required field can be a list of texts, and names can be those of `_ALSO`.

        Raises:
            BriefInvalid: It is not a JSON object, lacks a required field, has one that is not known, or one is invalid.
        """
        if not isinstance(given, Mapping):
            raise BriefInvalid("the task brief must be a JSON object", remedy=f"give it {_listed(REQUIRED)}")
        given = {name: _text(value) if name in REQUIRED else value for name, value in _renamed(given).items()}
        _check_required([name for name in REQUIRED if given.get(name) in (None, "", [])])
        unknown = [str(name)[:60] for name in given if name not in {each.name for each in fields(cls)}]
        if unknown:
            known = _listed([each.name for each in fields(cls)])
            raise BriefInvalid(f"a task brief has no field {_listed(unknown)}", remedy=f"its fields are {known}")
        problem = ""
        try:
            raw = given.get("collaborators", ())
            if isinstance(raw, str | Mapping):
                raise InvalidArgument("`collaborators` must be a list", remedy="pass a list")
            read: dict[str, Any] = {**given, "collaborators": tuple(map(_collaborator, raw))}
            return cls(**read)
        except InvalidArgument as error:
            problem = error.problem
        except TypeError:
            problem = "`collaborators`, `references` and `after` must be lists"
        raise _invalid(problem)

    @property
    def is_tracked(self) -> bool:
        """Whether it has a deadline, depends on others, or is tried more than once."""
        return self.deadline is not None or bool(self.after) or self.attempts > 1

    def sent_at(self, now: datetime) -> TaskBrief:
        """The brief with its deadline as a time.

        Args:
            now: When it is sent.

        Raises:
            BriefInvalid: The deadline is over.
        """
        match = _DURATION.fullmatch(self.deadline) if isinstance(self.deadline, str) else None
        due = now + timedelta(seconds=int(match[1]) * _UNITS[match[2]]) if match else self.deadline
        if isinstance(due, datetime) and due <= now:
            raise _invalid(f"its `deadline` is over since {_minute(due)}")
        return replace(self, deadline=due)

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON. `after` and `attempts` are left out where they say nothing."""
        read: dict[str, Any] = to_json(self)
        plain = {"after": [], "attempts": 1}
        return {name: value for name, value in read.items() if name not in plain or value != plain[name]}

    def to_text(self, language: Language = "en") -> str:
        """The brief as the child reads it: each field after its name, the further lines of a field indented."""
        fields = [(name, getattr(self, name)) for name in REQUIRED]
        fields += [("priority", self.priority)] if self.priority != "normal" else []
        fields += [("collaborators", f"{each.role} ({each.id}): {each.note}") for each in self.collaborators]
        fields += [("references", each) for each in self.references]
        due = self.deadline
        fields += [("deadline", _minute(due) if isinstance(due, datetime) else due)] if due is not None else []
        fields += [("report", _REPORT[language])] if self.is_tracked else []
        return "\n".join(f"{_NAMES[language][name]}: " + "\n  ".join(text.splitlines()) for name, text in fields)


_NAMES: Final[Mapping[Language, Mapping[str, str]]] = {
    "en": {
        "objective": "Objective",
        "constraints": "Constraints",
        "inputs": "Inputs",
        "outputs": "Outputs",
        "completion_criteria": "Done when",
        "collaborators": "Collaborator",
        "references": "Reference",
        "priority": "Priority",
        "deadline": "Deadline",
        "report": "Report",
    },
    "zh": {
        "objective": "目标",
        "constraints": "技术约束",
        "inputs": "输入",
        "outputs": "输出",
        "completion_criteria": "完成标准",
        "collaborators": "协作联系人",
        "references": "参考资料",
        "priority": "优先级",
        "deadline": "截止时间",
        "report": "汇报",
    },
}

_REPORT: Final[Mapping[Language, str]] = {
    "en": "send a status_report with the state done, failed or blocked, and say why if it is not done",
    "zh": "发送 status_report，state 为 done、failed 或 blocked；未完成时请说明原因",
}


def interface_of(given: object) -> InterfaceSpec | None:
    """Read an interface spec from JSON; None stays None.

    Raises:
        InvalidArgument: It lacks a field, or one is invalid or not known.
    """
    if given is None or isinstance(given, InterfaceSpec):
        return given
    return InterfaceSpec(**_fields_of(InterfaceSpec, given, "an interface spec", remedy=", or omit the spec"))


def _collaborator(given: object) -> Collaborator:
    if isinstance(given, Collaborator):
        return given
    given = _renamed(given) if isinstance(given, Mapping) else given
    read = dict(_fields_of(Collaborator, given, "each of `collaborators`"))
    read["interface"] = interface_of(read.get("interface"))
    return Collaborator(**read)


def _fields_of(
    kind: type[InterfaceSpec | Collaborator], given: object, what: str, remedy: str = ""
) -> Mapping[str, Any]:
    """The fields of an object in JSON: the first three are required, and the last one is not."""
    *required, last = [each.name for each in fields(kind)]
    if not isinstance(given, Mapping) or not {*required} <= {*given} <= {*required, last}:
        raise InvalidArgument(
            f"{what} must be an object with {_listed(required)}, and may have `{last}`",
            remedy=f"give it these fields{remedy}",
        )
    return given


_ALSO: Final[Mapping[str, str]] = {
    "completionCriteria": "completion_criteria",
    "agentId": "id",
    "agent_id": "id",
    "description": "note",
    "interfaceSpec": "interface",
    "interface_spec": "interface",
}
"""Other names of fields of a brief and of a collaborator."""


def _renamed(given: Mapping[Any, Any]) -> dict[Any, Any]:
    """A mapping with our names; a second name for one field stays, and is refused as unknown."""
    read = {name: value for name, value in given.items() if name not in _ALSO}
    for name in given.keys() & _ALSO.keys():
        read[name if _ALSO[name] in read else _ALSO[name]] = given[name]
    return read


def _text(value: Any) -> Any:
    """A list of texts as one text with a line for each; anything else as it is."""
    if isinstance(value, list | tuple) and value and all(isinstance(each, str) for each in value):
        return value[0] if len(value) == 1 else "\n".join(f"- {each}" for each in value)
    return value


def _deadline(given: object) -> datetime | str | None:
    """A deadline as a time in UTC, or as a duration."""
    if given is None or (isinstance(given, str) and _DURATION.fullmatch(given)):
        return given
    with suppress(ValueError, OverflowError):
        time = datetime.fromisoformat(given) if isinstance(given, str) else given
        if isinstance(time, datetime) and time.tzinfo is not None:
            return time.astimezone(UTC)
    raise InvalidArgument(
        "`deadline` must be a time with a zone, such as 2030-05-01T12:00Z, or a duration, such as 45m, 8h, 3d or 2w",
        remedy="write one of these",
    )


def _minute(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"


def _invalid(problem: str) -> BriefInvalid:
    return BriefInvalid(f"the task brief is invalid: {problem}", remedy="correct this field and try again")


def _check_required(missing: list[str]) -> None:
    if missing:
        raise BriefInvalid(
            f"the task brief lacks {_listed(missing)}",
            remedy=f"write {'it' if len(missing) == 1 else 'them'}, each as a text; say 'none' where nothing applies",
        )


def _listed(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)
