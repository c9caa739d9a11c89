"""Pauses in results, and what to call next. Nothing here asks anybody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ....core.pauses import Pause, may_be_always
from ...pauses import is_late
from .answers import FORMS, default_forms

_GOES_ON: Final = {
    "cut_off": "the process that ran it ended; it goes on from its last step",
    "stopped": "it was told to stop; it goes on from its last step",
    "failed": "it failed; once the cause is gone it goes on from its last step",
}


def pause_result(pause: Pause) -> dict[str, Any]:
    """A pause as JSON, with what fits it.

    Returns:
        All of the pause; `expired`, whether it takes no answer any more; `answers`, the forms of answer by their names,
        each as it can be sent where it holds all that there is to say; `always`, whether `approve` may have it.
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
    """What to call to go on with a turn; empty where it is over.

    Args:
        status: How the turn stands.
        turn_id: The turn.
        ids: `workspace`, `account`, `channel` and `thread` as the call had them; None is left out.
        pauses: What it waits for.
        seq: The last event that was seen; None where the turn keeps none.
        needs: What `resume` must be given again: `role`, `skill`.

    Returns:
        Objects with `tool`, `arguments`, `why` and `needs`. What a person has to say is never filled in, nor is a role
        or a skill, which are stored nowhere.
    """
    known = {name: value for name, value in ids.items() if value is not None}
    match status:
        case "paused" if not pauses:
            return [_resume(known, "it is answered; resume goes on", needs)]
        case "paused" | "failed" if pauses:
            fill = () if all(map(is_late, pauses)) else ("answers",)
            return [_resume({**known, "answers": {}}, _why(pauses), (*fill, *needs))]
        case "cut_off" | "stopped" | "failed":
            return [_resume(known, _GOES_ON[status], needs)]
        case "running" if seq is None:
            return [_step("resume", known, "the turn runs and keeps no events; resume waits for its end, for a while")]
        case "running":
            where = {name: value for name, value in known.items() if name in ("workspace", "account")}
            return [_step("events", {**where, "turn_id": turn_id, "after": seq}, "the turn runs; its next events")]
        case _:
            return []


def _why(pauses: Sequence[Pause]) -> str:
    asked = [f"{pause.id} ({_forms(pause)})" for pause in pauses if not is_late(pause)]
    late = "; what has expired fails once the turn goes on" if len(asked) < len(pauses) else ""
    if not asked:
        return f"nothing can be answered any more{late}"
    return f"a person is to answer; `answers` takes one form of answer for each pause: {', '.join(asked)}{late}"


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
