"""The command `task`: one dispatch to a shape, one typed result."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from ...core.events import ModelWaiting
from .options import TaskOptions
from .output import Output
from .session import open_agent, run, thread_of
from .sources import one_reader, params, role
from .turn import one_turn

if TYPE_CHECKING:
    from ...agent import Turn, WorldAgent
    from ...role_resolution import Role


def task(options: TaskOptions) -> int:
    """Run the command and return its exit code."""
    output = Output.of(json=options.json, verbose=options.verbose)

    def begin() -> Coroutine[Any, Any, int]:
        one_reader(options, "--params", options.params)
        given, call_role = params(options.params, options.param), role(options.role)
        return _dispatch(open_agent(options, output), options, output, given, call_role)

    return run(output, begin)


async def _dispatch(
    agent: WorldAgent, options: TaskOptions, output: Output, given: Mapping[str, Any], call_role: Role | None
) -> int:
    thread = thread_of(agent, options, options.thread)  # refused before anything is opened

    async def begin() -> Turn:
        model = options.turn_model or None
        mode: Any = options.unattended  # an unknown one is refused there
        async with thread.stream_task(options.shape, given, role=call_role, model=model, unattended=mode) as stream:
            async for event in stream:
                if isinstance(event, ModelWaiting):  # the rest of a task is its result
                    output.event(event)
        return stream.turn

    return await one_turn(agent, options, output, options.thread, begin)


__all__ = ["task"]
