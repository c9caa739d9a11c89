"""The command `optimise`: makes a better program for one Signature with an optimizer of dspy, and saves it."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

import typer

from .command import DEBUG, Work, bad_usage, command, confirm, print_raised
from .exits import DONE, FAILED
from .options import JSON_RESULT, AgentOptions, option_group
from .output import Output, tokens_text

if TYPE_CHECKING:
    from ...agent import WorldAgent
    from ...agent.optimising import Training
    from ...core import ModelUsage
    from ...signatures.optimising import Optimised, Progress

_METRIC: Final = "name a function metric(example, prediction) as MODULE:FUNCTION, such as scores:exact"
_NOTE_SECONDS: Final = 5.0  # between two notes about one stage
_STAGES: Final = {"before": "score before", "optimising": "optimising", "after": "score after"}

app = typer.Typer()


@option_group
class OptimiseOptions(AgentOptions):
    """The options of `optimise`.

    Attributes:
        signature (SIGNATURE): The Signature: Converse for the conversation, a worker's name, or a shape's Signature.
        examples (--examples FILE; Training): The examples, one JSON object per line with the fields of the Signature,
            such as message and reply. offered_tools and history can be left out. Default: the turns that the setting
            examples has kept.
        metric (--metric MODULE:FUNCTION; Training): A function that takes an example and a prediction and returns a
            number, higher for better. Modules of the current folder can be named.
        optimizer (--optimizer gepa|mipro|bootstrap; Training): The optimizer of dspy: gepa rewrites the instructions,
            bootstrap adds demonstrations, mipro does both.
        budget (--budget light|medium|heavy|N; Training): How much it tries. N is a number of scored predictions (gepa),
            trials (mipro) or demonstrations (bootstrap). With 20 examples, light costs about 500 model calls (gepa),
            160 (mipro) or 26 (bootstrap).
        teacher (--teacher MODEL; Training): The model that reflects on failures, proposes instructions or makes
            demonstrations. Default: the agent's.
        held_out (--held-out SHARE; Training): The share of the examples that only the scores before and after use.
        seed (--seed N; Training): The seed of the split and of the optimizer.
        out (--out FILE; Training): Where to save the program. Default: SIGNATURE.json.
        yes (--yes; Training): Overwrite the file without asking.
    """

    signature: str
    examples: Path | None = None
    metric: str
    optimizer: str = "gepa"
    budget: str = "light"
    teacher: str | None = None
    held_out: float = 0.3
    seed: int = 0
    out: Path | None = None
    yes: bool = False
    role: str | None = typer.Option(None, metavar="TEXT", hidden=True)
    json: bool = JSON_RESULT
    verbose: bool = typer.Option(False, "--verbose", "-v", hidden=True)


@command(app, panel="Configuration")
def optimise(options: OptimiseOptions, output: Output) -> Work:
    """Optimise the program of a Signature on examples, and save it if it is better.

    It calls the agent's model many times, without a role: one program serves every role. Examples that are held out are
    scored before and after. If the score is not higher, nothing is saved and the exit code is 1. Progress is printed on
    stderr. Use the file with WorldAgent(programs=...) or agent.use_program(...).

    [bold]Examples[/bold]

      worldagent optimise Converse --examples talks.jsonl --metric scores:exact --lm openai/gpt-4o-mini

      worldagent optimise critic --app shop:agent --metric scores:fair --optimizer bootstrap

      worldagent optimise Converse --examples talks.jsonl --metric scores:exact --teacher openai/gpt-4o --budget heavy
    """
    if options.role is not None:
        raise bad_usage("a program is optimised without a role, because it serves every role", remedy="omit --role")
    os.environ.setdefault("TQDM_DISABLE", "1")  # the optimizers draw bars on stderr too
    from ...agent.optimising import check_target
    from .agents import open_agent

    training = _training(options)
    file = check_target((options.out or Path(f"{options.signature}.json")).expanduser())
    if file.exists():
        confirm(
            output,
            options.yes,
            f"If the program is better, overwrite {str(file)!r}?",
            problem=f"the file {str(file)!r} exists",
            remedy="give another file with --out, or --yes to overwrite it",
            kept="nothing was changed",
        )
    return _optimise(open_agent(options, output), options.signature, training, file, output)


def _training(options: OptimiseOptions) -> Training:
    from ...agent.optimising import Training
    from ...core.naming import named_object
    from ...signatures.optimising import Optimizer, read_budget

    if options.optimizer not in get_args(Optimizer):
        raise bad_usage(
            f"--optimizer {options.optimizer!r} is unknown", remedy=f"give one of {', '.join(get_args(Optimizer))}"
        )
    return Training(
        examples=None if options.examples is None else options.examples.expanduser(),
        metric=named_object(options.metric, option="--metric", remedy=_METRIC),
        metric_name=options.metric,
        optimizer=options.optimizer,  # type: ignore[arg-type]  # one of its values
        budget=read_budget(options.budget),
        teacher=options.teacher,
        held_out=options.held_out,
        seed=options.seed,
        on_metric_error=print_raised if DEBUG.get() else lambda error: None,
    )


async def _optimise(agent: WorldAgent, signature: str, training: Training, file: Path, output: Output) -> int:
    from ...agent.optimising import optimise_program, save_program

    async with agent:
        with redirect_stdout(_Nowhere()):  # the optimizers print, and draw bars
            found = await optimise_program(agent, signature, training, progress=_notes(output))
    if found.better:
        save_program(found.program, file)
    scores = f"{found.before:.3f} before, {found.after:.3f} after"
    spent = f"{_usage_text(found.usage)}{_unreadable_text(found)}"
    output.result(
        {
            "signature": signature,
            "optimizer": training.optimizer,
            "before": found.before,
            "after": found.after,
            "examples": {"train": found.train, "held_out": found.held_out},
            "usage": asdict(found.usage),
            "unreadable": {"program": found.answers.unreadable, "teacher": found.taught.unreadable},
            "saved": found.better,
            "file": str(file) if found.better else None,
        },
        f"{signature}: {scores}; {spent}\nsaved: {file}" if found.better else None,
    )
    if found.better:
        return DONE
    problem = f"the optimised program is not better ({scores}; {spent}), so nothing was saved"
    remedy = "give more examples, a larger --budget, another --optimizer or a stronger --teacher"
    if found.taught.count and found.taught.unreadable == found.taught.count:
        remedy = "use another model as --teacher, since none of its answers could be read"
    if found.perfect:
        problem = f"every held-out example already has the score 1 ({spent}), so there is nothing to improve"
        remedy = "use the program as it is, or give harder examples or a stricter metric"
    output.note(f"error: {problem}\nremedy: {remedy}")
    return FAILED


class _Nowhere(io.TextIOBase):
    """A stream that drops what is written."""

    def write(self, text: str) -> int:
        return len(text)


def _notes(output: Output) -> Callable[[Progress], None]:
    """Notes about the progress of a run: the score of each stage, and now and then how far it is."""
    last = time.monotonic()

    def note(step: Progress) -> None:
        nonlocal last
        over, now = step.score is not None, time.monotonic()
        if not over and now - last < _NOTE_SECONDS:
            return
        last = now
        what = f"{step.score:.3f}" if over else f"{step.scored} predictions scored"
        output.note(f"{_STAGES[step.stage]}: {what}; {_usage_text(step.usage)}{_unreadable_text(step)}")

    return note


def _unreadable_text(run: Progress | Optimised) -> str:
    """How many answers could not be read; empty if all could."""
    return "".join(
        f"; {each.unreadable:,} of {each.count:,} answers of the {who} unreadable"
        for who, each in (("model", run.answers), ("teacher", run.taught))
        if each.unreadable
    )


def _usage_text(usage: ModelUsage) -> str:
    cost = "cost unknown" if usage.cost is None else f"${usage.cost:.4f}"
    return f"{usage.calls:,} calls, {tokens_text(usage.input_tokens, usage.output_tokens)}, {cost}"
