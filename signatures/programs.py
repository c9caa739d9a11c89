"""Programs: the Signatures of an agent as modules of dspy, without a role, to optimise and to use again (R12, D19)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, cast

import dspy
from pydantic import BaseModel, TypeAdapter

from ..core.errors import FunctionInvalid
from .adapter import ROLE, PlainAdapter, RoleAdapter, Signature, demo_calls, histories
from .calling import TOOLS, memory_fields
from .escape import control_tokens, escape_control, escape_markers
from .signature import unlisted_role, without_role


@lru_cache(maxsize=8)
def adapter_of(weights: Path | None) -> RoleAdapter:
    """The adapter of a model.

    Args:
        weights: The file of the embedded model; None is any other model.

    Raises:
        ModelNotConfigured: The file cannot be read.
    """
    if weights is None:
        return RoleAdapter()
    tokens = control_tokens(weights)
    return PlainAdapter(escape=lambda text: escape_control(escape_markers(text), tokens))


class Program(dspy.Module):
    """The program of one Signature of an agent, without a role. Optimise it as any module of dspy.

    A call takes the Signature's input fields. It sends what the agent would send, so it needs a model:
    `dspy.context(lm=...)`. Tools that are not passed are those that the agent offers. A file of it, or of a module
    around it, holds instructions and examples; role, history and tools of an example are left out.

    Attributes:
        predict: The one predictor.
    """

    def __init__(self, predict: dspy.Predict, *, weights: Path | None = None, inputs: Mapping[str, Any] | None = None):
        """Make a program.

        Args:
            predict: The predictor.
            weights: The file of the embedded model, whose prompts have another form; None is any other model.
            inputs: The values of input fields that a call does not pass.
        """
        super().__init__()
        self.predict = predict
        self._weights = weights
        self._inputs = dict(inputs or {})

    @property
    def signature(self) -> Signature:
        """The role-free Signature."""
        signature: Any = self.predict.signature
        return cast("Signature", signature)

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """Call the model of `dspy.settings`."""
        with self._adapted():
            return self.predict(**self.filled(inputs))

    async def aforward(self, **inputs: Any) -> dspy.Prediction:
        """Call the model of `dspy.settings`."""
        with self._adapted():
            return await self.predict.acall(**self.filled(inputs))

    def filled(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs of a call, with those that it does not pass."""
        return {**self._inputs, **inputs}

    def _adapted(self) -> AbstractContextManager[None]:
        """Set the agent's adapter, if it is not set: in a module that a turn runs it is."""
        if isinstance(dspy.settings.adapter, RoleAdapter):
            return nullcontext()
        adapted: AbstractContextManager[None] = dspy.context(adapter=adapter_of(self._weights))
        return adapted

    def with_predict(self, predict: dspy.Predict) -> Program:
        """This program with another predictor of the same fields."""
        return Program(predict, weights=self._weights, inputs=self._inputs)


class RoleFreePredict(dspy.Predict):
    """A predictor without a role: its calls take none, and none is in what is saved of it.

    This holds however it is saved: alone, in any module, as a state or as a whole program.
    """

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """Call the model of `dspy.settings`. A role is left out."""
        return super().forward(**_roleless(inputs))

    async def aforward(self, **inputs: Any) -> dspy.Prediction:
        """Call the model of `dspy.settings`. A role is left out."""
        return await super().aforward(**_roleless(inputs))

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        """The state that is saved: instructions, descriptions and examples."""
        kept: Any = self.deepcopy()  # by __getstate__
        state: dict[str, Any] = dspy.Predict.dump_state(kept, json_mode=json_mode)
        return state

    def __getstate__(self) -> dict[str, Any]:
        """What copies and pickles have. dspy pickles the program with `save(folder, save_program=True)`."""
        state: dict[str, Any] = super().__getstate__()
        return {**state, "demos": _saved_demos(self.demos, self.signature), "traces": [], "train": []}


def _roleless(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != ROLE}


def _saved_demos(demos: Sequence[Any], signature: Any) -> list[Any]:
    """Examples without what belongs to one call: the role, the conversation and the offered tools."""
    unsaved = {ROLE, TOOLS, *memory_fields(signature), *histories(signature)}
    return [
        # a kept turn has more than its fields, such as a person's note
        dspy.Example(demo).without(*unsaved.intersection(demo.keys()))
        if isinstance(demo, dspy.Example)
        else {name: value for name, value in demo.items() if name not in unsaved}
        for demo in demos
    ]


class _SavedField(BaseModel):
    prefix: str
    description: str


class _SavedSignature(BaseModel):
    instructions: str
    fields: list[_SavedField]


class _Saved(BaseModel):
    """The relevant parts of a saved predictor. Its traces, training set and model are ignored."""

    signature: _SavedSignature
    demos: list[dict[str, Any]]


_FILE: Final = TypeAdapter(dict[str, Any])
_ROLE_PREFIX: Final = "Role:"
"""The prefix that dspy makes of the name of the field."""


def predictors(module: dspy.Module) -> list[tuple[str, dspy.Predict]]:
    """The predictors of a module by path, as `named_predictors()` has them, and those in its compiled parts."""
    return [(path or "self", part) for path, part in parts(module) if isinstance(part, dspy.Predict)]


def parts(module: dspy.Module) -> list[tuple[str, dspy.Module]]:
    """A module and all modules in it by path. Predictors are the last ones of their path."""
    found: dict[int, tuple[str, dspy.Module]] = {}
    waiting: list[tuple[str, object]] = [("", module)]
    while waiting:
        path, part = waiting.pop(0)
        if isinstance(part, dspy.Module) and id(part) not in found:
            found[id(part)] = path, part
            if not isinstance(part, dspy.Predict):
                waiting += [(f"{path}.{name}".lstrip("."), each) for name, each in _attributes(part)]
    return list(found.values())


def _attributes(module: dspy.Module) -> Iterator[tuple[str, object]]:
    for name, value in vars(module).items():
        if isinstance(value, list | tuple):
            yield from ((f"{name}[{place}]", each) for place, each in enumerate(value))
        elif isinstance(value, dict):
            yield from ((f"{name}[{key!r}]", each) for key, each in value.items())
        else:
            yield name, value


def called(module: dspy.Module) -> tuple[Callable[..., Any] | None, bool]:
    """The method that a call of a module runs, and whether it is its `aforward`.

    A `forward` of a class counts more than the `aforward` of its base, which does not call it.
    """
    for owner in (module, *type(module).__mro__):
        for name in _METHODS:
            if name in vars(owner):  # dspy warns of `module.forward`
                found = vars(owner)[name]
                return found if owner is module else found.__get__(module), name == "aforward"
    return None, False


def passes_on(method: Callable[..., Any]) -> bool:
    """Whether a method takes any keyword, and only passes on those that are input fields of its predictor."""
    return getattr(method, "__func__", None) in _PASS_ON


_METHODS: Final = ("aforward", "forward")
_PASS_ON: Final = tuple(
    vars(kind)[name] for kind in (dspy.Predict, RoleFreePredict, dspy.ChainOfThought, Program) for name in _METHODS
)


def fitting_program(given: object, signature: Signature) -> dspy.Predict:
    """Return the predictor of an optimised program that fits a Signature. A role that it declares is left out (R12).

    Args:
        given: A `Program`, a predictor, another `dspy.Module` with one such predictor and no code of its own, or the
            JSON file of a saved one.
        signature: The Signature without role that it was made for.

    Raises:
        FunctionInvalid: It is none of these, it has code of its own, the file cannot be read, not exactly one predictor
            has the fields, or the calls of an example cannot be read.
    """
    found = _fitting(given, signature)
    for place, demo in enumerate(found.demos if TOOLS in signature.input_fields else ()):
        try:
            demo_calls(dict(demo))
        except ValueError:
            problem = f"the calls of example {place} of the program for {signature.__name__!r} cannot be read"
        else:
            continue
        raise FunctionInvalid(problem, remedy="write each call as {'tool': 'NAME', 'arguments': {...}}")
    return found


def _fitting(given: object, signature: Signature) -> dspy.Predict:
    name, fields = signature.__name__, list(signature.fields)
    if isinstance(given, str | os.PathLike):
        return _read(Path(given), signature)
    if not isinstance(given, dspy.Module):
        raise FunctionInvalid(
            f"the program for {name!r} must be a dspy.Module or a file, got {type(given).__name__!r}",
            remedy="pass an optimised agent.program(...), or the JSON file of a saved one",
        )
    every: list[tuple[str, Any]] = list(predictors(given))
    memory = memory_fields(signature)  # programs from before it was on do not have the field
    wanted = _shape(signature), [each for each in _shape(signature) if each[0] not in memory]
    fitting = {path: predict for path, predict in every if _shape(predict.signature) in wanted}
    _check_code(given, name, [path for path in fitting if path != "self"])
    if len(fitting) > 1:
        raise FunctionInvalid(
            f"the program for {name!r} has {len(fitting)} predictors with the fields {fields}",
            remedy=f"pass one of them, such as module.{next(iter(fitting))}",
        )
    if not fitting:
        found = "; ".join(str([name for name, *_ in _shape(predict.signature)]) for _, predict in every)
        raise FunctionInvalid(
            f"the program for {name!r} has other fields: {found or 'it has no predictor'}",
            remedy=f"optimise the role-free program, whose fields are {fields}, or {_RUN_MODULE}",
        )
    [only] = map(_role_free, fitting.values())
    if _shape(only.signature) == wanted[0]:
        return only
    state: Any = only.signature
    return _restored(_SavedSignature.model_validate(state.dump_state()), only.demos, signature)


_RUN_MODULE: Final = (
    "run the module itself: in workers= as module_worker(NAME, module, params=PARAMS, result=RESULT), or in shapes= as "
    "module_shape(...), both from worldagent.graphs.shapes"
)


def _check_code(module: dspy.Module, name: str, fitting: Sequence[str]) -> None:
    """Refuse a module whose code would be left out: the agent calls one predictor, and no `forward` (R12).

    Args:
        module: The module.
        name: The name of the Signature that it was passed for.
        fitting: The paths of its predictors that fit.
    """
    for path, part in parts(module):
        method, _ = called(part)
        if method is not None and not passes_on(method):
            where = f"the part {path!r} of the program" if path else "the program"
            alone = f"pass the predictor alone, such as module.{fitting[0]}, or " if fitting else ""
            raise FunctionInvalid(
                f"{where} for {name!r}, a {type(part).__name__!r}, has code of its own, which would not run: a program "
                "is the instructions and examples of one predictor",
                remedy=alone + _RUN_MODULE,
            )


def _restored(saved: _SavedSignature, demos: Sequence[Any], signature: Signature) -> dspy.Predict:
    """The predictor of a Signature with what was saved of it, which may lack the field of what is recalled."""
    own: Any = signature.dump_state()
    fields = [field.model_dump() for field in saved.fields]
    if len(fields) < len(own["fields"]):
        place = list(signature.fields).index(memory_fields(signature)[0])
        fields.insert(place, own["fields"][place])
    restored: Any = signature.load_state({"instructions": saved.instructions, "fields": fields})
    program = RoleFreePredict(restored)
    program.demos = _saved_demos(demos, restored)
    return program


def _role_free(predict: dspy.Predict) -> dspy.Predict:
    """A predictor without the input `role`, if its Signature declares it."""
    signature: Any = predict.signature
    if ROLE not in signature.input_fields:
        return predict
    made = RoleFreePredict(without_role(signature))
    made.demos = predict.demos
    return made


def _shape(signature: Any) -> list[tuple[str, object, bool]]:
    """The fields of a Signature, without the input `role`."""
    inputs = signature.input_fields
    fields = [(name, info.annotation, name in inputs) for name, info in signature.fields.items()]
    return [field for field in fields if (field[0], field[2]) != (ROLE, True)]


def _read(path: Path, signature: Signature) -> dspy.Predict:
    if path.is_dir():
        raise FunctionInvalid(
            f"the program {str(path)!r} for {signature.__name__!r} is a folder, as dspy saves a whole program",
            remedy="pass dspy.load(FOLDER, allow_pickle=True), or the file of program.save('NAME.json')",
        )
    own: Any = signature.dump_state()
    # Optimisers can rewrite only the last prefix.
    wanted = [field["prefix"] for field in own["fields"]]
    names = list(signature.fields)
    memory = memory_fields(signature)  # programs from before it was on do not have the field
    without = [prefix for name, prefix in zip(names, wanted, strict=True) if name not in memory]
    problem = ""
    found: list[_Saved] = []
    try:
        state = _FILE.validate_json(path.read_bytes())
        # A predictor is saved as its state, a module as the states of its predictors by name.
        states = [state] if "signature" in state else [each for name, each in state.items() if name != "metadata"]
        found = [_Saved.model_validate(each) for each in states]
    except (OSError, ValueError) as error:
        problem = type(error).__name__
    if _ROLE_PREFIX not in wanted:
        for each in found:
            _leave_out_role(each.signature)
    prefixes = [[field.prefix for field in each.signature.fields] for each in found]
    fits = [any(len(each) == len(one) and each[:-1] == one[:-1] for one in (wanted, without)) for each in prefixes]
    if sum(fits) == 1:
        saved = found[fits.index(True)]
        return _restored(saved.signature, saved.demos, signature)
    counts = ", ".join(str(len(each)) for each in prefixes)
    problem = problem or ("several predictors fit" if any(fits) else f"its {counts} fields differ")
    raise FunctionInvalid(
        f"the program {str(path)!r} for {signature.__name__!r} cannot be loaded ({problem})",
        remedy=f"save a role-free program with the fields {list(signature.fields)}",
    )


def _leave_out_role(saved: _SavedSignature) -> None:
    """Leave out the field `role` of a program whose Signature declares it. The last field is an output."""
    kept = [field for field in saved.fields[:-1] if field.prefix != _ROLE_PREFIX]
    if len(kept) < len(saved.fields) - 1:
        saved.fields = [*kept, saved.fields[-1]]
        saved.instructions = unlisted_role(saved.instructions)
