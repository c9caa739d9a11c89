"""Fakes and checks for people who build on the package: a scripted model, a clock that you move, a scan for roles.

Importing this folder loads no model library; `ScriptedLM` does so when it is first touched. `docs/testing.md` shows
how the parts are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .clock import VirtualClock
from .report import Finding, RoleLeak, ScanReport
from .scan import assert_no_role_leak, scan_for_roles

if TYPE_CHECKING:
    from .scripted import ScriptedCall, ScriptedLM, ScriptExhausted

__all__ = [
    "Finding",
    "RoleLeak",
    "ScanReport",
    "ScriptExhausted",
    "ScriptedCall",
    "ScriptedLM",
    "VirtualClock",
    "assert_no_role_leak",
    "scan_for_roles",
]

_LAZY = frozenset({"ScriptExhausted", "ScriptedCall", "ScriptedLM"})


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import scripted

    return getattr(scripted, name)
