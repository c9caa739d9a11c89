"""A service: an MCP server, its tools, the tokens that it accepts, and how it ends. It knows no transport."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import signal
import threading
import tomllib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final, Generic, Protocol, TypeVar, cast, runtime_checkable

from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.types import Tool, ToolAnnotations
from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from ...core.errors import InvalidArgument
from ..service.spec import ToolSpec
from .logs import log

G = TypeVar("G")


@dataclass(frozen=True, slots=True)
class Session(Generic[G]):
    """A session that a token began.

    Attributes:
        grant: The grant of the token.
        key: Names the token; neither the token nor a session can be made from it.
        began: When it began, in milliseconds since 1970.
    """

    grant: G
    key: str
    began: int


class Tokens(Generic[G]):
    """The bearer tokens that a server accepts, and the grant of each.

    Args:
        grants: Each token with its grant. A token is printable ASCII without blanks.
        source: Where the tokens come from; the error names it.

    Raises:
        InvalidArgument: A token has other characters, two tokens are equal, or there is none.
    """

    def __init__(self, grants: Iterable[tuple[str, G]], *, source: str = "the input") -> None:
        pairs = list(grants)
        if not pairs or not all(is_token(token) for token, _ in pairs):
            raise InvalidArgument(
                f"{source} has no token, or an invalid one", remedy="write a token of printable ASCII without blanks"
            )
        self._grants = {hashlib.sha256(token.encode()).hexdigest(): grant for token, grant in pairs}
        if len(self._grants) < len(pairs):
            raise InvalidArgument("two entries have the same token", remedy="write one entry for each token")

    def __repr__(self) -> str:
        return f"<{len(self._grants)} tokens>"

    async def verify_token(self, token: str) -> AccessToken | None:
        """Find the grant of a token, in a time independent of the token. The result does not hold the token."""
        given = hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
        matching = [known for known in self._grants if hmac.compare_digest(known, given)]
        return AccessToken(token="", client_id=matching[0], scopes=[]) if matching else None

    @property
    def grants(self) -> tuple[G, ...]:
        """The grants of its tokens, in order."""
        return tuple(self._grants.values())

    def changed(self, change: Callable[[G], G]) -> Tokens[G]:
        """Return the same tokens, with `change` applied to each grant."""
        made: Tokens[G] = Tokens.__new__(Tokens)
        made._grants = {digest: change(grant) for digest, grant in self._grants.items()}
        return made

    def session(self, token: str, *, began: int) -> str:
        """Return a value for a cookie that `session_of` accepts in place of the token, also after a restart.

        Args:
            token: The token. It cannot be found from the value.
            began: When the session begins, in milliseconds since 1970.
        """
        return f"{began}.{_signature(hashlib.sha256(token.encode()).hexdigest(), str(began))}"

    def session_of(self, value: str) -> Session[G] | None:
        """Return the session of a value from `session` whose token is still accepted; None for any other value."""
        began, _, given = value.partition(".")
        if not (began.isascii() and began.isdigit() and len(began) < 15):
            return None
        signature = given.encode("utf-8", "replace")
        matching = [
            Session(grant, _signature(digest, "session"), int(began))
            for digest, grant in self._grants.items()
            if hmac.compare_digest(_signature(digest, began).encode(), signature)
        ]
        return matching[0] if matching else None

    def grant_of(self, access: AccessToken | None) -> G | None:
        """Return the grant of a verified token; None without a verified token."""
        return None if access is None else self._grants.get(access.client_id)


def _signature(digest: str, text: str) -> str:
    return hmac.new(digest.encode(), text.encode(), hashlib.sha256).hexdigest()


def read_token_file(path: Path, grant: G, *, entry: Callable[[dict[str, Any]], G], example: str) -> Tokens[G]:
    """Read tokens from a file.

    A file whose name ends in `.toml` has `[[token]]` tables. Any other file has one token.

    Args:
        path: The file.
        grant: The grant of the token in a file that has one token.
        entry: Makes the grant of a table from its keys other than `token`. It raises `ValueError` with a text that says
            what is wrong and quotes nothing of the table.
        example: A valid table in words, for the remedy.

    Raises:
        InvalidArgument: The file is unreadable or invalid. The error shows nothing of its text.
    """
    text, problem = _text(path), ""
    if path.suffix != ".toml":
        return Tokens([(text.strip(), grant)], source=f"the token file {str(path)!r}")
    try:
        return Tokens(_pairs(text, entry))
    except ValueError as error:
        problem = str(error)
    raise InvalidArgument(f"the token file {str(path)!r} is invalid: {problem}", remedy=f"write {example}")


def id_lists(table: Mapping[str, Any], names: Sequence[str], *others: str) -> dict[str, list[str]]:
    """Return the lists of ids in a `[[token]]` table by their names.

    Args:
        table: The table, without its token.
        names: The keys that can have a list of ids.
        *others: The other keys that it can have.

    Raises:
        ValueError: It has another key, or something else as a list. The text quotes nothing of the table.
    """
    if not table.keys() <= {*names, *others}:
        raise ValueError(f"must have only the keys {', '.join(('token', *names, *others))}")
    lists = {name: table[name] for name in names if name in table}
    for name, ids in lists.items():
        if not isinstance(ids, list) or not all(isinstance(each, str) for each in ids):
            raise ValueError(f"must have a list of ids as {name}")
    return lists


def is_token(token: object) -> bool:
    """Whether it can be a token: printable ASCII without blanks, as a header requires."""
    return isinstance(token, str) and bool(token) and token.isascii() and token.isprintable() and " " not in token


def _text(path: Path) -> str:
    try:
        return path.expanduser().read_text(encoding="utf-8-sig")
    except (OSError, RuntimeError) as error:
        problem = getattr(error, "strerror", None) or type(error).__name__
    except ValueError:  # not UTF-8, or a null byte in the name
        problem = "it is not a text file"
    raise InvalidArgument(f"the token file {str(path)!r} cannot be read: {problem}", remedy="give another file")


def _pairs(text: str, entry: Callable[[dict[str, Any]], G]) -> list[tuple[str, G]]:
    """Return the tokens of `[[token]]` tables with their grants. Its `ValueError` quotes nothing of the file."""
    document: dict[str, Any] = {}
    with suppress(tomllib.TOMLDecodeError, RecursionError):
        document = tomllib.loads(text)
    tables = document.pop("token", None)
    if document or not isinstance(tables, list):
        raise ValueError("it must be TOML with only [[token]] tables")
    pairs: list[tuple[str, G]] = []
    for number, table in enumerate(cast("list[object]", tables), start=1):
        problem = ""
        try:
            pairs.append(_pair(table, entry))
        except (ValueError, InvalidArgument) as error:
            problem = error.problem if isinstance(error, InvalidArgument) else str(error)
        if problem:
            raise ValueError(f"[[token]] number {number} {problem}")
    return pairs


def _pair(table: object, entry: Callable[[dict[str, Any]], G]) -> tuple[str, G]:
    rest = dict(cast("dict[str, Any]", table)) if isinstance(table, dict) else {}
    token = rest.pop("token", None)
    if not is_token(token):
        raise ValueError("has no token, or an invalid one")
    return token, entry(rest)


# --- tools ------------------------------------------------------------------------------------------------------------


def tool_schemas(tools: Mapping[str, ToolSpec], error: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """Return the JSON Schemas of tools by name: `NAME.input`, `NAME.output` and so on, and `error`.

    Clients validate errors against the published `outputSchema` too, so an `output` accepts every error. They replace
    an answer that does not match with their own error. MCP before 2026-07-28 requires `"type": "object"` at the top.

    Args:
        tools: The tools by name.
        error: The model of their errors.
    """
    made: dict[str, dict[str, Any]] = {"error": _schema(error)}
    for name, spec in tools.items():
        either: Any = spec.answer | error
        made[f"{name}.input"] = _schema(spec.arguments)
        made[f"{name}.output"] = {"type": "object", **_schema(either)}
    return made


def listed_tools(tools: Mapping[str, ToolSpec], schemas: Mapping[str, dict[str, Any]]) -> list[Tool]:
    """Return tools as `tools/list` lists them.

    Args:
        tools: The tools by name.
        schemas: Their schemas, as `tool_schemas` names them.
    """
    return [
        Tool(
            name=name,
            title=spec.title,
            description=spec.description,
            input_schema=schemas[f"{name}.input"],
            output_schema=schemas[f"{name}.output"],
            annotations=ToolAnnotations(
                read_only_hint=spec.effect == "reads",
                destructive_hint=spec.effect == "changes",
                idempotent_hint=spec.idempotent,
                open_world_hint=spec.open_world,
            ),
        )
        for name, spec in tools.items()
    ]


def _schema(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of a model, without titles made of Python names and without docstrings of classes."""
    return TypeAdapter(kind).json_schema(schema_generator=_Untitled)


class _Untitled(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def get_title_from_name(self, name: str) -> str:
        return name

    def generate(self, schema: Any, mode: Any = "validation") -> dict[str, Any]:
        made = super().generate(schema, mode)
        for part in (made, *made.get("$defs", {}).values()):
            part.pop("title", None)
            part.pop("description", None)
        return made


# --- the end of a service ---------------------------------------------------------------------------------------------

_EXTRA_SECONDS: Final = 2.0
"""Seconds that a service can take to drain beyond the time that it was given."""


class Service(Protocol):
    """An MCP server that a transport can serve. A service can also be `Operated`."""

    @property
    def server(self) -> Server[Any]:
        """The MCP server."""
        ...

    @property
    def tokens(self) -> Tokens[Any] | None:
        """The bearer tokens that it accepts over HTTP; None accepts every caller."""
        ...

    def end_streams(self) -> None:
        """End the streams that do not end by themselves, so that a transport can close."""
        ...


class Reporting(Protocol):
    """What reports how it is: an `Operated` service, or a worker. Its reports hold no content and no secrets."""

    def health(self) -> Mapping[str, Any]:
        """Report the state of the process, as JSON for `/health`. It returns at once and waits for nothing."""
        ...

    async def ready(self) -> Mapping[str, Any]:
        """Report whether it accepts new work, as JSON for `/ready`; the field `ready` is true or false."""
        ...


@runtime_checkable
class Operated(Reporting, Protocol):
    """A service with health checks and an orderly end."""

    async def drain(self, seconds: float) -> None:
        """Refuse new work, and bring running work to a point where it can be resumed, within `seconds`."""
        ...


@runtime_checkable
class Counting(Protocol):
    """A service that counts the requests of a caller which were refused. The caller is that of the current request."""

    def accepts(self) -> bool:
        """Return whether a request of the caller is read."""
        ...

    def refused(self) -> None:
        """Count a request of the caller that was refused."""
        ...


@contextmanager
def stopped_by_signals(stop: Callable[[], object]) -> Generator[list[int], None, None]:
    """Call `stop` in the running loop at the first SIGTERM or Ctrl-C; a second one ends the process at once.

    Signals reach the main thread only. In another thread this does nothing.

    Yields:
        A list that receives the number of the signal.
    """
    stopped: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    loop = asyncio.get_running_loop()
    before: dict[int, Any] = {}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def caught(number: int, frame: FrameType | None) -> None:
        restore()
        stopped.append(number)
        loop.call_soon_threadsafe(stop)

    before |= {number: signal.signal(number, caught) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopped
    finally:
        restore()


async def drain(service: Service, seconds: float, on_start: Callable[[], object] | None) -> None:
    """Drain a service and end its streams. Failures are logged and not raised, since the process ends in any case.

    Args:
        service: The service.
        seconds: Seconds that its work gets to finish.
        on_start: Called before draining.
    """
    if on_start is not None:
        on_start()
    try:
        if isinstance(service, Operated):
            await asyncio.wait_for(service.drain(seconds), seconds + _EXTRA_SECONDS)
    except TimeoutError:
        log.warning("the service was still at work after %g seconds", seconds + _EXTRA_SECONDS)
    except Exception as failure:  # of any type: a service can raise anything, and the process must still end
        log.error("the service did not drain: %s", type(failure).__name__)
    finally:
        service.end_streams()
