"""Params and results that are declared by JSON Schema: pydantic types that validate by it. Python's need none."""

from .checking import Checker, Problem
from .types import params_of, result_of

__all__ = ["Checker", "Problem", "params_of", "result_of"]
