"""The command `turns rate`."""

from __future__ import annotations

import typer

from .operating import operation
from .options import ThreadsOptions
from .output import Output

app = typer.Typer(name="turns", no_args_is_help=True)


@app.callback()
def _turns() -> None:
    """Turns that have run: say what you think of them.

    [bold]Example[/bold]

      worldagent turns rate turn_01a2 good
    """


@operation(app, "rate", "turn_feedback", show=lambda found: "rated")
def rate(options: ThreadsOptions, output: Output, turn_id: str, feedback: str, note: str | None = None) -> None:
    """Rate a turn, in place of what was said before. Examples for `optimise` carry it.

    What members did in the turn counts as good or bad, too, and their trust changes.

    [bold]Example[/bold]

      worldagent turns rate turn_01a2 bad --note 'It named the wrong city.'

    Args:
        turn_id (TURN): The turn, as `threads show` and `trace list` show it.
        feedback (good|bad): What you think of it.
        note (--note TEXT): Why.
    """
