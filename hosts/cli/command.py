"""How a function becomes a command: its options, what it prints, its exit code.

Imported for every `--help`, as every module of a command is: what they import at the top is light, and what the
package is made of loads inside functions, when a command runs.
"""

from __future__ import annotations

import gc
import inspect
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

import typer

from .debug import print_error
from .exits import DONE, FAILED, INTERRUPTED, USAGE, leave
from .output import Output

if TYPE_CHECKING:
    from ...core.errors import WorldAgentError

Work = Coroutine[Any, Any, int | None]
"""What a command does; it gives the exit code, and None is 0."""


def command(function: Callable[..., Any]) -> Callable[..., None]:
    """Make a function that typer takes as a command, with the same docstring.

    Of its parameters, one whose type is a dataclass stands for an option or argument for each field; `output` is no
    option, but prints as `--json`, `--events` and `--verbose` say; all others are as typer knows them.

    Args:
        function: Checks what it is given and loads what it needs, which an interrupt ends at once, and returns the rest
            of the command as a coroutine. One without `output` runs to its end and returns the exit code.
    """
    hints = get_type_hints(function, include_extras=True)
    bags: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if is_dataclass(hints[name]):
            bags[name] = hints[name]
            parameters += _parameters(hints[name])
        elif name != "output":
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))

    def call(**given: Any) -> None:
        words = dict(given)
        for name, bag in bags.items():
            words[name] = bag(**{field.name: words.pop(field.name) for field in fields(bag)})
        if "output" not in hints:
            raise typer.Exit(function(**words))
        output = Output.of(
            json=given.get("json", False) and not given.get("stdio", False),  # where stdout is a client's
            events=given.get("events", False),
            verbose=given.get("verbose", False),
        )
        raise typer.Exit(run(output, lambda: function(**words, output=output)))

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # inspect reads it
    return call


def _parameters(bag: type) -> list[inspect.Parameter]:
    hints = get_type_hints(bag, include_extras=True)
    return [each.replace(annotation=hints[name]) for name, each in inspect.signature(bag).parameters.items()]


def run(output: Output, begin: Callable[[], Work]) -> int:
    """Run one command and return its exit code.

    Args:
        output: Where its errors go.
        begin: Reads what the options name, and returns the rest of the command as a coroutine. What that returns is the
            exit code where the command failed without an error; None is 0.
    """
    import asyncio  # it takes a tenth of what `--help` takes

    from ...core.errors import WorldAgentError

    try:
        work = begin()
        with asyncio.Runner() as runner:
            runner.get_loop()  # it is made by now, since an interrupt in the middle of that would be a traceback
            if signal.getsignal(signal.SIGINT) is leave:  # all is loaded: from here on asyncio cancels the turn
                _hold_interrupts(True)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                work = _interrupted_from_here(work)
            code = runner.run(work)
        gc.freeze()  # the process ends, and its last look for garbage would take longer than it saves
    except KeyboardInterrupt:
        output.interrupted()  # asyncio has cancelled what ran, such as a turn, and waited for its end
        return INTERRUPTED
    except WorldAgentError as error:
        output.error(error)
        print_error(error)
        return _exit_code(error)
    return DONE if code is None else code


def bad_usage(problem: str, *, remedy: str) -> WorldAgentError:
    """Make the error for options that do not fit, an `InvalidArgument`."""
    from ...core.errors import InvalidArgument

    return InvalidArgument(problem, remedy=remedy)


def agreed(
    output: Output, question: str, *, problem: str, remedy: str = "give --yes", notes: Sequence[str] = ()
) -> bool:
    """Ask the person at the terminal whether to go on.

    Args:
        output: What the command prints to; one that prints JSON asks no questions.
        question: What is asked.
        problem: What is wrong where no person can be asked.
        remedy: What to do then.
        notes: What the person is told before.

    Raises:
        InvalidArgument: There is no person to ask.
    """
    if output.form != "text" or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise bad_usage(problem, remedy=remedy)
    for note in notes:
        output.note(note)
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        return False


async def _interrupted_from_here(work: Work) -> int | None:
    """Run a command. Until it runs in its task, asyncio has no place for an interrupt, and it would be a traceback."""
    _hold_interrupts(False)
    return await work


def _hold_interrupts(held: bool, /) -> None:
    """Keep interrupts back, or let them come, those that were kept back too. Windows cannot."""
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_BLOCK if held else signal.SIG_UNBLOCK, {signal.SIGINT})


def _exit_code(error: WorldAgentError) -> int:
    """Bad usage is what was refused before there was a turn; an unknown worker inside a turn is the model's mistake."""
    from ...core.errors import ModelFacing, UsageError

    refused = isinstance(error, UsageError) or (isinstance(error, ModelFacing) and error.turn_id is None)
    return USAGE if refused else FAILED
