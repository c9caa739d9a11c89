"""A sidecar whose clients give it roles, and everything that could have kept one (R7). What they do is beside."""

import itertools
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.leak_cases import LENGTHS
from support.leaks import canary, on_the_server, planted
from support.processes import eventually
from support.role_host_stub import StubHost
from support.role_hosts import opened, reference
from support.sidecar_app import HASTY, MEMORY, WORKSPACE, digest
from support.sidecar_calls import LEGACY, MODERN, Revision
from support.sidecar_clients import BOUND, HttpClient, StdioClient
from support.sidecars import TOKEN, Sidecar, over_http, over_stdio
from worldagent import Role, Tier
from worldagent.mcp_client import HttpHost
from worldagent.testing import scan_for_roles

TRANSPORTS = ("http", "stdio")
SOURCES = ("call", "thread", "host", "client")
"""Where the role comes from: the call, the thread, a role host over HTTP, the client over its own connection."""


@dataclass(frozen=True)
class SidecarCase:
    """How a sidecar is reached and where roles come from; each outcome is tried in turn."""

    transport: str
    revision: Revision
    source: str
    length: int

    def __str__(self) -> str:
        return f"{self.transport}-{self.revision}-{self.source}-{self.length}"

    @property
    def possible(self) -> bool:
        """Whether a client can be asked back: it must be there, and the revision must let a server ask."""
        return self.source != "client" or (self.transport == "stdio" and self.revision == LEGACY)

    def content(self, outcome: str) -> str:
        """The role's text: each outcome has its own."""
        return planted(self.length, seed=f"{self} {outcome}")

    def label(self, outcome: str) -> str:
        """The role's name."""
        return canary(12, seed=f"label of {self} {outcome}")


def every_case() -> list[SidecarCase]:
    """All that can be."""
    cases = itertools.starmap(SidecarCase, itertools.product(TRANSPORTS, (MODERN, LEGACY), SOURCES, LENGTHS))
    return [case for case in cases if case.possible]


@dataclass
class Looked:
    """A sidecar and its clients, and all that was seen of them.

    Attributes:
        case: What is tried.
        folder: For its files.
        heard: Every message that any client had.
        told: What was said beside: bodies of HTTP, errors, what `ps` shows.
        host: The role host, where the case has one.
        planted: The texts and names of all roles so far.
        elicit: What a person says to what the client is asked.
    """

    case: SidecarCase
    folder: Path
    heard: list[Any] = field(default_factory=list)
    told: list[Any] = field(default_factory=list)
    planted: list[str] = field(default_factory=list)
    elicited: list[dict[str, Any]] = field(default_factory=list)
    sidecar: Sidecar = field(init=False)
    _answer: dict[str, Any] = field(default_factory=lambda: {"action": "decline"})
    _roles: StubHost = field(default_factory=StubHost)
    _child: StdioClient | None = None
    host: HttpHost | None = None

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Sidecar]:
        """Run the sidecar; where it has been killed, once more."""
        env: dict[str, Any] = {"WORLDAGENT_TESTS_LOGS": "1", MEMORY: "1", **self._environment()}
        async with AsyncExitStack() as opened:
            if self.case.transport == "http":
                started = over_http(self.home, "--log-level", "debug", workspaces=(WORKSPACE, HASTY), **env)
                self.sidecar = await opened.enter_async_context(started)
            else:
                child = over_stdio(
                    self.home,
                    self.case.revision,
                    "--log-level",
                    "debug",
                    elicit=self._person,
                    roles=self._role_host if self.case.source == "client" else None,
                    workspaces=(WORKSPACE, HASTY),
                    **env,
                )
                self.sidecar, client = await opened.enter_async_context(child)
                self._child = client
                opened.callback(self.heard.append, client.heard)
            yield self.sidecar

    def _environment(self) -> dict[str, str]:
        if self.host is None:
            return {}
        return {
            "WORLDAGENT_ROLE_HOST": self.host.url,
            "WORLDAGENT_ROLE_HOST_TOKEN": str(self.host.token),
            "WORLDAGENT_ROLE_TIMEOUT": "60",
        }

    # --- clients ----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[HttpClient | StdioClient]:
        """A client: over HTTP a new one, over standard streams the only one."""
        if self._child is not None and self.case.transport == "stdio":
            yield self._child
            return
        async with self.sidecar.client(self.case.revision, elicit=self._person) as client:
            try:
                yield client
            finally:
                self.heard.append(client.heard)

    def person_says(self, **content: Any) -> None:
        """What the person fills in from now on; nothing: that they would rather not say."""
        self._answer = {"action": "accept", "content": content} if content else {"action": "decline"}

    def _person(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.elicited.append(asked)
        return self._answer

    def _role_host(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The role host that the client is, over the connection that it has opened itself."""
        self.told.append([tool, arguments])
        assert tool == "role_list"
        return self._roles.content(tool, arguments)

    async def put(self, account: str, label: str, content: str) -> None:
        """Store a role of an account, where the case has roles stored."""
        if self.case.source == "client":
            self._roles.kept["account", account] = (label, content)
        elif self.host is not None:
            async with opened(self.host) as store:
                await store.put(Tier.ACCOUNT, account, Role(label, content))

    # --- looking ----------------------------------------------------------------------------------------------------

    @property
    def digests(self) -> list[str]:
        """Of the roles that the model got so far."""
        file = self.home.with_name(f"{self.home.name}.seen")
        return file.read_text(encoding="ascii").split() if file.exists() else []

    async def reached(self, content: str) -> None:
        """Wait until the model has the role."""
        assert await eventually(lambda: digest(content) in self.digests, BOUND)

    async def look(self, texts: list[str] | None = None) -> None:
        """Fail with every place where a role stands by now: files and tables, the log, what clients had."""
        if self.sidecar.url and self.sidecar.process.returncode is None:
            for path in ("/health", "/ready"):
                self.told.append(await self.sidecar.get(path))
        heard = [json.dumps(part, ensure_ascii=False, default=repr) for part in (self.heard, self._living(), self.told)]
        places: Mapping[str, object] = {
            "heard": [*heard, self.heard, self._living(), self.told],
            "log": self.sidecar.errors.read_bytes(),
            "server": on_the_server(),
        }
        wanted = [*(self.planted if texts is None else texts), TOKEN]
        found = scan_for_roles([self.home, places], wanted).findings
        assert not found, "\n".join(["a role stands in", *map(str, found)])

    def _living(self) -> list[Any]:
        return [] if self._child is None else list(self._child.heard)


@asynccontextmanager
async def looked(case: SidecarCase, folder: Path) -> AsyncGenerator[Looked]:
    """What is looked at while a case is tried."""
    found = Looked(case, folder)
    if case.source != "host":
        yield found
        return
    place = folder / "host"
    place.mkdir(parents=True)
    with reference("http", place) as host:
        assert isinstance(host, HttpHost)
        found.host = host
        yield found
