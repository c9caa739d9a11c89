"""The first points: the host can be reached, speaks a current revision of MCP, and has the tools of the contract."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from ...core import STORED_TIERS, Tier
from ...mcp_client import TOOLS
from .connection import REVISIONS, Mode, Unanswered
from .kit import CONTRACT_REMEDY, Kit
from .points import Failed, Points, Skipped

POINTS: Final = Points()

_TEXT: Final = "text"
_SAMPLES: Final[dict[str, dict[str, Any]]] = {
    "role_list": {"scope_ids": {"workspace": _TEXT}},
    "role_get": {"tier": "workspace", "scope_id": _TEXT},
    "role_put": {"tier": "workspace", "scope_id": _TEXT, "name": _TEXT, "content": _TEXT},
    "role_delete": {"tier": "workspace", "scope_id": _TEXT},
}
_NO_TIER: Final = "no-such-tier"
_PARTS: Final = 1000  # keys; the contract's schemas have some thirty
_LENGTH: Final = 64 * 1024  # characters of a schema as JSON; the contract's have some thousand
_STEPS: Final = 10_000  # keywords evaluated for all values tried; the contract's schemas take some hundred
_KEYWORDS: Final = (
    *("$ref", "additionalProperties", "allOf", "anyOf", "const", "enum", "if", "maxLength", "maxProperties"),
    *("minLength", "minProperties", "not", "oneOf", "properties", "propertyNames", "required", "type"),
)
# These would make a part of a schema choose other rules than ours, or refer to something that is not in it.
DROPPED_KEYWORDS: Final = ("$schema", "$id", "id")


@POINTS.add("connect.time", "it can be reached and answers within the limit")
async def connect(kit: Kit) -> None:
    """Speak 2025-11-25, then as an agent does. If one of them works, `protocol.revision` reports on the other."""
    problems: list[Unanswered] = []
    modes: tuple[Mode, ...] = ("legacy", "auto")
    for mode in modes:
        try:
            await kit.connect(mode)
        except Unanswered as error:
            problems.append(error)
    if not kit.revisions and not any(error.reached for error in problems):
        raise Failed(problems[-1].problem, problems[-1].remedy)


@POINTS.add("protocol.revision", "it speaks a current revision of MCP", needs=("connect.time",))
async def revision(kit: Kit) -> str | None:
    """At least one of the current revisions works."""
    spoken = [each for each in REVISIONS if each in kit.revisions]
    if not spoken:
        known = " or ".join(REVISIONS)
        raise Failed(f"it speaks neither {' nor '.join(REVISIONS)}", f"let it speak {known}, or correct its address")
    return " and ".join(spoken)


@POINTS.add("tools.present", "it has the four tools", needs=("protocol.revision",))
async def present(kit: Kit) -> None:
    """The host has the four tools."""
    missing = [tool for tool in TOOLS if tool not in kit.schemas]
    if missing:
        problem = f"it has no {' and no '.join(missing)}"
        raise Failed(problem, "offer the tool under this name, or give its own in the setting role_host_tools")


@POINTS.add("tools.arguments", "their schemas take the contract's arguments", needs=("protocol.revision",))
async def arguments(kit: Kit) -> None:
    """The schemas accept what the contract sends, but not if a part is missing or of another type."""
    for tool, schema in _published(kit).items():
        takes, sample = schema.takes, _SAMPLES[tool]
        if not takes(sample):
            raise Failed(f"the schema of {tool} does not take the contract's arguments", CONTRACT_REMEDY)
        for name, value in sample.items():
            if takes({key: given for key, given in sample.items() if key != name}):
                raise Failed(f"the schema of {tool} does not require {name}", f"name {name} in its `required`")
            if takes(sample | {name: 5}):
                kind = "an object" if isinstance(value, dict) else "a string"
                raise Failed(f"the schema of {tool} takes a number as {name}", f"give {name} the type of {kind}")
        if "tier" in sample and takes(sample | {"tier": _NO_TIER}):
            raise Failed(f"the schema of {tool} takes any text as tier", "list the tiers as an enum")
        if schema.mirrors:
            raise Failed(f"the schema of {tool} copies arguments into HTTP headers", "omit x-mcp-header")


@POINTS.add("tools.tiers", "they offer the same tiers", needs=("protocol.revision",))
async def tiers(kit: Kit) -> str | None:
    """The tools name the same tiers, and workspace and account are among them."""
    found = {tool: _tiers(tool, schema) for tool, schema in _published(kit).items()}
    named = {tool: each for tool, each in found.items() if each is not None}
    for tool, each in named.items():
        if foreign := each - set(STORED_TIERS):
            raise Failed(f"the schema of {tool} names the tier {min(foreign)}", "name only those that a host keeps")
        if missing := {Tier.WORKSPACE, Tier.ACCOUNT} - each:
            raise Failed(f"the schema of {tool} does not name the tier {min(missing)}", "keep roles of this tier too")
    if len(set(named.values())) > 1:
        raise Failed(f"the tiers of {' and '.join(named)} differ", "name the same tiers in each")
    if named:
        kit.tiers = tuple(tier for tier in STORED_TIERS if tier in next(iter(named.values())))
    return ", ".join(kit.tiers)


@POINTS.add("protocol.same", "every revision that it speaks answers alike", needs=("protocol.revision",))
async def same(kit: Kit) -> None:
    """The host's answers do not depend on the revision."""
    spoken = [kit.revisions[each] for each in REVISIONS if each in kit.revisions]
    if len(spoken) < len(REVISIONS):
        raise Skipped(f"it speaks {kit.revision} only, which is enough")
    (tools, roles), (other_tools, other_roles) = spoken
    if tools != other_tools:
        raise Failed("its tools differ between the revisions", "give the same tools in both")
    if None in (roles, other_roles):
        raise Skipped("role_list was not answered", "see list.answer", reason="needs")
    if roles != other_roles:
        raise Failed("role_list answers differ between the revisions", "answer the same in both")


def _published(kit: Kit) -> dict[str, ToolSchema]:
    if not kit.schemas:
        raise Skipped("no tool was found", "see tools.present", reason="needs")
    return {tool: ToolSchema(tool, schema) for tool, schema in kit.schemas.items()}


def _tiers(tool: str, schema: ToolSchema) -> frozenset[Tier] | None:
    """Return the tiers that a tool's schema accepts; None if it names none."""

    def takes(name: str) -> bool:
        return schema.takes({"scope_ids": {name: _TEXT}} if tool == "role_list" else _SAMPLES[tool] | {"tier": name})

    if takes(_NO_TIER):
        return None
    found = frozenset(tier for tier in Tier if takes(tier.value))
    return found or None  # tools.arguments reports a schema that takes nothing


class ToolSchema:
    """The input schema of a tool, and whether it accepts a value, within limits: a host can publish anything.

    The keywords are those of the `jsonschema` library that can express the contract. Each evaluation is counted,
    since references can branch without end. Patterns are not evaluated, since a regular expression can also take for
    ever, and neither Ctrl-C nor a time limit ends it.

    Args:
        tool: The tool.
        schema: The schema that the host publishes.

    Attributes:
        mirrors: Whether it has arguments copied into HTTP headers.

    Raises:
        Failed: The schema is not a JSON Schema, or is too large.
    """

    def __init__(self, tool: str, schema: object) -> None:
        # Imported here, because only this check needs it.
        from jsonschema import Draft202012Validator as Draft  # type: ignore[import-untyped]  # it has no types
        from jsonschema.validators import create  # type: ignore[import-untyped]  # it has no types
        from referencing import Registry

        self._tool, self._left = tool, _STEPS
        keys: list[str] = []

        def in_itself(part: dict[str, Any]) -> dict[str, Any]:
            keys.extend(part)
            return {key: value for key, value in part.items() if key not in DROPPED_KEYWORDS}

        text = json.dumps(schema, ensure_ascii=False)
        own = json.loads(text, object_hook=in_itself)
        if not isinstance(own, dict):
            raise self._broken("is not a JSON Schema")
        if len(text) > _LENGTH or len(keys) > _PARTS:
            raise self._broken(f"has more than {_PARTS:,} parts or {_LENGTH // 1024} KiB")
        self.mirrors = "x-mcp-header" in keys
        keywords = {name: self._counted(name, Draft.VALIDATORS[name]) for name in _KEYWORDS}
        made: Any = create(Draft.META_SCHEMA, validators=keywords, type_checker=Draft.TYPE_CHECKER)
        self._validator = made(own, registry=Registry())  # an empty one, so that nothing is fetched

    def takes(self, value: Mapping[str, Any]) -> bool:
        """Whether the schema accepts `value`.

        Raises:
            Failed: The schema is not a JSON Schema, or its evaluation does not end.
        """
        try:
            return bool(self._validator.is_valid(value))
        except (_TooLong, RecursionError):
            why = "does not come to an end"
        except Exception:  # a keyword of a wrong type fails in any way, at the place where it is used
            why = "is not a JSON Schema"
        raise self._broken(why)

    def _broken(self, why: str) -> Failed:
        return Failed(f"the schema of {self._tool} {why}", "publish the schema of docs/reference/role-host.md")

    def _counted(self, name: str, keyword: Callable[..., Any]) -> Callable[..., Any]:
        def look(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
            self._left -= 1 + (len(value) if isinstance(value, (str, list, dict)) else 0)
            if self._left < 0:
                raise _TooLong
            if name != "additionalProperties" or "patternProperties" not in schema:
                yield from keyword(validator, value, instance, schema) or ()

        return look


class _TooLong(Exception):
    """More steps were taken than a reasonable schema needs."""


__all__ = ["POINTS"]
