"""Roles as typed inputs of DSPy Signatures, and the calls of models. Only this folder imports dspy.

Names load on first use (PEP 562), so that the embedded model can begin to load before dspy does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .adapter import LM, NOTE, CallMade, PastStep, Program, Signature, StepMade
    from .calling import LAST_STEP, OFFERED, Offer, OfferedTools
    from .engines import ADDRESS_REMEDY, address_problem
    from .engines.providers import check_named
    from .escape import escape_description
    from .predictor import Listener, ModelCaller, ModelOptions, Predictor, open_model
    from .signature import CONVERSE, REPLY, REPLY_DEMOS, RESULT, converse_signature, preload, worker_signature
    from .thinking import PredictorPool, Question, Thought, think

_HOMES = {
    "ADDRESS_REMEDY": ".engines",
    "address_problem": ".engines",
    "CONVERSE": ".signature",
    "CallMade": ".adapter",
    "LM": ".adapter",
    "Listener": ".predictor",
    "ModelCaller": ".predictor",
    "ModelOptions": ".predictor",
    "NOTE": ".adapter",
    "LAST_STEP": ".calling",
    "OFFERED": ".calling",
    "Offer": ".calling",
    "OfferedTools": ".calling",
    "PastStep": ".adapter",
    "Predictor": ".predictor",
    "PredictorPool": ".thinking",
    "Program": ".adapter",
    "Question": ".thinking",
    "REPLY": ".signature",
    "REPLY_DEMOS": ".signature",
    "RESULT": ".signature",
    "Signature": ".adapter",
    "StepMade": ".adapter",
    "Thought": ".thinking",
    "check_named": ".engines.providers",
    "converse_signature": ".signature",
    "escape_description": ".escape",
    "open_model": ".predictor",
    "preload": ".signature",
    "think": ".thinking",
    "worker_signature": ".signature",
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
