"""`worldagent acp` and work in the background: its reports are not words of the person, its threads not sessions."""

import asyncio
from pathlib import Path

import pytest

from support.acp_clients import Editor, bounded, editor
from support.sidecar_clients import BOUND

pytestmark = pytest.mark.requirement("T17")

DESK = ("--app", "support.background:desk")
ASKED = "What is Moby Dick about?"


def said(found: Editor) -> list[str]:
    return [each.content.text for each in found.of("user_message_chunk")]


async def test_a_report_is_shown_once_the_session_is_loaded_and_not_as_a_word_of_the_person(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with editor(home, app=DESK, WORLDAGENT_HOME=str(home)) as found:
        session = await found.new()
        assert await found.prompt(session, ASKED) == "end_turn"
        assert found.text == "I let it be read."
        (home / "go").touch()
        async with asyncio.timeout(BOUND):
            while "waits for a person: approval of look" not in found.text:
                await found.load(session)
        assert set(said(found)) == {ASKED}
        listed = await bounded(found.connection.list_sessions())
        assert [each.session_id for each in listed.sessions] == [session]
