"""What a run of an eval found, the files that keep runs, and how two runs differ. No role is in any of them."""

from __future__ import annotations

import re
import secrets
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, computed_field

from ...core import ModelUsage
from ...core.errors import EvalInvalid, InvalidArgument
from ...core.files import read_limited, replace_file, storage_errors
from ...harness.trace import Flow

_MAX_BYTES: Final = 1 << 28  # of a file of a run
_MAX_SHOWN: Final = 10  # cases that a failed assertion lists
_OTHER_HOME: Final = "make the folder writable, free space, or give another --home"
_SUFFIX: Final = ".json"
_RUN_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_EQUAL: Final = 1e-9  # two scores that differ by less are the same


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class EvalError(_Part):
    """Why an attempt has no answer or no score.

    Attributes:
        source: What failed: the turn, or the metric.
        code: The code of the error.
        message: Its text, without a role.
    """

    source: Literal["turn", "metric"]
    code: str
    message: str


class EvalAttempt(_Part):
    """One turn of a case.

    Attributes:
        repeat: Which repeat it belongs to, from 1.
        score: From 0 to 1; 0 if there is an error.
        reply: The text of the answer.
        error: Why there is no answer or no score; None if there are both.
        feedback: What the metric said besides.
        calls: The functions, workers and shapes that ran, in order.
        refused: Those that were refused.
        flows: Which values reached which arguments and the answer, as in a trace. It has no values.
        usage: Tokens and cost of its model calls.
        seconds: How long the turn took.
        turn: The id of the turn; empty if it did not begin.
        thread: The id of its thread.
    """

    repeat: int
    score: float
    reply: str = ""
    error: EvalError | None = None
    feedback: str = ""
    calls: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    flows: tuple[Flow, ...] = ()
    usage: ModelUsage = ModelUsage()
    seconds: float = 0.0
    turn: str = ""
    thread: str = ""


class EvalResult(_Part):
    """The attempts of a case.

    Attributes:
        id: The id of the case.
        message: Its message.
        expected: What the answer should be.
        role: The keyed digest of its role, with the id of the key; None without a role.
        metric: The name of its metric.
        tags: Its tags.
        attempts: What its turns gave; empty if the run ended before.
    """

    id: str
    message: str
    expected: Any = None
    role: str | None = None
    metric: str = ""
    tags: tuple[str, ...] = ()
    attempts: tuple[EvalAttempt, ...] = ()

    @computed_field  # type: ignore[prop-decorator]  # as pydantic documents it
    @property
    def score(self) -> float | None:
        """The mean score of the attempts; None if there are none."""
        return _mean([each.score for each in self.attempts])

    @property
    def usage(self) -> ModelUsage:
        """The usage of all attempts."""
        return sum((each.usage for each in self.attempts), ModelUsage())


class EvalRun(_Part):
    """A run of cases against an agent.

    Attributes:
        version: The version of the format of its file.
        id: Its id, which is the name of its file.
        began: When it began.
        seconds: How long it took.
        source: The file of the cases; empty if they are not of a file.
        repeats: How often each case was to be run.
        complete: Whether all attempts ended; False if the run was interrupted.
        models: The models that were called.
        results: The results, in the order of the cases.
    """

    version: Literal[1] = 1
    id: str
    began: datetime
    seconds: float = 0.0
    source: str = ""
    repeats: int = 1
    complete: bool = True
    models: tuple[str, ...] = ()
    results: tuple[EvalResult, ...] = Field(default=())

    @computed_field  # type: ignore[prop-decorator]  # as pydantic documents it
    @property
    def score(self) -> float | None:
        """The mean of the scores of the cases; None if none has ended."""
        return _mean([each.score for each in self.results if each.score is not None])

    @computed_field  # type: ignore[prop-decorator]  # as pydantic documents it
    @property
    def scores(self) -> tuple[float, ...]:
        """The mean score of each repeat."""
        by_repeat: dict[int, list[float]] = {}
        for each in self.attempts:
            by_repeat.setdefault(each.repeat, []).append(each.score)
        return tuple(statistics.fmean(by_repeat[number]) for number in sorted(by_repeat))

    @computed_field  # type: ignore[prop-decorator]  # as pydantic documents it
    @property
    def deviation(self) -> float | None:
        """The standard deviation of `scores`: what a second run differs by if nothing has changed. None for one."""
        return statistics.stdev(self.scores) if len(self.scores) > 1 else None

    @computed_field  # type: ignore[prop-decorator]  # as pydantic documents it
    @property
    def usage(self) -> ModelUsage:
        """The usage of all attempts."""
        return sum((each.usage for each in self.attempts), ModelUsage())

    @property
    def attempts(self) -> tuple[EvalAttempt, ...]:
        """All attempts."""
        return tuple(attempt for each in self.results for attempt in each.attempts)

    def errors(self, source: Literal["turn", "metric"]) -> tuple[EvalError, ...]:
        """The errors of turns, or of the metric."""
        return tuple(each.error for each in self.attempts if each.error is not None and each.error.source == source)

    def assert_score(self, bound: float) -> None:
        """Check that the score is not under a bound, and that no metric failed.

        Args:
            bound: From 0 to 1.

        Raises:
            AssertionError: It is, or one did; the text lists the cases with the lowest scores.
        """
        problem = ""
        if self.score is None or self.score < bound:
            problem = f"the score {_number(self.score)} is under {bound:g}"
        if failed := self.errors("metric"):
            problem = f"the metric failed for {len(failed)} of {len(self.attempts)} answers: {failed[0].message}"
        if problem:
            low = sorted(self.results, key=lambda each: each.score if each.score is not None else -1)
            low = [each for each in low if each.score != 1][:_MAX_SHOWN]
            raise AssertionError("\n".join([problem, *(f"  {_line(each)}" for each in low)]))


def _line(result: EvalResult) -> str:
    last = min(result.attempts, key=lambda each: each.score, default=None)
    if last is None:
        return f"{result.id}: not run"
    said = f"{last.error.code}: {last.error.message}" if last.error is not None else f"answered {last.reply[:200]!r}"
    wanted = "" if result.expected is None else f", expected {result.expected!r}"
    return f"{result.id}: {_number(result.score)}, {said}{wanted}"


def _number(score: float | None) -> str:
    return "(none)" if score is None else f"{score:.3f}"


def _mean(scores: Sequence[float]) -> float | None:
    return statistics.fmean(scores) if scores else None


# --- the files of runs ------------------------------------------------------------------------------------------------


def new_run_id(began: datetime) -> str:
    """An id for a run that has no name: when it began, and some random characters."""
    return f"{began:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def run_file(folder: Path, run_id: str) -> Path:
    """The file of a run.

    Raises:
        InvalidArgument: The id is invalid.
    """
    if not _RUN_ID.fullmatch(run_id) or run_id.endswith(_SUFFIX):
        raise InvalidArgument(
            f"the id of a run must be 1 to 64 letters, digits, '_', '.' and '-', got {run_id[:80]!r}",
            remedy="give for example --name before",
        )
    return folder / f"{run_id}{_SUFFIX}"


def make_folder(folder: Path) -> Path:
    """Make the folder of the runs if it is missing, and check that files can be written there.

    Raises:
        StorageUnavailable: They cannot.
    """
    with storage_errors(f"runs cannot be kept in {str(folder)!r}", remedy=_OTHER_HOME):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            return folder


def keep_run(folder: Path, run: EvalRun) -> Path:
    """Write the file of a run, which only its owner can read.

    Args:
        folder: The folder.
        run: The run.

    Raises:
        EvalInvalid: There is a run with this id.
        StorageUnavailable: It cannot be written.
    """
    file, there = run_file(folder, run.id), False
    with storage_errors(f"the run {run.id!r} cannot be kept in {str(folder)!r}", remedy=_OTHER_HOME):
        try:
            replace_file(file, run.model_dump_json(indent=1).encode(), replace=False)
        except FileExistsError:
            there = True
    if there:
        raise already_kept(run.id)
    return file


def already_kept(run_id: str) -> EvalInvalid:
    """The error for a run whose id another one has."""
    return EvalInvalid(
        f"there is a run {run_id!r} already", remedy=f"give another --name, or remove it: worldagent evals rm {run_id}"
    )


def find_run(folder: Path, name: str) -> EvalRun:
    """Read a run.

    Args:
        folder: The folder of the runs.
        name: The id of a run in the folder, or the path of a file that ends with `.json`.

    Raises:
        EvalInvalid: There is no such run, or its file cannot be read.
        InvalidArgument: The id is invalid.
    """
    if name.endswith(_SUFFIX):
        return _read(Path(name))
    file = run_file(folder, name)
    if not file.exists():
        raise _unknown(folder, name)
    return _read(file)


def _unknown(folder: Path, name: str) -> EvalInvalid:
    return EvalInvalid(f"there is no run {name!r} in {str(folder)!r}", remedy="see worldagent evals list")


def newest_run(folder: Path) -> EvalRun:
    """Read the newest run of a folder. Files that cannot be read are skipped.

    Raises:
        EvalInvalid: There is none.
    """
    for run in list_runs(folder):
        if isinstance(run, EvalRun):
            return run
    raise EvalInvalid(f"there are no runs in {str(folder)!r}", remedy="run worldagent eval first, or name --home")


def remove_run(folder: Path, run_id: str) -> None:
    """Remove a run.

    Raises:
        EvalInvalid: There is no such run.
        InvalidArgument: The id is invalid.
        StorageUnavailable: It cannot be removed.
    """
    file = run_file(folder, run_id)
    with storage_errors(f"the run {run_id!r} cannot be removed", remedy="make its folder writable"):
        if file.exists():
            file.unlink()
            return
    raise _unknown(folder, run_id)


def list_runs(folder: Path) -> Iterator[EvalRun | EvalInvalid]:
    """Give the runs of a folder, the newest first, and an error for each file that cannot be read."""
    found: list[EvalRun] = []
    for file in sorted(folder.glob(f"*{_SUFFIX}")):
        try:
            found.append(_read(file))
        except EvalInvalid as error:
            yield error
    yield from sorted(found, key=lambda each: each.began, reverse=True)


def _read(file: Path) -> EvalRun:
    data = read_limited(file, _MAX_BYTES)
    if isinstance(data, str):
        raise EvalInvalid(f"the run {str(file)!r} cannot be read: {data}", remedy="name the file of a run")
    try:
        return EvalRun.model_validate_json(data)
    except ValidationError:
        pass
    raise EvalInvalid(
        f"{str(file)!r} is not a run that this version can read", remedy="run the eval again, and remove the file"
    )


# --- two runs ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseChange:
    """How a case did in two runs.

    Attributes:
        id: The id of the case.
        before: Its score before; None if it was not run.
        after: Its score after; None if it was not run.
        edited: Whether its message, what is expected, its role or its metric differ, so that the scores do not
            compare.
    """

    id: str
    before: float | None
    after: float | None
    edited: bool = False

    @property
    def difference(self) -> float | None:
        """After less before; None if it is not in both runs."""
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def mark(self) -> Literal["worse", "better", "same", "new", "gone"]:
        """How its score compares with that of the run before."""
        if self.after is None:
            return "gone"
        if self.before is None:
            return "new"
        change = self.after - self.before
        return "same" if abs(change) < _EQUAL else "worse" if change < 0 else "better"


def compare_runs(before: EvalRun, after: EvalRun) -> list[CaseChange]:
    """Compare two runs, case by case: what got worse first, by how much."""
    old, new = ({each.id: each for each in run.results if each.attempts} for run in (before, after))
    found = [
        CaseChange(
            id=name,
            before=old[name].score if name in old else None,
            after=new[name].score if name in new else None,
            edited=name in old and name in new and _edited(old[name], new[name]),
        )
        for name in {**old, **new}
    ]
    return sorted(found, key=lambda each: each.difference if each.difference is not None else 0.0)


def _edited(before: EvalResult, after: EvalResult) -> bool:
    roles = [None if each.role is None else each.role.partition(".") for each in (before, after)]
    one, other = roles
    # Digests that different keys made cannot be compared.
    changed = (one is None) != (other is None) if one is None or other is None else one[0] == other[0] and one != other
    return changed or any(getattr(before, name) != getattr(after, name) for name in ("message", "expected", "metric"))
