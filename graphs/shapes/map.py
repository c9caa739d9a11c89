"""The `map` shape: runs one shape over many params (T3). `tasks` runs each task.

It dispatches in place of its caller: its own role, which the caller passed, is the role of every item (T8).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from ...core.errors import FunctionInvalid, ModelFacing, ParamsInvalid, WorldAgentError
from ...core.validation import ClosedModel
from ..shape import Shape, ShapeRegistry
from ..tasks import Dispatched, TaskContext, dispatched


def allowed_of(over: Iterable[str] | None, *, key: str, description: str) -> frozenset[str] | None:
    """The shapes that a shape can run; None allows all shapes of the agent.

    Args:
        over: Their keys, as the embedder names them.
        key: The shape that runs them.
        description: What it is for. With one it is offered to the conversation.

    Raises:
        FunctionInvalid: It is offered to the conversation without `over`.
    """
    if description and over is None:
        raise FunctionInvalid(
            f"the shape {key!r} must name in over= the shapes that it can run, since it is offered to the conversation",
            remedy="pass over= with the shapes that the conversation can run",
        )
    return None if over is None else frozenset(over)


def check_allowed(shape: str, allowed: frozenset[str] | None, *, key: str) -> None:
    """Refuse a shape that is not allowed.

    Raises:
        ParamsInvalid: The shape is not allowed.
    """
    if allowed is not None and shape not in allowed:
        raise ParamsInvalid(
            f"params of shape {key!r} do not fit: shape: {shape!r} is not one that it may run",
            remedy=f"it may run: {', '.join(sorted(allowed))}",
        )


MAP = "map"
MAX_ITEMS = 1000
"""The limit of items in one map."""


class MapParams(ClosedModel):
    """What the `map` shape takes."""

    shape: str = Field(description="the shape that does each item", min_length=1)
    items: list[dict[str, Any]] = Field(description="the params of each item", max_length=MAX_ITEMS)
    concurrency: int = Field(default=8, description="how many items run at the same time", ge=1, le=64)


class MapFailure(ClosedModel):
    """Why an item failed."""

    code: str
    message: str


class MapItem(ClosedModel):
    """What one item gave: a result, which is of the item's shape, or an error."""

    status: Literal["done", "failed"]
    result: dict[str, Any] | None = None
    error: MapFailure | None = None


class MapResult(ClosedModel):
    """What the `map` shape gives: one item for each of the params, in their order."""

    items: list[MapItem]
    failed: int = Field(description="how many of them failed")


def map_shape(*, over: Iterable[str] | None = None, description: str = "") -> Shape[MapParams, MapResult]:
    """The shape `map`: runs one shape over many params, several at the same time.

    Args:
        over: The keys of the shapes that it can run; None allows all shapes of the agent.
        description: What it is for. With one it is offered to the conversation, and `over` is required.

    Raises:
        FunctionInvalid: It is offered to the conversation without `over`.
    """
    allowed = allowed_of(over, key=MAP, description=description)
    return _MapShape(MAP, MapParams, MapResult, _map, description=description, over=allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _MapShape(Shape[MapParams, MapResult]):
    """Its role attaches to the same Signatures as the roles of its items."""

    over: frozenset[str] | None

    def names_for(self, params: MapParams, shapes: ShapeRegistry) -> tuple[tuple[str, ...], tuple[str, ...]]:
        shape = shapes.get(params.shape)
        check_allowed(params.shape, self.over, key=MAP)
        entries, others = dict[str, None](), dict[str, None]()
        for item in params.items:
            try:
                entry, other = shape.names_for(shape.read_params(item), shapes)
            except ModelFacing:  # the item fails when it runs, and reports it there
                continue
            entries.update(dict.fromkeys(entry))
            others.update(dict.fromkeys(other))
        return tuple(entries), tuple(others)


async def _map(params: MapParams, ctx: TaskContext) -> MapResult:
    shape = ctx.turn.services.shapes.get(params.shape)
    slots = asyncio.Semaphore(params.concurrency)
    items = await asyncio.gather(
        *(_item(shape, item, str(place), ctx, slots) for place, item in enumerate(params.items))
    )
    return MapResult(items=items, failed=sum(item.status == "failed" for item in items))


async def _item(
    shape: Shape[Any, Any], item: dict[str, Any], place: str, ctx: TaskContext, slots: asyncio.Semaphore
) -> MapItem:
    try:
        params = shape.read_params(item)
        shape.names_for(params, ctx.turn.services.shapes)
        how = Dispatched(shape=shape, role=ctx.turn.role, slot=slots, prompted=True, raw=True)
        return MapItem(status="done", result=await dispatched(how, params, ctx.calls, key=place))
    except WorldAgentError as error:
        failure = MapFailure(code=error.code, message=error.problem)
    return MapItem(status="failed", error=failure)
