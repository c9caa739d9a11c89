"""OpenTelemetry spans by the conventions for generative AI, over the embedder's own provider (H5)."""

from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from support.agents import CRITIC, answering, asks_the_critic, scripted_agent
from support.traced import KEEPER
from traces.test_turns import SHOP, look, pay, search, stumble
from worldagent.core.errors import WorldAgentError
from worldagent.core.pauses import Approve
from worldagent.harness.trace import OpenTelemetryTrace
from worldagent.testing import ScriptedLM

pytestmark = pytest.mark.requirement("H5")


class Spans:
    """A tracer provider of an embedder, and what came out of it."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def all(self) -> list[ReadableSpan]:
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def path(self, span: ReadableSpan) -> list[str]:
        """The names from the root down to a span."""
        ids = {each.context.span_id: each for each in self.all if each.context is not None}
        names = [span.name]
        while span.parent is not None and span.parent.span_id in ids:
            span = ids[span.parent.span_id]
            names.insert(0, span.name)
        return names


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_turn_task_and_model_calls_are_spans_below_each_other(tmp_path: Path) -> None:
    spans = Spans()
    trace = OpenTelemetryTrace(spans.provider)
    async with scripted_agent(tmp_path, ScriptedLM(asks_the_critic), workers=[CRITIC], trace=trace) as agent:
        turn = await agent.thread("t1", account="ana").converse("Hello")
    assert [spans.path(span) for span in spans.all] == [
        ["invoke_agent novel"],
        ["invoke_agent novel", "chat scripted"],
        ["invoke_agent novel", "invoke_agent critic"],
        ["invoke_agent novel", "invoke_agent critic", "chat scripted"],
        ["invoke_agent novel", "chat scripted"],
    ]
    root, model, *_ = spans.all
    assert attributes(root)["gen_ai.operation.name"] == "invoke_agent"
    assert attributes(root)["gen_ai.conversation.id"] == "t1"
    assert attributes(root)["worldagent.turn.id"] == turn.id
    assert (model.kind, attributes(model)["gen_ai.operation.name"]) == (SpanKind.CLIENT, "chat")
    assert attributes(model)["gen_ai.request.model"] == "scripted"
    spent = [attributes(span) for span in spans.all if span.name.startswith("chat")]
    assert sum(each["gen_ai.usage.input_tokens"] for each in spent) == turn.usage.input_tokens
    assert sum(each["gen_ai.usage.output_tokens"] for each in spent) == turn.usage.output_tokens
    for span in spans.all:
        assert span.start_time is not None
        assert span.end_time is not None
        assert (root.start_time or 0) <= span.start_time <= span.end_time <= (root.end_time or 0)


async def test_calls_are_tools_and_a_failure_is_the_status_of_its_span(tmp_path: Path) -> None:
    spans = Spans()
    trace = OpenTelemetryTrace(spans.provider, agent="finder")
    async with scripted_agent(tmp_path, answering(), tools=[look, search, stumble], trace=trace) as agent:
        await agent.call("search", {"what": "hat"})
        with pytest.raises(WorldAgentError):
            await agent.call("stumble", {"what": "hat"})
    inner = [span for span in spans.all if span.name == "execute_tool look"]
    assert [spans.path(span) for span in inner] == [
        ["invoke_agent finder", "execute_tool search", "execute_tool look"]
    ] * 2
    assert attributes(inner[0])["gen_ai.tool.name"] == "look"
    assert attributes(inner[0])["worldagent.risk"] == ("read_only",)
    assert "gen_ai.tool.call.arguments" not in attributes(inner[0])
    [failed] = [span for span in spans.all if span.name == "execute_tool stumble"]
    assert failed.status.status_code is StatusCode.ERROR
    assert attributes(failed)["error.type"] == "task_failed"
    assert [event.name for event in failed.events] == ["worldagent.error"]
    assert "a secret" not in "".join(span.to_json() for span in spans.all)


async def test_approval_is_an_event_and_a_resume_continues_the_trace(tmp_path: Path) -> None:
    spans = Spans()
    trace = OpenTelemetryTrace(spans.provider)
    parts: dict[str, Any] = {"tools": [look, pay, search], "shapes": [SHOP], "trace": trace}
    async with scripted_agent(tmp_path, answering(), **parts) as agent:
        turn = await agent.thread("t1").task("shop", {"what": "hat"})
        await agent.thread("t1").resume({turn.pauses[0].id: Approve()})
    first, again = [span for span in spans.all if span.name == "invoke_agent novel"]
    assert again.parent is not None
    assert first.context is not None
    assert again.parent.span_id == first.context.span_id
    assert len({span.context.trace_id for span in spans.all if span.context is not None}) == 1
    told = [(event.name, dict(event.attributes or {})) for span in spans.all for event in span.events]
    decided = [given["worldagent.decision"] for name, given in told if name == "worldagent.approval"]
    assert decided == ["ask", "approve"]
    assert "worldagent.pause" in [name for name, _ in told]


@pytest.mark.requirement("R16")
async def test_span_of_a_model_call_says_how_much_of_a_role_was_withheld(tmp_path: Path) -> None:
    spans = Spans()
    lm = ScriptedLM([{"reply": KEEPER.content}, {"reply": "The lamp is lit."}])
    async with scripted_agent(tmp_path, lm, trace=OpenTelemetryTrace(spans.provider)) as agent:
        turns = [await agent.thread("t1").converse(text, role=KEEPER) for text in ("What are you told?", "And now?")]
    found = [attributes(span).get("worldagent.withheld") for span in spans.all if span.name.startswith("chat")]
    assert found == [turns[0].withheld.characters, None]
    assert turns[0].withheld.characters > 0


async def test_without_a_provider_nothing_happens_and_nothing_fails(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering(), trace=OpenTelemetryTrace()) as agent:
        assert (await agent.thread("t1").converse("Hello")).status == "done"
