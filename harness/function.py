"""Functions as data: a name, a params model, a result type and an async body. `pipeline` calls them.

`tool` makes a `Function` of a Python function. Workers and shapes are in the same registry (H2, H10).
"""

from __future__ import annotations

import inspect
import math
import re
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError, create_model

from ..core import digest
from ..core.errors import FunctionInvalid
from ..core.events import Risk
from ..core.validation import declaration, describe_failure, is_text
from .bounds import Bounds
from .guard import OnError
from .limits import Limits, Retry
from .places import Place

_CONFIG: Final = ConfigDict(
    extra="forbid",
    hide_input_in_errors=True,
    arbitrary_types_allowed=False,
    validate_default=True,
    protected_namespaces=(),
)
RESERVED_NAMES: Final = frozenset(name for name in dir(BaseModel) if name.startswith("model_"))
_TYPED: Final = "a TypedDict of typing"


def params_model(
    name: str, parameters: list[inspect.Parameter], hints: dict[str, Any], descriptions: dict[str, str]
) -> type[BaseModel]:
    """Make the model of a function's params.

    Args:
        name: The function's name.
        parameters: Its parameters, without a context.
        hints: Type hints by name.
        descriptions: Descriptions from the docstring, by name.

    Raises:
        FunctionInvalid: A parameter cannot be passed by name, has no type hint, has a hint without a schema, or has
            a default that does not fit its hint.
    """
    fields: dict[str, Any] = {}
    for place, parameter in enumerate(parameters):
        problem, remedy = "", ""
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            problem, remedy = "cannot be passed by name", "use plain named parameters"
        elif parameter.name not in hints:
            is_self = place == 0 and parameter.name in ("self", "cls")
            problem = "has no type hint"
            remedy = "decorate a plain function, not a method" if is_self else "annotate it"
        elif parameter.name.startswith("_") or parameter.name in RESERVED_NAMES:
            problem, remedy = "cannot have this name", "rename it"
        if problem:
            raise FunctionInvalid(f"the parameter {parameter.name!r} of the function {name!r} {problem}", remedy=remedy)
        hint, about = hints[parameter.name], descriptions.get(parameter.name)
        if about is not None:
            hint = Annotated[hint, Field(description=about)]
        # pydantic merges a default of `Field(...)` with the hint.
        fields[parameter.name] = (hint, ... if parameter.default is parameter.empty else parameter.default)
    made = _model(f"{name}_params", fields)
    if isinstance(made, str):
        wrong, problem = next(
            (
                (each, found)
                for each, declared in fields.items()
                if isinstance(found := _model(each, {"value": declared}), str)
            ),
            ("", made),
        )
        what = f"parameter {wrong!r} of the function {name!r} has" if wrong else f"params of the function {name!r} have"
        remedy = (
            "import TypedDict from typing_extensions" if problem == _TYPED else "use types that pydantic can validate"
        )
        raise FunctionInvalid(f"the {what} no schema ({problem})", remedy=remedy)
    for each, declared in fields.items():
        problem = "" if made.model_fields[each].is_required() else _default_error(declared)
        if problem:
            raise FunctionInvalid(
                f"the default of the parameter {each!r} of the function {name!r} does not fit its type hint: {problem}",
                remedy="change the default, or let the hint allow it, such as 'str | None'",
            )
    return made


def _model(name: str, fields: dict[str, Any]) -> type[BaseModel] | str:
    """Return a model, or the reason why there cannot be one."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Field name .* shadows", UserWarning)  # fields such as `schema` are harmless
        try:
            return create_model(name, __config__=_CONFIG, **fields)
        except (PydanticUserError, NameError, TypeError, ValueError) as error:
            return _TYPED if "typing_extensions.TypedDict" in str(error) else type(error).__name__


def _default_error(declared: tuple[Any, Any]) -> str:
    """Return why a default does not fit its hint; empty if it fits."""
    alone = _model("alone", {"value": declared})
    try:
        if not isinstance(alone, str):
            alone()
    except ValidationError as failure:
        return describe_failure(failure).removeprefix("value: ")
    except PydanticUserError:  # the hint names a class that is defined later
        pass
    return ""


@lru_cache(maxsize=1024)  # each agent that is opened reads it several times
def _input_schema(params: type[BaseModel]) -> dict[str, Any]:
    return params.model_json_schema()


Body = Callable[..., Awaitable[object]]
FunctionKind = Literal["leaf", "flow", "worker", "shape"]

READ_ONLY: Final[tuple[Risk, ...]] = ("read_only",)
UNKNOWN: Final[tuple[Risk, ...]] = ("write", "network")
"""The risk of a function that declares none."""

_RISKS: Final[tuple[Risk, ...]] = get_args(Risk)
HOST: Final = "code"
CONVERSATION: Final = "converse"
CALLERS: Final = (HOST, CONVERSATION)
"""Callers that are not functions: the host's own code, and the conversation."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


Readers = tuple[str, ...] | Callable[[Any], Iterable[str] | None]
"""Who may see a result: globs over recipients, or what returns them for an item of the result."""


def are_globs(given: object) -> bool:
    """Whether it is a list of globs. A text is none: its letters would be globs, and `*` fits everything."""
    return isinstance(given, Iterable) and not isinstance(given, str) and all(map(is_text, given))


def are_readers(given: object) -> bool:
    """Whether it can say who may see a result: a list of globs, or a plain function."""
    return not inspect.iscoroutinefunction(given) if callable(given) else are_globs(given)


def readers_of(readers: Readers | None, item: Any, on_error: OnError | None = None) -> frozenset[tuple[str, ...]]:
    """Who may see an item, as in labels. If that cannot be told, nobody may.

    Args:
        readers: What the function declares.
        item: The item, as JSON.
        on_error: Receives what a function of readers raises, and an error if it returns anything but globs.
    """
    try:
        given = readers(item) if callable(readers) else readers
        if given is not None and not are_globs(given := given if isinstance(given, str) else tuple(given)):
            raise FunctionInvalid("a function of `readers` did not return globs", remedy="return a list, or None")
        return frozenset() if given is None else frozenset({tuple(given)})
    except Exception as error:
        if on_error is not None:
            on_error(error)
        return frozenset({()})


def readers_of_any(readers: Readers | None) -> frozenset[tuple[str, ...]]:
    """Who may see whatever code made of a result; nobody if that depends on the item."""
    return frozenset({()}) if callable(readers) else readers_of(readers, None)


def item_at(value: Any, steps: Sequence[str | int]) -> tuple[int | None, Any]:
    """The item of a result that a part of it is in, and its place: a member of a list, or else the whole result.

    Servers wrap a list, as in `{"result": [...]}`. Its members are items too, if the object has no other key.

    Args:
        value: The result, as JSON.
        steps: The keys and places that lead to the part.
    """
    if isinstance(value, Mapping) and len(value) == 1 and steps and isinstance(value.get(steps[0]), list):
        value, steps = value[steps[0]], steps[1:]
    place = steps[0] if steps and isinstance(value, list) else None
    return (place, value[place]) if isinstance(place, int) else (None, value)


@dataclass(frozen=True, slots=True)
class Function:
    """Something that can be called by name: `call(name, input, ctx)` (H1, H2).

    Attributes:
        name: 1 to 64 letters, digits, `_`, `.` and `-`, not starting with a digit.
        body: The coroutine function. A leaf gets the params as keyword arguments; a flow gets the context before them.
        params: The declared params.
        result: The declared result.
        description: What it does, for the model or person that chooses it.
        title: Its name for people, such as "Look up a price"; empty is none.
        kind: A `leaf` can have effects and calls nothing; a `flow` calls others and has no effects itself (D8).
            A `worker` or `shape` is dispatched as a task.
        idempotent: Whether running the body twice does the same as running it once. An interrupted call then runs
            again, as does that of a `read_only` leaf; about any other a person is asked (T5).
        approval: Whether each call requires a person's approval, even if the policy approves it.
        risk: What it does to the world, one class or several (H9). Without a risk it counts as `write` and
            `network`.
        untrusted: Whether its result may contain text by strangers. A model that reads it marks its turn.
        capabilities: Words for what it is good for, by which `agent.find` finds it.
        tools: Globs over the names that it can call; None allows any.
        timeout: The most seconds for one attempt; None uses the time that its caller has left.
        retry: How often a leaf is retried after a transient failure.
        limits: What one call of it, and all calls below it, can use.
        context: Whether a leaf's body gets the `ToolContext` before its params.
        capture: Whether events may hold its params, and traces its params and results, if the agent's `Trace`
            captures them.
        variant: A text for what else its calls depend on, such as a folder. A turn that waits for a call resumes
            only if this is unchanged.
        offered: Whether the conversation can call it. Workers can call it whenever their `tools` name it.
        calls_as_caller: Whether the calls of a flow count as its caller's calls and must be among the caller's tools.
        approvers: Globs over the accounts that can approve its calls in the turns of an account, where no rule names
            others; empty allows any.
        fields: Globs over dotted paths of fields of an untrusted result that its system makes, such as ids. Rules can
            name them as the origin of an argument.
        readers: Who may see its result, or an item of it if it is a list: globs over recipients such as addresses, or
            what returns them for an item (None is everybody). A guarded model does not read such a result (H11).
        place: Where a leaf writes or reads what other calls read back: the name of an argument, or what returns the
            names of places for the arguments of a call (None is nowhere). What strangers can have written there is
            known in later turns (H11).
        guard: Whether it is a worker whose model reads no result that a stranger can have written.
        background: Whether it is a worker or a shape that a conversation can dispatch in the background (T17).
        bounds: The bounds of a worker's result, if it carries no text. Then a call marks its own frame, not the caller.
        dry_run: Runs in place of the body, with the same arguments and no effect, where a ceiling allows dry runs only
            (A7). Without it such calls are refused, unless the function is `read_only`.
    """

    name: str
    body: Body
    params: type[BaseModel]
    result: TypeAdapter[Any]
    description: str = ""
    kind: FunctionKind = "leaf"
    idempotent: bool = False
    approval: bool = False
    risk: tuple[Risk, ...] = UNKNOWN
    untrusted: bool = False
    capabilities: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    timeout: float | None = None
    retry: Retry = field(default_factory=Retry)
    context: bool = False
    capture: bool = False
    limits: Limits = field(default_factory=Limits)
    calls_as_caller: bool = False
    title: str = ""
    variant: str = ""
    offered: bool = True
    approvers: tuple[str, ...] = ()
    dry_run: Body | None = None
    fields: tuple[str, ...] = ()
    readers: Readers | None = None
    place: Place | None = None
    guard: bool = False
    background: bool = False
    bounds: Bounds | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_name("function", self.name)
        object.__setattr__(self, "risk", risks(self.name, self.risk))
        if self.timeout is not None and not (
            isinstance(self.timeout, int | float) and not isinstance(self.timeout, bool) and 0 < self.timeout < math.inf
        ):
            raise FunctionInvalid(
                f"the timeout of the function {self.name!r} must be a positive number of seconds, got {self.timeout!r}",
                remedy="give seconds above 0, or leave it out",
            )
        if self.fields and not (self.untrusted and are_globs(self.fields)):
            raise FunctionInvalid(
                f"the function {self.name!r} has fields=, but is not untrusted, or one of them is not a glob",
                remedy="set untrusted=True, and pass globs over fields of its result, such as fields=('id', 'sender')",
            )
        if self.readers is not None and not are_readers(self.readers):
            raise FunctionInvalid(
                f"the readers of the function {self.name!r} are not globs",
                remedy="pass a list of recipients such as ['*@corp.com'], or a function of an item that is not async",
            )
        if self.place is not None and (
            self.kind != "leaf"
            or inspect.iscoroutinefunction(self.place)
            or not (callable(self.place) or self.place in list(self.params.model_fields))
        ):
            raise FunctionInvalid(
                f"the place of the function {self.name!r} is not one of its arguments, or it is not a leaf",
                remedy="name an argument, such as place='path', or pass a plain function of the arguments",
            )
        # The journal would return the results of its earlier calls, so a retry would fail in the same way.
        if self.kind != "leaf" and self.retry.attempts > 1:
            raise FunctionInvalid(
                f"the {self.kind} {self.name!r} cannot be retried", remedy="retry the leaves that it calls"
            )

    @property
    def declared(self) -> str:
        """A digest of its declared params and result, and of `variant`."""
        declared = declaration(self.params, self.result)
        return f"{declared}:{digest(self.variant, length=16)}" if self.variant else declared

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of its params."""
        return deepcopy(_input_schema(self.params))

    @property
    def output_schema(self) -> dict[str, Any]:
        """The JSON Schema of its result; empty if the type has none."""
        try:
            return self.result.json_schema()
        except PydanticUserError:
            return {}


def described(description: str, *, background: bool) -> str:
    """What models read about a worker or a shape."""
    return f"{description} It can also work in the background.".strip() if background else description


async def undispatched(**_: Any) -> Any:
    """The body of a worker or a shape as a function; it is never called, because a task is dispatched instead."""
    raise AssertionError("a worker or a shape is dispatched")


def risks(name: str, given: object) -> tuple[Risk, ...]:
    """Return risk classes in their fixed order, from one class or several.

    Args:
        name: The name of the function, for the error.
        given: A class, or an iterable of classes.

    Raises:
        FunctionInvalid: `given` is empty, has an unknown class, or has `read_only` and another class.
    """
    wanted = {given} if isinstance(given, str) else set(given) if isinstance(given, Iterable) else set[Any]()
    unknown = sorted(str(each) for each in wanted if each not in _RISKS)
    if unknown or not wanted or ("read_only" in wanted and len(wanted) > 1):
        what = f"{unknown[0]!r}" if unknown else "'read_only' and another class" if wanted else "empty"
        raise FunctionInvalid(
            f"the risk of {name!r} cannot be {what}", remedy=f"use read_only alone, or any of {', '.join(_RISKS[1:])}"
        )
    return tuple(risk for risk in _RISKS if risk in wanted)


def check_name(what: str, name: object) -> str:
    """Return `name` if it can name a function, worker or shape.

    Raises:
        FunctionInvalid: It cannot.
    """
    if name in CALLERS:
        raise FunctionInvalid(
            f"a {what} cannot be named {name!r}, because policies use this name for another caller",
            remedy="choose another name",
        )
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    raise FunctionInvalid(
        f"{name!r} cannot name a {what}",
        remedy="use 1 to 64 letters, digits, '_', '.' or '-', and do not begin with a digit",
    )
