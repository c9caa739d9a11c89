"""Constants that several folders share."""

from __future__ import annotations

from typing import Final

ECHO_RUN: Final = 40
"""Characters in a row that count as repeating a role (R16), for the echo guard and the leak scanner."""
