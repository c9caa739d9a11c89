"""The role as a typed input of DSPy Signatures, and the calls of models. The only folder that imports dspy.

Names load on first use (PEP 562), so that the embedded model can begin to load before dspy does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._adapter import LM, Past, Program, Signature
    from ._escape import escape_description
    from ._planner import Planner, RosterEntry
    from ._pool import PredictorPool
    from ._predictor import Listener, ModelCaller, ModelOptions, open_model
    from ._prompts import preload

_HOMES = {
    "LM": "._adapter",
    "Listener": "._predictor",
    "ModelCaller": "._predictor",
    "ModelOptions": "._predictor",
    "Past": "._adapter",
    "Planner": "._planner",
    "PredictorPool": "._pool",
    "Program": "._adapter",
    "RosterEntry": "._planner",
    "Signature": "._adapter",
    "escape_description": "._escape",
    "open_model": "._predictor",
    "preload": "._prompts",
}

__all__ = [
    "LM",
    "Listener",
    "ModelCaller",
    "ModelOptions",
    "Past",
    "Planner",
    "PredictorPool",
    "Program",
    "RosterEntry",
    "Signature",
    "escape_description",
    "open_model",
    "preload",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)
