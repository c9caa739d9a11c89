"""Pauses in results, and the calls that can come next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ....core.pauses import Pause, may_be_always
from ...pauses import is_late
from .answers import FORMS, default_forms

_CONTINUES: Final = {
    "cut_off": "its process ended; it continues from its last step",
    "stopped": "it was stopped; it continues from its last step",
    "failed": "it failed; once the cause is fixed, it continues from its last step",
}


def pause_result(pause: Pause) -> dict[str, Any]:
    """Return a pause as JSON, with the answers that it accepts.

    Returns:
        All fields of the pause; `expired`, whether it no longer accepts an answer; `answers`, the forms of answer by
        their names, each of which can be sent once its blanks are filled in; `always`, whether `approve` can have it.
    """
    late = is_late(pause)
    forms = {} if late else default_forms(pause)
    about: dict[str, Any] = {"expired": late, "answers": forms}
    if pause.kind == "approval":
        about["always"] = may_be_always(pause)
    return {**pause.to_json(), **about}


def next_steps(
    status: str,
    turn_id: str,
    *,
    ids: Mapping[str, Any],
    pauses: Sequence[Pause] = (),
    seq: int | None = 0,
    needs: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return what to call to continue a turn; empty if it is over.

    Args:
        status: The status of the turn.
        turn_id: The id of the turn.
        ids: `workspace`, `account`, `channel` and `thread` of the call; None values are omitted.
        pauses: The pauses that the turn waits for.
        seq: The number of the last event that the client has; None if the turn keeps no events.
        needs: The arguments that `resume` needs again: `role`, `skill`.

    Returns:
        Objects with `tool`, `arguments`, `why` and `needs`. A person's answers are never filled in, nor is a role or a
        skill, which are stored nowhere.
    """
    known = {name: value for name, value in ids.items() if value is not None}
    match status:
        case "paused" if not pauses:
            return [_resume(known, "it is answered; resume continues it", needs)]
        case "paused" | "failed" if pauses:
            fill = () if all(map(is_late, pauses)) else ("answers",)
            return [_resume({**known, "answers": {}}, _why(pauses), (*fill, *needs))]
        case "cut_off" | "stopped" | "failed":
            return [_resume(known, _CONTINUES[status], needs)]
        case "running" if seq is None:
            return [_step("resume", known, "the turn is running and keeps no events; resume waits a while for its end")]
        case "running":
            where = {name: value for name, value in known.items() if name in ("workspace", "account")}
            return [
                _step("events", {**where, "turn_id": turn_id, "after": seq}, "the turn is running; its next events")
            ]
        case _:
            return []


def _why(pauses: Sequence[Pause]) -> str:
    asked = [f"{pause.id} ({_forms(pause)})" for pause in pauses if not is_late(pause)]
    late = "; an expired pause fails once the turn continues" if len(asked) < len(pauses) else ""
    if not asked:
        return f"no pause can be answered any more{late}"
    return f"a person must answer; `answers` takes one form of answer for each pause: {', '.join(asked)}{late}"


def _forms(pause: Pause) -> str:
    forms = " or ".join(FORMS[pause.kind])
    return f"{forms}, by {' or '.join(pause.approvers)}" if pause.approvers else forms


def _resume(arguments: dict[str, Any], why: str, needs: Sequence[str]) -> dict[str, Any]:
    again = [name for name in needs if name != "answers"]
    more = f"; add the {' and the '.join(again)} that the turn began with" if again else ""
    return {**_step("resume", arguments, f"{why}{more}"), "needs": list(needs)}


def _step(tool: str, arguments: dict[str, Any], why: str) -> dict[str, Any]:
    return {"tool": tool, "arguments": arguments, "why": why}


__all__ = ["next_steps", "pause_result"]
