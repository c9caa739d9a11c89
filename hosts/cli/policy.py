"""The command `policy check`: whether a policy can be read, what its rules are about, and what they also approve."""

from __future__ import annotations

import json
from collections.abc import Coroutine, Sequence
from dataclasses import asdict
from typing import Any

from ...harness import Function, Policy
from ...harness.gate import Rule, surprises
from ._approvals_options import PolicyCheckOptions
from .options import AgentOptions
from .output import Output
from .session import open_agent, run
from .sources import policy


def check_policy(options: PolicyCheckOptions) -> int:
    """Run the command and return its exit code."""
    output = Output.of(json=options.json)

    def begin() -> Coroutine[Any, Any, None]:
        read = policy(options.file)
        assert read is not None, "a file is named"
        return _check(options, output, read)

    return run(output, begin)


async def _check(options: PolicyCheckOptions, output: Output, read: Policy) -> None:
    functions: Sequence[Function] | None = None
    if options.app is not None:
        async with open_agent(AgentOptions(app=options.app), output) as agent:
            functions = agent.functions
        read.check(functions)
    rules = [_told(rule, functions) for rule in read.rules]
    for rule, told in zip(read.rules, rules, strict=True):
        if told["matches"] == [] and not rule.optional:
            output.note(f"the rule {rule.name!r} matches nothing that there is")
    found = {"file": str(options.file), "default": read.default, "rules": rules}
    count = "1 rule" if len(rules) == 1 else f"{len(rules)} rules"
    lines = [f"{options.file}: {count}; where none matches: {read.default}", *map(_line, rules)]
    output.result({"policy": found}, "\n".join(lines))


def _told(rule: Rule, functions: Sequence[Function] | None) -> dict[str, Any]:
    globs = [rule.function] if isinstance(rule.function, str) else list(rule.function)
    matches = None if functions is None else _matched(rule, functions)
    risks = None if functions is None else {each.name: each.risk for each in functions if each.name in (matches or ())}
    risky = [asdict(each) for each in surprises(rule, risks)]
    return {"name": rule.name, "decision": rule.decision, "function": globs, "matches": matches, "risky": risky}


def _line(told: dict[str, Any]) -> str:
    names = told["function"] if told["matches"] is None else told["matches"] or ["nothing"]
    lines = [f"  {told['name']}: {told['decision']} {', '.join(names)}"]
    for each in told["risky"]:
        arguments = ", ".join(f"{name}={json.dumps(value)}" for name, value in each["arguments"].items())
        lines.append(f"    also approves {each['function']}({arguments if each['path'] else '...'}); {each['advice']}")
    return "\n".join(lines)


def _matched(rule: Rule, functions: Sequence[Function]) -> list[str]:
    """What a rule may decide about, whatever the arguments are and whatever the turn has read."""
    if not rule.heeds(function.name for function in functions):
        return []
    anyhow = rule.model_copy(update={"caller": ("*",), "arguments": {}})
    return sorted(function.name for function in functions if anyhow.matches(function.name, function.risk, "", {}))


__all__ = ["check_policy"]
