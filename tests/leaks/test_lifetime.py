"""How long a role lives in memory, and what programs, caches and instrumentors of the embedder's get of it."""

import asyncio
import contextlib
import gc
import sys
import types
from collections.abc import Generator
from pathlib import Path
from typing import Any, ClassVar

import dspy
import pytest
from dspy.clients.cache import Cache
from pydantic import BaseModel

from support.agents import CRITIC, answering, scripted_agent
from support.counters import holders
from support.leak_cases import Case
from support.leak_turns import EXPECTED, Behaviour, Review, ask, fields, opened, put_role, role_of
from support.leaks import canary
from support.openai_stub import openai_stub
from worldagent import Role, Shape, tool
from worldagent.agent import Thread
from worldagent.core.errors import ThreadBusy, WorldAgentError
from worldagent.graphs import TaskContext
from worldagent.graphs.shapes import module_shape
from worldagent.role_resolution import NO_ROLE, ResolvedRole
from worldagent.testing import ScriptedCall, ScriptedLM, assert_no_role_leak

ENDED = [
    Case("converse", "call", "sync", "answers", 400),
    Case("stream", "call", "sync", "calls", 12),
    Case("shape", "call", "async", "answers", 400),
    Case("shape", "code", "sync", "answers", 12),
    Case("skill", "thread", "exit", "fails in passing and is tried again", 400),
    Case("stream", "channel", "sync", "model repeats the role", 400),
    Case("stream", "call", "sync", "model repeats the role and echo is fail", 400),
    Case("converse", "call", "sync", "model refuses and quotes the prompt", 12),
    Case("converse", "call", "async", "model crashes and quotes the prompt", 400),
    Case("schedule", "call", "sync", "cannot be parsed and quotes the role", 400),
    Case("task", "call", "sync", "model is too slow", 400),
    Case("stream", "call", "exit", "cancelled in mid-call", 400),
]


class Look:
    """What keeps a text or a resolved role alive that did not at the beginning.

    Tests that leave a tool behind on purpose leave its turn's role, too.
    """

    def __init__(self, content: str) -> None:
        self._content = content
        self._roles = _roles()
        self._holders = holders(content)  # this object is one

    def left(self) -> list[str]:
        """Give what is left now: roles, and the types of objects that refer to the text."""
        roles = [each for each in _roles() if not any(each is known for known in self._roles)]
        return [*map(repr, roles), *(name for name, _ in holders(self._content) - self._holders)]

    async def left_in_the_end(self) -> list[str]:
        """Give what is left once the loop and its threads had a moment to let go of their last job."""
        left: list[str] = []
        for _ in range(5):
            await asyncio.sleep(0.01)
            left = self.left()
            if not left:
                break
        return left


def _roles() -> list[ResolvedRole]:
    gc.collect()
    return [item for item in gc.get_objects() if type(item) is ResolvedRole and item is not NO_ROLE]


async def run(case: Case, home: Path, role: Role, look: Look) -> list[str]:
    """Run the turn, drop all that it gave, and say what keeps the role while the agent is still open."""
    behaviour = Behaviour(case)
    lm = ScriptedLM(behaviour)
    async with opened(case, home, lm) as agent:
        thread = agent.thread("t", account="ana", channel="den")
        turn = asyncio.create_task(ask(case, thread, role if case.source == "call" else None))
        if case.outcome == "cancelled in mid-call":
            await asyncio.wait_for(behaviour.held.wait(), 20)
            turn.cancel()
        with contextlib.suppress(WorldAgentError, asyncio.CancelledError):
            await turn
        del turn
        assert case.content in "".join(call.text for call in lm.calls)
        lm.calls.clear()
        return await look.left_in_the_end()


@pytest.mark.requirement("R3", "R7")
@pytest.mark.parametrize("case", ENDED, ids=str)
async def test_after_a_turn_no_object_holds_its_role(tmp_path: Path, case: Case) -> None:
    role = role_of(case)
    look = Look(case.content)
    assert await run(case, tmp_path, role, look) == []
    assert await look.left_in_the_end() == []


class Asks(BaseModel):
    text: str = "x"


class Beats(dspy.Module):
    """Leaves a task behind, as the client of a service does that is opened on its first use."""

    beating: ClassVar[list[asyncio.Task[None]]] = []

    def __init__(self) -> None:
        super().__init__()
        self.review = dspy.Predict(Review)

    async def aforward(self, text: str) -> dspy.Prediction:
        self.beating.append(asyncio.create_task(asyncio.sleep(3600)))
        return dspy.Prediction(text=text)


@tool(risk="read_only")
async def beat() -> str:
    """Leave a task behind."""
    made = await Beats().aforward("x")
    return str(made.text)


async def handle(params: Asks, ctx: TaskContext) -> Asks:
    await ctx.call("beat", {})
    Beats.beating.append(asyncio.create_task(asyncio.sleep(3600)))
    return params


@pytest.mark.requirement("R3", "R7")
@pytest.mark.parametrize("body", ["handler", "module"])
async def test_a_task_that_a_body_leaves_behind_keeps_no_role_alive(tmp_path: Path, body: str) -> None:
    look = Look(canary(30, seed=body))
    shapes = [
        Shape("handler", Asks, Asks, handle, entry=Review),
        module_shape("module", Beats(), params=Asks, result=Asks, entry=Review),
    ]
    async with scripted_agent(tmp_path, answering(), tools=[beat], shapes=shapes) as agent:
        await agent.thread("t").task(body, Asks(), role=Role("r", canary(30, seed=body)))
        assert await look.left_in_the_end() == []
    assert Beats.beating
    for task in Beats.beating:
        task.cancel()
    await asyncio.wait(Beats.beating)
    Beats.beating.clear()


@pytest.mark.requirement("R3", "R7")
@pytest.mark.parametrize("model", ["answer", "down-500", "slow"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_connection_that_is_kept_keeps_no_role_alive(tmp_path: Path, model: str, streamed: bool) -> None:
    content = canary(400, seed=f"{model} {streamed}")
    look = Look(content)

    async def use(thread: Thread, role: Role) -> None:
        if not streamed:
            await thread.converse("Hi", role=role)
            return
        async with thread.stream("Hi", role=role) as stream:
            async for _ in stream:
                pass

    async with openai_stub() as stub:
        settings = {"api_base": stub.url, "model_timeout": 1.0 if model == "slow" else 60.0}
        async with scripted_agent(tmp_path, f"openai/{model}", settings=settings) as agent:
            with contextlib.suppress(WorldAgentError):
                await use(agent.thread("t"), Role("r", canary(400, seed=f"{model} {streamed}")))
            assert content in stub.asked()
            stub.requests.clear()
            assert await look.left_in_the_end() == []


HOSTED = [
    Case("task", "account", "sync", "answers", 400),
    Case("converse", "workspace", "sync", "answers", 400, "stdio"),
    Case("stream", "account", "async", "model refuses and quotes the prompt", 400, "http"),
]


@pytest.mark.requirement("R7", "R9")
@pytest.mark.parametrize("case", HOSTED, ids=str)
async def test_after_an_agent_is_closed_no_object_holds_a_role_of_its_host(tmp_path: Path, case: Case) -> None:
    look = Look(case.content)
    lm = ScriptedLM(Behaviour(case))

    async def use() -> None:
        async with opened(case, tmp_path / "home", lm) as agent:
            await put_role(case, agent)
            with contextlib.suppress(WorldAgentError):
                await ask(case, agent.thread("t", account="ana", channel="den"), None)
            assert case.content in "".join(call.text for call in lm.calls)
            assert look.left(), "no object held it while it was in use, so this shows nothing"
            lm.calls.clear()

    await use()
    assert await look.left_in_the_end() == []


@pytest.mark.requirement("R3")
async def test_a_text_that_an_object_holds_is_found() -> None:
    content = Case("converse", "call", "sync", "answers", 400).content
    look = Look(content)
    kept = [{"plain": f"Act as {content.upper()}."}]
    assert "list" in look.left(), kept


@pytest.mark.requirement("R3", "R7")
async def test_an_error_that_is_kept_holds_no_role_in_the_frames_of_the_call(tmp_path: Path) -> None:
    case = Case("stream", "call", "sync", "model repeats the role and echo is fail", 400)
    with pytest.raises(WorldAgentError) as caught:
        async with opened(case, tmp_path, ScriptedLM(Behaviour(case))) as agent:
            await agent.thread("t").converse("Hi", role=role_of(case))
    shown: list[str] = []
    trace = caught.value.__traceback__
    while trace is not None:  # as a reporter does that shows local variables
        if "tests" not in trace.tb_frame.f_code.co_filename:
            shown.append(repr(trace.tb_frame.f_locals))
        trace = trace.tb_next
    assert shown
    assert_no_role_leak(shown, case.content)


@pytest.mark.requirement("R3", "R7")
async def test_an_error_of_a_turn_that_did_not_come_to_begin_keeps_no_role_alive(tmp_path: Path) -> None:
    case = Case("stream", "call", "sync", "answers", 400)
    look = Look(case.content)
    async with scripted_agent(tmp_path, answering(), settings={"thread_wait": 0.0}) as agent:
        async with agent._runner.parts.stores.leases.hold("novel/t", wait=1):
            stream = agent.thread("t").stream("Hi", role=role_of(case))
            with pytest.raises(ThreadBusy) as caught:
                async with stream:
                    await stream.wait()
        del stream
        assert await look.left_in_the_end() == []
    assert caught.value.__traceback__ is not None


@pytest.mark.requirement("R3", "R7")
@pytest.mark.parametrize("outcome", ["model refuses and quotes the prompt", "model is too slow"])
async def test_an_error_that_is_kept_keeps_no_resolved_role_alive(tmp_path: Path, outcome: str) -> None:
    case = Case("stream", "call", "sync", outcome, 400)
    role, lm = role_of(case), ScriptedLM(Behaviour(case))
    look = Look(case.content)
    async with opened(case, tmp_path, lm) as agent:
        with pytest.raises(WorldAgentError) as caught:
            await agent.thread("t").converse("Hi", role=role)
        assert type(caught.value) is EXPECTED[outcome]
        assert case.content in "".join(call.text for call in lm.calls)
        lm.calls.clear()
        assert await look.left_in_the_end() == []
    assert caught.value.__traceback__ is not None


ROLE = role_of(Case("converse", "call", "sync", "answers", 400))


@pytest.mark.requirement("R7", "R12")
async def test_saved_programs_hold_no_role(tmp_path: Path) -> None:
    programs: dict[str, Any] = {}
    async with scripted_agent(tmp_path / "a", ScriptedLM(fields), workers=[CRITIC]) as agent:
        await agent.thread("t").converse("Hi", role=ROLE)
        for name in ("Converse", "critic"):
            program = agent.program(name)
            # The dearest mistake of an optimiser: a demo that was recorded with its role.
            program.predict.demos = [{"message": "Hi", "request": "Hi", "reply": "Fine.", "result": "Fine."}]
            program.save(str(tmp_path / f"{name}.json"))
            program.save(str(tmp_path / name), save_program=True)
            programs[name] = str(tmp_path / f"{name}.json")
    lm = ScriptedLM(fields)
    async with scripted_agent(tmp_path / "b", lm, workers=[CRITIC], programs=programs) as agent:
        await agent.thread("t").converse("Hi", role=ROLE)
        await agent.thread("t").task("subagent", {"worker": "critic", "request": "Judge."}, role=ROLE)
        for name in programs:
            again = agent.program(name)
            again.save(str(tmp_path / f"again-{name}.json"))
            assert_no_role_leak([again, again.dump_state()], ROLE.content)
    assert [call.role for call in lm.calls] == [ROLE.content] * 2
    assert_no_role_leak(tmp_path, ROLE.content)


@pytest.mark.requirement("R12")
async def test_a_demo_that_was_recorded_with_a_role_is_saved_and_sent_without_it(tmp_path: Path) -> None:
    lm = ScriptedLM(fields)
    async with scripted_agent(tmp_path / "a", lm) as agent:
        program = agent.program("Converse")
    program.predict.demos = [{"message": "Hi", "role": ROLE.content, "reply": "Fine."}]
    async with scripted_agent(tmp_path / "b", lm, programs={"Converse": program}) as agent:
        await agent.thread("t").converse("Hello")
        await agent.thread("t").converse("Hello", role=Role("other", "Be brief."))
        agent.program("Converse").save(str(tmp_path / "again.json"))
    assert all(ROLE.content not in call.text for call in lm.calls)
    assert_no_role_leak(tmp_path / "b", ROLE.content)


@pytest.mark.requirement("R7")
async def test_a_model_with_a_cache_of_its_own_is_called_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(True, True, str(tmp_path / "cache"), 1 << 24)
    monkeypatch.setitem(vars(dspy), "cache", cache)

    def parrot(call: ScriptedCall) -> dict[str, Any]:
        return {"reply": f"As {call.role}"}

    lm = ScriptedLM(parrot)
    lm.cache = True
    async with scripted_agent(tmp_path / "home", lm) as agent:
        for _ in range(2):
            await agent.thread("t").converse("Hi", role=ROLE)
    assert len(lm.calls) == 2
    assert_no_role_leak([tmp_path, dict(cache.memory_cache), lm.history], ROLE.content)
    close: Any = cache.disk_cache
    close.close()


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What an instrumentor records: it patches dspy's methods and keeps to OpenTelemetry's switch."""
    seen: list[Any] = []
    suppressed = False
    module = types.ModuleType("opentelemetry.instrumentation.utils")

    @contextlib.contextmanager
    def suppress_instrumentation() -> Generator[None, None, None]:
        nonlocal suppressed
        suppressed = True
        try:
            yield
        finally:
            suppressed = False

    setattr(module, "suppress_instrumentation", suppress_instrumentation)  # noqa: B010 -- a module made by hand
    monkeypatch.setitem(sys.modules, module.__name__, module)
    original = dspy.Predict.acall

    async def acall(self: dspy.Predict, *args: Any, **kwargs: Any) -> Any:
        if not suppressed:
            seen.append((args, kwargs))
        return await original(self, *args, **kwargs)

    monkeypatch.setattr(dspy.Predict, "acall", acall)
    return seen


@pytest.mark.requirement("R7")
async def test_an_instrumentor_that_patches_dspy_sees_nothing_of_our_calls(tmp_path: Path, recorded: list[Any]) -> None:
    lm = ScriptedLM(fields)
    with dspy.context(lm=lm, disable_history=True, trace=None):
        await dspy.Predict(Review).acall(text="Mine.")
    async with scripted_agent(tmp_path, lm) as agent:
        await agent.thread("t").converse("Hi", role=ROLE)
    assert recorded == [((), {"text": "Mine."})]
