"""The commands `roles list`, `get`, `put` and `delete`: the stored roles, embedded or at a role host."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from ...core import STORED_TIERS, Tier, check_id
from ...core.errors import InvalidArgument, UnknownTier
from ...role_resolution import Role, RoleStore
from ._role_options import RolesOptions, RolesPutOptions
from .hosts import EMBEDDED, check_hosts, host_of, named_host
from .output import Output, table
from .session import FAILED, run
from .sources import text

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
    rows = [(tier, scope_ids[tier], found[tier]) for tier in STORED_TIERS if tier in found]
    if not rows:
        scopes = ", ".join(f"{tier} {scope_id!r}" for tier, scope_id in scope_ids.items())
        output.note(f"no role is set for {scopes}")
    output.result({"roles": [_record(*row) for row in rows]}, roles_table(rows) if rows else None)


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
    output = Output.of(json=options.json)

    def checked() -> Coroutine[Any, Any, int | None]:
        _check_place(options)
        return begin(output)

    return run(output, checked)


async def _with_store(options: RolesOptions, output: Output, work: Work) -> int | None:
    async with _store(options) as store:
        return await work(store, output)


@asynccontextmanager
async def _store(options: RolesOptions) -> AsyncGenerator[RoleStore, None]:
    from ...agent import Settings

    settings = Settings()
    # A folder that is named means the embedded store in it, whatever the settings say.
    host = named_host(options, settings) if options.home is not None else host_of(options, settings)
    if host is not None:
        from ...mcp_client import HostRoleStore

        reached = HostRoleStore(host)
        try:
            await reached.connect()
            yield reached
        finally:
            await reached.aclose()
        return
    from ...role_resolution import SqliteRoleStore
    from ...storage import Storage

    file = Storage(home=options.home or settings.home).roles
    store = await SqliteRoleStore.open(file, limit=settings.role_limit)
    try:
        yield store
    finally:
        await store.aclose()


def _check_place(options: RolesOptions) -> None:
    """Refuse options that name two places, before anything is loaded."""
    check_hosts(options)
    for name, given in (("--role-host", options.role_host), ("--role-host-stdio", options.role_host_stdio)):
        if options.home is not None and given not in (None, EMBEDDED):
            raise InvalidArgument(f"--home and {name} exclude each other", remedy="name one place where the roles are")


def _scopes(options: RolesOptions) -> dict[Tier, str]:
    """What `list` looks at: one tier if it is named, else every one whose scope is known."""
    if options.tier is not None:
        return dict([_scope(options)])
    named = {tier: getattr(options, tier.value) for tier in STORED_TIERS}
    return {tier: check_id(f"--{tier}", scope_id) for tier, scope_id in named.items() if scope_id is not None}


def _scope(options: RolesOptions) -> tuple[Tier, str]:
    """The one tier and scope that the options mean.

    Raises:
        UnknownTier: The tier is none, or one that is never stored.
        InvalidArgument: Its scope is not given, or it is not clear which is meant.
    """
    tier = Tier.parse(options.tier) if options.tier is not None else _meant(options)
    if tier not in STORED_TIERS:
        raise UnknownTier(f"the {tier} role is never stored", remedy=f"use one of {', '.join(STORED_TIERS)}")
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


def roles_table(rows: list[tuple[Tier, str, Role]]) -> str:
    """Lay out stored roles, without their texts, for 80 columns."""
    cells = [(tier.value, scope_id, role.name, str(_size(role))) for tier, scope_id, role in rows]
    return table(("TIER", "SCOPE", "NAME", "BYTES"), cells, widths=_WIDTHS)


def _size(role: Role) -> int:
    return len(role.content.encode("utf-8"))


__all__ = ["delete_role", "get_role", "list_roles", "put_role", "roles_table"]
