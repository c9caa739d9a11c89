"""A pause as JSON, as every host gives it to programs."""

from __future__ import annotations

from typing import Any

from ...core.pauses import Pause


def pause_object(pause: Pause) -> dict[str, Any]:
    """A pause as JSON."""
    return {
        "id": pause.id,
        "kind": pause.kind,
        "function": pause.function,
        "arguments": dict(pause.arguments),
        "hash": pause.hash,
        "risk": list(pause.risk),
        "reason": pause.reason,
        "caller": pause.caller,
        "approvers": list(pause.approvers),
        "question": pause.question,
        "options": None if pause.options is None else list(pause.options),
        "schema": None if pause.schema is None else dict(pause.schema),
        "problem": pause.problem,
        "since": pause.since.isoformat(),
        "expires": None if pause.expires is None else pause.expires.isoformat(),
        "answered": pause.answered,
    }


__all__ = ["pause_object"]
