"""Other processes that use this checkout, and what this process holds open."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psutil

from support.fork_server import import_all
from support.forks import start
from support.house import ROOT

# Before a command line: the kernel's own switch, in a namespace of its own. Below it no other user namespace is made.
NO_NAMESPACES = ("unshare", "-Ur", "sh", "-c", 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"', "sh")


def environment(**more: str) -> dict[str, str]:
    """Give the environment of a process that imports what this one imports."""
    paths = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    return {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", **more}


async def start_script(script: str, *args: str | Path, fresh: bool = False) -> asyncio.subprocess.Process:
    """Start a script whose standard streams are pipes; a fresh process where the start itself is looked at."""
    return await start((sys.executable, "-W", "error", "-c", script, *args), fresh=fresh, env=environment())


def call_of(function: Callable[..., Coroutine[Any, Any, None]], *args: str | int | Path) -> str:
    """Give a script that runs an async function of a test module or of `support`."""
    module, name = function.__module__.removeprefix("tests."), function.__name__
    return f"""
import asyncio
from pathlib import PosixPath
from {module} import {name}

asyncio.run({name}(*{args!r}))
"""


async def wait_for_kill() -> None:
    """Print the line that `killed` waits for, and never return."""
    sys.stdout.write("there\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


async def run_script(script: str, *args: str | Path, limit: float = 60, fresh: bool = False) -> str:
    """Run a script to its end and give what it printed.

    Raises:
        AssertionError: It failed, or printed something to standard error.
    """
    process = await start_script(script, *args, fresh=fresh)
    out, err = await asyncio.wait_for(process.communicate(), limit)
    assert (process.returncode, err) == (0, b""), err.decode()
    return out.decode()


async def next_line(process: asyncio.subprocess.Process, limit: float = 60) -> str:
    """Give the next line that a process prints; the empty text at its end."""
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), limit)).decode().rstrip("\n")


async def killed(process: asyncio.subprocess.Process, *, at: str = "there", limit: float = 60) -> None:
    """Kill a process with `kill -9` once it has printed the line `at`, and wait for its end.

    Raises:
        AssertionError: It ended before.
    """
    try:
        while (line := await next_line(process, limit)) != at:
            assert line, f"it ended before it printed {at!r}"
    finally:
        if process.returncode is None:
            process.kill()
        await asyncio.wait_for(process.wait(), limit)
    assert process.returncode == -signal.SIGKILL


@asynccontextmanager
async def ending(process: asyncio.subprocess.Process) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Kill a process at the end of the block, if it still runs."""
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@contextmanager
def listening(
    argv: Sequence[str], *, env: Mapping[str, str], errors: Path | None = None, cwd: Path | None = None
) -> Generator[tuple[str, subprocess.Popen[bytes]]]:
    """Run a program whose first line is where it listens; gives that line and the process, which is killed at the end.

    Args:
        argv: The program and its arguments.
        env: Its environment.
        errors: The file for its standard error, which is lost without one.
        cwd: Its folder.
    """
    with open(errors or os.devnull, "wb") as out:
        pipe = subprocess.PIPE
        process = subprocess.Popen(argv, env=env, cwd=cwd, stdin=pipe, stdout=pipe, stderr=out)
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode().strip()
        assert line, f"it did not start: {errors and errors.read_text()}"
        yield line, process
    finally:
        process.kill()
        process.communicate(timeout=60)


def held() -> tuple[int, int, int]:
    """Count open handles, threads and child processes; asyncio's own pool of threads belongs to the loop."""
    process = psutil.Process()
    pool = sum(thread.name.startswith("asyncio_") for thread in threading.enumerate())
    return process.num_fds(), process.num_threads() - pool, len(children())


def children() -> set[psutil.Process]:
    """Give the processes below this one; those of an earlier test may still be among them, and end at any time."""
    return set(psutil.Process().children(recursive=True))


def others() -> int:
    """Count the tasks of the running loop beside this one."""
    return len(asyncio.all_tasks()) - 1


async def eventually(condition: Callable[[], bool], limit: float = 10) -> bool:
    """Tell whether `condition` comes true within `limit` seconds; threads end a moment after they say so."""
    try:
        async with asyncio.timeout(limit):
            while not condition():  # noqa: ASYNC110 -- what threads and handles do sets no event
                await asyncio.sleep(0.01)
    except TimeoutError:
        return False
    return True


def runs(pid: int) -> bool:
    """Tell whether a process runs, of any parent: not one that has ended and is still to be waited for."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def clean_environment(**more: str) -> dict[str, str]:
    """The environment of a process that takes the package from here and no setting of anybody's, and `more`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WORLDAGENT_")}
    return kept | {"PYTHONPATH": os.pathsep.join([str(ROOT / ".dev"), str(ROOT / "tests")])} | more


def forked(work: Callable[[], object]) -> int:
    """Run `work` in a fork of this process, which has no threads yet; gives how it ended."""
    return os.waitstatus_to_exitcode(os.waitpid(started(work), 0)[1])


def forked_result(work: Callable[[], object]) -> tuple[int, Any]:
    """The same, with what it gives as JSON, which is an empty text where it was killed or failed."""
    reading, writing = os.pipe()
    child = started(lambda: os.write(writing, json.dumps(work()).encode()))
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        given = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), given and json.loads(given)


def started(work: Callable[[], object]) -> int:
    """Begin `work` in a fork of this process, which has no threads yet; gives the number of that process."""
    import_all()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # whatever it is, the parent learns of it by the code
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return child


# Effects that outlive a process: lines of a file, which a killed process leaves whole or not at all.


def add(file: Path, line: str) -> None:
    """Add a line; it is on the disk when this returns."""
    with file.open("a") as out:
        out.write(f"{line}\n")
        out.flush()
        os.fsync(out.fileno())


def lines(file: Path) -> list[str]:
    """All lines so far."""
    return file.read_text().splitlines() if file.exists() else []


# Modules of this folder that are programs: they die, or kill forks of their own, which no process with threads can do.


async def run_child(module: str, bound: float = 60, /, **given: object) -> tuple[int, list[Any], str]:
    """Run a module of this folder as a program that may be killed.

    Args:
        module: Its name. It calls `be_program`.
        bound: Seconds until it is given up.
        given: What its work is given.

    Returns:
        How it ended, what it found, and what it printed to standard error.
    """
    if "postgres" in given.values():
        from support.postgres import server  # it starts a server, which the program then takes

        await asyncio.to_thread(server)
    argv = (sys.executable, "-P", ROOT / "tests" / "support" / f"{module}.py", json.dumps(given))
    async with ending(await start(argv, env=clean_environment())) as process:
        out, err = await asyncio.wait_for(process.communicate(), bound)
    assert process.returncode is not None
    return process.returncode, [json.loads(line) for line in out.splitlines()], err.decode()


def run_program(module: str, bound: float, /, **given: object) -> list[dict[str, Any]]:
    """Run such a program to its end; gives what it found, or fails with what it printed."""
    code, found, told = asyncio.run(run_child(module, bound, **given))
    assert code == 0, f"{given}: {told[-2000:]}"
    return found


def be_program(work: Callable[..., Iterable[object]]) -> None:
    """Be such a program: what it is given is a JSON object, what it finds goes out as JSON, one a line."""
    for found in work(**json.loads(sys.argv[1])):
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
