"""The commands `roles list`, `get`, `put` and `delete`: the stored roles, embedded or at a role host."""

from __future__ import annotations

import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ...core import Tier, check_id
from ...core.errors import InvalidArgument, UnknownTier
from ...role_resolution import Role, RoleStore
from ._options import RolesOptions, RolesPutOptions
from ._output import Output
from ._session import FAILED, run
from ._sources import text
from ._token import host_token

if TYPE_CHECKING:
    from ...mcp_client import HttpHost, StdioHost

_TIERS = (Tier.WORKSPACE, Tier.ACCOUNT, Tier.CHANNEL)
_WIDTHS = (9, 24, 32)  # of tier, scope and name; with the length the table fits 80 columns

Work = Callable[[RoleStore, Output], Awaitable[int | None]]


def list_roles(options: RolesOptions) -> int:
    """Run `roles list` and return its exit code."""

    def begin(output: Output) -> Coroutine[Any, Any, int | None]:
        scope_ids = _scopes(options)
        return _with_store(options, output, lambda store, output: _list(store, output, scope_ids))

    return _run(options, begin)


def get_role(options: RolesOptions) -> int:
    """Run `roles get` and return its exit code."""

    def begin(output: Output) -> Coroutine[Any, Any, int | None]:
        tier, scope_id = _scope(options)
        return _with_store(options, output, lambda store, output: _get(store, output, tier, scope_id))

    return _run(options, begin)


def put_role(options: RolesPutOptions) -> int:
    """Run `roles put` and return its exit code."""

    def begin(output: Output) -> Coroutine[Any, Any, int | None]:
        tier, scope_id = _scope(options)
        role = Role(options.name if options.name is not None else tier.value, text("TEXT", options.text))
        return _with_store(options, output, lambda store, output: _put(store, output, (tier, scope_id), role))

    return _run(options, begin)


def delete_role(options: RolesOptions) -> int:
    """Run `roles delete` and return its exit code."""

    def begin(output: Output) -> Coroutine[Any, Any, int | None]:
        tier, scope_id = _scope(options)
        return _with_store(options, output, lambda store, output: _delete(store, output, tier, scope_id))

    return _run(options, begin)


async def _list(store: RoleStore, output: Output, scope_ids: dict[Tier, str]) -> None:
    found = await store.list({tier: scope_id for tier, scope_id in scope_ids.items() if tier in store.tiers})
    rows = [(tier, scope_ids[tier], found[tier]) for tier in _TIERS if tier in found]
    if not rows:
        scopes = ", ".join(f"{tier} {scope_id!r}" for tier, scope_id in scope_ids.items())
        output.note(f"no role is set for {scopes}")
    output.result({"roles": [_record(*row) for row in rows]}, _table(rows) if rows else None)


async def _get(store: RoleStore, output: Output, tier: Tier, scope_id: str) -> int | None:
    role = await store.get(tier, scope_id)
    if role is None:
        return _missing(output, tier, scope_id)
    output.result({"role": _record(tier, scope_id, role)}, role.content)
    return None


async def _put(store: RoleStore, output: Output, place: tuple[Tier, str], role: Role) -> None:
    tier, scope_id = place
    await store.put(tier, scope_id, role)
    output.note(f"stored the role of {tier} {scope_id!r}: {role.name!r}, {_size(role)} bytes")
    output.result({"stored": {"tier": tier.value, "scope_id": scope_id, "name": role.name, "bytes": _size(role)}})


async def _delete(store: RoleStore, output: Output, tier: Tier, scope_id: str) -> int | None:
    if not await store.delete(tier, scope_id):
        return _missing(output, tier, scope_id)
    output.note(f"cleared the role of {tier} {scope_id!r}")
    output.result({"deleted": {"tier": tier.value, "scope_id": scope_id}})
    return None


def _run(options: RolesOptions, begin: Callable[[Output], Coroutine[Any, Any, int | None]]) -> int:
    output = Output("json" if options.json else "text", verbose=False)
    return run(output, lambda: begin(output))


async def _with_store(options: RolesOptions, output: Output, work: Work) -> int | None:
    async with _store(options) as store:
        return await work(store, output)


@asynccontextmanager
async def _store(options: RolesOptions) -> AsyncGenerator[RoleStore, None]:
    host = _host(options)
    if host is not None:
        from ...mcp_client import HostRoleStore

        reached = HostRoleStore(host)
        try:
            await reached.connect()
            yield reached
        finally:
            await reached.aclose()
        return
    from ...agent import Settings
    from ...role_resolution import SqliteRoleStore
    from ...storage import Storage

    settings = Settings()
    file = Storage(home=options.home or settings.home).roles
    store = await SqliteRoleStore.open(file, limit=settings.role_limit)
    try:
        yield store
    finally:
        await store.aclose()


def _host(options: RolesOptions) -> HttpHost | StdioHost | None:
    """The role host that the options name, if one.

    Raises:
        InvalidArgument: They name two places, or the host's address, program or token does not fit.
    """
    given = [name for name in ("home", "host", "host_stdio") if getattr(options, name) is not None]
    if len(given) > 1:
        names = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise InvalidArgument(f"{names} exclude each other", remedy="name one place where the roles are")
    if options.token_file is not None and options.host is None:
        raise InvalidArgument("--token-file is for --host", remedy="name the host, or leave the file out")
    if options.host is not None:
        from ...mcp_client import HttpHost

        return HttpHost(options.host, host_token(options.token_file))
    if options.host_stdio is not None:
        from ...mcp_client import StdioHost

        return StdioHost(_words(options.host_stdio), stderr="inherit")
    return None


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        pass
    raise InvalidArgument("--host-stdio has a quote that is not closed", remedy="write it as in a shell")


def _scopes(options: RolesOptions) -> dict[Tier, str]:
    """What `list` looks at: one tier if it is named, else every one whose scope is known."""
    if options.tier is not None:
        return dict([_scope(options)])
    named = {tier: getattr(options, tier.value) for tier in _TIERS}
    return {tier: check_id(f"--{tier}", scope_id) for tier, scope_id in named.items() if scope_id is not None}


def _scope(options: RolesOptions) -> tuple[Tier, str]:
    """The one tier and scope that the options mean.

    Raises:
        UnknownTier: The tier is none, or one that is never stored.
        InvalidArgument: Its scope is not given, or it is not clear which is meant.
    """
    tier = Tier.parse(options.tier) if options.tier is not None else _meant(options)
    if tier not in _TIERS:
        raise UnknownTier(f"the {tier} role is never stored", remedy=f"use one of {', '.join(_TIERS)}")
    scope_id: str | None = getattr(options, tier.value)
    if scope_id is None:
        raise InvalidArgument(f"--tier {tier} needs the id of its {tier}", remedy=f"add --{tier} ID")
    return tier, check_id(f"--{tier}", scope_id)


def _meant(options: RolesOptions) -> Tier:
    if options.account is not None and options.channel is not None:
        raise InvalidArgument("--account and --channel are both given", remedy="say with --tier which role is meant")
    if options.account is not None:
        return Tier.ACCOUNT
    return Tier.WORKSPACE if options.channel is None else Tier.CHANNEL


def _missing(output: Output, tier: Tier, scope_id: str) -> int:
    output.failed("not_found", f"no role is set for {tier} {scope_id!r}", "see `worldagent roles list`")
    return FAILED


def _record(tier: Tier, scope_id: str, role: Role) -> dict[str, str]:
    return {"tier": tier.value, "scope_id": scope_id, "name": role.name, "content": role.content}


def _table(rows: list[tuple[Tier, str, Role]]) -> str:
    cells = [
        ("TIER", "SCOPE", "NAME", "BYTES"),
        *((tier, id_, role.name, str(_size(role))) for tier, id_, role in rows),
    ]
    return "\n".join(
        "  ".join([*(_cut(cell, width) for cell, width in zip(row, _WIDTHS, strict=False)), row[-1].rjust(7)])
        for row in cells
    )


def _cut(cell: str, width: int) -> str:
    line = " ".join(cell.split())
    return (line if len(line) <= width else f"{line[: width - 1]}…").ljust(width)


def _size(role: Role) -> int:
    return len(role.content.encode("utf-8"))


__all__ = ["delete_role", "get_role", "list_roles", "put_role"]
