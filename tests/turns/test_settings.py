"""Settings: where they come from, which of them counts, and what is said of one that does not fit."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering
from support.role_host_stub import StubHost, over_http
from worldagent import Roles, Settings, Storage, WorldAgent
from worldagent.core.errors import SettingsInvalid
from worldagent.mcp_client import HttpHost


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings file, which is empty yet."""
    path = tmp_path / "my settings.toml"
    path.touch()
    monkeypatch.setenv("WORLDAGENT_SETTINGS", str(path))
    return path


def test_arguments_override_environment_and_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().max_rounds == 8
    file.write_text("max_rounds = 3\nmodel_attempts = 4\nlm = 'from/file'\n")
    assert Settings().max_rounds == 3
    monkeypatch.setenv("WORLDAGENT_MAX_ROUNDS", "5")
    assert Settings().max_rounds == 5
    assert Settings(max_rounds=7).max_rounds == 7
    monkeypatch.setenv("WORLDAGENT_LM", "")  # counts as not set
    assert (Settings(max_rounds=7).model_attempts, Settings().lm) == (4, "from/file")


def test_given_settings_override_what_is_read(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("role_limit = 100\n")
    monkeypatch.setenv("WORLDAGENT_LM", "from/environment")
    given = Settings(role_limit=7)
    monkeypatch.setenv("WORLDAGENT_ROLE_LIMIT", "9")
    assert WorldAgent("novel", settings=given).settings.role_limit == 7
    assert WorldAgent("novel").settings.role_limit == 9
    assert given.lm == "from/environment"


@pytest.mark.parametrize("given", ["storage", "settings", "environment", "file"])
def test_first_source_decides_the_home(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    places = ["storage", "settings", "environment", "file"]
    here = {place: tmp_path / place for place in places[places.index(given) :]}
    if "file" in here:
        file.write_text(f"home = '{here['file']}'\n")
    if "environment" in here:
        monkeypatch.setenv("WORLDAGENT_HOME", str(here["environment"]))
    settings = Settings(home=here["settings"]) if "settings" in here else None
    # A Storage that says nothing of the home leaves it to the settings.
    storage = Storage(home=here.get("storage"))

    async def open_and_close() -> None:
        async with WorldAgent("novel", lm=answering(), storage=storage, settings=settings):
            pass

    asyncio.run(open_and_close())
    assert [place for place in places if (tmp_path / place / "agent.db").exists()] == [given]


WRONG: list[tuple[str, str, Any, str]] = [
    ("environment", "max_rounds", "many", "valid integer"),
    ("argument", "model_timeout", float("nan"), "greater than 0"),
    ("file", "history_limit", 1001, "less than or equal to 1000"),
    ("argument", "echo", "shout", "'disclosure', 'strict', 'fail' or 'allow'"),
    ("file", "max_round", 3, "Extra inputs are not permitted"),
    ("file", "api_base", "http://${HOST}/v1", "has a variable, and variables are filled in for MCP servers only"),
    ("file", "database_url", "postgresql://me:${PASSWORD}@host/db", "WORLDAGENT_DATABASE_URL"),
    ("file", "home", "${HOME}/agents", "has a variable"),
    ("file", "tool_roots", ["${HOME}"], "has a variable"),
    ("environment", "role_host_token", "${TOKEN}", "has a variable"),
]


@pytest.mark.parametrize(("source", "name", "value", "says"), WRONG)
def test_invalid_value_is_named_with_bound_and_remedy(
    file: Path, monkeypatch: pytest.MonkeyPatch, source: str, name: str, value: Any, says: str
) -> None:
    arguments: dict[str, Any] = {}
    match source:
        case "argument":
            arguments = {name: value}
        case "environment":
            monkeypatch.setenv(f"WORLDAGENT_{name.upper()}", str(value))
        case _:
            file.write_text(f"{name} = {value!r}\n")
    with pytest.raises(SettingsInvalid) as caught:
        Settings(**arguments)
    text = str(caught.value)
    assert name in text
    assert says in text
    assert f"correct the argument, the variable WORLDAGENT_..., or the file {str(file)!r}" in text
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_a_variable_that_is_not_json_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLDAGENT_CAPABILITIES", "notes, secret")
    with pytest.raises(SettingsInvalid, match=r"WORLDAGENT_CAPABILITIES in the .* is not JSON; write a list") as failed:
        Settings()
    assert "secret" not in str(failed.value)


def test_invalid_toml_is_named(file: Path) -> None:
    file.write_bytes(b"max_rounds = = 3\n")
    with pytest.raises(SettingsInvalid) as caught:
        Settings()
    assert repr(str(file)) in str(caught.value)
    assert caught.value.__context__ is None


def test_a_settings_file_that_is_named_must_exist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert Settings().max_rounds == 8
    monkeypatch.setenv("WORLDAGENT_SETTINGS", "missing.toml")
    with pytest.raises(SettingsInvalid, match=r"missing.toml"):
        Settings()


@pytest.mark.requirement("R9")
async def test_role_host_of_the_settings_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub, other = StubHost(), StubHost()
    stub.kept["workspace", "novel"] = ("house", "of the settings")
    other.kept["workspace", "novel"] = ("house", "of the argument")
    with over_http(stub, token="t0ken") as url, over_http(other) as other_url:
        monkeypatch.setenv("WORLDAGENT_ROLE_HOST", url)
        monkeypatch.setenv("WORLDAGENT_ROLE_HOST_TOKEN", "t0ken")
        host = Roles(host=HttpHost(other_url))
        given: list[tuple[dict[str, Any], str]] = [
            ({}, "of the settings"),
            ({"roles": host}, "of the argument"),
            ({"settings": Settings(role_host="embedded")}, ""),
        ]
        for more, expected in given:
            lm = answering()
            async with WorldAgent("novel", lm=lm, storage=Storage(home=tmp_path), **more) as agent:
                await agent.thread("t").converse("Hi")
            assert (lm.calls[0].role or "") == expected


def test_settings_name_role_host_tools_and_timeouts(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("role_host = 'http://127.0.0.1:9/mcp'\nrole_host_timeout = 7\n")
    monkeypatch.setenv("WORLDAGENT_ROLE_HOST_TOOLS", json.dumps({"role_list": "app_role_list"}))
    host = Settings().host()
    assert host is not None
    assert (host.timeout, host.tools) == (7, {"role_list": "app_role_list"})
    monkeypatch.setenv("WORLDAGENT_ROLE_HOST_TOOLS", json.dumps({"role_drop": "x"}))
    with pytest.raises(SettingsInvalid, match="role_host: `tools` renames 'role_drop'"):
        Settings()


def test_the_token_of_the_role_host_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLDAGENT_ROLE_HOST", "http://127.0.0.1:9/mcp")
    monkeypatch.setenv("WORLDAGENT_ROLE_HOST_TOKEN", "t0ken-of-ana")
    settings = Settings()
    assert "t0ken" not in repr(settings) + str(settings) + repr(settings.host())
    monkeypatch.setenv("WORLDAGENT_ROLE_HOST_TOKEN", "t0ken of ana")  # no header can hold it
    with pytest.raises(SettingsInvalid, match="role_host: `token`") as failure:
        Settings()
    assert "t0ken of" not in str(failure.value)
