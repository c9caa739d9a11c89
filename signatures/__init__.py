"""The role as a typed input of DSPy Signatures, and the calls of models. The only folder that imports dspy.

Names load on first use (PEP 562), so that the embedded model can begin to load before dspy does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._adapter import LM, NOTE, CallMade, PastStep, Program, Signature, StepMade
    from ._calling import LAST_STEP, OFFERED, Offer, OfferedTools
    from ._engines import ADDRESS_REMEDY, address_problem
    from ._escape import escape_description
    from ._names import check_named
    from ._pool import PredictorPool
    from ._predictor import Listener, ModelCaller, ModelOptions, Predictor, open_model
    from ._prompts import REPLY_DEMOS, preload
    from ._signature import CONVERSE, REPLY, RESULT, converse_signature, worker_signature
    from ._thinking import Question, Thought, think

_HOMES = {
    "ADDRESS_REMEDY": "._engines",
    "address_problem": "._engines",
    "CONVERSE": "._signature",
    "CallMade": "._adapter",
    "LM": "._adapter",
    "Listener": "._predictor",
    "ModelCaller": "._predictor",
    "ModelOptions": "._predictor",
    "NOTE": "._adapter",
    "LAST_STEP": "._calling",
    "OFFERED": "._calling",
    "Offer": "._calling",
    "OfferedTools": "._calling",
    "PastStep": "._adapter",
    "Predictor": "._predictor",
    "PredictorPool": "._pool",
    "Program": "._adapter",
    "Question": "._thinking",
    "REPLY": "._signature",
    "REPLY_DEMOS": "._prompts",
    "RESULT": "._signature",
    "Signature": "._adapter",
    "StepMade": "._adapter",
    "Thought": "._thinking",
    "check_named": "._names",
    "converse_signature": "._signature",
    "escape_description": "._escape",
    "open_model": "._predictor",
    "preload": "._prompts",
    "think": "._thinking",
    "worker_signature": "._signature",
}

__all__ = [
    "ADDRESS_REMEDY",
    "CONVERSE",
    "LAST_STEP",
    "LM",
    "NOTE",
    "OFFERED",
    "REPLY",
    "REPLY_DEMOS",
    "RESULT",
    "CallMade",
    "Listener",
    "ModelCaller",
    "ModelOptions",
    "Offer",
    "OfferedTools",
    "PastStep",
    "Predictor",
    "PredictorPool",
    "Program",
    "Question",
    "Signature",
    "StepMade",
    "Thought",
    "address_problem",
    "check_named",
    "converse_signature",
    "escape_description",
    "open_model",
    "preload",
    "think",
    "worker_signature",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)
