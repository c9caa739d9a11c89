"""Shapes: typed kinds of work with a key (T2), and skills that were composed for one. `tasks` runs them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from pydantic import BaseModel, TypeAdapter
from typing_extensions import TypedDict

from ..core.errors import FunctionInvalid, InvalidArgument, NameTaken, ParamsInvalid, ResultInvalid, UnknownShape
from ..core.validation import declaration, is_text, json_of, read_model, same_declaration, validate_model
from ..harness import Function, Risk
from ..harness.function import check_name, described, risks, undispatched

if TYPE_CHECKING:
    from ..signatures import Signature
    from .tasks import TaskContext

SUBAGENT = "subagent"
"""The key of the shape that runs a worker."""

OPERATOR = "operator"
"""The key of the shape that runs an operator of a member: one function or worker, by name."""

SKILL = "skill"
"""The key of the shape that runs a skill package."""

MIN_INTEGER, MAX_INTEGER = -(1 << 63), (1 << 64) - 1  # the range of integers that a checkpoint can hold


class Work(TypedDict):
    """A task that a turn dispatches: its recipient, the shape, its params as JSON."""

    to: str
    shape: str
    params: dict[str, Any]


P = TypeVar("P", bound=BaseModel)
R = TypeVar("R", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Shape(Generic[P, R]):
    """One kind of work: a key, a declared params model, a declared result model and a handler.

    Attributes:
        key: The name for `task()`.
        params: The declared params. Undeclared fields are refused.
        result: The declared result. Undeclared fields are refused.
        handler: A coroutine function of the params and the `TaskContext`; it returns the result or its fields.
        entry: The Signature that a role attaches to by default (R6); None for a shape that calls no model.
        signatures: The other Signatures that its handler can predict with.
        description: What it is for. A shape without one is not offered to the conversation.
        risk: The risk of dispatching it. Calls of its handler pass the gate separately.
        capture: Whether traces can hold its params and results, if the agent's `Trace` captures them.
        offered: Whether the conversation can call it, if it has a description.
        background: Whether a conversation can also dispatch it in the background, if the agent has `Background` (T17).
    """

    key: str
    params: type[P]
    result: type[R]
    handler: Callable[[P, TaskContext], Awaitable[R | Mapping[str, Any]]]
    entry: Signature | None = None
    signatures: tuple[Signature, ...] = ()
    description: str = ""
    risk: tuple[Risk, ...] = ("read_only",)
    capture: bool = False
    offered: bool = True
    background: bool = False

    TAKES_TURN_ROLE: ClassVar = False
    """Whether the role of a conversation attaches to a task that the conversation calls (T6)."""

    def __post_init__(self) -> None:
        check_name("shape", self.key)
        object.__setattr__(self, "risk", risks(self.key, self.risk))
        called = getattr(self.handler, "__call__", None)  # noqa: B004 -- an object can be a handler, too
        if not (inspect.iscoroutinefunction(self.handler) or inspect.iscoroutinefunction(called)):
            raise FunctionInvalid(f"the handler of shape {self.key!r} is not async", remedy="make it 'async def'")
        check_models(f"the shape {self.key!r}", self.params, self.result)
        for what in (self.params, self.result):
            for name, declared in what.model_fields.items():
                if declared.exclude:
                    raise FunctionInvalid(
                        f"the field {name!r} of the shape {self.key!r} must not be excluded, so that it can be stored",
                        remedy="remove 'exclude'",
                    )
        if signatures := self.all_signatures():
            from ..signatures.signature import check_signature  # this loads dspy, which a Signature has loaded already

            for signature in signatures:
                check_signature(signature)

    @property
    def declared(self) -> str:
        """The digest of the declared params and result."""
        return declaration(self.params, self.result)

    @property
    def function(self) -> Function:
        """The shape as a function from its params to its result."""
        offered = self.offered and bool(self.description)
        own = (self.risk, self.capture, offered, self.background)
        about = described(self.description, background=self.background)
        return _function(self.key, self.params, self.result, about, *own)

    @property
    def subgraph(self) -> Any:
        """The compiled graph that its handler runs, if any: the subgraph of the node of its tasks."""
        return getattr(self.handler, "graph", None)

    @property
    def own_functions(self) -> Mapping[str, Function]:
        """The functions that only its tasks call, by name. No registry has them."""
        return {}

    def version_of(self, params: P) -> str:
        """What a recorded task with these params is compared with when its turn resumes (D15)."""
        return self.declared

    def check_version(self, recorded: str | None) -> bool:
        """Whether a recorded task can run again.

        Args:
            recorded: The version that was recorded.

        Raises:
            GraphChanged: It cannot, and the text says why.
        """
        return same_declaration(recorded, self.declared)

    def callee(self, params: P) -> Function:
        """The function that the gate decides about when a task with these params is dispatched."""
        return self.function

    def stand_in(self, params: P) -> tuple[Function, Mapping[str, Any]] | None:
        """The function that replaces a task with these params, and its own params; None if there is none (H8)."""
        return None

    def all_signatures(self) -> tuple[Signature, ...]:
        """The entry Signature and the others."""
        return (self.entry, *self.signatures) if self.entry is not None else self.signatures

    def entry_for(self, params: P) -> tuple[Signature | None, tuple[Signature, ...]]:
        """The entry Signature of one task, and the other Signatures that it can use."""
        return self.entry, self.signatures

    def names_for(self, params: P, shapes: ShapeRegistry) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names that a role of one task can attach to: its entry Signatures and its other Signatures (R6).

        Args:
            params: The task's params.
            shapes: The shapes of the agent.

        Raises:
            UnknownShape, UnknownWorker, ParamsInvalid: The params name something that does not exist or is not allowed.
        """
        entry, others = self.entry_for(params)
        return () if entry is None else (entry.__name__,), tuple(other.__name__ for other in others)

    def check_starter(self, params: P, *, by_model: bool) -> None:
        """Refuse a task that cannot be started this way.

        Args:
            params: The task's params.
            by_model: Whether a model could have influenced the dispatch; otherwise the host starts a turn with it.

        Raises:
            ParamsInvalid: It is refused; the text says why.
        """

    def check_params(self, data: object) -> P:
        """Return `data` as params.

        Raises:
            ParamsInvalid: They are invalid; the text names the shape and each field.
        """
        return validate_model(self.params, data, what=f"params of shape {self.key!r}", error=ParamsInvalid)

    def read_params(self, data: Any) -> P:
        """Return params from JSON, which comes from a plan or from storage.

        Raises:
            ParamsInvalid: They are invalid; the text names the shape and each field.
        """
        return read_model(self.params, data, what=f"params of shape {self.key!r}", error=ParamsInvalid)

    def read_result(self, data: Any) -> R:
        """Return a stored result.

        Raises:
            ResultInvalid: It is invalid; the text names the shape and each field.
        """
        return read_model(self.result, data, what=f"fields of the result of shape {self.key!r}", error=ResultInvalid)

    def check_result(self, data: object) -> R:
        """Return `data` as the result.

        Raises:
            ResultInvalid: It is invalid; the text names the shape and each field.
        """
        return validate_model(
            self.result, data, what=f"fields of the result of shape {self.key!r}", error=ResultInvalid
        )


def check_models(what: str, params: object, result: object) -> None:
    """Refuse params or a result that are not declared as pydantic models.

    Args:
        what: What declares them, for the error.
        params: The params.
        result: The result.

    Raises:
        FunctionInvalid: One of them is something else.
    """
    for given in (params, result):
        if not (isinstance(given, type) and issubclass(given, BaseModel)):
            raise FunctionInvalid(
                f"{what} must declare pydantic models as params and result, not {given!r}",
                remedy="declare pydantic models",
            )


def storable(params: BaseModel, *, what: str) -> dict[str, Any]:
    """Params as JSON that a checkpoint can hold.

    Args:
        params: The params.
        what: The name of the params for the error.

    Raises:
        ParamsInvalid: They are not JSON, or hold an integer of more than 64 bits.
    """
    given = json_of(params, what=what, error=ParamsInvalid)
    left: list[Any] = [given]
    while left:
        match left.pop():
            case dict() as fields:
                left += fields.values()
            case list() as items:
                left += items
            case int() as number if not MIN_INTEGER <= number <= MAX_INTEGER:
                raise ParamsInvalid(
                    f"{what} must hold only integers of at most 64 bits", remedy="pass larger numbers as text"
                )
            case _:
                pass
    return given


@lru_cache(maxsize=1024)  # called at each dispatch
def _function(
    key: str,
    params: type[BaseModel],
    result: type[BaseModel],
    description: str,
    risk: tuple[Risk, ...],
    capture: bool,
    offered: bool,
    background: bool,
) -> Function:
    more: Any = {"kind": "shape", "risk": risk, "capture": capture, "offered": offered, "background": background}
    return Function(key, undispatched, params, TypeAdapter(result), description, **more)


class ShapeRegistry:
    """The shapes of one agent by key.

    Args:
        shapes: The shapes.

    Raises:
        NameTaken: Two of them have the same key.
    """

    def __init__(self, shapes: Iterable[Shape[Any, Any]] = ()) -> None:
        self._shapes: dict[str, Shape[Any, Any]] = {}
        for shape in shapes:
            self.add(shape)

    def add(self, shape: Shape[Any, Any]) -> None:
        """Add one shape.

        Raises:
            NameTaken: Its key is taken.
            FunctionInvalid: It is not a shape.
        """
        if not isinstance(shape, Shape):
            got = f"the class {shape.__name__!r}" if isinstance(shape, type) else f"a {type(shape).__name__!r}"
            raise FunctionInvalid(
                f"shapes= must hold only shapes, got {got}",
                remedy=shape_call(shape) or "make it with Shape(key, params, result, handler)",
            )
        if shape.key in self._shapes:
            raise NameTaken(f"two shapes have the key {shape.key!r}", remedy="rename one of them")
        self._shapes[shape.key] = shape

    def get(self, key: str) -> Shape[Any, Any]:
        """Return the shape with this key.

        Raises:
            UnknownShape: No shape has this key.
        """
        if key in self._shapes:
            return self._shapes[key]
        raise UnknownShape(f"there is no shape {key!r}", remedy=f"the shapes are: {', '.join(sorted(self._shapes))}")

    @property
    def shapes(self) -> Mapping[str, Shape[Any, Any]]:
        """All shapes by key."""
        return MappingProxyType(self._shapes)


_SHAPES_OF: Final = (
    ("langgraph.graph.state", "CompiledStateGraph", "graph_shape(KEY, graph, params=PARAMS, result=RESULT)"),
    ("langgraph.graph.state", "StateGraph", "graph_shape(KEY, graph.compile(), params=PARAMS, result=RESULT)"),
    ("dspy", "Module", "module_shape(KEY, module, params=PARAMS, result=RESULT)"),
)


def shape_call(given: object, *, place: str = "shapes") -> str | None:
    """What to write in place of a graph or a module. A library that is not loaded has made nothing.

    Args:
        given: What was passed.
        place: The argument; a module or a Signature in `workers` becomes a worker.

    Returns:
        The remedy of an error; None for anything else.
    """
    for library, name, shape in _SHAPES_OF:
        kind = getattr(sys.modules.get(library), name, None)
        if kind is not None and (isinstance(given, kind) or (isinstance(given, type) and issubclass(given, kind))):
            is_worker = place == "workers" and name == "Module"
            call = shape.replace("module_shape", "module_worker") if is_worker else shape
            function, where = call.partition("(")[0], "workers" if is_worker else "shapes"
            return (
                f"write {where}=[{call}], with `from worldagent.graphs.shapes import {function}`, a name for KEY, "
                "and pydantic models of what goes in and what comes out for PARAMS and RESULT"
            )
    signature = getattr(sys.modules.get("dspy"), "Signature", None)
    if place == "workers" and signature is not None and isinstance(given, type) and issubclass(given, signature):
        name = given.__name__
        return f"write workers=[signature_worker({name})], with `from worldagent.graphs.shapes import signature_worker`"
    return None


@dataclass(frozen=True, slots=True)
class Composed:
    """The result of composing a skill.

    Attributes:
        prompt: Added to the instructions of the shape's entry Signature for this run. It is not stored.
        shape: The shape that runs.
        params: The shape's params; params passed to `run_skill` override these.
        name: A label for people and the log.
    """

    prompt: str
    shape: str = SUBAGENT
    params: Mapping[str, Any] = field(default_factory=dict)
    name: str = "skill"

    def __post_init__(self) -> None:
        if not is_text(self.prompt):
            raise InvalidArgument("a composed skill must have a prompt", remedy="pass one, or use task() instead")
