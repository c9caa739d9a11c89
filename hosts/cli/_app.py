"""The commands and their help. What they do is in `_ask` and `_task`, which load when a command runs."""

from __future__ import annotations

from typing import Annotated

import typer

from ._options import AskOptions, TaskOptions, options_of

_ASK = """\
Say something to the agent and print its answer.

On a terminal the answer appears while it is written. A thread remembers what was said in it.

[bold]Examples[/bold]

  worldagent ask 'What is the capital of France?'

  worldagent ask 'And of Spain?' --role 'Answer in one word.'

  git diff | worldagent ask - --role @reviewer.md --lm openai/gpt-4o
"""

_TASK = """\
Dispatch one task to a shape and print its result.

The shape that ships is [bold]subagent[/bold]: it runs a worker by its name, with the params worker and request.

[bold]Example[/bold]

  worldagent task subagent --worker 'critic=You judge in one sentence.' -p worker=critic -p request='Judge this: ...'
"""

_APP = """\
A World Agent: turns and tasks whose approach is shaped by roles that nothing stores.

[bold]Example[/bold]

  worldagent ask 'What is the capital of France?'

Exit codes: 0 done, 1 failed, 2 bad usage, 130 interrupted.
"""

# No tracebacks with local variables: one of them may hold a role.
app = typer.Typer(
    name="worldagent",
    help=_APP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _ask(options: AskOptions) -> int:
    from ._ask import ask

    return ask(options)


def _task(options: TaskOptions) -> int:
    from ._task import task

    return task(options)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"worldagent {version('worldagent')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None: ...


app.command("ask", help=_ASK)(options_of(AskOptions, _ask))
app.command("task", help=_TASK)(options_of(TaskOptions, _task))

__all__ = ["app"]
