"""Composes the roles of several tiers into one text per Signature, once, before anything runs (R3, R4, R6).

Nothing here asks a source or calls a model: `resolver` collects the roles, and `signatures` reads the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Literal

from ..core import Tier
from .role import Role, Sealed

Policy = Literal["stack", "block"]

STACK_HEADER = "Several sets of instructions follow, the most general first. Where they conflict, the later one wins."
"""The text before a stack of two or more roles (R4)."""

_LABEL = re.compile(rf"^(\[\\*)(?=(?:{'|'.join(tier.value for tier in Tier)})\]\s*$)", re.MULTILINE)


class ResolvedRole(Sealed):
    """The composed role text of a turn for each of its Signatures, or none (R3). Only `reveal` shows a text.

    Attributes:
        tiers: The tiers that are active for at least one Signature, lowest precedence first.
    """

    __slots__ = ("_texts", "tiers")

    tiers: tuple[Tier, ...]
    _texts: dict[str, str]

    def __init__(self, texts: Mapping[str, str], tiers: tuple[Tier, ...]) -> None:
        object.__setattr__(self, "_texts", dict(texts))
        object.__setattr__(self, "tiers", tiers)

    def reveal(self, signature: str) -> str | None:
        """The composed text for `signature`, or None. Call it only to pass the text to the model."""
        return self._texts.get(signature)

    def reveal_all(self) -> dict[str, str]:
        """The composed texts by Signature. Use it only for the keyed digest."""
        return dict(self._texts)

    def __repr__(self) -> str:
        return f"ResolvedRole({', '.join(self.tiers) or 'none'})"


NO_ROLE = ResolvedRole({}, ())


def active_tiers(
    roles: Mapping[Tier, Role], signature: str, *, entry: str | tuple[str, ...], policy: Policy
) -> tuple[tuple[Tier, ...], dict[Tier, str]]:
    """The tiers that are active for one Signature, by the order of rules in R4.

    Args:
        roles: The roles of the turn by tier.
        signature: The Signature's name.
        entry: The name of the turn's entry Signature. There are several if a task dispatches others under its own role,
            and none if no model is called.
        policy: `stack` or `block`, for more than one applicable tier.

    Returns:
        The active tiers, lowest precedence first, and the reason for every other tier: `not_applicable` or `blocked`.
    """
    entries = (entry,) if isinstance(entry, str) else entry
    left: list[Tier] = []
    dropped: dict[Tier, str] = {}
    closed = False
    for tier in Tier:
        role = roles.get(tier)
        if role is None:
            continue
        if not _applies(role, signature, entries):
            dropped[tier] = "not_applicable"
        elif closed:
            dropped[tier] = "blocked"
        else:
            left.append(tier)
            closed = role.exclusive or policy == "block"
    return tuple(reversed(left)), dropped


def compose(
    roles: Mapping[Tier, Role], *, entry: str | tuple[str, ...], signatures: Iterable[str], policy: Policy
) -> ResolvedRole:
    """Compose the role text of every Signature of a turn.

    Args:
        roles: The roles of the turn by tier.
        entry: The name of the turn's entry Signature, or several, or none.
        signatures: The names of its other Signatures.
        policy: `stack` or `block`.
    """
    if not roles:
        return NO_ROLE
    texts: dict[str, str] = {}
    used: set[Tier] = set()
    rendered: dict[tuple[Tier, ...], str] = {}
    entries = (entry,) if isinstance(entry, str) else entry
    names: Iterable[str] = entries
    if any(role.applies_to for role in roles.values()):
        names = dict.fromkeys((*entries, *signatures))
    for name in names:
        tiers, _ = active_tiers(roles, name, entry=entries, policy=policy)
        if tiers:
            if tiers not in rendered:
                rendered[tiers] = _render(roles, tiers)
            texts[name] = rendered[tiers]
            used.update(tiers)
    return ResolvedRole(texts, tuple(tier for tier in reversed(Tier) if tier in used))


def _applies(role: Role, signature: str, entries: tuple[str, ...]) -> bool:
    if not role.applies_to:
        return signature in entries
    return any(fnmatchcase(signature, pattern) for pattern in role.applies_to)


def _render(roles: Mapping[Tier, Role], tiers: tuple[Tier, ...]) -> str:
    if len(tiers) == 1:
        return roles[tiers[0]].content
    # A line of a role that looks like a label gets a backslash, so that no tier can pose as a higher one.
    parts = [f"[{tier.value}]\n" + _LABEL.sub(r"\1\\", roles[tier].content) for tier in tiers]
    return "\n\n".join((STACK_HEADER, *parts))
