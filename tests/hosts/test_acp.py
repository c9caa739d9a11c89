"""`worldagent acp` as an editor uses it: the client of the protocol's library, over the streams of a real process."""

import asyncio
import base64
import json
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from acp.exceptions import RequestError
from acp.helpers import (
    audio_block,
    embedded_blob_resource,
    embedded_text_resource,
    image_block,
    resource_block,
    resource_link_block,
    text_block,
)
from acp.meta import AGENT_METHODS, CLIENT_METHODS

from support import forks
from support.acp_clients import ACP, APP, Editor, bounded, editor
from support.command_line import Run, run
from support.example_hosts import NODE
from support.house import ROOT
from support.mcp_tools import NPM
from support.processes import eventually
from support.services import FORMATS, Said, in_words, service
from support.sidecar_app import digest
from support.sidecar_clients import BOUND
from support.sidecars import bought, environment
from worldagent import Storage, WorldAgent
from worldagent.testing import ScriptedLM

__all__ = ["run"]

pytestmark = pytest.mark.requirement("T4")

ALLOWED = ["Allow", "Allow equal calls in this turn", "Allow all calls of it in this turn", "Reject"]
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * 20).decode()
EMBEDDED = resource_block(embedded_text_resource("file:///b.py", "b = 1"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
async def shown(home: Path) -> AsyncGenerator[Editor]:
    """An editor with the shop's agent, whose person allows what they are asked."""
    async with editor(home) as found:
        yield found


def statuses(found: Editor, title: str) -> list[str]:
    """The statuses of the tool call with this title, in order."""
    [call_id] = {update.tool_call_id for update in found.of("tool_call") if update.title == title}
    calls = [*found.of("tool_call"), *found.of("tool_call_update")]
    order = {id(update): number for number, update in enumerate(found.updates)}
    return [
        update.status for update in sorted(calls, key=lambda each: order[id(each)]) if update.tool_call_id == call_id
    ]


# --- prompts ---------------------------------------------------------------------------------------------------------


async def test_the_answer_is_streamed_in_chunks_of_one_message(shown: Editor) -> None:
    session = await shown.new()
    assert await shown.prompt(session, "Hello words=5") == "end_turn"
    chunks = shown.of("agent_message_chunk")
    assert len(chunks) == 5
    assert shown.text == "word0 word1 word2 word3 word4"
    assert len({chunk.message_id for chunk in chunks}) == 1


async def test_reasoning_is_streamed_as_thoughts(home: Path) -> None:
    thought = "The tide table has to be read first. " * 20
    with service(Said("The tide is out.", (), thought)) as stub:
        async with editor(
            home,
            *("--lm", FORMATS["anthropic"]),
            app=(),
            WORLDAGENT_API_BASE=stub.url("anthropic"),
            WORLDAGENT_MODEL_OPTIONS='{"reasoning_summary": "auto"}',
            ANTHROPIC_API_KEY="key",
        ) as found:
            assert await found.prompt(await found.new(), "Well?") == "end_turn"
    thoughts = found.of("agent_thought_chunk")
    assert len(thoughts) > 1
    assert "".join(each.content.text for each in thoughts).strip() == thought.strip()
    assert found.text == "The tide is out."


async def test_a_text_that_is_not_streamed_comes_at_the_end(home: Path) -> None:
    with service(Said("The tide is out.", ())) as stub:
        options, url = ("--lm", FORMATS["chat"]), stub.url("chat")
        async with editor(home, *options, app=(), WORLDAGENT_API_BASE=url, OPENAI_API_KEY="key") as found:
            await found.prompt(await found.new(), "Well?")
    assert found.text == "The tide is out."


async def test_a_text_after_one_that_was_withdrawn_is_a_new_message(home: Path) -> None:
    with service(in_words("A draft.", "no JSON"), in_words("The tide is out.")) as stub:
        async with editor(
            home,
            *("--lm", FORMATS["chat"], "--worker", "critic=Judge."),
            app=(),
            WORLDAGENT_API_BASE=stub.url("chat"),
            WORLDAGENT_MODEL_TOOLS="json",
            OPENAI_API_KEY="key",
        ) as found:
            assert await found.prompt(await found.new(), "Well?") == "end_turn"
    texts: dict[str, str] = {}
    for chunk in found.of("agent_message_chunk"):
        texts[chunk.message_id] = texts.get(chunk.message_id, "") + chunk.content.text
    assert [text.strip() for text in texts.values()] == ["A draft.", "The tide is out."]


async def test_tools_keep_the_roots_of_the_agent_whatever_folder_the_client_names(home: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for file in (root / "notes.txt", tmp_path / "outside.txt"):
        file.write_text("The tide is out.")
    paths = ("notes.txt", str(tmp_path / "outside.txt"))
    with service(Said("", tuple(("read_file", {"path": path}) for path in paths)), Said("Fine.", ())) as stub:
        async with editor(
            home,
            *("--lm", FORMATS["chat"], "--profile", "coder"),
            app=(),
            WORLDAGENT_API_BASE=stub.url("chat"),
            WORLDAGENT_TOOL_ROOTS=json.dumps([str(root)]),
            OPENAI_API_KEY="key",
        ) as found:
            await found.initialize()
            session = (await bounded(found.connection.new_session(cwd=str(tmp_path), mcp_servers=[]))).session_id
            assert await found.prompt(session, "Read both.") == "end_turn"
    assert [(call.title, call.kind) for call in found.of("tool_call")] == [("read_file", "read")] * 2
    ends = {call.status for call in found.of("tool_call_update")}
    assert ends == {"completed", "failed"}
    assert found.text == "Fine."


async def test_a_limit_of_the_turn_is_its_own_stop_reason(home: Path) -> None:
    async with editor(home, WORLDAGENT_TURN_CALLS="0") as found:
        assert await found.prompt(await found.new(), "do=buy") == "max_turn_requests"
    assert "limit" in found.text


async def test_blocks_become_the_text_and_the_attachments_of_the_message(shown: Editor) -> None:
    session = await shown.new()
    blocks = [
        text_block("Compare "),
        resource_link_block("a.py", "file:///work/a.py"),
        text_block(" with "),
        resource_block(embedded_text_resource("file:///work/b.ts", "let b = 1;")),
        resource_block(embedded_text_resource("file:///work/empty.py", "")),
        resource_block(embedded_blob_resource("file:///work/c.png", PNG, mime_type="image/png")),
        image_block(PNG, "image/png"),
        text_block("please"),
        text_block("now"),
    ]
    assert (await shown.answer(session, *blocks)).stop_reason == "end_turn"
    shown.updates.clear()
    await shown.load(session)
    text, *links = [update.content for update in shown.of("user_message_chunk")]
    assert text.text == (
        "Compare [a.py](file:///work/a.py) with [b.ts](file:///work/b.ts)"
        "[file:///work/empty.py (empty)](file:///work/empty.py)[c.png](file:///work/c.png)[attachment.png]please\nnow"
    )
    assert [(link.name, link.mime_type) for link in links] == [
        ("b.ts", "text/plain"),
        ("c.png", "image/png"),
        ("attachment.png", "image/png"),
    ]


async def test_an_image_that_the_model_does_not_take_is_refused(home: Path) -> None:
    async with editor(home, WORLDAGENT_MODEL_TAKES="text") as found:
        session = await found.new()
        error = await found.refused("session/prompt", sessionId=session, prompt=[_json(image_block(PNG, "image/png"))])
        assert error.data["code"] == "attachment_not_taken"
        assert await found.prompt(session, "Hello") == "end_turn"
    async with editor(home, WORLDAGENT_MODEL_TAKES="text", WORLDAGENT_ATTACHMENT_FALLBACK="note") as found:
        session = await found.new()
        assert (await found.answer(session, image_block(PNG, "image/png"))).stop_reason == "end_turn"
    assert "only the name of attachment.png" in found.text


# --- approvals and questions ------------------------------------------------------------------------------------------


async def test_an_allowed_call_runs_within_the_prompt(shown: Editor, home: Path) -> None:
    session = await shown.new()
    assert await shown.prompt(session, "do=buy") == "end_turn"
    [asked] = shown.asked
    assert (asked.call.title, asked.call.raw_input, asked.options) == ("pay", {"what": "hat"}, ALLOWED)
    assert "Pay for something." in str(asked.call.content)
    assert statuses(shown, "pay") == ["pending", "in_progress", "completed"]
    assert statuses(shown, "buy")[-1] == "completed"
    assert shown.text == "word0"
    assert bought(home) == ["hat"]


async def test_a_rejected_call_fails_and_the_turn_ends(home: Path) -> None:
    async with editor(home, chooses=lambda options: options[-1]) as found:
        assert await found.prompt(await found.new(), "do=buy") == "end_turn"
    assert statuses(found, "pay")[-1] == "failed"
    assert bought(home) == []


async def test_always_is_for_the_rest_of_the_turn(home: Path) -> None:
    async with editor(home, chooses=lambda options: options[1 + len(found.asked) % 2]) as found:
        session = await found.new()
        for _ in range(4):
            assert await found.prompt(session, "do=buy") == "end_turn"
    assert len(found.asked) == 4
    assert bought(home) == ["hat"] * 4


async def test_several_pauses_are_asked_in_one_prompt(shown: Editor, home: Path) -> None:
    assert await shown.prompt(await shown.new(), "do=both") == "end_turn"
    assert sorted(map(len, (asked.options for asked in shown.asked))) == [2, 4]
    assert bought(home) == ["hat"]


async def test_a_question_without_options_is_answered_by_the_next_prompt(shown: Editor) -> None:
    session = await shown.new()
    assert await shown.prompt(session, "do=choose") == "end_turn"
    [asked] = shown.asked
    assert (asked.call.title, asked.options) == ("Which hat?", ["red", "blue"])
    assert statuses(shown, "Which hat?") == ["pending", "completed"]
    assert "Where to?" in shown.text
    assert "answer: FIELD=VALUE" in shown.text
    for wrong in ("hm", "street=ab number=1"):
        error = await shown.refused("session/prompt", sessionId=session, prompt=[_json(text_block(wrong))])
        assert (error.number, error.data["code"]) == (-32602, "invalid_argument")
    error = await shown.refused(
        "session/prompt", sessionId=session, prompt=[_json(text_block("street=Long number=3")), _json(EMBEDDED)]
    )
    assert "takes no attachment" in error.message
    shown.updates.clear()
    assert await shown.prompt(session, "street=Long number=3") == "end_turn"
    assert shown.text == "word0"


async def test_a_pause_for_other_accounts_is_shown_and_not_asked(home: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.json"
    policy.write_text('{"rules": [{"name": "pay", "function": "pay", "decision": "ask", "approvers": ["chief"]}]}')
    async with editor(home, "--policy", str(policy), "--account", "ana") as found:
        session = await found.new()
        assert await found.prompt(session, "do=buy") == "end_turn"
        assert "approvers: chief" in found.text
        error = await found.refused("session/prompt", sessionId=session, prompt=[_json(text_block("Hello"))])
        assert (error.data["code"], found.asked) == ("thread_paused", [])
    async with editor(home, "--policy", str(policy), "--account", "chief") as found:
        await found.load(session)
        assert await found.prompt(session, "Well?") == "end_turn"
        assert len(found.asked) == 1
    assert bought(home) == ["hat"]


async def test_a_message_is_not_sent_while_the_earlier_turn_waits_for_a_typed_answer(home: Path) -> None:
    async with editor(home, chooses=None) as found:
        session = await found.new()
        prompt = asyncio.ensure_future(found.prompt(session, "do=choose"))
        await found.until(lambda: found.asked)
        found.process.kill()
        with pytest.raises(ConnectionError):
            await bounded(prompt)
    async with editor(home) as found:
        await found.load(session)
        found.updates.clear()
        assert await found.prompt(session, "Hello") == "end_turn"
        assert "Where to?" in found.text
        assert "Your message was not sent" in found.text
        assert await found.prompt(session, "street=Long number=3") == "end_turn"
        found.updates.clear()
        await found.load(session)
        assert [update.content.text for update in found.of("user_message_chunk")] == ["do=choose"]


# --- cancelling -------------------------------------------------------------------------------------------------------


async def test_a_prompt_is_cancelled_while_it_streams(shown: Editor, home: Path) -> None:
    session = await shown.new()
    prompt = asyncio.ensure_future(shown.prompt(session, "words=1000 pace=0.05"))
    await shown.until(lambda: shown.of("agent_message_chunk"))
    await shown.connection.cancel(session_id=session)
    assert await bounded(prompt) == "cancelled"
    assert await shown.prompt(session, "Hello") == "end_turn"


@pytest.mark.parametrize("answered", [False, True])
async def test_a_prompt_is_cancelled_while_it_asks(home: Path, answered: bool) -> None:
    async with editor(home, chooses=(lambda options: None) if answered else None) as found:
        session = await found.new()
        prompt = asyncio.ensure_future(found.prompt(session, "do=buy"))
        await found.until(lambda: found.asked)
        if not answered:
            await found.connection.cancel(session_id=session)
        assert await bounded(prompt) == "cancelled"
        assert await found.prompt(session, "Hello") == "end_turn"
    assert len(found.asked) == 1
    assert bought(home) == []


async def test_cancelling_without_a_prompt_does_nothing(shown: Editor) -> None:
    session = await shown.new()
    await shown.connection.cancel(session_id=session)
    await shown.connection.cancel(session_id="another")
    assert await shown.prompt(session, "Hello") == "end_turn"


# --- the end of the process -------------------------------------------------------------------------------------------


async def test_a_killed_process_leaves_its_question_to_the_next(home: Path) -> None:
    async with editor(home, chooses=None) as found:
        session = await found.new()
        prompt = asyncio.ensure_future(found.prompt(session, "do=buy"))
        await found.until(lambda: found.asked)
        found.process.kill()
        with pytest.raises(ConnectionError):
            await bounded(prompt)
    async with editor(home) as found:
        await found.load(session)
        assert found.of("user_message_chunk")[0].content.text == "do=buy"
        assert "approval of a call: pay" in found.text
        assert not found.asked
        found.updates.clear()
        assert await found.prompt(session, "And now? words=2") == "end_turn"
        assert [asked.options for asked in found.asked] == [ALLOWED]
        assert found.text == "word0word0 word1"  # the earlier answer, and that of this prompt
        found.updates.clear()
        await found.load(session)
        assert [update.content.text for update in found.of("user_message_chunk")] == ["do=buy", "And now? words=2"]
        assert [(call.title, call.status, call.raw_input) for call in found.of("tool_call")] == [
            ("buy", "completed", {"what": "hat"})
        ]
    assert bought(home) == ["hat"]


async def test_a_call_that_was_killed_in_the_middle_is_asked_about(home: Path) -> None:
    home.mkdir()
    (home / "hang").touch()
    async with editor(home) as found:
        session = await found.new()
        prompt = asyncio.ensure_future(found.prompt(session, "do=buy"))
        assert await eventually(lambda: bought(home) == ["hat"], BOUND)
        found.process.kill()
        with pytest.raises(ConnectionError):
            await bounded(prompt)
    (home / "hang").unlink()
    async with editor(home, chooses=lambda options: options[0 if "Resume it" in options else -1]) as found:
        await found.load(session)
        assert await found.prompt(session, "Well? words=2") == "end_turn"
        assert [asked.options for asked in found.asked] == [
            ["Resume it", "End it"],
            ["It did not happen", "Call it again"],
        ]
        assert found.text.endswith("word0word0 word1")
    assert bought(home) == ["hat", "hat"]


@pytest.mark.parametrize(("how", "resume"), [("SIGTERM", True), ("closed input", False)])
async def test_turns_are_drained_and_the_next_prompt_asks_about_them(home: Path, how: str, resume: bool) -> None:
    async with editor(home) as found:
        session = await found.new()
        prompt = asyncio.ensure_future(
            found.refused("session/prompt", sessionId=session, prompt=[_json(text_block("First. hold=go"))])
        )
        assert await eventually((home / "go.held").exists, BOUND)
        if how == "SIGTERM":
            found.process.send_signal(signal.SIGTERM)
        else:
            assert found.process.stdin is not None
            found.process.stdin.close()
        error = await bounded(prompt)
        assert (error.data["code"], error.data["retryable"]) == ("draining", True)
        assert await bounded(found.process.wait()) == (143 if how == "SIGTERM" else 0)
    (home / "go").touch()
    async with editor(home, chooses=lambda options: options[0 if resume else 1]) as found:
        await found.load(session)
        assert "was interrupted" in found.text
        found.updates.clear()
        assert await found.prompt(session, "Second. words=2") == "end_turn"
        assert [asked.options for asked in found.asked] == [["Resume it", "End it"]]
        assert found.text == ("word0word0 word1" if resume else "word0 word1")


async def test_an_agent_with_a_society_is_drained_too(home: Path) -> None:
    async with editor(home, WORLDAGENT_TESTS_SOCIETY="1") as found:
        assert await found.prompt(await found.new(), "Hello") == "end_turn"
        found.process.send_signal(signal.SIGTERM)
        assert await bounded(found.process.wait()) == 143
    assert not found.log


async def test_a_turn_is_stopped_when_the_client_no_longer_reads(home: Path) -> None:
    async with editor(home) as found:
        session = await found.new()
        prompt = asyncio.ensure_future(found.prompt(session, "words=1000 pace=0.02"))
        await found.until(lambda: found.of("agent_message_chunk"))
        found.process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]  # the end that it writes to
        assert await bounded(found.process.wait()) == 0
        prompt.cancel()
    async with WorldAgent("shop", lm=ScriptedLM([]), storage=Storage(home=home)) as agent:
        state = await agent.thread(session).state()
        assert state is not None
        assert state.status == "stopped"


async def test_a_question_is_left_when_the_process_ends(home: Path) -> None:
    async with editor(home, chooses=None) as found:
        session = await found.new()
        prompt = asyncio.ensure_future(
            found.refused("session/prompt", sessionId=session, prompt=[_json(text_block("do=buy"))])
        )
        await found.until(lambda: found.asked)
        found.process.send_signal(signal.SIGTERM)
        assert (await bounded(prompt)).data["code"] == "draining"
    async with editor(home) as found:
        await found.load(session)
        assert await found.prompt(session, "Go on.") == "end_turn"
    assert bought(home) == ["hat"]


async def test_standard_output_has_nothing_but_the_protocol(home: Path, tmp_path: Path) -> None:
    loud = (
        "from support.sidecar_app import shop\nprint('imported')\n\ndef make():\n    print('made')\n    return shop()\n"
    )
    (tmp_path / "loud.py").write_text(loud)
    words = (*ACP, "--app", "loud:make", "--home", str(home))
    env = environment(home)
    env["PYTHONPATH"] = f"{env['PYTHONPATH']}:{tmp_path}"
    process = await forks.start(words, stderr=asyncio.subprocess.PIPE, env=env, fresh=True)
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}},
        {"jsonrpc": "2.0", "id": 2, "method": "session/new", "params": {"cwd": "/", "mcpServers": []}},
    ]
    given = b"".join(json.dumps(line).encode() + b"\n" for line in lines) + b"no message\n"
    out, told = await bounded(process.communicate(given))
    answers = [json.loads(line) for line in out.splitlines()]
    assert [answer["id"] for answer in answers if "result" in answer] == [1, 2]
    assert [answer["error"]["code"] for answer in answers if "error" in answer] == [-32700]
    assert b"imported\nmade\n" in told
    assert process.returncode == 0


# --- sessions ---------------------------------------------------------------------------------------------------------


async def test_sessions_are_listed_in_pages(home: Path) -> None:
    async with WorldAgent("shop", lm=ScriptedLM([{"reply": "Hm."}] * 102), storage=Storage(home=home)) as agent:
        for number in range(101):
            await agent.thread(f"t{number}", account="ana").converse(f"Message {number}")
        await agent.thread("other", account="ben").converse("Message of Ben")
    async with editor(home, "--account", "ana") as found:
        capabilities = (await found.initialize()).agent_capabilities
        assert capabilities is not None
        assert capabilities.model_dump(exclude_unset=True)["session_capabilities"] == {"list": {}}
        page = await bounded(found.connection.list_sessions(cwd="/work"))
        assert [session.session_id for session in page.sessions] == [f"t{number}" for number in range(100, 0, -1)]
        assert (page.sessions[0].title, page.sessions[0].cwd) == ("Message 100", "/work")
        last = await bounded(found.connection.list_sessions(cursor=page.next_cursor))
        assert ([session.session_id for session in last.sessions], last.next_cursor) == (["t0"], None)
        error = await found.refused("session/list", cursor="nonsense")
        assert error.data["code"] == "invalid_argument"
        await found.load("t0")
        assert found.text == "Hm."


# --- modes ------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R7", "R13")
async def test_a_mode_is_a_call_role_of_the_prompts_in_it(home: Path, tmp_path: Path) -> None:
    role = "Judge as a lighthouse keeper would, without a word about the sea."
    (tmp_path / "keeper.md").write_text(role)
    options = ("--mode", f"keeper=@{tmp_path / 'keeper.md'}", "--mode", "other=Be brief.")
    seen = home.with_name("home.seen")
    async with editor(home, *options, chooses=None) as found:
        await found.initialize()
        new = await bounded(found.connection.new_session(cwd="/", mcp_servers=[]))
        session, modes = new.session_id, new.modes
        assert modes is not None
        assert [mode.id for mode in modes.available_modes] == ["none", "keeper", "other"]
        assert modes.current_mode_id == "none"
        await found.prompt(session, "Hello")
        assert not seen.exists()
        await found.connection.set_session_mode(session_id=session, mode_id="keeper")
        await found.prompt(session, "Hello")
        assert seen.read_text().split() == [digest(role)]
        error = await found.refused("session/set_mode", sessionId=session, modeId="judge")
        assert error.data["code"] == "unknown_mode"
        prompt = asyncio.ensure_future(found.prompt(session, "do=buy"))
        await found.until(lambda: found.asked)
        found.process.kill()
        with pytest.raises(ConnectionError):
            await bounded(prompt)
    async with editor(home, *options) as found:
        await found.load(session)
        error = await found.refused("session/prompt", sessionId=session, prompt=[_json(text_block("Go on."))])
        assert error.data["code"] == "role_required"
        assert "choose the mode that the turn began with" in error.message
        await found.connection.set_session_mode(session_id=session, mode_id="keeper")
        assert await found.prompt(session, "Go on.") == "end_turn"
    assert bought(home) == ["hat"]


# --- requests that are refused ----------------------------------------------------------------------------------------


def _json(block: Any) -> dict[str, Any]:
    return dict(block.model_dump(mode="json", by_alias=True, exclude_none=True))


async def test_nothing_is_served_before_initialize_which_every_version_of_the_protocol_can(shown: Editor) -> None:
    error = await shown.refused("session/new", cwd="/", mcpServers=[])
    assert (error.number, error.data["code"]) == (-32600, "not_initialized")
    for number in (0, 1, 99):
        answer = await bounded(shown.connection.initialize(protocol_version=number))
        assert answer.protocol_version == 1


async def test_what_prompts_cannot_have_is_refused_by_its_code(shown: Editor) -> None:
    session = await shown.new()

    async def code(*blocks: dict[str, Any]) -> tuple[int, str]:
        error = await shown.refused("session/prompt", sessionId=session, prompt=list(blocks))
        assert error.data["remedy"] in error.message
        return error.number, error.data["code"]

    assert await code() == (-32602, "invalid_argument")
    assert await code(_json(text_block(" \n"))) == (-32602, "invalid_argument")
    assert await code({"type": "video", "data": ""}) == (-32602, "invalid_argument")
    assert await code({"type": "text"}) == (-32602, "invalid_argument")
    assert await code(_json(audio_block(PNG, "audio/wav"))) == (-32602, "attachment_not_taken")
    assert await code(_json(image_block("no base64!", "image/png"))) == (-32602, "attachment_invalid")
    assert await code(_json(image_block(PNG, "image/jpeg"))) == (-32602, "attachment_invalid")
    assert await shown.prompt(session, "Hello") == "end_turn"


async def test_unknown_sessions_and_methods_are_refused(shown: Editor) -> None:
    await shown.initialize()
    for method, params in (
        ("session/prompt", {"prompt": [_json(text_block("Hello"))]}),
        ("session/load", {"cwd": "/", "mcpServers": []}),
        ("session/set_mode", {"modeId": "none"}),
    ):
        error = await shown.refused(method, sessionId="t1", **params)
        assert (error.number, error.data["code"]) == (-32002, "unknown_session")
    wrong: list[dict[str, Any]] = [{"cwd": "here", "mcpServers": []}, {"mcpServers": []}, {"cwd": "/"}]
    for given in wrong:
        assert (await shown.refused("session/new", **given)).data["code"] == "invalid_argument"
    error = await shown.refused("session/load", sessionId="\n", cwd="/", mcpServers=[])
    assert error.data["code"] == "invalid_argument"
    for method in ("session/fork", "_own/method", "session/update"):
        error = await shown.refused(method, sessionId="t1")
        assert (error.number, error.data["code"]) == (-32601, "unknown_method")


async def test_no_message_ends_the_server_or_is_left_without_its_answer(shown: Editor) -> None:
    session, send = await shown.new(), shown.connection._conn
    valid: dict[str, dict[str, Any]] = {
        "initialize": {"protocolVersion": 1},
        "session/new": {"cwd": "/", "mcpServers": []},
        "session/load": {"cwd": "/", "mcpServers": [], "sessionId": session},
        "session/list": {},
        "session/set_mode": {"sessionId": session, "modeId": "none"},
        "session/prompt": {"sessionId": session, "prompt": [_json(text_block("Hello"))]},
        "session/cancel": {"sessionId": session},
    }
    wrong: list[Any] = [None, {}, [1], {"sessionId": 5, "cwd": 5, "prompt": 5, "modeId": 5, "cursor": 5}, {"id": "\n"}]
    answered: dict[str, set[Any]] = {}
    for method in sorted({*AGENT_METHODS.values(), *CLIENT_METHODS.values(), "_own/method", "", "no such\n"}):
        for params in (valid.get(method, {}), *wrong):
            try:
                await bounded(send.send_request(method, params))
                answered.setdefault(method, set()).add("result")
            except RequestError as error:
                answered.setdefault(method, set()).add(error.code)
            await send.send_notification(method, params)
        assert ("result" in answered[method]) == (method in valid), method
        assert answered[method] & {-32601, -32602, -32600}, method
    assert "sessionId" in (await shown.refused("session/cancel", sessionId=5)).message
    await shown.until(lambda: shown.text == "word0word0")  # of a request and of a notification
    another = (await bounded(shown.connection.new_session(cwd="/", mcp_servers=[]))).session_id
    shown.updates.clear()
    prompt = asyncio.ensure_future(shown.prompt(another, "words=1000 pace=0.05"))
    await shown.until(lambda: shown.of("agent_message_chunk"))
    assert await bounded(send.send_request("session/cancel", {"sessionId": another})) == {}
    assert await bounded(prompt) == "cancelled"
    assert await shown.prompt(another, "Hello") == "end_turn"
    assert "ValidationError" not in shown.log
    assert "a notification was refused: unknown_method" in shown.log


async def test_a_session_runs_one_prompt_at_a_time(shown: Editor, home: Path) -> None:
    session = await shown.new()
    prompt = asyncio.ensure_future(shown.prompt(session, "hold=go"))
    assert await eventually((home / "go.held").exists, BOUND)
    for method, params in (
        ("session/prompt", {"prompt": [_json(text_block("Hello"))]}),
        ("session/load", {"cwd": "/", "mcpServers": []}),
    ):
        error = await shown.refused(method, sessionId=session, **params)
        assert (error.number, error.data["code"]) == (-32600, "prompt_running")
    assert await shown.prompt(await shown.new(), "Another session") == "end_turn"
    (home / "go").touch()
    assert await bounded(prompt) == "end_turn"


async def test_a_failed_turn_is_an_error_with_its_code(shown: Editor) -> None:
    session = await shown.new()
    error = await shown.refused("session/prompt", sessionId=session, prompt=[_json(text_block("secret fail=1"))])
    assert (error.number, error.data["code"]) == (-32603, "model_unavailable")
    assert error.data["turn_id"]
    assert "secret" not in json.dumps([error.message, error.data])
    assert await shown.prompt(session, "Hello") == "end_turn"


async def test_a_client_that_answers_a_question_wrongly_can_be_asked_again(home: Path) -> None:
    async with editor(home, chooses=lambda options: "no option") as found:
        session = await found.new()
        error = await found.refused("session/prompt", sessionId=session, prompt=[_json(text_block("do=buy"))])
        assert error.data["code"] == "client_failed"
        found.chooses = lambda options: options[0]
        assert await found.prompt(session, "Go on.") == "end_turn"
    assert bought(home) == ["hat"]


# --- the command, and another client ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--mode", "critic"], "--mode 'critic' has no '='"),
        (["--mode", "none=Be brief."], "--mode 'none' is the mode without a role"),
        (["--mode", "a=Be brief.", "--mode", "a=Be long."], "--mode 'a' is given twice"),
        (["--mode", "a=-"], "must not read standard input"),
        (["--mode", "a="], "the role 'a' has no content"),
        (["--worker", "a=-"], "must not read standard input"),
    ],
)
async def test_modes_are_checked_before_anything_is_served(run: Run, words: list[str], told: str) -> None:
    done = await run("acp", "--lm", "openai/answer", *words)
    assert done.exit_code == 2
    assert told in done.stderr
    assert not done.stdout


async def test_without_the_extra_the_error_names_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "acp", None)
    done = await run("acp", "--lm", "openai/answer")
    assert done.exit_code == 2
    assert "pip install 'worldagent[acp]'" in done.stderr


async def test_the_sdk_in_typescript_runs_a_turn_with_an_approval(home: Path) -> None:
    assert (NPM.parent / "@agentclientprotocol").is_dir(), "the packages of the client are missing: run `make setup`"
    client = ROOT / "tests" / "mcp_tools" / "servers" / "acp_client.mjs"
    home.mkdir()
    process = await asyncio.create_subprocess_exec(
        *(NODE, str(client), *ACP, *APP, "--home", str(home)), stdout=asyncio.subprocess.PIPE, env=environment(home)
    )
    out, _ = await bounded(process.communicate())
    found = json.loads(out)
    assert found["initialized"]["protocolVersion"] == 1
    assert found["done"] == {"stopReason": "end_turn"}
    assert found["asked"] == [["allow_once", "allow_always", "allow_always", "reject_once"]]
    assert "agent_message_chunk" in found["updates"]
    assert found["replayed"] == ["user_message_chunk", "tool_call", "agent_message_chunk"]
    assert bought(home) == ["hat"]
