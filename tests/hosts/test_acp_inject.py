"""`worldagent acp` while a prompt runs: what an editor says beside it steers the turn, or begins the next one."""

import asyncio
import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from acp.helpers import image_block

from support.acp_clients import Editor, bounded, editor
from support.processes import eventually
from support.sidecar_clients import BOUND
from worldagent.hosts.acp.server import INJECT, REVOKE

pytestmark = pytest.mark.requirement("T15", "T16")

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * 20).decode()
PAINTER = ("--app", "support.painter:agent")


@asynccontextmanager
async def painting(home: Path) -> AsyncGenerator[tuple[Editor, str, "asyncio.Task[str]"]]:
    """An editor whose prompt paints until there is a file `go`; gives its session and the prompt."""
    async with editor(home, app=PAINTER, WORLDAGENT_HOME=str(home)) as found:
        session = await found.new()
        prompt = asyncio.create_task(found.prompt(session, "Paint the door."))
        assert await eventually((home / "begun").exists, BOUND)
        yield found, session, prompt


async def inject(found: Editor, session: str, text: str, **more: Any) -> str:
    params = {"sessionId": session, "prompt": [{"type": "text", "text": text}], **more}
    answer = await bounded(found.connection._conn.send_request(INJECT, params))
    return str(answer["messageId"])


def said(found: Editor) -> list[str]:
    return [each.content.text for each in found.of("user_message_chunk")]


async def test_an_editor_learns_of_the_extension_and_steers_the_turn(tmp_path: Path) -> None:
    async with painting(tmp_path / "home") as (found, session, prompt):
        capabilities = (await found.initialize()).agent_capabilities
        assert capabilities is not None
        assert (capabilities.field_meta or {})["worldagent"]["inject"] == {
            "method": INJECT,
            "modes": ["steer", "queue"],
            "revoke": REVOKE,
        }
        gone = await inject(found, session, "rather in green")
        revoked = await bounded(found.connection._conn.send_request(REVOKE, {"sessionId": session, "messageId": gone}))
        assert revoked == {"revoked": True}
        await inject(found, session, "rather in blue")
        (tmp_path / "home" / "go").touch()
        assert await bounded(prompt) == "end_turn"
        assert (said(found), found.text) == (["rather in blue"], "In blue.")
    async with editor(tmp_path / "home", app=PAINTER, WORLDAGENT_HOME=str(tmp_path / "home")) as again:
        await again.load(session)
        assert said(again) == ["Paint the door.", "rather in blue"]


async def test_queued_messages_are_answered_within_the_prompt(tmp_path: Path) -> None:
    async with painting(tmp_path / "home") as (found, session, prompt):
        await inject(found, session, "And the window?", mode="queue")
        await inject(found, session, "And the roof?", mode="queue")
        (tmp_path / "home" / "go").touch()
        assert await bounded(prompt) == "end_turn"
        assert (said(found), found.text) == (["And the window?", "And the roof?"], "In red." * 3)


async def test_what_cannot_be_said_beside_a_prompt_is_refused(tmp_path: Path) -> None:
    async with painting(tmp_path / "home") as (found, session, prompt):
        block = {"type": "text", "text": "x"}
        picture = image_block(PNG, "image/png").model_dump(mode="json", by_alias=True, exclude_none=True)
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"sessionId": session, "prompt": [picture]}, "invalid_argument"),
            ({"sessionId": session, "prompt": [block], "mode": "soon"}, "invalid_argument"),
            ({"sessionId": "none", "prompt": [block]}, "unknown_session"),
        ]
        for given, code in wrong:
            assert (await found.refused(INJECT, **given)).data["code"] == code
        second = await found.refused("session/prompt", sessionId=session, prompt=[block])
        assert (second.data["code"], INJECT in second.data["remedy"]) == ("prompt_running", True)
        (tmp_path / "home" / "go").touch()
        await bounded(prompt)
        for mode, code in (("steer", "nothing_to_steer"), ("queue", "no_prompt")):
            refused = await found.refused(INJECT, sessionId=session, prompt=[block], mode=mode)
            assert refused.data["code"] == code


async def test_a_cancelled_prompt_takes_back_what_was_queued(tmp_path: Path) -> None:
    async with painting(tmp_path / "home") as (found, session, prompt):
        await inject(found, session, "And the window?", mode="queue")
        await bounded(found.connection.cancel(session_id=session))
        assert await bounded(prompt) == "cancelled"
        (tmp_path / "home" / "go").touch()
        assert await found.prompt(session, "And now?") == "end_turn"
        assert said(found) == []
