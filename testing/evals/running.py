"""Runs cases against an agent: each on a new thread and with an account of its own, with no person to ask."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from os import PathLike
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

from ...agent.runtime.inside import inside
from ...core import ModelUsage, Scope
from ...core.errors import InvalidArgument, WorldAgentError
from ...core.events import CallDecided, CallStarted, TaskStarted, TurnStarted, Usage
from ...core.validation import check_integer
from ...graphs import SUBAGENT
from ...harness.trace import Flow, Traced, TurnTrace
from ...harness.trace.recorder import Recorder
from ...harness.trace.tracer import without_texts
from .cases import EvalCase, check_ids, read_cases
from .metrics import DEFAULT, EvalAnswer, Metric, described
from .runs import EvalAttempt, EvalError, EvalResult, EvalRun, new_run_id

if TYPE_CHECKING:
    from ...agent import Turn, WorldAgent
    from ...core.events import TurnEvent
    from ...role_resolution.keys import RoleKey

JOBS: Final = 4
"""How many cases run at once."""

_SCOPE: Final = Scope(workspace="eval")  # of records that are not kept
MAX_JOBS: Final = 1000
MAX_REPEATS: Final = 1000


async def evaluate(
    agent: WorldAgent,
    cases: str | PathLike[str] | Iterable[EvalCase],
    metric: str | Callable[..., Any] | None = None,
    *,
    repeat: int = 1,
    jobs: int = JOBS,
) -> EvalRun:
    """Run cases against an agent, and score the answers.

    Each attempt is a turn on a new thread, for an account of its own. No person is asked: a call that requires an
    approval is refused. Tools that need none run for real.

    Args:
        agent: The agent, which must be open. Its home gets the threads.
        cases: The cases, or the file that has them.
        metric: Scores an answer: `exact`, `contains`, `flows`, `MODULE:FUNCTION`, or a function of a case and an
            `EvalAnswer`, which can be a coroutine function. It returns a bool, a number from 0 to 1, or a
            `dspy.Prediction` with `score` and `feedback`. Default: `contains`. A case can name another one.
        repeat: How often each case is run.
        jobs: How many turns run at once.

    Returns:
        The run. An attempt whose turn or metric failed has an error, and the score 0.

    Raises:
        EvalInvalid, MissingExtra: The file cannot be read.
        InvalidArgument: There are no cases, two have one id, a metric is unknown, or a case has nothing to compare
            with.
        FunctionInvalid: A metric cannot be called with a case and an answer.
    """
    source = str(cases) if isinstance(cases, str | PathLike) else ""
    listed = read_cases(cases) if isinstance(cases, str | PathLike) else cases
    return await Evaluation(listed, metric, repeat=repeat, jobs=jobs, source=source).run(agent)


class Evaluation:
    """A run that can be interrupted: what ended before is in `result`.

    Args:
        cases: As for `evaluate`.
        metric: As for `evaluate`.
        repeat: As for `evaluate`.
        jobs: As for `evaluate`.
        source: The name of the file of the cases.
        run_id: The id of the run; empty makes one.
        guard: Whether the turns are guarded, as for `Say`; None is as the agent has it.
        on_metric_error: Called with what a metric raises. Its message is not part of the result.
        progress: Called with how many attempts ended, and how many there are.

    Raises:
        InvalidArgument, FunctionInvalid: As for `evaluate`.
    """

    def __init__(
        self,
        cases: Iterable[EvalCase],
        metric: str | Callable[..., Any] | None = None,
        *,
        repeat: int = 1,
        jobs: int = JOBS,
        source: str = "",
        run_id: str = "",
        guard: bool | None = None,
        on_metric_error: Callable[[BaseException], None] = lambda error: None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        check_integer("repeat", repeat, MAX_REPEATS, remedy="pass how often each case is run, such as 3")
        check_integer("jobs", jobs, MAX_JOBS, remedy=f"the default is {JOBS}")
        self._cases = tuple(cases)
        if not self._cases or not all(isinstance(case, EvalCase) for case in self._cases):
            raise InvalidArgument("`cases` must be one EvalCase or more", remedy="pass what read_cases() returns")
        check_ids(self._cases)
        self._metrics = dict(_metrics(self._cases, metric, on_metric_error))
        self._repeat, self._jobs, self._source, self._guard = repeat, jobs, source, guard
        self._progress = progress
        self._began = datetime.now(UTC)
        self._clock = time.monotonic()
        self._id = run_id or new_run_id(self._began)
        self._attempts: dict[str, list[EvalAttempt]] = {case.id: [] for case in self._cases}
        self._roles: dict[str, str] = {}
        self._models: dict[str, None] = {}

    async def run(self, agent: WorldAgent, *, key: RoleKey | None = None) -> EvalRun:
        """Run all attempts.

        Args:
            agent: The agent, which must be open.
            key: The key of the digests of roles; None is that of the agent's home.
        """
        key = key or inside(agent).parts.engine.services.resolver.key
        self._roles = {case.id: key.digest_of(case.role.content) for case in self._cases if case.role is not None}
        # A case after the other, and again: an interrupted run has as many attempts of each case as it can.
        waiting = iter([(case, repeat) for repeat in range(1, self._repeat + 1) for case in self._cases])
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._jobs, len(self._cases) * self._repeat)):
                group.create_task(self._work(agent, waiting))
        return self.result()

    def result(self) -> EvalRun:
        """What ended so far."""
        results = tuple(
            EvalResult(
                id=case.id,
                message=case.message,
                expected=case.expected,
                role=self._roles.get(case.id),
                metric=self._metrics[case.id].name,
                tags=case.tags,
                attempts=tuple(sorted(self._attempts[case.id], key=lambda each: each.repeat)),
            )
            for case in self._cases
        )
        return EvalRun(
            id=self._id,
            began=self._began,
            seconds=round(time.monotonic() - self._clock, 3),
            source=self._source,
            repeats=self._repeat,
            complete=all(len(each.attempts) == self._repeat for each in results),
            models=tuple(self._models),
            results=results,
        )

    async def _work(self, agent: WorldAgent, waiting: Iterator[tuple[EvalCase, int]]) -> None:
        for case, repeat in waiting:
            attempt = await self._attempt(agent, case, repeat)
            self._attempts[case.id].append(attempt)
            done = sum(map(len, self._attempts.values()))
            self._progress(done, len(self._cases) * self._repeat)

    async def _attempt(self, agent: WorldAgent, case: EvalCase, repeat: int) -> EvalAttempt:
        own = f"eval-{token_hex(8)}"  # of its thread and of its account, so that no case remembers another one
        seen = _Seen()
        turn: Turn | None = None
        error: WorldAgentError | None = None
        began = time.monotonic()
        try:
            thread = agent.thread(own, account=own)
            async with thread.stream(case.message, role=case.role, unattended="refuse", guard=self._guard) as stream:
                async for event in stream:
                    seen.take(event)
            turn = stream.turn
        except WorldAgentError as failure:
            error = failure
        seconds = time.monotonic() - began
        self._models.update(dict.fromkeys(seen.models))
        found = EvalAttempt(
            repeat=repeat,
            score=0.0,
            reply="" if turn is None else turn.text,
            error=_turn_error(turn, error),
            calls=tuple(seen.calls),
            refused=tuple(dict.fromkeys(seen.refused)),
            flows=seen.flows,
            usage=seen.usage,
            seconds=round(seconds, 3),
            turn=seen.turn_id,
            thread=own,
        )
        if turn is None or found.error is not None:
            return found
        return await self._scored(case, found, turn)

    async def _scored(self, case: EvalCase, found: EvalAttempt, turn: Turn) -> EvalAttempt:
        about: dict[str, Any] = {"calls": found.calls, "refused": found.refused, "flows": found.flows}
        answer = EvalAnswer(reply=turn.text, turn=turn, **about)
        score = await self._metrics[case.id].score(case, answer)
        error = None
        if score.error is not None:
            error = EvalError(source="metric", code=score.error.code, message=score.error.problem)
        return found.model_copy(update={"score": score.value, "feedback": score.feedback, "error": error})


@dataclass(slots=True)
class _Seen:
    """What the events of a turn say."""

    turn_id: str = ""
    calls: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    models: dict[str, None] = field(default_factory=dict)
    usage: ModelUsage = field(default_factory=ModelUsage)
    followed: list[Traced] = field(default_factory=list)

    @property
    def flows(self) -> tuple[Flow, ...]:
        """Which values reached which arguments and the answer, as in a trace."""
        records = Recorder().records(self.followed)
        return TurnTrace.of(records).flows if records else ()

    def take(self, event: TurnEvent) -> None:
        self.turn_id = self.turn_id or event.turn_id
        if isinstance(event, TurnStarted) or getattr(event, "labels", None):
            self.followed.append(Traced(_SCOPE, without_texts(event)))
        match event:
            case CallStarted():
                self.calls.append(event.function)
            case TaskStarted():
                self.calls.append(event.label if event.shape == SUBAGENT else event.shape)
            case CallDecided(decision="refuse" | "reject"):
                self.refused.append(event.function)
            case Usage():
                self.models[event.model] = None
                self.usage += ModelUsage(
                    calls=1,
                    input_tokens=event.input_tokens,
                    output_tokens=event.output_tokens,
                    cached_tokens=event.cached_tokens,
                    reasoning_tokens=event.reasoning_tokens,
                    cost=event.cost,
                    service_calls=event.service_calls,
                )
            case _:
                pass


def _turn_error(turn: Turn | None, error: WorldAgentError | None) -> EvalError | None:
    if error is not None:
        return EvalError(source="turn", code=error.code, message=error.problem)
    if turn is not None and turn.status != "done":
        return EvalError(source="turn", code=turn.status, message=f"the turn is {turn.status}")
    return None


def _metrics(
    cases: Iterable[EvalCase],
    metric: str | Callable[..., Any] | None,
    on_error: Callable[[BaseException], None],
) -> Iterator[tuple[str, Metric]]:
    """The metric of each case, by its id."""
    made: dict[str | int, Metric] = {}
    for case in cases:
        given = case.metric or metric
        if given is None and case.expected is None:
            raise InvalidArgument(
                f"{described(case)} has neither `expected` nor a metric",
                remedy="write what the answer should contain as `expected`, or name a metric",
            )
        given = given or DEFAULT
        key = given if isinstance(given, str) else id(given)
        if key not in made:
            what = f"the metric of {described(case)}" if case.metric else "the metric"
            made[key] = Metric(given, what=what, on_error=on_error)
        made[key].check(case)
        yield case.id, made[key]
