"""What a capability raises: the error names it, `on_error` gets the original, and the agent is left as it was."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent
from worldagent.core.capability import Capability, Runtime
from worldagent.core.errors import AgentClosed, CapabilityFailed, ThreadBusy
from worldagent.core.events import TurnEnded


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
    with pytest.raises(CapabilityFailed, match="the hook 'started' of the capability 'hooked' raised KeyError"):
        await agent.start()
    assert not agent.is_open
    with pytest.raises(AgentClosed):
        await agent.thread("1").converse("Hi")
    await agent.aclose()
    await agent.drain(1)
    starting.clear()
    async with agent:
        assert (await agent.thread("1").converse("Hi")).status == "done"


async def rated(agent: Any) -> None:
    """Run a turn and rate it."""
    async with agent:
        turn = await agent.thread("1").converse("Hi")
        await agent.thread("1").feedback(turn.id, "good")


def boom(*_: Any) -> Any:
    raise KeyError("a secret")


@asynccontextmanager
async def opening(*_: Any) -> AsyncGenerator[None]:
    boom()
    yield


@asynccontextmanager
async def closing(*_: Any) -> AsyncGenerator[None]:
    yield
    boom()


@asynccontextmanager
async def nothing(*_: Any) -> AsyncGenerator[None]:
    if not _:
        yield


@asynccontextmanager
async def twice(*_: Any) -> AsyncGenerator[None]:
    yield
    yield


FAILURES: dict[str, tuple[dict[str, Any], str]] = {
    "functions": ({"functions": boom}, "`functions` of the capability 'bad' raised KeyError"),
    "shapes": ({"shapes": boom}, "`shapes` of the capability 'bad' raised KeyError"),
    "fields": ({"fields": boom}, "`fields` of the capability 'bad' raised KeyError"),
    "no inputs": ({"fields": lambda *_: [3]}, "`fields` of the capability 'bad' raised TypeError"),
    "opening": ({"opened": opening}, "opening of the capability 'bad' raised KeyError"),
    "yields nothing": ({"opened": nothing}, "opening of the capability 'bad' raised RuntimeError"),
    "no context": ({"opened": lambda *_: 3}, "opening of the capability 'bad' raised TypeError"),
    "closing": ({"opened": closing}, "closing of the capability 'bad' raised KeyError"),
    "yields twice": ({"opened": twice}, "closing of the capability 'bad' raised RuntimeError"),
}


@pytest.mark.requirement("H10")
@pytest.mark.parametrize(("methods", "problem"), FAILURES.values(), ids=FAILURES)
async def test_what_a_capability_raises_names_it(tmp_path: Path, methods: dict[str, Any], problem: str) -> None:
    seen: list[BaseException] = []
    bad = type("Bad", (Capability,), {"name": "bad", **methods})()
    with pytest.raises(CapabilityFailed, match=problem) as failed:
        await rated(scripted_agent(tmp_path, answering(), capabilities=[bad], on_error=seen.append))
    assert [type(each).__name__ for each in seen] == [problem.rpartition(" ")[2]]
    assert "secret" not in str(failed.value)
    assert failed.value.__context__ is None


HOOKS: dict[str, Callable[[Runtime], object]] = {
    "started": lambda runtime: runtime.hooks.started.append(fail),
    "around": lambda runtime: runtime.hooks.around.append(opening),
    "marks": lambda runtime: runtime.hooks.marks.append(boom),
    "rated": lambda runtime: runtime.hooks.rated.append(fail),
}


@pytest.mark.requirement("H10")
@pytest.mark.parametrize("name", HOOKS)
async def test_what_a_hook_raises_names_its_capability(tmp_path: Path, name: str) -> None:
    seen: list[BaseException] = []
    agent = scripted_agent(tmp_path, answering(), capabilities=[Hooked(HOOKS[name])], on_error=seen.append)
    with pytest.raises(CapabilityFailed, match=f"the hook '{name}' of the capability 'hooked' raised KeyError"):
        await rated(agent)
    assert [type(each) for each in seen] == [KeyError]


@pytest.mark.requirement("H10")
@pytest.mark.parametrize("error", [KeyError("ana's secret"), asyncio.CancelledError(), ThreadBusy("x", remedy="y")])
async def test_a_turn_that_is_recorded_is_returned_whatever_the_hook_around_it_raises(
    tmp_path: Path, error: BaseException
) -> None:
    seen: list[BaseException] = []

    @asynccontextmanager
    async def around(_: str | None) -> AsyncGenerator[None]:
        yield
        raise error

    hooked = Hooked(lambda runtime: runtime.hooks.around.append(around))
    async with scripted_agent(tmp_path, answering(), capabilities=[hooked], on_error=seen.append) as agent:
        async with agent.thread("1").stream("Hi") as stream:
            events = [event async for event in stream]
        assert stream.turn.text == "Fine."
        assert isinstance(events[-1], TurnEnded)
        assert events[-1].status == "done"
    assert seen == [error]


@pytest.mark.requirement("H10")
async def test_an_error_as_it_closes_replaces_no_other(tmp_path: Path) -> None:
    seen: list[BaseException] = []
    bad = type("Bad", (Capability,), {"name": "bad", "opened": closing})()
    agent = scripted_agent(tmp_path, answering(), capabilities=[bad], on_error=seen.append)
    with pytest.raises(ValueError, match="of the block"):
        async with agent:
            raise ValueError("of the block")
    assert await asyncio.to_thread(agent.ask, "Hi") == "Fine."
    assert [type(each) for each in seen] == [KeyError, KeyError]
