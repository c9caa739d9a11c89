"""`examples/deploy`: its files are as Compose, Docker and systemd want them, and what they start works together."""

import asyncio
import configparser
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import dockerfile
import pytest

from support import forks
from support.command_line import options_of
from support.deployment import COMMAND, FOLDER, Deployment, Running, compose, interpolated
from support.house import ROOT
from support.openai_stub import openai_stub
from support.pages import DOCS
from support.postgres import new_database, rows, table_bytes
from support.processes import eventually
from support.sidecar_clients import HttpClient
from worldagent.testing import scan_for_roles

SECRETS = {
    name: f"{name.lower()}-{'0123456789abcdef' * 4}" for name in ("ROLE_KEY", "ROLE_HOST_TOKEN", "SIDECAR_TOKEN")
}
VARIABLES = {**SECRETS, "POSTGRES_PASSWORD": "of-postgres", "MODEL": "openai/answer", "OPENAI_API_KEY": "key-of-a-test"}
ROLE = "Answer as the keeper of a lighthouse would, in short sentences about the weather."

SUBMITTED = """
import asyncio, shop
from worldagent.scheduling import StartMessage

async def main():
    async with shop.agent() as agent:
        submission = await agent.submit(StartMessage("Submitted."), thread=agent.thread("s", account="ana"), key="1")
        turn = await submission.wait()
        print(turn.status, turn.text)

asyncio.run(main())
"""


def examined(env: Path) -> dict[str, str]:
    """The names and values of a file of variables."""
    lines = [line for line in env.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def test_compose_file_follows_the_specification() -> None:
    checker = [sys.executable, "-P", "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*checker, FOLDER / "compose.yaml"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
    services = compose()["services"]
    assert set(services) == {"postgres", "role-host", "sidecar", "worker"}
    assert services["worker"]["deploy"]["replicas"] == 2
    named = {each.split(":")[0] for service in services.values() for each in service["volumes"] if ":" in each}
    assert named == set(compose()["volumes"])


def test_compose_file_asks_for_each_secret_and_the_example_of_env_has_it() -> None:
    text = (FOLDER / "compose.yaml").read_text(encoding="utf-8")
    asked = set(re.findall(r"\$\{(\w+)", text))
    given = examined(FOLDER / ".env.example")
    assert asked == set(given) == set(VARIABLES)
    for name in sorted(asked - {"MODEL"}):
        assert given[name] == "", "an example has no secret"
        with pytest.raises(KeyError, match=r"see \.env\.example"):
            interpolated(text, {**VARIABLES, name: ""})
    interpolated(text, VARIABLES)


def test_dockerfile_is_one_and_runs_as_a_user_of_its_own() -> None:
    commands = dockerfile.parse_file(str(FOLDER / "Dockerfile"))
    found = {each.cmd: each for each in commands}
    assert commands[0].cmd == "FROM"
    assert ":" in commands[0].value[0], "the version of the base is fixed"
    assert (found["ENTRYPOINT"].json, found["ENTRYPOINT"].value) == (True, ("worldagent",))
    assert found["USER"].value == ("agent",)
    assert commands.index(found["USER"]) > max(place for place, each in enumerate(commands) if each.cmd == "RUN")
    for copied in (name for each in commands if each.cmd == "COPY" for name in each.value[:-1]):
        assert (FOLDER / copied).is_file()
    [extras] = re.findall(r"worldagent\[(.*?)\]", " ".join(each.original for each in commands))
    known = re.findall(r"(?m)^(\w+) = \[", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(extras.split(",")) <= set(known)
    targets = {
        each.rpartition(":")[2] for name in ("sidecar", "worker") for each in compose()["services"][name]["volumes"]
    }
    assert targets == set(found["VOLUME"].value)


def test_systemd_unit_is_one_and_waits_longer_than_a_worker(tmp_path: Path) -> None:
    unit = FOLDER / "worldagent-worker@.service"
    parsed = configparser.ConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their capitals
    parsed.read(unit)
    service = parsed["Service"]
    program, *words = service["ExecStart"].split()
    assert program.endswith("/worldagent")
    *same, port = compose()["services"]["worker"]["command"]
    assert words == [*same, "910%i"]
    assert port == "0.0.0.0:9100"
    assert int(service["TimeoutStopSec"]) == int(compose()["services"]["worker"]["stop_grace_period"].rstrip("s"))
    assert service["SuccessExitStatus"] == "143"


@pytest.mark.parametrize("service", ["role-host", "sidecar", "worker"])
def test_commands_of_the_services_exist(service: str) -> None:
    command, *words = compose()["services"][service]["command"]
    assert {word for word in words if word.startswith("--")} <= set(options_of(command))
    assert "--home-roles" not in words


async def stopped(running: list[Running]) -> None:
    """Have all processes end as Docker would."""
    for each in running:
        each.process.send_signal(signal.SIGTERM)
    codes = {each.name: await asyncio.wait_for(each.process.wait(), 40) for each in running}
    expected = {name: 0 if name == "role-host-0" else 143 for name in codes}
    assert codes == expected, {each.name: each.log.read_text() for each in running}


@pytest.mark.requirement("R9")
async def test_what_the_compose_file_starts_works_together(tmp_path: Path) -> None:
    """A conversation through the sidecar, a schedule and a submitted turn in a worker; all have the host's role."""
    url = new_database()
    async with openai_stub() as stub:
        more = {"WORLDAGENT_API_BASE": stub.url, "WORLDAGENT_MODEL_TOOLS": "json", "WORLDAGENT_MODEL_ATTEMPTS": "1"}
        deployment = Deployment(tmp_path, url, VARIABLES, more)
        async with deployment.running("role-host", "sidecar") as running:
            await deployment.run("sidecar", "roles", "put", ROLE, "--workspace", "shop")
            sidecar = f"http://{deployment.address('sidecar')}/mcp"
            async with HttpClient(sidecar, VARIABLES["SIDECAR_TOKEN"]) as client:
                said = await client.ask("converse", workspace="shop", account="ana", thread="t1", text="Hello")
            assert said["turn"]["text"] == "Paris."
            which = ("beat", "--app", "shop:agent", "--workspace", "shop")
            await deployment.run("worker", "schedule", "add", *which, "--every", "1", "--message", "Go.")
            async with deployment.running("worker") as workers:
                assert [each.name for each in (*running, *workers)] == [
                    "role-host-0",
                    "sidecar-0",
                    "worker-0",
                    "worker-1",
                ]
                assert await eventually(lambda: ("done",) in rows(url, "SELECT status FROM wa_schedule_run"), 90)
                assert await deployment.script("worker", SUBMITTED) == "done Paris.\n"
                await stopped([*workers, *running])
        said_by = [stub.said(place) for place in range(len(stub.requests))]
        for text in ("Hello", "Go.", "Submitted."):
            assert any(text in said for said in said_by)
        assert all(ROLE in stub.asked(place) for place in range(len(stub.requests)))
    (tmp_path / "roles" / "roles.db").unlink()  # the one place for it
    assert scan_for_roles(tmp_path, ROLE).findings == ()
    for name, data in table_bytes(url).items():
        assert not any(secret.encode() in data for secret in (ROLE, *SECRETS.values())), name


async def test_a_worker_of_the_compose_file_does_not_start_without_the_role_key(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, new_database(), VARIABLES, {})
    env = deployment.environment("worker")
    del env["WORLDAGENT_ROLE_KEY"]
    process = await forks.start((*COMMAND, "worker", "--app", "shop:agent", "--json"), env=env, cwd=FOLDER)
    out, _ = await asyncio.wait_for(process.communicate(), 90)
    assert process.returncode == 2
    assert json.loads(out)["error"]["code"] == "settings_invalid"
    assert "set role_key to the same key on all machines" in json.loads(out)["error"]["remedy"]


def test_page_shows_these_files() -> None:
    page = (DOCS / "guides" / "deploying.md").read_text(encoding="utf-8")
    for file in sorted(FOLDER.iterdir()):
        if file.name != ".dockerignore" and file.is_file():
            assert f"`{file.name}`" in page, file.name
