"""The version of the package, as turns keep it: an older one must not end what a newer one wrote (D15)."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import version

from packaging.version import InvalidVersion, Version


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


def newest_version(kept: str | None) -> str:
    """The newer one of the version that wrote a turn and the one that runs here."""
    return this_version() if kept is None or at_least(kept) else kept


__all__ = ["at_least", "newest_version", "this_version"]
