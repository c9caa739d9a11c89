"""A schedule as a value: when it fires, what it starts, and for whom. `policies` decides what happens at a slot."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, tzinfo
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

from pydantic import ConfigDict, Discriminator, Tag, TypeAdapter, ValidationError

from ..agent.starts import STRICT, StartMessage, StartSkill, StartTask, check_label, copied_json
from ..core import Tier, check_id
from ..core.checks import ids
from ..core.errors import ScheduleInvalid, UnknownTier
from ..core.pauses import UnattendedMode
from ..core.validation import describe_failure
from .slots import Slot, find_zone, slots_after
from .when import Cron, Every, Once

Misfire = Literal["skip", "once", "all"]
Overlap = Literal["skip", "queue", "cancel-older"]

MAX_MISFIRE_LIMIT: Final = 1000
_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


# --- what it starts ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartTarget:
    """Call a target that another part of the host has registered.

    Attributes:
        target: Its name.
        payload: What it is called with, as JSON.

    Raises:
        ScheduleInvalid: The name is invalid, or the payload is not JSON.
    """

    target: str
    payload: Any = None

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def __post_init__(self) -> None:
        check_label("target", self.target)
        object.__setattr__(self, "payload", copied_json(f"the payload of the target {self.target!r}", self.payload))


@dataclass(frozen=True, slots=True)
class StartEvent:
    """Post an event to the members of the workspace (A12). Its id is made of the schedule's and the slot.

    Attributes:
        event: The type of the event, such as `pipeline.review`.
        domain: What it is about.
        payload: What is known of it, as JSON.
        source: Where it comes from.
        to: The member that gets it, whatever its domain is; None is the first live one of the domain.

    Raises:
        InvalidArgument: `event`, `domain`, `source` or `to` cannot be an id.
        ScheduleInvalid: The payload is not a mapping of JSON values.
    """

    event: str
    domain: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    source: str = "schedule"
    to: str | None = None

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def __post_init__(self) -> None:
        for name in ("event", "domain", "source", *(("to",) if self.to is not None else ())):
            check_id(f"the `{name}` of an event", getattr(self, name))
        what = f"the payload of the event {self.event!r}"
        if not isinstance(self.payload, Mapping):
            raise ScheduleInvalid(f"{what} must be a mapping", remedy="pass a JSON object")
        object.__setattr__(self, "payload", copied_json(what, dict(self.payload)))


# --- the schedule -----------------------------------------------------------------------------------------------------


def _tagged(*kinds: type) -> Discriminator:
    """Choose the class of a JSON object by its key; the first field of each class is that key."""
    keys = {fields(kind)[0].name: kind.__name__ for kind in kinds}

    def choose(value: object) -> str | None:
        if isinstance(value, dict):
            return next((name for key, name in keys.items() if key in value), None)
        return type(value).__name__

    return Discriminator(
        choose,
        custom_error_type="unknown_kind",
        custom_error_message=f"It must be an object with one of the keys {', '.join(keys)}",
    )


_When = Annotated[
    Annotated[Cron, Tag("Cron")] | Annotated[Every, Tag("Every")] | Annotated[Once, Tag("Once")],
    _tagged(Cron, Every, Once),
]
_Starts = Annotated[
    Annotated[StartMessage, Tag("StartMessage")]
    | Annotated[StartTask, Tag("StartTask")]
    | Annotated[StartSkill, Tag("StartSkill")]
    | Annotated[StartEvent, Tag("StartEvent")]
    | Annotated[StartTarget, Tag("StartTarget")],
    _tagged(StartMessage, StartTask, StartSkill, StartEvent, StartTarget),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When something starts, what starts, and for whom.

    A run of it is unattended, and the stored roles of its workspace and account are resolved when it fires. It has no
    call role, because nothing about such a role is stored (T7).

    Attributes:
        id: 1 to 64 letters, digits, `_`, `.` and `-`, beginning with a letter, a digit or `_`.
        when: When it fires.
        starts: What it starts.
        workspace: The workspace of its runs.
        account: The account of its runs; None for runs without one.
        zone: The IANA time zone of times of day, such as `Europe/Berlin`.
        thread: The thread of its runs; None is a thread of its own, named after its id.
        tiers: The tiers whose roles its runs have; None is every tier that applies. A tier that is not listed is left
            out.
        misfire: What happens to slots that passed while no process could fire them. `skip` fires none of them, except
            that the newest counts as on time for 60 seconds, `once` fires the newest, `all` fires up to
            `misfire_limit` of them.
        misfire_limit: How many slots `all` fires at most, the newest; 1 to 1000.
        overlap: What happens at a slot while the run of an earlier slot is not over. `skip` skips the slot, `queue`
            starts it after that run, `cancel-older` cancels that run.
        paused: Whether its slots are skipped for now.
        unattended: What a run does if a person would be asked: `refuse` or `pause`. None uses the setting `unattended`.
        guard: Whether its runs are guarded (H11). None uses the profile's `guard`, then the setting `guard`.
        untrusted: The marks of what it was made of, as `ctx.gate.marks`; its runs begin with them. A call that adds a
            schedule adds its own marks.

    Raises:
        ScheduleInvalid: A field is invalid; the text names it.
        InvalidArgument: `workspace`, `account` or `thread` cannot be an id.
        UnknownTier: `tiers` has a tier that does not exist, or the call tier.
        MissingExtra: This machine has no time zone data.
    """

    id: str
    when: _When
    starts: _Starts
    workspace: str
    account: str | None = None
    zone: str = "UTC"
    thread: str | None = None
    tiers: tuple[Tier, ...] | None = None
    misfire: Misfire = "once"
    misfire_limit: int = 10
    overlap: Overlap = "skip"
    paused: bool = False
    unattended: UnattendedMode | None = None
    guard: bool | None = None
    untrusted: tuple[str, ...] = ()

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not _ID.fullmatch(self.id):
            raise ScheduleInvalid(
                f"{str(self.id)[:80]!r} cannot be the id of a schedule",
                remedy="use 1 to 64 letters, digits, '_', '.' or '-', and do not begin with '.' or '-'",
            )
        check_id("workspace", self.workspace)
        for name in ("account", "thread"):
            if getattr(self, name) is not None:
                check_id(name, getattr(self, name))
        find_zone(self.zone)
        self._check_choices()
        if self.tiers is not None:
            object.__setattr__(self, "tiers", _checked_tiers(self.id, self.tiers))

    def _check_choices(self) -> None:
        kinds: tuple[tuple[str, object], ...] = (
            ("when", Cron | Every | Once),
            ("starts", StartMessage | StartTask | StartSkill | StartEvent | StartTarget),
        )
        for name, kind in kinds:
            if not isinstance(getattr(self, name), get_args(kind)):
                known = " or ".join(each.__name__ for each in get_args(kind))
                raise self._invalid(name, f"a {known}", f"pass a {known}")
        choices: tuple[tuple[str, tuple[object, ...]], ...] = (
            ("misfire", get_args(Misfire)),
            ("overlap", get_args(Overlap)),
            ("unattended", (None, *get_args(UnattendedMode))),
        )
        for name, known_values in choices:
            if getattr(self, name) not in known_values:
                listed = ", ".join(map(repr, known_values))
                raise self._invalid(name, f"one of {listed}", "use one of them")
        limit = self.misfire_limit
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_MISFIRE_LIMIT:
            raise self._invalid("misfire_limit", f"an integer from 1 to {MAX_MISFIRE_LIMIT}", "pass one in this range")
        if not isinstance(self.paused, bool):
            raise self._invalid("paused", "true or false", "pass a bool")
        if self.guard is not None and not isinstance(self.guard, bool):
            raise self._invalid("guard", "true, false or null", "pass a bool, or leave it out")
        object.__setattr__(self, "untrusted", ids("untrusted", self.untrusted))

    def _invalid(self, name: str, wanted: str, remedy: str) -> ScheduleInvalid:
        given = str(getattr(self, name))[:40]
        return ScheduleInvalid(f"`{name}` of the schedule {self.id!r} must be {wanted}, got {given!r}", remedy=remedy)

    @property
    def thread_id(self) -> str:
        """The id of the thread of its runs."""
        return f"schedule:{self.id}" if self.thread is None else self.thread

    @property
    def time_zone(self) -> tzinfo:
        """The zone, for times."""
        return find_zone(self.zone)

    def key(self, slot: Slot) -> str:
        """Return the key of the start for a slot. A start with this key runs once, whichever process makes it."""
        return f"{self.id}@{slot.id}"

    def slots(self, after: datetime) -> Iterator[Slot]:
        """Yield its slots later than an aware time, in order, whether or not it is paused."""
        return slots_after(self.when, self.time_zone, after)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON that `from_json` reads. Fields with their default are included.

        Except `guard` and `untrusted`: versions before 0.2.0 do not read a schedule that has them.
        """
        dumped: dict[str, Any] = _SCHEDULE.dump_python(self, mode="json")
        return {name: value for name, value in dumped.items() if name not in _LATER or value not in (None, [])}

    @classmethod
    def from_json(cls, data: object) -> Schedule:
        """Read a schedule.

        Args:
            data: A JSON object with the fields as keys. `when` is `{"cron": ...}`, `{"every": ...}` or `{"at": ...}`;
                `starts` is `{"message": ...}`, `{"task": ..., "params": ...}`, `{"skill": ..., "input": ...}`,
                `{"event": ..., "domain": ..., "payload": ...}` or `{"target": ..., "payload": ...}`.

        Raises:
            UnknownTier: It gives a role.
            WorldAgentError: As for `Schedule`.
        """
        if isinstance(data, Mapping) and "role" in data:
            refuse_call_role(data.get("id"), data["role"])
            data = {key: value for key, value in data.items() if key != "role"}
        try:
            return _SCHEDULE.validate_json(json.dumps(copied_json("a schedule", data)))
        except ValidationError as failure:
            problems = describe_failure(failure)
        raise ScheduleInvalid(
            f"the schedule cannot be read: {problems}",
            remedy=f"the fields are: {', '.join(each.name for each in fields(cls))}",
        )


_SCHEDULE: Final = TypeAdapter(Schedule)
_LATER: Final = ("guard", "untrusted")


def refuse_call_role(schedule_id: object, role: object) -> None:
    """Refuse a call role for a schedule: it would have to be stored until the schedule fires (R9, T7).

    Raises:
        UnknownTier: `role` is not None; the text has nothing of it.
    """
    if role is not None:
        raise UnknownTier(
            f"the schedule {str(schedule_id)[:80]!r} cannot have a call role, because a call role is never stored",
            remedy="store the role for the workspace or the account of the schedule",
        )


def _checked_tiers(schedule_id: str, tiers: object) -> tuple[Tier, ...]:
    if isinstance(tiers, str) or not isinstance(tiers, tuple | list | set | frozenset):
        raise ScheduleInvalid(
            f"`tiers` of the schedule {schedule_id!r} must be a list of tiers", remedy="list the tiers that apply"
        )
    found = {Tier.parse(str(each)) for each in tiers}
    if Tier.CALL in found:
        refuse_call_role(schedule_id, Tier.CALL)
    return tuple(tier for tier in Tier if tier in found)
