"""Connecting, revisions of the protocol, and what the list of tools says."""

from __future__ import annotations

from typing import Any, Final

from .....core import STORED_TIERS, Tier
from .....mcp_client import TOOLS
from ..._outcomes import Failed, Skipped
from .._kit import Kit
from .._replies import CONTRACT_REMEDY
from .._schemas import ToolSchema
from .._wire import REVISIONS, WireError

_TEXT: Final = "text"
_SAMPLES: Final[dict[str, dict[str, Any]]] = {
    "role_list": {"scope_ids": {"workspace": _TEXT}},
    "role_get": {"tier": "workspace", "scope_id": _TEXT},
    "role_put": {"tier": "workspace", "scope_id": _TEXT, "name": _TEXT, "content": _TEXT},
    "role_delete": {"tier": "workspace", "scope_id": _TEXT},
}
_NO_TIER: Final = "no-such-tier"
_HEADER: Final = "x-mcp-header"


async def connect(kit: Kit) -> str | None:
    """Try each revision; what went wrong with one is told by `revision` where another worked."""
    problems: dict[str, WireError] = {}
    for revision in REVISIONS:
        try:
            await kit.meet(revision)
        except WireError as error:
            problems[revision] = error
    if not kit.heard and not any(error.heard for error in problems.values()):
        last = problems[REVISIONS[-1]]
        raise Failed(last.problem, last.remedy)
    if kit.heard:
        kit.revision = next(reversed(kit.heard))
        if kit.revision != REVISIONS[-1]:
            await kit.disconnect()  # that was the attempt to speak another one
    return None


async def revision(kit: Kit) -> str | None:
    """At least one of the current revisions works."""
    if not kit.heard:
        raise Failed(f"it speaks neither {' nor '.join(REVISIONS)}", f"let it speak {' or '.join(REVISIONS)}")
    return " and ".join(kit.heard)


async def same(kit: Kit) -> str | None:
    """What a host gives does not depend on the revision."""
    if len(kit.heard) < len(REVISIONS):
        raise Skipped(f"it speaks {kit.revision} only, which is enough")
    first, second = kit.heard.values()
    if first.tools != second.tools:
        raise Failed("its tools differ between the revisions", "give the same tools in both")
    if None in (first.roles, second.roles):
        raise Skipped("role_list was not answered", "see list.answer", reason="needs")
    if first.roles != second.roles:
        raise Failed("role_list answers differ between the revisions", "answer the same in both")
    return None


async def present(kit: Kit) -> str | None:
    """The four tools are there."""
    missing = [tool for tool in TOOLS if tool not in kit.schemas]
    if missing:
        told = f"it has no {' and no '.join(missing)}"
        raise Failed(told, "offer the tool under this name, or give its own in the setting role_host_tools")
    return None


async def arguments(kit: Kit) -> str | None:
    """The schemas take what the contract sends, and nothing without a part of it or of another type."""
    if not kit.schemas:
        raise Skipped("there is no tool to look at", "see tools.present", reason="needs")
    for tool, schema in kit.schemas.items():
        published = ToolSchema(tool, schema)
        takes = published.takes
        sample = _SAMPLES[tool]
        if not takes(sample):
            raise Failed(f"the schema of {tool} does not take the contract's arguments", CONTRACT_REMEDY)
        for name, value in sample.items():
            without = {key: given for key, given in sample.items() if key != name}
            if takes(without):
                raise Failed(f"the schema of {tool} does not require {name}", f"name {name} in its `required`")
            if takes(sample | {name: 5}):
                kind = "an object" if isinstance(value, dict) else "a string"
                raise Failed(f"the schema of {tool} takes a number as {name}", f"give {name} the type of {kind}")
        if "tier" in sample and takes(sample | {"tier": _NO_TIER}):
            raise Failed(f"the schema of {tool} takes any text as tier", "list the tiers as an enum")
        if published.has_key(_HEADER):
            raise Failed(f"the schema of {tool} copies arguments into HTTP headers", f"leave {_HEADER} out")
    return None


async def tiers(kit: Kit) -> str | None:
    """The tools name the same tiers, and workspace and account are among them."""
    if not kit.schemas:
        raise Skipped("there is no tool to look at", "see tools.present", reason="needs")
    found = {tool: _tiers(tool, schema) for tool, schema in kit.schemas.items()}
    named = {tool: each for tool, each in found.items() if each is not None}
    for tool, each in named.items():
        foreign = each - set(STORED_TIERS)
        if foreign:
            raise Failed(f"the schema of {tool} names the tier {min(foreign)}", "name those that a host keeps only")
        missing = {Tier.WORKSPACE, Tier.ACCOUNT} - each
        if missing:
            raise Failed(f"the schema of {tool} does not name the tier {min(missing)}", "keep roles of this tier too")
    if len(set(named.values())) > 1:
        raise Failed(f"the tiers of {' and '.join(named)} differ", "name the same tiers in each")
    told = next(iter(named.values()), None)
    if told is not None:
        kit.tiers = tuple(tier for tier in STORED_TIERS if tier in told)
    return ", ".join(kit.tiers)


def _tiers(tool: str, schema: object) -> frozenset[Tier] | None:
    """The tiers that a tool's schema takes; None where it names none."""
    takes, sample = ToolSchema(tool, schema).takes, _SAMPLES[tool]

    def with_tier(name: str) -> dict[str, Any]:
        return {"scope_ids": {name: _TEXT}} if tool == "role_list" else sample | {"tier": name}

    if takes(with_tier(_NO_TIER)):
        return None
    found = frozenset(tier for tier in Tier if takes(with_tier(tier.value)))
    return found or None  # a schema that takes nothing is told by tools.arguments


CHECKS = {
    "connect.time": connect,
    "protocol.revision": revision,
    "protocol.same": same,
    "tools.present": present,
    "tools.arguments": arguments,
    "tools.tiers": tiers,
}

__all__ = ["CHECKS"]
