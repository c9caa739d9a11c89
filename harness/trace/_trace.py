"""What an agent traces and where to, as its embedder says it. What hands it on is in `_tracer`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from ...core.errors import InvalidArgument
from ._index import TraceIndex
from ._items import CaptureKind, TraceSink
from ._lines import JsonLinesTrace
from ._tracer import LIMIT, Tracer


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Where an agent's traces go beside the home, and what is captured in all of them.

    Attributes:
        sinks: Who gets them.
        capture: `inputs` and `outputs` are those of functions with `capture=True`; `prompts` are those of every model
            call, with `[role: N characters]` in the role's place. Nothing is captured unless it is named here.
        home: Whether the home's index gets them; None is what the setting `trace` says.
        limit: How many events may wait for each sink; what is over it is dropped, and the trace says so.

    Raises:
        InvalidArgument: Something is no sink, or there is no such thing to capture.
    """

    sinks: tuple[TraceSink, ...] = ()
    capture: Collection[CaptureKind] = ()
    home: bool | None = None
    limit: int = LIMIT

    def __post_init__(self) -> None:
        for sink in self.sinks:
            if not isinstance(sink, TraceSink):
                raise InvalidArgument(
                    f"a {type(sink).__name__} is no trace sink", remedy="give it async `write(items)` and `aclose()`"
                )
        known = get_args(CaptureKind)
        unknown = [what for what in self.capture if what not in known]
        if unknown or isinstance(self.capture, str):
            raise InvalidArgument(f"capture={self.capture!r} is not known", remedy=f"name some of {', '.join(known)}")
        if isinstance(self.limit, bool) or self.limit < 1:
            raise InvalidArgument(f"limit={self.limit!r} is no number of events", remedy="give 1 or more")

    def tracer(self, index: TraceIndex, *, on: bool) -> Tracer:
        """What hands an agent's traces on.

        Args:
            index: That of the home.
            on: Whether it gets them where this does not say.
        """
        own = (index,) if (on if self.home is None else self.home) else ()
        return Tracer((*own, *self.sinks), index=index, capture=self.capture, limit=self.limit)

    @staticmethod
    def to(*places: TraceSink | Path | str, capture: Collection[CaptureKind] = (), home: bool | None = None) -> Trace:
        """Traces that go to sinks, or to files as JSON Lines.

        Args:
            places: The sinks, and the files by their paths.
            capture: See `Trace`.
            home: See `Trace`.

        Raises:
            InvalidArgument: See `Trace`.
        """
        sinks = tuple(JsonLinesTrace(place) if isinstance(place, str | Path) else place for place in places)
        return Trace(sinks=sinks, capture=capture, home=home)

    @staticmethod
    def of(given: Trace | TraceSink | Sequence[TraceSink] | None) -> Trace:
        """What `WorldAgent(trace=...)` takes as a `Trace`.

        Raises:
            InvalidArgument: It is none of these.
        """
        match given:
            case None:
                return Trace()
            case Trace():
                return given
            case TraceSink():
                return Trace(sinks=(given,))
            case list() | tuple():
                return Trace(sinks=tuple(given))
            case _:
                raise InvalidArgument(
                    f"trace= is a {type(given).__name__}", remedy="give a Trace, a sink or a list of sinks"
                )


__all__ = ["Trace"]
