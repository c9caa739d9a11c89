"""Keeps a role out of what is made without it, which may repeat what a person said before it became the role."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from ...role_resolution import ResolvedRole
from .._echo import EchoGuard
from .._signature import CONVERSE

T = TypeVar("T")


def scrubbed(given: T, role: ResolvedRole, names: Iterable[str] = (CONVERSE,)) -> T:
    """A text, or a value of texts, without the runs that it has in common with the role of its turn (R7).

    Args:
        given: What a model made or was sent without the role.
        role: The turn's resolved role, or the task's.
        names: The Signatures that it may be attached to.
    """
    for content in dict.fromkeys(map(role.reveal, names)):
        if content is not None:
            given = EchoGuard(content).scrub_value(given)[0]
    return given


__all__ = ["scrubbed"]
