"""The four tools, and who can use them on which scope. They work with any transport.

Each tool checks the arguments, then the scope, then calls the store.

A refusal carries a code for programs and a sentence for people. Neither holds a value that the caller sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from mcp import types
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ValidationError

from ...core import Tier, check_id
from ...core.errors import RoleTooLong, UsageError, WorldAgentError
from ...role_resolution import Role, RoleStore
from ..service.validation import describe_errors
from ..serving import Tokens, id_lists
from ..serving import read_token_file as read_tokens
from .contract import (
    CONTRACT,
    TOOLS,
    Code,
    ListAnswer,
    ListArguments,
    PutArguments,
    RoleAnswer,
    RoleRecord,
    ScopeArguments,
    offered,
)

_log = logging.getLogger("worldagent.role_host")
ANY = "*"


@dataclass(frozen=True, slots=True)
class Grant:
    """The scopes that a caller can use.

    Attributes:
        scopes: The ids of each tier; `*` among them means every id. A tier that is left out is refused.
    """

    scopes: Mapping[Tier, frozenset[str]]

    def __post_init__(self) -> None:
        for tier, ids in self.scopes.items():
            for scope_id in ids:
                check_id(f"{tier} scope", scope_id)

    def allows(self, tier: Tier, scope_id: str) -> bool:
        """Whether the caller can read and change the role of this tier and scope."""
        return not self.scopes.get(tier, frozenset()).isdisjoint((scope_id, ANY))


EVERYTHING = Grant({tier: frozenset({ANY}) for tier in offered()})
NOTHING = Grant({})


def read_token_file(path: Path, grant: Grant) -> Tokens[Grant]:
    """Read the tokens of a host from a file.

    A file whose name ends in `.toml` has tokens with their scopes. Any other file has one token.

    Args:
        path: The file.
        grant: The grant of the token in a file that has one token.

    Raises:
        InvalidArgument: The file is unreadable or invalid. The error shows nothing of its text.
    """
    example = '[[token]], token = "..." and lists such as workspace = ["novel"], account = ["*"]'
    return read_tokens(path, grant, entry=_granted, example=example)


def _granted(table: dict[str, Any]) -> Grant:
    lists = id_lists(table, sorted(tier.value for tier in offered()))
    return Grant({Tier(name): frozenset(ids) for name, ids in lists.items()})


TEMPLATE = types.ResourceTemplate(
    name="role",
    uri_template="role://{tier}/{scope_id}",
    mime_type="application/json",
    description="The role of one tier and scope. The id is percent-encoded but for A-Z, a-z, 0-9 and -._~",
)


def role_uri(tier: Tier, scope_id: str) -> str:
    """Return the URI of a role. Each role has exactly one spelling."""
    return f"role://{tier.value}/{quote(scope_id, safe='')}"


def parse_role_uri(uri: str) -> tuple[Tier, str] | None:
    """Return the tier and scope that `uri` names, or None if its spelling differs from that of `role_uri`."""
    tier, _, scope_id = uri.removeprefix("role://").partition("/")
    try:
        place = (Tier.parse(tier), check_id("scope", unquote(scope_id)))
    except WorldAgentError:
        return None
    return place if place[0] in offered() and role_uri(*place) == uri else None


def refusal(code: Code, text: str) -> MCPError:
    """Return an error of the protocol that carries a code of the contract."""
    return MCPError(types.INVALID_PARAMS, f"{code}: {text}", {"contract": CONTRACT, "code": code})


class _Refused(Exception):
    """A call is refused.

    Args:
        code: The code for programs.
        text: The sentence for people, without any value that the caller sent.
    """

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code: Code = code
        self.text = text


class RoleTools:
    """The tools over one store.

    Args:
        store: Keeps the roles.
        grant: Returns the grant of the current request's caller.
        changed: Called with the tier and scope of each role that was set, replaced or cleared.
    """

    def __init__(
        self, store: RoleStore, grant: Callable[[], Grant], changed: Callable[[Tier, str], Awaitable[None]]
    ) -> None:
        self._store = store
        self._grant = grant
        self._changed = changed
        self._writing = asyncio.Lock()  # so that a deletion returns the role that it deleted

    async def call(self, name: str, arguments: Mapping[str, Any]) -> types.CallToolResult:
        """Run the tool `name`, which must be a tool of the contract."""
        try:
            return _answered(await self._run(name, arguments))
        except _Refused as refused:
            code, text = refused.code, refused.text
        except Exception as failure:
            # Of any type: its text must not reach the caller.
            _log.error("%s failed: %s", name, type(failure).__name__)
            code, text = "unavailable", "the host cannot reach its roles now; try again later"
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=f"{code}: {text}")],
            structured_content={"contract": CONTRACT, "code": code},
            is_error=True,
        )

    async def _run(self, name: str, arguments: Mapping[str, Any]) -> BaseModel:
        given = _checked(name, arguments)
        if isinstance(given, ListArguments):
            return await self._list(given)
        tier, scope_id = Tier(given.tier), given.scope_id
        self._permit(tier, scope_id)
        if isinstance(given, PutArguments):
            return await self._put(tier, scope_id, given)
        return await (self._delete if name == "role_delete" else self._get)(tier, scope_id)

    async def _get(self, tier: Tier, scope_id: str) -> RoleAnswer:
        role = await self._store.get(tier, scope_id)
        if role is None:
            raise _Refused("not_found", f"no {tier} role is set for this scope")
        return _role_answer(tier, role)

    async def _list(self, given: ListArguments) -> ListAnswer:
        scope_ids = {Tier(tier): scope_id for tier, scope_id in given.scope_ids.items()}
        for tier, scope_id in scope_ids.items():
            self._permit(tier, scope_id)
        found = await self._store.list(scope_ids)
        return ListAnswer(contract=CONTRACT, roles=[_record(tier, found[tier]) for tier in sorted(found)])

    async def _put(self, tier: Tier, scope_id: str, given: PutArguments) -> RoleAnswer:
        try:
            role = Role(given.name, given.content)
            async with self._writing:
                await self._store.put(tier, scope_id, role)
        except RoleTooLong as error:
            refused = _Refused("too_long", error.problem)
        except UsageError:  # a custom store can accept fewer roles than ours
            refused = _Refused("invalid", "the store does not accept this role")
        else:
            await self._changed(tier, scope_id)
            return _role_answer(tier, role)
        raise refused

    async def _delete(self, tier: Tier, scope_id: str) -> RoleAnswer:
        async with self._writing:
            answer = await self._get(tier, scope_id)
            gone = await self._store.delete(tier, scope_id)
        if not gone:  # another process deleted it first
            raise _Refused("not_found", f"no {tier} role is set for this scope")
        await self._changed(tier, scope_id)
        return answer

    def _permit(self, tier: Tier, scope_id: str) -> None:
        if tier not in self._store.tiers:
            raise _Refused("invalid", f"this host keeps no {tier} roles")
        if not self._grant().allows(tier, scope_id):
            raise _Refused("forbidden", f"the token does not reach this {tier} scope")


def _checked(name: str, arguments: Mapping[str, Any]) -> ListArguments | ScopeArguments | PutArguments:
    model: Any = TOOLS[name].arguments
    try:
        given: ListArguments | ScopeArguments | PutArguments = model.model_validate(arguments)
        return given
    except ValidationError as failure:
        problem = describe_errors(model, failure, unknown="an argument that the tool does not have")
    raise _Refused("invalid", f"{problem}; the arguments are {', '.join(model.model_fields)}")


def _record(tier: Tier, role: Role) -> RoleRecord:
    return RoleRecord.model_validate({"name": role.name, "content": role.content, "tier": tier.value})


def _role_answer(tier: Tier, role: Role) -> RoleAnswer:
    return RoleAnswer(contract=CONTRACT, role=_record(tier, role))


def _answered(answer: BaseModel) -> types.CallToolResult:
    """Return the result of a call. Its text only counts roles and quotes none, since clients log such texts."""
    count = len(answer.roles) if isinstance(answer, ListAnswer) else 1
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=f"{count} role{'' if count == 1 else 's'}")],
        structured_content=answer.model_dump(mode="json"),
    )
