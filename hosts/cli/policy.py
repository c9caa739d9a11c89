"""The command `policy check`: whether a policy can be read, what its rules are about, and what they also approve."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .command import Work, command
from .options import WHERE, AgentOptions, JsonResult
from .output import Output

if TYPE_CHECKING:
    from ...harness import Function, Policy
    from ...harness.gate import Rule

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _policy() -> None:
    """Policies: what may be called without asking, what a person is asked for, what is refused.

    [bold]--policy[/bold] of the commands that run turns takes one, as does the setting policy.

    [bold]Example[/bold]

      worldagent policy check policy.yaml
    """


@app.command()
@command
def check(
    output: Output,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The policy, as YAML or JSON.")],
    app: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME",
            help="An agent of your own: each rule must be about something that it can call. It is opened for that.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    json: JsonResult = False,
) -> Work:
    """Check a policy: whether it can be read, and with --app whether each rule is about something that can be called.

    For each rule that approves it also names a call that the rule takes and that a person would not expect, with the
    predicate to use instead; the exit code is 0, since you may want it so.

    Where something is wrong, it says what and in which line, and the exit code is 2.

    [bold]Examples[/bold]

      worldagent policy check policy.yaml

      worldagent policy check policy.yaml --app shop:agent
    """
    from .sources import policy

    read = policy(file)
    assert read is not None, "a file is named"
    return _check(output, read, file, app)


async def _check(output: Output, read: Policy, file: Path, app: str | None) -> None:
    functions: Sequence[Function] | None = None
    if app is not None:
        from .session import open_agent

        async with open_agent(AgentOptions(app=app), output) as agent:
            functions = agent.functions
        read.check(functions)
    rules = [_told(rule, functions) for rule in read.rules]
    for rule, told in zip(read.rules, rules, strict=True):
        if told["matches"] == [] and not rule.optional:
            output.note(f"the rule {rule.name!r} matches nothing that there is")
    found = {"file": str(file), "default": read.default, "rules": rules}
    count = "1 rule" if len(rules) == 1 else f"{len(rules)} rules"
    lines = [f"{file}: {count}; where none matches: {read.default}", *map(_line, rules)]
    output.result({"policy": found}, "\n".join(lines))


def _told(rule: Rule, functions: Sequence[Function] | None) -> dict[str, Any]:
    from ...harness.gate import surprises

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
