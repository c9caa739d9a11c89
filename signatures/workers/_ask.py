"""One step of a worker: what its model wants to call, or its result. Nothing is checked or carried out here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dspy

from ...role_resolution import NO_ROLE, ResolvedRole
from .._adapter import TOOLS, Past
from .._pool import PredictorPool
from .._predictor import Listener, ModelCaller
from ._signatures import CALLS, RESULT, ToolCall, WorkerSignatures


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """What a model gave at one step.

    Attributes:
        calls: The names and arguments of what it wants to call.
        result: Its result where it wants no calls: a text, or JSON where the worker declares another output.
    """

    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    result: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a worker's model is asked at one step. It holds the role, and lives as long as the step.

    Attributes:
        signatures: The worker's.
        inputs: Its params as JSON.
        role: The task's resolved role.
        prompt: A skill's, added to the instructions.
        past: What it called and what came of it, and what was wrong with its last answer.
        direct: Answer now; no tools are offered.
    """

    signatures: WorkerSignatures
    inputs: Mapping[str, Any]
    role: ResolvedRole = NO_ROLE
    prompt: str | None = None
    past: Sequence[Past] = ()
    direct: bool = False


async def ask(question: Question, caller: ModelCaller, *, pool: PredictorPool, listener: Listener) -> Thought:
    """Let a worker's model think once.

    Args:
        question: What it is asked.
        caller: Model, adapter and options.
        pool: Where its predictors are.
        listener: Who hears of tokens.

    Raises:
        OutputInvalid: The completion cannot be read.
        RoleEchoed, HostError: See `Predictor`.
    """
    signatures = question.signatures
    signature, given = signatures.answer, dict(question.inputs)
    if signatures.calls is not None and signatures.native is not None and not question.direct:
        signature = signatures.native if caller.native_tools else signatures.calls
        if signature is signatures.native:
            given[TOOLS] = list(signatures.offered)
    predictor = pool.get(signature, question.prompt)
    answer = await predictor(given, caller, role=question.role, past=question.past, listener=listener)
    asked = answer.fields.get(CALLS) or ()
    if isinstance(asked, dspy.ToolCalls):
        calls = [(signatures.names.get(each.name, each.name), dict(each.args)) for each in asked.tool_calls]
    else:
        calls = [(each.tool.strip(), dict(each.arguments)) for each in asked if isinstance(each, ToolCall)]
    return Thought(calls=tuple(calls), result=answer.fields.get(RESULT))


__all__ = ["Question", "Thought", "ask"]
