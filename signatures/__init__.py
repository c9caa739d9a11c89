"""Roles as typed inputs of DSPy Signatures, and the calls of models. Only this folder imports dspy.

Names load on first use (PEP 562), so that the embedded model can begin to load before dspy does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazy

if TYPE_CHECKING:
    from .adapter import LM, NOTE, CallMade, PastStep, Signature, StepMade
    from .calling import LAST_STEP, OFFERED, Offer, OfferedTools, ServiceOffer
    from .converse import Converse, converse_signature
    from .engines.providers import ADDRESS_REMEDY, address_problem, check_named
    from .escape import escape_description
    from .examples import TurnExample
    from .models import PredictorPool, Thought
    from .predictor import Listener, ModelCaller, ModelOptions, Predictor, open_model
    from .programs import Program
    from .signature import (
        CONVERSE,
        REPLY,
        REPLY_DEMOS,
        RESULT,
        RUN_SKILL,
        preload,
        skill_signature,
        worker_signature,
    )

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
    "RUN_SKILL",
    "CallMade",
    "Converse",
    "Listener",
    "ModelCaller",
    "ModelOptions",
    "Offer",
    "OfferedTools",
    "PastStep",
    "Predictor",
    "PredictorPool",
    "Program",
    "ServiceOffer",
    "Signature",
    "StepMade",
    "Thought",
    "TurnExample",
    "address_problem",
    "check_named",
    "converse_signature",
    "escape_description",
    "open_model",
    "preload",
    "skill_signature",
    "worker_signature",
]

__getattr__ = lazy(
    __name__,
    {
        ".adapter": "LM NOTE CallMade PastStep Signature StepMade",
        ".calling": "LAST_STEP OFFERED Offer OfferedTools ServiceOffer",
        ".converse": "Converse converse_signature",
        ".engines.providers": "ADDRESS_REMEDY address_problem check_named",
        ".escape": "escape_description",
        ".examples": "TurnExample",
        ".predictor": "Listener ModelCaller ModelOptions Predictor open_model",
        ".programs": "Program",
        ".signature": "CONVERSE REPLY REPLY_DEMOS RESULT RUN_SKILL preload skill_signature worker_signature",
        ".models": "PredictorPool Thought",
    },
)
