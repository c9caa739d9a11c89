"""`worldagent acp` as a process with the app of the tests in it, and an editor: a client of the protocol's library."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from acp.client.connection import ClientSideConnection
from acp.exceptions import RequestError
from acp.helpers import text_block
from acp.schema import (
    AllowedOutcome,
    DeniedOutcome,
    InitializeResponse,
    PermissionOption,
    PromptResponse,
    RequestPermissionResponse,
    ToolCallUpdate,
)

from support import forks
from support.sidecar_clients import BOUND
from support.sidecars import environment

ACP = (sys.executable, "-P", "-m", "worldagent.hosts.cli", "acp")
APP = ("--app", "support.sidecar_app:shop")

T = TypeVar("T")
Chooses = Callable[[list[str]], str | None]
"""What the person chooses of the names of options; None cancels."""


def first(options: list[str]) -> str:
    """Choose the first option."""
    return options[0]


@dataclass
class Asked:
    """A request for permission.

    Attributes:
        call: What it is about.
        options: The names of its options.
    """

    call: ToolCallUpdate
    options: list[str]


@dataclass
class Refused:
    """An error that answered a request.

    Attributes:
        number: Its number in JSON-RPC.
        message: Its message.
        data: Its data.
    """

    number: int
    message: str
    data: dict[str, Any]


@dataclass
class Editor:
    """The editor: what it shows, and what its person chooses.

    Attributes:
        process: The agent's process.
        errors: The file with the standard error of it.
        chooses: The person. None: they never answer.
        updates: The updates that came.
        asked: The requests for permission that came.
        heard: Every message that came or went.
    """

    process: asyncio.subprocess.Process
    errors: Path
    chooses: Chooses | None = first
    updates: list[Any] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    heard: list[Any] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    connection: ClientSideConnection = field(init=False)

    # --- what the agent calls ---

    async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
        async with self.changed:
            self.updates.append(update)
            self.changed.notify_all()

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **more: Any
    ) -> RequestPermissionResponse:
        async with self.changed:
            self.asked.append(Asked(tool_call, [option.name for option in options]))
            self.changed.notify_all()
        if self.chooses is None:
            await asyncio.Event().wait()
        assert self.chooses is not None
        chosen = self.chooses([option.name for option in options])
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        [option_id] = [option.option_id for option in options if option.name == chosen]
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=option_id))

    # --- what a test calls ---

    async def initialize(self) -> InitializeResponse:
        return await bounded(self.connection.initialize(protocol_version=1))

    async def new(self) -> str:
        """Initialize the connection, and give the id of a new session."""
        await self.initialize()
        return (await bounded(self.connection.new_session(cwd="/", mcp_servers=[]))).session_id

    async def load(self, session: str) -> None:
        """Initialize the connection, and load a session."""
        await self.initialize()
        await bounded(self.connection.load_session(cwd="/", session_id=session, mcp_servers=[]))

    async def prompt(self, session: str, text: str) -> str:
        """Send a prompt, and give the reason why it ended."""
        return (await self.answer(session, text_block(text))).stop_reason

    async def answer(self, session: str, *blocks: Any) -> PromptResponse:
        """Send the blocks of a prompt, and give the response."""
        return await bounded(self.connection.prompt(session_id=session, prompt=list(blocks)))

    async def refused(self, method: str, **params: Any) -> Refused:
        """Send a request as it is, and give the error that answers it."""
        try:
            answer = await bounded(self.connection._conn.send_request(method, params))
        except RequestError as error:
            return Refused(error.code, str(error), error.data or {})
        raise AssertionError(f"it was not refused: {answer}")

    async def until(self, holds: Callable[[], Any]) -> None:
        """Wait until what came is enough."""
        async with asyncio.timeout(BOUND), self.changed:
            await self.changed.wait_for(holds)

    def of(self, kind: str) -> list[Any]:
        """The updates of a kind."""
        return [update for update in self.updates if update.session_update == kind]

    @property
    def text(self) -> str:
        """What the agent said."""
        return "".join(update.content.text for update in self.of("agent_message_chunk"))

    @property
    def log(self) -> str:
        """The standard error of the process."""
        return self.errors.read_text(errors="replace")


async def bounded(work: Awaitable[T]) -> T:
    return await asyncio.wait_for(work, BOUND)


@asynccontextmanager
async def editor(
    home: Path, *options: str, app: Sequence[str] = APP, chooses: Chooses | None = first, **env: str
) -> AsyncGenerator[Editor]:
    """Run `worldagent acp` as the child of an editor; it ends when it is left."""
    home.mkdir(parents=True, exist_ok=True)
    errors = home.with_name(f"{home.name}.err")
    words = (*ACP, *app, "--home", str(home), *options)
    with errors.open("ab") as out:
        process = await forks.start(words, stderr=out.fileno(), env=environment(home, **env))
    found = Editor(process, errors, chooses)
    observers = [lambda event: found.heard.append(event.message)]
    made = ClientSideConnection(found, process.stdin, process.stdout, observers=observers)  # type: ignore[arg-type]  # a part of a client
    found.connection = made
    try:
        yield found
    finally:
        await found.connection.close()
        with contextlib.suppress(ProcessLookupError):
            if process.returncode is None:
                process.kill()
        await bounded(process.wait())
