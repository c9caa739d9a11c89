"""Who may use which scopes: what a bearer token grants, and the file that says so. Tokens as such are in `serving`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core import Tier, check_id
from ..serving import Tokens
from ..serving import read_token_file as read_tokens
from .contract import offered

ANY = "*"


@dataclass(frozen=True, slots=True)
class Grant:
    """Which scopes a caller may use.

    Attributes:
        scopes: The ids of each tier; `*` among them is every id. A tier that is left out is refused.
    """

    scopes: Mapping[Tier, frozenset[str]]

    def __post_init__(self) -> None:
        for tier, ids in self.scopes.items():
            for scope_id in ids:
                check_id(f"{tier} scope", scope_id)

    def allows(self, tier: Tier, scope_id: str) -> bool:
        """Whether the role of this tier and scope may be read and changed."""
        return not self.scopes.get(tier, frozenset()).isdisjoint((scope_id, ANY))


EVERYTHING = Grant({tier: frozenset({ANY}) for tier in offered()})
NOTHING = Grant({})


def read_token_file(path: Path, grant: Grant) -> Tokens[Grant]:
    """Read the tokens of a host from a file: one token, or, where its name ends in `.toml`, tokens with their scopes.

    Args:
        path: The file.
        grant: What a token grants that stands in the file alone.

    Raises:
        InvalidArgument: The file cannot be read, or does not fit; nothing of its text is shown.
    """
    example = '[[token]], token = "..." and lists such as workspace = ["novel"], account = ["*"]'
    return read_tokens(path, grant, entry=_granted, example=example)


def _granted(table: dict[str, Any]) -> Grant:
    names = {tier.value for tier in offered()}
    if not table.keys() <= names:
        raise ValueError("has more than a token and lists of scopes")
    scopes: dict[Tier, frozenset[str]] = {}
    for name, ids in table.items():
        if not isinstance(ids, list) or not all(isinstance(scope_id, str) for scope_id in ids):
            raise ValueError(f"has as {name} something that is not a list of ids")
        scopes[Tier(name)] = frozenset(ids)
    return Grant(scopes)


__all__ = ["ANY", "EVERYTHING", "NOTHING", "Grant", "read_token_file"]
