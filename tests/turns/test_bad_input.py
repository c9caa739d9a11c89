"""Bad input and broken surroundings: a typed error that names the thing and ends with the remedy, nothing half-done."""

import asyncio
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from support.agents import Nothing, Said, answering, buy, scripted_agent
from support.homes import row_counts
from support.openai_stub import openai_stub
from support.serving import serving
from worldagent import Role, Roles, Settings, Storage, Tier, WorldAgent, agent
from worldagent.core import errors
from worldagent.graphs import Shape

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


MAKE: Any = WorldAgent  # for arguments of wrong types
ROLES: Any = Roles
SHAPE: Any = Shape
ARGUMENTS: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "storage": (lambda: MAKE("novel", storage="/tmp"), errors.InvalidArgument, "`storage` must be a Storage"),
    "identity": (lambda: MAKE("novel", lm="local", identity=" "), errors.InvalidArgument, "`identity`"),
    "profile": (lambda: MAKE("novel", lm="local", profile=3), errors.InvalidArgument, "`profile`"),
    "servers": (lambda: MAKE("novel", lm="local", mcp=["fs"]), errors.InvalidArgument, "`mcp`"),
    "limits": (lambda: Settings(account_limits={"rounds": 1}), errors.SettingsInvalid, "account_limits: .*'rounds'"),
    "policy": (lambda: ROLES(policy="x"), errors.InvalidArgument, "policy 'x'"),
    "source": (lambda: ROLES(sources={Tier.THREAD: "x"}), errors.InvalidArgument, "thread tier is not callable"),
    "tier": (lambda: ROLES(sources={Tier.ACCOUNT: len}), errors.UnknownTier, "account tier takes no source"),
    "handler": (lambda: SHAPE("job", Nothing, Said, len), errors.FunctionInvalid, "handler of shape 'job'"),
    "params": (lambda: SHAPE("job", dict, Said, buy), errors.FunctionInvalid, "'job' must declare pydantic models"),
    "name": (lambda: agent.nothing, AttributeError, "no attribute 'nothing'"),
}


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_invalid_argument_is_named(argument: str) -> None:
    make, error, says = ARGUMENTS[argument]
    with pytest.raises(error, match=says):
        make()


CALLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "turn": (lambda agent: agent.turn(3), "`turn_id`"),
    "events": (lambda agent: anext(agent.events(3)), "`turn_id`"),
    "change of a role": (lambda agent: agent.thread("t").resume(on_role_change="x"), "on_role_change 'x'"),
    "skill of a resume": (lambda agent: agent.thread("t").resume(skill="x"), "`skill` must be a Composed"),
    "skill of a replay": (lambda agent: agent.thread("t").replay(skill="x"), "`skill` must be a composed skill"),
    "message of a fork": (lambda agent: agent.thread("t").fork(at=7), "`at` must be a string"),
    "name of an attachment": (lambda agent: agent.attachments.add(b"x", name=5), "name of an attachment"),
}


@pytest.mark.parametrize("call", CALLS)
async def test_invalid_argument_of_a_call_is_named(tmp_path: Path, call: str) -> None:
    make, says = CALLS[call]
    async with scripted_agent(tmp_path, answering()) as agent:
        with pytest.raises((errors.InvalidArgument, errors.AttachmentInvalid), match=says) as caught:
            await make(agent)
        check(caught)


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


@pytest.mark.parametrize(
    ("lm", "error", "says"),
    [
        ("nosuch/model", errors.ModelNotConfigured, r"'nosuch/model'.*dspy\.LM"),
        ("", errors.InvalidArgument, r"`lm` must not be empty; pass"),
        ("local:/no/such/file.gguf", errors.ModelNotConfigured, r"file\.gguf.*; run"),
    ],
)
async def test_unusable_model_is_refused_at_start(tmp_path: Path, lm: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says) as caught:
        await scripted_agent(tmp_path / "home", lm).start()
    check(caught)
    assert not (tmp_path / "home").exists()


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
        with pytest.raises((errors.ModelUnavailable, errors.OutputInvalid, errors.ModelRefused)) as caught:
            await (follow(agent) if streamed else agent.thread("t").converse(MESSAGE))
        check(caught)
        assert [message.kind for message in await agent.thread("t").history()] == ["message"]


async def test_a_file_where_the_home_should_be_is_named_and_stays(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for home in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(errors.StorageUnavailable, match=r"file.*; .*use another home") as caught:
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
