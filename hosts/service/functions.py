"""The call that lists what an agent can call: its records, and what it does (H9)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ...agent import WorldAgent
from ...core.events import Risk
from ...harness import CONVERSATION, Function, Policy
from ...harness.function import FunctionKind
from ...harness.gate import Caller, Decision, Gate
from .arguments import WorkspaceArguments
from .call import Call
from .members import society_of
from .operation import is_owner, operation
from .records import Answer
from .validation import Wire

_ASKED = Caller(CONVERSATION, model_influenced=True)


class FunctionRecord(Wire):
    """A function, a worker or a shape."""

    name: str
    title: str = Field(description="its name for people; empty is none")
    description: str
    kind: FunctionKind = Field(
        description="`leaf` and `flow` are functions of code, a `worker` is a model with its instructions, a `shape` a "
        "kind of work"
    )
    risk: list[Risk] = Field(description="what it does to the world")
    decision: Decision | Literal["depends"] = Field(
        description="what the policy decides about a call by the conversation that no untrusted result has influenced: "
        "`ask` requires approval; `depends` on its arguments"
    )
    untrusted: bool = Field(description="whether its result can have text by strangers")
    capabilities: list[str] = Field(description="words for what it is good for")
    offered: bool = Field(description="whether the conversation can call it; others are called by workers and code")


class FunctionListAnswer(Answer):
    """Answer of `function_list`."""

    functions: list[FunctionRecord] = Field(description="by name")


@operation(
    "List functions",
    "What the conversation can call, with its risk and whether the policy asks for approval. Operators, and the "
    "owner of a workspace with members, also see what workers alone can call.",
)
async def function_list(call: Call[WorkspaceArguments], agent: WorldAgent) -> FunctionListAnswer:
    """Return what the conversation can call, and for the owner of the workspace and operators everything else, too.

    The workers of members are among the rest, and only the owner and operators see members.
    """
    society = society_of(agent)
    everything = call.caller.grant.operator or (society is not None and is_owner(call, society))
    found = [each for each in agent.functions if each.offered or everything]
    return FunctionListAnswer(functions=[_record(each, agent.policy) for each in sorted(found, key=_name)])


def _name(function: Function) -> str:
    return function.name


def _record(function: Function, policy: Policy) -> FunctionRecord:
    return FunctionRecord(
        name=function.name,
        title=function.title,
        description=function.description,
        kind=function.kind,
        risk=list(function.risk),
        decision=_decision(function, policy),
        untrusted=function.untrusted,
        capabilities=list(function.capabilities),
        offered=function.offered,
    )


def _decision(function: Function, policy: Policy) -> Decision | Literal["depends"]:
    """What the gate decides about calls of a function by the conversation, as far as it does not need one to say so."""
    found: set[Decision] = {Gate(policy).decide(function, {}, _ASKED).decision}
    for rule in policy.rules:
        if rule.after or not rule.about(function.name, function.risk, CONVERSATION):
            continue
        if not rule.arguments:
            break  # it decides about all calls that no rule before it matches
        confirmed = rule.decision == "approve" and (function.approval or "destructive" in function.risk)
        found.add("ask" if confirmed else rule.decision)
    return found.pop() if len(found) == 1 else "depends"
