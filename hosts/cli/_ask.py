"""The command `ask`: one message, one answer."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ...core.errors import InvalidArgument
from ._options import AskOptions
from ._output import Form, Output
from ._session import open_agent, run, thread_of
from ._sources import message, one_reader, role

if TYPE_CHECKING:
    from ...agent import WorldAgent
    from ...role_resolution import Role


def ask(options: AskOptions) -> int:
    """Run the command and return its exit code."""
    form: Form = "events" if options.events else "json" if options.json else "text"
    output = Output(form, verbose=options.verbose)

    def begin() -> Coroutine[Any, Any, None]:
        if options.json and options.events:
            raise InvalidArgument("--json and --events exclude each other", remedy="give one of them")
        one_reader(options, "TEXT", options.text)
        said, call_role = message(options.text), role(options.role)
        return _converse(open_agent(options, output), options, output, said, call_role)

    return run(output, begin)


async def _converse(agent: WorldAgent, options: AskOptions, output: Output, said: str, call_role: Role | None) -> None:
    thread = thread_of(agent, options)  # refused before anything is opened
    async with agent:
        if not output.live:
            output.turn(await thread.converse(said, role=call_role))
            return
        async with thread.stream(said, role=call_role) as stream:
            async for event in stream:
                output.event(event)
        output.turn(stream.turn)


__all__ = ["ask"]
