"""The commands of `profiles` and their help. What they do is in `_profiles` and `_profiles_trust`, which load late."""

from __future__ import annotations

import typer

from ._profiles_options import (
    ProfilesCheckOptions,
    ProfilesListOptions,
    ProfilesSchemaOptions,
    ProfilesShowOptions,
    ProfilesTrustOptions,
)
from .options import options_of

_PROFILES = """\
Profiles: what an agent starts up with. Persona, tools and memory, in YAML files.

They are built in, in your own folder, or in .worldagent/profiles of a project that you trust; the later go over the
earlier by name. [bold]ask[/bold], [bold]chat[/bold], [bold]task[/bold], [bold]resume[/bold], [bold]serve[/bold] and
[bold]approvals approve[/bold] and [bold]reject[/bold] take one as --profile.

[bold]Example[/bold]

  worldagent profiles list
"""

_LIST = """\
List the profiles that there are, with what they are for, and what is wrong with those that cannot be used.

[bold]Example[/bold]

  worldagent profiles list --json
"""

_SHOW = """\
Show every setting of a profile that takes effect, and which file and line it is from.

What no file gives is from [bold]default[/bold]. Of an MCP server only the program or the address is shown.

[bold]Example[/bold]

  worldagent profiles show searcher
"""

_CHECK = """\
Check profiles: whether their files can be read, what they extend, and whether there are the tools that they name.

All that is wrong is told, with file and line, and the exit code is 2. Tools are looked for once nothing else is wrong
with a profile and what it extends. A project need not be trusted for it.

Tools of an agent of your own are known with --app.

[bold]Examples[/bold]

  worldagent profiles check

  worldagent profiles check reviewer.yaml searcher --app shop:agent
"""

_SCHEMA = """\
Print the JSON Schema of a profile's file, for editors.

[bold]Example[/bold]

  worldagent profiles schema > profile.schema.json
"""

_TRUST = """\
Trust the profiles of a project, as they are now. One that changes is trusted no more.

It shows what is in them first, and asks, unless --yes is given. The project is the nearest folder at or above DIR that
has a folder .worldagent/profiles. With --remove, where it was not trusted, the exit code is 1.

[bold]Examples[/bold]

  worldagent profiles trust

  worldagent profiles trust ../shop --remove
"""


def add_profiles(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    profiles = typer.Typer(no_args_is_help=True, help=_PROFILES, rich_markup_mode="rich")
    profiles.command("list", help=_LIST)(options_of(ProfilesListOptions, _list))
    profiles.command("show", help=_SHOW)(options_of(ProfilesShowOptions, _show))
    profiles.command("check", help=_CHECK)(options_of(ProfilesCheckOptions, _check))
    profiles.command("schema", help=_SCHEMA)(options_of(ProfilesSchemaOptions, _schema))
    profiles.command("trust", help=_TRUST)(options_of(ProfilesTrustOptions, _trust))
    app.add_typer(profiles, name="profiles")


def _list(options: ProfilesListOptions) -> int:
    from .profiles import list_profiles

    return list_profiles(options)


def _show(options: ProfilesShowOptions) -> int:
    from .profiles import show_profile

    return show_profile(options)


def _check(options: ProfilesCheckOptions) -> int:
    from .profiles import check_profiles

    return check_profiles(options)


def _schema(options: ProfilesSchemaOptions) -> int:
    from .profiles import print_schema

    return print_schema(options)


def _trust(options: ProfilesTrustOptions) -> int:
    from .profiles_trust import trust_project

    return trust_project(options)


__all__ = ["add_profiles"]
