"""How a function becomes a command: its options, its errors, its signals, its exit code.

Every `--help` imports this module and the modules of all commands. So their top-level imports must be light, and the
rest of the package is imported inside functions, when a command runs.
"""

from __future__ import annotations

import gc
import inspect
import signal
import sys
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_type_hints

import typer
from typer.models import ParameterInfo

from .exits import DONE, FAILED, INTERRUPTED, USAGE, exit_early
from .options import JSON_RESULT, documented
from .output import Output

if TYPE_CHECKING:
    from pathlib import Path

    from ...core.errors import WorldAgentError
    from ...storage import Storage

T = TypeVar("T")

Work = Coroutine[Any, Any, int | None]
"""The work of a command. It returns the exit code; None is 0."""


def command(
    app: typer.Typer,
    name: str | None = None,
    *,
    panel: str | None = None,
    json: bool = True,
    cls: Any = None,
    work: Callable[..., Work] | None = None,
    asks: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function a command of an app, with the same docstring.

    The docstring documents the options and arguments, in its section `Args` (see `documented`), or the default of a
    parameter is one that several commands share. A parameter whose type is an `option_group` becomes one for each
    field. The parameter `output` is not an option: it prints as `--json`, `--events` and `--verbose` say.

    The function is a coroutine function, or it checks its arguments and loads what it needs, which an interrupt ends at
    once, and returns the rest of the command as a coroutine. A function without `output` runs to its end and returns
    the exit code.

    Args:
        app: The app.
        name: The command's name, if it is not that of the function.
        panel: The heading in `--help` that it is listed under.
        json: Whether a command with `output` takes `--json`.
        cls: The class of the command.
        work: Called in place of the function, which then only declares the options and says what they do.
        asks: The operations that it is the command of.
    """

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        made = _command(function, work or function, json=json)
        made.asks, made.derived = asks, work is not None  # type: ignore[attr-defined]  # tests compare them with the table
        app.command(name, rich_help_panel=panel, cls=cls)(made)
        return function

    return add


def _command(function: Callable[..., Any], work: Callable[..., Any], *, json: bool) -> Callable[..., None]:
    hints = get_type_hints(function)
    text, found = documented(function.__doc__ or "", "Args")
    bags: dict[str, Any] = {}
    shown: dict[str, tuple[Any, ParameterInfo]] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if is_dataclass(hints[name]):
            bags[name] = hints[name]
            types = get_type_hints(hints[name])
            shown |= {each.name: (types[each.name], each.metadata["declared"]) for each in fields(hints[name])}
        elif name != "output":
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            shown[name] = hints[name], default if isinstance(default, ParameterInfo) else found[name](default)
    own = {*shown}
    if json and "output" in hints:
        shown.setdefault("json", (bool, JSON_RESULT))

    def call(**given: Any) -> None:
        words = {name: value for name, value in given.items() if name in own}
        for name, bag in bags.items():
            words[name] = bag(**{field.name: words.pop(field.name) for field in fields(bag)})
        if "output" not in hints:
            raise typer.Exit(work(**words))
        output = Output(
            json=given.get("json", False) and not given.get("stdio", False),  # then stdout is the client's
            events=given.get("events", False),
            verbose=given.get("verbose", False),
        )
        raise typer.Exit(run(output, lambda: work(**words, output=output)))

    call.__name__, call.__doc__ = function.__name__, text
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # inspect reads it
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=info, annotation=kind)
            for name, (kind, info) in shown.items()
        ]
    )
    return call


def run(output: Output, begin: Callable[[], Work]) -> int:
    """Run one command and return its exit code.

    Args:
        output: Where its errors go.
        begin: Reads what the options name, and returns the rest of the command as a coroutine. The coroutine returns
            the exit code if the command failed without an error; None is 0.
    """
    import asyncio  # importing it takes a tenth of the time of `--help`

    from ...core.errors import WorldAgentError

    try:
        work = begin()
        with asyncio.Runner() as runner:
            runner.get_loop()  # made now: an interrupt while it is made would print a traceback
            if signal.getsignal(signal.SIGINT) is exit_early:  # from here on asyncio cancels the turn
                _hold_interrupts(True)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                work = _with_interrupts(work)
            code = runner.run(work)
        gc.freeze()  # a last collection at the end of the process would cost more than it saves
    except KeyboardInterrupt:
        output.interrupted()  # asyncio has cancelled the work and waited for its end
        return INTERRUPTED
    except WorldAgentError as error:
        output.error(error)
        print_error(error)
        return _exit_code(error)
    return DONE if code is None else code


def bad_usage(problem: str, *, remedy: str) -> WorldAgentError:
    """Make the error for invalid options, an `InvalidArgument`."""
    from ...core.errors import InvalidArgument

    return InvalidArgument(problem, remedy=remedy)


def storage_of(home: Path | None) -> Storage:
    """The storage of a command: the home that an option names, else that of the settings."""
    from ...agent import Settings
    from ...storage import Storage

    return Settings().storage(Storage(home=home))


def confirm(
    output: Output,
    yes: bool,
    question: str,
    *,
    problem: str,
    remedy: str = "give --yes",
    notes: Sequence[str] = (),
    kept: str = "nothing was removed",
) -> None:
    """Ask the person at the terminal to confirm, unless `--yes` does. If they do not, the command ends with code 1.

    Args:
        output: The output of the command. With JSON output, no question is asked.
        yes: Whether `--yes` is given.
        question: The question.
        problem: The problem of the error if no person can be asked.
        remedy: The remedy of that error.
        notes: Notes to show before the question.
        kept: What is said if they do not.

    Raises:
        InvalidArgument: No person can be asked.
    """
    if yes:
        return
    if output.form != "text" or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise bad_usage(problem, remedy=remedy)
    for note in notes:
        output.note(note)
    with suppress(typer.Abort):
        if typer.confirm(question, err=True):
            return
    output.note(kept)
    raise typer.Exit(FAILED)


async def _with_interrupts(work: Work) -> int | None:
    """Run a command. Before it runs in its task, asyncio cannot handle an interrupt and would print a traceback."""
    _hold_interrupts(False)
    return await work


def _hold_interrupts(held: bool, /) -> None:
    """Hold interrupts back, or deliver all of them, also those that were held back. Windows cannot."""
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_BLOCK if held else signal.SIG_UNBLOCK, {signal.SIGINT})


def _exit_code(error: WorldAgentError) -> int:
    """Bad usage is refused before a turn begins. Inside a turn, an error such as an unknown worker is the model's."""
    from ...core.errors import ModelFacing, UsageError

    refused = isinstance(error, UsageError) or (isinstance(error, ModelFacing) and error.turn_id is None)
    return USAGE if refused else FAILED


# --- signals ----------------------------------------------------------------------------------------------------------


@contextmanager
def signals_handled(handlers: Mapping[int, Callable[[], object]]) -> Generator[None]:
    """Let the running loop call a handler for each signal.

    Event loops on Windows take no handlers, and only the main thread receives signals. In other cases, signals keep
    their default effect.

    Args:
        handlers: The handlers by signal number.
    """
    import asyncio
    import threading

    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


async def until_sigterm(work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of `work`, or None if SIGTERM cancelled it. It cleans up then, as after an interrupt."""
    import asyncio

    task = asyncio.current_task()
    assert task is not None
    asked = False

    def stop() -> None:
        nonlocal asked
        asked = True
        task.cancel()

    try:
        with signals_handled({signal.SIGTERM: stop}):
            return await work
    except asyncio.CancelledError:
        if not asked:
            raise
    return None


# --- --debug: where an error comes from -------------------------------------------------------------------------------

# Messages of services and libraries repeat what they were sent, and lines of source code can hold a role. So only
# types, numbers, identifiers and places in the code are printed (R7).

DEBUG: Final[ContextVar[bool]] = ContextVar("worldagent_debug", default=False)
"""Whether the command was started with `--debug`."""

_MAX_CAUSES: Final = 10


def print_error(error: WorldAgentError) -> None:
    """Print where the error of a command comes from, if `--debug` is set."""
    if not DEBUG.get():
        return
    answer = (("status", "status"), ("code", "service_code"), ("request id", "request_id"))
    values = [(name, getattr(error, attribute, None)) for name, attribute in answer]
    lines = [f"  {name} of the service's answer: {value}" for name, value in values if value is not None]
    lines += [f"  turn: {error.turn_id}"] if error.turn_id else []
    _print([f"{_type(error)} ({error.code})", *lines, *_frames(error)])


def print_original(error: BaseException) -> None:
    """Print the original exception of a model call, which the turn's error replaces; see `WorldAgent(on_error=...)`."""
    lines = ["a model call failed; messages are omitted, because they can repeat the prompt"]
    cause: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if cause is None:
            break
        status = getattr(cause, "status", None)
        http = f" (HTTP {status})" if isinstance(status, int) else ""
        lines += [f"{_type(cause)}{http}", *_frames(cause)]
        cause = cause.__cause__ or cause.__context__
    _print(lines)


def print_raised(error: BaseException) -> None:
    """Print what a metric raised, with its message: a metric is the user's own code, and gets no role."""
    _print([f"the metric raised {_type(error)}: {error}", *_frames(error)])


def _frames(error: BaseException) -> Iterator[str]:
    import traceback

    for frame, line in traceback.walk_tb(error.__traceback__):
        yield f"  {frame.f_code.co_filename}:{line} in {frame.f_code.co_qualname}"


def _type(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"


def _print(lines: list[str]) -> None:
    print("\n".join(f"debug: {line}" for line in lines), file=sys.stderr)
