"""Fakes and checks for users of the package: a scripted model, a clock that you advance, a scan for roles, evals.

Importing this folder loads no model library; `ScriptedLM` does so on first access. `docs/guides/testing.md` and
`docs/guides/evals.md` show how to use the parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazy
from .clock import VirtualClock
from .scan import Finding, RoleLeak, ScanReport, assert_no_role_leak, scan_for_roles

if TYPE_CHECKING:
    from .evals.cases import EvalCase, read_cases
    from .evals.metrics import EvalAnswer
    from .evals.running import evaluate
    from .evals.runs import EvalRun
    from .scripted import ScriptedCall, ScriptedLM, ScriptExhausted

__all__ = [
    "EvalAnswer",
    "EvalCase",
    "EvalRun",
    "Finding",
    "RoleLeak",
    "ScanReport",
    "ScriptExhausted",
    "ScriptedCall",
    "ScriptedLM",
    "VirtualClock",
    "assert_no_role_leak",
    "evaluate",
    "read_cases",
    "scan_for_roles",
]

__getattr__ = lazy(
    __name__,
    {
        ".evals.cases": "EvalCase read_cases",
        ".evals.metrics": "EvalAnswer",
        ".evals.running": "evaluate",
        ".evals.runs": "EvalRun",
        ".scripted": "ScriptExhausted ScriptedCall ScriptedLM",
    },
)
