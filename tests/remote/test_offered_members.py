"""Members that others reach as agents of A2A, with the client of A2A's JavaScript SDK (A22)."""

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.a2a_peers import check_wire, free_port
from support.agents import open_pauses
from support.offering import HOME, JsClient, agent, js_client, message
from support.processes import clean_environment, lines
from support.web import served
from worldagent import Approve, WorldAgent
from worldagent.hosts.service.call import Grant
from worldagent.hosts.serving import Tokens
from worldagent.hosts.web import WebApp

pytestmark = pytest.mark.requirement("A22")

TOKENS = {"ana-token": "ana", "bo-token": "bo"}


@asynccontextmanager
async def offering(home: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[tuple[str, WorldAgent]]:
    """The address of the app that offers `ada`, and its agent."""
    home.mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv(HOME, str(home))
    made = agent()
    tokens = Tokens([(token, Grant(("novel",), (account,))) for token, account in TOKENS.items()])
    app = WebApp(made, tokens=tokens, a2a=("ada",), console=False)
    async with app.lifespan(), served(app) as url:
        yield url, made


@asynccontextmanager
async def calling(home: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[tuple[JsClient, WorldAgent]]:
    async with offering(home, monkeypatch) as (url, made), js_client(f"{url}/a2a/ada", "ana-token") as client:
        yield client, made
    assert check_wire(client.wire) > 1


def answer_of(task: dict[str, Any]) -> str:
    return str(task["artifacts"][0]["parts"][0]["text"])


async def reached(client: JsClient, task: str, state: str) -> dict[str, Any]:
    """A task once it has come to a state."""
    found = await eventually_is(lambda: client.call("get", id=task), f"TASK_STATE_{state}", _state)
    return dict(found)


def _state(task: Any) -> str:
    return str(task["status"]["state"])


async def eventually_is(look: Callable[[], Awaitable[Any]], wanted: object, part: Callable[[Any], object]) -> Any:
    """Look again and again, until a part of what is found is what is wanted."""
    async with asyncio.timeout(60):
        while part(found := await look()) != wanted:  # noqa: ASYNC110 -- another process does it
            await asyncio.sleep(0.05)
    return found


async def test_a_member_answers_a_caller_and_a_repeat_is_the_same_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with calling(tmp_path, monkeypatch) as (client, _):
        task = await client.call("send", **message("count them", "c1", contextId="mine"))
        assert (task["status"]["state"], task["contextId"]) == ("TASK_STATE_COMPLETED", "mine")
        assert "7 walls" in answer_of(task)
        again = await client.call("send", **message("count them", "c1", contextId="mine"))
        assert (again["id"], answer_of(again)) == (task["id"], answer_of(task))
        other = await client.call("send", **message("count them", "c2"))
        assert other["id"] != task["id"]
        listed = await client.call("list", contextId="mine", pageSize=10)
        assert [each["id"] for each in listed["tasks"]] == [task["id"]]
        assert lines(tmp_path / "effects") == ["walls", "walls"]


async def test_a_caller_sees_its_own_tasks_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with offering(tmp_path, monkeypatch) as (url, _), js_client(f"{url}/a2a/ada", "ana-token") as ana:
        task = await ana.call("send", **message("hello", "c1"))
        async with js_client(f"{url}/a2a/ada", "bo-token") as bo:
            assert await bo.refused("get", id=task["id"]) == "TaskNotFoundError"
            assert await bo.refused("cancel", id=task["id"]) == "TaskNotFoundError"
            same = await bo.call("send", **message("hello", "c1"))
            assert same["id"] != task["id"]
        async with httpx2.AsyncClient(base_url=url) as client:
            card = "/.well-known/agent-card.json"
            assert (await client.get(f"/a2a/ada{card}")).status_code == 401
            assert (await client.post("/a2a/ada", json={})).status_code == 401
            headers = {"Authorization": "Bearer ana-token"}
            assert (await client.get(f"/a2a/bob{card}", headers=headers)).status_code == 404  # it is not offered
            found = (await client.get(f"/a2a/ada{card}", headers=headers)).json()
    assert found["supportedInterfaces"][0]["url"] == f"{url}/a2a/ada"
    assert "You are ada" not in str(found)  # the soul


async def test_a_question_to_the_caller_is_input_required(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with calling(tmp_path, monkeypatch) as (client, _):
        task = await client.call("send", **message("ask me", "c1"))
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert task["status"]["message"]["parts"][0]["text"] == "Which colour?"
        done = await client.call("send", **message("red", "c2", taskId=task["id"]))
        assert done["id"] == task["id"]
        assert "red" in answer_of(done)
        assert await client.refused("send", **message("blue", "c3", taskId=task["id"])) == "UnsupportedOperationError"


async def test_approvals_stay_with_the_people_of_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with calling(tmp_path, monkeypatch) as (client, made):
        now = {"configuration": {"returnImmediately": True}}
        task = await client.call("send", **message("approve it", "c1"), **now)
        assert task["status"]["state"] == "TASK_STATE_SUBMITTED"
        thread = made.thread("member ada", account="member:novel/ada")
        pauses = await eventually_is(lambda: open_pauses(thread), 1, len)
        found = await client.call("get", id=task["id"])
        assert found["status"]["state"] == "TASK_STATE_WORKING"
        assert "message" not in found["status"]
        await thread.resume({pauses[0].id: Approve()})
        await reached(client, task["id"], "COMPLETED")


async def test_cancelling_a_task_cancels_the_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with calling(tmp_path, monkeypatch) as (client, made):
        now = {"configuration": {"returnImmediately": True}}
        task = await client.call("send", **message("slow one", "c1"), **now)
        await reached(client, task["id"], "WORKING")
        cancelled = await client.call("cancel", id=task["id"])
        assert cancelled["status"]["state"] == "TASK_STATE_CANCELED"
        await eventually_is(made.society.mail.waiting, 0, len)
        assert (await client.call("get", id=task["id"]))["status"]["state"] == "TASK_STATE_CANCELED"
        done = await client.call("send", **message("hello", "c2"))
        assert await client.refused("cancel", id=done["id"]) == "TaskNotCancelableError"


async def test_a_stream_tells_the_states_and_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with calling(tmp_path, monkeypatch) as (client, _):
        first, *others = await client.stream(**message("count them", "c1"))
        assert first["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
        assert [each["statusUpdate"]["status"]["state"] for each in others if "statusUpdate" in each][-1:] == [
            "TASK_STATE_COMPLETED"
        ]
        [artifact] = [each["artifactUpdate"]["artifact"] for each in others if "artifactUpdate" in each]
        assert "7 walls" in artifact["parts"][0]["text"]


async def test_what_a_member_thinks_is_not_its_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with calling(tmp_path, monkeypatch) as (client, _):
        task = await client.call("send", **message("be quiet", "c1"))
        assert task["status"]["state"] == "TASK_STATE_FAILED"
        assert "secret" not in str(task)


# --- kills ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def serving(home: Path, port: int) -> Generator[subprocess.Popen[bytes]]:
    """Run `worldagent serve --a2a ada`, killed at the end of the block."""
    token = home / "tokens.toml"
    token.write_text('[[token]]\ntoken = "ana-token"\nworkspaces = ["novel"]\naccounts = ["ana"]\n')
    token.chmod(0o600)
    argv = [sys.executable, "-P", "-m", "worldagent.hosts.cli", "serve", "--a2a", "ada"]
    argv += ["--http", f"127.0.0.1:{port}", "--app", "support.offering:agent", "--token-file", str(token), "--json"]
    environment = clean_environment(**{HOME: str(home)})
    with (home / "errors").open("ab") as errors:
        process = subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=errors)
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), (home / "errors").read_text()
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)


@pytest.mark.requirement("T5")
@pytest.mark.timeout(300)
async def test_a_task_goes_on_where_its_process_was_killed(tmp_path: Path) -> None:
    port = free_port()
    now = {"configuration": {"returnImmediately": True}}
    async with js_client(f"http://127.0.0.1:{port}/a2a/ada", "ana-token") as client:
        with serving(tmp_path, port):
            asked = await client.call("send", **message("ask me", "c1"))
            slow = await client.call("send", **message("slow one", "c2"), **now)
            gone = await client.call("send", **message("slow too", "c3"), **now)
        with serving(tmp_path, port):  # killed while one waits for its caller, and another one behind it
            found = await client.call("get", id=asked["id"])
            assert found["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
            again = await client.call("send", **message("slow one", "c2"), **now)
            assert again["id"] == slow["id"]
            await client.call("send", **message("red", "c4", taskId=asked["id"]), **now)
            await reached(client, asked["id"], "COMPLETED")
            await reached(client, slow["id"], "WORKING")
            await client.call("cancel", id=gone["id"])
        with serving(tmp_path, port):  # killed in the middle of a turn
            found = await client.call("get", id=gone["id"])
            assert found["status"]["state"] == "TASK_STATE_CANCELED"
            await client.call("cancel", id=slow["id"])
            (tmp_path / "go").touch()
            done = await client.call("send", **message("count them", "c5"))
            assert "7 walls" in answer_of(done)
            assert (await client.call("get", id=slow["id"]))["status"]["state"] == "TASK_STATE_CANCELED"
            listed = await client.call("list", pageSize=10)
            assert len(listed["tasks"]) == 4
    assert lines(tmp_path / "effects") == ["walls"]
    assert check_wire(client.wire) > 10
    assert "ana-token" not in (tmp_path / "errors").read_text()
