"""Approvals on the command line: calls that wait are listed and answered, and policies are given and checked (H9)."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from support.command_line import Run, command, home, refusal, run
from support.hat_shop import MANY, approvals_desk, effects
from worldagent.agent import Turn
from worldagent.core import utc_text

__all__ = ["home", "run"]  # fixtures

pytestmark = [pytest.mark.timeout(300), pytest.mark.requirement("H9")]

APP = ("--app", "support.hat_shop:approvals_desk")
DESK = ("--workspace", "desk")


@pytest.fixture(autouse=True)
def _in_its_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)


async def begun(shape: str, thread: str = "main", account: str | None = None) -> Turn:
    """Leave a turn of a shape that waits."""
    async with approvals_desk() as desk:
        turn = await desk.thread(thread, account=account).task(shape, {})
    assert turn.status == "paused"
    return turn


# --- answering --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("T4")
async def test_ten_calls_that_wait_at_once_are_answered_in_any_order_by_process_after_process(home: Path) -> None:
    """Each command is a process of its own, so each answer comes after a restart."""
    waits = await command(home, "task", "many", *APP, "--json")
    assert waits.code == 3, waits
    listed = json.loads((await command(home, "approvals", "list", *DESK, "--json")).out)["approvals"]
    assert [found["id"] for found in listed] == [pause["id"] for pause in json.loads(waits.out)["pauses"]]
    assert len(listed) == MANY
    random.Random(6).shuffle(listed)
    to = {found["id"]: found["arguments"]["to"] for found in listed}
    ids = list(to)
    first = await command(home, "approvals", "approve", *ids[:3], *APP, "--json")
    assert (first.code, len(json.loads(first.out)["pauses"])) == (3, MANY - 3), first
    assert sorted(effects(home)) == sorted(f"sent {to[pause_id]} 1" for pause_id in ids[:3])
    refused = await command(home, "approvals", "reject", *ids[3:5], "--reason", "not now", *APP)
    assert refused.code == 3, refused
    other = json.dumps({"to": "eve", "copies": 2})
    seen = next(found["hash"] for found in listed if found["id"] == ids[5])
    changed = await command(home, "approvals", "approve", ids[5], "--arguments", other, "--hash", seen, *APP)
    assert (changed.code, effects(home)[-1]) == (3, "sent eve 2"), changed
    last = await command(home, "approvals", "approve", *reversed(ids[6:]), *APP)
    assert last.code == 0, last
    assert sorted(effects(home)) == sorted(
        [*(f"sent {to[pause_id]} 1" for pause_id in (*ids[:3], *ids[6:])), "sent eve 2"]
    )
    assert last.out.count("not now") == 2
    nothing = await command(home, "approvals", "list", *DESK, "--json")
    assert (nothing.code, json.loads(nothing.out)) == (0, {"approvals": []})


async def test_always_any_approves_what_the_same_caller_asks_for(home: Path, run: Run) -> None:
    [pause] = (await begun("series")).pauses
    result = await run("approvals", "approve", pause.id, "--always-any", *APP)
    assert (result.exit_code, effects(home)) == (0, ["sent ana 1", "sent bob 1"]), result.output


async def test_only_approvers_of_the_policy_can_answer(home: Path, run: Run) -> None:
    rules = under_policy(home, {"decision": "ask", "function": "send", "approvers": ["ana", "lead-*"]})
    waits = await run("task", "series", *APP, *rules)
    assert waits.exit_code == 3
    assert "approvers: ana, lead-*" in waits.stderr
    assert f"worldagent resume main {' '.join((*APP, *rules))} --approve" in waits.stderr
    [found] = json.loads((await run("approvals", "list", *DESK, "--json")).stdout)["approvals"]
    assert found["approvers"] == ["ana", "lead-*"]
    for words in (("approvals", "reject", found["id"]), ("resume", "main", "--approve", "--account", "bob")):
        error = await refusal(run, *words, *APP, *rules)
        assert (error["code"], "--account" in error["remedy"]) == ("not_an_approver", True)
    assert effects(home) == []
    gone_on = await run("resume", "main", "--approve", *APP, *rules, "--account", "lead-eve")
    assert (gone_on.exit_code, len(effects(home))) == (3, 1), gone_on.output


REFUSED = [
    (("approve", "{send}", "--hash", "0" * 12), "answer_invalid", "--hash '000000000000' is not the hash of"),
    (("approve", "{send}", "--arguments", '{{"to": 3}}'), "invalid_argument", "to: 3 is not of type 'string'"),
    (("approve", "{send}", "--thread", "nowhere"), "nothing_to_resume", "has no thread 'nowhere'"),
    (("approve", "{send}", "{other}"), "invalid_argument", "the ids belong to 2 threads: 'main', 't2'"),
    (("approve", "{other}", "--always"), "invalid_argument", "'erase' is destructive"),
    (("approve", "{question}"), "answer_invalid", "of kind 'question'"),
    (("approve", "turn_0/send"), "unknown_pause", "'turn_0/send' is not waiting"),
]


async def test_an_invalid_answer_is_refused_and_the_pause_stays_open(home: Path, run: Run) -> None:
    pauses = {pause.function: pause.id for pause in (await begun("pair")).pauses}
    pauses["other"] = (await begun("wipe", "t2")).pauses[0].id
    pauses["question"] = (await begun("question", "t3")).pauses[0].id
    for words, code, told in REFUSED:
        error = await refusal(run, "approvals", *(word.format(**pauses) for word in words), *APP)
        assert (error["code"], told in error["message"]) == (code, True), error
        assert error["remedy"], words
    async with approvals_desk() as desk:
        assert len(await desk.thread("main").pauses()) == 2
    assert effects(home) == []


# --- listing ----------------------------------------------------------------------------------------------------------


async def test_pauses_are_listed_over_all_threads_with_all_their_fields(home: Path, run: Run) -> None:
    pair = await begun("pair", "t1", account="ana")
    await begun("question", "t2")
    [erase] = (await begun("wipe", "t3")).pauses
    found = json.loads((await run("approvals", "list", *DESK, "--json")).stdout)["approvals"]
    assert [item["thread"] for item in found] == ["t1", "t1", "t3"]
    assert (found[0]["turn"], found[0]["account"], found[0]["kind"]) == (pair.id, "ana", "approval")
    last = found[2]
    assert (last["id"], last["hash"], last["since"]) == (erase.id, erase.hash, utc_text(erase.since))
    assert (last["risk"], last["caller"], last["approvers"]) == (["destructive"], "wipe", [])
    assert last["reason"] == "nothing in the policy allows it"
    shown = await run("approvals", "list", *DESK)
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert shown.stdout.count("approval of a call: ") == 3
    assert f"\nid: {erase.id}\n" in shown.stdout
    assert "\n  worldagent approvals approve ID --workspace desk\n" in shown.stdout
    assert (await run("approvals", "list", *DESK, "--thread", "t3")).stdout.count("approval of a call: ") == 1


# --- events and chats -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("A4")
async def test_a_turn_that_waits_for_a_reply_names_no_command_that_answers_it(home: Path, run: Run) -> None:
    result = await run("task", "reply", *APP)
    shown = (await run("threads", "show", "main", *DESK)).stdout
    for text in (result.output, shown):
        assert "the turn waits for a reply:" in text
        assert "it waits for the reply to a message; no person can answer it" in text
        assert "it continues once the reply is there and a gateway runs: `worldagent worker`" in text
        assert "worldagent resume" not in text
    assert (await run("approvals", "list", *DESK, "--json")).stdout == '{"approvals": []}\n'
    waits = await run("task", "both", "--thread", "t2", *APP)
    assert "the turn waits for an answer:" in waits.output
    question = next(each for each in (await asked(run, "t2")) if each["kind"] == "question")
    answered = await run("resume", "t2", *APP, "--answer", f"{question['id']}=Well.")
    assert answered.exit_code == 3
    assert "the turn waits for a reply:" in answered.output


async def asked(run: Run, thread: str) -> list[dict[str, Any]]:
    """What the turn of a thread waits for."""
    found: list[dict[str, Any]] = json.loads((await run("threads", "show", thread, *DESK, "--json")).stdout)["thread"][
        "pauses"
    ]
    return found


async def test_a_chat_takes_an_edit_asks_again_where_it_does_not_fit_and_takes_always(home: Path) -> None:
    await begun("series")
    lines = b"edit copies=many\nedit to=eve copies=2\n"
    chat = await command(home, "chat", *APP, "--json", stdin=lines)
    told = [json.loads(line) for line in chat.out.splitlines()]
    assert (chat.code, [value.get("status") for value in told]) == (3, ["paused", None, "paused"]), chat
    assert "the field 'copies' must be of type whole number" in told[1]["error"]["message"]
    assert told[0]["pauses"][0]["risk"] == ["network"]
    assert effects(home) == ["sent eve 2"]
    chat = await command(home, "chat", *APP, stdin=b"always any\n")
    assert (chat.code, chat.out) == (0, "sent eve, sent bob\n"), chat


async def test_a_chat_asks_first_what_its_account_can_answer(home: Path, run: Run) -> None:
    rules = under_policy(home, {"decision": "ask", "function": "send", "approvers": ["ana"]})
    assert (await run("task", "pair", *APP, *rules)).exit_code == 3
    chat = await command(home, "chat", *APP, *rules, "--account", "bob", "--json", stdin=b"yes\nyes\n")
    told = [json.loads(line) for line in chat.out.splitlines()]
    assert [pause["function"] for pause in told[0]["pauses"]] == ["keep", "send"]
    assert [pause["function"] for pause in told[1]["pauses"]] == ["send"]
    assert (chat.code, told[2]["error"]["code"]) == (3, "not_an_approver")
    assert effects(home) == ["kept a.md"]
    chat = await command(home, "chat", *APP, *rules, "--account", "ana", stdin=b"y\n")
    assert (chat.code, chat.out) == (0, "sent ana, kept a.md\n"), chat


SENDS = {"decision": "approve", "function": "send"}


def under_policy(home: Path, *rules: dict[str, Any]) -> tuple[str, str]:
    """The option of a policy in a file."""
    return "--policy", written(home, "policy.json", *rules)


def written(home: Path, name: str, *rules: dict[str, Any], **more: Any) -> str:
    (home / name).write_text(json.dumps({"rules": rules, **more}), encoding="utf-8")
    return name


# --- policies ----------------------------------------------------------------------------------------------


async def test_policy_option_wins_over_the_environment(home: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    never = written(home, "never.json", {"decision": "refuse", "function": "send", "name": "never"})
    sends = written(home, "sends.json", SENDS)
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


async def test_an_app_that_brings_a_policy_keeps_it(home: Path, run: Run) -> None:
    sends = written(home, "sends.json", SENDS)
    result = await run("task", "series", "--app", "support.hat_shop:strict", "--policy", sends)
    assert (result.exit_code, effects(home)) == (2, [])
    assert "sets its own policy" in result.stderr


async def test_a_policy_that_cannot_be_read_is_refused_before_anything_is_opened(home: Path, run: Run) -> None:
    (home / "bad.yaml").write_text("rules:\n  - decision: allow\n", encoding="utf-8")
    for words in (("ask", "Hello"), ("resume", "main", *APP), ("approvals", "reject", "turn_1/x", *APP)):
        error = await refusal(run, *words, "--policy", "bad.yaml")
        assert (error["code"], "bad.yaml:2" in error["message"]) == ("policy_invalid", True), words
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


async def test_check_names_what_a_stranger_can_decide(home: Path, run: Run) -> None:
    reply = {
        "to": {"each": {"origin": ["person", "search.sender"]}},
        "body": {"origin": "any", "plain": True},
        "amount": {"origin": "search.*", "form": "bounded", "between": [0, 9]},
    }
    after = {"decision": "approve", "function": "send", "after": "search", "arguments": {"to": "ana"}}
    file = written(home, "policy.json", {**SENDS, "arguments": reply}, after)
    lines = (await run("policy", "check", file)).stdout.splitlines()
    assert [line.partition(" decides: ")[2] for line in lines if "stranger" in line] == [
        "to (which value of search.sender), body (any words without links of any source), "
        "amount (a number, a date or a choice after reading search.*)",
        "* (within its conditions, after reading search)",
    ]


async def test_with_an_app_a_check_names_who_strangers_can_steer(
    home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(home, "policy.json", {**SENDS, "optional": True})
    check = ("policy", "check", file, "--app", "support.hat_shop:steered_desk", "--json")
    result = await run(*check)
    spoken, worker = json.loads(result.stdout)["policy"]["unguarded"]
    assert worker == {"worker": "open", "reads": ["search"], "acts": ["send"]}
    assert (spoken["worker"], spoken["reads"], "send" in spoken["acts"]) == ("converse", ["search"], True)
    assert "strangers can steer 'open', which reads search and calls send; Worker(guard=True)" in result.stderr
    assert "strangers can steer 'converse', which reads search and calls" in result.stderr
    assert "; guard: true in the profile or the setting guard" in result.stderr
    monkeypatch.setenv("WORLDAGENT_GUARD", "unattended")
    result = await run(*check)
    assert (json.loads(result.stdout)["policy"]["unguarded"], result.stderr) == ([], "")


async def test_with_an_app_a_check_lists_what_each_rule_matches(home: Path, run: Run) -> None:
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
        ("rules:\n  - decision: approve\n    colour: red\n", (), "policy.yaml:3: a rule has no key 'colour'"),
        ("rules:\n  - {decision: ask, function: sned}\n", APP, "names the function 'sned', which does not exist"),
    ],
)
async def test_invalid_policy_exits_with_2(home: Path, run: Run, text: str, more: tuple[str, ...], told: str) -> None:
    (home / "policy.yaml").write_text(text, encoding="utf-8")
    result = await run("policy", "check", "policy.yaml", *more)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert told in result.stderr
    assert "\nremedy: " in result.stderr
