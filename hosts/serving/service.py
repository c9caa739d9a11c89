"""A service: an MCP server, the tokens that it accepts, and how it ends. It is independent of the transport."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, Protocol, runtime_checkable

from mcp.server.lowlevel import Server
from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from .logs import log
from .tokens import Tokens


def wire_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of a model, without titles made of Python names and without docstrings of classes.

    Args:
        model: The model of a message on the wire.
    """
    return model.model_json_schema(schema_generator=_Untitled)


def output_schema(answer: type[BaseModel], error: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of everything that a tool puts into `structuredContent`: its answer or an error.

    Clients validate errors against the published `outputSchema` too. They replace an answer that does not match with
    their own error. MCP before 2026-07-28 requires `"type": "object"` at the top level.

    Args:
        answer: The model of the tool's answer.
        error: The model of the tool's error.
    """
    either: Any = answer | error
    return {"type": "object", **TypeAdapter(either).json_schema(schema_generator=_Untitled)}


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


@runtime_checkable
class Operated(Protocol):
    """A service with health checks and an orderly end. Its reports hold no content and no secrets."""

    def health(self) -> Mapping[str, Any]:
        """Report the state of the process, as JSON for `/health`. It returns at once and waits for nothing."""
        ...

    async def ready(self) -> Mapping[str, Any]:
        """Report whether it accepts new work, as JSON for `/ready`; the field `ready` is true or false."""
        ...

    async def drain(self, seconds: float) -> None:
        """Refuse new work, and bring running work to a point where it can be resumed, within `seconds`."""
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


async def drain(service: Service, seconds: float, on_start: Callable[[], None] | None) -> None:
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
