"""A worker as data. Its loop is in `graphs.workers`, its Signature in `signatures.workers`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final

from pydantic import BaseModel, PydanticUserError, TypeAdapter

from ..core.errors import FunctionInvalid
from ..core.validation import is_text
from ._function import READ_ONLY, Function, Risk, check_name, risks, undispatched
from ._params import TAKEN
from .limits import Limits
from .requests import TEXT, WorkerRequest

MOST_RETRIES: Final = 20
MOST_STEPS: Final = 1000

_TAKEN: Final = TAKEN | {"calls", "lm", "offered_tools", "result", "role"}
"""What no param of a worker can be called: its Signature has such fields of its own, or they are no fields."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A language model with instructions of its own, run by name through the `subagent` shape.

    Attributes:
        name: What it is called by, and the name of its entry Signature.
        instructions: Its static instructions. No role changes them.
        description: What it is for, shown to whoever may call it.
        risk: What calling it does to the world. What it calls in its turn passes the gate by itself.
        capabilities: What it is good for, in words that `agent.find` looks up.
        tools: Globs over what it may call; left out, nothing.
        input: What it takes: a pydantic model, or the JSON Schema of an object. Left out, one text, `request`.
        output: What it gives: a type, or a JSON Schema. Left out, a text.
        model: Its model: a model string, or a name from `WorldAgent(models=...)`; None is the turn's, or the agent's.
        fallbacks: Models that are tried in turn where its own cannot be reached, times out or is rate limited.
        retries: How often it is told what is wrong with an answer that cannot be used, and tries again.
        max_steps: How many times it may call tools before it must answer.
        limits: What one call of it, and all below it, may use.
        capture: Whether traces may hold its params and results, where the agent's `Trace` captures them.
        params: What it takes, as a model.
        result: What it gives, as an adapter.
    """

    name: str
    instructions: str
    description: str = ""
    risk: tuple[Risk, ...] = READ_ONLY
    capabilities: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    _: KW_ONLY
    input: type[BaseModel] | Mapping[str, Any] = WorkerRequest
    output: Any = str
    model: str | None = None
    fallbacks: tuple[str, ...] = ()
    retries: int = 2
    max_steps: int = 20
    limits: Limits = field(default_factory=Limits)
    capture: bool = False
    params: type[BaseModel] = field(init=False, repr=False, compare=False)
    result: TypeAdapter[Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_name("worker", self.name)
        if not is_text(self.instructions):
            raise FunctionInvalid(f"the worker {self.name!r} has no instructions", remedy="say what it should do")
        object.__setattr__(self, "risk", risks(self.name, self.risk))
        for attribute in ("capabilities", "tools", "fallbacks"):
            object.__setattr__(self, attribute, self._words(attribute))
        if self.model is not None and not is_text(self.model):
            raise FunctionInvalid(
                f"the model of the worker {self.name!r} is no text", remedy="give a model string or a name, or none"
            )
        if not isinstance(self.limits, Limits):
            raise FunctionInvalid(
                f"the limits of the worker {self.name!r} are of type {type(self.limits).__name__!r}",
                remedy="give Limits(...) or leave them out",
            )
        self._check_texts()
        self._check_number("retries", 0, MOST_RETRIES)
        self._check_number("max_steps", 0, MOST_STEPS)
        object.__setattr__(self, "params", self._params())
        self._check_params()
        object.__setattr__(self, "result", self._result())

    @property
    def function(self) -> Function:
        """The worker as a function of its input, which gives its output."""
        return Function(
            self.name,
            undispatched,
            self.params,
            self.result,
            self.description,
            kind="worker",
            risk=self.risk,
            capabilities=self.capabilities,
            tools=self.tools,
            limits=self.limits,
            capture=self.capture,
        )

    def _check_texts(self) -> None:
        for attribute in ("instructions", "description"):
            given: object = getattr(self, attribute)
            if not isinstance(given, str) or (given and not is_text(given)):
                raise FunctionInvalid(
                    f"the {attribute} of the worker {self.name!r} is no text", remedy="give text that UTF-8 can hold"
                )

    def _check_params(self) -> None:
        """Its params are inputs of its Signature, too, whose names are Python's."""
        if self.params is WorkerRequest:
            return
        schema = self.params.model_json_schema()
        names = schema.get("properties", {})
        missing = [name for name in schema.get("required", ()) if name not in names]
        wrong = [name for name in names if name in _TAKEN or not name.isidentifier() or name.startswith("_")]
        problem, remedy = "", "name its params as Python names arguments"
        if not names:
            problem = "no params"
        elif wrong:
            problem = f"a param that cannot be called {wrong[0]!r}"
        elif missing:
            problem, remedy = f"no param {missing[0]!r}, which is required", "declare it, or do not require it"
        if problem:
            raise FunctionInvalid(f"the worker {self.name!r} has {problem}", remedy=remedy)

    def _params(self) -> type[BaseModel]:
        given = self.input
        if isinstance(given, Mapping):
            from .schema import params_of  # it imports a library that most agents do not need

            # As with shapes and functions: what is not declared is refused.
            return params_of(self.name, {"type": "object", "additionalProperties": False, **given})
        if isinstance(given, type) and issubclass(given, BaseModel):
            return given
        raise FunctionInvalid(
            f"the worker {self.name!r} declares {given!r} as its input", remedy="give a pydantic model or a JSON Schema"
        )

    def _result(self) -> TypeAdapter[Any]:
        if isinstance(self.output, Mapping):
            from .schema import result_of  # see `_params`

            return result_of(self.name, self.output)
        if self.output is str:
            return TEXT
        try:
            return TypeAdapter(self.output)
        except PydanticUserError:
            pass
        raise FunctionInvalid(
            f"the worker {self.name!r} declares {self.output!r} as its output, which has no schema",
            remedy="give a type that pydantic knows, or a JSON Schema",
        )

    def _words(self, attribute: str) -> tuple[str, ...]:
        given: object = getattr(self, attribute)
        words = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (given,)
        if not all(is_text(word) for word in words):
            raise FunctionInvalid(f"{attribute} of the worker {self.name!r} are no texts", remedy="give texts")
        return tuple(map(str, words))

    def _check_number(self, attribute: str, least: int, most: int) -> None:
        given: object = getattr(self, attribute)
        if not isinstance(given, int) or isinstance(given, bool) or not least <= given <= most:
            raise FunctionInvalid(
                f"{attribute} of the worker {self.name!r} is {given!r}", remedy=f"give {least} to {most}"
            )


__all__ = ["Worker"]
