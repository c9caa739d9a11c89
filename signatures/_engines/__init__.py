"""Where model calls go: any model string of dspy's own HTTP engine, a user's `dspy.LM`, or the embedded model.

Not here: adapters, predictors and time limits (`signatures`), retries and what a failure means to a turn (`graphs`).
Names load on first use (PEP 562), so that `start_loading` can run before dspy is imported.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._abilities import Abilities, abilities_of
    from ._addresses import ADDRESS_REMEDY, address_problem
    from ._classify import classify, refuses_form
    from ._connect import ModelConnection, check_model, connect_model
    from ._costs import CostTracker
    from ._engine_errors import AnswerTooLong
    from ._grammars import GrammarUnfit, bounded
    from ._headers import sending
    from ._pace import HeldBack
    from ._providers import PROVIDERS, is_local
    from .local import start_loading

_HOMES = {
    "ADDRESS_REMEDY": "._addresses",
    "address_problem": "._addresses",
    "Abilities": "._abilities",
    "abilities_of": "._abilities",
    "AnswerTooLong": "._engine_errors",
    "PROVIDERS": "._providers",
    "CostTracker": "._costs",
    "GrammarUnfit": "._grammars",
    "HeldBack": "._pace",
    "ModelConnection": "._connect",
    "bounded": "._grammars",
    "check_model": "._connect",
    "classify": "._classify",
    "connect_model": "._connect",
    "is_local": "._providers",
    "refuses_form": "._classify",
    "sending": "._headers",
    "start_loading": ".local",
}

__all__ = [
    "ADDRESS_REMEDY",
    "PROVIDERS",
    "Abilities",
    "AnswerTooLong",
    "CostTracker",
    "GrammarUnfit",
    "HeldBack",
    "ModelConnection",
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
