"""The command `ask`: one message, one answer."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core import new_id
from .attachments import attachments
from .options import AskOptions
from .output import Output
from .session import open_agent, run, thread_of
from .sources import message, one_reader, role
from .turn import one_form, one_turn

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
        one_reader(options, "TEXT", "-" if options.text is None else options.text)
        said, call_role = message(options, options.text, output), role(options.role)
        attached = attachments(options.attach)
        return _converse(open_agent(options, output), options, output, _Said(said, call_role, attached))

    return run(output, begin)


async def _converse(agent: WorldAgent, options: AskOptions, output: Output, said: _Said) -> int:
    # A question by itself must not depend on how the one before it ended, so without --thread it has its own thread.
    thread_id = new_id("ask") if options.thread is None else options.thread
    thread = thread_of(agent, options, thread_id)  # refused before anything is opened
    model = options.turn_model or None

    async def begin() -> Turn:
        how: dict[str, Any] = {"attachments": said.attached, "model": model, "unattended": options.unattended}
        async with thread.stream(said.text, role=said.role, **how) as stream:
            async for event in stream:
                output.event(event)
        return stream.turn

    return await one_turn(agent, options, output, thread_id, begin)


__all__ = ["ask"]
