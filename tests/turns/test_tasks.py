"""`task()`, shapes and functions: typed in, typed out, kept so that they can be read again, errors that name them."""

import math
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, AnyUrl, BaseModel, Discriminator, Field, Tag

from support.agents import Ask, Muse, Nothing, Said, answering, scripted_agent, shape, streamed
from worldagent import WorldAgent
from worldagent.core.errors import (
    AnswerInvalid,
    FunctionInvalid,
    InvalidArgument,
    ParamsInvalid,
    ResultInvalid,
    TaskFailed,
    UnknownFunction,
    WorldAgentError,
)
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import CallContext, Function, WorkerContext, flow, tool
from worldagent.testing import ScriptedLM, VirtualClock


class Sum(BaseModel):
    a: int
    b: int = 0


class Total(BaseModel):
    total: int


async def add(params: Sum, ctx: TaskContext) -> Total:
    return Total(total=params.a + params.b)


class Anything(BaseModel):
    value: Any


async def same(params: Anything, ctx: TaskContext) -> Anything:
    return params


ADD, SAME = Shape("add", Sum, Total, add), Shape("same", Anything, Anything, same)


@pytest.mark.requirement("T2")
async def test_a_task_gives_a_typed_result(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, ScriptedLM([]), shapes=[ADD]) as agent:
        turn = await agent.thread("t").task("add", Sum(a=2, b=3))
        again = await agent.thread("t").task("add", {"a": "4"})
    assert turn.result == Total(total=5)
    assert turn.text == '{"total":5}'
    assert again.result == Total(total=4)


@pytest.mark.requirement("T2")
async def test_a_result_that_does_not_fit_names_shape_and_field(tmp_path: Path) -> None:
    async def wrong(params: Sum, ctx: TaskContext) -> dict[str, Any]:
        return {"total": "many", "more": 1}

    async with scripted_agent(tmp_path, ScriptedLM([]), shapes=[Shape("wrong", Sum, Total, wrong)]) as agent:
        with pytest.raises(ResultInvalid, match=r"'wrong'.*total: .*integer"):
            await agent.thread("t").task("wrong", {"a": 1})


@pytest.mark.requirement("R7")
@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Annotated[Annotated[Sum, Tag("sum")] | Annotated[Total, Tag("total")], Discriminator(str)], "SECRET"),
        (AnyUrl, "http://[SECRET"),
        (Annotated[str, AfterValidator(lambda text: 1 / 0 if not text else int(text))], "SECRET"),
        (dict[int, int], {"a SECRET of several words": 1}),
    ],
)
async def test_an_error_never_shows_a_value(tmp_path: Path, annotation: Any, value: Any) -> None:
    async def body(it: Any) -> None:
        return None

    body.__annotations__["it"] = annotation
    async with scripted_agent(tmp_path, ScriptedLM([]), tools=[tool(body, name="f")]) as agent:
        with pytest.raises(ParamsInvalid, match="it") as caught:
            await agent.call("f", {"it": value})
    assert "SECRET" not in str(caught.value)


def test_a_field_that_could_not_be_stored_is_refused() -> None:
    class Hidden(BaseModel):
        x: int = Field(exclude=True)

    async def handler(params: Hidden, ctx: TaskContext) -> Total:
        return Total(total=params.x)

    with pytest.raises(FunctionInvalid, match="'x' of the shape 'hidden' must not be excluded"):
        Shape("hidden", Hidden, Total, handler)


@pytest.mark.requirement("T2")
async def test_what_a_handler_raises_is_named_by_type_only(tmp_path: Path) -> None:
    async def broken(params: Sum, ctx: TaskContext) -> Total:
        raise ValueError("the secret is out")

    seen: list[BaseException] = []
    shapes = [Shape("broken", Sum, Total, broken)]
    async with scripted_agent(tmp_path, ScriptedLM([]), shapes=shapes, on_error=seen.append) as agent:
        with pytest.raises(TaskFailed, match="'broken' failed with ValueError") as caught:
            await agent.thread("t").task("broken", {"a": 1})
    assert caught.value.__context__ is None
    assert caught.value.turn_id is not None
    assert caught.value.remedy == "fix your code; the `on_error` of the agent receives the original exception"
    assert str(seen[0]) == "the secret is out"


@tool(risk="read_only")
async def double(n: int) -> int:
    """Doubles a number.

    More about it.
    """
    return n * 2


@flow
async def quadruple(ctx: CallContext, n: int) -> int:
    once: int = await ctx.call("double", {"n": n})
    twice: int = await ctx.call("double", {"n": once})
    return twice


@pytest.mark.requirement("H1", "H2")
async def test_functions_are_called_by_name_and_flows_call_others(tmp_path: Path) -> None:
    assert double.description == "Doubles a number."
    assert (double.kind, quadruple.kind) == ("leaf", "flow")
    async with scripted_agent(tmp_path, ScriptedLM([]), tools=[double, quadruple]) as agent:
        assert await agent.call("double", {"n": 2}) == 4
        assert await agent.call("quadruple", {"n": "3"}) == 12


async def test_a_shape_calls_functions_and_its_events_carry_path_ids(tmp_path: Path) -> None:
    async def through(params: Sum, ctx: TaskContext) -> Total:
        first = await ctx.call("quadruple", {"n": params.a})
        await ctx.call("double", {"n": 1})
        await ctx.call("double", {"n": 1})
        return Total(total=first)

    shape = Shape("through", Sum, Total, through, description="calls")
    lm = ScriptedLM([{"reply": "", "calls": [{"tool": "through", "arguments": {"a": 1}}]}, {"reply": "ok"}])
    async with scripted_agent(tmp_path, lm, shapes=[shape], tools=[double, quadruple]) as agent:
        turn, events = await streamed(agent.thread("t").stream("Go"))
    calls = [event.call_id for event in events if event.type == "call_started"]
    assert len(set(calls)) == len(calls) == 5
    [task] = [event.task_id for event in events if event.type == "task_started"]
    assert task.startswith(turn.id + "/")
    assert all(call.startswith(task + "/") for call in calls)
    assert calls[1].startswith(calls[0] + "/double:")
    assert calls[4] == calls[3] + ".1"


@pytest.mark.parametrize(
    ("name", "given", "error", "says"),
    [
        ("triple", {}, UnknownFunction, "'triple'; the functions are: broken, double, liar"),
        ("double", {"n": 1, "m": 2}, ParamsInvalid, "'double'.*m"),
        ("broken", {}, TaskFailed, "'broken' failed with KeyError"),
        ("liar", {}, ResultInvalid, "'liar'"),
    ],
)
async def test_a_call_that_does_not_fit_is_a_typed_error(
    tmp_path: Path, name: str, given: dict[str, Any], error: type[WorldAgentError], says: str
) -> None:
    @tool
    async def broken() -> int:
        raise KeyError("secret")

    @tool
    async def liar() -> int:
        return "many"  # type: ignore[return-value]  # the mistake that is tested

    async with scripted_agent(tmp_path, ScriptedLM([]), tools=[double, broken, liar]) as agent:
        with pytest.raises(error, match=says) as caught:
            await agent.call(name, given)
    assert "secret" not in str(caught.value)


def noting(done: list[str]) -> Function:
    async def note(what: Any) -> str:
        done.append("noted")
        return "noted"

    made: Function = tool(note)
    return made


def agent_of(home: Path, handler: Any, done: list[str] | None = None, **more: Any) -> WorldAgent:
    functions = [noting(done if done is not None else [])]
    return scripted_agent(home, answering(), tools=functions, shapes=[shape(handler)], **more)


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.requirement("T4", "T5")
@pytest.mark.parametrize("levels", [190, 201, 5000])
async def test_a_param_is_refused_before_its_effect_or_can_be_read_again(tmp_path: Path, levels: int) -> None:
    done: list[str] = []

    async def handler(ctx: TaskContext) -> str:
        try:
            await ctx.call("note", {"what": nested(levels)})
        except ParamsInvalid:
            return "refused"
        return await ctx.calls.ask_person("And now?")

    async with agent_of(tmp_path, handler, done) as agent:
        turn = await agent.thread("t").task("job", {})
        if levels <= 190:
            assert turn.status == "paused"
        if turn.status == "paused":
            [pause] = await agent.thread("t").pauses()
            turn = await agent.thread("t").resume({pause.id: "on"})
            assert turn.result == Said(text="on")
            assert done == ["noted"]
        else:
            assert (turn.result, done) == (Said(text="refused"), [])


async def test_invalid_timeout_or_key_of_a_call_is_refused(tmp_path: Path) -> None:
    async def handler(ctx: TaskContext) -> str:
        for seconds in (float("inf"), 1e18, float("nan"), 0, "5", True):
            with pytest.raises(InvalidArgument, match="must be above 0 and at most ten years"):
                await ctx.calls.ask_person("What?", seconds=seconds)  # type: ignore[arg-type]  # what is tested
        for key in (5, ""):
            with pytest.raises(InvalidArgument, match="`key` of a call of 'note' must be a text; pass a text"):
                await ctx.call("note", {"what": 1}, key=key)  # type: ignore[arg-type]  # what is tested
        return "refused"

    async with agent_of(tmp_path, handler) as agent:
        assert (await agent.thread("t").task("job", {})).result == Said(text="refused")


async def test_model_is_asked_with_a_declared_signature_and_its_inputs_alone(tmp_path: Path) -> None:
    async def handler(ctx: TaskContext) -> str:
        with pytest.raises(FunctionInvalid, match="the Signature 'Ask' is not declared by the shape"):
            await ctx.predict(Ask, message="Hi")
        with pytest.raises(InvalidArgument, match=r"the inputs of 'Muse' must be \['about'\], got \['topic'\]"):
            await ctx.predict(Muse, topic="hats")
        return "refused"

    async with scripted_agent(tmp_path, ScriptedLM([]), shapes=[shape(handler, entry=Muse)]) as agent:
        assert (await agent.thread("t").task("job", {})).result == Said(text="refused")


@pytest.mark.requirement("H7")
async def test_a_handler_has_the_context_of_a_worker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Size(BaseModel):
        size: int

    async def handler(ctx: TaskContext) -> str:
        worker: WorkerContext = ctx
        worker.log.warning("asking")
        colour = await worker.ask_person("Which?", ["red", "blue"])
        chosen = await ctx.ask_person("How large?", form=Size)
        noted = await worker.call_tool("note", {"what": colour})
        return f"{colour} {chosen.size} {noted} {worker.cancelled} {worker.path == ctx.id} {worker.on_behalf_of}"

    async with agent_of(tmp_path, handler) as agent:
        thread = agent.thread("t")
        turn = await thread.task("job", {})
        for answer in ("red", {"size": 4}):
            [pause] = turn.pauses
            turn = await thread.resume({pause.id: answer})
    assert turn.result == Said(text="red 4 noted False True root")
    assert [record.message for record in caplog.records if record.name == "worldagent.calls"] == ["asking"] * 3


async def test_an_answer_after_the_end_of_a_question_is_refused(tmp_path: Path) -> None:
    clock = VirtualClock()

    async def handler(ctx: TaskContext) -> str:
        try:
            return await ctx.calls.ask_person("What?", seconds=60)
        except WorldAgentError as error:
            return error.code

    async with agent_of(tmp_path, handler, clock=clock) as agent:
        [pause] = (await agent.thread("t").task("job", {})).pauses
        await clock.advance(61)
        with pytest.raises(AnswerInvalid, match=r"comes after it expired; resume without an answer to it"):
            await agent.thread("t").resume({pause.id: "late"})
        assert (await agent.thread("t").resume()).result == Said(text="pause_expired")


@pytest.mark.parametrize("value", [math.nan, {"a": [1, {"b": -math.inf}]}])
async def test_a_number_that_json_has_not_is_refused_and_does_not_come_back_as_null(tmp_path: Path, value: Any) -> None:
    done: list[str] = []

    @tool
    async def measure(what: str) -> Any:
        return value

    async def handler(ctx: TaskContext) -> str:
        with pytest.raises(ResultInvalid, match="the result of function 'measure' is not JSON"):
            await ctx.call("measure", {"what": "it"})
        with pytest.raises(ParamsInvalid, match="params of function 'note' are not JSON"):
            await ctx.call("note", {"what": value})
        return await ctx.calls.ask_person("And now?")

    async def result(params: Nothing, ctx: TaskContext) -> Anything:
        return Anything(value=value)

    shapes = [shape(handler), Shape("odd", Nothing, Anything, result)]
    async with scripted_agent(tmp_path, answering(), tools=[measure, noting(done)], shapes=shapes) as agent:
        [pause] = (await agent.thread("t").task("job", {})).pauses
        assert (await agent.thread("t").resume({pause.id: "on"})).result == Said(text="on")
        with pytest.raises(ResultInvalid, match="the result of shape 'odd' are not JSON"):
            await agent.thread("odd").task("odd", {})
    assert done == []
