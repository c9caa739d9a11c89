"""The contract of role hosts: what each tool is asked, and how its answer is read. Nothing here knows about transport.

A role's text stands in the arguments of `role_put` alone, and they are made where they are sent: a frame of the caller,
which an error keeps alive, holds the sealed `Role` only.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar, cast

from ..core import Tier
from ..core.errors import HostUnavailable, RoleInvalid, RoleTooLong
from ..role_resolution import Role
from .failures import Failure, Failures

CONTRACT = 1

STORED_TIERS = frozenset({Tier.WORKSPACE, Tier.ACCOUNT, Tier.CHANNEL})
"""The tiers that a host may keep. A call's and a thread's roles are never sent to one (R9)."""

_PARTS = 1000  # of a schema that are looked at

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool answered: its structured content, and whether it was a tool error."""

    content: Any = field(repr=False)
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Operation(ABC, Generic[T]):
    """One call of a tool of the contract."""

    tool: ClassVar[str]

    @property
    @abstractmethod
    def about(self) -> str:
        """Which role or roles the call is about, for errors."""

    @abstractmethod
    def arguments(self) -> dict[str, Any]:
        """What is sent."""

    @abstractmethod
    def accept(self, content: Mapping[str, Any], failures: Failures) -> T | Failure:
        """What an answer that is no error means."""

    def read(self, answer: Answer, failures: Failures) -> T | Failure:
        """What an answer means; `failures` makes the failures of the host."""
        content = answer.content
        if not isinstance(content, Mapping):
            what = "an error that has no code" if answer.failed else "nothing structured"
            return failures.invalid(f"answered {self.tool} with {what}")
        contract = content.get("contract")
        if type(contract) is not int or contract != CONTRACT:
            return failures.invalid(
                f"does not say that it answers {self.tool} by version {CONTRACT} of the contract",
                f"use a host that speaks version {CONTRACT}, or a version of this package that speaks the host's",
            )
        typed = cast("Mapping[str, Any]", content)
        return self.refused(typed.get("code"), failures) if answer.failed else self.accept(typed, failures)

    def refused(self, code: object, failures: Failures) -> T | Failure:
        """What an error code means."""
        return _refused(self.tool, self.about, code, failures)


def _refused(tool: str, about: str, code: object, failures: Failures) -> Failure:
    match code:
        case "invalid":
            return Failure(
                RoleInvalid,
                f"{failures.name} found {about} or its scope invalid",
                "change it to what the host takes",
            )
        case "too_long":
            return Failure(
                RoleTooLong,
                f"{about} is longer than {failures.name} takes",
                "shorten it, or raise its limit",
            )
        case "forbidden":
            return failures.forbidden()
        case "unavailable":
            return Failure(
                HostUnavailable,
                f"{failures.name} cannot reach {about} now",
                "see what the host itself reports, then try again",
            )
        case _:
            return failures.invalid(f"answered {tool} with a code that the contract does not have for it")


@dataclass(frozen=True, slots=True)
class ListRoles(Operation[dict[Tier, Role]]):
    """All set roles of the scopes, in one round trip."""

    tool: ClassVar[str] = "role_list"

    scope_ids: Mapping[Tier, str]

    @property
    def about(self) -> str:
        """See `Operation.about`."""
        return "the " + " or ".join(tier.value for tier in self.scope_ids) + " role"

    def arguments(self) -> dict[str, Any]:
        """See `Operation.arguments`."""
        return {"scope_ids": {tier.value: scope_id for tier, scope_id in self.scope_ids.items()}}

    def accept(self, content: Mapping[str, Any], failures: Failures) -> dict[Tier, Role] | Failure:
        """See `Operation.accept`."""
        given = content.get("roles")
        if not isinstance(given, list):
            return failures.invalid(f"answered {self.tool} with something else than a list of roles")
        found: dict[Tier, Role] = {}
        for entry in cast("list[object]", given):
            read = _role(entry)
            if read is None or read[0] not in self.scope_ids:
                return failures.invalid(f"answered {self.tool} with something that is not a role that was asked for")
            if read[0] in found:
                return failures.invalid(f"answered {self.tool} with two roles of the {read[0]} tier")
            found[read[0]] = read[1]
        return found


@dataclass(frozen=True, slots=True)
class _OfOneScope(Operation[T]):
    tier: Tier
    scope_id: str

    @property
    def about(self) -> str:
        """See `Operation.about`."""
        return f"the {self.tier} role"

    def arguments(self) -> dict[str, Any]:
        """See `Operation.arguments`."""
        return {"tier": self.tier.value, "scope_id": self.scope_id}

    def read_role(self, content: Mapping[str, Any], failures: Failures) -> Role | Failure:
        read = _role(content.get("role"))
        if read is None or read[0] is not self.tier:
            return failures.invalid(f"answered {self.tool} with something that is not a {self.tier} role")
        return read[1]


@dataclass(frozen=True, slots=True)
class GetRole(_OfOneScope["Role | None"]):
    """The role of one tier and scope, or None."""

    tool: ClassVar[str] = "role_get"

    def accept(self, content: Mapping[str, Any], failures: Failures) -> Role | Failure | None:
        """See `Operation.accept`."""
        return self.read_role(content, failures)

    def refused(self, code: object, failures: Failures) -> Role | Failure | None:
        """See `Operation.refused`."""
        return None if code == "not_found" else _refused(self.tool, self.about, code, failures)


@dataclass(frozen=True, slots=True)
class PutRole(_OfOneScope[None]):
    """Set or replace a role."""

    tool: ClassVar[str] = "role_put"

    role: Role

    def arguments(self) -> dict[str, Any]:
        """See `Operation.arguments`."""
        return {
            "tier": self.tier.value,
            "scope_id": self.scope_id,
            "name": self.role.name,
            "content": self.role.content,
        }

    def accept(self, content: Mapping[str, Any], failures: Failures) -> Failure | None:
        """See `Operation.accept`."""
        read = self.read_role(content, failures)
        return read if isinstance(read, Failure) else None


@dataclass(frozen=True, slots=True)
class DeleteRole(_OfOneScope[bool]):
    """Clear a role; whether there was one."""

    tool: ClassVar[str] = "role_delete"

    def accept(self, content: Mapping[str, Any], failures: Failures) -> bool | Failure:
        """See `Operation.accept`."""
        return True

    def refused(self, code: object, failures: Failures) -> bool | Failure:
        """See `Operation.refused`."""
        return False if code == "not_found" else _refused(self.tool, self.about, code, failures)


def offered_tiers(schema: object) -> frozenset[Tier]:
    """The tiers that a host keeps, read from the input schema of its `role_get`.

    It says so by the values of `tier` (`enum` or `const`, behind `$ref`, `anyOf` and the like); where it lists none,
    it keeps workspace and account roles.
    """
    root = schema if isinstance(schema, Mapping) else {}
    properties = root.get("properties")
    named = _values(properties.get("tier") if isinstance(properties, Mapping) else None, root)
    if not named:
        return frozenset({Tier.WORKSPACE, Tier.ACCOUNT})
    return frozenset(tier for tier in STORED_TIERS if tier.value in named)


def _values(schema: object, root: Mapping[str, Any]) -> set[str]:
    """The values that a schema names; of a large one as many parts as a sound one has."""
    found: set[str] = set()
    parts, followed = [schema], set[str]()
    for part, _ in zip(parts, range(_PARTS), strict=False):  # it grows meanwhile
        if not isinstance(part, Mapping):
            continue
        found |= {value for value in (*_list(part.get("enum")), part.get("const")) if isinstance(value, str)}
        for name in ("anyOf", "oneOf", "allOf"):
            parts += _list(part.get(name))
        reference = part.get("$ref")
        definitions = root.get("$defs")
        if isinstance(reference, str) and reference not in followed and isinstance(definitions, Mapping):
            followed.add(reference)
            parts.append(definitions.get(reference.removeprefix("#/$defs/")))
    return found


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _role(entry: object) -> tuple[Tier, Role] | None:
    """A record of the contract as tier and role; None where it is not one. What else stands in it is ignored."""
    if not isinstance(entry, Mapping):
        return None
    tier, name, content = (entry.get(key) for key in ("tier", "name", "content"))
    if not isinstance(tier, str) or tier not in STORED_TIERS:
        return None
    with contextlib.suppress(RoleInvalid):
        return Tier(tier), Role.of_record(cast("str", name), cast("str", content))
    return None
