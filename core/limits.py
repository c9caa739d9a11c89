"""Numbers that several folders must agree on."""

from __future__ import annotations

from typing import Final

ECHO_RUN: Final = 40
"""Characters in a row that count as repeating a role (R16): one constant for the guard over outputs and the scanner."""
