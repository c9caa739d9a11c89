"""What a chat is about: its thread and what waits there, its call role, and its agent once that is loaded.

It reads and shows nothing.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ....core.errors import HostError, HostUnavailable, WorldAgentError
from ....core.pauses import Pause
from ....role_resolution import Role
from ...pauses import unanswered
from .._attachments import attachments
from .._hosts import EMBEDDED
from .._options import WORKSPACE, ChatOptions
from .._output import Output
from .._session import open_agent
from .waiting import Waiting

if TYPE_CHECKING:
    from ....agent import Thread, ThreadState, WorldAgent
    from ....memory.attachments import AttachmentSource


class Talk:
    """The state of one chat. Commands change it, turns read it.

    Args:
        options: The command's options.
        role: The call role that goes with every message.

    Attributes:
        options: The command's options.
        role: The call role that goes with every message. Only here, in memory (R7). The roles of threads are the
            agent's.
        attached: What goes with the next message.
        thread_id: The thread that messages go to.
    """

    def __init__(self, options: ChatOptions, role: Role | None) -> None:
        self.options = options
        self.role = role
        self.attached: tuple[AttachmentSource, ...] = attachments(options.attach)
        self.thread_id = options.thread
        self._loading: asyncio.Task[WorldAgent] | None = None
        self._waiting: dict[str, Waiting] = {}
        self._standing: dict[str, str] = {}  # what became of each thread's last turn, as far as it is known

    @property
    def workspace(self) -> str:
        """The agent's workspace, once the agent is loaded."""
        return self._agent.workspace

    @property
    def model(self) -> str:
        """The model's name, once the agent is loaded."""
        return self.options.lm or self._agent.settings.lm or "local"

    @property
    def profile(self) -> str:
        """The name of what the agent started up with, once it is loaded."""
        return self._agent.profile.name

    @property
    def waiting(self) -> Waiting | None:
        """What the thread's turn waits for, as far as it is known."""
        return self._waiting.get(self.thread_id)

    @property
    def prompt(self) -> str:
        """What the prompt says: the thread, and whether an answer is awaited."""
        waiting = self.waiting
        # Where each pause has an answer that could not be sent, /resume sends it, and nothing is asked.
        return f"{self.thread_id}> " if waiting is None or not waiting.open else f"{self.thread_id} {waiting.place}> "

    def left(self, *statuses: str) -> list[str]:
        """The threads whose last turn stands so."""
        return [thread for thread, status in self._standing.items() if status in statuses]

    def command(self, thread_id: str) -> str:
        """The command that goes on with a thread, to be copied. No role is in it."""
        options = self.options
        words = ["worldagent", "chat", "--thread", thread_id]
        for name, left_out in (("app", None), ("workspace", WORKSPACE), ("account", None), ("channel", None)):
            if (given := getattr(options, name)) != left_out:
                words += [f"--{name}", given]
        for name in ("home", "policy", "workers"):
            if (given := getattr(options, name)) is not None:
                words += [f"--{name}", str(given)]
        return shlex.join(words)

    @property
    def role_host(self) -> str | None:
        """The address or program of the role host, once the agent is loaded; None is the embedded store."""
        if self.options.role_host_stdio is not None:
            return self.options.role_host_stdio.split()[0]  # its arguments may hold a key
        named = self.options.role_host or self._agent.settings.role_host
        return None if named == EMBEDDED else named

    @property
    def history_file(self) -> Path:
        """Where what was typed is kept, once the agent is loaded."""
        from ....storage import Storage

        return Storage(home=self.options.home or self._agent.settings.home).typed

    def key(self, thread_id: str) -> str:
        """The key that a thread has in the agent's workspace, once the agent is loaded."""
        from ....core import Scope
        from ....memory import thread_key

        return thread_key(Scope(workspace=self.workspace, thread=thread_id))

    @property
    def broken(self) -> bool:
        """Whether the agent could not be opened."""
        loading = self._loading
        return loading is not None and loading.done() and not loading.cancelled() and loading.exception() is not None

    def load(self, output: Output, *, beside: bool, quiet: bool) -> None:
        """Begin to load the agent.

        Args:
            output: Where notes go, from another thread.
            beside: Whether the event loop goes on meanwhile.
            quiet: Whether what a role host that is a program writes to standard error is dropped.
        """
        self._loading = asyncio.create_task(self._load(output, beside=beside, quiet=quiet))

    async def agent(self) -> WorldAgent:
        """The agent, loaded.

        Raises:
            WorldAgentError: It cannot be opened.
        """
        assert self._loading is not None, "load() comes first"
        return await asyncio.shield(self._loading)

    async def thread(self) -> Thread:
        """The thread that messages go to.

        Raises:
            WorldAgentError: The agent cannot be opened.
        """
        agent, options = await self.agent(), self.options
        return agent.thread(self.thread_id, account=options.account, channel=options.channel)

    async def look(self) -> ThreadState | None:
        """Learn from the database where the thread stands and what it waits for. Answers that are not sent stay.

        Raises:
            WorldAgentError: The agent cannot be opened, or the database not be read.
        """
        thread, thread_id = await self.thread(), self.thread_id
        state = await thread.state()
        pauses = unanswered(await thread.pauses()) if state is not None and state.pauses else ()
        if thread_id == self.thread_id:
            self.stands("" if state is None else state.status, pauses)
        return state

    def stands(self, status: str, pauses: Sequence[Pause] = ()) -> None:
        """Note where the thread stands and what it waits for."""
        self._standing[self.thread_id] = status
        before = self._waiting.pop(self.thread_id, None)
        if pauses:
            answers = None if before is None else before.answers
            self._waiting[self.thread_id] = Waiting(pauses, answers, self.options.account)

    async def host_trouble(self) -> WorldAgentError | None:
        """Why the role host cannot be reached now, if there is one and it cannot."""
        if self.role_host is None:
            return None
        agent = await self.agent()
        try:
            async with asyncio.timeout(agent.settings.role_timeout):
                await agent.roles.list()
        except HostError as error:
            return error
        except TimeoutError:
            pass
        else:
            return None
        return HostUnavailable(
            f"the role host does not answer within {agent.settings.role_timeout:g} s", remedy="start it, or try later"
        )

    async def aclose(self) -> None:
        """Close the agent, or give up loading it."""
        if self._loading is None:
            return
        self._loading.cancel()
        await asyncio.wait({self._loading})
        if not self._loading.cancelled() and self._loading.exception() is None:
            await self._loading.result().aclose()

    @property
    def _agent(self) -> WorldAgent:
        assert self._loading is not None, "load() comes first"
        return self._loading.result()

    async def _load(self, output: Output, *, beside: bool, quiet: bool) -> WorldAgent:
        # Imports take over a second, and a person may type meanwhile.
        agent = await asyncio.to_thread(self._make, output, quiet) if beside else self._make(output, quiet)
        return await agent.start()

    def _make(self, output: Output, quiet: bool) -> WorldAgent:
        return open_agent(self.options, output, stderr="discard" if quiet else "inherit")


__all__ = ["Talk"]
