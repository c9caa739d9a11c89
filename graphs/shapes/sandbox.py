"""Runs one program in a sandbox: its variables, its calls, its limits and its output (T3).

The sandbox is pydantic-monty: an interpreter without files, network, processes or packages, in a separate process.
Every program gets a new one. The caller decides whether and how a call is made; this module knows nothing of turns.
"""

from __future__ import annotations

import json
import os
import re
import reprlib
import shlex
import shutil
import sys
import sysconfig
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from importlib.util import find_spec
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, JsonValue

from ...core.errors import InvalidArgument, MissingExtra, ModelFacing
from ...core.validation import ClosedModel, storable_json

if TYPE_CHECKING:
    from pydantic_monty import (
        AsyncFunctionSnapshot,
        AsyncMontySession,
        AsyncNameLookupSnapshot,
        AsyncSnapshot,
        CollectString,
        ExternalSettledResult,
        MontyError,
        ResourceLimits,
        SourceRange,
    )

# Functions that take a call and await it later: the text before the call, and the text after it.
_TAKES = r"\b(?:asyncio\.run|gather|create_task|ensure_future|shield|wait_for)\s*\("
_AWAITED = re.compile(r"\bawait[\s(]*\Z")
_HANDED = re.compile(_TAKES + r"\s*(?:\*\s*[\[(]\s*)?\Z")
_ENDED = re.compile(r"\s*(?:[,)\]]|for\b|if\b)")
# A program that awaits a variable.
_LATER = re.compile(r"\bawait[\s(]+[^\W\d][\w.]*\b(?!\w|[ \t]*[.(])")
_LATER_IN_ASYNCIO = re.compile(_TAKES + r"(?:[^()]*,)?\s*(?:\*\s*)?[^\W\d]\w*\s*[,)\[]")
MAX_CHARACTERS_BEFORE_CALL = 2000  # how many characters before a call are read


class AwaitAnalysis:
    """The awaits that the text of a program shows.

    Args:
        code: The program.

    Attributes:
        later: Whether it awaits a variable.
    """

    def __init__(self, code: str) -> None:
        self._code = code.encode("utf-8", "surrogatepass")
        self._asyncio = "asyncio" in code
        self.later = bool(_LATER.search(code) or (self._asyncio and _LATER_IN_ASYNCIO.search(code)))

    def takes(self, position: SourceRange) -> bool:
        """Whether a call is in a place that needs an awaitable, not the value of the call."""
        if not position.filename.startswith("<python-input-"):
            return False  # in a text that the program evaluates itself
        before = self._code[: position.start].decode("utf-8", "replace")
        if _AWAITED.search(before):
            return True
        after = self._code[position.end :].decode("utf-8", "replace")
        if not self._asyncio or not _ENDED.match(after):
            return False
        return _HANDED.search(_up_to_argument(before[-MAX_CHARACTERS_BEFORE_CALL:])) is not None


def _up_to_argument(before: str) -> str:
    """The text before an argument, without the arguments before it; empty if it is not an argument."""
    if before.rstrip()[-1:] not in tuple("([,*"):
        return ""
    depth = 0
    for at in range(len(before) - 1, -1, -1):
        depth += (before[at] in ")]}") - (before[at] in "([{")
        if depth < 0:
            return before[: at + 1]
    return ""


_SCRIPT = """\
#!/bin/sh
exec 2>/dev/null
setpriv --pdeathsig KILL true && exec setpriv --pdeathsig KILL {program} "$@"
exec {program} "$@"
"""


@contextmanager
def launcher() -> Generator[str | None]:
    """The path of a program that starts the sandbox this way; None on systems other than Linux."""
    program = os.environ.get("MONTY_BIN") or shutil.which(
        "monty", path=os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])
    )
    if sys.platform != "linux" or program is None:
        yield None
        return
    with open(os.memfd_create("worldagent-sandbox"), "w", encoding="utf-8") as script:
        script.write(_SCRIPT.format(program=shlex.quote(program)))
        script.flush()
        path = f"/proc/{os.getpid()}/fd/{script.fileno()}"
        yield path if os.access(path, os.X_OK) else None


class _Text(reprlib.Repr):
    """`repr` with limits, and dicts in their own order."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.maxlevel = 20
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxfrozenset = most
        self.maxstring = self.maxlong = self.maxother = most

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        if level <= 0:
            return "{...}"
        items = [f"{self.repr1(k, level - 1)}: {self.repr1(v, level - 1)}" for k, v in islice(x.items(), self.maxdict)]
        return f"{{{', '.join([*items, '...'] if len(x) > len(items) else items)}}}"


def text_of(value: Any, most: int) -> str:
    """The value of a program's last expression.

    Args:
        value: The value.
        most: The limit of useful characters.
    """
    try:
        return _Text(most).repr(value)
    except (RecursionError, ValueError) as error:  # a number can have too many digits
        return f"a {type(value).__name__} that cannot be shown ({type(error).__name__})"


def shown(printed: str, value: str, problem: MontyError | None, unkept: list[str] | None, most: int) -> str:
    """The output of a program. If it is too long, it keeps the beginning of the output and the end of the error.

    Args:
        printed: What it printed.
        value: The value of its last expression, as text.
        problem: The error that ended it.
        unkept: The names of variables that could not be kept; None if no variables are kept.
        most: The limit of characters, without the notes about omitted characters.
    """
    text = "\n".join(filter(None, (printed.rstrip("\n"), value)))
    end = [] if problem is None else [_error_text(problem)]
    if unkept is None:
        end.append("(what this program has set is not kept for the next program)")
    elif unkept:
        end.append(f"(too large for the next program: {', '.join(unkept)})")
    last = "\n".join(end)
    if len(last) > most:  # the actual error is at the end
        last = f"({len(last) - most} characters before) ...{last[-most:]}"
    first = _cut(text, max(most - len(last), 0))
    return "\n".join(filter(None, (first, last)))


def _error_text(problem: MontyError) -> str:
    from pydantic_monty import MontyRuntimeError, MontySyntaxError

    if isinstance(problem, MontyRuntimeError | MontySyntaxError):
        return problem.display()
    return f"the program was stopped: {problem}"


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[:most]}... ({len(text) - most} more characters)"


Stop = Literal["time", "memory", "crash"]
"""The reasons why a program stopped: the limits of time and memory, and the end of the sandbox's process."""

Call = Callable[[str, tuple[Any, ...], dict[str, Any]], Awaitable[Any]]
"""Makes a program's call of a function: its name, its positional arguments and its named arguments."""

MAX_PRINTED_BYTES = 1 << 20  # the limit of printed bytes; `SandboxLimits.output` limits what is shown of them
MAX_CALL_DEPTH = 200  # the limit of nested calls in a program
KILL_AFTER_SECONDS = 5.0  # seconds over the limit after which a hanging sandbox is killed

# This runs before the program, because the program can redefine names that `_KEEP` needs.
_BEFORE = """\
from json import dumps as _wa_dumps
_wa_list, _wa_len, _wa_locals, _wa_error = list, len, locals, Exception
"""
# This runs after the program, among its names: it collects the variables that are plain data, each as JSON.
_KEEP = """\
_kept = {{}}
for _name, _value in _wa_list(_wa_locals().items()):
    try:
        _text = _wa_dumps(_value)
    except _wa_error:
        continue
    _kept[_name] = _text if _wa_len(_text) <= {most} else None
_kept
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """The limits of a program.

    Attributes:
        seconds: How long it can compute; waiting for a function does not count.
        memory: How many bytes it can use.
        output: How many characters of its output are kept.
        calls: How many calls of functions it can make.
        data: How many characters of JSON it can pass on, both in the arguments of one call and in all variables that it
            keeps for the next program.

    Raises:
        InvalidArgument: A limit is not above 0.
    """

    seconds: float = 5.0
    memory: int = 64 << 20
    output: int = 4000
    calls: int = 100
    data: int = 100_000

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if not getattr(self, name) > 0:
                raise InvalidArgument(f"the sandbox limit {name!r} must be above 0", remedy="pass a higher limit")

    def monty(self) -> ResourceLimits:
        """The limits in the form of the sandbox library."""
        return {
            "max_feed_duration_secs": self.seconds,
            "max_memory": self.memory,
            "max_recursion_depth": MAX_CALL_DEPTH,
            # A call can take three: a lookup of its name if it is not called at once, the call, and an await.
            "max_suspensions": 3 * self.calls + 1000,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program and its environment.

    Attributes:
        code: Its text.
        inputs: The variables that it starts with.
        variables: The variables that earlier programs kept; inputs override them.
        functions: The names that it can call.
        at: The time that its clock shows.
        seed: The seed of its random numbers.
    """

    code: str
    inputs: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, Any] = field(default_factory=dict)
    functions: Collection[str] = ()
    at: datetime
    seed: str


class Shown(ClosedModel):
    """The outcome of a program.

    Attributes:
        output: What it printed, the value of its last expression, and the error that ended it.
        variables: The variables that it keeps for the next program.
        stopped: The limit or crash that ended it, which can differ the next time. It is not stored.
    """

    output: str
    variables: dict[str, JsonValue]
    stopped: Stop | None = Field(default=None, exclude=True)


def check_installed() -> None:
    """Check that programs can run.

    Raises:
        MissingExtra: The sandbox is not installed.
    """
    if find_spec("pydantic_monty") is None:
        raise MissingExtra(
            "programs run in a sandbox that is not installed", remedy="install it: pip install 'worldagent[sandbox]'"
        )


async def run_program(program: Program, call: Call, limits: SandboxLimits) -> Shown:
    """Run a program to its end, or until a limit stops it. Its output includes an error of the program.

    Args:
        program: The program.
        call: Makes its calls. A `ModelFacing` error is raised in the program; any other ends it and is raised here.
        limits: The limits of the program.
    """
    from pydantic_monty import CollectString, MontyError

    problem: MontyError | None = None
    value, variables = "", dict(program.variables)
    unkept: list[str] | None = []
    printed = CollectString(max_bytes=MAX_PRINTED_BYTES)
    async with _opened(program, limits) as session:
        try:
            await session.feed_run(_BEFORE)
            value = await _Run(program, call, limits).feed(session, printed)
        except MontyError as error:
            problem = error
        stopped = None if problem is None else _stop(problem)
        if stopped is None:
            variables, unkept = await _left(session, program, limits)
    output = shown(printed.output, value, problem, unkept, limits.output)
    return Shown(output=output, variables=variables, stopped=stopped)


@asynccontextmanager
async def _opened(program: Program, limits: SandboxLimits) -> AsyncGenerator[AsyncMontySession]:
    """Open a sandbox for one program."""
    from pydantic_monty import AsyncMonty

    with launcher() as binary:
        async with (
            AsyncMonty(
                binary_path=binary, max_processes=1, request_timeout=limits.seconds + KILL_AFTER_SECONDS
            ) as pool,
            pool.checkout(
                limits=limits.monty(),
                os_policy={"datetime": program.at, "sleep": "zero", "random_start": {"seed": program.seed}},
            ) as session,
        ):
            yield session


class _Run:
    """One running program."""

    def __init__(self, program: Program, call: Call, limits: SandboxLimits) -> None:
        self._program = program
        self._call = call
        self._limits = limits
        self._calls_left = limits.calls
        self._awaits = AwaitAnalysis(program.code)
        self._awaited: dict[int, ExternalSettledResult] = {}  # the values of awaited calls, by the call's id

    async def feed(self, session: AsyncMontySession, printed: CollectString) -> str:
        """Run the program, and return the value of its last expression as text."""
        from pydantic_monty import AsyncFunctionSnapshot, AsyncNameLookupSnapshot, MontyComplete

        given = {**self._program.variables, **self._program.inputs}
        at: AsyncSnapshot = await session.feed_start(self._program.code, inputs=given, print_callback=printed)
        while not isinstance(at, MontyComplete):
            if isinstance(at, AsyncFunctionSnapshot):
                at = await self._called(at)
            elif isinstance(at, AsyncNameLookupSnapshot):
                at = await self._named(at)
            else:
                at = await at.resume({number: self._awaited.pop(number) for number in sorted(at.pending_call_ids)})
        return "" if at.output is None else text_of(at.output, self._limits.output)

    async def _named(self, asked: AsyncNameLookupSnapshot) -> AsyncSnapshot:
        name = asked.variable_name
        if asked.object_id is not None or name not in self._program.functions:
            return await asked.resume()

        def function() -> None: ...

        function.__name__ = function.__qualname__ = name
        return await asked.resume(value=function)  # never called: calling it arrives as a call by name

    async def _called(self, asked: AsyncFunctionSnapshot) -> AsyncSnapshot:
        name = asked.function_name
        if asked.is_os_function:
            return await asked.resume_not_handled()
        if asked.object_id is not None or name not in self._program.functions:
            return await asked.resume({"exc_type": "NameError", "message": f"name {name!r} is not defined"})
        awaited = asked.allow_eager_await or self._awaits.takes(asked.position)
        if self._awaits.later and not awaited:
            problem = f"{name!r} was not called: write `await {name}(...)` in a program that awaits"
            return await asked.resume({"exc_type": "RuntimeError", "message": problem})
        self._calls_left -= 1
        problem = self._too_much(asked.args, asked.kwargs)
        if problem:
            return await asked.resume({"exc_type": "RuntimeError", "message": problem})
        given: ExternalSettledResult
        try:
            given = {"return_value": await self._call(name, asked.args, asked.kwargs)}
        except ModelFacing as error:
            given = {"exc_type": "RuntimeError", "message": f"{error.code}: {error.for_model}"}
        if not awaited:
            return await asked.resume(given)
        self._awaited[asked.call_id] = given
        return await asked.resume({"future": ...})

    def _too_much(self, placed: tuple[Any, ...], named: dict[str, Any]) -> str:
        """The reason why a call of any function cannot be made; empty if it can."""
        if self._calls_left < 0:
            return "too many calls of functions"
        try:
            size = len(json.dumps([placed, named], default=str))
        except (RecursionError, TypeError, ValueError):  # nested too deeply, or recursively
            size = self._limits.data + 1
        return "the arguments are too large" if size > self._limits.data else ""


async def _left(
    session: AsyncMontySession, program: Program, limits: SandboxLimits
) -> tuple[dict[str, Any], list[str] | None]:
    """The variables that a program keeps, and the names of those that are too large; None if none can be read."""
    from pydantic_monty import MontyError

    try:
        found = await session.feed_run(_KEEP.format(most=limits.data))
    except (MontyError, RuntimeError):  # the sandbox is gone, or the program redefined a name
        return dict(program.variables), None
    kept: dict[str, Any] = {}
    unkept: list[str] = []
    room = limits.data
    for name, text in found.items() if isinstance(found, dict) else ():
        if not isinstance(name, str) or name.startswith("_") or name in program.inputs or name in program.functions:
            continue
        room -= len(text) if isinstance(text, str) else 0
        if not isinstance(text, str) or room < 0:
            unkept.append(name)
            continue
        with suppress(RecursionError, TypeError, ValueError):  # values that a database cannot hold
            value = json.loads(text)
            storable_json(value)
            kept[name] = value
    return kept, unkept


def _stop(problem: MontyError) -> Stop | None:
    """The reason why the sandbox stopped. It cannot be used any more then."""
    from pydantic_monty import MontyCrashedError

    if isinstance(problem.exception(), MemoryError):
        return "memory"
    if isinstance(problem.exception(), TimeoutError) or getattr(problem, "timed_out", False):
        return "time"
    return "crash" if isinstance(problem, MontyCrashedError) else None
