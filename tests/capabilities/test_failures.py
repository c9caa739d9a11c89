"""What a capability raises: the error names it, `on_error` gets the original, and the agent is left as it was."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent
from worldagent.core.capability import Capability, Runtime
from worldagent.core.errors import AgentClosed


class Hooked(Capability["Hooked"]):
    """Adds to the hooks of the agent as it opens."""

    name = "hooked"

    def __init__(self, add: Callable[[Runtime], object]) -> None:
        self._add = add

    @asynccontextmanager
    async def opened(self, runtime: Runtime) -> AsyncGenerator["Hooked"]:
        self._add(runtime)
        yield self


async def fail(*_: Any) -> None:
    raise KeyError("a secret")


@pytest.mark.requirement("H10")
async def test_an_agent_whose_capability_cannot_start_is_closed_and_can_start_later(tmp_path: Path) -> None:
    starting = [fail]
    agent = scripted_agent(
        tmp_path, answering(), capabilities=[Hooked(lambda runtime: runtime.hooks.started.extend(starting))]
    )
    with pytest.raises(KeyError):
        await agent.start()
    assert not agent.is_open
    with pytest.raises(AgentClosed):
        await agent.thread("1").converse("Hi")
    await agent.aclose()
    await agent.drain(1)
    starting.clear()
    async with agent:
        assert (await agent.thread("1").converse("Hi")).status == "done"
