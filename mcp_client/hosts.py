"""Role hosts and MCP servers as values: address, time limits and failures. `transports` opens the connection."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal
from urllib.parse import urlsplit

from ..core.errors import (
    AgentClosed,
    HostForbidden,
    HostUnavailable,
    InvalidArgument,
    RoleSourceInvalid,
    WorldAgentError,
)

TOOLS = ("role_list", "role_get", "role_put", "role_delete")
"""The tools of the contract. A host can use other names, which `tools` maps."""

LONGEST_ANSWER = 8 << 20
"""The limit of one message of a host in bytes; a longer message is not read."""

NOT_RENEWED = 511
"""The code of an error that stands for a login that could not be renewed for now."""

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

    def __repr__(self) -> str:  # a path or a query can have a token in it
        return f"HttpHost({urlsplit(self.url).netloc!r})"

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

    def __repr__(self) -> str:
        return f"StdioHost({self.label!r})"

    @property
    def label(self) -> str:
        """The name of the host in errors: the name of the program. Its arguments can be secret."""
        return os.path.basename(self.argv[0]) or self.argv[0]


Host = HttpHost | StdioHost


def _checked(mode: object, timeout: object, connect_timeout: object, tools: Mapping[str, str]) -> dict[str, str]:
    """Check what both kinds of host have in common, and return the names of the tools."""
    if mode not in ("auto", "legacy"):
        raise InvalidArgument(f"`mode` must be 'auto' or 'legacy', got {mode!r}", remedy="pass one of these")
    check_seconds("timeout", timeout)
    check_seconds("connect_timeout", connect_timeout)
    if not isinstance(tools, Mapping):
        raise InvalidArgument("`tools` must be a mapping", remedy="map tool names of the contract to those of the host")
    names = dict(tools)
    for name in names:
        if name not in TOOLS:
            raise InvalidArgument(
                f"`tools` renames {name!r}, which is not a tool of the contract", remedy=f"use {', '.join(TOOLS)}"
            )
    called = [names.get(tool, tool) for tool in TOOLS]
    if not all(isinstance(name, str) and name for name in called) or len(set(called)) < len(TOOLS):
        raise InvalidArgument("`tools` must give each tool its own name", remedy="use each name once")
    return names


def check_seconds(name: str, seconds: object) -> None:
    """Refuse an argument that is not a positive number of seconds.

    Raises:
        InvalidArgument: It is not.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
        raise InvalidArgument(
            f"`{name}` must be a positive number of seconds, got {seconds!r}", remedy=f"pass {name}= in seconds"
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


# --- failures ---------------------------------------------------------------------------------------------------------

_REPORTED = "check the logs of the host, then try again"


@dataclass(frozen=True, slots=True)
class Failure:
    """An error that was not raised yet.

    Attributes:
        kind: The type of the error.
        problem: Its text.
        remedy: What the user can do.
        repeatable: Whether the host certainly did nothing, so that the call can be made again.
        unsent: The same, if another try at once would fail too.
    """

    kind: type[WorldAgentError]
    problem: str
    remedy: str
    repeatable: bool = False
    unsent: bool = False

    def error(self) -> WorldAgentError:
        """A new error, which can be raised once."""
        return self.kind(self.problem, remedy=self.remedy)


class Failures:
    """Makes the failures of one role host. A subclass gives the types and remedies for another kind of peer.

    Args:
        label: The name of the host in errors.
        program: Whether the host is a program that the next call starts again.
        login: What the user can do if the host requires a login; empty if it cannot be logged in to.
    """

    PEER: ClassVar = "role host"
    UNAVAILABLE: ClassVar[type[WorldAgentError]] = HostUnavailable
    FORBIDDEN: ClassVar[type[WorldAgentError]] = HostForbidden
    LOGIN: ClassVar[type[WorldAgentError]] = HostForbidden
    INVALID: ClassVar[type[WorldAgentError]] = RoleSourceInvalid
    ANSWER: ClassVar = "make it answer as the contract of role hosts requires"
    LONGER: ClassVar = "find out why it is slow, or raise timeout= or the setting role_host_timeout"
    SHORTER: ClassVar = "make it answer with roles only"
    TOKEN: ClassVar = "pass a token that it accepts for this scope"

    def __init__(self, label: str, *, program: bool = False, login: str = "") -> None:
        self.name = f"{self.PEER} {label!r}"
        self.login = login
        self.restart = "try again; the next call restarts it" if program else "start the host again"

    # --- in general -------------------------------------------------------------------------------------------------

    def unavailable(self, what: str, remedy: str) -> Failure:
        """The host cannot be used now. `what` follows its name in the text."""
        return Failure(self.UNAVAILABLE, f"{self.name} {what}", remedy)

    def invalid(self, what: str, remedy: str = "") -> Failure:
        """The host breaks the protocol or the contract. `what` follows its name in the text."""
        return Failure(self.INVALID, f"{self.name} {what}", remedy or self.ANSWER)

    def forbidden(self) -> Failure:
        """The host did not accept the token."""
        return Failure(self.FORBIDDEN, f"{self.name} refused access", self.TOKEN)

    def not_logged_in(self, why: str, remedy: str) -> Failure:
        """The host requires a login, and there is none."""
        return Failure(self.LOGIN, f"{self.name} requires a login: {why}", remedy)

    # --- the connection ---------------------------------------------------------------------------------------------

    def unreachable(self, why: str, remedy: str = "start it, or correct its address or command") -> Failure:
        """The connection could not be opened."""
        return self.unavailable(f"could not be reached ({why})", remedy)

    def unopened(self, error: BaseException) -> Failure:
        """The reason why a connection failed, from the system errors that led to `error`."""
        for cause in _chain(error):
            match cause:
                case ssl.SSLError():
                    remedy = "install a certificate that this machine trusts, or correct the address"
                    return self.unreachable("its TLS certificate is not trusted", remedy)
                case socket.gaierror():
                    return self.unreachable("its name is not known")
                case ConnectionRefusedError():
                    return self.unreachable("nothing listens there")
                case FileNotFoundError() | NotADirectoryError():
                    return self.unreachable("there is no such program or folder")
                case PermissionError():
                    return self.unreachable("it is not an executable program")
                case OSError() if cause.errno == errno.ENOEXEC:
                    return self.unreachable("it is not a program that this machine can run")
                case _:
                    pass
        return self.unreachable(type(error).__name__)

    def late_connecting(self, seconds: float) -> Failure:
        """The time for connecting passed before calls could be made."""
        remedy = "find out why it is slow, or raise connect_timeout="
        return self.unavailable(f"did not answer within {seconds:g} s", remedy)

    def gone(self) -> Failure:
        """The connection was lost before the call was made."""
        return Failure(self.UNAVAILABLE, f"the connection to {self.name} was lost", self.restart, repeatable=True)

    def broken(self) -> Failure:
        """The connection was lost during a call."""
        return Failure(self.UNAVAILABLE, f"the connection to {self.name} ended in the middle of a call", self.restart)

    def closed(self) -> Failure:
        """The connection was closed by its owner."""
        remedy = "use it before you close it, or open it again"
        return Failure(AgentClosed, f"the connection to {self.name} is closed", remedy)

    def in_another_loop(self) -> Failure:
        """The connection belongs to an event loop that still runs."""
        remedy = "close it there first, or make a store for each loop"
        return Failure(AgentClosed, f"the connection to {self.name} is in use in another event loop", remedy)

    # --- one call ---------------------------------------------------------------------------------------------------

    def late(self, seconds: float) -> Failure:
        """A call got no answer within the time limit."""
        return self.unavailable(f"did not answer within {seconds:g} s", self.LONGER)

    def of_status(self, code: int, retry_after: object) -> Failure:
        """Interpret an HTTP status that reports an error. `transports` turns it into an MCP error."""
        match code:
            case 401 if self.login:
                return replace(self.not_logged_in("there is none, or it is over", self.login), unsent=True)
            case 511 if self.login:
                what = "could not be used, because its login could not be renewed"
                return replace(self.unavailable(what, "try again later"), unsent=True)
            case 401 | 403:
                return self.forbidden()
            case 302:
                what = "redirects to another address, and the token is not sent there"
                return self.invalid(what, "configure the address that it redirects to")
            case 429 | 503:
                when = f"in {retry_after} s" if isinstance(retry_after, int) else "later"
                return self.unavailable(f"takes no calls at present (HTTP {code})", f"try again {when}")
            case _:
                return self.unavailable(f"failed (HTTP {code})", _REPORTED)

    def of_code(self, code: int) -> Failure:
        """An MCP error that the host answered. Its code is not interpreted."""
        return self.unavailable(f"failed (MCP error {code})", _REPORTED)

    def oversized(self) -> Failure:
        """A message was longer than the limit."""
        return self.invalid(f"answered with more than {LONGEST_ANSWER >> 20} MiB", self.SHORTER)

    def crowded(self) -> Failure:
        """A message had more values than are read."""
        return self.invalid("answered with too many values in one message", self.SHORTER)

    def garbled(self, kind: str = "") -> Failure:
        """A message was not an MCP message. `kind` adds details."""
        return self.invalid(f"answered something that is not an MCP message{kind}")

    def stray(self) -> Failure:
        """The host wrote lines that are not messages, and no answer."""
        what = "wrote something that is not an MCP message, and no answer"
        return self.invalid(what, "make it write only MCP messages to its standard output")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(16):  # a chain of causes can have a cycle
        if error is None:
            return
        yield error
        inner = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__
        error = inner or error.__context__
