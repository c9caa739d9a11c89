"""`doctor --rekey`: a new key of role digests where the old one was lost (R13). What is done is in `hosts.doctor`."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import InvalidArgument
from ._doctor_options import DoctorOptions
from .output import Output, table
from .session import FAILED

if TYPE_CHECKING:
    from ..doctor import KeyState

_RESUME: Final = (
    "Resume such a turn with on_role_change='refresh' (`worldagent resume --on-role-change refresh`): it goes on under "
    "the role that is active then. Or cancel it."
)
_SHOWN: Final = 5
_WIDEST: Final = 100
_RESTART: Final = "Agents that run keep the key that they have read: restart them, here and on machines with a copy"


def rekey(options: DoctorOptions, output: Output) -> Coroutine[Any, Any, int | None]:
    """See what there is and ask whether a key may go; the coroutine makes the new one.

    Raises:
        InvalidArgument: A key is there that may not go, or no key is made for this home.
    """
    from ..doctor import InstallationOptions, look_at_key

    state = look_at_key(InstallationOptions(home=options.home))
    go = options.yes or not state.there or _agreed(state, output)
    return _make(state, output) if go else _leave(output)


async def _make(state: KeyState, output: Output) -> int | None:
    from ..doctor import make_key

    made = make_key(state, replace=state.there)
    told = {
        "rekeyed": True,
        "file": str(state.file),
        "key": made,
        "replaced": state.key,
        "turns": [
            {"workspace": turn.workspace, "thread": turn.thread, "turn_id": turn.turn_id, "status": turn.status}
            for turn in state.noted_otherwise(made)
        ],
        "processes": [int(process) for process in state.processes],
    }
    output.result(told, _report(state, made))
    return None


async def _leave(output: Output) -> int:
    output.note("nothing was changed")
    return FAILED


def _agreed(state: KeyState, output: Output) -> bool:
    """Ask whether the key that is there may go.

    Raises:
        InvalidArgument: There is nobody to ask.
    """
    import typer

    held = f"{str(state.file)!r} holds " + (f"the key {state.key!r}" if state.key else "no key")
    told = [f"{held}, and is not replaced unasked"]
    remedy = "leave it as it is, or give --yes"
    if lost := [turn for turn in state.turns if state.key in turn.keys]:
        told.append(f"{_were(len(lost))} noted with it")
    if gone := state.noted_otherwise(state.key):
        told.append(f"{_were(len(gone))} noted with another: {', '.join(map(str, gone[:_SHOWN]))}")
        remedy = "leave it as it is and resume with --on-role-change refresh what was noted with another, or give --yes"
    if state.key is None:
        remedy = "restore it from a copy, or give --yes"
    if output.form != "text" or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidArgument("; ".join(told), remedy=remedy)
    for line in told:
        output.note(line)
    try:
        return typer.confirm("Replace it?", err=True)
    except typer.Abort:
        return False


def _report(state: KeyState, made: str) -> str:
    turns = state.noted_otherwise(made)
    lines = [_filled(f"Made the key {made!r} in {str(state.file)!r}.")]
    if turns:
        gone = (
            f"{_were(len(turns))} noted with a key that is gone, so nobody can tell whether their roles are the same:"
        )
        lines += [
            _filled(gone),
            table(
                ("workspace", "thread", "status"),
                [(turn.workspace, turn.thread, turn.status) for turn in turns],
                widths=(24, 32),
            ),
            _filled(_RESUME),
        ]
    else:
        lines.append("No turn that can go on was noted with another key.")
    running = f": process {', '.join(state.processes)}" if state.processes else ""
    return "\n".join([*lines, _filled(f"{_RESTART}{running}.")])


def _filled(text: str) -> str:
    columns = min(shutil.get_terminal_size().columns, _WIDEST)
    return textwrap.fill(text, columns, break_on_hyphens=False, break_long_words=False)


def _were(turns: int) -> str:
    return "1 turn that can go on was" if turns == 1 else f"{turns} turns that can go on were"


__all__ = ["rekey"]
