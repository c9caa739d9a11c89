"""What stands for an argument that was left out, where None means something else."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Unset(Enum):
    """The type of `UNSET`."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET
