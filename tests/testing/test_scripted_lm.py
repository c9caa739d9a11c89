"""The scripted model behaves as a model of dspy: it answers, streams, fails, waits and can be cancelled."""

import asyncio
import copy
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dspy
import pytest
from dspy.lm15 import ContextLengthError, RateLimitError

from support.agents import scripted_agent
from support.processes import run_script
from worldagent.core.errors import InvalidArgument, ModelUnavailable
from worldagent.testing import ScriptedCall, ScriptedLM, ScriptExhausted

WAIT = 5.0


class Answer(dspy.Signature):
    """Answer the message."""

    message: str = dspy.InputField()
    role: str = dspy.InputField(desc="How to approach it")
    reply: str = dspy.OutputField()
    tags: list[str] = dspy.OutputField()


class Sink:
    """Takes what dspy streams."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def send(self, chunk: Any) -> None:
        if chunk.choices[0].delta.content:
            self.texts.append(chunk.choices[0].delta.content)


async def ask(lm: ScriptedLM, *, sink: Sink | None = None, adapter: Any = None, **inputs: str) -> Any:
    inputs = {"message": "Who rules?", "role": "Be brief.", **inputs}
    with dspy.context(
        lm=lm,
        adapter=adapter or dspy.ChatAdapter(use_json_adapter_fallback=False),
        send_stream=sink,
        stream_listeners=[],
    ):
        return await dspy.Predict(Answer).acall(**inputs)


async def test_a_mapping_becomes_the_output_fields() -> None:
    lm = ScriptedLM([{"reply": "Ada.\n\nQueen Ada.", "tags": ["a", "b"]}])
    got = await ask(lm)
    assert (got.reply, got.tags) == ("Ada.\n\nQueen Ada.", ["a", "b"])


async def test_a_mapping_can_be_rendered_for_the_json_adapter() -> None:
    lm = ScriptedLM([{"reply": "Ada", "tags": ["a"]}], form="json")
    got = await ask(lm, adapter=dspy.JSONAdapter())
    assert (got.reply, got.tags) == ("Ada", ["a"])
    assert lm.calls[0].fields == {"message": "Who rules?", "role": "Be brief."}


async def test_every_call_is_recorded_with_its_fields_and_shows_no_text_in_its_repr() -> None:
    lm = ScriptedLM([{"reply": "x", "tags": []}])
    await ask(lm, role="Speak\n\nsoftly.")
    (call,) = lm.calls
    assert call.index == 1
    assert call.fields == {"message": "Who rules?", "role": "Speak\n\nsoftly."}
    assert call.role == "Speak\n\nsoftly."
    assert "Answer the message." in call.system
    assert call.messages[-1] == ("user", call.user)
    assert call.text.startswith(call.system)
    assert call.text.endswith(call.user)
    assert "softly" not in repr(call)


def test_a_prompt_without_a_role_field_has_no_role() -> None:
    call = ScriptedCall(index=1, system="", messages=(("user", "[[ ## message ## ]]\nhello"),))
    assert call.role is None
    assert call.fields == {"message": "hello"}


async def test_usage_counts_words() -> None:
    lm = ScriptedLM(["[[ ## reply ## ]]\none two\n\n[[ ## tags ## ]]\n[]"])
    with dspy.context(lm=lm, adapter=dspy.ChatAdapter(), track_usage=True):
        got = await dspy.Predict(Answer).acall(message="m", role="r")
    usage = (got.get_lm_usage() or {})["scripted"]
    assert usage["completion_tokens"] == 13
    assert usage["prompt_tokens"] == len(lm.calls[0].text.split())


@pytest.mark.parametrize(
    ("chunk", "reply", "pieces"), [(None, "one  two\nthree", {"one  ", "two\n"}), (3, "abcd", {"abc"})]
)
async def test_it_streams_words_or_pieces_that_add_up(chunk: int | None, reply: str, pieces: set[str]) -> None:
    sink = Sink()
    await ask(ScriptedLM([{"reply": reply, "tags": []}], chunk=chunk), sink=sink)
    assert "".join(sink.texts).startswith(f"[[ ## reply ## ]]\n{reply}\n\n")
    assert pieces <= set(sink.texts)
    assert chunk is None or {len(text) for text in sink.texts[:-1]} == {chunk}


async def test_an_async_iterator_streams_as_it_yields() -> None:
    async def reply(call: ScriptedCall) -> AsyncIterator[str]:
        yield "[[ ## reply ## ]]\nfirst "
        yield "second\n\n[[ ## tags ## ]]\n[]"

    sink = Sink()
    assert (await ask(ScriptedLM(reply), sink=sink)).reply == "first second"
    assert sink.texts[0] == "[[ ## reply ## ]]\nfirst "


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (RateLimitError("slow down", retry_after=0.0), dspy.LMRateLimitError),
        (ContextLengthError("too long"), dspy.ContextWindowExceededError),
        (KeyError("anything else"), dspy.LMUnexpectedError),
        (RateLimitError, dspy.LMRateLimitError),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_an_exception_fails_the_call_as_a_service_would(reply: Any, expected: type, streamed: bool) -> None:
    with pytest.raises(expected):
        await ask(ScriptedLM([reply]), sink=Sink() if streamed else None)


async def test_an_error_of_a_function_is_named_with_its_place(tmp_path: Path) -> None:
    async def later(call: ScriptedCall) -> str:
        raise KeyError("the prompt")

    def now(call: ScriptedCall) -> str:
        raise KeyError("the prompt")

    for number, function in enumerate((later, now)):
        async with scripted_agent(tmp_path / str(number), ScriptedLM(function)) as agent:
            with pytest.raises(ModelUnavailable, match=r"\(KeyError in test_scripted_lm\.py:\d+\)") as caught:
                await agent.thread("t").converse("Hi")
        assert "the prompt" not in str(caught.value)


async def test_a_function_answers_concurrent_calls_by_what_they_ask() -> None:
    async def reply(call: ScriptedCall) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"reply": call.fields["message"].upper(), "tags": [call.role]}

    lm = ScriptedLM(reply)
    got = await asyncio.gather(*(ask(lm, message=f"m{n}", role=f"r{n}") for n in range(20)))
    assert [(one.reply, one.tags) for one in got] == [(f"M{n}", [f"r{n}"]) for n in range(20)]
    assert sorted(call.index for call in lm.calls) == list(range(1, 21))


async def test_an_awaitable_holds_the_call_open_until_it_is_done() -> None:
    held: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
    arrived = asyncio.Event()
    lm = ScriptedLM([held], on_call=lambda call: arrived.set())
    task = asyncio.create_task(ask(lm))
    await asyncio.wait_for(arrived.wait(), WAIT)
    assert not task.done()
    held.set_result({"reply": "late", "tags": []})
    assert (await asyncio.wait_for(task, WAIT)).reply == "late"


@pytest.mark.parametrize("streamed", [False, True])
async def test_cancelling_the_caller_cancels_a_held_reply(streamed: bool) -> None:
    seen = SimpleNamespace(started=asyncio.Event(), cancelled=False)

    async def reply(call: ScriptedCall) -> AsyncIterator[str]:
        try:
            yield "[[ ## reply ## ]]\nbegun"
            seen.started.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.cancelled = True
            raise

    task = asyncio.create_task(ask(ScriptedLM(reply), sink=Sink() if streamed else None))
    await asyncio.wait_for(seen.started.wait(), WAIT)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, WAIT)
    assert seen.cancelled


async def test_delay_lets_a_time_out_strike_first() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await ask(ScriptedLM([{"reply": "x", "tags": []}], delay=60))


async def test_running_out_of_replies_names_the_number_of_calls() -> None:
    lm = ScriptedLM([{"reply": "x", "tags": []}])
    await ask(lm)
    with pytest.raises(ScriptExhausted, match="called 2 times and has 1 replies") as caught:
        await ask(lm)
    assert isinstance(caught.value, AssertionError)
    with pytest.raises(AssertionError, match="1 replies and was called 2 times"):
        lm.assert_all_used()


def test_an_async_reply_in_a_synchronous_program_is_refused_with_the_remedy() -> None:
    async def reply(call: ScriptedCall) -> str:
        return "x"

    with dspy.context(lm=ScriptedLM(reply), adapter=dspy.ChatAdapter()), pytest.raises(dspy.LMError, match="acall"):
        dspy.Predict(Answer)(message="m", role="r")


async def test_copies_share_the_script() -> None:
    lm = ScriptedLM([{"reply": "1", "tags": []}, {"reply": "2", "tags": []}, {"reply": "3", "tags": []}])
    assert [(await ask(one)).reply for one in (lm, lm.copy(temperature=1.0), copy.deepcopy(lm))] == ["1", "2", "3"]
    assert len(lm.calls) == 3


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"replies": "one text"}, "list of replies"),
        ({"replies": [], "form": "xml"}, "form 'xml' is unknown"),
        ({"replies": [], "chunk": 0}, "`chunk` must be at least 1, got 0"),
    ],
)
def test_invalid_arguments_of_a_model_are_refused(given: Any, told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        ScriptedLM(**given)


async def test_importing_the_folder_loads_no_model_library() -> None:
    code = "import sys, worldagent.testing as t; assert 'dspy' not in sys.modules; t.ScriptedLM"
    assert await run_script(code, fresh=True) == ""
