"""Optimised programs of users: they are read, checked against a Signature, and refused if they do not match.

See R12 and D19. dspy restores a saved program by position and pairs fields whatever their names. So a file with other
fields would load silently and mix up their descriptions, including that of a saved role. `predictor` uses the programs.
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
    """The relevant parts of a saved program. Its traces, training set and model are ignored."""

    signature: _SavedSignature
    demos: list[dict[str, Any]]


def fitting_program(given: object, signature: Signature) -> dspy.Predict:
    """Return an optimised program of `signature`.

    Args:
        given: The program, or the JSON file of a saved one.
        signature: The Signature without role that it was made for.

    Raises:
        FunctionInvalid: It is neither, the file cannot be read, or the program has other fields.
    """
    if isinstance(given, str | os.PathLike):
        return _read(Path(given), signature)
    if not isinstance(given, dspy.Predict):
        raise FunctionInvalid(
            f"the program for {signature.__name__!r} must be a dspy.Predict or a file, got {type(given).__name__!r}",
            remedy="pass a dspy.Predict, or the JSON file of a saved one",
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
        # Optimisers can rewrite only the last prefix.
        if len(found) == len(made_for) and found[:-1] == made_for[:-1]:
            restored: Any = signature.load_state(saved.signature.model_dump())
            program = dspy.Predict(restored)
            program.demos = saved.demos
            return program
        problem = f"its {len(found)} fields differ"
    raise FunctionInvalid(
        f"the program {str(path)!r} for {signature.__name__!r} cannot be loaded ({problem})",
        remedy=f"save a role-free program with the fields {list(signature.fields)}",
    )
