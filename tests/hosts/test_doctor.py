"""The check of an installation: what is wrong is named with what to do, and nothing is changed; and the command."""

import asyncio
import contextlib
import json
import os
import re
import shlex
import shutil
import sqlite3
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from unittest.mock import Mock

import pytest

from support.agents import answering, scripted_agent
from support.broken_hosts import broken_host
from support.command_line import doctor
from support.noted_turns import contents
from support.pages import DOCS, rows
from support.raw_hosts import plain_host
from support.role_specs import spec_of, workspace_of
from worldagent.agent.runtime.inside import inside
from worldagent.core import Tier
from worldagent.hosts.doctor import INSTALLATION_POINTS, InstallationOptions, check_installation
from worldagent.hosts.doctor import Result as PointResult
from worldagent.hosts.role_host import Grant, Tokens
from worldagent.mcp_client import TOOLS
from worldagent.memory import CONVERSATION
from worldagent.role_resolution import Role
from worldagent.testing.role_host_conformance import HOST_POINTS

SECRET = "Answer as the keeper of the seventh lighthouse would answer."
TOKEN = "t0ken-of-the-novel"
WRONG_TOKEN = "t0ken-of-another-tale"
HOSTED = "openai/gpt-4o"

Check = Callable[..., dict[str, PointResult]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home in which a turn ran and a role is kept."""
    place = tmp_path / "home"

    async def use() -> None:
        async with scripted_agent(place, answering()) as agent:
            await agent.roles.put(Tier.WORKSPACE, Role("house", SECRET))
            await agent.thread("t1").converse("Hello.")

    asyncio.run(use())
    return place


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Check:
    """Check an installation whose model is a hosted one with a key, unless it is told otherwise."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")

    def run(home: Path, *, lm: str | None = HOSTED, call_model: bool = False) -> dict[str, PointResult]:
        options = InstallationOptions(home=home, lm=lm, call_model=call_model)
        return {result.id: result for result in asyncio.run(check_installation(options))}

    return run


def bad(results: dict[str, PointResult]) -> list[str]:
    return [name for name, result in results.items() if result.status in ("fail", "warn")]


def test_a_sound_installation_passes_and_nothing_in_it_changes(home: Path, check: Check) -> None:
    before = contents(home)
    results = check(home)
    assert bad(results) == [], results
    assert [name for name, result in results.items() if result.status == "skip"] == ["model.call"]
    assert contents(home) == before
    assert "role 1" in results["database.roles"].detail
    assert f"conversation {len(CONVERSATION.migrations)}" in results["database.agent"].detail
    assert results["lock.files"].detail == "1 files"
    assert SECRET not in json.dumps([result.as_object() for result in results.values()])


def test_a_home_that_is_not_there_yet_is_not_made(tmp_path: Path, check: Check) -> None:
    results = check(tmp_path / "deep" / "home")
    assert bad(results) == []
    assert "does not exist yet" in results["home.folder"].detail
    assert list(tmp_path.iterdir()) == []


def test_a_home_that_cannot_be_one_is_named(tmp_path: Path, check: Check) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    for place in (file, file / "home"):
        results = check(place)
        assert bad(results) == ["home.folder"]
        assert str(file) in results["home.folder"].problem
        assert "--home" in results["home.folder"].remedy


def test_a_database_that_is_none_or_is_damaged_is_named(home: Path, check: Check) -> None:
    agent, whole = (home / "agent.db").read_bytes(), (home / "roles.db").read_bytes()
    damaged = whole[:4096] + b"\0" * (len(whole) - 4096)
    for name, damage in (("agent", b"no database" * 1000), ("roles", damaged)):
        (home / "agent.db").write_bytes(agent)
        file = home / f"{name}.db"
        file.write_bytes(damage)
        before = contents(home)
        results = check(home)
        assert bad(results) == [f"database.{name}"]
        assert str(file) in results[f"database.{name}"].problem
        assert results[f"database.{name}"].remedy
        assert contents(home) == before


# --- what is wrong with an installation -------------------------------------------------------------------------------

Spoil = Callable[[Path, pytest.MonkeyPatch], object]
USAGE = shutil.disk_usage("/")
FILES, INSTALLED = "worldagent.hosts.doctor.files", "worldagent.hosts.doctor.installation"


def newer(home: Path, patch: pytest.MonkeyPatch) -> None:
    with contextlib.closing(sqlite3.connect(home / "agent.db")) as connection:
        connection.execute("UPDATE wa_schema SET version = 99 WHERE name = 'conversation'")
        connection.commit()


def readable(home: Path, patch: pytest.MonkeyPatch) -> None:
    (home / "roles.db").chmod(0o644)
    home.chmod(0o755)


def unwritable(part: str) -> Spoil:
    # Root may write everywhere, so the system's answer is what is changed.
    return lambda home, patch: patch.setattr("os.access", lambda path, mode: part not in str(path))


def linked(home: Path, patch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(home)
    home.symlink_to("/none/home")


def in_place_of(name: str, make: Callable[[Path], object]) -> Spoil:
    """Put something else where a file of the home is."""

    def put(home: Path, patch: pytest.MonkeyPatch) -> None:
        (home / name).unlink(missing_ok=True)
        make(home / name)

    return put


def free(size: int) -> Spoil:
    return lambda home, patch: patch.setattr("shutil.disk_usage", lambda path: USAGE._replace(free=size))


def requires(*packages: str) -> Spoil:
    return lambda home, patch: patch.setattr("importlib.metadata.requires", lambda name: list(packages))


def at_url(url: str) -> Spoil:
    return lambda home, patch: patch.setenv("WORLDAGENT_ATTACHMENTS_URL", url)


SPOILT: list[tuple[Spoil, list[str], str, str]] = [
    (unwritable("home"), ["home.folder", "lock.files"], "fail", "cannot be written"),
    (free(1 << 20), ["home.space"], "fail", ""),
    (free(100 << 20), ["home.space"], "warn", ""),
    (newer, ["database.agent"], "fail", "version 99"),
    (readable, ["home.private"], "warn", "chmod 600"),
    (in_place_of("agent.db", os.mkfifo), ["database.agent"], "fail", "is a named pipe, not a database"),
    (in_place_of("roles.db", lambda at: at.symlink_to("/dev/zero")), ["database.roles"], "fail", "is a device, not"),
    (in_place_of("roles.db", lambda at: at.symlink_to("/none/file")), ["database.roles"], "fail", "is a broken link"),
    (in_place_of("locks/0123.lock", os.mkfifo), ["lock.files"], "fail", "0123.lock' is not a regular file"),
    (at_url("moon://sea/kept"), ["attachments.store"], "fail", "fsspec has no filesystem for moon://"),
    (at_url("gdrive://sea/kept"), ["attachments.store"], "fail", "the filesystem of gdrive:// is not installed"),
    (lambda home, patch: patch.setenv("WORLDAGENT_ROLE_LIMIT", "much"), ["settings.values"], "fail", "role_limit"),
    (lambda home, patch: patch.setenv("WORLDAGENT_ROLE_LIMT", "1"), ["settings.values"], "warn", "is not a setting"),
    (lambda home, patch: patch.setattr(FILES + ".MAX_LOCK_FILES", 0), ["lock.files"], "warn", "there are 1 lock files"),
    (unwritable(".lock"), ["lock.files"], "fail", ".lock' cannot be written by this user"),
    (linked, ["home.folder"], "fail", "is a broken link"),
    (lambda home, patch: patch.setattr(INSTALLED + ".MIN_PYTHON", (4,)), ["python.version"], "fail", "3.11 or newer"),
    (requires("mcp<2", "no-such-library>=1", "pydantic"), ["package.versions"], "fail", "no-such-library is not"),
    (requires("rich; extra == 'cli'", "no-such; extra == 'cli'"), ["package.extras"], "warn", "worldagent[cli]"),
]


@pytest.mark.parametrize(("spoil", "points", "status", "told"), SPOILT)
def test_each_thing_that_is_wrong_is_named_with_a_remedy(
    home: Path, check: Check, monkeypatch: pytest.MonkeyPatch, spoil: Spoil, points: list[str], status: str, told: str
) -> None:
    spoil(home, monkeypatch)
    results = check(home)
    found = results[points[0]]
    assert (bad(results), found.status) == (points, status), results
    assert told in f"{found.problem} {found.remedy}"
    assert "much" not in found.problem
    assert found.remedy


def test_points_of_a_missing_package_are_skipped(home: Path, check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.requires", Mock(side_effect=PackageNotFoundError))
    results = check(home)
    assert {results[f"package.{point}"].status for point in ("versions", "extras")} == {"skip"}


@pytest.mark.requirement("A18")
@pytest.mark.on_every_database
def test_members_that_stand_still_are_named_with_a_remedy(tmp_path: Path, check: Check) -> None:
    async def write(sql: str) -> None:
        async with scripted_agent(tmp_path, answering(), society=workspace_of()) as agent:
            await agent.society.join(spec_of("cro"))
            await agent.society.mail.send("root", "cro", "Report.", message_id="m1")
            await inside(agent).stores.database.transact(lambda tx: tx.execute(sql))

    asyncio.run(write("UPDATE wa_mail SET sent = sent - 86400 + 3600"))
    assert check(tmp_path)["society.stalls"].status == "pass"
    asyncio.run(write("UPDATE wa_mail SET sent = sent - 3600"))
    before = contents(tmp_path)
    found = check(tmp_path)["society.stalls"]
    assert (found.status, found.problem) == ("warn", "the mailbox of cro does not move (novel)")
    assert found.remedy.endswith("; see `worldagent society stalls --workspace novel`")
    assert contents(tmp_path) == before


def test_token_file_must_be_valid_and_private(home: Path, check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    file = home / "tokens.toml"
    file.write_text('[[token]]\ntoken = "secret-of-the-sidecar"\nworkspaces = ["novel"]\n')
    monkeypatch.setenv("WORLDAGENT_SIDECAR_TOKEN_FILE", str(file))
    file.chmod(0o640)
    results = check(home)
    assert bad(results) == ["sidecar.tokens"]
    assert results["sidecar.tokens"].remedy == f"run `chmod 600 {str(file)!r}`"
    file.chmod(0o600)
    assert bad(check(home)) == []
    file.write_text('[[token]]\ntoken = "secret-of-the-sidecar"\nscopes = 1\n')
    results = check(home)
    assert (bad(results), results["sidecar.tokens"].status) == (["sidecar.tokens"], "fail")
    assert "secret" not in repr(results)
    monkeypatch.setenv("WORLDAGENT_SIDECAR_TOKEN", "secret with blanks")
    found = check(home)["sidecar.tokens"]
    assert (found.status, "WORLDAGENT_SIDECAR_TOKEN" in repr(found)) == ("fail", True)
    assert "secret with" not in repr(found)


def test_a_model_that_cannot_be_used_is_named(home: Path, check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    for lm, told in (
        (HOSTED, "OPENAI_API_KEY"),
        ("nobody/knows", "nobody"),
        (f"local:{home / 'none.gguf'}", "none.gguf"),
    ):
        results = check(home, lm=lm)
        assert bad(results) == ["model.configured"], lm
        found = results["model.configured"]
        assert told in f"{found.problem} {found.remedy}"
        assert results["model.call"].status == "skip"


@pytest.mark.local
def test_the_embedded_model_answers_a_question(tmp_path: Path, check: Check) -> None:
    results = check(tmp_path / "home", lm=None, call_model=True)
    assert bad(results) == []
    assert results["model.call"].status == "pass"
    assert "received" in results["model.call"].detail
    assert list(tmp_path.iterdir()) == []


def test_the_role_host_of_the_settings_is_reached(home: Path, check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = Tokens([(TOKEN, Grant({Tier.WORKSPACE: frozenset({"*"})}))])
    monkeypatch.setenv("WORLDAGENT_ROLE_HOST_TOKEN", TOKEN)
    with broken_host(tokens=tokens) as (url, _):
        monkeypatch.setenv("WORLDAGENT_ROLE_HOST", url)
        results = check(home)
        assert bad(results) == []
        assert "doctor --role-host" in results["role_host.reach"].detail
        monkeypatch.setenv("WORLDAGENT_ROLE_HOST_TOKEN", WRONG_TOKEN)
        refused = check(home)
        monkeypatch.setenv("WORLDAGENT_ROLE_HOST_TOKEN", TOKEN)
    gone = check(home)
    for results, told in ((refused, "refused access"), (gone, "could not be reached")):
        assert bad(results) == ["role_host.reach"]
        assert told in results["role_host.reach"].problem
        assert results["role_host.reach"].remedy
        shown = json.dumps([result.as_object() for result in results.values()])
        assert TOKEN not in shown
        assert WRONG_TOKEN not in shown


def test_doctor_prints_a_line_for_each_point_and_a_summary(home: Path) -> None:
    result = doctor("--home", str(home), "--lm", HOSTED, OPENAI_API_KEY="sk-none")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "Checking this installation"
    assert [line[7:].split()[0] for line in lines[1:-1] if line.startswith("[")] == [
        point.id for point in INSTALLATION_POINTS
    ]
    assert lines[-1] == "19 passed, 0 failed, 1 skipped"
    assert all(len(line) <= 80 and line.isascii() for line in lines)
    failing = doctor("--home", str(home), "--lm", HOSTED, OPENAI_API_KEY="")
    assert failing.exit_code == 1
    assert "[FAIL] model.configured" in failing.stdout
    assert "       remedy: " in failing.stdout
    assert failing.stdout.splitlines()[-1] == "18 passed, 1 failed, 1 skipped"


def test_doctor_checks_a_host_that_is_named_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    with broken_host(tokens=Tokens([(TOKEN, Grant({Tier.WORKSPACE: frozenset({"novel"})}))])) as (url, host):
        scopes = ("--scope", "workspace=novel", "--foreign-scope", "workspace=other")
        words = ("--role-host", url, "--token-file", str(file), *scopes, "--write")
        result = doctor(*words)
        assert result.exit_code == 0, result.output
        assert result.stdout.splitlines()[0] == f"Checking role host {url}"
        assert "[ ok ] scope.forbidden" in result.stdout
        assert TOKEN not in result.output
        found = json.loads(doctor(*words, "--json").stdout)
        assert host.store.kept == {}
    assert found["ok"] is True
    assert [point["id"] for point in found["points"]] == [point.id for point in HOST_POINTS if point.when != "stdio"]
    assert result.stderr == ""


@pytest.mark.requirement("R9")
def test_doctor_calls_the_tools_as_the_settings_do_and_says_so() -> None:
    named_tools = json.dumps({tool: f"my_{tool}" for tool in TOOLS})
    with broken_host(prefix="my_") as (url, host):
        words = ("--role-host", url, "--write")
        unnamed, named = doctor(*words), doctor(*words, WORLDAGENT_ROLE_HOST_TOOLS=named_tools)
        assert host.store.kept == {}
    assert named.exit_code == 0, named.output
    assert "[ ok ] list.answer        my_role_list answers with roles" in named.stdout
    assert not re.search(rf"\b({'|'.join(TOOLS)})\b", named.stdout)
    assert unnamed.exit_code == 1
    told = " ".join(unnamed.stdout.split())
    assert "it has no role_list and no role_get and no role_put and no role_delete" in told
    assert "the setting role_host_tools" in told


def test_doctor_names_the_broken_point_of_a_program(tmp_path: Path) -> None:
    result = doctor("--stdio", shlex.join(plain_host("writes garbage")))
    assert result.exit_code == 1, result.output
    assert [line.split()[1] for line in result.stdout.splitlines() if line.startswith("[FAIL]")] == ["stdio.output"]
    assert "are not MCP messages" in " ".join(result.stdout.split())
    assert "need --write" in result.stdout
    assert all(len(line) <= 80 for line in result.stdout.splitlines())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--role-host", "http://127.0.0.1:1/mcp", "--model", "--lm", "x"), "--model and --lm are for an installation"),
        (("--stdio", "x", "--scope", "call=x"), "never kept"),
        (("--timeout", "-1"), "must be a finite number above 0"),
    ],
)
def test_invalid_options_exit_with_2(words: tuple[str, ...], told: str) -> None:
    result = doctor(*words)
    assert result.exit_code == 2, result.output
    assert told in result.stderr


def test_the_pages_show_the_points_of_the_code() -> None:
    shown = {"always": "always", "http": "http", "stdio": "stdio"}
    assert rows(DOCS / "reference" / "role-host.md", "point") == [
        f"| `{point.id}` | {point.title} | {shown.get(point.when, f'`{point.when}`')} |" for point in HOST_POINTS
    ]
    assert rows(DOCS / "reference" / "cli.md", "point") == [
        f"| `{point.id}` | {point.title} |" for point in INSTALLATION_POINTS
    ]
