"""The tool `shell`: what a command gets, what comes back, what stops it, and that nothing of it goes on (P2, H9)."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.agents import scripted_agent
from support.processes import NO_NAMESPACES, children, environment, eventually, held, killed, start_script
from worldagent import WorldAgent
from worldagent.core.errors import AgentClosed, ParamsInvalid, PathRefused, ToolFailed
from worldagent.testing import ScriptedLM
from worldagent.tools.files import Roots
from worldagent.tools.program import Program
from worldagent.tools.shell import ShellResult, shell_function

pytestmark = [pytest.mark.timeout(90), pytest.mark.skipif(os.name != "posix", reason="there is no /bin/sh")]
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of processes that left their group")

FOR_EVER = f"sleep 4{os.getpid():07d}"
"""It has the number of this process, since tests run side by side."""


def agent(home: Path, **options: Any) -> WorldAgent:
    """An agent with the tool; its commands run in the folder `work`."""
    work = home / "work"
    work.mkdir(exist_ok=True)
    return scripted_agent(home / "home", ScriptedLM([]), tools=[shell_function(Roots([work]), **options)])


async def run(home: Path, command: str, *, given: dict[str, Any] | None = None, **options: Any) -> ShellResult:
    """Run one command."""
    async with agent(home, **options) as opened:
        result = await opened.call("shell", {"command": command, **(given or {})})
    assert isinstance(result, ShellResult)
    return result


def left(mark: str) -> list[psutil.Process]:
    """The processes whose command line has `mark`, wherever they have gone."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if mark in " ".join(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


async def test_output_comes_back_in_order_with_the_exit_code(tmp_path: Path) -> None:
    result = await run(tmp_path, "echo one; echo two >&2; echo three; exit 3")
    assert result == ShellResult(exit_code=3, output="one\ntwo\nthree\n", stopped=None, cut=0)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("a\0b", "must not contain a null character"),
        ("x" * 100_001, "is longer than 100,000 bytes"),
    ],
)
async def test_a_command_that_no_shell_takes_is_refused(tmp_path: Path, command: str, says: str) -> None:
    with pytest.raises(ToolFailed, match=says):
        await shell_function(Roots([tmp_path])).body(command=command)


async def test_a_cancelled_wait_for_the_end_of_a_program_is_raised_after_its_end(tmp_path: Path) -> None:
    (tmp_path / "reads.py").write_text("import sys; sys.stdin.read()")
    program = await Program.start(tmp_path / "reads.py", env={})
    ending = asyncio.create_task(program.end(patience=20))
    await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert program.exit_code is not None


async def test_it_has_no_input_and_no_terminal(tmp_path: Path) -> None:
    command = "cat; echo over; test -t 0 || test -t 1 || (echo x > /dev/tty) 2>/dev/null || echo none"
    assert (await run(tmp_path, command)).output == "over\nnone\n"


async def test_it_gets_nothing_secret_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "DATABASE_URL", "HTTPS_PROXY", "PGPASSWORD", "SSH_AUTH_SOCK", "LCX", "PYTHONPATH"):
        monkeypatch.setenv(name, "canary")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    result = await run(tmp_path, "env; tr '\\0' '\\n' </proc/$PPID/environ 2>/dev/null")
    assert "canary" not in result.output
    assert {"LC_TIME=C", "TZ=Asia/Tokyo", f"HOME={os.environ['HOME']}"} <= set(result.output.splitlines())


PLANTED = """
import asyncio, json, sys
from pathlib import Path

from worldagent.tools.files import Roots
from worldagent.tools.shell import shell_function

async def main():
    shell = shell_function(Roots([Path(sys.argv[1])])).body
    for command in sys.argv[2:]:
        print(json.dumps((await shell(command=command)).model_dump()))

asyncio.run(main())
"""
EVERY_ENVIRONMENT = "cat /proc/[0-9]*/environ | tr '\\0' '\\n'; id -u; id -g"
PARENT = "P=$(awk '{print $4}' /proc/$PPID/stat); cat /proc/$(awk '{print $4}' /proc/$P/stat)/environ"


async def planted(home: Path, *commands: str, before: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """The results of commands in a process that has a key in its environment from its beginning."""
    argv = (*before, sys.executable, "-P", "-c", PLANTED, str(home), *commands)
    env = environment(OPENAI_API_KEY="sk-canary")
    process = await asyncio.create_subprocess_exec(*argv, env=env, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    return [json.loads(line) for line in out.splitlines()]


def namespaces() -> bool:
    """Whether this system lets a process make user namespaces."""
    try:
        command = ["unshare", "--user", "--map-current-user", "true"]
        made = subprocess.run(command, check=False, timeout=20, capture_output=True)
    except OSError:
        return False
    return made.returncode == 0


with_namespaces = pytest.mark.skipif(not namespaces(), reason="this system lets no process make user namespaces")


@on_linux
@with_namespaces
async def test_it_cannot_read_the_hosts_keys_in_proc(tmp_path: Path) -> None:
    every, parent = await planted(tmp_path, EVERY_ENVIRONMENT, PARENT)
    assert "sk-canary" not in every["output"]
    assert every["output"].splitlines()[-2:] == [str(os.getuid()), str(os.getgid())]
    assert parent["exit_code"] != 0
    assert "Permission denied" in parent["output"]


LOOKED_AT = """
import asyncio

from worldagent.hosts.doctor import check_installation

[found] = [each for each in asyncio.run(check_installation()) if each.id == "tools.shell"]
print(found.status, found.detail or found.problem)
"""


@on_linux
@with_namespaces
async def test_doctor_warns_where_the_system_makes_no_namespaces(tmp_path: Path) -> None:
    env = environment(WORLDAGENT_HOME=str(tmp_path / "home"), WORLDAGENT_LM="openai/none")  # which is checked at once
    argv = (*NO_NAMESPACES, sys.executable, "-P", "-c", LOOKED_AT)
    process = await asyncio.create_subprocess_exec(*argv, env=env, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(60):
        warned, _ = await process.communicate()
    assert warned.startswith(b"warn a command of the tool `shell` can read the environment of the process")


@on_linux
async def test_it_gets_none_of_the_hosts_handles(tmp_path: Path) -> None:
    handle = os.open(tmp_path / "open", os.O_CREAT)
    os.set_inheritable(handle, True)
    result = await run(tmp_path, "for each in /proc/self/fd/*; do readlink $each; done")
    os.close(handle)
    assert str(tmp_path / "open") not in result.output
    assert {line.partition(":")[0] for line in result.output.splitlines()} <= {"/dev/null", "pipe"}


async def test_a_call_leaves_no_handle_open(tmp_path: Path) -> None:
    body = shell_function(Roots([tmp_path])).body
    await body(command="true")
    before, running = held(), children()
    for command in ("true", f"{FOR_EVER}1 &", "kill -9 $PPID"):
        await body(command=command)
    assert await eventually(lambda: held()[0] == before[0] and children() <= running)


async def test_it_runs_in_a_folder_that_is_allowed(tmp_path: Path) -> None:
    async with agent(tmp_path) as opened:
        (tmp_path / "work" / "in").mkdir()
        os.symlink("/", tmp_path / "work" / "out")
        assert (await opened.call("shell", {"command": "pwd -P"})).output == f"{(tmp_path / 'work').resolve()}\n"
        assert (await opened.call("shell", {"command": "basename $PWD", "cwd": "in"})).output == "in\n"
        for outside in ("..", "/", "out", "in/../.."):
            with pytest.raises(PathRefused):
                await opened.call("shell", {"command": "pwd", "cwd": outside})
        with pytest.raises(ToolFailed):
            await opened.call("shell", {"command": "pwd", "cwd": "missing"})


def test_it_is_declared_as_what_it_is() -> None:
    function = shell_function(Roots([]), timeout=7)
    assert function.risk == ("write", "network", "destructive")
    assert function.untrusted
    assert not function.idempotent
    assert "killed after 7 seconds" in function.description


@pytest.mark.parametrize(
    ("command", "exit_code"),
    [
        ("nohup SLEEP >/dev/null 2>&1 & echo done", 0),
        pytest.param("setsid SLEEP & echo done; kill -9 $PPID; SLEEP", 137, marks=on_linux),
        ("trap '' TERM HUP INT; SLEEP & echo done; kill -9 0", 137),
    ],
)
async def test_the_processes_of_a_command_end_with_it(tmp_path: Path, command: str, exit_code: int) -> None:
    before = children()
    async with agent(tmp_path, timeout=30) as opened:
        async with asyncio.timeout(10):
            result = await opened.call("shell", {"command": command.replace("SLEEP", f"{FOR_EVER}1")})
        assert left(f"{FOR_EVER}1") == []
        assert children() <= before
    assert (result.exit_code, result.output, result.stopped) == (exit_code, "done\n", None)


@pytest.mark.parametrize(
    ("command", "seconds", "stopped", "output"),
    [
        pytest.param("echo begun; trap '' TERM; setsid SLEEP & SLEEP", 0.5, "time", "begun\n", marks=on_linux),
        pytest.param("while :; do SLEEP & done", 40, "processes", None, marks=on_linux),
        ("kill -STOP $PPID; SLEEP", 0.5, "time", None),
    ],
)
async def test_limit_kills_tree(tmp_path: Path, command: str, seconds: float, stopped: str, output: str | None) -> None:
    async with asyncio.timeout(60 if stopped == "processes" else 10):
        result = await run(tmp_path, command.replace("SLEEP", f"{FOR_EVER}2"), timeout=seconds)
    assert (result.exit_code, result.stopped) == (None, stopped)
    assert output in (None, result.output)
    assert left(f"{FOR_EVER}2") == []


async def test_a_call_can_ask_for_less_time_and_not_for_more(tmp_path: Path) -> None:
    async with agent(tmp_path, timeout=0.5) as opened, asyncio.timeout(20):
        for seconds in (0.2, 1000):
            assert (await opened.call("shell", {"command": FOR_EVER, "timeout": seconds})).stopped == "time"
        with pytest.raises(ParamsInvalid):
            await opened.call("shell", {"command": FOR_EVER, "timeout": 0})


@on_linux
@pytest.mark.parametrize("ends", [asyncio.CancelledError, AgentClosed])
async def test_a_call_that_is_cancelled_or_whose_agent_closes_leaves_nothing(tmp_path: Path, ends: Any) -> None:
    async with agent(tmp_path) as opened:
        command = f"setsid {FOR_EVER}3 & touch begun; {FOR_EVER}3"
        call = asyncio.create_task(opened.call("shell", {"command": command}))
        assert await eventually((tmp_path / "work" / "begun").exists)
        if ends is AgentClosed:
            await opened.aclose()
        else:
            call.cancel()
        with pytest.raises(ends):
            await call
        assert left(f"{FOR_EVER}3") == []


@on_linux
async def test_a_host_that_is_killed_takes_it_along(tmp_path: Path) -> None:
    script = f"""
import asyncio, sys
from pathlib import Path
from worldagent.tools.files import Roots
from worldagent.tools.shell import shell_function

async def main():
    body = shell_function(Roots([Path(sys.argv[1])])).body
    call = asyncio.create_task(body(command="setsid {FOR_EVER}6 & touch begun; {FOR_EVER}6"))
    while not (Path(sys.argv[1]) / "begun").exists():
        await asyncio.sleep(0.01)
    print("there", flush=True)
    await call

asyncio.run(main())
"""
    await killed(await start_script(script, tmp_path))
    assert await eventually(lambda: left(f"{FOR_EVER}6") == [])


async def test_of_long_output_beginning_and_end_are_kept(tmp_path: Path) -> None:
    result = await run(tmp_path, "echo first; seq 1 100000; echo last", limit=100)
    assert result.output.startswith("first\n1\n2\n")
    assert result.output.endswith("\n100000\nlast\n")
    assert f"[... {result.cut:,} bytes are omitted here ...]" in result.output
    assert result.cut == len("first\nlast\n") + sum(len(f"{n}\n") for n in range(1, 100001)) - 100


async def test_one_that_writes_without_end_is_killed(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        result = await run(tmp_path, "yes", limit=1000)
    assert (result.stopped, result.exit_code) == ("output", None)
    assert len(result.output) < 1100
    assert result.cut > 1 << 20


LAUNCHER = "L=$(awk '{print $4}' /proc/$PPID/stat); "


@on_linux
@pytest.mark.parametrize(
    "command",
    [
        "kill -TERM $L; FOREVER",
        "head -c 200000 /dev/zero >/proc/$L/fd/1; FOREVER",
        """echo '{"exit_code": "canary", "stopped": null, "size": 5, "head": 0}' >/proc/$L/fd/1; kill -9 $L""",
    ],
)
async def test_a_command_that_disturbs_its_launcher_fails(tmp_path: Path, command: str) -> None:
    async with asyncio.timeout(20):
        with pytest.raises(ToolFailed, match="the command was lost") as caught:
            await run(tmp_path, LAUNCHER + command.replace("FOREVER", f"{FOR_EVER}0"))
    assert "canary" not in str(caught.value)
    assert await eventually(lambda: left(f"{FOR_EVER}0") == [])
