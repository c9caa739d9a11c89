"""Optimises a program of an open agent on its own model (R12). `worldagent optimise` is its command."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import InvalidArgument, StorageUnavailable

if TYPE_CHECKING:
    from ..signatures import Program
    from ..signatures.optimising import Effort, Optimised, Optimizer, Progress
    from .agent import WorldAgent

_MAX_KEPT_EXAMPLES = 10_000  # examples of kept turns, the newest
_KEEP = (
    "run turns with Settings(examples='all'), or 'asked' and example=True, name the --workspace and --home that have "
    "them, or give a file with --examples"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How a program is optimised.

    Attributes:
        metric: Scores a prediction.
        examples: A file of JSON lines, each with the fields of the Signature; None is the turns that the agent kept.
        metric_name: The name of the metric, for errors.
        optimizer: Which optimizer of dspy.
        budget: How much it tries.
        teacher: A model string, or the name of a model of the agent, for a model that reflects or demonstrates.
        held_out: The share of examples that scores are measured with.
        seed: The seed of the split and of the optimizer.
        on_metric_error: Called with what the metric raised. Its message is not part of the error.
    """

    metric: Callable[..., Any]
    examples: Path | None = None
    metric_name: str = "metric"
    optimizer: Optimizer = "gepa"
    budget: Effort | int = "light"
    teacher: str | None = None
    held_out: float = 0.3
    seed: int = 0
    on_metric_error: Callable[[BaseException], None] = lambda error: None


async def optimise_program(
    agent: WorldAgent, signature: str, training: Training, *, progress: Callable[[Progress], None] = lambda step: None
) -> Optimised:
    """Optimise the program of one Signature. The agent keeps its program; see `WorldAgent.use_program`.

    Args:
        agent: The agent, which must be open.
        signature: The name of the Signature.
        training: What to optimise with.
        progress: Called after each scored prediction, and at the end of each stage.

    Raises:
        InvalidArgument: No Signature has the name, or the examples are invalid.
        FunctionInvalid, MissingExtra, HostError: As for `signatures.optimising.optimise`.
        ModelNotConfigured: The teacher cannot be used.
    """
    from ..signatures.optimising import optimise
    from ..signatures.training import read_examples, split_examples

    engine = agent._runner.parts.engine
    program, services = engine.program(signature), engine.services
    if training.examples is None:
        examples: Sequence[Any] = await agent.examples(signature, limit=_MAX_KEPT_EXAMPLES)
        source, remedy = _kept(agent, signature), _KEEP
    else:
        examples = await asyncio.to_thread(read_examples, training.examples, program.signature)
        source, remedy = f"in {str(training.examples)!r}", "write more lines"
    train, held_out = split_examples(
        examples, held_out=training.held_out, seed=training.seed, source=source, remedy=remedy
    )
    teacher = None
    if training.teacher is not None:
        services.models.check(training.teacher, who="the optimizer")
        teacher = await services.models.get(training.teacher)
    return await optimise(
        program,
        services.caller,
        training.metric,
        train=train,
        held_out=held_out,
        optimizer=training.optimizer,
        budget=training.budget,
        teacher=teacher,
        seed=training.seed,
        name=training.metric_name,
        on_metric_error=training.on_metric_error,
        progress=progress,
    )


def _kept(agent: WorldAgent, signature: str) -> str:
    """Where the turns that an agent kept are, for an error."""
    storage = agent.storage
    place = f"the home {str(storage.resolve())!r}" if storage.url is None else "its Postgres database"
    return f"of {signature!r} that the workspace {agent.workspace!r} kept in {place}"


def check_target(file: Path) -> Path:
    """Refuse a file that a program cannot be saved to, before anything is optimised.

    Raises:
        InvalidArgument: Its name does not end with `.json`, or its folder does not exist.
    """
    if file.suffix != ".json" or not file.parent.is_dir() or file.is_dir():
        raise InvalidArgument(
            f"a program cannot be saved to {str(file)!r}",
            remedy="name a file that ends with .json in a folder that exists",
        )
    return file


def save_program(program: Program, file: Path) -> None:
    """Save a program. The file is replaced at once, or stays as it was.

    Raises:
        StorageUnavailable: The file cannot be written.
    """
    problem = ""
    with tempfile.TemporaryDirectory(dir=file.parent, ignore_cleanup_errors=True) as folder:
        made = Path(folder) / file.name
        try:
            program.save(made)
            os.replace(made, file)
        except OSError as error:
            problem = error.strerror or type(error).__name__
    if problem:
        raise StorageUnavailable(
            f"the program cannot be saved to {str(file)!r} ({problem})", remedy="give another file with --out"
        )
