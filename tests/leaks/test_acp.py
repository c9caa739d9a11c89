"""The role of a session's mode is in the calls of the model, and in nothing that `acp` sends or keeps (R7)."""

import asyncio
import json
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from acp.exceptions import RequestError

from support.acp_clients import Editor, bounded, editor
from support.leak_cases import LENGTHS
from support.leaks import awkward_canary, on_the_server
from support.processes import eventually
from support.sidecar_app import digest
from support.sidecar_clients import BOUND
from worldagent.testing import scan_for_roles

pytestmark = [pytest.mark.requirement("R7"), pytest.mark.on_every_database(soak=True)]


async def try_outcomes(found: Editor, home: Path) -> str:
    """Prompt in the mode with the role, in all ways that a prompt can end; give the session."""
    session = await found.new()
    await found.connection.set_session_mode(session_id=session, mode_id="keeper")
    assert await found.prompt(session, "Hello words=5") == "end_turn"
    assert await found.prompt(session, "repeat=1") == "end_turn"
    assert "[role withheld]" in found.text
    for text in ("fail=1", ""):
        with suppress(RequestError):
            await found.prompt(session, text)
    assert await found.prompt(session, "do=choose") == "end_turn"
    with suppress(RequestError):
        await found.prompt(session, "no form")
    assert await found.prompt(session, "street=Long number=1") == "end_turn"
    prompt = asyncio.ensure_future(found.prompt(session, "hold=never"))
    assert await eventually((home / "never.held").exists, BOUND)
    await found.connection.cancel(session_id=session)
    assert await bounded(prompt) == "cancelled"
    found.chooses = None
    found.asked.clear()
    prompt = asyncio.ensure_future(found.prompt(session, "do=buy"))
    await found.until(lambda: found.asked)
    found.process.kill()
    with suppress(ConnectionError):
        await bounded(prompt)
    return session


async def resume(found: Editor, session: str, home: Path) -> None:
    """Load the session, resume its turn without the role and then with it, and end the process in the next turn."""
    await found.load(session)
    with pytest.raises(RequestError):
        await found.prompt(session, "Well?")
    await found.connection.set_session_mode(session_id=session, mode_id="keeper")
    assert await found.prompt(session, "Well?") == "end_turn"
    prompt = asyncio.ensure_future(found.prompt(session, "hold=once"))
    assert await eventually((home / "once.held").exists, BOUND)
    found.process.send_signal(signal.SIGTERM)
    with pytest.raises(RequestError):
        await bounded(prompt)
    assert await bounded(found.process.wait()) == 143


async def test_the_role_of_a_mode_is_nowhere(tmp_path: Path) -> None:
    home, role = tmp_path / "home", awkward_canary(max(LENGTHS), seed="acp").strip()  # a short one may be repeated
    file = tmp_path / "role.md"
    file.write_text(role, encoding="utf-8", newline="")
    options = ("--mode", f"keeper=@{file}", "--log-level", "debug")
    async with editor(home, *options, WORLDAGENT_TESTS_MEMORY="1") as first:
        session = await try_outcomes(first, home)
    async with editor(home, *options, WORLDAGENT_TESTS_MEMORY="1") as second:
        await resume(second, session, home)
    assert digest(role) in home.with_name("home.seen").read_text(encoding="ascii")
    heard = [*first.heard, *second.heard]
    places: dict[str, object] = {
        "messages": [*heard, *(json.dumps(message, ensure_ascii=False) for message in heard)],
        "log": first.errors.read_bytes(),
        "server": on_the_server(),
    }
    found = scan_for_roles([home, places], [role]).findings
    assert not found, "\n".join(map(str, found))
