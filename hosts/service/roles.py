"""The calls about stored roles: their arguments and records, and what they do (R9).

An account sets its own role. Those of the workspace and of channels are for other accounts too, so only an operator
changes them. No answer has the content of a role. `threads` has the calls about the role of a thread.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from ...agent import WorldAgent
from ...core import Tier
from ...core.errors import InvalidArgument
from ...role_resolution import Role
from .arguments import RoleText, WorkspaceArguments
from .call import Call, Refused
from .operation import OPERATOR_REMEDY, operation
from .records import Answer
from .validation import Label, Wire

# --- arguments --------------------------------------------------------------------------------------------------------

Channel = Label | None
_CHANNEL: Any = Field(default=None, description="the channel whose role it is about", examples=["support"])


class StoredRoleListArguments(WorkspaceArguments):
    """Arguments of `stored_role_list`."""

    channel: Channel = _CHANNEL


class StoredRoleClearArguments(WorkspaceArguments):
    """Arguments of `stored_role_clear`."""

    tier: Literal["workspace", "account", "channel"] = Field(
        description="whose role it is: that of the `workspace`, the `account` or the `channel` of the call"
    )
    channel: Channel = _CHANNEL


class StoredRoleSetArguments(StoredRoleClearArguments):
    """Arguments of `stored_role_set`."""

    role: RoleText


# --- records ----------------------------------------------------------------------------------------------------------


class StoredRoleRecord(Wire):
    """A stored role: a name and a length, never a content."""

    tier: str
    scope_id: str = Field(description="the id of the workspace, the account or the channel")
    name: str
    length: int = Field(description="how many characters its content has")


class StoredRoleListAnswer(Answer):
    """Answer of `stored_role_list`."""

    roles: list[StoredRoleRecord]


class StoredRoleSetAnswer(Answer):
    """Answer of `stored_role_set`."""

    role: StoredRoleRecord


class StoredRoleClearAnswer(Answer):
    """Answer of `stored_role_clear`."""

    cleared: bool = Field(description="false where there was none")


# --- calls ------------------------------------------------------------------------------------------------------------


@operation(
    "List stored roles",
    "Which of the workspace, the account and the channel of the call have a stored role, by name and length; no "
    "content is shown.",
)
async def stored_role_list(call: Call[StoredRoleListArguments], agent: WorldAgent) -> StoredRoleListAnswer:
    """Return which of the workspace, the account and the channel of the call have a stored role.

    Raises:
        UnknownTier: The call names a channel, and channel roles are not stored here.
        HostError: The role host cannot be reached.
    """
    scopes = {tier: scope_id for tier in _TIERS if (scope_id := _scope_id(call, tier)) is not None}
    found = await agent.roles.list(scopes)
    return StoredRoleListAnswer(roles=[_record(tier, scopes[tier], found[tier]) for tier in scopes if tier in found])


@operation(
    "Set a stored role",
    "Set or replace the stored role of the account of the call, or as an operator of the workspace or a channel.",
    effect="changes",
)
async def stored_role_set(call: Call[StoredRoleSetArguments], agent: WorldAgent) -> StoredRoleSetAnswer:
    """Set or replace a stored role.

    Raises:
        Refused: The caller cannot change it.
        InvalidArgument: The call does not name whose role it is.
        RoleTooLong, UnknownTier, HostError: As for `agent.roles.put`.
    """
    tier, scope_id = _changed(call)
    role = Role(call.given.role.name, call.given.role.content)
    await agent.roles.put(tier, role, scope_id=scope_id)
    return StoredRoleSetAnswer(role=_record(tier, scope_id, role))


@operation(
    "Clear a stored role",
    "Take away the stored role of the account of the call, or as an operator of the workspace or a channel.",
    effect="changes",
)
async def stored_role_clear(call: Call[StoredRoleClearArguments], agent: WorldAgent) -> StoredRoleClearAnswer:
    """Clear a stored role.

    Raises:
        Refused, InvalidArgument: As for `stored_role_set`.
        UnknownTier, HostError: As for `agent.roles.delete`.
    """
    tier, scope_id = _changed(call)
    return StoredRoleClearAnswer(cleared=await agent.roles.delete(tier, scope_id=scope_id))


_TIERS = (Tier.WORKSPACE, Tier.ACCOUNT, Tier.CHANNEL)


def _scope_id(call: Call[Any], tier: Tier) -> str | None:
    """The id of the call's workspace, account or channel."""
    ids = {Tier.WORKSPACE: call.caller.workspace, Tier.ACCOUNT: call.caller.account}
    found: str | None = call.given.channel if tier is Tier.CHANNEL else ids[tier]
    return found


def _changed(call: Call[Any]) -> tuple[Tier, str]:
    """The tier and the scope of the role that a call changes."""
    tier = Tier(call.given.tier)
    if tier is not Tier.ACCOUNT and not call.caller.grant.operator:
        raise Refused(
            "forbidden",
            "only an operator changes the roles of the workspace and of channels",
            remedy=f"set the role of an account or of a thread, or {OPERATOR_REMEDY}",
        )
    scope_id = _scope_id(call, tier)
    if scope_id is None:
        raise InvalidArgument(f"the {tier} role needs the id of its {tier}", remedy=f"name one in `{tier}`")
    return tier, scope_id


def _record(tier: Tier, scope_id: str, role: Role) -> StoredRoleRecord:
    return StoredRoleRecord(tier=tier.value, scope_id=scope_id, name=role.name, length=len(role.content))
