"""The arguments and answers of the four tools on the wire, as models and as JSON Schemas.

`tools` implements them. `docs/reference/role-host.md` has the same schemas.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from ...core import STORED_TIERS, Tier
from ..service.validation import Label, Wire
from ..serving import ToolSpec, tool_schemas

CONTRACT: Literal[1] = 1
"""The version of the contract. Every answer has it."""

Code = Literal["invalid", "too_long", "not_found", "forbidden", "unavailable"]


def _said(value: str) -> str:
    if value.strip():
        return value
    raise PydanticCustomError("blank", "It is blank")


TierName = Literal["workspace", "account", "channel"]
_TIERS: Final = [tier.value for tier in STORED_TIERS]
_Label = Annotated[Label, Field(description="printable characters, not only blanks")]
ScopeId = _Label
Name = _Label
Content = Annotated[
    str,
    Field(min_length=1, description="the text of the role, not blank, 32 KiB of UTF-8 by default"),
    AfterValidator(_said),
]


class ListArguments(Wire):
    """Arguments of `role_list`: the scope of each requested tier."""

    scope_ids: dict[TierName, ScopeId]


class ScopeArguments(Wire):
    """Arguments of `role_get` and `role_delete`."""

    tier: TierName
    scope_id: ScopeId


class PutArguments(ScopeArguments):
    """Arguments of `role_put`."""

    name: Name
    content: Content


class RoleRecord(Wire):
    """A stored role, with all of its fields (R9). Each tier and scope has at most one."""

    name: Name
    content: Content
    tier: TierName


class ListAnswer(Wire):
    """Answer of `role_list`: the roles that are set."""

    contract: Literal[1]
    roles: list[RoleRecord]


class RoleAnswer(Wire):
    """Answer of the other three tools: the role that is set, or the one that was just deleted."""

    contract: Literal[1]
    role: RoleRecord


class ErrorAnswer(Wire):
    """Answer of a tool that fails."""

    contract: Literal[1]
    code: Code


TOOLS: Final[dict[str, ToolSpec]] = {
    "role_list": ToolSpec(
        title="List roles",
        arguments=ListArguments,
        answer=ListAnswer,
        description="All roles that are set for these scopes, at most one for each tier.",
    ),
    "role_get": ToolSpec(
        title="Get a role",
        arguments=ScopeArguments,
        answer=RoleAnswer,
        description="The role of one tier and scope.",
    ),
    "role_put": ToolSpec(
        title="Set a role",
        arguments=PutArguments,
        answer=RoleAnswer,
        description="Set or replace the role of one tier and scope.",
        effect="changes",
    ),
    "role_delete": ToolSpec(
        title="Clear a role",
        arguments=ScopeArguments,
        answer=RoleAnswer,
        description="Clear the role of one tier and scope, and give what it was.",
        effect="changes",
    ),
}


def offered() -> frozenset[Tier]:
    """Return the tiers of the contract."""
    return frozenset(STORED_TIERS)


def schemas(tiers: Collection[Tier] = offered()) -> dict[str, dict[str, Any]]:  # a constant
    """Return the JSON Schemas of the contract by name: `role_list.input`, `role_list.output` and so on, and `error`.

    An `output` accepts the tool's answer and every error; `error` accepts errors only.

    Args:
        tiers: The tiers that the host keeps. The schemas name only these.
    """
    made = tool_schemas(TOOLS, ErrorAnswer)
    _keep_tiers(made, {tier.value for tier in tiers})
    return made


def _keep_tiers(part: Any, tiers: set[str]) -> None:
    """Remove the tiers that a host does not keep from every list of tiers in a schema."""
    for value in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        _keep_tiers(value, tiers)
    if isinstance(part, dict) and part.get("enum") == _TIERS:
        part["enum"] = [tier for tier in _TIERS if tier in tiers]
