"""Optimises a program with the optimizers of dspy, on the model that the agent calls (R12).

The optimizers are synchronous, so they run in a thread. Their model calls go back to the agent's event loop and use its
connection, options and limits. There is no role, and nothing is cached or kept in dspy's history.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal, get_args

import dspy
from dspy.lm15 import Request, Response
from dspy.utils.callback import BaseCallback
from dspy.utils.exceptions import AdapterParseError

from ..core import ModelUsage
from ..core.errors import (
    ContextExceeded,
    FunctionInvalid,
    InvalidArgument,
    MissingExtra,
    ModelFacing,
    ModelRefused,
    OutputInvalid,
    WorldAgentError,
)
from .calling import TOOLS
from .engines.classification import classify
from .engines.costs import CostTracker
from .engines.providers import sending
from .predictor import Listener, ModelCaller, Predictor, with_retries
from .programs import Program, fitting_program
from .training import Metric, Stopped, check_configured, configured, refused_configure, without_bad

Optimizer = Literal["gepa", "mipro", "bootstrap"]
Effort = Literal["light", "medium", "heavy"]
Stage = Literal["before", "optimising", "after"]

_DEMONSTRATIONS: Final[Mapping[str, int]] = {"light": 4, "medium": 8, "heavy": 16}
_PERFECT: Final = 1.0  # the best score, as GEPA takes it
_OTHER_TEACHER: Final = "use another model as --teacher"
_UNREAD: Final = 20  # first answers of a teacher of which one must be readable
_SCORED: Final = 0.8  # the share of examples that a trial of MIPROv2 scores
_CANDIDATES: Final = 6  # of instructions and of demonstrations, as for the budget `light`
_PACKAGES: Final[Mapping[Optimizer, str]] = {"gepa": "gepa", "mipro": "optuna"}
_CLIENT: Final = frozenset({"api_key", "api_base", "base_url", "timeout", "rollout_id", "prompt_cache"})
"""Options of an LM that belong to its connection, or to one call."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers of a model, and how many of them did not have the fields that were asked for."""

    count: int = 0
    unreadable: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is.

    Attributes:
        stage: Scoring the program as it was, optimising it, or scoring the result.
        scored: How many predictions of this stage have a score.
        usage: The model calls of the run so far.
        answers: The answers to the program so far. One that cannot be read has the score 0.
        taught: The answers of the teacher so far.
        score: The score of the stage, once it is over.
    """

    stage: Stage
    scored: int
    usage: ModelUsage
    answers: Answers = Answers()
    taught: Answers = Answers()
    score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimised:
    """The result of a run.

    Attributes:
        program: The optimised program, as its file would give it back.
        before: The mean score of the program as it was, on the held-out examples.
        after: The mean score of the result, on the same examples.
        usage: All model calls, scoring included.
        train: How many examples it learned from.
        held_out: How many examples it was scored with.
        answers: All answers to the program.
        taught: All answers of the teacher.
        perfect: Whether each held-out example had the score 1 before, so that nothing was optimised.
    """

    program: Program
    before: float
    after: float
    usage: ModelUsage
    train: int
    held_out: int
    answers: Answers = Answers()
    taught: Answers = Answers()
    perfect: bool = False

    @property
    def better(self) -> bool:
        """Whether the result is better than the program was."""
        return self.after > self.before


def read_budget(text: str) -> Effort | int:
    """Read a budget: `light`, `medium`, `heavy` or a positive number.

    Raises:
        InvalidArgument: It is none of these.
    """
    if text in get_args(Effort):
        return text  # type: ignore[return-value]  # one of its values
    if text.isascii() and text.isdecimal() and int(text) > 0:
        return int(text)
    raise InvalidArgument(f"the budget {text!r} is unknown", remedy="pass light, medium, heavy or a number")


async def optimise(
    program: Program,
    caller: ModelCaller,
    metric: Callable[..., Any],
    *,
    train: Sequence[dspy.Example],
    held_out: Sequence[dspy.Example],
    optimizer: Optimizer,
    budget: Effort | int = "light",
    teacher: ModelCaller | None = None,
    seed: int = 0,
    name: str = "metric",
    on_metric_error: Callable[[BaseException], None] = lambda error: None,
    progress: Callable[[Progress], None] = lambda step: None,
) -> Optimised:
    """Optimise a program. Cancelling it ends the model calls that run.

    A program whose held-out examples all have the score 1 is returned as it is.

    Args:
        program: The program. It does not change.
        caller: The model that the program runs on.
        metric: Scores a prediction; see `Metric`.
        train: What the optimizer learns from.
        held_out: What the scores before and after are measured with.
        optimizer: Which optimizer of dspy.
        budget: How much it tries; a number counts scored predictions of `gepa`, trials of `mipro` and demonstrations
            of `bootstrap`.
        teacher: The model that reflects (`gepa`), proposes instructions (`mipro`) or makes demonstrations; None is
            `caller`.
        seed: The seed of `gepa` and `mipro`.
        name: The name of the metric, for errors.
        on_metric_error: Called with what the metric raised. Its message is not part of the error.
        progress: Called in the event loop after each scored prediction, and at the end of each stage.

    Raises:
        InvalidArgument: All examples to learn from have the feedback `bad`, and the optimizer shows examples.
        FunctionInvalid: The metric or the optimizer fails, returns no number, or calls `dspy.configure`.
        MissingExtra: The optimizer needs a package that is not installed.
        OutputInvalid: None of the first 20 answers of the teacher can be read, or `mipro` cannot do without one.
        HostError: The model cannot be called.
    """
    _check_optimizer(optimizer, train)
    run = _Run(progress)
    scorer = Metric(metric, name, fail=run.fail, scored=run.scored)
    await _try_tools(run, program, caller, train[0])
    over = asyncio.Event()
    made: list[Optimised] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            plan = _Plan(
                program=program,
                train=list(train),
                metric=scorer,
                budget=budget,
                seed=seed,
                lm=run.lm(caller),
                teacher=run.lm(teacher or caller, taught=True),
                demonstrates=teacher is not None,
            )
            made.append(_made(run, plan, optimizer, held_out))
        except BaseException as error:  # it is raised in the event loop
            failures.append(error)
        run.tell(over.set)

    threading.Thread(target=work, name="worldagent-optimise", daemon=True).start()
    try:
        await over.wait()
    finally:
        run.stop()
    if made:
        return made[0]
    [failure] = failures
    if scorer.raised is not None:
        on_metric_error(scorer.raised)
    elif caller.on_error is not None:
        caller.on_error(run.original or failure)
    raise run.failure or _failed(optimizer, failure, run.answers(taught=True))


async def _try_tools(run: _Run, program: Program, caller: ModelCaller, example: dspy.Example) -> None:
    """Find out whether a service accepts tools, as an agent's first turn does. Programs do not try several forms."""
    inputs = program.filled(dict(example.inputs()))
    if caller.options.tools != "auto" or caller.connection.learned.takes_tools is not None or not inputs.get(TOOLS):
        return
    with suppress(ModelFacing):
        await Predictor(program.signature)(inputs, caller, listener=Listener(usage=lambda used, **more: run.add(used)))


def _failed(optimizer: str, error: BaseException, taught: Answers) -> WorldAgentError:
    who = f"the optimizer {optimizer!r}"
    if isinstance(error, AdapterParseError) and taught.unreadable:
        return OutputInvalid(
            f"{who} cannot continue: {taught.unreadable} of {taught.count} answers of the teacher could not be read",
            remedy=_OTHER_TEACHER,
        )
    return (
        (error if isinstance(error, WorldAgentError) else None)
        or refused_configure(error, who)
        or FunctionInvalid(
            f"{who} failed with {type(error).__name__}", remedy="try another optimizer, or more examples"
        )
    )


def _made(run: _Run, plan: _Plan, optimizer: Optimizer, held_out: Sequence[dspy.Example]) -> Optimised:
    """Score, optimise, and score what the saved file gives back. Runs in a thread."""
    settings = {"lm": plan.lm, "disable_history": True, "track_usage": False, "usage_tracker": None}
    settings |= {"callbacks": [_Reader(run)]}
    settings |= {"max_errors": sys.maxsize}  # a prediction that cannot be read is one that failed
    global_settings = configured()
    found = plan.program
    with dspy.context(**settings), _no_logs():
        run.begin("before")
        scores = _scores(plan.program, held_out, plan.metric)
        after = before = run.end(scores)
        perfect = all(score == _PERFECT for score in scores)
        if not perfect:
            run.begin("optimising")
            compiled = _COMPILE[optimizer](plan)
            check_configured(global_settings, f"the optimizer {optimizer!r}", run.fail)
            run.end()
            found = plan.program.with_predict(_saved(compiled, plan.program))
            run.begin("after")
            after = run.end(_scores(found, held_out, plan.metric))
    train, kept_back = len(plan.train), len(held_out)
    return Optimised(
        program=found, before=before, after=after, train=train, held_out=kept_back, perfect=perfect, **run.so_far
    )


def _scores(program: Program, examples: Sequence[dspy.Example], metric: Metric) -> list[float]:
    """The score of each example. A prediction that cannot be read has the score 0."""
    evaluate = dspy.Evaluate(devset=list(examples), metric=metric)
    return [float(score) for *_, score in evaluate(program).results]


def _saved(compiled: Any, program: Program) -> dspy.Predict:
    """The predictor as a saved file gives it back, so that the score is that of the file."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "program.json"
        compiled.save(file)
        return fitting_program(file, program.signature)


# --- the optimizers ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What an optimizer gets.

    Attributes:
        program: The program.
        train: What it learns from.
        metric: Scores a prediction.
        budget: How much it tries.
        seed: The seed of its choices.
        lm: The model that the program runs on.
        teacher: The model that reflects and proposes.
        demonstrates: Whether it makes demonstrations too; else the program's own model does.
    """

    program: Program
    train: list[dspy.Example]
    metric: Metric
    budget: Effort | int
    seed: int
    lm: dspy.LM
    teacher: dspy.LM
    demonstrates: bool

    @property
    def demonstrating(self) -> dict[str, Any]:
        """The settings for making demonstrations."""
        return {"lm": self.teacher} if self.demonstrates else {}


def _gepa(plan: _Plan) -> Any:
    tried: Any = {"max_metric_calls": plan.budget} if isinstance(plan.budget, int) else {"auto": plan.budget}
    made = dspy.GEPA(plan.metric, reflection_lm=plan.teacher, seed=plan.seed, **tried)
    return made.compile(plan.program, trainset=plan.train)


def _mipro(plan: _Plan) -> Any:
    counted = isinstance(plan.budget, int)
    tried: Any = {"auto": None, "num_candidates": _CANDIDATES} if counted else {"auto": plan.budget}
    made = dspy.MIPROv2(
        plan.metric,
        prompt_model=plan.teacher,
        task_model=plan.lm,
        teacher_settings=plan.demonstrating,
        seed=plan.seed,
        **tried,
    )
    trials: Any = {"num_trials": plan.budget, "minibatch": False} if counted else {}
    # Of the others a fifth is shown, as dspy does it. Bad ones have to be scored: they are what can become better.
    shown = without_bad(plan.train)
    shown = shown[: len(shown) - int(len(shown) * _SCORED)]
    scored = [example for example in plan.train if not any(example is each for each in shown)]
    return made.compile(plan.program, trainset=shown, valset=scored or shown, **trials)


def _bootstrap(plan: _Plan) -> Any:
    count = plan.budget if isinstance(plan.budget, int) else _DEMONSTRATIONS[plan.budget]
    made = dspy.BootstrapFewShot(
        plan.metric,
        teacher_settings=plan.demonstrating,
        max_bootstrapped_demos=count,
        max_labeled_demos=count,
    )
    return made.compile(plan.program, trainset=without_bad(plan.train))


_COMPILE: Final[Mapping[Optimizer, Callable[[_Plan], Any]]] = {"gepa": _gepa, "mipro": _mipro, "bootstrap": _bootstrap}


def _check_optimizer(optimizer: Optimizer, train: Sequence[dspy.Example]) -> None:
    """Refuse, before anything is spent, an optimizer that is not installed or has nothing to show to the model."""
    package = _PACKAGES.get(optimizer)
    if package is not None and find_spec(package) is None:
        raise MissingExtra(
            f"the optimizer {optimizer!r} needs the package {package!r}, which is not installed",
            remedy="install it: pip install 'worldagent[optimise]'",
        )
    if optimizer != "gepa" and not without_bad(train):
        raise InvalidArgument(
            f"the optimizer {optimizer!r} has no example to show to the model: all have the feedback 'bad'",
            remedy="use gepa, which learns from them, or give other examples",
        )


@contextmanager
def _no_logs() -> Generator[None]:
    """Silence dspy's log, which repeats examples and prompts."""
    log = logging.getLogger("dspy")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)


# --- one run ----------------------------------------------------------------------------------------------------------


class _Run:
    """What the thread of an optimizer and the event loop share. Make it in the event loop.

    Attributes:
        usage: The model calls so far.
        failure: The error that ended the run.
        original: The exception that it replaces.
    """

    def __init__(self, progress: Callable[[Progress], None]) -> None:
        self.loop = asyncio.get_running_loop()
        self.usage = ModelUsage()
        self.failure: WorldAgentError | None = None
        self.original: BaseException | None = None
        self._progress = progress
        self.begin("before")
        self._stopped = False
        self._calls: set[Future[Any]] = set()
        self._lock = threading.Lock()
        self._answers = {False: Answers(), True: Answers()}
        self.last = threading.local()  # the engine that answered in a thread

    def lm(self, caller: ModelCaller, *, taught: bool = False) -> dspy.LM:
        """The model of an agent for code that cannot wait. Its calls are made in the agent's event loop.

        Args:
            caller: The model.
            taught: Whether its answers are those of the teacher.
        """
        connection = caller.connection
        inner: Any = connection.lm
        options = {name: value for name, value in {**inner.kwargs, **caller.sent}.items() if name not in _CLIENT}
        engine = _ThreadEngine(self, caller, taught)
        return dspy.LM(inner.model, engine=engine, cache=False, num_retries=0, **options)

    def begin(self, stage: Stage) -> None:
        """Begin a stage, in which nothing is scored yet."""
        self._stage: Stage = stage
        self._scored: int = 0
        self._score: float | None = None

    def end(self, scores: Sequence[float] = ()) -> float:
        """Report that the stage is over. Return the mean of its scores."""
        self._score = sum(scores) / len(scores) if scores else None
        self._report()
        return self._score or 0.0

    @property
    def so_far(self) -> dict[str, Any]:
        """The usage and the answers."""
        return {"usage": self.usage, "answers": self.answers(), "taught": self.answers(taught=True)}

    def scored(self) -> None:
        """Count a scored prediction."""
        with self._lock:
            self._scored += 1
        self.check()
        self._report()

    def answers(self, *, taught: bool = False) -> Answers:
        """The answers to the program so far, or those of the teacher."""
        return self._answers[taught]

    def answered(self, engine: _ThreadEngine, *, readable: bool) -> None:
        """Count an answer. A teacher whose first ones are all unreadable ends the run."""
        with self._lock:
            known = self._answers[engine.taught]
            found = self._answers[engine.taught] = Answers(known.count + 1, known.unreadable + (not readable))
        if engine.taught and found.unreadable == found.count == _UNREAD:
            problem = OutputInvalid(
                f"none of the first {_UNREAD} answers of {engine.model!r} as the teacher could be read",
                remedy=_OTHER_TEACHER,
            )
            self.fail(problem, problem)
            raise Stopped

    def _report(self) -> None:
        step = Progress(stage=self._stage, scored=self._scored, score=self._score, **self.so_far)
        self.tell(self._progress, step)

    def tell(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the event loop, if it still runs."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function, *arguments)

    def add(self, used: ModelUsage) -> None:
        """Count a model call. Called in the event loop only."""
        self.usage += used

    def fail(self, original: BaseException, failure: WorldAgentError) -> None:
        """End the run with an error. The first one counts."""
        with self._lock:
            if self.failure is None:
                self.failure, self.original = failure, original
        self._stopped = True

    def stop(self) -> None:
        """End the run: calls that wait are cancelled, and each further step of the thread ends it."""
        self._stopped = True
        with self._lock:
            calls = tuple(self._calls)
        for call in calls:
            call.cancel()

    def check(self) -> None:
        """End the calling thread if the run has ended."""
        if self._stopped:
            raise Stopped

    def wait(self, call: Any) -> Any:
        """Make a call in the event loop and wait for it."""
        future = asyncio.run_coroutine_threadsafe(call, self.loop)
        with self._lock:
            self._calls.add(future)
        try:
            if self._stopped:
                future.cancel()
            return future.result()
        except CancelledError:
            pass
        finally:
            with self._lock:
                self._calls.discard(future)
        raise Stopped


class _Reader(BaseCallback):
    """Counts the answers that predictors get, and those that they cannot read."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._calls: set[str] = set()

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Take note of a predictor's call. dspy makes its model call in the same thread."""
        if isinstance(instance, dspy.Predict):
            self._calls.add(call_id)
            self._run.last.engine = None

    def on_module_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """Count its answer, if there was one."""
        if call_id not in self._calls:
            return
        self._calls.discard(call_id)
        engine = self._run.last.engine
        if engine is not None and (exception is None or isinstance(exception, Exception)):
            self._run.answered(engine, readable=exception is None)


class _ThreadEngine:
    """The engine of a model for threads. It does in the event loop what a call of the agent does."""

    def __init__(self, run: _Run, caller: ModelCaller, taught: bool) -> None:
        self._run, self._caller = run, caller
        self.model, self.taught = caller.connection.name, taught
        setting, known = caller.options.tools, caller.connection.learned.takes_tools
        self.supports_function_calling = setting == "native" or (setting == "auto" and known is not False)
        self._answered = False

    def complete(self, request: Request) -> Response:
        """Make one call.

        Raises:
            Stopped: The run has ended, or ends because the model cannot be called.
        """
        self._run.check()
        outcome, original = self._run.wait(self._outcome(request))
        if isinstance(outcome, Response | OutputInvalid):
            self._run.last.engine = self
        if isinstance(outcome, Response):
            self._answered = True
            return outcome
        # A prompt that the model does not take counts as a failed example. If it takes none, the reason is another one.
        if isinstance(outcome, OutputInvalid) or (
            self._answered and isinstance(outcome, ContextExceeded | ModelRefused)
        ):
            raise outcome
        self._run.fail(original, outcome)
        raise Stopped

    async def _outcome(self, request: Request) -> tuple[Response | WorldAgentError, BaseException | None]:
        original: list[BaseException] = []
        try:
            return await with_retries(lambda left: self._sent(request, original, left), self._caller.options), None
        except WorldAgentError as error:
            return error, original[-1] if original else error

    async def _sent(self, request: Request, original: list[BaseException], left: float) -> Response:
        caller, connection = self._caller, self._caller.connection
        options, tracker = caller.options, CostTracker()
        failure: WorldAgentError | None = None
        context = dspy.context(usage_tracker=tracker, disable_history=True, callbacks=[], send_stream=None)
        async with connection.pace.place(left, backoff=options.backoff, model=connection.name):
            try:
                with context, sending(caller.headers):
                    async with asyncio.timeout(left):
                        response: Response = await connection.lm.acall(request, cache=False)
                        return response
            except Exception as error:  # every failure of a model gets its type
                original.append(error)
                failure = classify(error, model=connection.name)
            finally:
                used = tracker.used()
                if used is not None:
                    self._run.add(used)
            raise failure
