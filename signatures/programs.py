"""Optimised programs as they come from outside: read, checked against a Signature, refused if unfit (R12, D19).

dspy restores a saved program by position: fields are zipped, whatever their names. So a file with other fields would
load in silence and mix up their descriptions, a saved role's among them. What a program is used for is in `predictor`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import dspy
from pydantic import BaseModel

from ..core.errors import FunctionInvalid
from .adapter import Signature


class _SavedField(BaseModel):
    prefix: str
    description: str


class _SavedSignature(BaseModel):
    instructions: str
    fields: list[_SavedField]


class _Saved(BaseModel):
    """What of a saved program counts; its traces, its training set and its model do not."""

    signature: _SavedSignature
    demos: list[dict[str, Any]]


def fitting_program(given: object, signature: Signature) -> dspy.Predict:
    """Return an optimised program of `signature`.

    Args:
        given: The program, or the JSON file that it was saved to.
        signature: The role-free Signature that it was made for.

    Raises:
        FunctionInvalid: It is neither, the file cannot be read, or the program's fields are others.
    """
    if isinstance(given, str | os.PathLike):
        return _read(Path(given), signature)
    if not isinstance(given, dspy.Predict):
        raise FunctionInvalid(
            f"a program of type {type(given).__name__!r} was given for {signature.__name__!r}",
            remedy="pass a dspy.Predict, or the JSON file that one was saved to",
        )
    found: Any = given.signature
    if _shape(found) != _shape(signature):
        raise FunctionInvalid(
            f"the program for {signature.__name__!r} has other fields: {list(found.fields)}",
            remedy=f"optimise the role-free program, whose fields are {list(signature.fields)}",
        )
    return given


def _shape(signature: Signature) -> list[tuple[str, object, bool]]:
    inputs = signature.input_fields
    return [(name, info.annotation, name in inputs) for name, info in signature.fields.items()]


def _read(path: Path, signature: Signature) -> dspy.Predict:
    try:
        saved = _Saved.model_validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        problem = type(error).__name__
    else:
        found = [field.prefix for field in saved.signature.fields]
        own: Any = signature.dump_state()
        made_for = [field["prefix"] for field in own["fields"]]
        # Optimisers may rewrite the last prefix, and no other.
        if len(found) == len(made_for) and found[:-1] == made_for[:-1]:
            restored: Any = signature.load_state(saved.signature.model_dump())
            program = dspy.Predict(restored)
            program.demos = saved.demos
            return program
        problem = f"it has {len(found)} fields, which are others"
    raise FunctionInvalid(
        f"the program {str(path)!r} for {signature.__name__!r} cannot be loaded ({problem})",
        remedy=f"save a role-free program with the fields {list(signature.fields)}",
    )
