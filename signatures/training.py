"""What a program is optimised on: examples from a file, the part that is held out, and a metric (R12).

Examples and metrics are those of dspy. A role is never part of them.
"""

from __future__ import annotations

import inspect
import json
import math
import os
import random
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from numbers import Real
from pathlib import Path
from typing import Any, Final

import dspy
from pydantic import TypeAdapter, ValidationError

from ..core.errors import FunctionInvalid, InvalidArgument
from .adapter import ROLE, Signature
from .calling import TOOLS

HISTORY: Final = "history"

MIN_EXAMPLES: Final = 4
"""The fewest examples: with fewer, a score says nothing."""

_ARGUMENTS: Final = 5  # of a metric of GEPA: the example, the prediction, the trace, the predictor's name, its trace


def read_examples(path: Path, signature: Signature) -> list[dspy.Example]:
    """Read examples from a file of JSON lines. Each line has the fields of the Signature.

    Tools and history can be left out: then an example offers what the agent offers, and begins a conversation. A role
    is left out. Other fields are kept for the metric.

    Args:
        path: The file.
        signature: The Signature of the program.

    Raises:
        InvalidArgument: The file cannot be read, or a line is not an example; the text names the line and the field.
    """
    text, problem = "", ""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        problem = type(error).__name__
    if problem:
        raise InvalidArgument(
            f"the examples {str(path)!r} cannot be read ({problem})", remedy="pass a file of JSON lines, in UTF-8"
        )
    return [
        _example(line, signature, f"line {number} of {str(path)!r}")
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip()
    ]


def _example(line: str, signature: Signature, place: str) -> dspy.Example:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidArgument(
            f"{place} is not a JSON object", remedy=f"write an object with the fields {list(signature.fields)}"
        )
    return _fitting(found, signature, place)


def _fitting(found: Mapping[str, Any], signature: Signature, place: str) -> dspy.Example:
    inputs, outputs = signature.input_fields, signature.output_fields
    given = {name: value for name, value in found.items() if name != ROLE}
    if HISTORY in inputs and inputs[HISTORY].annotation is dspy.History:
        given.setdefault(HISTORY, [])
        if isinstance(given[HISTORY], list):
            given[HISTORY] = {"messages": given[HISTORY]}
    # The program has the tools that the agent offers.
    missing = [name for name, info in inputs.items() if name not in given and info.is_required() and name != TOOLS]
    if missing or not set(given) & set(outputs):
        wanted = f"the input {missing[0]!r}" if missing else f"any output: {', '.join(outputs)}"
        raise InvalidArgument(f"{place} lacks {wanted}", remedy="write the inputs and the expected outputs")
    for name in sorted(set(given) & set(signature.fields)):
        kind: Any = signature.fields[name].annotation
        try:
            given[name] = TypeAdapter(kind).validate_python(given[name])
            continue
        except ValidationError:
            pass
        raise InvalidArgument(
            f"the field {name!r} in {place} has another type",
            remedy=f"write a value that fits {kind}",
        )
    return dspy.Example(given).with_inputs(*(name for name in inputs if name in given))


def split_examples(
    examples: Sequence[dspy.Example], *, held_out: float, seed: int, source: str, remedy: str
) -> tuple[list[dspy.Example], list[dspy.Example]]:
    """Split examples into those to learn from and those to score with. The same seed splits them in the same way.

    Examples with the same `turn` stay on one side.

    Args:
        examples: The examples.
        held_out: The share to score with, between 0 and 1.
        seed: The seed of the order.
        source: Where they are from, for the error about too few, such as `in 'talks.jsonl'`.
        remedy: How to get more.

    Raises:
        InvalidArgument: There are too few, or the share is not one.
    """
    if not 0 < held_out < 1:
        raise InvalidArgument(
            f"the share of held-out examples must be between 0 and 1, got {held_out!r}", remedy="pass 0.3, for example"
        )
    turns: dict[str, list[dspy.Example]] = {}
    for place, example in enumerate(examples):
        turns.setdefault(str(getattr(example, "turn", "") or place), []).append(example)
    if len(turns) < MIN_EXAMPLES:
        raise InvalidArgument(
            f"there are only {len(turns)} examples {source}, and {MIN_EXAMPLES} are needed, better 30",
            remedy=remedy,
        )
    mixed = list(turns.values())
    random.Random(seed).shuffle(mixed)
    count = min(len(mixed) - 1, max(1, round(len(mixed) * held_out)))
    scored, learned = ([example for turn in part for example in turn] for part in (mixed[:count], mixed[count:]))
    return learned, scored


def without_bad(examples: Sequence[dspy.Example]) -> list[dspy.Example]:
    """The examples that a person did not call bad, for optimizers that show them to the model."""
    return [example for example in examples if getattr(example, "feedback", None) != "bad"]


# --- metrics ----------------------------------------------------------------------------------------------------------


class Stopped(BaseException):
    """Ends the threads of an optimizer, which catches every `Exception`."""


class Metric:
    """A user's metric, in the form that every optimizer of dspy accepts.

    The function takes an example and a prediction. If it takes more, it gets the trace, and from GEPA the name of the
    predictor and its trace. It returns a number, or a `dspy.Prediction` with `score` and `feedback`.

    Args:
        function: The function.
        name: Its name, for errors.
        fail: Called with the error if the function fails. It ends the run.
        scored: Called after each call.

    Attributes:
        raised: What it raised; None if nothing.

    Raises:
        FunctionInvalid: It cannot be called with an example and a prediction.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        *,
        fail: Callable[[BaseException, FunctionInvalid], None],
        scored: Callable[[], None],
    ) -> None:
        self._function, self._name, self._fail, self._scored = function, name, fail, scored
        self._takes = metric_arguments(function, name)
        self.raised: Exception | None = None

    def __call__(
        self, example: Any, prediction: Any, trace: Any = None, pred_name: Any = None, pred_trace: Any = None
    ) -> Any:
        before = configured()
        try:
            given = self._function(*(example, prediction, trace, pred_name, pred_trace)[: self._takes])
            score, feedback = metric_score(given), getattr(given, "feedback", None)
        except Stopped:
            raise
        except Exception as error:  # the user's code raises anything
            self.raised = error
            self._fail(error, metric_failure(error, self._function, self._name))
            raise Stopped from None
        if score is None:
            problem = no_number(given, self._name)
            self._fail(problem, problem)
            raise Stopped
        check_configured(before, f"the metric {self._name!r}", self._fail)
        self._scored()
        if pred_name is None:
            return score
        return dspy.Prediction(score=score, feedback=feedback or f"This trajectory got a score of {score}.")


def metric_arguments(function: Callable[..., Any], name: str, *, awaited: bool = False) -> int:
    """How many arguments a metric takes: the example, the prediction, and what the optimizers of dspy give besides.

    Args:
        function: The metric.
        name: Its name, for errors.
        awaited: Whether it can be a coroutine function.

    Raises:
        FunctionInvalid: It cannot be called with an example and a prediction.
    """
    if not callable(function) or (inspect.iscoroutinefunction(function) and not awaited):
        raise FunctionInvalid(
            f"the metric {name!r} is not a function that returns a score",
            remedy="name a function metric(example, prediction)",
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a function written in C has no signature
        return 2
    for count in range(_ARGUMENTS, 1, -1):
        try:
            signature.bind(*[None] * count)
        except TypeError:
            continue
        return count
    raise FunctionInvalid(
        f"the metric {name!r} cannot be called with an example and a prediction",
        remedy="write it as metric(example, prediction, trace=None)",
    )


def metric_score(given: Any) -> float | None:
    """The score that a metric returned: a number, or `score` of a `dspy.Prediction`. None if it is not a number."""
    score = given.get("score") if isinstance(given, dspy.Prediction) else given
    return float(score) if isinstance(score, Real) and math.isfinite(score) else None


def no_number(given: object, name: str) -> FunctionInvalid:
    """The error for a metric that returned something without a score."""
    return FunctionInvalid(
        f"the metric {name!r} returned {type(given).__name__!r}, which is not a number",
        remedy="return a number, a bool, or dspy.Prediction(score=..., feedback=...)",
    )


def metric_failure(error: BaseException, function: Callable[..., Any], name: str) -> FunctionInvalid:
    """The error for a metric that raised. It has the last line of the metric's own file, and not the message."""
    return refused_configure(error, f"the metric {name!r}") or FunctionInvalid(
        f"the metric {name!r} raised {type(error).__name__}{_place(error, function)}",
        remedy="correct it; it gets an example and a prediction, whose fields can be empty",
    )


def _place(error: BaseException, function: Any) -> str:
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f" in {os.path.basename(file)!r}, line {lines[-1]}" if file and lines else ""


# --- dspy.configure ---------------------------------------------------------------------------------------------------


def configured() -> Mapping[str, Any]:
    """The global settings of dspy, without those of a context."""
    return Context().run(lambda: dict(dspy.settings.config))


def refused_configure(error: BaseException, who: str) -> FunctionInvalid | None:
    """The error for code whose `dspy.configure` dspy itself refused; None if `error` is another one."""
    if isinstance(error, RuntimeError) and "dspy" in str(error) and "configure" in str(error):
        return _configures(who)
    return None


def check_configured(
    before: Mapping[str, Any], who: str, fail: Callable[[BaseException, FunctionInvalid], None]
) -> None:
    """End the run if the global settings of dspy have changed since `before`."""
    after = configured()
    if any(after.get(name) is not value for name, value in before.items()) or len(after) != len(before):
        problem = _configures(who)
        fail(problem, problem)
        raise Stopped


def _configures(who: str) -> FunctionInvalid:
    return FunctionInvalid(
        f"{who} calls dspy.configure, which changes the models of the whole process",
        remedy="use `with dspy.context(lm=...):` around the calls that need another model",
    )
