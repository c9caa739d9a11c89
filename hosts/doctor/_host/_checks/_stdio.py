"""What a host that is a program does with its streams and its end: a child of our own, every line of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

from mcp.client.stdio import get_default_environment
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from .....mcp_client import StdioHost
from ..._outcomes import Failed, Skipped
from .._kit import Kit
from .._record import Life
from .._wire import errors_of

_ENDING: Final = 5.0  # seconds that a host has to end
_KILLED: Final = 5.0
_LINE: Final = 4 << 20
_PAUSE: Final = 0.02


async def output(kit: Kit) -> str | None:
    """Every line is a message."""
    life = await _life(kit)
    lines = life.messages + life.noise
    if life.noise:
        raise Failed(
            f"{life.noise:,} of {lines:,} lines on its standard output are no MCP messages",
            "write everything else to standard error",
        )
    return f"{lines} lines"


async def end(kit: Kit) -> str | None:
    """The end of its input is its end."""
    if not (await _life(kit)).ended:
        raise Failed(f"it still ran {_ENDING:g} s after its input was closed", "end when standard input ends")
    return None


async def children(kit: Kit) -> str | None:
    """What it started is gone with it."""
    if os.name != "posix":
        raise Skipped("this system has no process groups", "nothing")
    if (await _life(kit)).left:
        raise Failed("processes that it started are still there", "end them before it ends itself")
    return None


async def _life(kit: Kit) -> Life:
    """Let a child live once; the three points look at the same one."""
    if kit.life is None:
        await kit.disconnect()  # a host may not like two of itself
        kit.life = Life()
        async with _child(kit) as child:
            await _live(kit, child, kit.life)
    return kit.life


@contextlib.asynccontextmanager
async def _child(kit: Kit) -> AsyncGenerator[Process]:
    host = kit.host
    assert isinstance(host, StdioHost), "these points are for hosts over stdio"
    child: Process | None = None
    with errors_of(host) as errors, contextlib.suppress(OSError):
        child = await asyncio.create_subprocess_exec(
            *host.argv,
            env=get_default_environment() | dict(host.env or {}),
            cwd=host.cwd,
            stdin=PIPE,
            stdout=PIPE,
            stderr=errors,
            limit=_LINE,
            start_new_session=True,
        )
    if child is None:
        raise Failed("it could not be started again", "see what the host itself reports")
    try:
        yield child
    finally:
        _kill(child)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_KILLED):
                await child.wait()


async def _live(kit: Kit, child: Process, life: Life) -> None:
    reading = asyncio.create_task(_read(child, life))
    try:
        await _talk(kit, child, life)
        _close(child)
        life.ended = await _gone(child)
        life.left = life.ended and await _has_left(child.pid)
        _kill(child)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_KILLED):
                await asyncio.shield(reading)
    finally:
        reading.cancel()


async def _talk(kit: Kit, child: Process, life: Life) -> None:
    """Say what every agent says, and wait for the answers as long as they may take."""
    messages = _conversation(kit)
    wanted = sum("id" in message for message in messages)
    assert child.stdin is not None
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(kit.options.timeout):
            for number, message in enumerate(messages):
                child.stdin.write(json.dumps(message).encode() + b"\n")
                await child.stdin.drain()
                if number == 0:
                    await _answered(child, life, 1)
            await _answered(child, life, wanted)


async def _answered(child: Process, life: Life, wanted: int) -> None:
    while life.messages < wanted and child.returncode is None:  # noqa: ASYNC110 -- lines come from a pipe
        await asyncio.sleep(_PAUSE)


def _conversation(kit: Kit) -> list[dict[str, Any]]:
    client = {"name": "worldagent-doctor", "version": "1"}
    call = {"name": kit.name("role_list"), "arguments": {"scope_ids": {}}}
    if kit.revision in MODERN_PROTOCOL_VERSIONS:
        prefix = "io.modelcontextprotocol/"
        meta = {"protocolVersion": kit.revision, "clientInfo": client, "clientCapabilities": {}}
        common = {"_meta": {prefix + name: value for name, value in meta.items()}}
        return [_message("tools/list", 1, common), _message("tools/call", 2, call | common)]
    greeting = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    return [
        _message("initialize", 1, greeting),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        _message("tools/list", 2, {}),
        _message("tools/call", 3, call),
    ]


def _message(method: str, number: int, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


async def _read(child: Process, life: Life) -> None:
    assert child.stdout is not None
    with contextlib.suppress(OSError, ValueError):  # a line without an end
        while line := await child.stdout.readline():
            sound = _is_message(line)
            life.messages += sound
            life.noise += not sound


def _is_message(line: bytes) -> bool:
    try:
        found = json.loads(line)
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("jsonrpc") == "2.0"


def _close(child: Process) -> None:
    assert child.stdin is not None
    child.stdin.close()


async def _gone(child: Process) -> bool:
    """Whether it ends in time. Not `wait()`, which also waits for whoever else holds its pipes."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_ENDING):
            while child.returncode is None:  # noqa: ASYNC110 -- the end of a process sets no event of ours
                await asyncio.sleep(_PAUSE)
    return child.returncode is not None


async def _has_left(group: int) -> bool:
    """Whether processes of this group stay; they have a moment to follow."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_ENDING):
            while _alive(group):  # noqa: ASYNC110 -- as above
                await asyncio.sleep(_PAUSE)
    return _alive(group)


def _alive(group: int) -> bool:
    if os.name != "posix":
        return False
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return sys.platform != "linux" or _has_running(group)


def _has_running(group: int) -> bool:
    """Whether a process of the group still runs. One that nobody has waited for yet counts as one for `killpg`."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, of_group = stat.read_text(errors="replace").rpartition(")")[2].split()[:3]
            if of_group == str(group) and state not in "ZX":
                return True
    return False


def _kill(child: Process) -> None:
    """End it and whatever it has started."""
    with contextlib.suppress(OSError):
        if os.name == "posix":
            os.killpg(child.pid, signal.SIGKILL)
        elif child.returncode is None:
            child.kill()


CHECKS = {"stdio.output": output, "stdio.end": end, "stdio.children": children}

__all__ = ["CHECKS"]
