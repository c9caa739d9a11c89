"""What a host that is a program does with its streams and its end: a child of our own, every line of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from typing import Any, Final

from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from .....mcp_client import StdioHost
from ..._outcomes import Failed, Skipped
from .._kit import Kit
from .._program import Program
from .._record import Life

_PAUSE: Final = 0.02
_READ_ON: Final = 1.0  # seconds for what it wrote last


async def output(kit: Kit) -> str | None:
    """Every line is a message."""
    life = await _life(kit)
    lines = life.messages + life.noise
    if not lines:
        raise Failed("it wrote nothing when it was started again", "see what the host itself reports")
    if life.noise:
        raise Failed(
            f"{life.noise:,} of {lines:,} lines on its standard output are no MCP messages",
            "write everything else to standard error",
        )
    return f"{lines} lines"


async def end(kit: Kit) -> str | None:
    """The end of its input is its end."""
    life = await _life(kit)
    if not life.messages:
        raise Skipped("it answered nothing when it was started again", "see stdio.output", reason="needs")
    if not life.ended:
        raise Failed(
            f"it still ran {kit.options.ending:g} s after its input was closed", "end when standard input ends"
        )
    return None


async def children(kit: Kit) -> str | None:
    """What it started is gone with it."""
    if os.name != "posix":
        raise Skipped("this system has no process groups")
    if (await _life(kit)).left:
        raise Failed("processes that it started are still there", "end them before it ends itself")
    return None


async def _life(kit: Kit) -> Life:
    """Let a child live once; the three points look at the same one."""
    if kit.life is None:
        await kit.disconnect()  # a host may not like two of itself
        kit.life = Life()
        await _live(kit, await _start(kit), kit.life)
    return kit.life


async def _start(kit: Kit) -> Program:
    host = kit.host
    assert isinstance(host, StdioHost), "these points are for hosts over stdio"
    with contextlib.suppress(OSError):
        return await Program.start(host)
    raise Failed("it could not be started again", "see what the host itself reports")


async def _live(kit: Kit, child: Program, life: Life) -> None:
    reading = asyncio.create_task(_read(child, life))
    try:
        await _talk(kit, child, life, reading)
        child.stdin.close()
        life.ended = await child.gone(kit.options.ending)
        life.left = life.ended and await child.left(kit.options.ending)
        await asyncio.wait({reading}, timeout=_READ_ON)
    finally:
        reading.cancel()
        await child.end(0)


async def _talk(kit: Kit, child: Program, life: Life, reading: asyncio.Task[None]) -> None:
    """Say what every agent says, and wait for the answers as long as they may take."""
    messages = _conversation(kit)
    wanted = sum("id" in message for message in messages)
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(kit.options.timeout):
            for number, message in enumerate(messages):
                child.stdin.write(json.dumps(message).encode() + b"\n")
                await child.stdin.drain()
                if number == 0:
                    await _answered(reading, life, 1)
            await _answered(reading, life, wanted)


async def _answered(reading: asyncio.Task[None], life: Life, wanted: int) -> None:
    while life.messages < wanted and not reading.done():  # noqa: ASYNC110 -- lines come from a pipe
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


async def _read(child: Program, life: Life) -> None:
    with contextlib.suppress(OSError, ValueError):  # a line without an end
        while line := await child.stdout.readline():
            sound = _is_message(line)
            life.messages += sound
            life.noise += not sound


def _is_message(line: bytes) -> bool:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("jsonrpc") == "2.0"


CHECKS = {"stdio.output": output, "stdio.end": end, "stdio.children": children}

__all__ = ["CHECKS"]
