"""Makes a `Function` of a Python function: a leaf, or a flow if it takes a context that can call (H2, H7, D8).

Type hints become the params and the result, and the docstring becomes the description. A function that is not async
runs on a thread.
"""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from itertools import zip_longest
from typing import Any, Final, overload

from anyio import CapacityLimiter
from anyio.lowlevel import RunVar
from pydantic import BaseModel, PydanticUserError, TypeAdapter

from ..core.errors import FunctionInvalid
from ..core.events import Risk
from .context import CallContext, ToolContext
from .function import READ_ONLY, Body, Function, FunctionKind, params_model
from .inside import run_on_thread
from .limits import Limits, Retry
from .places import Place
from .schema import params_of
from .yaml import near


@dataclass(frozen=True, slots=True)
class ForeignTool:
    """A tool of another library.

    Attributes:
        name: Its name.
        description: What it does.
        params: The model of its arguments.
        run: Calls the tool with keyword arguments.
        is_async: Whether `run` returns a coroutine.
    """

    name: str
    description: str
    params: type[BaseModel]
    run: Callable[..., Any]
    is_async: bool


def adopted(given: object) -> ForeignTool | None:
    """Read a tool of another library.

    Args:
        given: A `dspy.Tool`, a LangChain `BaseTool`, or anything else.

    Returns:
        The tool, or None if `given` is not a tool of another library.

    Raises:
        FunctionInvalid: It requires an argument that a model cannot supply, or its arguments have no JSON Schema.
    """
    for library, kind, read in (("dspy", "Tool", _of_dspy), ("langchain_core.tools", "BaseTool", _of_langchain)):
        known = getattr(sys.modules.get(library), kind, None)
        if known is not None and isinstance(given, known):
            return read(given)
    return None


def _of_dspy(given: Any) -> ForeignTool:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": given.args,
        "required": [name for name, one in given.args.items() if "default" not in one],
        "additionalProperties": bool(given.has_kwargs),
    }
    is_async = any(map(inspect.iscoroutinefunction, (given.func, getattr(given.func, "__call__", None))))  # noqa: B004
    return ForeignTool(
        given.name, _first(given.desc), params_of(given.name, schema), given.acall if is_async else given, is_async
    )


def _of_langchain(given: Any) -> ForeignTool:
    shown = given.tool_call_schema
    schema = dict(shown) if isinstance(shown, dict) else shown.model_json_schema()
    args_model = given.args_schema
    if isinstance(args_model, type) and issubclass(args_model, BaseModel):
        needed = {name for name, field in args_model.model_fields.items() if field.is_required()}
        if injected := sorted(needed - schema.get("properties", {}).keys()):
            raise FunctionInvalid(
                f"the tool {given.name!r} requires {injected[0]!r}, which only LangGraph's own tool node supplies",
                remedy="pass a tool whose arguments a model can supply",
            )
    # A class without a coroutine or its own `_arun` would run on the event loop's default threads.
    is_async = getattr(given, "coroutine", None) is not None or not type(given)._arun.__module__.startswith(
        "langchain_core.tools"
    )

    def run(**arguments: Any) -> Any:
        return given.invoke(arguments, config={"callbacks": []})

    async def arun(**arguments: Any) -> Any:
        return await given.ainvoke(arguments, config={"callbacks": []})

    schema = {key: value for key, value in schema.items() if key not in ("title", "description")}
    return ForeignTool(
        given.name, _first(given.description), params_of(given.name, schema), arun if is_async else run, is_async
    )


def _first(text: str | None) -> str:
    """The first paragraph, on one line."""
    return " ".join((text or "").strip().split("\n\n", 1)[0].split())


Plain = Callable[..., Any]

_THREADS = 32
"""How many functions that are not async can run concurrently in one event loop."""

_POOL: RunVar[CapacityLimiter] = RunVar("worldagent_functions")

_SECTION = re.compile(r"(?m)^(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?):[ \t]*$")
_ARGUMENT = re.compile(r"(?m)^( +)\*{0,2}(\w+)(?: \([^)]*\))?:[ \t]*(.*(?:\n\1[ \t]+\S.*)*)")


class _Options(typing.TypedDict, total=False):
    """The options of every function; the defaults come from the Python function. See `Function`.

    Attributes:
        name: Its name; by default the name of the Python function.
        description: What it does; by default the first paragraph of the docstring.
        title: Its name for people, such as "Look up a price", for events.
        risk: What it does to the world: `read_only`, or one or several of `write`, `network`, `destructive`.
        approval: Whether each call requires approval, even if the policy approves it.
        untrusted: Whether its result may contain text by strangers.
        fields: Globs over dotted paths of fields of an untrusted result that the system makes, and no stranger. Rules
            can name them as the origin of an argument.
        readers: Who may see its result, or an item of it if it is a list: globs over recipients, or a function that
            gets an item as JSON and returns them, or None for everybody. If it raises, nobody may see the item.
            Guarded models pass it on only to these (H11).
        capabilities: Words by which `agent.find` finds it.
        timeout: The most seconds for one attempt; by default the time that its caller has left.
        limits: What one call of it, and all calls below it, can use.
        capture: Whether events have its arguments, and traces may hold its arguments and result.
        offered: Whether the conversation can call it. Workers can call it whenever their `tools` name it.
        dry_run: A function with the same parameters and no effects, which runs in its place where a worker's ceiling
            allows dry runs only.
    """

    name: str | None
    description: str | None
    title: str
    risk: Risk | Iterable[Risk]
    approval: bool
    untrusted: bool
    fields: Iterable[str]
    readers: Iterable[str] | Callable[[Any], Iterable[str] | None]
    capabilities: Iterable[str]
    timeout: float | None
    limits: Limits
    capture: bool
    offered: bool
    dry_run: Plain


class FlowOptions(_Options, total=False):
    """The options of a flow. See `Function`.

    Attributes:
        tools: Globs over the names that it can call; by default any name.
    """

    tools: Iterable[str] | None


class ToolOptions(_Options, total=False):
    """The options of a leaf. See `Function`.

    Attributes:
        idempotent: Whether running it twice does the same as running it once.
        place: Where it writes or reads what other calls read back, so that later turns know what strangers can have
            written there: the name of an argument, or a function that gets the arguments as JSON and returns names
            of places, or None for nowhere. A `/` in a name leads further in; a call for a place is also about all
            that is in it. If the function raises, the call can be anywhere (H11).
        retry: How often it is retried after a transient failure.
    """

    idempotent: bool
    place: Place
    retry: Retry


_OPTIONS: Final[Mapping[FunctionKind, frozenset[str]]] = {
    "leaf": frozenset(ToolOptions.__annotations__) | frozenset(_Options.__annotations__),
    "flow": frozenset(FlowOptions.__annotations__) | frozenset(_Options.__annotations__),
}


@overload
def tool(body: Plain, /, **options: typing.Unpack[ToolOptions]) -> Function: ...
@overload
def tool(**options: typing.Unpack[ToolOptions]) -> Callable[[Plain], Function]: ...
def tool(body: Plain | None = None, /, **options: typing.Unpack[ToolOptions]) -> Any:
    """Make a `Function` of a Python function, a `dspy.Tool` or a tool of LangChain.

    The type hints of a Python function become the params and the result. A tool of another library has the params that
    it declares and returns any JSON.

    A function without a context, or whose first parameter is a `ToolContext`, becomes a leaf: it can have effects and
    calls nothing. A function whose first parameter is a `WorkerContext` or `CallContext` can call others, so it becomes
    a flow, as with `@flow`.

    A function that is not async runs on its own thread, so that it does not block the event loop. If its call is
    cancelled or times out, the thread keeps running and its result is dropped.

    Args:
        body: The function or tool, when used as `@tool` without parentheses.
        options: See `ToolOptions`. Without `risk` a leaf counts as `write` and `network`, so a call that a model makes
            requires approval (H9); a flow counts as `read_only`.

    Raises:
        FunctionInvalid: A parameter has no type hint, a hint has no schema, or an option does not fit the function.
    """
    return _decorate(body, "leaf", dict(options))


@overload
def flow(body: Body, /, **options: typing.Unpack[FlowOptions]) -> Function: ...
@overload
def flow(**options: typing.Unpack[FlowOptions]) -> Callable[[Body], Function]: ...
def flow(body: Body | None = None, /, **options: typing.Unpack[FlowOptions]) -> Any:
    """Make a flow `Function` of an async Python function whose first parameter is the `CallContext`.

    A flow calls other functions through `ctx.call` and has no effects itself, so that its body can run again. Each of
    its calls passes the gate separately.

    Args:
        body: The function, when used as `@flow` without parentheses.
        options: See `FlowOptions`. Without `risk` it counts as `read_only`.

    Raises:
        FunctionInvalid: It is not async, a parameter has no type hint, a hint has no schema, its context cannot call
            anything, or an option does not fit a flow.
    """
    return _decorate(body, "flow", dict(options))


def _decorate(body: Plain | None, kind: FunctionKind, options: dict[str, Any]) -> Any:
    return partial(_made, kind, options) if body is None else _made(kind, options, body)


def _made(kind: FunctionKind, options: dict[str, Any], body: Plain) -> Function:
    foreign = adopted(body) if kind == "leaf" else None
    if foreign is not None:
        return _foreign(foreign, options)
    if not inspect.isroutine(body):
        if isinstance(body, Function):
            raise FunctionInvalid(f"{body.name!r} is already a tool", remedy="apply the decorator once")
        plain = body is None or isinstance(body, str | int | float)  # the repr of other values may hold secrets
        what = repr(body)[:80] if plain else f"{getattr(body, '__name__', type(body).__name__)!r}"
        raise FunctionInvalid(
            f"{what} is not a Python function",
            remedy="pass a function that 'def' or 'async def' makes, a dspy.Tool or a LangChain tool",
        )
    name, description = options.get("name"), options.get("description")
    own_name = name or str(getattr(body, "__name__", ""))
    is_async = inspect.iscoroutinefunction(body)
    hints = _hints(own_name, body)
    parameters = list(inspect.signature(body).parameters.values())
    first = hints.get(parameters[0].name, Any) if parameters else None
    if kind == "leaf" and _can_call(first):
        kind = "flow"
    if kind == "flow":
        _check_flow(own_name, first, is_async)
    others = _options_of(own_name, kind, options)
    if "dry_run" in others:
        others["dry_run"] = _dry_run(own_name, [each.name for each in parameters], is_async, others["dry_run"])
    context = kind == "flow" or first is ToolContext
    return Function(
        own_name,
        body if is_async else _on_a_thread(body),
        params_model(own_name, parameters[context:], hints, _arguments(body)),
        _result_type(own_name, hints),
        description if description is not None else _summary(body),
        kind,
        context=context and kind == "leaf",
        **others,
    )


def _foreign(given: ForeignTool, options: dict[str, Any]) -> Function:
    name, description = options.get("name") or given.name, options.get("description")
    others = _options_of(name, "leaf", options)
    if "dry_run" in others:
        others["dry_run"] = _dry_run(name, list(given.params.model_fields), given.is_async, others["dry_run"])
    return Function(
        name,
        given.run if given.is_async else _on_a_thread(given.run),
        given.params,
        TypeAdapter(Any),
        given.description if description is None else description,
        **others,
    )


def _check_flow(name: str, context: Any, is_async: bool) -> None:
    """Refuse a flow that cannot call anything."""
    problem, remedy = "", "add 'ctx: CallContext' as its first parameter"
    if not is_async:
        problem, remedy = "is not async", "declare it with 'async def'"
    elif context is ToolContext:
        problem = "takes a ToolContext, which cannot call others"
        remedy = "take a WorkerContext, or make it a leaf with @tool"
    elif not _is_context(context):
        problem = "takes no context"
    if problem:
        raise FunctionInvalid(f"the flow {name!r} {problem}", remedy=remedy)


def _options_of(name: str, kind: FunctionKind, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options as `Function` takes them, after checking that they fit this kind of function."""
    known = _OPTIONS[kind]
    for option in sorted(options.keys() - known):
        other = next((each for each, names in _OPTIONS.items() if option in names), None)
        if other is None:
            named = sorted(known)
            problem, remedy = "which does not exist", f"{near(option, named)}the options are: {', '.join(named)}"
        elif other == "leaf":  # a flow's body runs again from the start, with the results of the calls that it made
            problem = "but it is a flow, because its context can call functions"
            remedy = "set the option on the functions that it calls, or take a ToolContext"
        else:
            problem, remedy = "but it calls nothing", "take a WorkerContext as first parameter, or omit the option"
        raise FunctionInvalid(f"the function {name!r} has the option {option!r}, {problem}", remedy=remedy)
    given = {key: value for key, value in options.items() if key not in ("name", "description")}
    given |= {key: tuple(given[key]) for key in ("capabilities", "tools") if given.get(key) is not None}
    for key in ("fields", "readers"):  # `Function` refuses a text
        if given.get(key) is not None and not isinstance(given[key], str) and not callable(given[key]):
            given[key] = tuple(given[key])
    return {"risk": READ_ONLY, **given, "idempotent": True} if kind == "flow" else given


def _dry_run(name: str, parameters: list[str], is_async: bool, given: Plain) -> Body:
    """Return the dry run of a function, after checking that it can be called as the function is.

    Raises:
        FunctionInvalid: It is not a function, its parameters are others, or only one of the two is async.
    """
    problem = remedy = ""
    if not inspect.isroutine(given):
        problem, remedy = "is not a Python function", "pass a function"
    elif list(inspect.signature(given).parameters) != parameters:
        problem, remedy = "has other parameters than the function", f"give it: {', '.join(parameters) or 'none'}"
    elif inspect.iscoroutinefunction(given) is not is_async:
        problem, remedy = "and the function must both be async, or neither", "declare both in the same way"
    if problem:
        raise FunctionInvalid(f"the dry run of the function {name!r} {problem}", remedy=remedy)
    return given if is_async else _on_a_thread(given)


def _on_a_thread(body: Plain) -> Body:
    @wraps(body)
    async def run(*placed: Any, **named: Any) -> Any:
        try:
            pool = _POOL.get()
        except LookupError:
            pool = CapacityLimiter(_THREADS)
            _POOL.set(pool)
        return await run_on_thread(partial(body, *placed, **named), pool)

    return run


def _hints(name: str, body: Plain) -> dict[str, Any]:
    try:
        return typing.get_type_hints(body, include_extras=True)
    except Exception as error:  # broad: reading a hint runs the embedder's code, which can raise anything
        problem = f"{type(error).__name__}: {error.name!r}" if isinstance(error, NameError) else type(error).__name__
    raise FunctionInvalid(
        f"the type hints of the function {name!r} cannot be read ({problem})",
        remedy="import the names that its type hints use",
    )


def _can_call(hint: Any) -> bool:
    """Whether the first parameter is declared as a context that can call functions."""
    return hint is not Any and hasattr(hint, "call") and _is_context(hint)


def _is_context(hint: Any) -> bool:
    """Whether a flow's first parameter can be its context."""
    if hint is Any or getattr(hint, "_is_protocol", False):
        return True
    return isinstance(hint, type) and issubclass(CallContext, hint)


def _result_type(name: str, hints: dict[str, Any]) -> TypeAdapter[Any]:
    if "return" not in hints:
        raise FunctionInvalid(f"the function {name!r} has no return type", remedy="annotate its return type")
    try:
        return TypeAdapter(hints["return"])
    except PydanticUserError as error:
        problem = type(error).__name__
    raise FunctionInvalid(
        f"the result of the function {name!r} has no schema ({problem})", remedy="use a type that pydantic can validate"
    )


def _summary(body: Plain) -> str:
    text = inspect.getdoc(body) or ""
    return " ".join(text.split("\n\n", 1)[0].split())


def _arguments(body: Plain) -> dict[str, str]:
    """Return the description of each parameter from a docstring in Google style."""
    text = inspect.getdoc(body) or ""
    sections = list(_SECTION.finditer(text))
    for section, after in zip_longest(sections, sections[1:]):
        if section[1] in ("Args", "Arguments", "Parameters"):
            part = text[section.end() : None if after is None else after.start()]
            return {found[2]: " ".join(found[3].split()) for found in _ARGUMENT.finditer(part)}
    return {}
