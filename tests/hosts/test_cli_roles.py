"""`worldagent roles` on the embedded store and at a role host, and what `worldagent role-host` refuses."""

import json
import shlex
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from support.house import ROOT
from support.role_hosts import COMMAND, http_host
from worldagent.hosts.cli.app import app

SECRET = "Answer as the keeper of the seventh lighthouse would answer."
TOKEN = "t0ken-of-the-novel"
HTTP = ("--http", "127.0.0.1:0")

Run = Callable[..., Result]


@pytest.fixture
def run(home: Path) -> Run:
    """Run a command; `stdin` is what it reads."""
    environment = {"WORLDAGENT_HOME": str(home), "WORLDAGENT_ROLE_HOST_TOKEN": "", "COLUMNS": "80", "TERM": "dumb"}

    def command(*words: str, stdin: bytes = b"", **more: str) -> Result:
        return CliRunner().invoke(app, list(words), input=stdin, env=environment | more)

    return command


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Generator[str, None, None]:
    """The address of a role host with a token."""
    with http_host(tmp_path_factory.mktemp("host") / "roles.db", WORLDAGENT_ROLE_HOST_TOKEN=TOKEN) as (url, _):
        yield url


@pytest.fixture(params=["embedded", "http", "stdio"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, ...]:
    """The options that name where the roles are."""
    if request.param == "http":
        file = tmp_path / "token"
        file.write_text(f"{TOKEN}\n", encoding="utf-8")
        return ("--role-host", request.getfixturevalue("address"), "--token-file", str(file))
    if request.param == "stdio":
        words = ("env", f"PYTHONPATH={ROOT / '.dev'}", *COMMAND, "--stdio", "--store", str(tmp_path / "roles.db"))
        return ("--role-host-stdio", shlex.join(words))
    return ()


@pytest.mark.requirement("R9")
def test_a_role_is_put_listed_read_and_deleted_wherever_it_is_kept(run: Run, place: tuple[str, ...]) -> None:
    put = run("roles", "put", SECRET, "--account", "ana", "--name", "lighthouse", *place)
    assert (put.exit_code, put.stdout) == (0, ""), put.output
    assert put.stderr.splitlines()[-1] == "stored the role of account 'ana': 'lighthouse', 60 bytes"
    listed = run("roles", "list", "--account", "ana", *place)
    assert [line.split() for line in listed.stdout.splitlines()] == [
        ["TIER", "SCOPE", "NAME", "BYTES"],
        ["account", "ana", "lighthouse", "60"],
    ]
    got = run("roles", "get", "--tier", "account", "--account", "ana", *place)
    assert (got.exit_code, got.stdout) == (0, f"{SECRET}\n")
    deleted = run("roles", "delete", "--account", "ana", "--json", *place)
    assert (deleted.exit_code, json.loads(deleted.stdout)) == (0, {"deleted": {"tier": "account", "scope_id": "ana"}})
    gone = run("roles", "get", "--account", "ana", *place)
    assert (gone.exit_code, gone.stdout) == (1, "")
    assert "no role is set for account 'ana'" in gone.stderr


def test_the_setting_names_the_role_host_and_an_option_goes_over_it(run: Run, address: str, home: Path) -> None:
    at_host = {"WORLDAGENT_ROLE_HOST": address, "WORLDAGENT_ROLE_HOST_TOKEN": TOKEN}
    assert run("roles", "put", SECRET, "--workspace", "set", **at_host).exit_code == 0
    assert run("roles", "get", "--workspace", "set", **at_host).stdout == f"{SECRET}\n"
    for words in (("--role-host", "embedded"), ("--home", str(home))):
        assert run("roles", "get", "--workspace", "set", *words, **at_host).exit_code == 1
    assert run("roles", "delete", "--workspace", "set", **at_host).exit_code == 0


def test_json_gives_each_result_as_one_object(run: Run) -> None:
    put = run("roles", "put", SECRET, "--workspace", "novel", "--json")
    assert json.loads(put.stdout) == {
        "stored": {"tier": "workspace", "scope_id": "novel", "name": "workspace", "bytes": len(SECRET)}
    }
    record = {"tier": "workspace", "scope_id": "novel", "name": "workspace", "content": SECRET}
    assert json.loads(run("roles", "get", "--workspace", "novel", "--json").stdout) == {"role": record}
    assert json.loads(run("roles", "list", "--workspace", "novel", "--json").stdout) == {"roles": [record]}
    missing = run("roles", "delete", "--json")
    assert missing.exit_code == 1
    assert json.loads(missing.stdout)["error"]["code"] == "not_found"


@pytest.mark.parametrize("given", ["file", "stdin", "at"])
def test_the_text_comes_from_the_argument_a_file_or_standard_input(run: Run, tmp_path: Path, given: str) -> None:
    file = tmp_path / "role.md"
    file.write_bytes(b"\xef\xbb\xbf" + SECRET.encode() + b"\r\n")
    value = {"file": f"@{file}", "stdin": "-", "at": f"@@{SECRET}"}[given]
    assert run("roles", "put", value, stdin=SECRET.encode() if given == "stdin" else b"").exit_code == 0
    assert run("roles", "get").stdout == ("@" if given == "at" else "") + f"{SECRET}\n"


@pytest.mark.requirement("R15")
@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("roles", "get", "--tier", "call"), "the call role is never stored"),
        (("roles", "list", "--role-host", "http://h/mcp", "--home", "x"), "--home and --role-host exclude each other"),
        (("roles", "list", "--token-file", "no-file"), "--token-file is for --role-host"),
        (("role-host",), "takes exactly one of --stdio and --http"),
        (("role-host", "--stdio", "--home", "x", "--store", "y"), "--home and --store exclude each other"),
        (("role-host", "--http", "0.0.0.0:0", "--allow-remote"), "no token is required"),
        (("role-host", *HTTP, "--token-file", "x.toml", "--workspace", "a"), "must not both name scopes"),
    ],
)
def test_bad_usage_exits_with_2_and_names_thing_and_remedy(run: Run, words: tuple[str, ...], named: str) -> None:
    result = run(*words)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    error, remedy = result.stderr.splitlines()
    assert error.startswith("error: ")
    assert named in error
    assert remedy.startswith("remedy: ")


@pytest.mark.requirement("R14")
def test_a_host_that_is_down_or_refuses_exits_with_1(run: Run, address: str) -> None:
    stdio = ("--role-host-stdio", f"{sys.executable} -c pass")
    for words in (("--role-host", "http://127.0.0.1:9/mcp"), stdio, ("--role-host", address)):
        result = run("roles", "put", SECRET, *words, WORLDAGENT_ROLE_HOST_TOKEN="wrong")
        assert (result.exit_code, result.stdout) == (1, ""), result.output
        assert "remedy: " in result.stderr
        assert SECRET not in result.output
