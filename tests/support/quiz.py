"""An app for evals, `--app support.quiz:agent`: a model that knows two capitals, and a tool that requires an approval.

Its metrics can be named as `support.quiz:brief`.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import dspy

from support.agents import calls
from worldagent import Storage, WorldAgent, tool
from worldagent.testing import EvalAnswer, EvalCase, ScriptedCall, ScriptedLM

CAPITALS = {"France": "Paris", "Spain": "Madrid"}


@tool(approval=True)
async def pay(what: str) -> str:
    """Pay for something."""
    return f"paid for the {what}"


@tool(risk="read_only")
async def look(what: str) -> str:
    """Look something up."""
    return f"found {what}"


def answer(call: ScriptedCall) -> Any:
    """What the model answers: a capital that it knows, a call on request, and an error if it should fail."""
    message = call.fields["message"]
    if "Fail" in message:
        return RuntimeError("secret")
    if "Buy" in message:
        return {"reply": "Could not." if call.steps else "", **({} if call.steps else calls(("pay", {"what": "tea"})))}
    if "Look" in message:
        return {"reply": "Found." if call.steps else "", **({} if call.steps else calls(("look", {"what": "tea"})))}
    found = [capital for land, capital in CAPITALS.items() if land in message]
    reply = found[0] if found else "I do not know"
    return {"reply": f"{reply}." if call.role is None else f"Arr, {reply}!", "calls": []}


def agent() -> WorldAgent:
    """Make the agent."""
    return WorldAgent("quiz", lm=ScriptedLM(answer), tools=[pay, look])


def with_home() -> WorldAgent:
    """Make one that has a home of its own."""
    home = Path(os.environ["QUIZ_HOME"])
    return WorldAgent("quiz", lm=ScriptedLM(answer), storage=Storage(home=home), tools=[pay, look])


async def _answers_the_first(call: ScriptedCall) -> Any:
    if "France" in call.fields["message"]:
        return answer(call)
    sys.stderr.write("asked\n")
    await asyncio.Event().wait()
    raise AssertionError


def stuck() -> WorldAgent:
    """Make an agent whose model answers only about France."""
    return WorldAgent("quiz", lm=ScriptedLM(_answers_the_first))


def write_cases(file: Path, *cases: dict[str, Any]) -> Path:
    """Write cases as JSON Lines."""
    file.write_text("".join(f"{json.dumps(case)}\n" for case in cases), encoding="utf-8")
    return file


# --- metrics ----------------------------------------------------------------------------------------------------------


def brief(case: EvalCase, answer: EvalAnswer) -> bool:
    """Whether the answer has at most two words."""
    return len(answer.reply.split()) <= 2


async def half(case: EvalCase, answer: EvalAnswer) -> float:
    """Half of the score of `exact`, in a coroutine."""
    await asyncio.sleep(0)
    return 0.5 if case.expected in answer.reply else 0.0


def with_feedback(example: Any, prediction: Any, trace: Any, predictor: Any, its_trace: Any) -> Any:
    """A metric for GEPA."""
    return dspy.Prediction(score=float(example.reply in prediction.reply), feedback="It must be the capital.")


def no_role(case: EvalCase, answer: EvalAnswer) -> bool:
    """Whether the case that a metric gets is without its role."""
    return case.role is None


def raising(case: EvalCase, answer: EvalAnswer) -> bool:
    raise ValueError(f"secret {answer.reply}")


def leaving(case: EvalCase, answer: EvalAnswer) -> bool:
    raise SystemExit(3)


def too_much(case: EvalCase, answer: EvalAnswer) -> float:
    return 5.0


def text(case: EvalCase, answer: EvalAnswer) -> str:
    return "good"
