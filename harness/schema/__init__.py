"""Params and results that are declared by a JSON Schema: pydantic types that validate by it."""

from .checking import Checker, Problem
from .types import params_of, result_of

__all__ = ["Checker", "Problem", "params_of", "result_of"]
