"""Readers: a model without tools and without a role answers what a guarded model asks about a text (H11).

Code checks the answer, so that it carries no more than its kind can. The journal keeps it, so that a replay asks nobody
again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from ...core.errors import MissingExtra, OutputInvalid
from ...harness import Function
from ...harness.function import READ_ONLY, undispatched
from ...harness.handles import AnswerUnfit, Expression, Question, Resolved
from ...harness.journal import SUSPENDED, Step
from ...signatures.signature import READ
from ..context import TurnContext

_TRIES: Final = 2

READER: Final = READ.__name__
"""The name of the journal's records of answers."""


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")

    question: str = Field(description="what is wanted")
    of: list[str] = Field(description="the parts to read, such as r1[0].body", min_length=1)
    kind: Any = Field(alias="as", description="what the answer is, as in a handle")


ASKING: Final = Function(
    "ask",
    undispatched,
    _Asked,
    TypeAdapter(Any),
    "Ask a reader about parts of results that are held back. You see a bool and a choice of words; anything else is "
    "held back too.",
    risk=READ_ONLY,
)
"""The tool by which a guarded model asks before it goes on."""


async def answer_of(turn: TurnContext, question: Question | Expression, *, path: str, parent: str) -> Resolved | None:
    """The answer of a reader, or the value of an expression, with its label; None if the turn has to stop.

    Args:
        turn: The turn.
        question: The question.
        path: The path id of the answer in the journal.
        parent: The path id of the loop that asks.

    Raises:
        OutputInvalid: The reader gave nothing of the kind that was asked for, the expression has no value, or the
            sandbox is not installed.
        HostError: The model failed.
    """
    if isinstance(question, Expression):
        return await _value_of(turn, question, path=path, parent=parent)
    parts = [part.value for part in question.parts]
    inputs = {
        "question": question.text,
        "form": question.form,
        "parts": json.dumps(parts, ensure_ascii=False, sort_keys=True),
    }

    async def ask(_: Any) -> Any:
        for _ in range(_TRIES):
            fields = await turn.ask_without_role(READ, inputs, model=turn.services.options.reader)
            said = str(fields["answer"])
            try:
                question.read(said)
            except AnswerUnfit:
                continue
            return {"answer": said}
        raise OutputInvalid(
            "a reader gave nothing of the kind that was asked for", remedy="ask for another kind, or for other parts"
        )

    step = Step(id=path, parent=parent, name=READER, kind="model", input=inputs, body=ask)
    kept: Any = await turn.drive.run(step)
    return None if kept is SUSPENDED else question.read(str(kept["answer"]))


async def _value_of(turn: TurnContext, expression: Expression, *, path: str, parent: str) -> Resolved | None:
    from ..shapes.sandbox import Program, SandboxLimits, check_installed, run_program

    async def none(*_: Any) -> Any:
        raise AssertionError("an expression has no functions")

    async def run(_: Any) -> Any:
        try:
            check_installed()
        except MissingExtra as error:
            raise OutputInvalid("expressions cannot run here", remedy=error.remedy) from None
        code = f"value = (\n{expression.code}\n)"
        program = Program(code=code, inputs=expression.inputs, at=turn.drive.now(), seed=path)
        made = await run_program(program, none, SandboxLimits())
        if "value" in made.variables:
            return {"answer": made.variables["value"]}
        # What it says can be a stranger's.
        raise OutputInvalid("an expression of a handle failed", remedy="correct it; it sees the parts as x, y and z")

    inputs = {"code": expression.code, "parts": expression.inputs}
    step = Step(id=path, parent=parent, name=READER, kind="model", input=inputs, body=run)
    kept: Any = await turn.drive.run(step)
    return None if kept is SUSPENDED else expression.read(kept["answer"])


def question_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `ask` as a handle."""
    return {"$ask": arguments["question"], "of": arguments["of"], "as": arguments["as"]}
