"""Shows how far a long command is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from .output import Output


@contextmanager
def shown_progress(output: Output) -> Generator[Callable[[str, int, int], None]]:
    """Show how far a long command is: bars on a terminal, else one line for each complete part."""
    if not sys.stderr.isatty():

        def note(part: str, done: int, total: int) -> None:
            if done >= total:
                output.note(f"{part}: {done:,} of {total:,}")

        yield note
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    known: dict[str, TaskID] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True)) as bars:

        def report(part: str, done: int, total: int) -> None:
            bar = known.setdefault(part, TaskID(-1))
            if bar == -1:
                bar = known[part] = bars.add_task(part, total=total)
            bars.update(bar, completed=done, total=total)

        yield report
