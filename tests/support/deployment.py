"""Starts what `examples/deploy/compose.yaml` says without Docker: the same commands and environment."""

import asyncio
import re
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from support import forks
from support.house import ROOT
from support.processes import clean_environment, ending
from support.role_hosts import free_port, reachable

FOLDER = ROOT / "examples" / "deploy"
COMMAND = (sys.executable, "-P", "-m", "worldagent.hosts.cli")
_VARIABLE = re.compile(r"\$\{(\w+)(?:(:[-?])([^}]*))?\}")
_LISTENS = re.compile(r"0\.0\.0\.0:(\d+)")


def compose() -> dict[str, Any]:
    """The file as YAML, with its merges resolved."""
    loaded: dict[str, Any] = YAML(typ="safe").load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
    return loaded


def interpolated(text: str, variables: Mapping[str, str]) -> str:
    """The text with its variables, as Compose replaces them.

    Raises:
        KeyError: A variable that must have a value has none.
    """

    def value(found: re.Match[str]) -> str:
        name, kind, rest = found.groups()
        given = variables.get(name, "")
        if not given and kind == ":?":
            raise KeyError(f"{name}: {rest}")
        return given or (rest if kind == ":-" else "")

    return _VARIABLE.sub(value, text)


@dataclass(frozen=True)
class Running:
    """A process of a service, and the file with what it wrote to standard error."""

    name: str
    process: asyncio.subprocess.Process
    log: Path


class Deployment:
    """The services of the file, except Postgres.

    Args:
        folder: Where their volumes are.
        url: The Postgres database in place of the container's.
        variables: What `.env` has.
        more: Variables of every process that are not in the file, such as the address of a scripted model.
    """

    def __init__(self, folder: Path, url: str, variables: Mapping[str, str], more: Mapping[str, str]) -> None:
        self._folder, self._url, self._variables, self._more = folder, url, variables, more
        self._services: dict[str, Any] = compose()["services"]
        self._ports = {
            (name, copy, port): str(free_port())
            for name, each in self._services.items()
            for copy in range(self.copies(name))
            for port in _ports(each)
        }

    def copies(self, service: str) -> int:
        """How many containers the service has."""
        return int(self._services[service].get("deploy", {}).get("replicas", 1))

    def environment(self, service: str, copy: int = 0) -> dict[str, str]:
        """The environment of a container, with addresses and folders of this machine."""
        given = {name: interpolated(str(text), self._variables) for name, text in self._declared(service).items()}
        if "WORLDAGENT_DATABASE_URL" in given:
            assert "@postgres:5432/" in given["WORLDAGENT_DATABASE_URL"]
            given["WORLDAGENT_DATABASE_URL"] = self._url
        here = {name: self._here(service, text, copy) for name, text in given.items()}
        home = str(self._volume(service, "/data", copy))  # as the image sets it
        return clean_environment(**{"WORLDAGENT_HOME": home} | here | dict(self._more))

    def command(self, service: str, copy: int = 0) -> tuple[str, ...]:
        """The command of a container, after the entry point of the image."""
        return (*COMMAND, *(self._here(service, text, copy) for text in self._services[service]["command"]))

    def address(self, service: str, copy: int = 0) -> str:
        """HOST:PORT where a container of the service listens."""
        [port] = _ports(self._services[service])
        return f"127.0.0.1:{self._ports[service, copy, port]}"

    @asynccontextmanager
    async def running(self, *services: str) -> AsyncGenerator[list[Running]]:
        """Start services one after another, each once the one before it is healthy."""
        started: list[Running] = []
        async with AsyncExitStack() as opened:
            for service in services:
                for copy in range(self.copies(service)):
                    started.append(await opened.enter_async_context(self._started(service, copy)))
                for copy in range(self.copies(service)):
                    await self._healthy(service, copy)
            yield started

    async def run(self, service: str, *words: str) -> str:
        """Run another command in the environment of a service, as `docker compose run` does; gives its output."""
        return await self._output(service, *COMMAND, *words)

    async def script(self, service: str, text: str) -> str:
        """Run a program of a user's in the environment of a service; gives its output."""
        return await self._output(service, sys.executable, "-c", text)

    async def _output(self, service: str, *argv: str) -> str:
        process = await forks.start(argv, env=self.environment(service), cwd=FOLDER)
        out, told = await asyncio.wait_for(process.communicate(), 90)
        assert process.returncode == 0, told.decode()
        return out.decode()

    @asynccontextmanager
    async def _started(self, service: str, copy: int) -> AsyncGenerator[Running]:
        log = self._folder / f"{service}-{copy}.log"
        with log.open("wb") as file:
            env, out = self.environment(service, copy), file.fileno()
            process = await forks.start(self.command(service, copy), env=env, cwd=FOLDER, stdout=out, stderr=out)
        async with ending(process):
            yield Running(f"{service}-{copy}", process, log)

    async def _healthy(self, service: str, copy: int) -> None:
        """Wait until the health check of a container passes."""
        kind, program, *words = self._services[service]["healthcheck"]["test"]
        assert (kind, program) == ("CMD", "python")
        argv = (sys.executable, *(self._here(service, word, copy) for word in words))
        async with asyncio.timeout(90):
            await reachable(int(self.address(service, copy).rpartition(":")[2]))  # a check is a process of its own
            while True:
                quiet = asyncio.subprocess.DEVNULL
                process = await asyncio.create_subprocess_exec(*argv, stdout=quiet, stderr=quiet)
                if await process.wait() == 0:
                    return

    def _declared(self, service: str) -> dict[str, Any]:
        declared: dict[str, Any] = self._services[service].get("environment", {})
        return declared

    def _here(self, service: str, text: str, copy: int) -> str:
        """A text with the addresses and folders of this machine in place of the containers'."""
        for (name, number, port), own in self._ports.items():
            if (name, number) == (service, copy):
                text = text.replace(f"0.0.0.0:{port}", f"127.0.0.1:{own}").replace(
                    f"127.0.0.1:{port}", f"127.0.0.1:{own}"
                )
                text = text.replace(f"'127.0.0.1', {port}", f"'127.0.0.1', {own}")
            elif number == 0:
                text = text.replace(f"{name}:{port}", f"127.0.0.1:{own}")
        for target in map(_target, self._services[service].get("volumes", ())):
            if text.removeprefix("file://").startswith(target):
                text = text.replace(target, str(self._volume(service, target, copy)), 1)
        return text

    def _volume(self, service: str, target: str, copy: int) -> Path:
        """The folder of a volume. One with a name is shared; one without is the container's own."""
        [volume] = [each for each in self._services[service]["volumes"] if _target(each) == target]
        name = volume.partition(":")[0] if ":" in volume else f"{service}-{copy}"
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        return folder


def _target(volume: str) -> str:
    return volume.rpartition(":")[2]


def _ports(service: Mapping[str, Any]) -> list[str]:
    return [found[1] for word in service.get("command", ()) if (found := _LISTENS.fullmatch(word))]
