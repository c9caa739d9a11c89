"""The command `policy check`: whether a policy can be read, which calls its rules match, and what they also approve."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from .command import Work, command
from .operating import operation
from .options import AgentOptions, app_option
from .output import Output, counted, records_table

if TYPE_CHECKING:
    from ...harness import Function, Policy
    from ...harness.gate import Rule

_FUNCTIONS: Final = {
    "NAME": "name",
    "KIND": "kind",
    "RISK": lambda each: ", ".join(each.risk),
    "POLICY": "decision",
    "WHAT IT DOES": lambda each: each.title or each.description.partition("\n")[0],
}

_SOME: Final = 3  # names in a note

app = typer.Typer(name="policy", no_args_is_help=True)


@app.callback()
def _policy() -> None:
    """Policies: which calls run without approval, which require approval, and which are refused.

    The commands that run turns take a policy as [bold]--policy[/bold], or from the setting policy.

    [bold]Example[/bold]

      worldagent policy check policy.yaml
    """


@command(app)
def check(
    output: Output,
    file: Path,
    app: str | None = app_option(
        "An agent of your own. Each rule must match something that it can call. The agent is opened for this."
    ),
) -> Work:
    """Check that a policy can be read and, with --app, that each rule matches something that can be called.

    For each rule that approves calls, it also names calls that the rule approves unexpectedly, with the predicate to
    use instead, and which arguments a stranger's text can decide. With --app, it names workers that strangers can
    steer in unattended turns. The exit code stays 0, since you may want this.

    If something is wrong, it prints the problem and its line, and the exit code is 2.

    [bold]Examples[/bold]

      worldagent policy check policy.yaml

      worldagent policy check policy.yaml --app shop:agent

    Args:
        file (FILE): The policy, as YAML or JSON.
    """
    from .sources import policy

    read = policy(file)
    assert read is not None, "a file is named"
    return _check(output, read, file, app)


@operation(app, "functions", "function_list", show=lambda found: records_table(_FUNCTIONS, found.functions))
def functions(options: AgentOptions, output: Output) -> None:
    """List what the agent can call, with its risk and what the policy decides about it.

    [bold]Example[/bold]

      worldagent policy functions --app shop:agent
    """


async def _check(output: Output, read: Policy, file: Path, app: str | None) -> None:
    functions: Sequence[Function] | None = None
    unguarded: list[dict[str, Any]] = []
    if app is not None:
        from .agents import open_agent

        async with open_agent(AgentOptions(app=app), output) as agent:
            functions = agent.functions
        read.check(functions)
        is_guarded = agent.settings.guard == "unattended" if agent.profile.guard is None else agent.profile.guard
        unguarded = [] if is_guarded else _unguarded(functions)
    rules = [_rule_object(rule, functions) for rule in read.rules]
    for rule, shown in zip(read.rules, rules, strict=True):
        if shown["matches"] == [] and not rule.optional:
            output.note(f"the rule {rule.name!r} matches nothing that can be called")
    names = {each.name for each in functions or ()}  # the conversation is not among them
    for each in unguarded:
        some = [", ".join(each[key][:_SOME]) + (", ..." if len(each[key]) > _SOME else "") for key in ("reads", "acts")]
        one = "Worker(guard=True)" if each["worker"] in names else "guard: true in the profile"
        output.note(
            f"in unattended turns, strangers can steer {each['worker']!r}, which reads {some[0]} and calls {some[1]}; "
            f"{one} or the setting guard = unattended prevents that"
        )
    found = {"file": str(file), "default": read.default, "rules": rules, "unguarded": unguarded}
    lines = [f"{file}: {counted(len(rules), 'rule')}; if none matches: {read.default}", *map(_line, rules)]
    output.result({"policy": found}, "\n".join(lines))


def _rule_object(rule: Rule, functions: Sequence[Function] | None) -> dict[str, Any]:
    from ...harness.gate import openings, surprises

    globs = [rule.function] if isinstance(rule.function, str) else list(rule.function)
    matches = None if functions is None else _matched(rule, functions)
    risks = None if functions is None else {each.name: each.risk for each in functions if each.name in (matches or ())}
    risky = [asdict(each) for each in surprises(rule, risks)]
    opened = [asdict(each) for each in openings(rule)]
    return {
        "name": rule.name,
        "decision": rule.decision,
        "function": globs,
        "matches": matches,
        "risky": risky,
        "opened": opened,
    }


def _line(rule: dict[str, Any]) -> str:
    names = rule["function"] if rule["matches"] is None else rule["matches"] or ["nothing"]
    lines = [f"  {rule['name']}: {rule['decision']} {', '.join(names)}"]
    for each in rule["risky"]:
        arguments = ", ".join(f"{name}={json.dumps(value)}" for name, value in each["arguments"].items())
        lines.append(f"    also approves {each['function']}({arguments if each['path'] else '...'}); {each['advice']}")
    if rule["opened"]:
        said = ", ".join(f"{each['path']} ({each['what']} {_sources(each['origins'])})" for each in rule["opened"])
        lines.append(f"    a stranger's text decides: {said}")
    return "\n".join(lines)


def _sources(origins: Sequence[str]) -> str:
    return "any source" if "any" in origins else ", ".join(origins)


def _unguarded(functions: Sequence[Function]) -> list[dict[str, Any]]:
    """The conversation and the workers that read texts of strangers and act, so that these can steer them."""
    from ...harness.function import CONVERSATION
    from ...harness.gate import is_like

    can_call = {CONVERSATION: [each for each in functions if each.offered]}
    for worker in functions:
        if worker.kind == "worker" and worker.tools and not worker.guard:
            can_call[worker.name] = [each for each in functions if is_like(each.name, worker.tools)]
    found = [
        {
            "worker": name,
            "reads": sorted(each.name for each in called if each.untrusted),
            "acts": sorted(each.name for each in called if each.risk != ("read_only",)),
        }
        for name, called in can_call.items()
    ]
    return [each for each in found if each["reads"] and each["acts"]]


def _matched(rule: Rule, functions: Sequence[Function]) -> list[str]:
    """The functions that a rule can match, for any arguments and whatever the turn has read."""
    if not rule.heeds(function.name for function in functions):
        return []
    anyhow = rule.model_copy(update={"caller": ("*",), "arguments": {}})
    return sorted(function.name for function in functions if anyhow.matches(function.name, function.risk, "", {}))
