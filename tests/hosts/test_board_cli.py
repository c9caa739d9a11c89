"""The board from the command line and over the web: what each brief is, and moving one (A19)."""

from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent
from support.command_line import Run, as_json, home, refusal, run
from support.role_specs import BRIEF
from support.society import enlisted
from worldagent.members import WorkspaceConfig

__all__ = ["home", "run"]  # fixtures

pytestmark = pytest.mark.requirement("A19")
NOVEL = ("--workspace", "novel")


@pytest.fixture
async def briefed(home: Path) -> None:
    """Two briefs of the CRO, and one of the BDR that waits for the first."""
    society = WorkspaceConfig(id="novel", owner="charles")
    async with scripted_agent(home, answering(), society=society) as agent:
        await enlisted(agent, "cro", "bdr", operators=())
        for id_, member, after in (("b1", "cro", []), ("b2", "cro", []), ("b3", "bdr", ["b1"])):
            brief = {**BRIEF, "after": after, "deadline": "2030-05-01T12:00Z"}
            payload = {"message_type": "task_assignment", "task_brief": brief}
            await agent.society.mail.send("root", member, payload=payload, message_id=id_)


@pytest.mark.usefixtures("briefed")
async def test_briefs_are_listed_by_member_and_state(run: Run) -> None:
    found: list[dict[str, Any]] = (await as_json(run, "board", "list", *NOVEL))["briefs"]
    assert [(each["id"], each["state"], each["member"]) for each in found] == [
        ("b3", "blocked", "bdr"),
        ("b2", "open", "cro"),
        ("b1", "open", "cro"),
    ]
    assert (found[0]["after"], found[0]["unmet"], found[0]["deadline"]) == (["b1"], 1, "2030-05-01T12:00:00Z")
    for words, ids in (
        (("cro",), ["b2", "b1"]),
        (("--given-by", "root", "--limit", "2"), ["b3", "b2"]),
        (("--after", "b2"), ["b1"]),
        (("--state", "blocked"), ["b3"]),
    ):
        shown = (await as_json(run, "board", "list", *words, *NOVEL))["briefs"]
        assert [each["id"] for each in shown] == ids, words
    text = (await run("board", "list", "--state", "blocked", *NOVEL)).stdout
    assert text.split()[:4] == ["ID", "STATE", "MEMBER", "GIVEN"]
    assert "b3" in text
    assert (await run("board", "list", "nobody", *NOVEL)).stdout == "there are no briefs\n"


@pytest.mark.usefixtures("briefed")
async def test_briefs_are_moved_and_refusals_say_what_to_do(run: Run) -> None:
    found = (await as_json(run, "board", "reassign", "b1", "--to", "bdr", *NOVEL))["brief"]
    assert (found["state"], found["member"], found["attempt"]) == ("open", "bdr", 2)
    closed = await run("board", "close", "b1", "--reason", "Not needed.", *NOVEL)
    assert closed.stdout == "b1 is failed, and bdr has it\n"
    notes = {each["id"]: each["note"] for each in (await as_json(run, "board", "list", *NOVEL))["briefs"]}
    assert notes == {"b1": "Not needed.", "b2": "", "b3": "it waits for b1, which failed"}
    assert (await as_json(run, "board", "retry", "b1", *NOVEL))["brief"]["state"] == "open"
    for words, code in (
        (("reassign", "b1", "--to", "nobody"), "unknown_contact"),
        (("retry", "b9"), "unknown_brief"),
    ):
        error = await refusal(run, "board", *words, *NOVEL)
        assert (error["code"], bool(error["remedy"])) == (code, True)
    assert (await run("board", "list", "--state", "over", *NOVEL)).exit_code == 2
