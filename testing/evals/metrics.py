"""Scores one answer with a metric: a built-in one, or a function of the user."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import FunctionInvalid, InvalidArgument
from ...core.naming import named_object
from ...harness.gate.labels import PERSON, is_from
from ...harness.gate.policy import several
from .cases import EvalCase

if TYPE_CHECKING:
    from ...agent import Turn
    from ...harness.trace import Flow

_NAMES: Final = (
    "name exact, contains, flows, or a function metric(case, answer) as MODULE:FUNCTION, such as scores:polite"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalAnswer:
    """What an agent did with a case, as a metric gets it.

    Attributes:
        reply: The text of the answer.
        calls: The names of the functions, workers and shapes that ran, in order.
        refused: The names of those that were refused, because they require an approval or a policy forbids them.
        flows: Which values reached which arguments and the answer, as in the trace of the turn.
        turn: The turn, with its usage.
    """

    reply: str
    calls: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    flows: tuple[Flow, ...] = ()
    turn: Turn


def exact(case: EvalCase, answer: EvalAnswer) -> bool:
    """Whether the answer is the expected text. Blanks at the ends do not count."""
    return bool(answer.reply.strip() == str(case.expected).strip())


def contains(case: EvalCase, answer: EvalAnswer) -> bool:
    """Whether the answer contains the expected text, or each of several. Case and spacing do not count."""
    wanted = case.expected if isinstance(case.expected, list | tuple) else [case.expected]
    return all(_words(each) in _words(answer.reply) for each in wanted)


def _words(text: str) -> str:
    return " ".join(text.casefold().split())


def flows(case: EvalCase, answer: EvalAnswer) -> bool:
    """Whether calls that ran got each argument that is expected, and only from the origins that are expected for it."""
    return all(_is_from(answer, target, several(globs)) for target, globs in case.expected.items())


def _is_from(answer: EvalAnswer, target: str, globs: tuple[str, ...]) -> bool:
    function, _, argument = target.partition(".")
    ran = [each for each in answer.flows if each.function == function and each.decision in ("", "approve", "modify")]
    origins = [each.origins for each in ran if f"{each.argument}.".startswith(f"{argument}.") or not each.argument]
    calls = 1 if function == "answer" else answer.calls.count(function)
    if calls > len({each.call for each in ran}):  # values that are not followed are the person's
        origins.append((PERSON,))
    return bool(origins) and all(is_from(each, globs) for each in origins)


BUILT_IN: Final[Mapping[str, Callable[[EvalCase, EvalAnswer], bool]]] = {
    "exact": exact,
    "contains": contains,
    "flows": flows,
}
DEFAULT: Final = "contains"


@dataclass(frozen=True, slots=True)
class Score:
    """What a metric gave.

    Attributes:
        value: From 0 to 1.
        feedback: The `feedback` of a `dspy.Prediction`; empty if the metric gave none.
        error: Why there is no score; None if there is one.
    """

    value: float
    feedback: str = ""
    error: FunctionInvalid | None = None


class Metric:
    """A metric that can be called.

    Args:
        given: A name of a built-in metric, `MODULE:FUNCTION`, or a function of a case and an answer. It returns a bool,
            a number from 0 to 1, or a `dspy.Prediction` with `score` and `feedback`, and it can be a coroutine
            function.
        what: What names it, for errors, such as `--metric`.
        on_error: Called with what it raises.

    Attributes:
        name: Its name.

    Raises:
        InvalidArgument: The name is unknown, or its module cannot be imported.
        FunctionInvalid: It cannot be called with a case and an answer.
    """

    def __init__(
        self,
        given: str | Callable[..., Any],
        *,
        what: str = "`metric`",
        on_error: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        from ...signatures.training import metric_arguments

        self.name = given if isinstance(given, str) else getattr(given, "__qualname__", type(given).__name__)
        self._function: Callable[..., Any] = _function(given, what) if isinstance(given, str) else given
        self._takes = metric_arguments(self._function, self.name, awaited=True)
        self._on_error = on_error

    async def score(self, case: EvalCase, answer: EvalAnswer) -> Score:
        """Score an answer. A metric that is not a coroutine function runs in a thread."""
        from ...signatures.training import metric_failure, metric_score, no_number

        try:
            # The optimizers of dspy give more than two arguments, so a metric for them can take more.
            given = await self._called(replace(case, role=None), answer, *[None] * (self._takes - 2))
            value, feedback = metric_score(given), getattr(given, "feedback", None)
        except (Exception, SystemExit) as error:  # broad: the user's code raises anything
            self._on_error(error)
            return Score(0.0, error=metric_failure(error, self._function, self.name))
        if value is None:
            return Score(0.0, error=no_number(given, self.name))
        if not 0 <= value <= 1:
            problem = f"the metric {self.name!r} returned {value:g}, which is not from 0 to 1"
            return Score(0.0, error=FunctionInvalid(problem, remedy="return a bool, or a number from 0 to 1"))
        return Score(value, feedback if isinstance(feedback, str) else "")

    async def _called(self, *arguments: Any) -> Any:
        if inspect.iscoroutinefunction(self._function):
            return await self._function(*arguments)
        given = await asyncio.to_thread(self._function, *arguments)
        return await given if inspect.isawaitable(given) else given

    def check(self, case: EvalCase) -> None:
        """Refuse a case that a built-in metric cannot score.

        Raises:
            InvalidArgument: `expected` is missing or is not what the metric takes; the error names the case.
        """
        if self._function is flows and not _are_origins(case.expected):
            raise InvalidArgument(
                f"{described(case)}: for the metric 'flows', `expected` must have the origins of arguments",
                remedy="write for example expected: {send_mail.to: [person, search_mail.sender]}",
            )
        several = self.name == "contains" and isinstance(case.expected, list | tuple) and bool(case.expected)
        wanted = case.expected if several else [case.expected]
        if self._function not in (exact, contains) or all(isinstance(each, str) and each.strip() for each in wanted):
            return
        shape = "a text, or a list of texts" if self.name == "contains" else "a text"
        raise InvalidArgument(
            f"{described(case)}: the metric {self.name!r} compares the answer with `expected`, which must be {shape}",
            remedy="write `expected` in quotes, or name a function of your own as the metric",
        )


def _are_origins(expected: Any) -> bool:
    """Whether it has a glob, or a list of globs, over the origins of each of some arguments."""
    if not isinstance(expected, dict) or not expected:
        return False
    globs = [[each] if isinstance(each, str) else each for each in expected.values()]
    named = all(all(target.partition(".")) for target in expected)
    return named and all(isinstance(some, list) and some and all(isinstance(s, str) for s in some) for some in globs)


def described(case: EvalCase) -> str:
    """A case in an error: its line, if it is of a file, and its id."""
    return f"{case.where}: the case {case.id!r}" if case.where else f"the case {case.id!r}"


def _function(name: str, what: str) -> Callable[..., Any]:
    if name in BUILT_IN:
        return BUILT_IN[name]
    if ":" not in name:
        raise InvalidArgument(f"{what}: there is no metric {name[:80]!r}", remedy=_NAMES)
    found: Callable[..., Any] = named_object(name, option=what, remedy=_NAMES)
    return found
