"""Calls of a remote agent, by the SDK of A2A (A22). Needs the extra `a2a`.

An answer is bounded, redirects are not followed, and what an agent says is in no error: hosts log errors.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import httpx
from a2a.client.card_resolver import parse_agent_card
from a2a.client.client import ClientCallContext
from a2a.client.client_factory import ClientFactory
from a2a.client.errors import A2AClientTimeoutError
from a2a.client.transports.base import ClientTransport
from a2a.client.transports.jsonrpc import JsonRpcTransport
from a2a.compat.v0_3.versions import is_legacy_version
from a2a.types import a2a_pb2 as pb
from a2a.utils.constants import PROTOCOL_VERSION_CURRENT, VERSION_HEADER
from a2a.utils.errors import A2AError, TaskNotCancelableError, TaskNotFoundError
from google.protobuf.json_format import MessageToDict, ParseError

from ...core.errors import RemoteAgentFailed, RemoteAgentUnavailable, WorldAgentError
from ...mcp_client.hosts import LONGEST_ANSWER
from ...mcp_client.tls import trusted
from ..data.brief import InterfaceSpec
from ..data.remote import RemoteAgent

State = Literal["working", "asking", "authorising", "done", "failed"]
"""What a task is: it is worked on, it waits for an answer of the sender or for a login, or it is over."""

MAX_ANSWER: Final = 19_000
"""Characters of an answer that are taken; a message holds a few more."""

_MAX_CARD: Final = 4000  # characters of what a card says
_MAX_LISTED: Final = 100  # tasks, and messages of each, among which one is looked for
_MODES: Final = ("text/plain", "application/json")
_JSONRPC: Final = "JSONRPC"
_NO_ZONE: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?")

_FAILED: Final = {
    pb.TASK_STATE_FAILED: "failed at the task",
    pb.TASK_STATE_REJECTED: "rejected the task",
    pb.TASK_STATE_CANCELED: "cancelled the task",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteAnswer:
    """What a remote agent says of a task.

    Attributes:
        task: The id of the task; empty if it answered at once, without one.
        context: The id of the context that the task is in; empty for none.
        state: What the task is.
        text: The answer, the question, or nothing yet.
        problem: How it failed.
        said: What tells one question of a task from another one.
    """

    task: str
    context: str
    state: State
    text: str = ""
    problem: str = ""
    said: str = ""


class RemoteClient:
    """Calls one remote agent. Each call has a connection of its own.

    Args:
        agent: Where it is.
    """

    def __init__(self, agent: RemoteAgent) -> None:
        self._agent = agent
        self._card: pb.AgentCard | None = None

    async def interface(self) -> InterfaceSpec:
        """Read its card, and return what it does for others.

        Raises:
            RemoteAgentUnavailable, RemoteAgentFailed: It has no card that can be used, or cannot be reached.
        """
        self._card = None
        async with self._transport():
            assert self._card is not None
            return _interface(self._card)

    async def send(self, message_id: str, text: str, *, context: str, task: str) -> RemoteAnswer:
        """Send it a message.

        Args:
            message_id: The id of the message; a repeat has the same.
            text: Its text.
            context: The context that it belongs to; empty for a new one.
            task: The task that it continues; empty for a new one.

        Raises:
            RemoteAgentUnavailable, RemoteAgentFailed: It did not take the message, or cannot be reached.
        """
        message = pb.Message(
            message_id=message_id, role=pb.ROLE_USER, parts=[pb.Part(text=text)], context_id=context, task_id=task
        )
        wanted = pb.SendMessageConfiguration(accepted_output_modes=_MODES, return_immediately=True)
        async with self._transport() as transport:
            given = await transport.send_message(pb.SendMessageRequest(message=message, configuration=wanted))
        if given.HasField("task"):
            return self._answer(given.task)
        if given.HasField("message"):
            said = given.message
            return RemoteAnswer(task="", context=said.context_id, state="done", text=text_of(said.parts))
        raise self._invalid()

    async def get(self, task: str) -> RemoteAnswer:
        """What has become of a task.

        Raises:
            RemoteAgentUnavailable, RemoteAgentFailed: It does not know the task, or cannot be reached.
        """
        async with self._transport() as transport:
            return self._answer(await transport.get_task(pb.GetTaskRequest(id=task)))

    async def find(self, message_id: str, context: str) -> RemoteAnswer | None:
        """The task that a message has begun, if the agent can list its tasks; None if it is not found so.

        Raises:
            RemoteAgentUnavailable: It cannot be reached.
        """
        wanted = pb.ListTasksRequest(context_id=context, page_size=_MAX_LISTED, history_length=_MAX_LISTED)
        try:
            async with self._transport() as transport:
                listed = await transport.list_tasks(wanted)
        except RemoteAgentFailed:
            return None
        found = [task.id for task in listed.tasks if any(each.message_id == message_id for each in task.history)]
        return await self.get(found[0]) if found else None

    async def cancel(self, task: str) -> None:
        """Cancel a task. One that is over, or that it does not know, is left.

        Raises:
            RemoteAgentUnavailable, RemoteAgentFailed: It cannot be reached, or refuses.
        """
        async with self._transport() as transport:
            try:
                await transport.cancel_task(pb.CancelTaskRequest(id=task))
            except (TaskNotCancelableError, TaskNotFoundError):
                return

    def _answer(self, task: pb.Task) -> RemoteAnswer:
        if not task.id:
            raise self._invalid()
        state, said = task.status.state, text_of(task.status.message.parts)
        given = {"task": task.id, "context": task.context_id}
        if state == pb.TASK_STATE_COMPLETED:
            made = text_of(part for artifact in task.artifacts for part in artifact.parts)
            return RemoteAnswer(**given, state="done", text=made or said)
        if state in _FAILED:
            return RemoteAnswer(**given, state="failed", problem=_FAILED[state])
        if state == pb.TASK_STATE_INPUT_REQUIRED:
            told = [each for each in task.history if each.role == pb.ROLE_AGENT][-1:]
            said = said or text_of(part for each in told for part in each.parts)
            when = f"{task.status.message.message_id} {task.status.timestamp.ToJsonString()}"
            return RemoteAnswer(**given, state="asking", text=said, said=when)
        return RemoteAnswer(**given, state="authorising" if state == pb.TASK_STATE_AUTH_REQUIRED else "working")

    # --- connections --------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _transport(self) -> AsyncGenerator[ClientTransport]:
        """A connection to the agent, whose card is read first, once."""
        agent = self._agent
        token = os.environ.get(agent.token_variable, "") if agent.token_variable else ""
        if agent.token_variable and not token:
            raise RemoteAgentFailed(
                f"the environment variable {agent.token_variable!r} has no token for the remote agent {agent.host!r}",
                remedy="set it for the process that delivers messages",
            )
        headers = {"Accept-Encoding": "identity", VERSION_HEADER: PROTOCOL_VERSION_CURRENT}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        with self._errors():
            async with httpx.AsyncClient(
                transport=_Bounded(httpx.AsyncHTTPTransport(verify=trusted())),
                headers=headers,
                timeout=agent.timeout,
            ) as client:
                card = self._card or await self._read_card(client)
                self._card = card
                at = self._endpoint(card)
                yield _Transport(client, card, at.url, is_shared_httpx=True)

    async def _read_card(self, client: httpx.AsyncClient) -> pb.AgentCard:
        response = await client.get(self._agent.card)
        response.raise_for_status()
        return parse_agent_card(response.json())

    def _endpoint(self, card: pb.AgentCard) -> pb.AgentInterface:
        """Where the agent is called: at the host of its card, to which alone its token is sent."""
        found = ClientFactory._find_best_interface([*card.supported_interfaces], [_JSONRPC])
        if found is None or is_legacy_version(found.protocol_version):
            raise self._failed("has no JSON-RPC endpoint of A2A 1.0", "use an agent that has one")
        here, there = urlsplit(self._agent.card), urlsplit(found.url)
        if (here.scheme, here.netloc) != (there.scheme, there.netloc):
            raise self._failed("has its endpoint on another host than its card", "ask who runs it for an address")
        return found

    @contextmanager
    def _errors(self) -> Generator[None]:
        """Reword all that the libraries raise, without what the agent said."""
        failure: WorldAgentError | None = None
        try:
            yield
        except (TaskNotCancelableError, TaskNotFoundError) as error:
            known = "does not know the task any more" if isinstance(error, TaskNotFoundError) else "refused the call"
            failure = self._failed(known, "send the message again")
        except (A2AClientTimeoutError, httpx.TimeoutException):
            failure = self._unavailable("did not answer in time")
        except (A2AError, httpx.HTTPError) as error:
            failure = self._of_http(error)
        except (ParseError, ValueError, TypeError, KeyError, AttributeError, RecursionError):  # JSON and its models
            failure = self._invalid()
        if failure is not None:
            raise failure

    def _of_http(self, error: Exception) -> WorldAgentError:
        cause = error if isinstance(error, httpx.HTTPError) else error.__cause__
        if isinstance(cause, _TooLong):
            return self._failed("sent an answer that is too long or compressed", "ask it for less")
        if isinstance(cause, httpx.HTTPStatusError):
            status = cause.response.status_code
            if status in (401, 403):
                return self._failed("refuses the token", "set a token that it accepts in `token_variable`")
            if status == 429 or status >= 500:
                return self._unavailable(f"answers with status {status}")
            return self._failed(f"answers with status {status}", "correct the address of its card")
        if isinstance(cause, httpx.HTTPError):
            return self._unavailable("cannot be reached")
        if isinstance(cause, json.JSONDecodeError) or cause is not None:
            return self._invalid()
        return self._failed(f"refused the call with {type(error).__name__}", "change the message, or ask who runs it")

    def _unavailable(self, problem: str) -> RemoteAgentUnavailable:
        return RemoteAgentUnavailable(
            f"the remote agent {self._agent.host!r} {problem}", remedy="try again later, or ask who runs it"
        )

    def _failed(self, problem: str, remedy: str) -> RemoteAgentFailed:
        return RemoteAgentFailed(f"the remote agent {self._agent.host!r} {problem}", remedy=remedy)

    def _invalid(self) -> RemoteAgentFailed:
        return self._failed("sent an answer that A2A does not allow", "ask who runs it")


class _Transport(JsonRpcTransport):
    """JSON-RPC with agents whose times lack a zone, as those of fasta2a do: the schema does not allow that."""

    async def _send_request(self, payload: dict[str, Any], context: ClientCallContext | None = None) -> dict[str, Any]:
        answer: dict[str, Any] = _with_zones(await super()._send_request(payload, context))
        return answer


def _with_zones(value: Any) -> Any:
    if isinstance(value, dict):
        time = value.get("timestamp")
        if isinstance(time, str) and _NO_ZONE.fullmatch(time):
            value = {**value, "timestamp": f"{time}Z"}
        return {name: _with_zones(each) for name, each in value.items()}
    return [_with_zones(each) for each in value] if isinstance(value, list) else value


class _TooLong(httpx.RequestError):
    """An answer that is longer than allowed, or compressed."""


class _Bounded(httpx.AsyncBaseTransport):
    """A transport whose answers end when they get too long."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise _TooLong("compressed", request=request)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _Counted(response.stream, request)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Counted(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, request: httpx.Request) -> None:
        self._stream, self._request = stream, request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        length = 0
        async for chunk in self._stream:
            length += len(chunk)
            if length > LONGEST_ANSWER:
                raise _TooLong("too long", request=self._request)
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


# --- texts ------------------------------------------------------------------------------------------------------------


def text_of(parts: Iterable[pb.Part], *, most: int = MAX_ANSWER) -> str:
    """The text of some parts: texts as they are, data as JSON, and of each file that it was left out.

    Args:
        parts: The parts.
        most: The most characters.
    """
    found = list[str]()
    for part in parts:
        kind = part.WhichOneof("content")
        if kind == "text":
            found.append(part.text)
        elif kind == "data":
            found.append(json.dumps(MessageToDict(part.data), ensure_ascii=False))
        elif kind in ("raw", "url"):
            found.append("[a file was left out]")
    text = "\n".join(found).replace("\0", "").strip()
    return text if len(text) <= most else f"{text[:most]} [...]"


def _interface(card: pb.AgentCard) -> InterfaceSpec:
    """What a card says as an interface spec."""
    skills = [f"{each.name}: {each.description}" for each in card.skills]
    return InterfaceSpec(
        services=_short([card.description or card.name, *skills]) or "not said",
        input_format=_short(card.default_input_modes, ", ") or "text/plain",
        output_format=_short(card.default_output_modes, ", ") or "text/plain",
        examples=_short(example for each in card.skills for example in each.examples),
    )


def _short(texts: Iterable[str] | Sequence[str], between: str = "\n") -> str:
    return between.join(texts).replace("\0", "").strip()[:_MAX_CARD]
