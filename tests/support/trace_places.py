"""All places that traces can go to, with all captured that can be: a file, a sink, spans."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from worldagent.harness.trace import OpenTelemetryTrace, Trace, Traced


class Kept:
    """A sink of an embedder that keeps what it gets."""

    def __init__(self) -> None:
        self.items: list[Traced] = []
        self.closed = 0

    async def write(self, items: Sequence[Traced]) -> None:
        self.items += items

    async def aclose(self) -> None:
        self.closed += 1


class TracePlaces:
    """The places, which several agents may trace to one after the other.

    Args:
        folder: Where the file is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "traced.jsonl"
        self.kept, self.exporter = Kept(), InMemorySpanExporter()

    def trace(self) -> Trace:
        """What an agent traces with."""
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        capture: Sequence[Any] = ("inputs", "outputs", "prompts")
        return Trace.to(self.file, self.kept, OpenTelemetryTrace(provider), capture=capture)

    def in_memory(self) -> list[Any]:
        """What came to the sink and the spans."""
        spans = [span.to_json() for span in self.exporter.get_finished_spans()]
        return [list(self.kept.items), repr(self.kept.items), spans]
