"""Temperature, longest answer, reasoning effort and headers reach the service, from wherever they are given."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from support.agents import failure, scripted_agent
from support.command_line import Run, run_on_stub, stub
from support.openai_stub import OpenAIStub, openai_stub
from worldagent import Settings
from worldagent.core.errors import FunctionInvalid, ProfileInvalid, SettingsInvalid, WorkerInvalid
from worldagent.harness import Worker, load_workers
from worldagent.profiles import Profiles

__all__ = ["run_on_stub", "stub"]

SECRET = "org-secret-7"
ALL = {"temperature": 0.25, "max_tokens": 77, "reasoning_effort": "low", "headers": {"OpenAI-Organization": SECRET}}
SENT = {"temperature": 0.25, "max_completion_tokens": 77, "reasoning_effort": "low"}
YAML = f"options:\n  temperature: 0.25\n  max_tokens: 77\n  reasoning_effort: low\n  headers:\n    X-Org: {SECRET}\n"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-a-test")
    monkeypatch.setenv("MISTRAL_API_KEY", "key-of-a-test")


@pytest_asyncio.fixture
async def other() -> AsyncGenerator[OpenAIStub]:
    """The server of another vendor."""
    async with openai_stub() as running:
        running.text = "[[ ## result ## ]]\nFine."
        yield running


def options_of(stub: OpenAIStub, at: int = -1) -> dict[str, Any]:
    return {name: value for name, value in stub.requests[at].items() if name in SENT}


def profile(tmp_path: Path, text: str) -> Any:
    folder = tmp_path / "profiles"
    folder.mkdir(exist_ok=True)
    (folder / "mine.yaml").write_text(text, encoding="utf-8")
    return Profiles.open(user=folder).get("mine")


async def test_environment_and_file_merge(tmp_path: Path, stub: OpenAIStub, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("[model_options]\ntemperature = 1\nmax_tokens = 77\n")
    monkeypatch.setenv("WORLDAGENT_SETTINGS", str(file))
    monkeypatch.setenv("WORLDAGENT_MODEL_OPTIONS", json.dumps({"temperature": 0.25}))
    async with scripted_agent(tmp_path, "openai/answer", settings={"api_base": stub.url}) as agent:
        await agent.thread("t").converse("Hi")
    assert options_of(stub) == {"temperature": 0.25, "max_completion_tokens": 77}


async def test_worker_file_options_go_over_profile_and_settings_for_its_calls(tmp_path: Path, stub: OpenAIStub) -> None:
    file = tmp_path / "critic.worker.md"
    file.write_text(f"---\n{YAML}---\nYou judge.\n", encoding="utf-8")
    chosen = profile(tmp_path, "options: {temperature: 0.5, top_p: 0.9}\n")
    settings = {"api_base": stub.url, "model_options": {"max_tokens": 5}}
    stub.first = ["[[ ## result ## ]]\nFine."]
    async with scripted_agent(
        tmp_path, "openai/answer", settings=settings, profile=chosen, workers=load_workers(file)
    ) as agent:
        assert await agent.call("critic", {"request": "Go."}) == "Fine."
        await agent.thread("t").converse("Hi")
    assert options_of(stub, 0) == SENT
    assert stub.requests[0]["top_p"] == 0.9
    assert stub.headers[0]["x-org"] == SECRET
    assert options_of(stub, 1) == {"temperature": 0.5, "max_completion_tokens": 5}
    assert "x-org" not in stub.headers[1]


async def test_command_line_options_go_over_the_setting(run: Run, stub: OpenAIStub, tmp_path: Path) -> None:
    secret = tmp_path / "org.txt"
    secret.write_text(f"{SECRET}\n")
    words = ("--temperature", "0.25", "--max-tokens", "77", "--reasoning-effort", "low", "--header", f"X-Org=@{secret}")
    given = json.dumps({"temperature": 1, "headers": {"X-Team": "blue"}})
    done = await run("ask", "Hi", "--json", *words, WORLDAGENT_MODEL_OPTIONS=given)
    assert done.exit_code == 0, done.output
    assert options_of(stub) == SENT
    assert (stub.headers[-1]["x-org"], stub.headers[-1]["x-team"]) == (SECRET, "blue")
    assert SECRET not in done.output


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"temperature": 3}, "temperature"),
        ({"temperatur": 1}, "temperatur"),
        ({"headers": {"X-Org": f"{SECRET}\r\nX-Other: 1"}}, "headers"),
        ({"headers": {"Host": SECRET}}, "headers"),
        ({"headers": {"X-Org": f"Bearer ${{{SECRET}}}"}}, "'x-org' has a variable"),
        ({"headers": {"X-Org": SECRET, "x-org": SECRET}}, "headers"),
    ],
)
def test_invalid_options_are_named_without_values(tmp_path: Path, options: dict[str, Any], key: str) -> None:
    text = f"options: {json.dumps(options)}\n"
    file = tmp_path / "critic.worker.md"
    file.write_text(f"---\n{text}---\nYou judge.\n", encoding="utf-8")
    for error, make in (
        (SettingsInvalid, lambda: Settings(model_options=options)),
        (FunctionInvalid, lambda: Worker("critic", "You judge.", options=options)),
        (WorkerInvalid, lambda: load_workers(file)),
        (ProfileInvalid, lambda: profile(tmp_path, text)),
    ):
        with pytest.raises(error, match=key) as caught:
            make()
        assert SECRET not in str(caught.value) + repr(caught.value)
        assert caught.value.remedy


async def test_headers_go_to_no_other_vendor(
    tmp_path: Path, stub: OpenAIStub, other: OpenAIStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MISTRAL_API_BASE", other.url)
    headers = {"headers": {"X-Worker": SECRET}}
    workers = [
        Worker("falls", "You judge.", options=headers, model="openai/down-500", fallbacks=("mistral/answer",)),
        Worker("theirs", "You judge.", options=headers, model="mistral/answer"),
    ]
    settings = {"api_base": stub.url, "model_options": {"temperature": 0.25, "headers": {"X-Own": SECRET}}}
    async with scripted_agent(tmp_path, "openai/answer", settings=settings, workers=workers) as agent:
        assert await agent.call("falls", {"request": "Go."}) == "Fine."
        assert {"x-own", "x-worker"} <= stub.headers[-1].keys()
        assert not {"x-own", "x-worker"} & other.headers[-1].keys()
        assert other.requests[-1]["temperature"] == 0.25
        assert await agent.call("theirs", {"request": "Go."}) == "Fine."
        assert {"x-own", "x-worker"} & other.headers[-1].keys() == {"x-worker"}


async def test_headers_are_in_no_text_and_no_file_of_the_agent(tmp_path: Path, stub: OpenAIStub) -> None:
    home = tmp_path / "home"
    chosen = profile(tmp_path, YAML)
    worker = Worker("critic", "You judge.", options=ALL)
    settings = Settings(api_base=stub.url, model_options=ALL)
    shown = f"{settings!r} {settings} {settings.model_dump_json()} {chosen!r} {worker!r} {worker.options}"
    async with scripted_agent(
        home, "openai/quoting-400", settings={"api_base": stub.url, "model_options": ALL}, profile=chosen
    ) as agent:
        refusal = await failure(agent.thread("t").converse("Hi"))
        shown += repr(agent.settings)
    assert stub.headers[-1]["x-org"] == SECRET
    assert "quoting" in str(refusal)
    assert SECRET not in shown + str(refusal) + repr(refusal)
    assert not [path for path in home.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


async def test_profiles_show_names_headers_alone(run: Run, tmp_path: Path) -> None:
    profile(tmp_path, YAML)
    for form in ("--json", ""):
        words = ("profiles", "show", "mine", *([form] if form else []))
        done = await run(*words, WORLDAGENT_PROFILES=str(tmp_path / "profiles"))
        assert done.exit_code == 0, done.output
        assert "x-org" in done.output
        assert "0.25" in done.output
        assert SECRET not in done.output


@pytest.mark.local
async def test_the_embedded_model_takes_the_longest_answer_and_ignores_the_rest(tmp_path: Path) -> None:
    async with scripted_agent(
        tmp_path, "local", settings={"model_options": {**ALL, "max_tokens": 3, "temperature": 0}}
    ) as agent:
        turn = await agent.thread("t").converse("Tell me a long story about the sea.")
    assert turn.usage.output_tokens in (1, 2, 3)
