"""An app whose model is as good as its program: it squares numbers if an example or its instructions show how."""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import dspy
from pydantic import BaseModel

from worldagent import Shape, WorldAgent
from worldagent.graphs import TaskContext
from worldagent.testing import ScriptedCall, ScriptedLM

HINT = "SQUARE IT."
EASY = 5  # the model squares such numbers without help
_PROPOSED = ("observations", "summary", "program_description", "module_description", "proposed_instruction")


class Square(dspy.Signature):
    """Say something about the number."""

    number: str = dspy.InputField()
    answer: str = dspy.OutputField()


class Number(BaseModel):
    number: str


class Said(BaseModel):
    answer: str


def skill(call: ScriptedCall) -> dict[str, Any] | str:
    """What the model answers: as a teacher an instruction, else the square or nothing of use."""
    if "new_instruction" in call.text:
        return json.dumps({"new_instruction": f"Answer. {HINT}"})  # GEPA asks with dspy's JSON adapter
    fields = call.fields
    if not {"message", "number"} & set(fields):  # MIPRO asks about the examples and the program
        return dict.fromkeys(_PROPOSED, f"Answer. {HINT}")
    [number] = re.findall(r"\d+", fields.get("number") or fields["message"])
    shown = any(speaker == "assistant" for speaker, _ in call.messages) or HINT in call.system
    answer = str(int(number) ** 2) if shown or int(number) % EASY == 0 else "A fine number."
    return {"answer" if "number" in fields else "reply": answer}


async def _square(params: Number, ctx: TaskContext) -> Said:
    return Said(answer=(await ctx.predict(Square, number=params.number))["answer"])


LM = ScriptedLM(skill)
"""The model of every agent here, with the calls that it got."""


def parts(lm: ScriptedLM = LM) -> dict[str, Any]:
    """The model and the shape."""
    return {"lm": lm, "shapes": [Shape("square", Number, Said, _square, entry=Square)]}


def agent() -> WorldAgent:
    """Make the agent."""
    return WorldAgent("sums", **parts())


def _muttered(call: ScriptedCall) -> dict[str, Any] | str:
    return "" if "new_instruction" in call.text or call.fields["number"] in ("7", "8", "9") else skill(call)


def muttering() -> WorldAgent:
    """Make an agent whose model cannot be read as a teacher, and about some numbers."""
    return WorldAgent("sums", **parts(ScriptedLM(_muttered)))


async def _never_answers(call: ScriptedCall) -> str:
    sys.stderr.write("asked\n")
    await asyncio.Event().wait()
    raise AssertionError


def silent() -> WorldAgent:
    """Make an agent whose model never answers."""
    return WorldAgent("sums", lm=ScriptedLM(_never_answers))


def write_examples(file: Path, name: str, count: int = 20, **more: Any) -> Path:
    """Write examples of one Signature, with other fields that should have no effect."""
    asked, given = ("message", "reply") if name == "Converse" else ("number", "answer")
    rows = [{asked: f"{number}", given: str(number**2), **more} for number in range(1, count + 1)]
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return file


# --- metrics ----------------------------------------------------------------------------------------------------------


def exact(example: Any, prediction: Any, trace: Any = None) -> bool:
    """Whether the answer is the expected one."""
    field = "reply" if "reply" in example else "answer"
    return bool(example[field] == getattr(prediction, field))


def square(example: Any, prediction: Any) -> bool:
    """Whether the answer is the square, whatever the example says."""
    return bool(prediction.reply == str(int(example.message) ** 2))


def with_feedback(example: Any, prediction: Any, trace: Any, predictor: Any, its_trace: Any) -> Any:
    """The same with a text for the teacher."""
    return dspy.Prediction(score=float(exact(example, prediction)), feedback="It must be the square.")


def raising(example: Any, prediction: Any) -> float:
    raise ValueError(f"secret {example}")


def text(example: Any, prediction: Any) -> str:
    return "good"


def configuring(example: Any, prediction: Any) -> float:
    dspy.configure(max_history_size=7)
    return 1.0


def never(example: Any, prediction: Any) -> float:
    return 0.0


def always(example: Any, prediction: Any) -> float:
    return 1.0


def one_argument(example: Any) -> float:
    return 1.0


async def awaited(example: Any, prediction: Any) -> float:
    return 1.0


number = 3
