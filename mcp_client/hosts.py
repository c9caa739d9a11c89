"""The address and time limits of a role host or an MCP server, as values. `transports` opens the connection."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from ..core.errors import InvalidArgument

TOOLS = ("role_list", "role_get", "role_put", "role_delete")
"""The tools of the contract. A host can use other names, which `tools` maps."""

LONGEST_ANSWER = 8 << 20
"""The limit of one message of a host in bytes; a longer message is not read."""

Mode = Literal["auto", "legacy"]


@dataclass(frozen=True, slots=True)
class HttpHost:
    """A role host, or another MCP server, at an address (streamable HTTP).

    Attributes:
        url: Its MCP endpoint, `http://` or `https://`, without a name or password; see `token`.
        token: Sent as bearer token with every request; never shown.
        mode: `auto` uses the newest protocol revision that both sides support, `legacy` the handshake of 2025-11-25 and
            older.
        timeout: Seconds that one call can take. It also limits the setup of a TCP connection.
        connect_timeout: Seconds from the first request until calls can be made.
        tools: The names that the host uses for tools of the contract, such as `{"role_list": "my_list"}`.
        headers: Additional headers of every request; never shown.

    Raises:
        InvalidArgument: An argument is invalid; the text names it.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    mode: Mode = field(default="auto", kw_only=True)
    timeout: float = field(default=4.0, kw_only=True)
    connect_timeout: float = field(default=20.0, kw_only=True)
    tools: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    headers: Mapping[str, str] = field(default_factory=dict, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.url, str) or not _is_address(self.url):
            raise InvalidArgument(
                "`url` must be the http or https address of an MCP endpoint",
                remedy="pass an address such as 'https://host.example/mcp', and the token as token=",
            )
        # The HTTP library quotes an invalid header value in its error, so tokens are checked here.
        if self.token is not None and not _is_token(self.token):
            raise InvalidArgument(
                "`token` must be a non-empty text of characters that a header can hold",
                remedy="pass printable ASCII without blanks, or None if the host needs no token",
            )
        object.__setattr__(self, "tools", _checked(self.mode, self.timeout, self.connect_timeout, self.tools))
        object.__setattr__(self, "headers", _headers(self.headers))

    @property
    def label(self) -> str:
        """The name of the host in errors: the address without its query."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}{parts.path}"


@dataclass(frozen=True, slots=True)
class StdioHost:
    """A role host, or another MCP server, that is a program.

    The first call starts it. The connection uses its standard streams and stops it when it is closed.

    Attributes:
        argv: The program and its arguments.
        env: Environment variables, added to PATH, HOME and the few others that every child gets; never shown.
        cwd: The working directory; None is the current one.
        stderr: What happens to its standard error: `discard`, or `inherit` to show it.
        mode: `auto` uses the newest protocol revision that both sides support, `legacy` the handshake of 2025-11-25 and
            older.
        timeout: Seconds that one call can take.
        connect_timeout: Seconds from the start of the program until calls can be made.
        tools: The names that the host uses for tools of the contract, such as `{"role_list": "my_list"}`.

    Raises:
        InvalidArgument: An argument is invalid; the text names it.
    """

    argv: Sequence[str]
    env: Mapping[str, str] | None = field(default=None, repr=False)
    cwd: Path | None = field(default=None, kw_only=True)
    stderr: Literal["discard", "inherit"] = field(default="discard", kw_only=True)
    mode: Mode = field(default="auto", kw_only=True)
    timeout: float = field(default=4.0, kw_only=True)
    connect_timeout: float = field(default=20.0, kw_only=True)
    tools: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        argv = () if isinstance(self.argv, str) else tuple(self.argv)
        if not argv or not all(_is_word(word) for word in argv) or not argv[0]:
            raise InvalidArgument(
                "`argv` must be a program and its arguments", remedy="pass a list such as ['my-host', '--stdio']"
            )
        env = None if self.env is None else dict(self.env)
        if env is not None and not all(_is_word(word) for word in (*env, *env.values())):
            raise InvalidArgument("`env` must map names to values of type str", remedy="pass names and values as str")
        if self.stderr not in ("discard", "inherit"):
            raise InvalidArgument(
                f"`stderr` must be 'discard' or 'inherit', got {self.stderr!r}", remedy="pass one of these"
            )
        object.__setattr__(self, "argv", argv)
        object.__setattr__(self, "env", env)
        object.__setattr__(self, "tools", _checked(self.mode, self.timeout, self.connect_timeout, self.tools))

    @property
    def label(self) -> str:
        """The name of the host in errors: the name of the program. Its arguments can be secret."""
        return os.path.basename(self.argv[0]) or self.argv[0]


Host = HttpHost | StdioHost


def _checked(mode: object, timeout: object, connect_timeout: object, tools: Mapping[str, str]) -> dict[str, str]:
    """Check what both kinds of host have in common, and return the names of the tools."""
    if mode not in ("auto", "legacy"):
        raise InvalidArgument(f"`mode` must be 'auto' or 'legacy', got {mode!r}", remedy="pass one of these")
    for name, seconds in (("timeout", timeout), ("connect_timeout", connect_timeout)):
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
            raise InvalidArgument(
                f"`{name}` must be a positive number of seconds, got {seconds!r}", remedy=f"pass {name}= in seconds"
            )
    if not isinstance(tools, Mapping):
        raise InvalidArgument("`tools` must be a mapping", remedy="map tool names of the contract to those of the host")
    names = dict(tools)
    _known(names)
    called = [names.get(tool, tool) for tool in TOOLS]
    if not all(isinstance(name, str) and name for name in called) or len(set(called)) < len(TOOLS):
        raise InvalidArgument("`tools` must give each tool its own name", remedy="use each name once")
    return names


def _known(names: Iterable[str]) -> None:
    for name in names:
        if name not in TOOLS:
            raise InvalidArgument(
                f"`tools` renames {name!r}, which is not a tool of the contract", remedy=f"use {', '.join(TOOLS)}"
            )


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return fits and "@" not in parts.netloc and url.isprintable() and " " not in url


def _is_token(token: object) -> bool:
    return isinstance(token, str) and token.isascii() and token.isprintable() and bool(token) and " " not in token


def _headers(given: object) -> dict[str, str]:
    headers = dict(given) if isinstance(given, Mapping) else {"": ""}
    for name, value in headers.items():
        if not _is_token(name) or ":" in name or not _is_header(value):
            raise InvalidArgument("`headers` must hold valid names and values", remedy="pass names and values in ASCII")
    return headers


def _is_header(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and value.isprintable() and value == value.strip()


def _is_word(word: object) -> bool:
    return isinstance(word, str) and "\0" not in word
