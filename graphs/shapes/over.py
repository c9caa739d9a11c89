"""The shapes that another shape can run: the `over=` of `map` and `compaction`."""

from __future__ import annotations

from collections.abc import Iterable

from ...core.errors import FunctionInvalid, ParamsInvalid


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


__all__ = ["allowed_of", "check_allowed"]
