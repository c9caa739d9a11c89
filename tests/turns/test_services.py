"""What services are sent, where a prompt can be cached, what is made of calls, usage and thoughts, over real HTTP."""

import base64
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from dspy import lm15

from support.agents import open_pauses, scripted_agent, streamed
from support.leaks import traces_of
from support.services import (
    BUYING,
    CALL_IN_WORDS,
    END,
    FORMATS,
    HOW,
    PIXEL,
    ROLE,
    SIGNATURE,
    THINKS,
    TWO,
    Format,
    Said,
    agent_at,
    in_words,
    named,
    price,
    service,
    stock,
    told,
)
from worldagent import Approve, Role, Settings, Storage, WorldAgent
from worldagent.core import ECHO_RUN, ModelUsage
from worldagent.core import events as ev
from worldagent.core.errors import HostError
from worldagent.testing import ScriptedLM, assert_no_role_leak

pytestmark = pytest.mark.requirement("T11")

ALL = pytest.mark.parametrize("wanted", FORMATS)


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "MISTRAL_API_KEY"):
        monkeypatch.setenv(name, "key")


@ALL
@pytest.mark.requirement("R5", "R17")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_two_calls_side_by_side_take_two_requests(wanted: Format, stream: bool, tmp_path: Path) -> None:
    with service(TWO, END) as stub:
        async with agent_at(tmp_path, stub, wanted, settings=THINKS) as agent:
            thread = agent.thread("t")
            if stream:
                turn, events = await streamed(thread.stream("What is the rope?", role=ROLE))
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
        parts = [part for content in second["contents"] for part in content["parts"]]
        assert {"text": TWO.thinking, "thought": True} in parts, "its parts go back as they came"


@ALL
@pytest.mark.requirement("R7")
async def test_what_a_service_signed_is_gone_after_a_pause(wanted: Format, tmp_path: Path) -> None:
    thinking = Said("", (("buy", {"item": "rope"}),), f"They say: {HOW}")
    with service(thinking, Said("Bought.")) as stub:
        async with agent_at(tmp_path, stub, wanted, settings=THINKS) as agent:
            turn = await agent.thread("t").converse("Buy a rope.", role=ROLE)
            assert turn.status == "paused"
        assert_no_role_leak(tmp_path, traces_of(HOW))
        assert SIGNATURE.encode() not in b"".join(each.read_bytes() for each in tmp_path.rglob("*") if each.is_file())
        async with agent_at(tmp_path, stub, wanted) as agent:
            turn = await agent.thread("t").resume({pause.id: Approve() for pause in turn.pauses}, role=ROLE)
    assert turn.text == "Bought."
    sent = json.dumps(told(stub.requests[-1]))
    assert len(stub.requests) == 2
    assert "one rope" in sent
    assert SIGNATURE not in sent
    assert named(stub.requests[-1]), "services refuse calls in a history where no tools are sent"


@ALL
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


REFUSALS = [
    (400, "no", "invalid_request_error"),
    (500, "the template cannot render tools", None),
]


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


async def test_a_refusal_for_another_reason_says_nothing_of_tools(tmp_path: Path) -> None:
    with service(Said("Hello.")) as stub:
        stub.refuses_tools, stub.refusal = True, (400, "no", "context_length_exceeded")
        async with agent_at(tmp_path, stub, "chat") as agent:
            with pytest.raises(HostError):
                await agent.thread("t").converse("Hi.")
            stub.refuses_tools = False
            assert (await agent.thread("u").converse("Hi.")).text == "Hello."
    assert [bool(named(body)) for body in stub.requests] == [True, True]


@ALL
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


@pytest.mark.parametrize("role", [ROLE, None])
async def test_results_are_sent_in_words_only_before_a_role(tmp_path: Path, role: Role | None) -> None:
    with service(TWO, END) as stub:
        stub.user_after_tool = False
        async with agent_at(tmp_path, stub, "chat", lm="mistral/mistral-stub") as agent:
            turn = await agent.thread("t").converse("What is the rope?", role=role)
    assert turn.text == END.text
    assert len(stub.requests) == 2
    assert "12.5" in json.dumps(told(stub.requests[1]))
    if role is None:
        assert [each["role"] for each in told(stub.requests[1])] == ["system", "user", "assistant", "tool", "tool"]


async def test_service_without_user_messages_after_results_gets_results_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lm = "openrouter/mistralai/mistral-large"
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


@ALL
async def test_an_image_is_sent_in_the_formats_own_way(wanted: Format, tmp_path: Path) -> None:
    with service(Said("A dot.")) as stub:
        async with agent_at(tmp_path, stub, wanted) as agent:
            dot = await agent.attachments.add(PIXEL, name="dot.png")
            assert (await agent.thread("t").converse("What is this?", attachments=[dot], role=ROLE)).text == "A dot."
    [body] = stub.requests
    *before, last = told(body)
    assert base64.b64encode(PIXEL).decode()[:24] in json.dumps(before)
    assert HOW in json.dumps(last)


@ALL
async def test_tokens_count_alike_for_all_services(tmp_path: Path, wanted: Format) -> None:
    with service(Said("Aye.")) as stub:
        async with agent_at(tmp_path, stub, wanted) as agent:
            turn = await agent.thread("t").converse("Ahoy.")
    [used] = turn.usage.models.values()
    assert (used.calls, used.input_tokens, used.cached_tokens) == (1, 100, 64)
    assert used.output_tokens == (13 if wanted == "gemini" else 10)  # whose 3 of reasoning come on top of its 10
    assert used.reasoning_tokens == (0 if wanted == "anthropic" else 3)  # it does not say how many of the 10
    assert used.cost is None  # a server of one's own has its own prices


@ALL
async def test_a_stream_says_at_its_beginning_or_end_what_it_was_sent(tmp_path: Path, wanted: Format) -> None:
    with service(Said("Aye.")) as stub:
        async with agent_at(tmp_path, stub, wanted) as agent:
            turn, events = await streamed(agent.thread("t").stream("Ahoy."))
    [event] = [event for event in events if isinstance(event, ev.Usage)]
    assert event.input_tokens == turn.usage.input_tokens == 100
    assert event.output_tokens == turn.usage.output_tokens == (13 if wanted == "gemini" else 10)
    assert turn.to_json()["usage"]["input_tokens"] == event.input_tokens


async def test_usage_that_an_lm_omits_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worldagent.testing.scripted._usage", lambda *_: lm15.Usage())
    async with scripted_agent(tmp_path, ScriptedLM([{"reply": "Aye."}])) as agent:
        turn = await agent.thread("t").converse("Ahoy.")
    assert turn.usage.models == {"scripted": ModelUsage(calls=1, input_tokens=None, output_tokens=None, cost=None)}


async def test_a_turn_counts_what_it_used_before_a_pause_by_model(tmp_path: Path) -> None:
    with service(BUYING, Said("Bought.")) as stub:
        async with agent_at(tmp_path, stub, "chat") as agent:
            turn = await agent.thread("t").converse("Buy a rope.", key="k")
            assert (turn.status, turn.usage.calls, turn.usage.input_tokens) == ("paused", 1, 100)
        async with agent_at(tmp_path, stub, "chat") as agent:
            thread = agent.thread("t")
            [pause] = await open_pauses(thread)
            turn = await thread.resume({pause.id: Approve()})
            again = await thread.converse("Buy a rope.", key="k")
    [(name, used)] = turn.usage.models.items()
    assert name == FORMATS["chat"]
    assert (used.calls, used.input_tokens, used.output_tokens, used.cached_tokens) == (2, 200, 20, 128)
    assert turn.usage == again.usage


THOUGHT = "The person asks for the depth at the quay, so the chart has to be read first."
STEP = Said("Let me look.", (("price", {"item": "rope"}),), THOUGHT)
SEVEN = Said("Seven metres.", (), "The chart says seven.")


def thoughts(events: list[Any], step: int) -> str:
    return "".join(event.text for event in events if isinstance(event, ev.ReasoningDelta) and event.step == step)


@ALL
async def test_thoughts_are_streamed_with_their_step_and_kept_nowhere(tmp_path: Path, wanted: Format) -> None:
    with service(STEP, SEVEN) as stub:
        async with agent_at(tmp_path, stub, wanted, settings=THINKS) as agent:
            turn, events = await streamed(agent.thread("t").stream("How deep?", key="k"))
            _, again = await streamed(agent.thread("t").stream("How deep?", key="k"))
            again += [event async for event in agent.events(turn.id)]
    assert again
    assert not any(isinstance(event, ev.ReasoningDelta) for event in again)
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert THOUGHT[:30].encode() not in kept
    assert thoughts(events, 0) == THOUGHT
    assert thoughts(events, 1) == SEVEN.thinking
    assert all("seq" not in json.loads(each.model_dump_json()) for each in events if not each.seq)
    numbers = [event.seq for event in events if not isinstance(event, ev.ReasoningDelta)]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize(
    ("wanted", "options", "sent"),
    [
        ("responses", {"reasoning_summary": "concise"}, {"effort": "medium", "summary": "concise"}),
        ("responses", {"reasoning_effort": "off", "reasoning_summary": "auto"}, {"effort": "none"}),
        ("gemini", THINKS["model_options"], True),
        ("gemini", {"reasoning_effort": "low"}, None),
        ("anthropic", {"reasoning_summary": "concise"}, "enabled"),
        ("chat", {"reasoning_summary": "auto"}, "medium"),
    ],
)
async def test_option_is_sent_per_format(tmp_path: Path, wanted: Format, options: dict[str, str], sent: Any) -> None:
    with service(SEVEN) as stub:
        async with agent_at(tmp_path, stub, wanted, settings={"model_options": options}) as agent:
            assert (await agent.thread("t").converse("How deep?")).text == SEVEN.text
    [body] = stub.requests
    found = {
        "responses": lambda: body["reasoning"],
        "gemini": lambda: body["generationConfig"]["thinkingConfig"].get("includeThoughts"),
        "anthropic": lambda: body["thinking"]["type"],
        "chat": lambda: body["reasoning_effort"],
    }
    assert found[wanted]() == sent


async def test_unsigned_reasoning_is_not_sent_back_as_what_the_model_said(tmp_path: Path) -> None:
    with service(STEP, SEVEN) as stub:
        async with agent_at(tmp_path, stub, "chat", settings=THINKS) as agent:
            await agent.thread("t").converse("How deep?")
    [said] = [message for message in stub.requests[1]["messages"] if message["role"] == "assistant"]
    assert (said["content"], len(said["tool_calls"])) == (STEP.text, 1)
    assert THOUGHT not in json.dumps(stub.requests[1])


async def test_reasoning_goes_back_in_the_services_field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "key")
    with service(STEP, SEVEN) as stub:
        async with agent_at(tmp_path, stub, "chat", lm="deepseek/stub") as agent:
            await streamed(agent.thread("t").stream("How deep?"))
    [said] = [message for message in stub.requests[1]["messages"] if message["role"] == "assistant"]
    assert (said["content"], said["reasoning_content"]) == (STEP.text, THOUGHT)


@pytest.mark.requirement("R16")
@ALL
async def test_a_role_that_is_thought_aloud_is_withheld(tmp_path: Path, wanted: Format) -> None:
    with service(Said("Aye.", (), f"I am told: {HOW[20:]} So I shall be short.")) as stub:
        async with agent_at(tmp_path, stub, wanted, settings=THINKS) as agent:
            turn, events = await streamed(agent.thread("t").stream("How deep?", role=ROLE))
    shown = thoughts(events, 0)
    assert shown.startswith("I am told:")
    assert shown.endswith("So I shall be short.")
    assert not any(HOW[at : at + ECHO_RUN] in shown for at in range(len(HOW) - ECHO_RUN + 1))
    assert [event.text for event in events if isinstance(event, ev.TextDelta)] != []
    assert turn.withheld.fields == ("reasoning",)
    assert 0 < turn.withheld.characters <= len(HOW)
    assert_no_role_leak(tmp_path, traces_of(HOW))


OTHER = "Answer as a child of six would, who has never seen the sea."
LOOK = Said("", (("price", {"item": "rope"}),))
MARKS = ("cache_control", "prompt_cache_breakpoint")
NEW = "openai/gpt-5.6-stub"


async def requests_of(
    home: Path, lm: str, *, role: str | None = HOW, hints: str = "on", workspace: str = "harbour"
) -> list[dict[str, Any]]:
    """What the service is sent in a turn of two steps."""
    with service(LOOK, Said("Seven metres.")) as stub:
        base = stub.url("gemini" if lm.startswith("gemini") else "chat")
        settings = Settings(api_base=base, model_attempts=1, model_cache_hints=hints)
        async with WorldAgent(workspace, lm=lm, storage=Storage(home=home), settings=settings, tools=[price]) as agent:
            await agent.thread("t").converse("How deep?", role=None if role is None else Role("pilot", role))
    assert len(stub.requests) == 2
    return stub.requests


def blocks(body: dict[str, Any]) -> list[dict[str, Any]]:
    """All blocks of all messages, in order."""
    found: list[dict[str, Any]] = []
    for message in body.get("messages") or body["input"]:
        content = message.get("content")
        found += content if isinstance(content, list) else [message]
    return found


def marked(body: dict[str, Any]) -> list[int]:
    """The places of the blocks with a mark."""
    return [place for place, block in enumerate(blocks(body)) if any(mark in block for mark in MARKS)]


async def test_anthropic_gets_a_mark_at_the_block_before_the_role_or_at_the_last_one(tmp_path: Path) -> None:
    bodies = await requests_of(tmp_path / "one", FORMATS["anthropic"])
    others = await requests_of(tmp_path / "other", FORMATS["anthropic"], role=OTHER)
    for body, other in zip(bodies, others, strict=True):
        assert blocks(body)[:-1] == blocks(other)[:-1]
        assert (body["system"], body["tools"]) == (other["system"], other["tools"])
        assert HOW in json.dumps(blocks(body)[-1])
        assert marked(body) == [len(blocks(body)) - 2]
        assert json.dumps(body).count("cache_control") <= 4
    for body in await requests_of(tmp_path / "without", FORMATS["anthropic"], role=None):
        assert marked(body) == [len(blocks(body)) - 1]


@pytest.mark.parametrize("lm", [NEW, "openai:gpt-5.6-stub", "openai/gpt-5.10-mini", "openai/ft:gpt-5.6:acme::x"])
async def test_openai_gets_a_key_and_from_gpt_5_6_on_a_mark(tmp_path: Path, lm: str) -> None:
    for body in await requests_of(tmp_path, lm):
        assert body["prompt_cache_key"]
        [place] = marked(body)
        assert all(HOW not in json.dumps(block) for block in blocks(body)[: place + 1])
        assert "How deep?" in json.dumps(blocks(body)[place])


@pytest.mark.parametrize("model", ["gpt-5-2025-08-07", "gpt-35-turbo", "ft:gpt-4o-mini:gpt-6::x"])
async def test_an_older_gpt_gets_a_key_alone(tmp_path: Path, model: str) -> None:
    for body in await requests_of(tmp_path, f"openai/{model}"):
        assert (bool(body["prompt_cache_key"]), marked(body)) == (True, [])


async def test_the_key_is_of_workspace_and_signature_and_of_nothing_else(tmp_path: Path) -> None:
    keys = {
        name: {body["prompt_cache_key"] for body in await requests_of(tmp_path / name, FORMATS["chat"], **more)}
        for name, more in {"one": {}, "again": {"role": OTHER}, "elsewhere": {"workspace": "airport"}}.items()
    }
    assert len(keys["one"]) == 1
    assert keys["one"] == keys["again"] != keys["elsewhere"]
    [key] = keys["one"]
    assert len(key) <= 64
    assert "harbour" not in key


@pytest.mark.parametrize(
    ("lm", "hints"),
    [(FORMATS["anthropic"], "auto"), (FORMATS["anthropic"], "off"), (NEW, "auto"), (FORMATS["gemini"], "on")],
)
async def test_own_servers_and_gemini_get_no_cache_hints(tmp_path: Path, lm: str, hints: str) -> None:
    for body in await requests_of(tmp_path, lm, hints=hints):
        assert "cache" not in json.dumps(body).lower()


async def test_tools_are_sent_in_one_order_however_they_were_given(tmp_path: Path) -> None:
    sent = []
    for place, tools in enumerate(([stock, price], [price, stock])):
        with service(Said("Aye.")) as stub:
            async with agent_at(tmp_path / str(place), stub, "chat", tools=tools) as agent:
                await agent.thread("t").converse("Ahoy.")
        sent.append(stub.requests[0]["tools"])
    assert sent[0] == sent[1]
