"""The worker as data. `graphs.loop` has its loop, and `signatures` makes its Signature."""

from __future__ import annotations

import json
import string
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, TypeAdapter

from ..core import canonical_json
from ..core.errors import FunctionInvalid, ParamsInvalid, ResultInvalid
from ..core.events import Risk
from ..core.generation import GenerationOptions
from ..core.validation import is_text, json_of, json_of_value, read_model, read_value, validate_model
from .bounds import Bounds, bounds_of
from .function import READ_ONLY, RESERVED_NAMES, Function, check_name, described, risks, undispatched
from .gate import Ceiling, Policy
from .limits import Limits

REQUEST: Final = "request"
TEXT: Final[TypeAdapter[Any]] = TypeAdapter(str)
"""The result type of a worker that declares none."""


class WorkerRequest(BaseModel):
    """The params of a worker that declares none."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    request: str = Field(description="what it should do; all it needs to know", min_length=1)


def takes_text(function: Function) -> bool:
    """Whether a function takes one text called `request` and nothing else."""
    if function.params is WorkerRequest:
        return True
    fields = function.input_schema.get("properties", {})
    return set(fields) == {REQUEST} and fields[REQUEST].get("type") == "string"


def gives_text(function: Function) -> bool:
    """Whether a function returns a text."""
    return function.result is TEXT or function.output_schema.get("type") == "string"


def request_of(function: Function, given: object) -> str:
    """Write params as a request.

    Raises:
        ParamsInvalid: The params do not validate.
    """
    what = f"params of worker {function.name!r}"
    checked = validate_model(function.params, given, what=what, error=ParamsInvalid)
    fields = json_of(checked, what=what, error=ParamsInvalid)
    return str(fields[REQUEST]) if takes_text(function) else canonical_json(fields)


def inputs_of(function: Function, request: str) -> dict[str, Any]:
    """Read the params, as JSON, from a request.

    Raises:
        ParamsInvalid: The params do not validate.
    """
    what = f"params of worker {function.name!r}"
    given: Any = {REQUEST: request}
    if not takes_text(function):
        try:
            given = json.loads(request)
        except ValueError:
            given = None
        if not isinstance(given, dict):
            raise ParamsInvalid(
                f"{what} must be a JSON object", remedy="write the request as an object with the declared fields"
            )
    return json_of(read_model(function.params, given, what=what, error=ParamsInvalid), what=what, error=ParamsInvalid)


def text_of(function: Function, value: object) -> str:
    """Write a result as a text.

    Raises:
        ResultInvalid: The result does not validate.
    """
    given = json_of_value(function.result, value, what=f"the result of {function.name!r}", error=ResultInvalid)
    return str(given) if gives_text(function) else canonical_json(given)


def value_of(function: Function, text: str) -> Any:
    """Read the result from a text.

    Raises:
        ResultInvalid: The result does not fit what the function declares now.
    """
    what = f"the result of {function.name!r}"
    return read_value(
        function.result, text if gives_text(function) else json.loads(text), what=what, error=ResultInvalid
    )


MAX_RETRIES: Final = 20
MAX_STEPS: Final = 1000

_RESERVED_PARAMS: Final = RESERVED_NAMES | {"calls", "lm", "offered_tools", "result"}
"""Names that a worker's params cannot have: its Signature has these fields, or pydantic reserves them."""

_ROLE: Final = "role"


@dataclass(frozen=True, slots=True)
class Worker:
    """A language model with its own instructions, run by name through the `subagent` shape.

    Attributes:
        name: Its name, which is also the name of its entry Signature.
        instructions: Its static instructions. No role changes them.
        description: What it is for, shown to the models that can call it.
        risk: What calling it does to the world. The calls that it makes pass the gate separately.
        capabilities: Words for what it is good for, by which `agent.find` finds it.
        tools: Globs over the names that it can call; by default it cannot call anything.
        input: Its params: a pydantic model, or the JSON Schema of an object. By default one text, `request`. A schema
            can declare `role`, a text, which is not a param but the role of a call (R18).
        output: Its result: a type, or a JSON Schema. By default a text.
        about_role: What its model reads about the role of a call; by default the description of a declared `role`, or a
            general one.
        about_result: What its model reads about its result, such as what it is called; empty is nothing.
        prompt: The message that its model receives: a text in which `{field}` is replaced by that field of the input,
            as JSON if it is not a text, and `{{` and `}}` are braces. By default the model receives the fields.
        options: How its model generates its answers, by the names of `GenerationOptions`. They override those of
            the profile and the settings.
        model: Its model: a model string, or a name from `WorldAgent(models=...)`; None uses the turn's, or the agent's.
        fallbacks: Models to try, in order, if its own model cannot be reached, times out or is rate limited.
        retries: How often its model is shown a validation error of its answer and answers again.
        max_steps: How many times it can call tools before it must answer.
        limits: What one call of it, and all calls below it, can use.
        policy: Its own rules for the calls that it makes and all calls below them. They narrow the agent's policy:
            the stricter of the two verdicts counts. If its rules approve a call, or none of them matches and it does
            not set `default`, the agent's policy decides.
        ceiling: What it can reach at most, itself and through all calls below it. It approves nothing.
        descriptions: What its model reads of functions in place of their own descriptions, by their names.
        capture: Whether traces may hold its params and results, if the agent's `Trace` captures them.
        memory: Whether it is shown memory entries that fit its request, if the agent has memory.
        offered: Whether the conversation can call it.
        guard: Whether its model reads no result that a stranger can have written. It sees an outline, and passes values
            on by handles (H11).
        background: Whether a conversation can also dispatch it in the background, if the agent has `Background` (T17).
        variant: A text for what else its calls depend on. A turn in which it has begun resumes only if this is
            unchanged.
        params: Its params, as a model.
        result: Its result, as an adapter.
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
    about_role: str = ""
    about_result: str = ""
    prompt: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None
    fallbacks: tuple[str, ...] = ()
    retries: int = 2
    max_steps: int = 20
    limits: Limits = field(default_factory=Limits)
    policy: Policy | None = None
    ceiling: Ceiling | None = None
    descriptions: Mapping[str, str] = field(default_factory=dict)
    capture: bool = False
    memory: bool = False
    offered: bool = True
    guard: bool = False
    background: bool = False
    variant: str = ""
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
            raise self._invalid("model", "must be a text", "pass a model string or a name, or omit it")
        if not isinstance(self.limits, Limits):
            problem = f"must be Limits, got {type(self.limits).__name__!r}"
            raise self._invalid("limits", problem, "pass Limits(...), or omit them")
        self._check_policy()
        self._name_ceiling()
        self._check_texts()
        self._check_descriptions()
        self._check_number("retries", 0, MAX_RETRIES)
        self._check_number("max_steps", 0, MAX_STEPS)
        object.__setattr__(self, "params", self._params())
        self._check_params()
        object.__setattr__(self, "result", self._result())
        object.__setattr__(self, "options", self._options())
        self._check_prompt()

    def message(self, inputs: Mapping[str, Any]) -> str:
        """Return the prompt with the placeholders replaced by the fields of the input.

        Args:
            inputs: The params as JSON.
        """
        found: list[str] = []
        for text, name, _, _ in string.Formatter().parse(self.prompt):
            found.append(text)
            if name is not None:
                value = inputs.get(name)
                found.append(value if isinstance(value, str) else canonical_json(value))
        return "".join(found)

    @property
    def generation(self) -> GenerationOptions:
        """How its model generates its answers."""
        return GenerationOptions(**self.options)

    @property
    def function(self) -> Function:
        """The worker as a function of its input that returns its output."""
        return Function(
            self.name,
            undispatched,
            self.params,
            self.result,
            described(self.description, background=self.background),
            kind="worker",
            risk=self.risk,
            capabilities=self.capabilities,
            tools=self.tools,
            limits=self.limits,
            capture=self.capture,
            offered=self.offered,
            guard=self.guard,
            background=self.background,
            bounds=self.bounds,
        )

    @property
    def bounds(self) -> Bounds | None:
        """The bounds of its result; None if the result can carry a text."""
        return bounds_of(self.result)

    def _check_texts(self) -> None:
        for attribute in ("instructions", "description", "about_role", "about_result", "prompt"):
            given: object = getattr(self, attribute)
            if not isinstance(given, str) or (given and not is_text(given)):
                raise self._invalid(attribute, "must be a text", "pass text that UTF-8 can encode")

    def _check_descriptions(self) -> None:
        given: object = self.descriptions
        if not isinstance(given, Mapping) or not all(is_text(each) for pair in given.items() for each in pair):
            raise self._invalid("descriptions", "must map names to texts", "pass {'NAME': 'what it does'}, or omit it")
        object.__setattr__(self, "descriptions", dict(given))

    def _check_params(self) -> None:
        """Check the names of its params, which are also the names of its Signature's inputs."""
        if self.params is WorkerRequest:
            return
        schema = self.params.model_json_schema()
        names = schema.get("properties", {})
        missing = [name for name in schema.get("required", ()) if name not in names]
        wrong = [name for name in names if name in _RESERVED_PARAMS or not name.isidentifier() or name.startswith("_")]
        problem, remedy = "", "give its params names that are Python identifiers and do not begin with '_'"
        if not names:
            problem = "no params"
        elif _ROLE in names:
            problem = f"the param {_ROLE!r}, but this is the role of a call, which the agent resolves and adds itself"
            remedy = "leave it out, and describe it with about_role= if needed"
        elif wrong:
            problem = f"a param that cannot be named {wrong[0]!r}"
        elif missing:
            problem, remedy = f"no param {missing[0]!r}, which is required", "declare it, or do not require it"
        if problem:
            raise FunctionInvalid(f"the worker {self.name!r} has {problem}", remedy=remedy)

    def _check_policy(self) -> None:
        policy: object = self.policy
        if policy is None:
            return
        if not isinstance(policy, Policy):
            problem = f"must be a Policy, got {type(policy).__name__!r}"
            raise self._invalid("policy", problem, "pass Policy(...), or omit it")
        idle = sorted(policy.model_fields_set - {"rules", "default"})
        for rule in policy.rules:
            # The agent's policy decides about calls that a rule approves: it counts them and names the approvers.
            idle += sorted(rule.model_fields_set & {"times", "seconds", "approvers"})
        if idle:
            problem = f"has {idle[0]}=, which belongs to the agent's policy"
            raise self._invalid("policy", problem, "omit it: a worker's policy has rules and default")

    def _name_ceiling(self) -> None:
        ceiling: object = self.ceiling
        if ceiling is None:
            return
        if not isinstance(ceiling, Ceiling):
            problem = f"must be a Ceiling, got {type(ceiling).__name__!r}"
            raise self._invalid("ceiling", problem, "pass Ceiling(...), or omit it")
        object.__setattr__(self, "ceiling", ceiling.named(self.name))

    def _check_prompt(self) -> None:
        fields = self.params.model_json_schema().get("properties", {})
        remedy = f"write {{field}} for one of {', '.join(fields)}, and '{{{{' or '}}}}' for a brace"
        try:
            parts = list(string.Formatter().parse(self.prompt))
        except ValueError:
            problem = "a single brace"
        else:
            # A conversion, a format specification or an attribute would read more than the field.
            wrong = [
                name
                for _, name, form, conversion in parts
                if name is not None and (name not in fields or form or conversion)
            ]
            if not wrong:
                return
            problem = f"the placeholder {wrong[0]!r}, which is not a field of its input"
        raise self._invalid("prompt", f"has {problem}", remedy)

    def _options(self) -> Mapping[str, Any]:
        what = f"options of the worker {self.name!r}"
        checked = validate_model(GenerationOptions, self.options, what=what, error=FunctionInvalid)
        return checked.model_dump(exclude_none=True)

    def _params(self) -> type[BaseModel]:
        given = self.input
        if isinstance(given, Mapping):
            from .schema import params_of  # here, because it imports a library that most agents do not need

            # As with shapes and functions, undeclared params are refused.
            return params_of(self.name, {"type": "object", "additionalProperties": False, **self._without_role(given)})
        if isinstance(given, type) and issubclass(given, BaseModel):
            return given
        problem = f"must be a model or a schema, got {given!r}"
        raise self._invalid("input", problem, "pass a pydantic model or a JSON Schema")

    def _without_role(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """The schema of its input without a declared role, whose description is kept."""
        properties = schema.get("properties")
        if not isinstance(properties, Mapping) or _ROLE not in properties:
            return schema
        declared = properties[_ROLE]
        kind = declared.get("type") if isinstance(declared, Mapping) else None
        if kind != "string" and (not isinstance(kind, list) or sorted(map(str, kind)) != ["null", "string"]):
            problem = f"declares {_ROLE!r}, the role of a call, as something other than a text"
            raise self._invalid("input", problem, f"write {_ROLE}: {{type: string, description: ...}}, or rename it")
        if not self.about_role:
            object.__setattr__(self, "about_role", declared.get("description", ""))
        kept = {name: each for name, each in properties.items() if name != _ROLE}
        needed = {"required": [name for name in schema["required"] if name != _ROLE]} if "required" in schema else {}
        return {**schema, **needed, "properties": kept}

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
        problem = f"has no schema: {self.output!r}"
        raise self._invalid("output", problem, "pass a type that pydantic can validate, or a JSON Schema")

    def _words(self, attribute: str) -> tuple[str, ...]:
        given: object = getattr(self, attribute)
        words = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (given,)
        if not all(is_text(word) for word in words):
            raise self._invalid(attribute, "must be texts", "pass one text or a list of texts")
        return tuple(map(str, words))

    def _check_number(self, attribute: str, least: int, most: int) -> None:
        given: object = getattr(self, attribute)
        if not isinstance(given, int) or isinstance(given, bool) or not least <= given <= most:
            problem = f"must be an integer from {least} to {most}, got {given!r}"
            raise self._invalid(attribute, problem, "pass an integer in this range")

    def _invalid(self, what: str, problem: str, remedy: str) -> FunctionInvalid:
        return FunctionInvalid(f"the {what} of the worker {self.name!r} {problem}", remedy=remedy)
