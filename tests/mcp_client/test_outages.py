"""A host that goes away and comes back, calls that are cancelled, and connections that end: nothing is left behind."""

import asyncio
import socket
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.processes import children, eventually, held, others
from support.role_host_stub import StubHost, over_http, program
from support.role_hosts import HostProcess, Kind, Mode, host, opened
from worldagent import Role, Tier
from worldagent.core.errors import AgentClosed, HostUnavailable
from worldagent.mcp_client import HostRoleStore, HttpHost, StdioHost
from worldagent.testing import VirtualClock

pytestmark = pytest.mark.requirement("R14")


class ImpatientClock(VirtualClock):
    """Writes down for how long it was to sleep, and has slept at once."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self.advance(seconds)


BOUND = 30  # seconds
LISTED = {Tier.WORKSPACE: "w"}


def logged(home: Path) -> list[str]:
    path = home / "host.log"
    return path.read_text().split() if path.exists() else []


async def hanging(home: Path, count: int) -> None:
    """Wait until so many calls hang in the host."""
    assert await eventually(lambda: logged(home).count("hanging") == count)


async def test_a_restart_between_two_calls_causes_no_error(tmp_path: Path) -> None:
    async with HostProcess(tmp_path) as process, opened(HttpHost(process.url, mode="legacy")) as store:
        await store.put(Tier.WORKSPACE, "w", Role("x", "kept"))
        await process.kill()
        await process.start()
        assert await store.delete(Tier.WORKSPACE, "w") is True


async def test_a_call_under_way_when_the_host_dies_fails_and_is_not_repeated(tmp_path: Path) -> None:
    async with HostProcess(tmp_path, broken="hangs") as process, opened(HttpHost(process.url, timeout=30)) as store:
        calls = [asyncio.create_task(store.list(LISTED)) for _ in range(3)]
        await hanging(tmp_path, 3)
        await process.kill()
        for call in calls:
            with pytest.raises(HostUnavailable, match="ended in the middle of a call"):
                await call
        assert logged(tmp_path).count("role_list") == 3


async def test_pauses_between_attempts_to_reach_a_host_grow_and_are_bounded() -> None:
    clock = ImpatientClock()
    async with opened(StdioHost(["no-such-program-anywhere"]), clock=clock) as store:
        for passed in (0, 0, 0, 0, 0.5, 0, 0, 0, 3600):
            await clock.advance(passed)
            with pytest.raises(HostUnavailable, match="could not be reached"):
                await store.list(LISTED)
    # The first attempt is made at once, and time that has passed is taken off.
    assert clock.slept == [0.1, 0.2, 0.4, pytest.approx(0.3), 1.6, 2.0, 2.0]


@pytest.mark.parametrize(("kind", "mode"), [("http", "auto"), ("stdio", "legacy")])
async def test_cancelling_a_call_cancels_it_alone_in_the_host(tmp_path: Path, kind: Kind, mode: Mode) -> None:
    with host(kind, tmp_path, broken="hangs", mode=mode, timeout=30) as given:
        async with opened(given) as store:
            call = asyncio.create_task(store.list(LISTED))
            other = asyncio.create_task(store.list(LISTED))
            await hanging(tmp_path, 2)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert await eventually(lambda: logged(tmp_path).count("released") == 1)
            assert not other.done()
            other.cancel()
            await asyncio.wait([other])


@pytest.mark.parametrize("kind", ["http", "stdio"])
async def test_closing_from_another_task_ends_running_calls_and_refuses_more(tmp_path: Path, kind: Kind) -> None:
    before = children()
    with host(kind, tmp_path, broken="hangs", timeout=30) as given:
        store = HostRoleStore(given)
        call = asyncio.create_task(store.list(LISTED))
        await hanging(tmp_path, 1)
        await asyncio.gather(*(asyncio.create_task(store.aclose()) for _ in range(3)))
        with pytest.raises(AgentClosed, match="is closed"):
            await call
        with pytest.raises(AgentClosed, match="is closed"):
            await store.list(LISTED)
        await store.aclose()
        assert others() == 0
        assert children() <= before


async def test_closing_does_not_wait_for_a_host_that_says_nothing_nor_for_a_pause() -> None:
    clock = VirtualClock()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/mcp"
        for given in (HttpHost(url, connect_timeout=600), StdioHost(["no-such-program-anywhere"])):
            store = HostRoleStore(given, clock=clock)
            if isinstance(given, StdioHost):
                with pytest.raises(HostUnavailable):
                    await store.list(LISTED)
            call = asyncio.create_task(store.list(LISTED))
            for _ in range(50):
                await asyncio.sleep(0)
            assert not call.done()
            async with asyncio.timeout(10):
                await store.aclose()
            with pytest.raises(AgentClosed):
                await call
            assert others() == 0


async def test_a_store_is_refused_in_a_second_event_loop_until_it_is_closed(tmp_path: Path) -> None:
    def elsewhere(work: Coroutine[Any, Any, Any]) -> Any:
        """Run in a loop of another thread, while this one goes on."""
        return asyncio.to_thread(asyncio.run, asyncio.wait_for(work, 10))

    before = children()
    with host("stdio", tmp_path, timeout=20) as given:
        store = HostRoleStore(given)
        await store.put(Tier.WORKSPACE, "w", Role("x", "y"))
        for attempt in (store.list(LISTED), store.connect(), store.delete(Tier.WORKSPACE, "w"), store.aclose()):
            with pytest.raises(AgentClosed, match="in use in another event loop; close it there first, or make"):
                await elsewhere(attempt)
        assert await store.list(LISTED) == {Tier.WORKSPACE: Role("x", "y")}
        await store.aclose()
        with pytest.raises(AgentClosed, match="is closed"):
            await store.list(LISTED)

        async def again() -> Any:
            found = await store.list(LISTED)
            await store.aclose()
            return found

        for _ in range(2):
            assert await elsewhere(again()) == {Tier.WORKSPACE: Role("x", "y")}
        assert children() <= before


async def test_more_calls_than_can_wait_are_refused() -> None:
    stub = StubHost(broken="hangs")
    with over_http(stub) as url:
        async with opened(HttpHost(url, timeout=60)) as store:
            calls = [asyncio.create_task(store.list(LISTED)) for _ in range(300)]
            assert await eventually(lambda: sum(call.done() for call in calls) == 300 - 256)
            refused = [call.exception() for call in calls if call.done()]
            assert all(isinstance(error, HostUnavailable) and "256 calls waiting" in str(error) for error in refused)
            assert await eventually(lambda: len(stub.calls) == 32)
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)


async def test_many_restarts_leave_no_task_handle_or_child(tmp_path: Path) -> None:
    async def life() -> None:
        with host("stdio", tmp_path, timeout=20) as given:
            async with opened(given) as store:
                await asyncio.gather(*(store.list(LISTED) for _ in range(5)))

    await life()
    before = held()
    for _ in range(3):
        await life()
    assert others() == 0
    assert await eventually(lambda: held() <= before)


@pytest.mark.parametrize("kind", ["http", "stdio"])
async def test_stopped_program_is_restarted_and_stopped_service_used_again(tmp_path: Path, kind: Kind) -> None:
    """Calls to a host that is there and does nothing end in time, and so does closing."""
    kept = Role("x", "kept")
    before = children()
    limits = dict[str, Any](timeout=0.5 if kind == "http" else 1.0, connect_timeout=60.0)
    async with AsyncExitStack() as stack:
        if kind == "http":
            given: Any = HttpHost((await stack.enter_async_context(HostProcess(tmp_path, fresh=True))).url, **limits)
        else:
            files = ("--file", tmp_path / "host.json", "--log", tmp_path / "host.log")
            given = StdioHost(program("stdio", *files), **limits)
        store = HostRoleStore(given)
        await store.put(Tier.WORKSPACE, "w", kept)
        [child] = children() - before
        child.suspend()
        for _ in range(5 if kind == "http" else 2):
            with pytest.raises(HostUnavailable) as caught:
                await asyncio.wait_for(store.list(LISTED), BOUND)
            assert str(caught.value).endswith(caught.value.remedy)
        if kind == "http":
            child.resume()
        assert await store.list(LISTED) == {Tier.WORKSPACE: kept}
        assert kind == "http" or await eventually(lambda: not psutil.pid_exists(child.pid), 4)
        [child] = children() - before
        child.suspend()
        await asyncio.wait_for(store.aclose(), BOUND)
        assert others() == 0
        assert len(children() - before) == (kind == "http")
