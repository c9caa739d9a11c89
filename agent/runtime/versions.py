"""The version of the package, as turns keep it: an older one leaves alone what only a newer one can resume (D15)."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import version
from typing import Final

from packaging.version import InvalidVersion, Version

from ...core.errors import VersionTooOld
from ...memory import TurnRecord

LEAST: Final = "0.2.0"
"""The least version that can resume the turns of this one. It grows when a turn, its journal or its checkpoints get
something that earlier versions cannot read, and not otherwise: processes of both versions can then share a database.
"""


@lru_cache(maxsize=1)
def this_version() -> str:
    """The version of the package that runs here."""
    return version("worldagent")


def at_least(kept: str | None) -> bool:
    """Whether this version is at least as new as the one that wrote a turn, which is None in older turns.

    What is not a version is taken for a newer one.
    """
    try:
        return kept is None or Version(this_version()) >= Version(kept)
    except InvalidVersion:
        return False


def newest(kept: str | None, here: str) -> str:
    """The newer one of what a turn keeps, its version or the least that it needs, and the same of this process."""
    return here if kept is None or Version(here) >= Version(kept) else kept


def check_version(record: TurnRecord) -> None:
    """Check that this version can resume a turn, before anything else of the turn is read.

    Raises:
        VersionTooOld: The turn needs a newer one.
    """
    if not at_least(record.needs):
        error = VersionTooOld(
            f"the turn {record.id!r} needs version {record.needs} of worldagent, and this process has {this_version()}",
            remedy="resume it in a process of that version or a newer one, or install it here",
        )
        error.turn_id = record.id
        raise error


__all__ = ["LEAST", "at_least", "check_version", "newest", "this_version"]
