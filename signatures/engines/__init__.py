"""The engines of model calls: any model string of dspy's own HTTP engine, a user's `dspy.LM`, or the embedded model.

Adapters, predictors and time limits are in `signatures`. Retries and the effect of a failure on a turn are in `graphs`.
Names load on first use (PEP 562), so that `start_loading` can run before dspy is imported.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .classification import AnswerTooLong, classify, refuses_form
    from .connect import Abilities, ModelConnection, abilities_of, check_model, connect_model
    from .costs import CostTracker, RateLimitWait
    from .grammars import GrammarUnfit, bounded
    from .local import start_loading
    from .providers import ADDRESS_REMEDY, PROVIDERS, address_problem, is_local, sending

_HOMES = {
    "ADDRESS_REMEDY": ".providers",
    "address_problem": ".providers",
    "Abilities": ".connect",
    "abilities_of": ".connect",
    "AnswerTooLong": ".classification",
    "PROVIDERS": ".providers",
    "CostTracker": ".costs",
    "GrammarUnfit": ".grammars",
    "RateLimitWait": ".costs",
    "ModelConnection": ".connect",
    "bounded": ".grammars",
    "check_model": ".connect",
    "classify": ".classification",
    "connect_model": ".connect",
    "is_local": ".providers",
    "refuses_form": ".classification",
    "sending": ".providers",
    "start_loading": ".local",
}

__all__ = [
    "ADDRESS_REMEDY",
    "PROVIDERS",
    "Abilities",
    "AnswerTooLong",
    "CostTracker",
    "GrammarUnfit",
    "ModelConnection",
    "RateLimitWait",
    "abilities_of",
    "address_problem",
    "bounded",
    "check_model",
    "classify",
    "connect_model",
    "is_local",
    "refuses_form",
    "sending",
    "start_loading",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)
