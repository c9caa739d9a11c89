"""A process that is forked shows what a fresh one shows, and none is left when the tests end (support/forks.py)."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from support import forks
from support.processes import environment, eventually, next_line, run_script, runs, start_script

TOLD = """
import asyncio, gc, json, os, random, signal, sys, threading, warnings
print(sys.argv, __name__, sorted(k for k in globals() if k[0] != "_"), sys.path, sys.warnoptions)
print(sys.stdin.read(), os.getcwd(), sorted(os.environ.items()), os.umask(0), sys.dont_write_bytecode)
print([signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)])
print(threading.active_count(), len(os.listdir("/proc/self/task")), threading.current_thread().name)
print(len(os.listdir("/proc/self/fd")), signal.set_wakeup_fd(-1), os.getpid() == os.getpgid(0))
for stream in (sys.stdin, sys.stdout, sys.stderr):
    print(stream.name, stream.mode, stream.encoding, stream.errors, stream.line_buffering, stream.write_through)
    print(type(stream.buffer), stream.fileno(), stream.newlines, stream.isatty())
print(any(isinstance(one, asyncio.AbstractEventLoop) for one in gc.get_objects()))
print(("error", None, Warning, None, 0) in warnings.filters)
"""
ENDS = {
    "pass": 0,
    "raise SystemExit(3)": 3,
    "raise SystemExit('no')": 1,
    "1 / 0": 1,
    "import warnings; warnings.warn('x')": 1,
    "raise KeyboardInterrupt": -signal.SIGINT,
    "import os; os._exit(7)": 7,
    "import os; os.kill(os.getpid(), 9)": -signal.SIGKILL,
    "import os; os.abort()": -signal.SIGABRT,
    "import atexit; atexit.register(print, 'in the end')": 0,
    "import threading; threading.Timer(0.1, print, ['later']).start()": 0,
}


PARENT = "import os; print(os.getppid(), flush=True)\n"


def check_parent(parent: str | bytes, *, fresh: bool) -> None:
    """See that a process is a fork, whose parent is the server, or a fresh one, which all are where there is none."""
    assert (int(parent) == os.getpid()) is (fresh or forks._FRESH)


async def ran(
    script: str, folder: Path, *, fresh: bool, option: tuple[str, ...] = ("-W", "error")
) -> tuple[object, ...]:
    """How it ended, what it printed, and the last line of what it told."""
    words = (sys.executable, *option, "-c", PARENT + script, "one", "two words")
    process = await forks.start(
        words, env=environment(GREETING="hé"), cwd=folder, stdin=PIPE, stdout=PIPE, stderr=PIPE, fresh=fresh
    )
    out, told = await asyncio.wait_for(process.communicate("wörds".encode()), 60)
    parent, *lines = out.decode().splitlines()
    check_parent(parent, fresh=fresh)
    return process.returncode, lines, told.decode().strip().rpartition("\n")[2]


@pytest.mark.parametrize("option", [("-W", "error"), ("-P",)])
async def test_a_fork_finds_what_a_fresh_process_finds(tmp_path: Path, option: tuple[str, ...]) -> None:
    fork, fresh = [await ran(TOLD, tmp_path, fresh=fresh, option=option) for fresh in (False, True)]
    assert fork == fresh
    assert fork[0] == 0


@pytest.mark.parametrize("script", ENDS)
async def test_a_fork_ends_as_a_fresh_process_ends(tmp_path: Path, script: str) -> None:
    fork, fresh = [await ran(script, tmp_path, fresh=fresh) for fresh in (False, True)]
    assert fork == fresh
    assert fork[0] == ENDS[script]


async def test_a_module_and_a_program_run_as_main(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PARENT + "import sys; print(__name__, __file__, sys.argv, sys.path[0])")
    paths = os.pathsep.join((environment()["PYTHONPATH"], str(tmp_path)))
    for words in (("-P", program, "x"), ("-P", "-m", "program", "x"), ("-W", "error", program)):
        told = []
        for fresh in (False, True):
            env = environment(PYTHONPATH=paths)
            process = await forks.start((sys.executable, *words), env=env, stdout=PIPE, fresh=fresh)
            parent, _, text = (await asyncio.wait_for(process.communicate(), 60))[0].partition(b"\n")
            check_parent(parent, fresh=fresh)
            told.append(text)
        assert told[0] == told[1] != b""


async def test_a_fork_begins_with_the_package_imported_and_a_fresh_process_without() -> None:
    script = "import os, sys; print(os.getppid(), [name in sys.modules for name in ('dspy', 'worldagent.agent.agent')])"
    for fresh in (False, True):
        parent, _, imported = (await run_script(script, fresh=fresh)).strip().partition(" ")
        check_parent(parent, fresh=fresh)
        assert imported == str([not (fresh or forks._FRESH)] * 2)


async def test_signals_reach_it_and_two_forks_draw_other_numbers() -> None:
    script = "import random, sys; print(random.random(), flush=True); sys.stdin.read()"
    one, two = await start_script(script), await start_script(script)
    assert await next_line(one) != await next_line(two)
    one.terminate()
    two.send_signal(signal.SIGINT)
    assert (await one.wait(), await two.wait()) == (-signal.SIGTERM, -signal.SIGINT)
    await asyncio.gather(one.communicate(), two.communicate())


STARTS = """
import asyncio, os, signal
from support.processes import next_line, start_script

async def main():
    child = await start_script("import os, sys; print(os.getppid(), flush=True); sys.stdin.read()")
    print(await next_line(child), child.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_the_server_and_its_forks_end_with_the_process_whose_they_are() -> None:
    process = await start_script(STARTS, fresh=True)
    out, told = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == -signal.SIGKILL, told.decode()
    server, child = map(int, out.split())
    assert (server != process.pid) == (sys.platform == "linux")  # elsewhere it is a fresh process
    assert await eventually(lambda: not any(runs(pid) for pid in (server, child)))
