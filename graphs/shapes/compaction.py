"""The `compaction` shape: runs another task and shortens its result (T3).

The dispatching code sees only that text, not the task's result or its steps. Like `map`, it runs the task under its
own role, which its caller passed (T8). The model call that shortens the result has no role (R6).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pydantic import Field

from ...core import canonical_json
from ...core.errors import ResultInvalid
from ...core.validation import ClosedModel
from ...harness.journal import Step
from ...signatures.summaries import COMPACT
from ..shape import Shape, ShapeRegistry
from ..tasks import Dispatched, TaskContext, dispatched
from .map import allowed_of, check_allowed

COMPACTION: Final = "compaction"

DEFAULT_CONTEXT_CHARACTERS: Final = 48_000  # of a result that are read at once if the model's context is unknown
MAX_PIECES: Final = 16  # the limit of such pieces of one result
CHARACTERS_PER_WORD: Final = 14  # characters of a word, generous for long ones


class CompactionParams(ClosedModel):
    """What the `compaction` shape takes."""

    shape: str = Field(description="the shape that does the work", min_length=1)
    params: dict[str, Any] = Field(description="the params of the work")
    wanted: str = Field(default="", description="what is wanted of the result; empty is what matters most")
    words: int = Field(default=200, description="how many words may be left of it", ge=10, le=5000)


class CompactionResult(ClosedModel):
    """What the `compaction` shape gives."""

    text: str


def compaction_shape(
    *, over: Iterable[str] | None = None, description: str = ""
) -> Shape[CompactionParams, CompactionResult]:
    """The shape `compaction`: runs a task of another shape and shortens its result.

    Args:
        over: The keys of the shapes that it can run; None allows all shapes of the agent.
        description: What it is for. With one it is offered to the conversation, and `over` is required.

    Raises:
        FunctionInvalid: It is offered to the conversation without `over`.
    """
    allowed = allowed_of(over, key=COMPACTION, description=description)
    return _CompactionShape(
        COMPACTION,
        CompactionParams,
        CompactionResult,
        _compaction,
        signatures=(COMPACT,),
        description=description,
        over=allowed,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _CompactionShape(Shape[CompactionParams, CompactionResult]):
    """Its role attaches to the same Signature as the role of the task that it runs."""

    over: frozenset[str] | None

    def names_for(self, params: CompactionParams, shapes: ShapeRegistry) -> tuple[tuple[str, ...], tuple[str, ...]]:
        shape = shapes.get(params.shape)
        check_allowed(params.shape, self.over, key=COMPACTION)
        return shape.names_for(shape.read_params(params.params), shapes)


async def _compaction(params: CompactionParams, ctx: TaskContext) -> CompactionResult:
    turn = ctx.turn
    shape = turn.services.shapes.get(params.shape)
    inner = shape.read_params(params.params)
    how = Dispatched(shape=shape, role=turn.role, prompted=True, raw=True)
    result = await dispatched(how, inner, ctx.calls)
    entries, others = shape.names_for(inner, turn.services.shapes)
    names = (*entries, *others)
    text = _text_of(result)
    most = turn.services.options.history_characters or DEFAULT_CONTEXT_CHARACTERS
    while True:
        pieces = list(_pieces(text, most))
        if len(pieces) > MAX_PIECES:
            raise ResultInvalid(
                f"the result of shape {shape.key!r} has {len(text)} characters, and the limit is {MAX_PIECES * most}",
                remedy="make the shape return less, or compact its parts",
            )
        length = params.words * CHARACTERS_PER_WORD
        if len(pieces) == 1:
            return CompactionResult(text=await _compacted(ctx, params, names, pieces[0], length))
        # Each summary is at most a third of what is read at once, so that their number shrinks each time.
        left = [await _compacted(ctx, params, names, piece, min(length, most // 3)) for piece in pieces]
        text = "\n\n".join(left)


async def _compacted(ctx: TaskContext, params: CompactionParams, names: tuple[str, ...], piece: str, most: int) -> str:
    """Shorten one piece of a result.

    The model has no role. Its answer is stored without content that would join up to a role.
    """
    turn, frame, name = ctx.turn, ctx.calls.frame, COMPACT.__name__
    inputs = {"wanted": params.wanted, "result": piece, "words": params.words}

    async def ask(_: Any) -> Any:
        fields = await turn.ask_without_role(COMPACT, inputs, names)
        return str(fields["text"]).strip()

    call_id = await frame.child(name, inputs, model=True)
    step = Step(id=call_id, parent=frame.path, name=name, kind="model", input=inputs, body=ask)
    text = str(await frame.do(step))
    frame.mark_model_influenced()
    if not text:
        raise ResultInvalid("nothing is left of the result", remedy="name in wanted= what to keep")
    return text if len(text) <= most else f"{text[:most]} [...]"


def _text_of(result: Any) -> str:
    """A result as a model reads it: a worker's text unchanged, anything else as JSON."""
    worker = isinstance(result, dict) and set(result) == {"worker", "text"}
    return str(result["text"]) if worker else canonical_json(result)


def _pieces(text: str, most: int) -> Iterator[str]:
    for begin in range(0, max(1, len(text)), most):
        yield text[begin : begin + most]
