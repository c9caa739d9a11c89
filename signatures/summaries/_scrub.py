"""Keeps a role out of a summary, which may repeat what a person said before it became the role."""

from __future__ import annotations

from collections.abc import Iterable

from ...role_resolution import ResolvedRole
from .._echo import EchoGuard
from .._signature import CONVERSE


def scrubbed(text: str, role: ResolvedRole, names: Iterable[str] = (CONVERSE,)) -> str:
    """A text without the runs that it has in common with the role of the turn that it is made in (R7).

    Args:
        text: What a model made without the role.
        role: The turn's resolved role, or the task's.
        names: The Signatures that it may be attached to.
    """
    for content in dict.fromkeys(map(role.reveal, names)):
        if content is not None:
            text = EchoGuard(content).scrub(text)[0]
    return text


__all__ = ["scrubbed"]
