"""Where the stored roles are: the role host that options or settings name, or the embedded store.

The connection itself is `mcp_client`'s. A token comes from a file, the environment or the settings, never an argument.
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Final, Literal

from ...core.errors import InvalidArgument
from .options import HostOptions
from .sources import text

if TYPE_CHECKING:
    from ...agent import Settings
    from ...mcp_client import HttpHost, StdioHost

TOKEN_VARIABLE: Final = "WORLDAGENT_ROLE_HOST_TOKEN"  # its name, not its value
EMBEDDED: Final = "embedded"


def check_hosts(options: HostOptions) -> None:
    """Refuse options that exclude each other, before anything is loaded.

    Raises:
        InvalidArgument: The options name two places, or a token without a role host.
    """
    if options.role_host is not None and options.role_host_stdio is not None:
        raise InvalidArgument(
            "--role-host and --role-host-stdio exclude each other", remedy="name one place where the roles are"
        )
    if options.token_file is not None and options.role_host in (None, EMBEDDED):
        raise InvalidArgument(
            f"{options.option('token_file')} is for --role-host", remedy="name the host, or omit the file"
        )


def named_host(
    options: HostOptions, settings: Settings, *, stderr: Literal["inherit", "discard"] = "inherit"
) -> HttpHost | StdioHost | None:
    """The role host that the options name; None if they name none.

    Args:
        options: The command's options.
        settings: The time limit of its calls, and the names of its tools.
        stderr: Where a host that is a program writes its standard error.

    Raises:
        InvalidArgument: The options exclude each other, or the host's address, program or token is not valid.
    """
    check_hosts(options)
    if options.role_host_stdio is not None:
        from ...mcp_client import StdioHost

        argv = _words(options.role_host_stdio)
        return StdioHost(argv, stderr=stderr, timeout=settings.role_host_timeout, tools=settings.role_host_tools)
    if options.role_host is None or options.role_host == EMBEDDED:
        return None
    from ...mcp_client import HttpHost

    token = _token(options)
    return HttpHost(options.role_host, token, timeout=settings.role_host_timeout, tools=settings.role_host_tools)


def host_of(
    options: HostOptions, settings: Settings, *, stderr: Literal["inherit", "discard"] = "inherit"
) -> HttpHost | StdioHost | None:
    """The role host that the options name, else the settings; None is the embedded store.

    Raises:
        InvalidArgument: As for `named_host`.
    """
    host = named_host(options, settings, stderr=stderr)
    return host if host is not None or options.role_host == EMBEDDED else settings.host()


def _token(options: HostOptions) -> str | None:
    """The token from the file that the options name, else from the environment; None if there is none."""
    file = options.token_file
    if file is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    token = text(options.option("token_file"), f"@{file}").strip()
    if not token:
        raise InvalidArgument(f"the token file {str(file)!r} is empty", remedy="write the token into it")
    return token


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        pass
    raise InvalidArgument("--role-host-stdio has a quote that is not closed", remedy="quote the command as in a shell")
