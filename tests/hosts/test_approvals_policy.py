"""Policies on the command line: the option, the setting, and the check of a file (H9)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.command_line import Run, home, run
from support.hat_shop import approvals_desk, effects, parts
from worldagent import Settings, WorldAgent
from worldagent.core.errors import PolicyInvalid
from worldagent.harness import Policy

__all__ = ["home", "run"]  # fixtures

DESK = "support.hat_shop:"
APP = ("--app", f"{DESK}approvals_desk")
SENDS = {"decision": "approve", "function": "send"}
NEVER = {"decision": "refuse", "function": "send", "name": "never"}

pytestmark = [pytest.mark.timeout(300), pytest.mark.requirement("H9")]


@pytest.fixture(autouse=True)
def _in_its_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)


def written(home: Path, name: str, *rules: dict[str, Any], **more: Any) -> str:
    (home / name).write_text(json.dumps({"rules": rules, **more}), encoding="utf-8")
    return name


# --- where it comes from ----------------------------------------------------------------------------------------------


async def test_a_turn_runs_under_the_policy_of_the_option_over_that_of_the_environment(
    home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    sends, never = written(home, "sends.json", SENDS), written(home, "never.json", NEVER)
    assert (await run("task", "series", *APP, "--thread", "t1")).exit_code == 3
    free = await run("task", "series", *APP, "--policy", sends)
    assert (free.exit_code, free.stdout) == (0, "sent ana, sent bob\n"), free.output
    monkeypatch.setenv("WORLDAGENT_POLICY", never)
    refused = await run("task", "series", *APP)
    assert (refused.exit_code, refused.stdout.count("the rule 'never' of the policy refuses it")) == (0, 2)
    again = await run("task", "series", *APP, "--policy", sends)
    assert (again.exit_code, again.stdout) == (0, "sent ana, sent bob\n"), again.output
    refused = await run("task", "series", *APP)  # what the option said is over with its command
    assert "'never'" in refused.stdout
    assert len(effects(home)) == 4


async def test_the_policy_is_an_argument_over_the_environment_over_the_file_of_settings(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("settings", "environment", "argument"):
        written(home, f"{name}.json", default="refuse", seconds=float(len(name)))
    (home / "settings.toml").write_text('policy = "settings.json"\n', encoding="utf-8")
    monkeypatch.setenv("WORLDAGENT_SETTINGS", str(home / "settings.toml"))
    assert approvals_desk().policy.seconds == len("settings")
    monkeypatch.setenv("WORLDAGENT_POLICY", "environment.json")
    assert approvals_desk().policy.seconds == len("environment")
    chosen = Settings(policy=home / "argument.json")
    assert WorldAgent("desk", settings=chosen, **parts()).policy.seconds == len("argument")
    assert WorldAgent("desk", settings=chosen, policy=Policy(times=3), **parts()).policy == Policy(times=3)
    monkeypatch.setenv("WORLDAGENT_POLICY", "none.json")
    with pytest.raises(PolicyInvalid, match=r"'none\.json' cannot be read: No such file"):
        approvals_desk()


async def test_an_app_that_brings_a_policy_keeps_it(home: Path, run: Run) -> None:
    sends = written(home, "sends.json", SENDS)
    result = await run("task", "series", "--app", f"{DESK}strict", "--policy", sends)
    assert (result.exit_code, effects(home)) == (2, [])
    assert "sets its own policy" in result.stderr


async def test_a_policy_that_cannot_be_read_is_refused_before_anything_is_opened(home: Path, run: Run) -> None:
    (home / "bad.yaml").write_text("rules:\n  - decision: allow\n", encoding="utf-8")
    for words in (("ask", "Hello"), ("resume", "main", *APP), ("approvals", "reject", "turn_1/x", *APP)):
        result = await run(*words, "--policy", "bad.yaml", "--json")
        error = json.loads(result.stdout)["error"]
        assert (result.exit_code, error["code"]) == (2, "policy_invalid"), words
        assert "bad.yaml:2" in error["message"]
    assert not (home / "agent.db").exists()


# --- the check --------------------------------------------------------------------------------------------------------


async def test_check_names_a_call_that_a_rule_also_approves(home: Path, run: Run) -> None:
    mails = {**SENDS, "arguments": {"to": "*@corp.com"}, "name": "mails"}
    file = written(home, "policy.json", mails, {**mails, "arguments": {"to": {"email": "*@corp.com"}}, "name": "one"})
    result = await run("policy", "check", file, *APP)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[1:] == [
        "  mails: approve send",
        '    also approves send(to="evil@x.io,a@corp.com"); use email: for exactly one address',
        "  one: approve send",
    ]
    first, second = json.loads((await run("policy", "check", file, "--json")).stdout)["policy"]["rules"]
    assert [call["arguments"] for call in first["risky"]] == [{"to": "evil@x.io,a@corp.com"}]
    assert second["risky"] == []


async def test_with_an_app_a_check_tells_what_each_rule_is_about_and_where_that_is_nothing(
    home: Path, run: Run
) -> None:
    rules: list[dict[str, Any]] = [
        {**SENDS, "name": "sends", "arguments": {"to": "ana"}},
        {"decision": "ask", "risk": "destructive", "name": "erasing"},
        {"decision": "approve", "function": "send", "risk": "write", "name": "nobody's"},
        {"decision": "refuse", "function": "unknown", "optional": True, "name": "maybe"},
    ]
    file = written(home, "policy.json", *rules)
    result = await run("policy", "check", file, *APP, "--json")
    assert (result.exit_code, result.stderr) == (0, 'the rule "nobody\'s" matches nothing that can be called\n')
    found = {rule["name"]: rule["matches"] for rule in json.loads(result.stdout)["policy"]["rules"]}
    assert found == {"sends": ["send"], "erasing": ["erase"], "nobody's": [], "maybe": []}
    shown = await run("policy", "check", file, *APP)
    assert "\n  erasing: ask erase\n" in shown.stdout
    assert "\n  maybe: refuse nothing\n" in shown.stdout


@pytest.mark.parametrize(
    ("text", "more", "told"),
    [
        ("rules: [", (), "policy.yaml:"),
        ("rules:\n  - decision: approve\n    colour: red\n", (), "policy.yaml:3 has the unknown key 'colour'"),
        ("rules:\n  - {decision: ask, function: sned}\n", APP, "names the function 'sned', which does not exist"),
    ],
)
async def test_what_is_wrong_with_a_policy_is_told_with_its_line_and_exit_code_2(
    home: Path, run: Run, text: str, more: tuple[str, ...], told: str
) -> None:
    (home / "policy.yaml").write_text(text, encoding="utf-8")
    result = await run("policy", "check", "policy.yaml", *more)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert told in result.stderr
    assert "\nremedy: " in result.stderr
