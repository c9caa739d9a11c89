"""Which shapes a shape may run that runs others: what `over=` of `map` and `compaction` says."""

from __future__ import annotations

from collections.abc import Iterable

from ...core.errors import FunctionInvalid, ParamsInvalid


def allowed_of(over: Iterable[str] | None, *, key: str, description: str) -> frozenset[str] | None:
    """The shapes that it may run; None is all that the agent has.

    Args:
        over: Their keys, as the embedder names them.
        key: The shape that runs them.
        description: What it is for. With one it is offered to the conversation.

    Raises:
        FunctionInvalid: It is offered to the conversation without `over`.
    """
    if description and over is None:
        raise FunctionInvalid(
            f"the shape {key!r} is offered to the conversation with every shape of the agent",
            remedy="name in over= those that the conversation may run",
        )
    return None if over is None else frozenset(over)


def check_allowed(shape: str, allowed: frozenset[str] | None, *, key: str) -> None:
    """Refuse a shape that is not one of them.

    Raises:
        ParamsInvalid: It is not.
    """
    if allowed is not None and shape not in allowed:
        raise ParamsInvalid(
            f"params of shape {key!r} do not fit: shape: {shape!r} is not one that it may run",
            remedy=f"it may run: {', '.join(sorted(allowed))}",
        )


__all__ = ["allowed_of", "check_allowed"]
