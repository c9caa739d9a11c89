"""The commands `roles list`, `get`, `put` and `delete`: roles in the embedded store or at a role host."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from .command import Work, bad_usage, command
from .exits import FAILED
from .operating import operation
from .options import JSON_RESULT, STORED, HostOptions, SpeakerOptions, home_option, option_group
from .output import Output, records_table, table

if TYPE_CHECKING:
    from ...core import Tier
    from ...role_resolution import Role, RoleStore

_TIERS = {"TIER": "tier", "STATE": "state", "NAME": "name", "CHARACTERS": "length"}
_WIDTHS = (9, 24, 32)  # of tier, scope and name; with the length the table fits 80 columns

app = typer.Typer(name="roles", no_args_is_help=True)


@app.callback()
def _roles() -> None:
    """The stored roles: one for each workspace, account and channel.

    They are in the embedded store, or at a role host: see --role-host.

    [bold]Example[/bold]

      worldagent roles put 'Answer in French.' --account ana
    """


@option_group
class RolesOptions(HostOptions):
    """The options of every command of `roles`.

    Attributes:
        tier (--tier workspace|account|channel; Which): The tier. Default: the one of --account or --channel, else
            workspace. For list: all tiers.
        workspace (--workspace ID; Which): The workspace.
        account (--account ID; Which): The account.
        channel (--channel ID; Which): The channel.
    """

    tier: str | None = None
    workspace: str = "default"
    account: str | None = None
    channel: str | None = None
    home: Path | None = home_option(STORED, "the embedded store")
    json: bool = JSON_RESULT


@command(app, "list", asks=("stored_role_list",))
async def list_roles(options: RolesOptions, output: Output) -> None:
    """List the roles of the workspace, and of the account and channel that are named.

    To see the texts, use [bold]get[/bold] or --json.

    [bold]Example[/bold]

      worldagent roles list --workspace novel --account ana
    """
    from ...core import STORED_TIERS

    scope_ids = _scopes(options)
    async with _store(options) as store:
        found = await store.list({tier: scope_id for tier, scope_id in scope_ids.items() if tier in store.tiers})
    rows = [(tier, scope_ids[tier], found[tier]) for tier in STORED_TIERS if tier in found]
    if not rows:
        output.note(f"no role is set for {', '.join(f'{tier} {scope_id!r}' for tier, scope_id in scope_ids.items())}")
    output.result({"roles": [_record(*row) for row in rows]}, roles_table(rows) if rows else None)


@command(app, "get")
async def get_role(options: RolesOptions, output: Output) -> int | None:
    """Print the text of one role.

    If no role is set, the exit code is 1.

    [bold]Example[/bold]

      worldagent roles get --account ana
    """
    tier, scope_id = _scope(options)
    async with _store(options) as store:
        role = await store.get(tier, scope_id)
    if role is None:
        return _missing(output, tier, scope_id)
    output.result({"role": _record(tier, scope_id, role)}, role.content)
    return None


@command(app, "put", asks=("stored_role_set",))
def put_role(options: RolesOptions, output: Output, text: str, name: str | None = None) -> Work:
    """Set or replace one role.

    Other users of the machine can see TEXT in its list of processes. Use @FILE or - to hide it.

    [bold]Examples[/bold]

      worldagent roles put 'Answer in French.' --account ana

      worldagent roles put @house.md --workspace novel --name 'house style'

    Args:
        text (TEXT|@FILE|-): The role. @FILE reads a file, - reads standard input, @@ begins a text with a single @.
        name (--name LABEL; Which): The name that people see. Default: its tier.
    """
    from ...role_resolution import Role
    from . import sources

    _check_place(options)
    tier, scope_id = _scope(options)
    role = Role(name if name is not None else tier.value, sources.text("TEXT", text))

    async def work() -> None:
        async with _store(options) as store:
            await store.put(tier, scope_id, role)
        output.note(f"stored the role of {tier} {scope_id!r}: {role.name!r}, {_size(role)} bytes")
        output.result({"stored": {"tier": tier.value, "scope_id": scope_id, "name": role.name, "bytes": _size(role)}})

    return work()


@command(app, "delete", asks=("stored_role_clear",))
async def delete_role(options: RolesOptions, output: Output) -> int | None:
    """Clear one role.

    If no role is set, the exit code is 1.

    [bold]Example[/bold]

      worldagent roles delete --account ana
    """
    tier, scope_id = _scope(options)
    async with _store(options) as store:
        deleted = await store.delete(tier, scope_id)
    if not deleted:
        return _missing(output, tier, scope_id)
    output.note(f"cleared the role of {tier} {scope_id!r}")
    output.result({"deleted": {"tier": tier.value, "scope_id": scope_id}})
    return None


@operation(app, "explain", "explain_role", show=lambda found: records_table(_TIERS, found.tiers))
def explain(options: SpeakerOptions, output: Output, thread: str) -> None:
    """Show which roles would be active on a thread now, in what order and how long. No content is shown.

    [bold]Example[/bold]

      worldagent roles explain t1 --account ana

    Args:
        thread (THREAD): The conversation.
    """


@asynccontextmanager
async def _store(options: RolesOptions) -> AsyncGenerator[RoleStore, None]:
    from ...agent import Settings
    from .agents import host_of, named_host

    _check_place(options)
    settings = Settings()
    # --home means the embedded store in that folder, whatever the settings say.
    host = named_host(options, settings) if options.home is not None else host_of(options, settings)
    if host is not None:
        from ...mcp_client import HostRoleStore

        async with aclosing(HostRoleStore(host)) as reached:
            await reached.connect()
            yield reached
        return
    from ...role_resolution import SqliteRoleStore
    from ...storage import Storage

    file = Storage(home=options.home or settings.home).roles
    async with aclosing(await SqliteRoleStore.open(file, limit=settings.role_limit)) as store:
        yield store


def _check_place(options: RolesOptions) -> None:
    """Refuse options that name two places for the roles, before anything is loaded."""
    from .agents import EMBEDDED, check_hosts

    check_hosts(options)
    for name, given in (("--role-host", options.role_host), ("--role-host-stdio", options.role_host_stdio)):
        if options.home is not None and given not in (None, EMBEDDED):
            raise bad_usage(f"--home and {name} exclude each other", remedy="name one place where the roles are")


def _scopes(options: RolesOptions) -> dict[Tier, str]:
    """The scopes that `list` reads: one tier if it is named, else every tier whose scope is known."""
    from ...core import STORED_TIERS, check_id

    if options.tier is not None:
        return dict([_scope(options)])
    named = {tier: getattr(options, tier.value) for tier in STORED_TIERS}
    return {tier: check_id(f"--{tier}", scope_id) for tier, scope_id in named.items() if scope_id is not None}


def _scope(options: RolesOptions) -> tuple[Tier, str]:
    """The one tier and scope that the options name.

    Raises:
        UnknownTier: The tier does not exist, or is never stored.
        InvalidArgument: The scope is not given, or the tier is ambiguous.
    """
    from ...core import STORED_TIERS, Tier, check_id
    from ...core.errors import UnknownTier

    tier = Tier.parse(options.tier) if options.tier is not None else _meant(options)
    if tier not in STORED_TIERS:
        raise UnknownTier(f"the {tier} role is never stored", remedy=f"use one of {', '.join(STORED_TIERS)}")
    scope_id: str | None = getattr(options, tier.value)
    if scope_id is None:
        raise bad_usage(f"--tier {tier} needs the id of its {tier}", remedy=f"add --{tier} ID")
    return tier, check_id(f"--{tier}", scope_id)


def _meant(options: RolesOptions) -> Tier:
    from ...core import Tier

    if options.account is not None and options.channel is not None:
        raise bad_usage("--account and --channel are both given", remedy="say with --tier which role is meant")
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
