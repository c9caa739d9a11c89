"""Where a role host or an MCP server is and how long it may take: values only. `transports` reaches it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from ..core.errors import InvalidArgument

TOOLS = ("role_list", "role_get", "role_put", "role_delete")
"""The tools of the contract; a host may call them something else and map the names."""

LONGEST_ANSWER = 8 << 20
"""Bytes of one message of a host; a longer one is not read."""

Mode = Literal["auto", "legacy"]


@dataclass(frozen=True, slots=True)
class HttpHost:
    """A role host, or another MCP server, at an address (streamable HTTP).

    Attributes:
        url: Its MCP endpoint, `http://` or `https://`. No name or password in it: see `token`.
        token: Sent as bearer token with every request; never shown.
        mode: `auto` takes the newest protocol revision both sides know, `legacy` the handshake of 2025-11-25 and older.
        timeout: Seconds that one call may take, and the setting up of a TCP connection.
        connect_timeout: Seconds from the first request to the moment when calls can be made.
        tools: The host's own names for tools of the contract, such as `{"role_list": "my_list"}`.
        headers: More headers that go with every request; never shown.

    Raises:
        InvalidArgument: An argument does not fit; the text names it.
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
                "url is not the http or https address of an MCP endpoint",
                remedy="give one such as 'https://host.example/mcp', with the token as token=",
            )
        # What no header may hold would come back in the error of the HTTP library.
        if self.token is not None and not _is_token(self.token):
            raise InvalidArgument(
                "the token is empty or holds characters that no header takes",
                remedy="give printable ASCII without blanks, or None where the host needs no token",
            )
        object.__setattr__(self, "tools", _checked(self.mode, self.timeout, self.connect_timeout, self.tools))
        object.__setattr__(self, "headers", _headers(self.headers))

    @property
    def label(self) -> str:
        """What errors call it: the address without its query."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}{parts.path}"


@dataclass(frozen=True, slots=True)
class StdioHost:
    """A role host, or another MCP server, that is a program.

    It is started at the first call, spoken to over its standard streams, ended at the end.

    Attributes:
        argv: The program and its arguments.
        env: Variables beside PATH, HOME and the few others that every child gets; never shown.
        cwd: Where it runs; None is here.
        stderr: What becomes of what it writes to standard error: `discard`, or `inherit` to see it.
        mode: `auto` takes the newest protocol revision both sides know, `legacy` the handshake of 2025-11-25 and older.
        timeout: Seconds that one call may take.
        connect_timeout: Seconds from the start of the program to the moment when calls can be made.
        tools: The host's own names for tools of the contract, such as `{"role_list": "my_list"}`.

    Raises:
        InvalidArgument: An argument does not fit; the text names it.
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
                "argv is not a program and its arguments", remedy="give a list such as ['my-host', '--stdio']"
            )
        env = None if self.env is None else dict(self.env)
        if env is not None and not all(_is_word(word) for word in (*env, *env.values())):
            raise InvalidArgument("env holds something else than texts", remedy="give names and values as str")
        if self.stderr not in ("discard", "inherit"):
            raise InvalidArgument(f"stderr {self.stderr!r} is unknown", remedy="use 'discard' or 'inherit'")
        object.__setattr__(self, "argv", argv)
        object.__setattr__(self, "env", env)
        object.__setattr__(self, "tools", _checked(self.mode, self.timeout, self.connect_timeout, self.tools))

    @property
    def label(self) -> str:
        """What errors call it: the program's name. Its arguments may be nobody's business."""
        return os.path.basename(self.argv[0]) or self.argv[0]


Host = HttpHost | StdioHost


def _checked(mode: object, timeout: object, connect_timeout: object, tools: Mapping[str, str]) -> dict[str, str]:
    """Hold what both kinds of host have to its limits; return the names of tools."""
    if mode not in ("auto", "legacy"):
        raise InvalidArgument(f"mode {mode!r} is unknown", remedy="use 'auto' or 'legacy'")
    for name, seconds in (("timeout", timeout), ("connect_timeout", connect_timeout)):
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
            raise InvalidArgument(f"{name} {seconds!r} is no time limit", remedy=f"give {name} in seconds, above 0")
    if not isinstance(tools, Mapping):
        raise InvalidArgument("tools is not a mapping", remedy="map names of the contract to names of the host")
    names = dict(tools)
    _known(names)
    called = [names.get(tool, tool) for tool in TOOLS]
    if not all(isinstance(name, str) and name for name in called) or len(set(called)) < len(TOOLS):
        raise InvalidArgument("tools gives a tool no name, or two the same", remedy="give each tool a name of its own")
    return names


def _known(names: Iterable[str]) -> None:
    for name in names:
        if name not in TOOLS:
            raise InvalidArgument(f"tools renames {name!r}, which is none", remedy=f"use {', '.join(TOOLS)}")


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
            raise InvalidArgument("headers holds what no header may be", remedy="give names and values in ASCII")
    return headers


def _is_header(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and value.isprintable() and value == value.strip()


def _is_word(word: object) -> bool:
    return isinstance(word, str) and "\0" not in word
