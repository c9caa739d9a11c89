"""Bad input and broken surroundings: a typed error that names the thing and ends with the remedy, nothing half-done."""

import asyncio
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from support.agents import Said, answering, scripted_agent
from support.homes import PNG, row_counts
from support.openai_stub import openai_stub
from support.serving import serving
from support.tools import certificates
from worldagent import Role, Settings, Storage, Tier, WorldAgent
from worldagent.core import errors
from worldagent.graphs import Shape, TaskContext
from worldagent.graphs.shapes import investigation_shape, map_shape
from worldagent.harness import CallContext, Policy, Worker, flow
from worldagent.harness.gate import Rule
from worldagent.tools.agents import PARALLEL, manage_todo_list

MESSAGE = "zebra-canary-message"


def check(caught: pytest.ExceptionInfo[Any]) -> errors.WorldAgentError:
    """What every error of ours has: a code, a remedy at its end, nothing of the message and no foreign exception."""
    error: errors.WorldAgentError = caught.value
    assert str(error).endswith(error.remedy)
    assert error.code != "error"
    assert "zebra" not in f"{error!r} {error.__cause__!r} {error.__context__!r}"
    return error


@pytest.mark.parametrize("value", [None, "a\nb", "x" * 201])
def test_invalid_workspace_or_id_is_named(value: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match=r"workspace .* is not an id; give workspace 1 to 200"):
        WorldAgent(value, lm=answering())
    agent = WorldAgent("novel", lm=answering())
    with pytest.raises(errors.InvalidArgument, match=r"thread .*; give thread"):
        agent.thread(value)
    if value is not None:
        for name in ("account", "channel"):
            with pytest.raises(errors.InvalidArgument, match=rf"{name} .*; give {name}"):
                agent.thread("t", **{name: value})


HARSH = Role("critic", "Be as harsh as the keeper.")


@flow
async def ask(ctx: CallContext, given: dict[str, Any]) -> str:
    return str(await ctx.ask_person(**given))


def asking(**given: Any) -> Callable[[Any, Any], Any]:
    return lambda agent, _: agent.call("ask", {"given": given})


def todo(*contents: str, status: str = "pending") -> Callable[[Any, Any], Any]:
    items = [{"content": content, "status": status} for content in contents]
    return lambda agent, _: agent.call("manage_todo_list", {"items": items})


class Anything(BaseModel):
    value: Any


async def same(params: Anything, ctx: TaskContext) -> Anything:
    return params


SHAPES = [
    Shape("same", Anything, Anything, same),
    map_shape(over=["same", "cube"]),
    investigation_shape(functions=["ask"]),
]


def task(shape: str, /, **params: Any) -> Callable[[Any, Any], Any]:
    return lambda _, thread: thread.task(shape, params)


NESTED = {"calls": [{"tool": "parallel_execution"}]}
CALLS: dict[type[errors.WorldAgentError], list[tuple[Callable[[Any, Any], Any], str]]] = {
    errors.InvalidArgument: [
        (lambda agent, _: agent.turn(3), "`turn_id`"),
        (lambda agent, _: anext(agent.events(3)), "`turn_id`"),
        (lambda agent, _: agent.traces.get([]), "`turn_id` must be a text"),
        (lambda agent, _: agent.traces.list(thread=[]), "`thread` must be a text"),
        (lambda agent, _: agent.examples([]), "`signature` must be a text"),
        (lambda agent, _: agent.examples(account={}), "`account` must be a text"),
        (lambda agent, _: agent.usage(account=["ana"]), "account .* is not an id"),
        (lambda _, thread: thread.history(before=[]), "`before` must be a text"),
        (lambda agent, _: agent.traces.list(limit=0), "`limit` must be an integer from 1 to"),
        (lambda agent, _: agent.upkeep.prune(keep=0), "keep"),
        (lambda agent, _: agent.upkeep.prune(keep=True), "keep"),
        (lambda agent, _: agent.upkeep.prune(age=float("nan")), "age"),
        (lambda agent, _: agent.upkeep.prune(age=315_360_001), "age"),
        (lambda _, thread: thread.resume(on_role_change="x"), "on_role_change 'x'"),
        (lambda _, thread: thread.resume(skill="x"), "`skill` must be a Composed"),
        (lambda _, thread: thread.replay(skill="x"), "`skill` must be a composed skill"),
        (lambda _, thread: thread.fork(at=7), "`at` must be a string"),
        (lambda _, thread: thread.stream("Look.", attachments="https://pictures.example/x.png"), "must be a list"),
        (lambda _, thread: thread.converse("Hi", model=7), "a non-empty string or a list of them, got 'int'"),
        (lambda _, thread: thread.converse("Hi", model=["fast"] * 9), "more than 8 names"),
        (lambda _, thread: thread.converse("Hi", output=WorldAgent), "output="),
        (lambda _, thread: thread.converse("Hi", output=Said(text="x")), "output="),
        (lambda _, thread: thread.converse("Hi", output={"type": "shp"}), "output="),
        (lambda _, thread: thread.converse("Hi", unattended="later"), "unattended"),
        (lambda _, thread: thread.role.set(HARSH, ttl=0), "ttl"),
        (lambda _, thread: thread.role.set(HARSH, ttl=-1), "ttl"),
        (lambda _, thread: thread.role.set(HARSH, ttl=float("inf")), "ttl"),
        (lambda _, thread: thread.role.set(HARSH, ttl=True), "ttl"),
        (asking(question=""), "`question` must be a text that is not empty"),
        (asking(question="?", options="ab"), "`options` must be a list of texts"),
        (asking(question="?", options=["a"], form=1), "`options` and `form`"),
    ],
    errors.AttachmentInvalid: [
        (lambda agent, _: agent.attachments.add(b"x", name=5), "name of an attachment"),
        (lambda _, thread: thread.stream("Look.", attachments=["file:///etc/passwd"]), "neither http:// nor https://"),
        (lambda _, thread: thread.stream("Look.", attachments=["https://ana:zebra@a.example/x"]), "a user or password"),
        (lambda _, thread: thread.stream("Look.", attachments=[3]), "or an Attachment, got int"),
        (lambda _, thread: thread.stream("Look.", attachments=[PNG] * 17), "at most 16 attachments, got 17"),
    ],
    errors.ModelNotConfigured: [
        (lambda _, thread: thread.converse("Hi", model="fsat"), "'fsat', which is neither a model.*names are: fast"),
        (lambda _, thread: thread.converse("Hi", model="openai/gpt-4o"), "no API key"),
    ],
    errors.ToolFailed: [
        (todo("a", "a"), "'a' is in the list twice"),
        (todo("a", "b", status="in_progress"), "more than one item is in_progress"),
        (lambda agent, _: agent.call("parallel_execution", NESTED), "cannot call itself"),
    ],
    errors.ParamsInvalid: [
        (task("subagent", worker="w", request="no JSON"), "params of worker 'w' must be a JSON object"),
        (task("subagent", worker="w", request="[]"), "params of worker 'w' must be a JSON object"),
        (task("same"), "params of shape 'same' do not fit: value: Field required"),
        (task("same", value=1 << 64), "'same' must hold only integers of at most 64 bits; pass .* as text"),
        (task("same", value=1, c=2), "'same'.*c: Extra inputs are not permitted"),
        (task("same", value=object()), "'same'"),  # it cannot be stored
        (task("same", value={"deep": ["\udfff"]}), "'same'"),
        (task("map", shape="same", items=[{"value": 1}] * 1001), "items: .* at most 1000 items"),
        (task("map", shape="subagent", items=[]), "'subagent' is not one that it may run; it may run: cube, same"),
        (task("map", shape="same", items=[{}, {"value": [0, float("nan")]}]), r"not JSON: items\.1\.value\.1: "),
        (task("investigation", question="?", max_steps=1000), "max_steps: .* less than or equal to 50"),
        (task("investigation", question="?", inputs={"class": 1}), "'class' is a word of Python"),
        (task("investigation", question="?", functions=["pay"]), "'pay' is not one .*; it may call: ask"),
    ],
    errors.UnknownWorker: [(task("subagent", worker="poet", request="x"), "'poet'; the workers are: w")],
    errors.UnknownShape: [
        (task("subtract"), "'subtract'; the shapes are: investigation, map, same, subagent"),
        (task("map", shape="cube", items=[]), "'cube'; the shapes are: investigation, map, same, subagent"),
    ],
    errors.RoleInvalid: [(lambda _, thread: thread.role.set("Be harsh."), "role")],
    errors.RoleTooLong: [(lambda _, thread: thread.role.set(Role("x", "y" * 101)), "the limit is 100")],
}


@pytest.mark.parametrize(
    ("call", "error", "says"), [(call, error, says) for error, rows in CALLS.items() for call, says in rows]
)
async def test_invalid_argument_of_a_call_is_named(
    tmp_path: Path, call: Callable[[Any, Any], Any], error: type[Exception], says: str
) -> None:
    lm, tools, workers = answering(), [ask, manage_todo_list, PARALLEL], [Worker("w", "Go.", input=Said)]
    given: dict[str, Any] = {"shapes": SHAPES, "settings": {"role_limit": 100}, "models": {"fast": answering()}}
    async with scripted_agent(tmp_path, lm, tools=tools, workers=workers, **given) as agent:
        thread = agent.thread("t")
        with pytest.raises(error, match=says) as caught:
            await call(agent, thread)
        assert type(check(caught)) is error
        assert (await thread.state(), await thread.history(), thread.role.clear()) == (None, (), False)
    assert lm.calls == []


async def test_stream_is_entered_once_and_has_its_turn_after_its_end(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering()) as agent:
        stream = agent.thread("t").stream("Hi")
        with pytest.raises(errors.AgentClosed, match="was not entered"):
            await anext(stream)
        with pytest.raises(errors.AgentClosed, match="has not ended"):
            _ = stream.turn
        async with stream:
            await stream.wait()
        with pytest.raises(errors.AgentClosed, match="entered once"):
            await stream.__aenter__()


@pytest.mark.parametrize("text", ["  \n", None, "half \ud83d a pair"])
async def test_invalid_message_is_refused_before_anything_is_written(tmp_path: Path, text: Any) -> None:
    lm = answering()
    async with scripted_agent(tmp_path, lm) as agent:
        before = row_counts(tmp_path)
        for say in (agent.thread("t").converse, agent.thread("t").stream):
            with pytest.raises(errors.InvalidArgument, match="`text`"):
                await say(text)  # type: ignore[misc]  # `stream` raises before it could be awaited
        assert row_counts(tmp_path) == before
        assert not (tmp_path / "locks").exists()
    assert lm.calls == []


CLERK, REFUSING = partial(Worker, "critic", "Go."), Policy(rules=(Rule(decision="refuse", function="sendd"),))
STARTS: list[tuple[dict[str, Any], type[errors.WorldAgentError], str]] = [
    ({"lm": "nosuch/model"}, errors.ModelNotConfigured, r"'nosuch/model'.*dspy\.LM"),
    ({"lm": ""}, errors.InvalidArgument, "`lm` must not be empty; pass"),
    ({"lm": "local:/no/such/file.gguf"}, errors.ModelNotConfigured, r"file\.gguf.*; run"),
    ({"workers": [CLERK(model="fast")]}, errors.ModelNotConfigured, "the worker 'critic' wants the model 'fast'"),
    (
        {"workers": [CLERK(fallbacks=("slow",))], "models": {"fast": "a/b"}},
        errors.ModelNotConfigured,
        "'slow'.*names are: fast",
    ),
    ({"models": {"a/b": "openai/x"}}, errors.InvalidArgument, "'a/b' cannot name a model"),
    ({"models": {"fast": 7}}, errors.InvalidArgument, "'fast' must be .* got 'int'"),
    ({"workers": [CLERK(tools=("putt",))]}, errors.FunctionInvalid, "'critic' names 'putt' in its tools"),
    ({"workers": [CLERK(policy=REFUSING)]}, errors.PolicyInvalid, "'sendd'"),
    ({"workers": [Worker("ask", "Go.")], "tools": [ask]}, errors.NameTaken, "'ask'"),
    ({"workers": [Worker("Converse", "You talk.")]}, errors.NameTaken, "'Converse'"),
    ({"shapes": SHAPES + SHAPES[:1]}, errors.NameTaken, "'same'"),
    ({"shapes": [Shape("subagent", Anything, Anything, same)]}, errors.NameTaken, "'subagent'"),
]


@pytest.mark.parametrize(("given", "error", "says"), STARTS)
async def test_agent_of_invalid_parts_is_not_started(
    tmp_path: Path, given: dict[str, Any], error: type[Exception], says: str
) -> None:
    parts: dict[str, Any] = {"lm": answering(), **given}
    with pytest.raises(error, match=says) as caught:
        await scripted_agent(tmp_path / "home", **parts).start()
    check(caught)
    assert "lm" not in given or not (tmp_path / "home").exists()


FAILING: list[tuple[str, type[errors.WorldAgentError], str]] = [
    ("auth-401", errors.ModelNotConfigured, "set a key"),
    ("missing-404", errors.ModelNotConfigured, "check the model's name"),
    ("echo-400", errors.ModelRefused, "check that the model accepts"),
    ("context-400", errors.ContextExceeded, "shorten the message"),
    ("limited-429", errors.ModelRateLimited, "wait 7 seconds and try again"),
    ("down-500", errors.ModelUnavailable, "try again later"),
]


def hosted(home: Path, url: str, model: str) -> WorldAgent:
    settings = Settings(api_base=url, model_attempts=1, model_backoff=0)
    return WorldAgent("novel", lm=f"openai/{model}", storage=Storage(home=home), settings=settings)


@pytest.mark.parametrize(("model", "error", "remedy"), FAILING)
async def test_refusal_fails_the_turn(tmp_path: Path, model: str, error: type[Exception], remedy: str) -> None:
    async with openai_stub() as stub:
        async with hosted(tmp_path, stub.url, model) as agent:
            with pytest.raises(error, match=rf"'openai/{model}'.*{remedy}") as caught:
                await agent.thread("t").converse(MESSAGE)
            assert check(caught).turn_id is not None
            assert getattr(caught.value, "retry_after", 7.0) == 7.0
            assert [message.kind for message in await agent.thread("t").history()] == ["message"]
        if error is not errors.ModelRateLimited:  # all calls of that service wait for as long as it says
            async with hosted(tmp_path, stub.url, "answer") as agent:
                assert (await agent.thread("t").converse("Hi")).text == "Paris."


async def test_a_certificate_of_an_authority_of_ones_own(tmp_path: Path) -> None:
    secure, _ = certificates(tmp_path, "127.0.0.1")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=secure) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        async with hosted(tmp_path / "home", url, "answer") as agent:
            with pytest.raises(errors.ModelUnavailable, match=r"its certificate is not valid; .* SSL_CERT_FILE"):
                await agent.thread("t").converse(MESSAGE)


def saying(data: bytes) -> AbstractAsyncContextManager[int]:
    """A server that answers every request with `data` and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        await writer.drain()

    return serving(serve)


def http(body: bytes, kind: str = "application/json") -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


GARBAGE = {
    "no JSON": http(b"<html>zebra</html>"),
    "not UTF-8": http(b'{"choices": "\xff\xfe"}'),
    "cut off": http(b'{"choices": [{"mess')[:-3],
    "broken events": http(b"data: {zebra\n\ndata: [DONE]\n\n", kind="text/event-stream"),
}


async def follow(agent: WorldAgent) -> list[Any]:
    async with agent.thread("t").stream(MESSAGE) as stream:
        return [event async for event in stream]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("garbage", GARBAGE)
async def test_garbage_of_a_service_is_a_typed_error(tmp_path: Path, garbage: str, streamed: bool) -> None:
    async with saying(GARBAGE[garbage]) as port, hosted(tmp_path, f"http://127.0.0.1:{port}/v1", "answer") as agent:
        kinds = (errors.ModelUnavailable, errors.OutputInvalid, errors.ModelRefused, errors.ModelNotConfigured)
        with pytest.raises(kinds) as caught:
            await (follow(agent) if streamed else agent.thread("t").converse(MESSAGE))
        check(caught)
        assert [message.kind for message in await agent.thread("t").history()] == ["message"]


async def test_a_file_where_the_home_should_be_is_named_and_stays(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for home in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(errors.StorageUnavailable, match=r"file.*; name a folder") as caught:
            await scripted_agent(home, answering()).start()
        check(caught)
    assert (tmp_path / "file").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


async def filled(home: Path) -> None:
    """Fill a home with a turn and a role, and leave no log beside the databases."""
    async with scripted_agent(home, answering()) as agent:
        await agent.roles.put(Tier.WORKSPACE, Role("house", "house words"))
        await agent.thread("t").converse("Hi")


@pytest.mark.parametrize("how", ["deleted", "replaced"])
async def test_removed_database_fails_the_next_turn_before_a_model_call(tmp_path: Path, how: str) -> None:
    home, lm = tmp_path / "home", answering()
    await filled(home)
    shutil.copytree(home, tmp_path / "copy")
    async with scripted_agent(home, lm) as agent:
        for file in home.glob("*.db*"):
            file.unlink()
        if how == "replaced":
            shutil.copytree(tmp_path / "copy", home, dirs_exist_ok=True)
        for use in (
            lambda: agent.thread("t").converse(MESSAGE),
            lambda: agent.roles.put(Tier.WORKSPACE, Role("x", "y")),
        ):
            with pytest.raises(
                errors.StorageUnavailable, match=r"was replaced by another file or removed; put it back"
            ) as caught:
                await use()
            check(caught)
    assert lm.calls == []
    async with scripted_agent(home, answering()) as agent:
        assert len(await agent.thread("t").history()) == (2 if how == "replaced" else 0)
        assert (await agent.thread("t").converse("Hi")).text == "Fine."
