"""The command `ask`: one message, one answer."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._attachments import attachments
from ._options import AskOptions
from ._output import Output
from ._session import open_agent, run, thread_of
from ._sources import message, one_reader, role
from ._turn import one_form, one_turn

if TYPE_CHECKING:
    from ...agent import Turn, WorldAgent
    from ...role_resolution import Role


@dataclass(frozen=True)
class _Said:
    text: str
    role: Role | None = field(repr=False)
    attached: tuple[Path | str, ...]


def ask(options: AskOptions) -> int:
    """Run the command and return its exit code."""
    output = Output.of(json=options.json, events=options.events, verbose=options.verbose)

    def begin() -> Coroutine[Any, Any, int]:
        one_form(options.json, options.events)
        one_reader(options, "TEXT", options.text)
        said, call_role = message(options.text), role(options.role)
        attached = attachments(options.attach)
        return _converse(open_agent(options, output), options, output, _Said(said, call_role, attached))

    return run(output, begin)


async def _converse(agent: WorldAgent, options: AskOptions, output: Output, said: _Said) -> int:
    thread = thread_of(agent, options)  # refused before anything is opened
    model = options.turn_model or None

    async def begin() -> Turn:
        async with thread.stream(said.text, role=said.role, attachments=said.attached, model=model) as stream:
            async for event in stream:
                output.event(event)
        return stream.turn

    return await one_turn(agent, options, output, options.thread, begin)


__all__ = ["ask"]
