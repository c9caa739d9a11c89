"""A process that is killed in the middle of a model call, and one in which everything that traces is switched on."""

import asyncio
import contextlib
from collections.abc import Generator
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from support.agents import answering, scripted_agent
from support.leak_cases import Case, every_case
from support.leaks import kill_child, on_the_server, start_child
from support.role_host_stub import in_thread
from worldagent.testing import scan_for_roles

_WAIT = 90.0


def leaks(content: str, home: Path, *more: object) -> list[str]:
    findings = scan_for_roles([home, on_the_server(), *more], content).findings
    return [str(one) for one in findings if not one.place.partition("/")[2].startswith("roles.db")]


KILLED = [
    Case("converse", "call", "sync", "cancelled in mid-call", 400),
    Case("shape", "account", "async", "cancelled in mid-call", 12),
    Case("skill", "thread", "exit", "cancelled in mid-call", 400),
    Case("converse", "workspace", "sync", "cancelled in mid-call", 400, "stdio"),
]
# A service, unlike a program that it speaks to over a pipe, would outlive the process that is killed.
MORE_KILLED = [
    case
    for case in every_case()
    if case.outcome == "cancelled in mid-call" and case.store != "http" and case not in KILLED
]


@pytest.mark.requirement("R7")
@pytest.mark.parametrize("case", KILLED, ids=str)
async def test_a_process_killed_in_mid_call_leaves_no_role_and_the_thread_continues(tmp_path: Path, case: Case) -> None:
    await check_killed(case, tmp_path / "home")


@pytest.mark.soak
@pytest.mark.parametrize("case", MORE_KILLED, ids=str)
async def test_a_process_killed_in_any_mid_call_leaves_no_role(tmp_path: Path, case: Case) -> None:
    await check_killed(case, tmp_path / "home")


@pytest.mark.requirement("R7")
@pytest.mark.parametrize("case", KILLED[:2], ids=str)
@pytest.mark.parametrize("database_engine", ["postgres"], indirect=True)
async def test_a_process_killed_in_mid_call_leaves_no_role_in_any_table(tmp_path: Path, case: Case) -> None:
    await check_killed(case, tmp_path / "home")


async def check_killed(case: Case, home: Path) -> None:
    assert leaks(case.content, home, *await kill_child("turn", case, home)) == []
    lm = answering()
    async with scripted_agent(home, lm) as agent:
        thread = agent.thread("t1")
        assert (await thread.converse("Still there?")).text == "Fine."
        # Other than a role of the workspace, which is stored on purpose, none is there any more.
        assert case.source == "workspace" or case.content not in lm.calls[0].text
        assert leaks(case.content, home, await thread.history()) == []


@contextlib.contextmanager
def collector() -> Generator[tuple[str, list[bytes]], None, None]:
    """LangSmith as far as its client needs it: its address, and what was sent to it."""
    sizes = {"size_limit": 100, "size_limit_bytes": 1 << 24}
    threads = {"scale_up_nthreads_limit": 1, "scale_up_qsize_trigger": 1000}
    config = {"use_multipart_endpoint": False, **sizes, **threads}  # one part of JSON a body, which can be scanned
    bodies: list[bytes] = []

    async def collect(request: Request) -> Response:
        bodies.append(await request.body())
        return JSONResponse({"batch_ingest_config": config})

    with in_thread(Starlette(routes=[Route("/{path:path}", collect, methods=["GET", "POST", "PATCH"])])) as url:
        yield url, bodies


TRACED = [
    Case("converse", "call", "sync", "calls", 12),
    Case("stream", "account", "sync", "model refuses and quotes the prompt", 12, "http"),
    pytest.param(Case("shape", "call", "async", "handler raises what predict gave", 400), marks=pytest.mark.soak),
]


@pytest.mark.requirement("R7")
@pytest.mark.parametrize("case", TRACED, ids=str)
async def test_with_langsmith_and_debug_output_on_no_role_is_sent_printed_or_cached(tmp_path: Path, case: Case) -> None:
    (tmp_path / "cache").mkdir()
    with collector() as (url, bodies):
        child = await start_child(
            "turn",
            case,
            tmp_path / "home",
            LANGSMITH_TRACING="true",
            LANGSMITH_ENDPOINT=url,
            LANGSMITH_API_KEY="x",
            LANGSMITH_DISABLE_RUN_COMPRESSION="true",
            DSPY_CACHEDIR=str(tmp_path / "cache"),
            DEBUG="1",
        )
        async with asyncio.timeout(_WAIT):
            out, err = await child.communicate()
    assert out.endswith(b"done\n"), err.decode()
    assert any(b'"name":"turn"' in body for body in bodies), "nothing was traced, so this shows nothing"
    assert b"chain/start" in out, "nothing was printed, so this shows nothing"
    assert leaks(case.content, tmp_path / "home", tmp_path / "cache", bodies, out, err) == []
