"""The conversations on the page about the sidecar: raw lines, and what of them differs from run to run."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from support import forks
from support.example_clients import BOUND, EXAMPLES, SERVE, environment
from worldagent.hosts.sidecar.contract import TOOLS
from worldagent.hosts.sidecar.contract.surfaces import SurfaceArguments

_TURN = re.compile(r"turn_[0-9a-f]{32}")
_STATE = re.compile(r'("requestState": ?")([^"]+)(")')
_OTHERS = (
    (re.compile(r"\b20\d\d-\d\d-\d\dT[\d:.]+(Z|\+00:00)"), "2030-01-01T10:00:00Z"),
    (re.compile(r'(\\?"seconds\\?": ?)[\d.e-]+'), r"\g<1>1.5"),
    (re.compile(r'(\\?"input_tokens\\?": ?)\d+'), r"\g<1>240"),
    (re.compile(r'(\\?"output_tokens\\?": ?)\d+'), r"\g<1>20"),
    (re.compile(r'("version": ?")[\d.]+'), r"\g<1>0.1.0"),
)


class Names:
    """What stands on the page for what differs from run to run: ids of turns, what a client only echoes, times."""

    def __init__(self) -> None:
        self._turns: dict[str, str] = {}
        self._states: dict[str, str] = {}

    def shown(self, line: str) -> str:
        """A line of the server's as it stands on the page."""
        line = _TURN.sub(lambda found: self._name(self._turns, found[0], "turn"), line)
        line = _STATE.sub(lambda found: f"{found[1]}{self._name(self._states, found[2], 'state')}{found[3]}", line)
        for pattern, put in _OTHERS:
            line = pattern.sub(put, line)
        return line

    def meant(self, line: str) -> str:
        """A line of the page's as it is sent."""
        for known in (self._turns, self._states):
            for real, name in known.items():
                line = re.sub(rf"\b{name}\b", real.replace("\\", r"\\"), line)
        return line

    @staticmethod
    def _name(known: dict[str, str], real: str, kind: str) -> str:
        return known.setdefault(real, f"{kind}_{len(known) + 1}")


def tool_rows() -> list[str]:
    """Give the rows of the table of tools: what each takes beside what all take, and what its answer has."""
    return [
        f"| `{name}` | {_names(spec.arguments, _apart(spec.arguments))} "
        f"| {_names(spec.answer, {'contract'}, bold=False)} |"
        for name, spec in TOOLS.items()
    ]


def _apart(arguments: type[BaseModel]) -> set[str]:
    """What the page tells of in other tables."""
    return _OF_ALL | (_OF_STARTS if issubclass(arguments, SurfaceArguments) else set())


def _names(model: type[BaseModel], without: set[str], *, bold: bool = True) -> str:
    fields = {name: field for name, field in model.model_fields.items() if name not in without}
    return ", ".join(f"**`{name}`**" if bold and field.is_required() else f"`{name}`" for name, field in fields.items())


_OF_ALL = {"workspace", "account"}
_OF_STARTS = {"name", "role", "model", "key", "after", "detach", "pauses"}


class Talk:
    """A conversation with a sidecar over its standard streams."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._names = Names()

    async def say(self, line: str) -> None:
        """Send a line of the page."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{self._names.meant(line)}\n".encode())
        await self._process.stdin.drain()

    async def hear(self) -> dict[str, Any]:
        """Give the next message as the page has it."""
        assert self._process.stdout is not None
        line = (await asyncio.wait_for(self._process.stdout.readline(), BOUND)).decode()
        assert line, "the sidecar has ended"
        message: dict[str, Any] = json.loads(self._names.shown(line))
        return message


@asynccontextmanager
async def talk(home: Path) -> AsyncGenerator[Talk]:
    """Start a sidecar of the app of the examples."""
    home.mkdir(exist_ok=True)
    with home.with_suffix(".err").open("ab") as out:
        process = await forks.start(
            (*SERVE, "--stdio"),
            cwd=EXAMPLES,
            env=environment(home, SHOP_PACE="0"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=out.fileno(),
        )
    try:
        yield Talk(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


__all__ = ["Names", "Talk", "talk", "tool_rows"]
