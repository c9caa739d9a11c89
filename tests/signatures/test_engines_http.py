"""Model strings over real HTTP, a user's own LM, and what failures become."""

import asyncio
import json
import logging
import socket
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.lm15 import Message, Response, Usage

from support.agents import Ask
from support.openai_stub import openai_stub
from worldagent.core.errors import (
    AgentClosed,
    InvalidArgument,
    ModelNotConfigured,
    ModelTimeout,
    ModelUnavailable,
    WorldAgentError,
)
from worldagent.signatures.engines.classification import classify
from worldagent.signatures.engines.connect import ModelConnection, connect_model

KEY = "sk-secret-1234567890"
CANARY = "zebra-canary-prompt"


async def ask(connection: ModelConnection, message: str = CANARY, **settings: Any) -> str:
    adapter = dspy.ChatAdapter(use_json_adapter_fallback=False)
    quiet: dict[str, Any] = {"disable_history": True, "trace": None, "callbacks": [], "track_usage": False}
    with dspy.context(lm=connection.lm, adapter=adapter, **{**quiet, **settings}):
        return str((await dspy.Predict(Ask).acall(message=message)).reply)


async def failure_of(connection: ModelConnection) -> WorldAgentError:
    try:
        await ask(connection)
    except Exception as error:
        return classify(error, model=connection.name)
    raise AssertionError("the call did not fail")


async def test_an_address_and_a_key_in_the_environment_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with openai_stub() as stub:
        monkeypatch.setenv("OPENAI_BASE_URL", stub.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        connection = await connect_model("openai/answer")
        assert await ask(connection) == "Paris."
        await connection.aclose()
    assert stub.keys == [f"Bearer {KEY}"]


async def test_missing_key_names_its_variable() -> None:
    with pytest.raises(ModelNotConfigured, match="OPENAI_API_KEY") as caught:
        await connect_model("openai/gpt-4o")
    assert "'openai/gpt-4o'" in str(caught.value)
    assert "set the environment variable OPENAI_API_KEY" in caught.value.remedy
    assert "set api_base to the address of a server that needs no key" in caught.value.remedy
    assert caught.value.remedy.endswith("or make the agent with a `dspy.LM` of your own")
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


async def test_invalid_address_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "user:secret@localhost:8902")
    with pytest.raises(
        ModelNotConfigured, match=r"OPENAI_BASE_URL: the address must begin with http.*got 'localhost:8902'"
    ) as caught:
        await connect_model("openai/gpt-4o")
    assert "write it as http://localhost:8000/v1" in caught.value.remedy
    assert "secret" not in str(caught.value)


async def test_a_key_shows_in_no_repr_error_or_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with openai_stub() as stub:
        connection = await connect_model("openai/auth-401", api_key=KEY, api_base=stub.url)
        error = await failure_of(connection)
        shown = repr(connection) + str(connection) + repr(connection.lm) + repr(error) + str(vars(connection.lm))
        await connection.aclose()
    assert isinstance(error, ModelNotConfigured)
    assert KEY not in shown
    assert KEY not in caplog.text
    assert KEY not in json.dumps(connection.lm.kwargs)


async def test_a_refused_connection_is_unavailable_and_may_be_retried() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    connection = await connect_model("openai/answer", api_base=f"http://127.0.0.1:{port}/v1")
    error = await failure_of(connection)
    await connection.aclose()
    assert type(error) is ModelUnavailable
    assert error.retryable


async def test_a_time_limit_of_the_caller_hangs_up_and_is_a_timeout() -> None:
    async with openai_stub() as stub:
        connection = await connect_model("openai/slow", api_base=stub.url)
        task = asyncio.ensure_future(ask(connection))
        await asyncio.wait_for(stub.arrived.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(stub.gone.wait(), 10)
        await connection.aclose()
    assert type(classify(TimeoutError(), model="m")) is ModelTimeout


async def test_a_call_after_the_close_opens_no_connection() -> None:
    async with openai_stub() as stub:
        connection = await connect_model("openai/answer", api_base=stub.url)
        await connection.aclose()
        assert type(await failure_of(connection)) is AgentClosed
    assert stub.requests == []


class Echo:
    """An engine of a user's own that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    async def complete(self, request: Any) -> Response:
        self.calls += 1
        text = f"[[ ## reply ## ]]\nanswer {self.calls}\n\n[[ ## completed ## ]]"
        return Response(
            id=None, model=request.model, message=Message.assistant(text), finish_reason="stop", usage=Usage()
        )


class EchoSync:
    def complete(self, request: Any) -> Response:
        raise AssertionError("only the async half is called")


def _bytes_in(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


@pytest.mark.requirement("R7")
async def test_users_lm_is_neither_cached_nor_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dspy.configure_cache(enable_disk_cache=True, enable_memory_cache=True, disk_cache_dir=str(tmp_path))
    engine = Echo()
    lm = dspy.LM("mine/m", engine=EchoSync(), async_engine=engine, cache=True)
    connection = await connect_model(lm)
    try:
        assert [await ask(connection), await ask(connection)] == ["answer 1", "answer 2"]
        assert b"answer 1" not in _bytes_in(tmp_path)
        assert lm.cache is True
        assert lm.num_retries == 3
        # The control: the same LM used directly does keep the answer.
        await lm.acall("hello")
        await lm.acall("hello")
        assert engine.calls == 3
        assert b"answer 3" in _bytes_in(tmp_path)
    finally:
        await connection.aclose()
        dspy.cache.disk_cache.close()
        dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
    assert connection.name == "mine/m"


@pytest.mark.requirement("R7")
async def test_a_users_lm_has_no_callbacks_at_the_start_or_later() -> None:
    seen: list[str] = []

    class Watch(dspy.utils.callback.BaseCallback):
        def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
            seen.append(call_id)

    lm = dspy.LM("mine/m", engine=EchoSync(), async_engine=Echo(), callbacks=[Watch()])
    with pytest.raises(InvalidArgument, match="callbacks"):
        await connect_model(lm)
    for cache in (True, False):  # one that is neither cached nor retried needs no change, and is copied too
        lm = dspy.LM("mine/m", engine=EchoSync(), async_engine=Echo(), cache=cache, num_retries=0)
        connection = await connect_model(lm)
        lm.callbacks.append(Watch())
        lm.callbacks = list[dspy.utils.callback.BaseCallback]([Watch()])
        assert (await ask(connection), seen) == ("answer 1", [])


async def test_key_for_a_users_lm_is_refused() -> None:
    lm = dspy.LM("mine/m", engine=EchoSync(), async_engine=Echo())
    with pytest.raises(InvalidArgument, match="a key and an address"):
        await connect_model(lm, api_key=KEY)


@pytest.mark.parametrize("order", [asyncio.CancelledError(), KeyboardInterrupt()])
def test_an_order_to_stop_is_never_turned_into_a_failure(order: BaseException) -> None:
    with pytest.raises(type(order)):
        classify(order, model="m")
