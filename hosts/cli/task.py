"""The command `task`: dispatches one task to a shape and prints its typed result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .command import Work, command
from .options import TurnModels, TurnOptions, Unattended
from .output import Output

if TYPE_CHECKING:
    from ...agent import Turn

app = typer.Typer()


@app.command(rich_help_panel="Turns")
@command
def task(
    options: TurnOptions,
    output: Output,
    shape: Annotated[str, typer.Argument(metavar="SHAPE", help="The kind of work, such as subagent.")],
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="KEY=VALUE", help="One param, as text. Overrides --params. Repeatable."),
    ] = None,
    params: Annotated[str | None, typer.Option(metavar="JSON|@FILE|-", help="The params as a JSON object.")] = None,
    turn_model: TurnModels = None,
    unattended: Unattended = None,
) -> Work:
    """Dispatch one task to a shape and print its result.

    The built-in shape is [bold]subagent[/bold]: it runs a worker by its name, with the params worker and request.

    [bold]Example[/bold]

      worldagent task subagent --worker 'critic=You judge in one sentence.' -p worker=critic -p request='Judge: ...'

      worldagent task buy -p what=hat --app shop:agent --thread t1
    """
    from ...core.events import ModelWaiting
    from .session import open_agent, thread_of
    from .sources import one_reader, role, task_params
    from .turn import one_turn

    one_reader(options, "--params", params)
    given, call_role = task_params(params, param), role(options.role)
    agent = open_agent(options, output)
    thread = thread_of(agent, options, options.thread)
    mode: Any = unattended  # `stream_task` refuses an unknown value

    async def begin() -> Turn:
        async with thread.stream_task(
            shape, given, role=call_role, model=turn_model or None, unattended=mode
        ) as stream:
            async for event in stream:
                if isinstance(event, ModelWaiting):  # a task prints only its result and waits
                    output.event(event)
        return stream.turn

    return one_turn(agent, options, output, options.thread, begin)
