"""The contract of role hosts: the arguments of each tool, and how its answer is read.

It does not depend on the transport.

The text of a role is only in the arguments of `role_put`, and these are made where they are sent. A frame of the
caller, which an error keeps alive, holds only the sealed `Role`.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar, cast

from ..core import STORED_TIERS, Tier
from ..core.errors import HostUnavailable, RoleInvalid, RoleTooLong
from ..role_resolution import Role
from .hosts import Failure, Failures

CONTRACT = 1

_PARTS = 1000  # parts of a schema that are read

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a tool: its structured content, and whether it is a tool error."""

    content: Any = field(repr=False)
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Operation(ABC, Generic[T]):
    """One call of a tool of the contract."""

    tool: ClassVar[str]
    if_not_found: ClassVar[tuple[Any, ...]] = ()
    """The result for the error code `not_found`, if it is not a failure."""

    @property
    @abstractmethod
    def about(self) -> str:
        """The role or roles that the call concerns, for errors."""

    @abstractmethod
    def arguments(self) -> dict[str, Any]:
        """The arguments to send."""

    @abstractmethod
    def accept(self, content: Mapping[str, Any], failures: Failures) -> T | Failure:
        """Interpret an answer that is not an error."""

    def read(self, answer: Answer, failures: Failures) -> T | Failure:
        """Interpret an answer. `failures` makes the failures of the host."""
        content = answer.content
        if not isinstance(content, Mapping):
            what = "an error that has no code" if answer.failed else "no structured content"
            return failures.invalid(f"answered {self.tool} with {what}")
        contract = content.get("contract")
        if type(contract) is not int or contract != CONTRACT:
            return failures.invalid(
                f"must say that it answers {self.tool} by version {CONTRACT} of the contract, and does not",
                f"use a host with version {CONTRACT}, or a version of this package that supports the host",
            )
        typed = cast("Mapping[str, Any]", content)
        return self._refused(typed.get("code"), failures) if answer.failed else self.accept(typed, failures)

    def _refused(self, code: object, failures: Failures) -> T | Failure:
        """Interpret an error code."""
        match code:
            case "not_found" if self.if_not_found:
                return cast("T", self.if_not_found[0])
            case "invalid":
                problem = f"{failures.name} rejected {self.about} or its scope as invalid"
                return Failure(RoleInvalid, problem, "change it to a value that the host accepts")
            case "too_long":
                problem = f"{self.about} is longer than {failures.name} accepts"
                return Failure(RoleTooLong, problem, "shorten it, or raise the limit of the host")
            case "forbidden":
                return failures.forbidden()
            case "unavailable":
                problem = f"{failures.name} cannot reach {self.about} now"
                return Failure(HostUnavailable, problem, "check the logs of the host, then try again")
            case _:
                what = "with an error code that the contract does not define for it"
                return failures.invalid(f"answered {self.tool} {what}")


@dataclass(frozen=True, slots=True)
class ListRoles(Operation[dict[Tier, Role]]):
    """All roles that are set for the scopes, in one round trip."""

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
            return failures.invalid(f"answered {self.tool} with something that is not a list of roles")
        found: dict[Tier, Role] = {}
        for entry in cast("list[object]", given):
            read = _role(entry)
            if read is None or read[0] not in self.scope_ids:
                return failures.invalid(f"answered {self.tool} with something that is not one of the requested roles")
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

    def accept(self, content: Mapping[str, Any], failures: Failures) -> T | Failure:
        """See `Operation.accept`."""
        read = _role(content.get("role"))
        if read is None or read[0] is not self.tier:
            return failures.invalid(f"answered {self.tool} with something that is not a {self.tier} role")
        return cast("T", read[1])


@dataclass(frozen=True, slots=True)
class GetRole(_OfOneScope["Role | None"]):
    """The role of one tier and scope, or None."""

    tool: ClassVar[str] = "role_get"
    if_not_found: ClassVar[tuple[Any, ...]] = (None,)


@dataclass(frozen=True, slots=True)
class PutRole(_OfOneScope[Role]):
    """Set or replace a role, and return it."""

    tool: ClassVar[str] = "role_put"

    role: Role

    def arguments(self) -> dict[str, Any]:
        """See `Operation.arguments`."""
        return _OfOneScope.arguments(self) | {"name": self.role.name, "content": self.role.content}


@dataclass(frozen=True, slots=True)
class DeleteRole(_OfOneScope[bool]):
    """Clear a role, and return whether there was one."""

    tool: ClassVar[str] = "role_delete"
    if_not_found: ClassVar[tuple[Any, ...]] = (False,)

    def accept(self, content: Mapping[str, Any], failures: Failures) -> bool | Failure:
        """See `Operation.accept`."""
        return True


def offered_tiers(schema: object) -> frozenset[Tier]:
    """The tiers that a host keeps, read from the input schema of its `role_get`.

    The host names them as the values of `tier`: `enum` or `const`, also behind `$ref`, `anyOf` and similar. A host that
    names none keeps workspace and account roles.
    """
    named = tier_names(schema)
    if not named:
        return frozenset({Tier.WORKSPACE, Tier.ACCOUNT})
    return frozenset(tier for tier in STORED_TIERS if tier.value in named)


def tier_names(schema: object) -> set[str]:
    """The values of `tier` that the input schema of a tool names; empty if it names none."""
    root = schema if isinstance(schema, Mapping) else {}
    properties = root.get("properties")
    return _values(properties.get("tier") if isinstance(properties, Mapping) else None, root)


def _values(schema: object, root: Mapping[str, Any]) -> set[str]:
    """The values that a schema names. In a large schema only the first `_PARTS` parts are read."""
    found: set[str] = set()
    parts, followed = [schema], set[str]()
    for part, _ in zip(parts, range(_PARTS), strict=False):  # the list grows while it is read
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
    """Read a record of the contract as tier and role; None if it is not one. Other content of the record is ignored."""
    if not isinstance(entry, Mapping):
        return None
    tier, name, content = (entry.get(key) for key in ("tier", "name", "content"))
    if not isinstance(tier, str) or tier not in STORED_TIERS:
        return None
    with contextlib.suppress(RoleInvalid):
        return Tier(tier), Role.of_record(cast("str", name), cast("str", content))
    return None
