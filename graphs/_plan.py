"""From a plan in words to tasks that can run: every name and every field checked, the first fault told (design 3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypedDict

from pydantic import BaseModel

from ..core import canonical_json
from ..core.errors import ModelFacing, ParamsInvalid
from ..core.validation import json_of
from ..harness import Registry
from ..harness.requests import takes_text
from ..signatures import RosterEntry
from ._shape import SUBAGENT, ShapeRegistry

MAX_DISPATCHES = 16
"""How many tasks one plan may ask for."""

_SHOWN = 80
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1  # whole numbers that a checkpoint can hold


class Work(TypedDict):
    """One task to do: whom it is for, the shape, its params as JSON."""

    to: str
    shape: str
    params: dict[str, Any]


class PlanFault(Exception):
    """A plan that cannot be carried out; the text is told to the planner. It never leaves this folder."""


def read_plan(dispatches: Sequence[dict[str, Any]], registry: Registry, shapes: ShapeRegistry) -> list[Work]:
    """Return the tasks that a plan asks for, with params checked.

    Raises:
        PlanFault: It names what is not there, or its params do not fit.
    """
    if len(dispatches) > MAX_DISPATCHES:
        raise PlanFault(f"it has {len(dispatches)} dispatches, and {MAX_DISPATCHES} is the most")
    return [_work(item, registry, shapes) for item in dispatches]


def roster(registry: Registry, shapes: ShapeRegistry) -> list[RosterEntry]:
    """Whom the planner can dispatch to: all workers, and the shapes that say what they are for."""
    entries = [
        RosterEntry(
            name=each.name,
            description=each.description,
            params=None if takes_text(each) else each.input_schema.get("properties", {}),
        )
        for each in registry.offered.values()
    ]
    for shape in offered(shapes):
        entries.append(
            RosterEntry(
                name=shape.key, description=shape.description, params=shape.params.model_json_schema()["properties"]
            )
        )
    return entries


def offered(shapes: ShapeRegistry) -> Sequence[Any]:
    """The shapes that the planner is told of."""
    return [shape for shape in shapes.shapes.values() if shape.description]


def _work(item: dict[str, Any], registry: Registry, shapes: ShapeRegistry) -> Work:
    name = str(item.get("to", "")).strip()
    found = registry.offered.get(name)
    if found is not None:
        asked = str(item.get("request", "")).strip() if takes_text(found) else canonical_json(item.get("params") or {})
        shape, params = SUBAGENT, {"worker": name, "request": asked}
    elif name in (shape.key for shape in offered(shapes)):
        shape, params = name, item.get("params") or {}
    else:
        raise PlanFault(f"there is no {name[:_SHOWN]!r}; there is {_listed([*registry.offered], offered(shapes))}")
    problem = ""
    try:
        checked = storable(shapes.get(shape).read_params(params), what="its params")
    except ModelFacing as error:
        problem, checked = error.problem, {}
    if problem:
        raise PlanFault(f"{name!r}: {problem}")
    return {"to": name, "shape": shape, "params": checked}


def storable(params: BaseModel, *, what: str) -> dict[str, Any]:
    """Params as JSON that a checkpoint can hold.

    Args:
        params: The params.
        what: What they are, for the error.

    Raises:
        ParamsInvalid: They are no JSON, or hold a whole number of more than 64 bits.
    """
    given = json_of(params, what=what, error=ParamsInvalid)
    left: list[Any] = [given]
    while left:
        match left.pop():
            case dict() as fields:
                left += fields.values()
            case list() as items:
                left += items
            case int() as number if not _LEAST <= number <= _MOST:
                raise ParamsInvalid(
                    f"{what} hold a whole number of more than 64 bits", remedy="give such a number as a text"
                )
            case _:
                pass
    return given


def _listed(workers: list[str], shapes: Iterable[Any]) -> str:
    return ", ".join([*workers, *(shape.key for shape in shapes)]) or "nobody"
