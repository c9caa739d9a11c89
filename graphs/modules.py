"""Modules of dspy in a turn: as a shape, in a handler and in the body of a flow (T14).

Each call of a predictor is a step of the turn's journal, so a module that runs again gets the recorded answers. Its
usage counts, limits and rate limits apply, and the role is added where the model is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from anyio import CapacityLimiter
from pydantic import PydanticUserError, TypeAdapter

from ..core.errors import ResultInvalid
from ..core.validation import json_of_value, read_value
from ..harness.inside import run_on_thread
from ..harness.journal import Frame, Step

if TYPE_CHECKING:
    from ..signatures import Signature
    from ..signatures.modules import Module, PredictorCall
    from .context import TurnContext


async def run_module(
    module: Module,
    inputs: Mapping[str, Any],
    *,
    turn: TurnContext,
    frame: Frame,
    entry: Signature | None = None,
    prefix: str = "module",
) -> Any:
    """Run a module on the agent's model.

    Args:
        module: The module. It is not changed.
        inputs: The inputs of its `forward`.
        turn: The turn, with the role of the task.
        frame: The calls of the body that runs it.
        entry: The Signature that the role attaches to.
        prefix: The beginning of the names of its predictors, if there is no entry Signature.

    Returns:
        What the module returns, a `dspy.Prediction` as a rule.

    Raises:
        FunctionInvalid: It cannot run on an agent's model; the text says why.
        OutputInvalid, RoleEchoed, HostError: The model failed, and the module did not catch it.
    """
    from ..signatures.modules import ModuleRun, check_module

    async def ask(call: PredictorCall) -> Mapping[str, Any]:
        predictor = call.predictor
        outputs = Outputs(predictor.signature)
        given = {**call.inputs, **{f"option {name}": value for name, value in call.options.items()}}
        asked, identified = outputs.inputs(given)

        async def body(_: Any) -> Any:
            listener = replace(turn.listener(predictor.name), watch=None)  # dspy notifies callbacks itself
            answer = await turn.ask(
                lambda caller: predictor(call.inputs, call.tuned(caller), role=turn.role, listener=listener)
            )
            return outputs.dump(answer.fields)

        # Calls that are identified only by their position must not run at the same time.
        call_id = await frame.child(predictor.name, asked, model=identified)
        step = Step(id=call_id, parent=frame.path, name=predictor.name, kind="model", input=asked, body=body)
        try:
            fields: Mapping[str, Any] = outputs.read(await frame.do(step))
        finally:
            frame.mark_model_influenced()  # the answer influences what the module calls from now on, such as a tool
        return fields

    run = ModuleRun(check_module(module, what="the module"), ask, entry=entry, prefix=prefix)
    with run.opened(turn.services.callbacks, hide=turn.hide_roles):
        if run.is_async:
            return await run.module.acall(**inputs)
        return await run_on_thread(partial(run.module, **inputs), CapacityLimiter(1))


class Outputs:
    """Converts the fields of a Signature to JSON and back, so that a recorded answer reads as it was."""

    def __init__(self, signature: Signature) -> None:
        self._what = f"the answer of {signature.__name__!r}"
        self._kinds: dict[str, TypeAdapter[Any]] = {
            name: TypeAdapter(field.annotation or object) for name, field in signature.output_fields.items()
        }

    def dump(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: json_of_value(self._kinds[name], value, what=self._what, error=ResultInvalid)
            for name, value in fields.items()
        }

    def read(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: read_value(self._kinds[name], value, what=self._what, error=ResultInvalid)
            for name, value in fields.items()
        }

    @staticmethod
    def inputs(given: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        """The inputs as JSON, which identify this model call among others; False if some are not JSON.

        Those are identified only by their position.
        """
        found, known = dict[str, Any](), True
        for name, value in given.items():
            # The order of a set is another one in another process.
            plain = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
            try:
                found[name] = json_of_value(TypeAdapter(type(plain)), plain, what=name, error=ResultInvalid)
            except (PydanticUserError, ResultInvalid):  # a type without a schema, or a value that is not JSON
                found[name], known = type(value).__name__, False
        return found, known
