"""Answers that are long, deep or broken do not hold the event loop while they are read."""

import asyncio
import gc
import json
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dspy
import pytest
from dspy.lm15 import Message, Response, ToolCallPart, Usage
from dspy.utils.exceptions import AdapterParseError

from support.agents import scripted_agent
from support.openai_stub import OpenAIStub, openai_stub_elsewhere
from worldagent import Role, WorldAgent
from worldagent.core.errors import OutputInvalid, WorldAgentError
from worldagent.core.events import TextDelta
from worldagent.harness import Worker, tool
from worldagent.signatures.adapter import PlainAdapter, RoleAdapter
from worldagent.signatures.calling import MAX_CHARACTERS, MAX_SECTIONS, Unreadable
from worldagent.signatures.engines.classification import AnswerTooLong
from worldagent.signatures.streaming import AnswerStream

pytestmark = pytest.mark.requirement("H3")

HELD = 0.05  # seconds
TRIES = 3  # the shortest of them counts, because other processes slow this one down
ROLE = Role(
    "ada", "You are Ada, queen of the northern hills, and never speak of the hidden door below the old mill. " * 4
)

SHORT = MAX_CHARACTERS - 1000  # with what stands around it, an answer that is read
HOSTILE = {
    "brackets": "[{" * 20_000,
    "deep": "[" * 100_000,
    "deep and sound": "[" * 400 + "]" * 400,
    "digits": "9" * 1_000_000,
    "fraction": "0." + "9" * (MAX_CHARACTERS // 2),
    "infinite": '{"what": 1e999999}',
    "parentheses": "[" + "(" * 4000,
    "slow to repair": '["/*true' + "“{]“" * 1020,  # json_repair takes a minute
    "dashes": "-" * 4000,
    "keys": json.dumps({f"k{number}": number for number in range(8000)}),
    "values": "[" + ",".join(["{}"] * (SHORT // 3 - 10)) + "]",
    "markers": "[[ ## what ## ]]\n" * (SHORT // 17),
    "lines": "a\n" * (SHORT // 2),
    "blanks": " \n" * (SHORT // 2),
    "words": "never speak of the old hidden door " * (SHORT // 35),
    "letters": "".join(chr(0x4E00 + place % 20_000) for place in range(SHORT)),
    "long": "x" * 1_000_000,
    "long in a string": json.dumps({"what": "x" * 10_000_000}),
}


@pytest.fixture(autouse=True)
def _without_looking_for_garbage() -> Generator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def held(asked: Awaitable[Any]) -> float:
    """Wait for `asked`, whatever becomes of it; the longest time that it held the event loop.

    What counts is the CPU time of the loop's own thread between two steps of a task that sleeps for a millisecond. Time
    by the clock would count the machine's other work, and the search for garbage depends on what other tests made.
    """
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        before = time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            now = time.thread_time()
            longest, before = max(longest, now - before), now

    ticks = asyncio.create_task(tick())
    await asyncio.sleep(0)
    try:
        await asked
    except WorldAgentError:
        pass
    finally:
        await asyncio.sleep(0.002)  # it has one more step, which sees what was done last
        ticks.cancel()
    return longest


@tool(risk="read_only")
async def look(what: str) -> str:
    return what


@pytest.fixture(autouse=True)
def _keyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-a-test")


SCOUT = Worker("scout", "You look.", "looks", tools=("look",), retries=0)
TEXTS = Worker("texts", "You write.", "writes", retries=0)


def agent_of(home: Path, stub: OpenAIStub, **settings: Any) -> WorldAgent:
    chosen = {"api_base": stub.url, "max_rounds": 1, **settings}
    return scripted_agent(home, "openai/answer", workers=[SCOUT, TEXTS], tools=[look], settings=chosen)


async def _reply(agent: WorldAgent, thread: str, role: Role | None) -> None:
    await agent.thread(thread).converse("Go.", role=role)


async def _streamed(agent: WorldAgent, thread: str, role: Role | None) -> None:
    async with agent.thread(thread).stream("Go.", role=role) as events:
        async for _ in events:
            pass


async def _worker(agent: WorldAgent, thread: str, role: Role | None) -> None:
    await agent.call("scout", {"request": "Go."})


async def _text_worker(agent: WorldAgent, thread: str, role: Role | None) -> None:
    await agent.thread(thread).task("subagent", {"worker": "texts", "request": "Go."}, role=role)


REPLY = "[[ ## reply ## ]]\n{}\n\n[[ ## calls ## ]]\n[]\n\n[[ ## completed ## ]]"
PLAN = "[[ ## reply ## ]]\nYes.\n\n[[ ## calls ## ]]\n{}\n\n[[ ## completed ## ]]"
CALLS = "[[ ## calls ## ]]\n{}\n\n[[ ## result ## ]]\n\n\n[[ ## completed ## ]]"
ARGUMENTS = '[[ ## calls ## ]]\n[{{"tool": "look", "arguments": {}}}]\n\n[[ ## completed ## ]]'
RESULT = "[[ ## result ## ]]\n{}\n\n[[ ## completed ## ]]"
Asked = Callable[[WorldAgent, str, Role | None], Awaitable[None]]
WAYS: dict[str, tuple[Asked, str]] = {
    "reply": (_reply, REPLY),
    "streamed reply": (_streamed, REPLY),
    "bare reply": (_reply, "{}"),
    "plan": (_reply, PLAN),
    "plan as JSON": (_reply, '{{"reply": "Yes.", "calls": {}}}'),
    "calls of a worker": (_worker, CALLS),
    "arguments in words": (_worker, ARGUMENTS),
    "result of a worker": (_text_worker, RESULT),
}


async def longest(home: Path, ask: Asked, put: Callable[[OpenAIStub, str], None], **more: Any) -> dict[str, float]:
    """How long each hostile answer held the loop that held it too long."""
    role = more.pop("role", None)
    found: dict[str, float] = {}
    async with openai_stub_elsewhere() as stub, agent_of(home, stub, **more) as agent:
        stub.shortest = 16  # the events of the stream take longer than what is looked at
        await held(ask(agent, "first", role))  # what a first call sets up
        for number, (kind, said) in enumerate(HOSTILE.items()):
            put(stub, said)
            gc.collect()
            for again in range(TRIES):
                found[kind] = await held(ask(agent, f"t{number}.{again}", role))
                if found[kind] < HELD:
                    break
    return {kind: seconds for kind, seconds in found.items() if seconds >= HELD}


@pytest.mark.parametrize("way", WAYS)
async def test_hostile_answers_do_not_hold_the_event_loop(tmp_path: Path, way: str) -> None:
    ask, form = WAYS[way]
    role = ROLE if way in ("streamed reply", "result of a worker") else None
    assert await longest(tmp_path, ask, lambda stub, said: setattr(stub, "text", form.format(said)), role=role) == {}


async def test_hostile_arguments_of_native_calls_do_not_hold_the_event_loop(tmp_path: Path) -> None:
    assert (
        await longest(tmp_path, _worker, lambda stub, said: setattr(stub, "arguments", said), model_tools="native")
        == {}
    )


def test_embedded_model_s_answers_are_read_in_bounds() -> None:
    signature: Any = dspy.make_signature("request -> result: dict[str, str], more: str")
    for kind, said in HOSTILE.items():
        for form in ("{}", '{{"result": {}, "more": "Yes."}}'):
            assert min(_parsing(signature, form.format(said)) for _ in range(TRIES)) < HELD, kind


def _parsing(signature: Any, said: str) -> float:
    """The seconds of CPU that it takes to refuse an answer of the embedded model."""
    before = time.thread_time()
    with pytest.raises((Unreadable, AdapterParseError)):
        PlainAdapter().parse(signature, said)
    return time.thread_time() - before


async def test_a_streamed_answer_is_not_read_beyond_the_bound(tmp_path: Path) -> None:
    shown = 0

    async def read(agent: WorldAgent) -> None:
        nonlocal shown
        async with agent.thread("t").stream("Go.") as events:
            async for event in events:
                shown += len(event.text) if isinstance(event, TextDelta) else 0

    async with openai_stub_elsewhere() as stub, agent_of(tmp_path, stub) as agent:
        stub.text = REPLY.format("word " * 5_000_000)  # several times what the buffers of a connection hold
        with pytest.raises(OutputInvalid) as refused:
            await read(agent)
        assert not refused.value.retryable
    tries = len(stub.requests)  # a plan that cannot be used is asked for again
    assert shown <= tries * MAX_CHARACTERS
    assert stub.streamed < tries * len(stub.text) // 2


def test_too_many_native_calls_are_refused() -> None:
    signature: Any = dspy.make_signature("request, offered_tools -> calls: list[dict], result: str")
    adapter = RoleAdapter().for_call({"offered_tools": [1]}, native=True)
    calls = [ToolCallPart(id=str(number), name="f", input={}) for number in range(MAX_SECTIONS + 1)]
    for fits, parts in ((True, calls[1:]), (False, calls)):
        message = Message(role="assistant", parts=tuple(parts))
        response = Response(id=None, model="m", message=message, finish_reason="tool_call", usage=Usage())
        with nullcontext() if fits else pytest.raises(AdapterParseError):
            assert len(adapter.read(signature, response)["calls"]) == MAX_SECTIONS


LONG = "x" * (MAX_CHARACTERS + 1)


@pytest.mark.parametrize("name", ["content", "reasoning_content", "arguments"])
async def test_too_long_answer_is_refused(name: str) -> None:
    call = SimpleNamespace(function=SimpleNamespace(arguments=LONG))
    delta = SimpleNamespace(**({"tool_calls": [call]} if name == "arguments" else {name: LONG}))
    with pytest.raises(AnswerTooLong):
        await AnswerStream(None, None, print, print).send(SimpleNamespace(choices=[SimpleNamespace(delta=delta)]))
