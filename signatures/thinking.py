"""One step of a conversation or of a worker: the calls of its model, or its answer.

This module checks and executes nothing; `graphs` does that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dspy.lm15 import Message

from ..role_resolution import NO_ROLE, ResolvedRole
from .adapter import PastStep, Signature, answer_field
from .calling import CALLS, TOOLS, OfferedTools, ToolCall
from .media import MEDIA_FIELDS
from .pool import PredictorPool
from .predictor import Listener, ModelCaller


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """The result of a model at one step.

    Attributes:
        calls: The names and arguments of the calls that it requests.
        answer: Its answer, or its text next to calls: a text, or JSON if the Signature declares it.
        message: Its own message, for the next step; see `Answer`.
    """

    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    answer: Any = None
    message: Message | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The input of a model at one step. It holds the role, and lives as long as the step.

    Attributes:
        signature: The entry Signature.
        inputs: Its input fields as JSON, and those of `MEDIA_FIELDS`.
        tools: The tools that it can call.
        role: The resolved role.
        prompt: A skill's prompt, added to the instructions.
        steps: The previous steps.
        final: Whether it must answer now.
    """

    signature: Signature
    inputs: Mapping[str, Any]
    tools: OfferedTools = field(default_factory=OfferedTools)
    role: ResolvedRole = NO_ROLE
    prompt: str | None = None
    steps: Sequence[PastStep] = ()
    final: bool = False


async def think(question: Question, caller: ModelCaller, *, pool: PredictorPool, listener: Listener) -> Thought:
    """Let a model think once.

    Args:
        question: The input of the model.
        caller: The model, the adapter and the options.
        pool: Holds its predictors.
        listener: Receives deltas and tokens.

    Raises:
        OutputInvalid: The completion cannot be parsed.
        RoleEchoed, HostError: See `Predictor`.
    """
    signature, inputs = question.signature, dict(question.inputs)
    if question.tools.wire:
        inputs[TOOLS] = question.tools.wire
    media = tuple(name for name in MEDIA_FIELDS if name in inputs and name not in signature.input_fields)
    predictor = pool.get(signature, question.prompt, media)
    answer = await predictor(
        inputs, caller, role=question.role, steps=question.steps, final=question.final, listener=listener
    )
    names = question.tools.names
    asked = [each for each in answer.fields.get(CALLS) or () if isinstance(each, ToolCall)]
    calls = tuple((names.get(each.tool.strip(), each.tool.strip()), dict(each.arguments)) for each in asked)
    given = answer.fields[answer_field(signature) or ""]
    return Thought(calls=() if question.final else calls, answer=given, message=answer.message)


__all__ = ["Question", "Thought", "think"]
