"""The `investigation` shape: programs run in a sandbox, one after the other, until there is an answer (T3).

Each program is a step of the turn's journal, and so are its calls. A resumed turn does not repeat a program that ran to
its end, and makes no call twice. `sandbox` defines what a program can do and what stops it.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from pydantic import Field, JsonValue, PydanticUserError

from ...core.errors import Diverged, FunctionInvalid, OutputInvalid, ParamsInvalid, ResultInvalid
from ...core.validation import ClosedModel, json_of, json_of_value, read_model
from ...harness import CallContext, Function
from ...harness.guard import guarded
from ...harness.journal import Step
from ...signatures import escape_description
from ...signatures.signature import INVESTIGATE
from ..shape import Shape, ShapeRegistry
from ..tasks import TaskContext
from .sandbox import Program, SandboxLimits, Shown, Stop, check_installed, run_program

INVESTIGATION = "investigation"

_PREVIEW = 300  # characters of an input's value in the prompt
_FENCE = re.compile(r"\A\s*```[\w-]*\n(.*?)\n?```\s*\Z", re.DOTALL)
PROGRAM_OUTPUT_MARK = "what a program gave"
_STOPS: Final[Mapping[Stop, str]] = {
    "time": "reached its time limit",
    "memory": "reached its memory limit",
    "crash": "lost its sandbox",
}
_NEITHER = "There was neither a program nor an answer. Give one of them."


class InvestigationParams(ClosedModel):
    """What the `investigation` shape takes."""

    question: str = Field(description="what is to be found out; all there is to know about it", min_length=1)
    inputs: dict[Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,63}$")], JsonValue] = Field(
        default_factory=dict, description="variables that the programs have, by name"
    )
    functions: list[str] = Field(default_factory=list, description="the functions that the programs may call")
    max_steps: int = Field(default=8, description="how many programs may be run", ge=1, le=50)


class InvestigationStep(ClosedModel):
    """One program, and what it showed."""

    code: str
    output: str


class InvestigationResult(ClosedModel):
    """What the `investigation` shape gives."""

    answer: str
    steps: list[InvestigationStep]


def investigation_shape(
    *, functions: Iterable[str] = (), limits: SandboxLimits | None = None, description: str = ""
) -> Shape[InvestigationParams, InvestigationResult]:
    """The shape `investigation`: it answers a question by writing programs and running them in a sandbox.

    Args:
        functions: The names of the agent's functions that programs can get. One investigation gets those of them that
            its params name.
        limits: The limits of a program.
        description: What it is for. With one it is offered to the conversation.

    Raises:
        MissingExtra: The sandbox is not installed.
        FunctionInvalid: A function cannot be called from a program by its name.
    """
    check_installed()
    allowed = frozenset(functions)
    for name in sorted(allowed):
        if not name.isidentifier() or keyword.iskeyword(name):
            raise FunctionInvalid(
                f"the function {name!r} must have a name that a program can call",
                remedy="rename it to a Python identifier",
            )
    return _InvestigationShape(
        INVESTIGATION,
        InvestigationParams,
        InvestigationResult,
        _Handler(limits or SandboxLimits()),
        INVESTIGATE,
        description=description,
        functions=allowed,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _InvestigationShape(Shape[InvestigationParams, InvestigationResult]):
    """It refuses functions that it cannot call before the model is asked."""

    functions: frozenset[str]

    def names_for(self, params: InvestigationParams, shapes: ShapeRegistry) -> tuple[tuple[str, ...], tuple[str, ...]]:
        for name in filter(keyword.iskeyword, params.inputs):
            raise ParamsInvalid(
                f"params of shape {self.key!r} do not fit: inputs: {name!r} is a word of Python",
                remedy="give the input a name that a variable can have",
            )
        for problem in self._problems(params):
            raise ParamsInvalid(
                f"params of shape {self.key!r} do not fit: {problem}",
                remedy=f"it may call: {', '.join(sorted(self.functions)) or 'none'}",
            )
        return super(_InvestigationShape, self).names_for(params, shapes)

    def _problems(self, params: InvestigationParams) -> Iterable[str]:
        for name in params.functions:
            if name not in self.functions:
                yield f"functions: {name[:80]!r} is not one that its programs may call"
            elif name in params.inputs:
                yield f"functions: {name!r} is an input, too"


@dataclass(frozen=True, slots=True)
class _Handler:
    """Runs an investigation."""

    limits: SandboxLimits

    async def __call__(self, params: InvestigationParams, ctx: TaskContext) -> InvestigationResult:
        given = [ctx.calls.registry.function(name) for name in dict.fromkeys(params.functions)]
        shown = {
            "question": params.question,
            "inputs": "\n".join(_previewed(name, value) for name, value in params.inputs.items()) or "none",
            "functions": "\n".join(map(_described, given)) or "none",
        }
        bench = _ProgramRunner(ctx, params, {function.name: function for function in given}, self.limits)
        steps: list[InvestigationStep] = []
        for left in range(params.max_steps, -1, -1):
            said = await ctx.predict(INVESTIGATE, **shown, steps=_steps_text(steps), steps_left=left)
            code, answer = _code(said["code"]), str(said["answer"]).strip()
            # A model that gives both has guessed the output of its program.
            if answer and (not code or not left):
                return InvestigationResult(answer=answer, steps=steps)
            if left:
                output = await bench.run(code, len(steps)) if code else _NEITHER
                steps.append(InvestigationStep(code=code, output=output))
        raise OutputInvalid(
            f"the investigation came to no answer in {params.max_steps} steps",
            remedy="allow more steps in max_steps, or ask for less",
        )


@dataclass(slots=True)
class _ProgramRunner:
    """Runs the programs of one investigation, one after the other."""

    ctx: TaskContext
    params: InvestigationParams
    functions: Mapping[str, Function]
    limits: SandboxLimits
    variables: dict[str, Any] = field(default_factory=dict)
    stopped: Stop | None = None

    async def run(self, code: str, number: int) -> str:
        """Run a program as a step of the journal, and return its output."""
        frame = self.ctx.calls.frame
        path = await frame.child("program", {"code": code}, str(number))
        calls = self.ctx.calls.fork(path)
        program = Program(
            code=code,
            inputs=self.params.inputs,
            variables=self.variables,
            functions=self.functions,
            at=self._began(),
            seed=path,
        )

        async def body(_: Any) -> Any:
            running = calls.frame.run(self._run(program, calls))
            try:
                return await guarded(running, what=f"a program of {INVESTIGATION!r}", on_error=calls.on_error)
            except Diverged:
                if self.stopped is None:
                    raise
            raise Diverged(
                f"the program {path!r} {_STOPS[self.stopped]} before it repeated its work from before the pause",
                remedy="resume with SandboxLimits as high as those that the turn began with, or cancel the turn",
            )

        step = Step(id=path, parent=frame.path, name="program", kind="program", input={"code": code}, body=body)
        shown = read_model(Shown, await frame.do(step), what=PROGRAM_OUTPUT_MARK, error=ResultInvalid)
        self.variables = shown.variables
        return shown.output

    async def _run(self, program: Program, calls: CallContext) -> dict[str, Any]:
        async def call(name: str, placed: tuple[Any, ...], named: dict[str, Any]) -> Any:
            function = self.functions[name]
            value = await calls.call(name, _arguments(function, placed, named))
            what = f"the result of function {name!r}"
            return json_of_value(function.result, value, what=what, error=ResultInvalid)

        self.stopped = None
        shown = await run_program(program, call, self.limits)
        self.stopped = shown.stopped
        return json_of(shown, what=PROGRAM_OUTPUT_MARK, error=ResultInvalid)

    def _began(self) -> datetime:
        """The time that a program's clock shows.

        It is the time when the investigation began, so that a repeated program sees the same.
        """
        record = self.ctx.calls.frame.drive.recorded(self.ctx.id)
        return datetime.fromtimestamp(0.0 if record is None else record.at, UTC)


def _arguments(function: Function, placed: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """Convert positional and named arguments to params, and refuse those that are not valid."""
    names = list(function.input_schema.get("properties", ()))
    by_place = dict(zip(names, placed, strict=False))
    twice = sorted(by_place.keys() & named.keys())
    if len(placed) > len(names) or twice:
        raise ParamsInvalid(
            f"params of function {function.name!r} do not fit: {len(placed)} given by place"
            + (f", and {', '.join(twice)} by name, too" if twice else ""),
            remedy=f"the fields are: {', '.join(names) or 'none'}",
        )
    return {**by_place, **named}


def _code(said: object) -> str:
    """The program without the code fences that models put around it."""
    text = str(said or "")
    fenced = _FENCE.match(text)
    return (fenced[1] if fenced else text).strip("\n").rstrip()


def _previewed(name: str, value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= _PREVIEW:
        return f"{name} = {text}"
    return f"{name} = {text[:_PREVIEW]}... ({type(value).__name__} of {len(text)} characters as JSON)"


def _described(function: Function) -> str:
    params = function.input_schema
    taken = {key: params[key] for key in ("properties", "required", "$defs") if key in params}
    try:
        gives = json.dumps(function.result.json_schema())
    except PydanticUserError:  # the type has no schema
        gives = "a value"
    names = ", ".join(params.get("properties", ()))
    text = f"- {function.name}({names}): {function.description or 'no description'}"
    return escape_description(f"{text}; takes: {json.dumps(taken)}; gives: {gives}")


def _steps_text(steps: Sequence[InvestigationStep]) -> str:
    return (
        "\n\n".join(
            f"Program {number}:\n{step.code}\nIt showed:\n{step.output or '(nothing)'}"
            for number, step in enumerate(steps, 1)
        )
        or "none"
    )
