"""A host that is there and does nothing: calls and closing end in time, and a later call finds a host that works."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.processes import eventually, others
from support.role_hosts import HostProcess, Kind, host
from worldagent import Role, Tier
from worldagent.core.errors import HostUnavailable
from worldagent.mcp_client import HostRoleStore, HttpHost

pytestmark = [pytest.mark.requirement("R14"), pytest.mark.parametrize("kind", ["http", "stdio"])]
LIMIT = 1.0
LISTED = {Tier.WORKSPACE: "w"}
KEPT = Role("x", "kept")


@dataclass
class Stoppable:
    """A store, and its host's process, which keeps one role."""

    store: HostRoleStore
    pid: int

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)

    async def refused(self, role: Role | None = None) -> None:
        began = time.monotonic()
        with pytest.raises(HostUnavailable) as caught:
            await (self.store.list(LISTED) if role is None else self.store.put(Tier.WORKSPACE, "w", role))
        assert time.monotonic() - began < LIMIT + 1
        assert str(caught.value).endswith(caught.value.remedy)


@contextlib.asynccontextmanager
async def stoppable(kind: Kind, home: Path) -> AsyncGenerator[Stoppable]:
    """A host that a test may stop. Closing takes 3 s or so; afterwards there is no task and no child but a service."""
    async with contextlib.AsyncExitStack() as stack:
        limits: dict[str, Any] = {"timeout": LIMIT, "connect_timeout": 60}
        if kind == "http":
            given: Any = HttpHost((await stack.enter_async_context(HostProcess(home))).url, **limits)
        else:
            given = stack.enter_context(host("stdio", home, **limits))
        store = HostRoleStore(given)
        await store.connect()
        await store.put(Tier.WORKSPACE, "w", KEPT)
        [child] = psutil.Process().children()
        yield Stoppable(store, child.pid)
        began = time.monotonic()
        await store.aclose()
        assert time.monotonic() - began < 3.5
        assert others() == 0
        assert len(psutil.Process().children()) == (kind == "http")


async def test_a_program_that_stays_so_is_started_again_and_a_service_is_used_when_it_goes_on(
    tmp_path: Path, kind: Kind
) -> None:
    async with stoppable(kind, tmp_path) as it:
        it.stop()
        for _ in range(2):
            await it.refused()
        if kind == "http":
            for _ in range(3):
                await it.refused()
            it.go_on()
        assert await it.store.list(LISTED) == {Tier.WORKSPACE: KEPT}
        if kind == "stdio":
            assert await eventually(lambda: not psutil.pid_exists(it.pid), 4)
