"""What a program of an investigation cannot do: reach files, sockets, processes or packages, or run past its limits."""

import asyncio
import os
import socket
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.processes import children, eventually, next_line, start_script
from worldagent.core.errors import CallRefused, HostUnavailable
from worldagent.graphs.shapes import SandboxLimits
from worldagent.graphs.shapes.sandbox import Program, Shown, run_program

AT = datetime(2030, 1, 1, 9, 30, tzinfo=UTC)
SMALL = SandboxLimits(seconds=0.5, memory=16 << 20, output=500, calls=3, data=1000)

pytestmark = pytest.mark.requirement("T3")


async def refused(name: str, placed: tuple[Any, ...], named: dict[str, Any]) -> Any:
    raise AssertionError(f"{name} was called")


async def run(code: str, call: Any = refused, limits: SandboxLimits = SMALL, **more: Any) -> Shown:
    return await run_program(Program(code=code, at=AT, seed="seed", **more), call, limits)


async def test_it_shows_what_it_prints_and_its_last_expression() -> None:
    assert (await run("print('a', 1)\nx = 2\n[x, {'b': x}]")).output == "a 1\n[2, {'b': 2}]"
    assert (await run("x = 1")).output == ""
    assert (await run("{'z': 1, 'a': 2}")).output == "{'z': 1, 'a': 2}"


SECRET = "what-no-program-may-see"


@pytest.mark.parametrize(
    "code",
    [
        "open({file!r}).read()",
        "from pathlib import Path\nPath({file!r}).read_text()",
        "from pathlib import Path\nPath({folder!r} + '/new').write_text('x')",
        "import os\nprint(os.environ['SECRET'])",
    ],
)
async def test_it_reads_no_file_and_no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    monkeypatch.setenv("SECRET", SECRET)
    output = (await run(code.format(file=str(file), folder=str(tmp_path)))).output
    assert SECRET not in output
    assert "Error" in output
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


async def test_it_reaches_no_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        for code in (
            f"import socket\nsocket.create_connection(('127.0.0.1', {port}))",
            f"import urllib.request\nurllib.request.urlopen('http://127.0.0.1:{port}')",
            f"import http.client\nhttp.client.HTTPConnection('127.0.0.1', {port}).request('GET', '/')",
            f"import asyncio\nawait asyncio.open_connection('127.0.0.1', {port})",
        ):
            assert "Error" in (await run(code)).output
        with pytest.raises(TimeoutError):
            server.accept()


@pytest.mark.parametrize(
    "code",
    [
        "import subprocess\nsubprocess.run(['touch', {new!r}])",
        "import ctypes",
        "__import__('os').system('touch ' + {new!r})",
        "[c for c in ().__class__.__base__.__subclasses__() if c.__name__ == 'Popen']",
    ],
)
async def test_it_starts_no_process_and_imports_no_package(tmp_path: Path, code: str) -> None:
    new = tmp_path / "new"
    assert "Error" in (await run(code.format(new=str(new)))).output
    assert not new.exists()


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("try:\n    while True: pass\nexcept BaseException:\n    pass\nwhile True: pass", "time limit"),
        ("import re\nre.match('(a|aa)+$', 'a' * 60 + 'b')", ""),
        ("x = []\nwhile True: x.append('a' * 100000)", "memory limit"),
        ("def f(n): return f(n + 1)\nf(0)", "recursion"),
        ("while True: print('a' * 1000)", "limit"),
        ("import time\ntime.sleep(3600)", ""),
        ("(" * 5000, "Error"),
    ],
)
async def test_it_does_not_run_past_its_limits(code: str, says: str) -> None:
    limits = SandboxLimits(seconds=0.5, memory=16 << 20, output=500)
    output = (await run(code, limits=limits)).output  # without them it would take an hour at least, or all memory
    assert says in output
    assert len(output) < 600


async def test_it_may_make_so_many_calls_and_no_more() -> None:
    calls: list[int] = []

    async def call(name: str, placed: tuple[Any, ...], named: dict[str, Any]) -> Any:
        calls.append(placed[0])

    output = (await run("for i in range(10): note(i)", call, functions=["note"])).output
    assert calls == [0, 1, 2]
    assert "too many calls" in output
    await run("for i in range(10):\n    try: note(i)\n    except Exception: pass", call, functions=["note"])
    assert calls == [0, 1, 2] * 2


async def test_what_it_shows_is_cut_and_the_error_is_kept() -> None:
    output = (await run("print('a' * 5000)\n1 / 0")).output
    assert len(output) < 600
    assert output.startswith("aaa")
    assert "more characters" in output
    assert output.endswith("ZeroDivisionError: division by zero")


async def test_plain_variables_last_to_the_next_program_also_after_an_error() -> None:
    code = "import math\nrows = [1, {'a': None}]\nnone = None\nnan = float('nan')\ndef f(): pass\n_own = 1\n"
    code += "big = 'a' * 5000\n"
    shown = await run(f"{code}given = 2\n1 / 0", inputs={"given": 1})
    assert shown.variables == {"rows": [1, {"a": None}], "none": None}
    assert "too large for the next program: big" in shown.output
    again = await run("rows.append(given)\nrows", variables=shown.variables, inputs={"given": 1})
    assert again.output == "[1, {'a': None}, 1]"


async def test_an_error_for_the_model_is_raised_in_the_program_and_one_for_the_host_ends_it() -> None:
    async def call(name: str, placed: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if name == "pay":
            raise CallRefused("a person said no", remedy="do without it")
        raise HostUnavailable("the host is down", remedy="try again")

    code = "try:\n    pay()\nexcept RuntimeError as error:\n  print(error)"
    assert (await run(code, call, functions=["pay"])).output == "call_refused: a person said no"
    with pytest.raises(HostUnavailable):
        await run("try:\n    down()\nexcept BaseException:\n    pass", call, functions=["down"])


async def test_a_program_that_is_cancelled_leaves_no_process() -> None:
    before = children()
    there = asyncio.Event()

    async def call(name: str, placed: tuple[Any, ...], named: dict[str, Any]) -> Any:
        there.set()

    for code in ("here()\nwhile True: pass", "here()\nimport time\ntime.sleep(10**6)\nwhile True: pass"):
        there.clear()
        running = asyncio.create_task(run(code, call, SandboxLimits(seconds=3600), functions=["here"]))
        await asyncio.wait_for(there.wait(), 30)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await eventually(lambda: children() <= before)


async def test_dead_sandbox_is_reported_and_replaced() -> None:
    def workers() -> list[psutil.Process]:
        return [child for child in children() if "monty" in child.name()]

    there = asyncio.Event()
    go = asyncio.Event()

    async def call(name: str, placed: tuple[Any, ...], named: dict[str, Any]) -> Any:
        there.set()
        await go.wait()

    running = asyncio.create_task(run("here()\nprint('on')", call, functions=["here"], variables={"x": 1}))
    await asyncio.wait_for(there.wait(), 30)
    [worker] = workers()
    os.kill(worker.pid, 9)
    go.set()
    shown = await running
    assert "the program was stopped" in shown.output
    assert shown.variables == {"x": 1}
    assert (await run("1 + 1")).output == "2"


RUNS_ON = """
import asyncio
from datetime import UTC, datetime
from worldagent.graphs.shapes import SandboxLimits
from worldagent.graphs.shapes.sandbox import Program, run_program
import sys

async def call(name, placed, named):
    print("there", flush=True)

program = Program(code="here()\\nwhile True: pass", at=datetime.now(UTC), seed="", functions=["here"])
asyncio.run(run_program(program, call, SandboxLimits(seconds=float(sys.argv[1]))))
"""


async def test_a_sandbox_ends_with_a_process_that_is_killed() -> None:
    seconds = 3600 if sys.platform == "linux" else 5  # elsewhere it ends at its own time limit
    process = await start_script(RUNS_ON, str(seconds))
    assert await next_line(process) == "there"
    workers = psutil.Process(process.pid).children(recursive=True)
    assert any("monty" in worker.name() for worker in workers)
    process.kill()
    await process.wait()
    assert await eventually(lambda: not any(worker.is_running() for worker in workers))


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("import asyncio\nawait asyncio.gather(*[pay(k) for k in 'ab'])", "['paid a', 'paid b']"),
        ("import asyncio\nprint(asyncio.run(pay('a')), pay('b'))", "paid a paid b"),
    ],
)
async def test_calls_may_be_handed_to_asyncio(code: str, output: str) -> None:
    called: list[str] = []

    async def call(name: str, placed: tuple[Any, ...], named: dict[str, Any]) -> Any:
        called.append(placed[0])
        return f"paid {placed[0]}"

    for _ in range(2):
        assert (await run(code, call, functions=["pay"])).output == output
        assert called == ["a", "b"]
        called.clear()


@pytest.mark.parametrize("code", ["x = pay('a')\nawait x", "import asyncio\nx = pay('a')\nasyncio.run(x)"])
async def test_call_that_is_not_awaited_is_refused(code: str) -> None:
    assert "'pay' was not called: write `await pay(...)`" in (await run(code, functions=["pay"])).output
