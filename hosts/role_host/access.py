"""Which scopes a bearer token grants, and the token file of a role host. `serving` verifies tokens."""

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
    """The scopes that a caller can use.

    Attributes:
        scopes: The ids of each tier; `*` among them means every id. A tier that is left out is refused.
    """

    scopes: Mapping[Tier, frozenset[str]]

    def __post_init__(self) -> None:
        for tier, ids in self.scopes.items():
            for scope_id in ids:
                check_id(f"{tier} scope", scope_id)

    def allows(self, tier: Tier, scope_id: str) -> bool:
        """Whether the caller can read and change the role of this tier and scope."""
        return not self.scopes.get(tier, frozenset()).isdisjoint((scope_id, ANY))


EVERYTHING = Grant({tier: frozenset({ANY}) for tier in offered()})
NOTHING = Grant({})


def read_token_file(path: Path, grant: Grant) -> Tokens[Grant]:
    """Read the tokens of a host from a file.

    A file whose name ends in `.toml` has tokens with their scopes. Any other file has one token.

    Args:
        path: The file.
        grant: The grant of the token in a file that has one token.

    Raises:
        InvalidArgument: The file is unreadable or invalid. The error shows nothing of its text.
    """
    example = '[[token]], token = "..." and lists such as workspace = ["novel"], account = ["*"]'
    return read_tokens(path, grant, entry=_granted, example=example)


def _granted(table: dict[str, Any]) -> Grant:
    names = {tier.value for tier in offered()}
    if not table.keys() <= names:
        raise ValueError(f"must have only the keys token, {', '.join(sorted(names))}")
    scopes: dict[Tier, frozenset[str]] = {}
    for name, ids in table.items():
        if not isinstance(ids, list) or not all(isinstance(scope_id, str) for scope_id in ids):
            raise ValueError(f"must have a list of ids as {name}")
        scopes[Tier(name)] = frozenset(ids)
    return Grant(scopes)


__all__ = ["ANY", "EVERYTHING", "NOTHING", "Grant", "read_token_file"]
