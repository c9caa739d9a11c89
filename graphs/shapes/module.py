"""Runs a module of dspy as a shape (T14)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from ...core.errors import FunctionInvalid
from ..modules import run_module
from ..shape import Shape, ShapeRegistry
from ..tasks import TaskContext

if TYPE_CHECKING:
    from ...signatures import Signature
    from ...signatures.modules import Module

P = TypeVar("P", bound=BaseModel)
R = TypeVar("R", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class _ModuleShape(Shape[P, R]):
    """A shape whose handler runs a module."""

    module: Any = field(default=None, kw_only=True)

    def all_signatures(self) -> tuple[Signature, ...]:
        return ()  # the module has its own predictors, and its programs are those of the module

    def names_for(self, params: P, shapes: ShapeRegistry) -> tuple[tuple[str, ...], tuple[str, ...]]:
        from ...signatures.modules import predictor_name
        from ...signatures.programs import predictors

        if self.entry is None:
            return (), ()
        name = self.entry.__name__
        return (name,), tuple(predictor_name(name, path) for path, _ in predictors(self.module))


def module_shape(
    key: str,
    module: Module,
    *,
    params: type[P],
    result: type[R],
    entry: Signature | None = None,
    description: str = "",
) -> Shape[P, R]:
    """A shape that runs a module of dspy.

    The params are the inputs of its `forward`, and the result's fields come from its prediction. Each call of a
    predictor is recorded, so a resumed turn does not repeat it. A module with an `aforward` runs on the event loop, any
    other one on a thread.

    Args:
        key: The name for `task()`.
        module: The module. It runs on the agent's model, so no predictor has its own.
        params: The declared params; each field is an input of the module.
        result: The declared result; each field is one of the prediction.
        entry: The Signature that a role attaches to: those predictors get it that have all its fields. A role's
            `applies_to` can also name a predictor, as `SIGNATURE.PATH`. Without it the module gets no role.
        description: What it is for. With one it is offered to the conversation.

    Raises:
        FunctionInvalid: It is not a module, a predictor has its own model or a field called `role`, or no predictor has
            the fields of the entry Signature.
    """
    from ...signatures.modules import check_module, has_fields
    from ...signatures.programs import predictors

    checked = check_module(module, what=f"the module of shape {key!r}")
    own: list[Any] = [predict.signature for _, predict in predictors(checked)]
    if entry is not None and not any(has_fields(each, entry) for each in own):
        raise FunctionInvalid(
            f"no predictor in the shape {key!r} has the fields of {entry.__name__!r}, so no role reaches it",
            remedy=f"give one predictor the fields {list(entry.fields)}, or leave out entry=",
        )

    async def handle(given: P, ctx: TaskContext) -> Mapping[str, Any]:
        inputs = {name: getattr(given, name) for name in params.model_fields}
        made = await run_module(module, inputs, turn=ctx.turn, frame=ctx.calls.frame, entry=entry, prefix=key)
        found = dict(made.items()) if hasattr(made, "items") else {}
        outputs = {name: found[name] for name in result.model_fields if name in found}
        if entry is not None:
            ctx.turn.keep_example(ctx.id, entry, inputs, outputs)
        return outputs

    return _ModuleShape(key, params, result, handle, entry=entry, description=description, module=checked)


__all__ = ["module_shape"]
