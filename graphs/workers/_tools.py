"""What a worker may call, as its model is told of it, and what its model asked for, checked before anything is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...core.errors import ParamsInvalid, ResultInvalid
from ...core.validation import json_of_value, read_model, read_value
from ...harness import Function, Registry, Worker
from ...harness.gate import is_like
from ...harness.requests import REQUEST, TEXT, WorkerRequest, gives_text
from ...signatures.workers import Offer, Thought, WorkerSignatures
from .._shape import SUBAGENT

MOST_CALLS: Final = 16
"""How many calls a model may ask for at one step."""

_SHOWN = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What one worker works with.

    Attributes:
        worker: The worker.
        functions: What it may call, by name.
        signatures: The forms of its entry Signature.
    """

    worker: Worker
    functions: Mapping[str, Function]
    signatures: WorkerSignatures

    @classmethod
    def of(cls, worker: Worker, functions: Sequence[Function]) -> Tools:
        """Those of a worker.

        Raises:
            FunctionInvalid: An input of the worker is called as an output is.
        """
        own = worker.function
        signatures = WorkerSignatures.of(
            worker.name,
            worker.instructions,
            fields=None if worker.prompt or own.params is WorkerRequest else own.input_schema.get("properties", {}),
            output=None if gives_text(own) else own.output_schema,
            offers=[
                Offer(name=each.name, description=each.description, params=each.input_schema) for each in functions
            ],
        )
        return cls(worker=worker, functions={each.name: each for each in functions}, signatures=signatures)

    def inputs(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """The input fields of the worker's Signature, from its params as JSON."""
        return {REQUEST: self.worker.message(params)} if self.worker.prompt else params

    def said(self, thought: Thought, *, direct: bool) -> dict[str, Any]:
        """What a model gave, as the journal keeps it: its calls, its result, or what is wrong with them."""
        if self.functions and not direct:
            if thought.calls:
                fault = self._fault(thought.calls)
                if fault:
                    return {"fault": fault}
                return {"calls": [{"tool": name, "arguments": arguments} for name, arguments in thought.calls]}
            if thought.result in (None, ""):
                return {"fault": "it has neither calls nor a result"}
        return self._result(thought.result)

    def _fault(self, calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
        if len(calls) > MOST_CALLS:
            return f"it has {len(calls)} calls, and {MOST_CALLS} is the most at once"
        for name, arguments in calls:
            function = self.functions.get(name)
            if function is None:
                return f"there is no tool {name[:_SHOWN]!r}; there is {', '.join(self.functions)}"
            try:
                read_model(function.params, arguments, what=f"arguments of {name!r}", error=ParamsInvalid)
            except ParamsInvalid as error:
                return error.problem
        return ""

    def _result(self, given: Any) -> dict[str, Any]:
        worker = self.worker
        if worker.result is TEXT:
            return {"result": given} if isinstance(given, str) and given.strip() else {"fault": "the result is empty"}
        what = "the result"
        try:
            value = read_value(worker.result, given, what=what, error=ResultInvalid)
            return {"result": json_of_value(worker.result, value, what=what, error=ResultInvalid)}
        except ResultInvalid as error:
            return {"fault": error.problem}


def callable_by(worker: Worker, registry: Registry) -> tuple[Function, ...]:
    """What a worker's globs name. The shape that runs workers is meant only where it is named as such."""
    if not worker.tools:
        return ()
    names = [name for name in registry.names if is_like(name, worker.tools)]
    return tuple(registry.function(name) for name in names if name != SUBAGENT or SUBAGENT in worker.tools)


__all__ = ["MOST_CALLS", "Tools", "callable_by"]
