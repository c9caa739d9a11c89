"""Runs a module of dspy as a shape, or as the body of a worker (T14)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, TypeAdapter

from ...core.errors import FunctionInvalid
from ...harness import CallContext, Function, Risk
from ...harness.function import READ_ONLY, risks
from ..modules import run_module
from ..shape import Shape, ShapeRegistry, check_models
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
        FunctionInvalid: It is not a module, a predictor has its own model or cannot carry a role, `params` or `result`
            is not a pydantic model, its `forward` does not take the params, `entry` is not a Signature, or no predictor
            has its fields.
    """
    from ...signatures.modules import has_fields
    from ...signatures.programs import predictors
    from ...signatures.signature import without_role

    checked = _checked(module, params, result, what=f"shape {key!r}")
    if isinstance(entry, str):
        raise FunctionInvalid(
            f"`entry` of the shape {key!r} must be a subclass of dspy.Signature, got a 'str'",
            remedy="declare it as a class, or leave out entry=: the module runs the same, and no role reaches it",
        )
    needed = [] if entry is None else list(without_role(entry).fields)
    own: list[Any] = [predict.signature for _, predict in predictors(checked)]
    if entry is not None and not any(has_fields(each, entry) for each in own):
        raise FunctionInvalid(
            f"no predictor in the shape {key!r} has the fields of {entry.__name__!r}, so no role reaches it",
            remedy=f"give one predictor the fields {needed}, or leave out entry=",
        )

    async def handle(given: P, ctx: TaskContext) -> Mapping[str, Any]:
        inputs = {name: getattr(given, name) for name in params.model_fields}
        made = await run_module(module, inputs, turn=ctx.turn, frame=ctx.calls.frame, entry=entry, prefix=key)
        outputs = _fields(made, result)
        if entry is not None:
            ctx.turn.keep_example(ctx.id, entry, inputs, outputs)
        return outputs

    return _ModuleShape(key, params, result, handle, entry=entry, description=description, module=checked)


def module_worker(
    name: str,
    module: Module,
    *,
    params: type[P],
    result: type[R],
    description: str = "",
    risk: Risk | tuple[Risk, ...] = READ_ONLY,
) -> Function:
    """A worker whose body is a module of dspy: pass it in `WorldAgent(workers=[...])`.

    It is called and dispatched to by its name as any worker is. The params are the inputs of its `forward`, and the
    result's fields come from its prediction. Each call of a predictor is recorded. No role reaches it, because it is
    called across a task (T8).

    Args:
        name: Its name.
        module: The module. It runs on the agent's model, so no predictor has its own.
        params: The declared params; each field is an input of the module.
        result: The declared result; each field is one of the prediction.
        description: What it is for, shown to the models that can call it.
        risk: What calling it does to the world.

    Raises:
        FunctionInvalid: It is not a module, a predictor has its own model or cannot carry a role, `params` or `result`
            is not a pydantic model, or its `forward` does not take the params.
    """
    _checked(module, params, result, what=f"worker {name!r}")

    async def body(ctx: CallContext, /, **inputs: Any) -> R:
        return result.model_validate(_fields(await ctx.run_module(module, **inputs), result))

    return Function(name, body, params, TypeAdapter(result), description, "flow", risk=risks(name, risk))


def _checked(module: object, params: type[BaseModel], result: type[BaseModel], *, what: str) -> Module:
    """Check what is known when a module is declared."""
    from ...signatures.modules import check_inputs, check_module

    checked = check_module(module, what=f"the module of {what}")
    check_models(f"the {what}", params, result)
    check_inputs(checked, params.model_fields, what=f"the module of {what}")
    return checked


def _fields(made: Any, result: type[BaseModel]) -> dict[str, Any]:
    """The fields of the result that a prediction has."""
    found = dict(made.items()) if hasattr(made, "items") else {}
    return {name: found[name] for name in result.model_fields if name in found}
