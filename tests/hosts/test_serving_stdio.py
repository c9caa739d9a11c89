"""A server over standard streams: when it ends, and what it says by then."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.processes import clean_environment, eventually, runs
from support.served import BOUND, INITIALIZE, READY, SECRET, call, command

LONGEST_ID = 200
NO_MESSAGES = [
    (SECRET.encode(), -32700, None),
    (b"\xff\xfe", -32700, None),
    (json.dumps({"jsonrpc": "2.0", "id": 6, "result": SECRET}).encode(), -32600, None),
    (json.dumps({"jsonrpc": "1.0", "id": SECRET.ljust(LONGEST_ID + 1), "method": "x"}).encode(), -32600, None),
    (json.dumps({"jsonrpc": "1.0", "id": "i" * LONGEST_ID, "method": SECRET}).encode(), -32600, "i" * LONGEST_ID),
    (json.dumps({"jsonrpc": "2.0", "id": 2.5, "method": SECRET, "params": {"name": SECRET}}).encode(), -32600, None),
    (json.dumps({"jsonrpc": "2.0", "id": [SECRET], "method": SECRET}).encode(), -32600, None),
]
"""Lines that are not messages, and the codes and ids that they are refused with."""

ASKED = [
    ('{"jsonrpc":"2.0","id":5,"method":"ping","params":5}', 5),
    ('{"jsonrpc":"2.0","id":"five","method":"ping","params":[]}', "five"),
    ('{"jsonrpc":"2.0","id":6.0,"method":"ping","params":"x"}', 6),
    ('{"jsonrpc":"2.0","id":2.5,"method":"ping"}', None),
    ('{"jsonrpc":"2.0","id":null,"method":"ping"}', None),
    ('{"jsonrpc":"2.0","id":[1],"method":"ping"}', None),
    ('{"jsonrpc":"2.0","\\u0069d":{},"method":"notifications/initialized"}', None),
]
"""Requests that are none, and the ids that they are refused under."""

UNASKED = [
    '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"id":2.5,"requestId":2.5}}',
    '{"jsonrpc":"2.0","id":null,"method":"notifications/nothing"}',
    '{"jsonrpc":"2.0","id":3,"method":null,"params":null,"result":{"action":"accept"},"error":null}',
    '{"jsonrpc":"2.0","id":999,"result":{"id":5,"method":"x"}}',
]
"""Messages that ask for no answer."""

MIB = 1 << 20
BOUND_OF_A_LINE = 4 * MIB
TOO_LONG = f"Invalid Request: the line is longer than {BOUND_OF_A_LINE} bytes (4 MiB); send less in one message"


def lines(*messages: Mapping[str, Any]) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in (INITIALIZE, READY, *messages))


@contextmanager
def started(notes: Path, **options: Any) -> Generator[subprocess.Popen[bytes], None, None]:
    """A server whose client this process is."""
    pipe = subprocess.PIPE
    words = command(notes, stdio=True, **options)
    process = subprocess.Popen(words, env=clean_environment(), stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=BOUND)


def script_process(script: str) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", script], env=clean_environment(), stdin=pipe, stdout=pipe)


async def noted(notes: Path, what: str) -> bool:
    return await eventually(lambda: notes.exists() and what in notes.read_text(encoding="utf-8").splitlines(), BOUND)


def send(process: subprocess.Popen[bytes], *messages: Mapping[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(lines(*messages))
    process.stdin.flush()


async def next_answer(process: subprocess.Popen[bytes]) -> Any:
    assert process.stdout is not None
    return json.loads(await asyncio.to_thread(process.stdout.readline))


async def test_it_drains_at_the_end_of_its_input_and_answers_what_it_was_asked(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    asked = [call("say", {"text": str(number)}, number=number) for number in range(2, 52)]
    with started(notes) as process:
        given = lines(*asked, call("open", {}, number=60))
        out, told = await asyncio.to_thread(process.communicate, given, BOUND)
        assert process.returncode == 0
    answers = {row["id"]: row["result"] for row in map(json.loads, out.splitlines())}
    assert answers.keys() == {1, *range(2, 52), 60}
    assert [answers[number]["content"][0]["text"] for number in range(2, 52)] == [str(n) for n in range(2, 52)]
    assert notes.read_text(encoding="utf-8").splitlines()[-3:] == ["drain 10", "streams ended", "ended in order"]
    assert b"error" not in told


async def test_a_call_that_is_out_of_bounds_is_answered_under_its_id(tmp_path: Path) -> None:
    calls = [{**call("say", {"text": "", "more": [0] * 6000}), "id": number} for number in (7, "seven", 2.5)]
    with started(tmp_path / "notes") as process:
        send(process, *calls)
        answers = [await next_answer(process) for _ in (INITIALIZE, *calls)][1:]
    assert [each["id"] for each in answers] == [7, "seven", None]
    assert all("more than 5,000 values" in each["error"]["message"] for each in answers)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
async def test_a_signal_drains_it_while_its_input_is_open(tmp_path: Path, number: int, code: int) -> None:
    notes = tmp_path / "notes"
    with started(notes) as process:
        send(process, call("open", {}, progress=True))
        assert await noted(notes, "open began")
        process.send_signal(number)
        assert await asyncio.to_thread(process.wait, BOUND) == code
        assert process.stdout is not None
        answers = [json.loads(row) for row in process.stdout.read().splitlines()]
    assert [answer.get("params", {}).get("message") for answer in answers] == [None, "opened", "last", None]
    assert "result" in answers[-1]


PARENT = """
import subprocess, sys
pipe = subprocess.PIPE
server = subprocess.Popen({command!r}, stdin=pipe, stdout=pipe)
server.stdin.write({given!r})
server.stdin.flush()
server.stdout.readline()
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"],
    pass_fds=(server.stdin.fileno(), server.stdout.fileno()), stdout=subprocess.DEVNULL)
print(server.pid, child.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.requirement("T4")
async def test_it_ends_with_its_parent_though_another_process_holds_its_streams_open(tmp_path: Path) -> None:
    """`count` fills the pipe, and its last write is never read."""
    notes = tmp_path / "notes"
    asked = call("count", {"to": 100_000, "size": 10_000}, progress=True)
    script = PARENT.format(command=command(notes, stdio=True, drain=0.2, ANSWER_SECONDS=0.2), given=lines(asked))
    parent = script_process(script)
    assert parent.stdout is not None
    server, holds = (int(word) for word in (await asyncio.to_thread(parent.stdout.readline)).split())
    try:
        assert await noted(notes, "count began")
        parent.kill()
        parent.communicate(timeout=BOUND)
        assert await eventually(lambda: not runs(server), BOUND)
        assert runs(holds)
        assert await noted(notes, "drain 0.2")
        assert await noted(notes, "ended in order")
    finally:
        for pid in (server, holds):
            if runs(pid):
                os.kill(pid, signal.SIGKILL)


async def test_a_client_that_reads_nothing_slows_its_handler_down(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with started(notes, drain=1.0) as process:
        send(process, call("count", {"to": 100_000, "size": 10_000}, progress=True))
        assert await noted(notes, "counted 5")
        before = psutil.Process(process.pid).memory_info().rss
        assert process.stdin is not None
        process.stdin.write(json.dumps(call("wait", {}, number=8)).encode() + b"\n")
        process.stdin.flush()
        assert await noted(notes, "wait began")
        assert notes.read_text(encoding="utf-8").count("counted") < 100
        assert psutil.Process(process.pid).memory_info().rss - before < 20 << 20


@pytest.mark.requirement("R7")
async def test_an_invalid_message_is_not_logged_and_does_not_end_the_server(tmp_path: Path) -> None:
    with started(tmp_path / "notes", level="debug") as process:
        assert process.stdin is not None
        process.stdin.write(b"".join(row + b"\n" for row, *_ in NO_MESSAGES))
        send(process, call("fail", {"role": SECRET}))
        for _, code, under in NO_MESSAGES:
            refused = await next_answer(process)
            assert (refused["jsonrpc"], refused["id"], refused["error"]["code"]) == ("2.0", under, code)
            assert SECRET not in json.dumps(refused)
        assert (await next_answer(process))["id"] == 1
        assert (await next_answer(process))["error"]["message"] == "internal error"
        out, told = await asyncio.to_thread(process.communicate, SECRET.encode() + b"\n", BOUND)
    assert json.loads(out) == {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "Parse error"}}
    assert SECRET.encode() not in told + out
    assert process.returncode == 0


@pytest.mark.requirement("R7")
async def test_the_text_of_an_error_that_a_client_answers_goes_no_further(tmp_path: Path) -> None:
    with started(tmp_path / "notes") as process:
        send(process, call("ask", {}))
        assert (await next_answer(process))["id"] == 1
        asked = await next_answer(process)
        assert asked["method"] == "ping"
        error = {"code": -32000, "message": SECRET, "data": SECRET}
        given = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}).encode() + b"\n"
        out, told = await asyncio.to_thread(process.communicate, given, BOUND)
    assert json.loads(json.loads(out)["result"]["content"][0]["text"]) == {"code": -32000, "message": "", "data": None}
    assert SECRET.encode() not in told


@pytest.mark.requirement("T10")
async def test_invalid_request_is_refused_under_its_id_and_notifications_are_not(tmp_path: Path) -> None:
    given = "".join(f"{row}\n" for row in (*UNASKED, *(row for row, _ in ASKED), *UNASKED)).encode()
    with started(tmp_path / "notes") as process:
        out, _ = await asyncio.to_thread(process.communicate, lines() + given, BOUND)
    begun, *answers = map(json.loads, out.splitlines())
    assert (begun["id"], process.returncode) == (1, 0)
    assert [(row["id"], row["error"]["code"]) for row in answers] == [(under, -32600) for _, under in ASKED]


def refused(answer: Any) -> bool:
    return bool(answer == {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": TOO_LONG}})


@pytest.mark.requirement("R7", "T10")
async def test_a_line_over_the_bound_is_refused_and_passed_over_without_being_kept(tmp_path: Path) -> None:
    with started(tmp_path / "notes", level="debug") as process:
        assert process.stdin is not None
        send(process)
        assert (await next_answer(process))["id"] == 1
        before = psutil.Process(process.pid).memory_info().rss
        await asyncio.to_thread(process.stdin.write, SECRET.encode() + b" " * (BOUND_OF_A_LINE + (1 << 17)))
        assert refused(await next_answer(process))  # though the line goes on
        for _ in range(100):
            await asyncio.to_thread(process.stdin.write, SECRET.encode().ljust(MIB))
        assert psutil.Process(process.pid).memory_info().rss - before < 40 * MIB
        asked = json.dumps(call("say", {"text": "after"})).encode()
        rows = [b"", asked.ljust(BOUND_OF_A_LINE), asked.ljust(BOUND_OF_A_LINE + 1), asked, b""]
        out, told = await asyncio.to_thread(process.communicate, b"\n".join(rows), BOUND)
        answers = [json.loads(row) for row in out.splitlines()]
        assert sorted(answer["id"] or 0 for answer in answers) == [0, 7, 7]
        assert [refused(answer) for answer in answers if answer["id"] is None] == [True]
        assert process.returncode == 0
    assert f"a line of more than {BOUND_OF_A_LINE} bytes is refused".encode() in told
    assert SECRET.encode() not in told
