"""What services are sent by a conversation that calls tools, in the formats of four of them, over real HTTP."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from support.leaks import traces_of
from support.service_turns import CALL_IN_WORDS, END, HOW, PIXEL, ROLE, THINKS, TWO, agent_at, named, price, told
from support.services import FORMATS, SIGNATURE, Format, Said, in_words, service
from worldagent import Approve, Role, Storage, WorldAgent
from worldagent.agent import Thread, Turn
from worldagent.core import events as ev
from worldagent.core.errors import HostError, ModelRefused
from worldagent.testing import assert_no_role_leak

ALL = pytest.mark.parametrize("wanted", FORMATS)


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "MISTRAL_API_KEY"):
        monkeypatch.setenv(name, "key")


async def streamed(thread: Thread, text: str, **more: Any) -> tuple[Turn, list[Any]]:
    async with thread.stream(text, **more) as stream:
        events = [event async for event in stream]
    assert stream.turn is not None
    return stream.turn, events


@ALL
@pytest.mark.requirement("T11", "R5", "R17")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_two_calls_side_by_side_take_two_requests(wanted: Format, stream: bool, tmp_path: Path) -> None:
    with service(TWO, END) as stub:
        async with agent_at(tmp_path, stub, wanted, settings=THINKS) as agent:
            thread = agent.thread("t")
            if stream:
                turn, events = await streamed(thread, "What is the rope?", role=ROLE)
                texts = [(event.step, event.text) for event in events if isinstance(event, ev.TextDelta)]
                assert "".join(text for step, text in texts if step == 0) == TWO.text
                assert "".join(text for step, text in texts if step == 1) == END.text
                assert [event.interim for event in events if isinstance(event, ev.StepEnded)] == [True, False]
                assert not [event for event in events if isinstance(event, ev.TextReplaced)]
            else:
                turn = await thread.converse("What is the rope?", role=ROLE)
    assert turn.text == END.text
    first, second = stub.requests
    assert named(first) == named(second) == ["buy", "price", "stock"]
    sent = json.dumps(told(second))
    assert "12.5" in sent
    assert sent.count("12.5") == 1
    for body in stub.requests:
        *before, last = told(body)
        assert HOW in json.dumps(last)
        assert HOW not in json.dumps(before)
        assert HOW not in json.dumps({key: value for key, value in body.items() if value != told(body)})
    # What stands before the role is the same in both, so a service can keep it.
    assert told(second)[: len(told(first)) - 1] == told(first)[:-1]
    assert_no_role_leak(tmp_path, traces_of(HOW))
    if wanted in ("anthropic", "gemini"):
        assert SIGNATURE in sent, "the service gets back what it signed"
    if wanted == "gemini":
        assert TWO.thinking not in sent, "a thought that is not signed is nothing that the model said"


@ALL
@pytest.mark.requirement("T11", "R7")
async def test_what_a_service_signed_is_gone_after_a_pause(wanted: Format, tmp_path: Path) -> None:
    thinking = Said("", (("buy", {"item": "rope"}),), f"They say: {HOW}")
    with service(thinking, Said("Bought.")) as stub:
        async with agent_at(tmp_path, stub, wanted, settings=THINKS) as agent:
            turn = await agent.thread("t").converse("Buy a rope.", role=ROLE)
            assert turn.status == "paused"
        assert_no_role_leak(tmp_path, traces_of(HOW))
        assert SIGNATURE.encode() not in b"".join(each.read_bytes() for each in tmp_path.rglob("*") if each.is_file())
        async with agent_at(tmp_path, stub, wanted) as agent:
            answers = {pause.id: Approve() for pause in turn.pauses}
            turn = await agent.thread("t").resume(answers, role=ROLE)
    assert turn.text == "Bought."
    sent = json.dumps(told(stub.requests[-1]))
    assert len(stub.requests) == 2
    assert "one rope" in sent
    assert SIGNATURE not in sent
    assert named(stub.requests[-1]), "services refuse calls in a history where no tools are sent"


@ALL
@pytest.mark.requirement("T11")
async def test_a_service_that_refuses_tools_is_asked_in_words(wanted: Format, tmp_path: Path) -> None:
    with service(CALL_IN_WORDS, in_words("12.50."), in_words("Yes.")) as stub:
        stub.refuses_tools = True
        async with agent_at(tmp_path, stub, wanted) as agent:
            turn = await agent.thread("t").converse("What is the rope?", role=ROLE)
            assert turn.text == "12.50."
            assert turn.usage.calls == 2, "the try with tools is not counted"
            assert len(stub.requests) == 3
            assert (await agent.thread("t").converse("Sure?", role=ROLE)).text == "Yes."
    assert [bool(named(body)) for body in stub.requests] == [True, False, False, False]


@pytest.mark.requirement("T11")
@pytest.mark.parametrize("lm", ["ollama/gemma:2b", "vllm/gemma"])
async def test_a_local_server_at_its_usual_address_that_refuses_tools_is_asked_in_words(
    lm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with service(in_words("Hello."), in_words("Yes.")) as stub:
        stub.refuses_tools = True
        port, connect = int(stub.origin.rpartition(":")[2]), asyncio.open_connection

        async def redirected(host: str, *_: Any, **more: Any) -> Any:  # the usual ports may be taken here
            return await connect("127.0.0.1", **{**more, "port": port})

        monkeypatch.setattr(asyncio, "open_connection", redirected)
        async with WorldAgent("shop", lm=lm, tools=[price], storage=Storage(home=tmp_path)) as agent:
            assert (await agent.thread("t").converse("Hi.")).text == "Hello."
            assert (await agent.thread("t").converse("Sure?")).text == "Yes."
    assert [bool(named(body)) for body in stub.requests] == [True, False, False]


REFUSALS = [
    (400, "no", "invalid_request_error"),
    (422, "bad request", None),
    (500, "the template cannot render tools", None),
]


@pytest.mark.requirement("T11")
@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_refusal_of_tools_is_remembered_and_logged_once(
    refusal: tuple[int, str, str | None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with service(*map(in_words, ("One.", "Two.", "Three."))) as stub:
        stub.refuses_tools, stub.refusal = True, refusal
        with caplog.at_level(logging.WARNING, "worldagent.models"):
            async with agent_at(tmp_path / "one", stub, "chat") as agent:
                assert (await agent.thread("t").converse("First?")).text == "One."
                assert (await agent.thread("t").converse("Second?")).text == "Two."
            async with agent_at(tmp_path / "two", stub, "chat") as agent:  # another agent of the process
                assert (await agent.thread("t").converse("Third?")).text == "Three."
    assert [bool(named(body)) for body in stub.requests] == [True, False, False, False]
    [record] = [each for each in caplog.records if each.name == "worldagent.models"]
    assert record.levelname == "WARNING"
    for said in (repr(FORMATS["chat"]), f"HTTP {refusal[0]}", "model_tools", "'native'", "'json'"):
        assert said in record.getMessage()


@pytest.mark.requirement("T11")
async def test_a_passing_failure_in_words_does_not_lead_to_a_second_try_with_tools(tmp_path: Path) -> None:
    with service(in_words("Hello.")) as stub:
        stub.refuses_tools, stub.fails = True, (503, "busy")
        async with agent_at(tmp_path, stub, "chat", settings={"model_attempts": 2, "model_backoff": 0}) as agent:
            turn = await agent.thread("t").converse("Hi.")
    assert (turn.text, turn.usage.calls) == ("Hello.", 1)
    assert [bool(named(body)) for body in stub.requests] == [True, False, False]


@pytest.mark.requirement("T11")
@pytest.mark.parametrize("code", ["context_length_exceeded", "invalid_api_key"])
async def test_a_refusal_for_another_reason_says_nothing_of_tools(code: str, tmp_path: Path) -> None:
    with service(Said("Hello.")) as stub:
        stub.refuses_tools, stub.refusal = True, (400, "no", code)
        async with agent_at(tmp_path, stub, "chat") as agent:
            with pytest.raises(HostError):
                await agent.thread("t").converse("Hi.")
            stub.refuses_tools = False
            assert (await agent.thread("u").converse("Hi.")).text == "Hello."
    assert [bool(named(body)) for body in stub.requests] == [True, True]


@pytest.mark.requirement("T11")
async def test_a_service_that_refuses_the_request_in_words_too_is_not_remembered(tmp_path: Path) -> None:
    with service(Said("Hello.")) as stub:
        stub.refuses_tools, stub.fails = True, (400, "no")
        async with agent_at(tmp_path, stub, "chat") as agent:
            with pytest.raises(ModelRefused):
                await agent.thread("t").converse("Hi.")
            stub.refuses_tools = False
            assert (await agent.thread("u").converse("Hi.")).text == "Hello."
    assert [bool(named(body)) for body in stub.requests] == [True, False, True]


@ALL
@pytest.mark.requirement("T11")
async def test_the_last_step_sends_the_tools_and_forbids_their_use(wanted: Format, tmp_path: Path) -> None:
    look = Said("", (("price", {"item": "rope"}),))
    with service(look, look, Said("Enough.")) as stub:
        async with agent_at(tmp_path, stub, wanted, settings={"max_rounds": 2}) as agent:
            assert (await agent.thread("t").converse("Look twice.")).text == "Enough."
    last = stub.requests[-1]
    assert len(stub.requests) == 3
    assert named(last) == named(stub.requests[0])
    choice = last.get("tool_choice") or last["toolConfig"]["functionCallingConfig"]
    assert choice in ("none", {"type": "none"}, {"mode": "NONE"})


@pytest.mark.requirement("T11")
@pytest.mark.parametrize("role", [ROLE, None])
async def test_results_are_told_in_words_only_where_a_role_would_follow_them(tmp_path: Path, role: Role | None) -> None:
    with service(TWO, END) as stub:
        stub.user_after_tool = False
        async with agent_at(tmp_path, stub, "chat", lm="mistral/mistral-stub") as agent:
            turn = await agent.thread("t").converse("What is the rope?", role=role)
    assert turn.text == END.text
    assert len(stub.requests) == 2
    assert "12.5" in json.dumps(told(stub.requests[1]))
    if role is None:
        assert [each["role"] for each in told(stub.requests[1])] == ["system", "user", "assistant", "tool", "tool"]


@pytest.mark.requirement("T11")
@pytest.mark.parametrize("lm", ["openrouter/mistralai/mistral-large"])
async def test_a_service_that_refuses_a_user_message_after_results_gets_them_in_words(
    lm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "key")
    with service(TWO, END, TWO, END) as stub, caplog.at_level(logging.WARNING, "worldagent.models"):
        stub.user_after_tool = False
        async with agent_at(tmp_path, stub, "chat", lm=lm) as agent:
            first = await agent.thread("t").converse("What is the rope?", role=ROLE)
            again = await agent.thread("u").converse("What is the rope?", role=ROLE)
    assert first.text == again.text == END.text
    assert first.usage.calls == 2
    native = [any(each["role"] == "tool" for each in told(body)) for body in stub.requests]
    assert native == [False, True, False, False, False]
    assert all(named(body) for body in stub.requests), "the tools are still offered natively"
    assert "12.5" in json.dumps(told(stub.requests[-1]))
    [record] = [each for each in caplog.records if each.name == "worldagent.models"]
    assert repr(lm) in record.getMessage()
    assert "HTTP 400" in record.getMessage()


@pytest.mark.requirement("T11")
async def test_a_failure_after_results_that_is_no_refusal_of_them_is_not_remembered(tmp_path: Path) -> None:
    with service(TWO, TWO, END) as stub:
        async with agent_at(tmp_path, stub, "chat") as agent:
            stub.fails_at = {2: (400, "bad"), 3: (400, "bad")}
            with pytest.raises(ModelRefused):
                await agent.thread("t").converse("What is the rope?", role=ROLE)
            assert (await agent.thread("u").converse("What is the rope?", role=ROLE)).text == END.text
    native = [any(each["role"] == "tool" for each in told(body)) for body in stub.requests]
    assert native == [False, True, False, False, True]


@ALL
@pytest.mark.requirement("T11")
async def test_an_image_is_sent_in_the_formats_own_way(wanted: Format, tmp_path: Path) -> None:
    with service(Said("A dot.")) as stub:
        async with agent_at(tmp_path, stub, wanted) as agent:
            dot = await agent.attachments.add(PIXEL, name="dot.png")
            assert (await agent.thread("t").converse("What is this?", attachments=[dot], role=ROLE)).text == "A dot."
    [body] = stub.requests
    *before, last = told(body)
    assert base64.b64encode(PIXEL).decode()[:24] in json.dumps(before)
    assert HOW in json.dumps(last)
