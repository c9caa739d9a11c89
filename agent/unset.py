"""The value of an argument that was left out, for arguments that give None a meaning."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Unset(Enum):
    """The type of `UNSET`."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET
