"""Fakes and checks for users of the package: a scripted model, a clock that you advance, a scan for roles.

Importing this folder loads no model library; `ScriptedLM` does so on first access. `docs/guides/testing.md` shows how
to use the parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .clock import VirtualClock
from .scan import Finding, RoleLeak, ScanReport, assert_no_role_leak, scan_for_roles

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
