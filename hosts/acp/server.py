"""The agent's side of the protocol: its methods, its sessions, and how it ends.

It uses the library's connection and models, and its own dispatch: that of the library sends the texts of exceptions and
values that the client sent.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path, PurePath
from typing import Any, Final, Literal, TypeAlias

import anyio
from acp.connection import Connection
from acp.exceptions import RequestError
from acp.meta import PROTOCOL_VERSION
from acp.schema import (
    AgentCapabilities,
    CancelNotification,
    Implementation,
    InitializeRequest,
    InitializeResponse,
    ListSessionsRequest,
    ListSessionsResponse,
    LoadSessionRequest,
    LoadSessionResponse,
    NewSessionRequest,
    NewSessionResponse,
    PromptCapabilities,
    PromptRequest,
    PromptResponse,
    SessionCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionMode,
    SessionModeState,
    SetSessionModeRequest,
    SetSessionModeResponse,
)
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from ...agent import UNSET, Thread, WorldAgent
from ...core import utc_text
from ...core.errors import InvalidArgument, WorldAgentError
from ...role_resolution import Role
from ..bounds import PROMPT
from ..service.call import Refused
from ..service.members import delivering
from ..service.validation import describe_errors, errors_of
from ..serving import Received, Sent, exchange_messages
from .client import INTERNAL_ERROR, INVALID_REQUEST, NO_METHOD, NOT_FOUND, Client, refused, request_error
from .content import read_prompt
from .turns import PromptRun, Session, show_waiting
from .updates import Updates

NO_ROLE: Final = "none"
"""The mode without a call role."""

DRAIN_SECONDS: Final = 5.0
"""Seconds that turns get to reach their next step when the process ends."""

LISTED: Final = 100
"""The most sessions in one answer of `session/list`."""

INJECT: Final = "_worldagent/session/inject"
"""The method that says something beside a running prompt. The protocol has only a draft of such a method, for its next
version; names that begin with an underscore are for extensions."""

REVOKE: Final = "_worldagent/session/revoke_inject"
"""The method that takes such a message back."""

_INJECTION: Final = {"method": INJECT, "modes": ["steer", "queue"], "revoke": REVOKE}
_PAGE: Final = 1000  # messages that are read at once
_BLOCKS: Final = "send text, images, resource links and embedded resources"
_UNKNOWN: Final = "?"

_log = logging.getLogger("worldagent.acp")


async def serve_acp(
    agent: WorldAgent,
    *,
    account: str | None,
    channel: str | None,
    modes: Mapping[str, Role],
) -> int | None:
    """Serve the client on standard input and output, until its input ends or a signal arrives.

    Then running turns stop at their next step, and the agent closes. They can be resumed.

    Args:
        agent: The agent, open.
        account: The account that speaks.
        channel: The channel of the threads.
        modes: Call roles by the name of the session mode in which prompts have them.

    Returns:
        The number of the signal, or None if there was none.
    """
    async with AsyncExitStack() as delivery:
        await delivery.enter_async_context(delivering(agent))
        server = _Server(agent, account, channel, modes, delivery)
        return await exchange_messages(server.run, server.drain, PROMPT)


class _Extension(BaseModel):
    """A message of the extension, with names as the protocol writes them."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class InjectRequest(PromptRequest):
    """The params of `INJECT`: those of a prompt, and how it is meant."""

    mode: Literal["steer", "queue"] = "steer"


class InjectResponse(_Extension):
    """The result of `INJECT`."""

    message_id: str


class RevokeRequest(_Extension):
    """The params of `REVOKE`."""

    session_id: str
    message_id: str


class RevokeResponse(_Extension):
    """The result of `REVOKE`."""

    revoked: bool


class _Server:
    def __init__(
        self,
        agent: WorldAgent,
        account: str | None,
        channel: str | None,
        modes: Mapping[str, Role],
        delivery: AsyncExitStack,
    ) -> None:
        self._agent, self._account, self._channel = agent, account, channel
        self._modes, self._delivery = modes, delivery
        self._sessions: dict[str, Session] = {}
        self._ending = asyncio.Event()
        self._initialized = False
        self._client: Client

    async def run(self, received: Received, sent: Sent) -> None:
        """Handle the messages of the client; see `serving.exchange_messages`."""
        async with received, sent:
            connection = Connection(self._handle, _Messages(received, sent), listening=False)
            self._client = Client(connection)
            try:
                await connection.main_loop()
            finally:
                with anyio.CancelScope(shield=True):  # also for a client that no longer reads
                    await self.drain()
                    await connection.close()

    async def drain(self) -> None:
        """Let the turns stop at their next step, and close the agent. A second call does nothing."""
        self._ending.set()
        await self._delivery.aclose()  # first, so that no member's turn is refused by an agent that ends
        await self._agent.drain(DRAIN_SECONDS)

    async def _handle(self, method: str, params: Any, notification: bool) -> Any:
        """Answer a request. A notification has the same effect and no answer, whichever of the two a method is."""
        try:
            answer = await self._call(method, params)
        except RequestError as error:
            if not notification:
                raise
            _log.warning("a notification was refused: %s", (error.data or {})["code"])
            return None
        return {} if answer is None else answer  # the connection's messages have no `null` as a result

    async def _call(self, method: str, params: Any) -> BaseModel | None:
        found = _METHODS.get(method)
        if found is None:
            raise refused(
                "unknown_method",
                "there is no such method",
                "use one that docs/guides/editors.md lists",
                number=NO_METHOD,
            )
        model, call = found
        try:
            if not self._initialized and method != "initialize":
                raise refused(
                    "not_initialized", "the connection is not initialized", "call initialize", number=INVALID_REQUEST
                )
            return await call(self, _validated(model, params))
        except RequestError:
            raise
        except (WorldAgentError, Refused) as error:
            failure = request_error(error)
        except Exception as error:  # broad: of any type, since its text must not reach the client
            _log.error("a request failed: %s", type(error).__name__)
            failure = refused("internal", "the request failed", "see the log of the process", number=INTERNAL_ERROR)
        raise failure

    # --- methods ---

    async def _initialize(self, given: InitializeRequest) -> InitializeResponse:
        self._initialized = True
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,  # the only one; a client that speaks no other disconnects
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, embedded_context=True),
                session_capabilities=SessionCapabilities(list=SessionListCapabilities()),
                field_meta={"worldagent": {"inject": _INJECTION}},
            ),
            agent_info=Implementation(name="worldagent", title="World Agent", version=version("worldagent")),
            auth_methods=[],
        )

    async def _new_session(self, given: NewSessionRequest) -> NewSessionResponse:
        _check_folder(given)
        session = self._open(f"acp-{secrets.token_hex(8)}")
        response = NewSessionResponse(session_id=session.id)
        if self._modes:
            response.modes = self._mode_state(session)
        return response

    async def _load_session(self, given: LoadSessionRequest) -> LoadSessionResponse:
        _check_folder(given)
        thread, known = self._thread(given.session_id), self._sessions.get(given.session_id)
        if known is not None:
            _check_idle(known)
        elif await thread.state() is None:
            raise _unknown_session()
        session = self._open(given.session_id)
        await self._replay(thread, session.updates)
        response = LoadSessionResponse()
        if self._modes:
            response.modes = self._mode_state(session)
        return response

    async def _list_sessions(self, given: ListSessionsRequest) -> ListSessionsResponse:
        found = await self._agent.threads(limit=LISTED, account=self._account, before=given.cursor)
        folder = given.cwd or str(Path.cwd())  # a thread belongs to no folder
        sessions = [
            SessionInfo(session_id=state.thread, cwd=folder, title=state.title, updated_at=utc_text(state.since))
            for state in found
        ]
        response = ListSessionsResponse(sessions=sessions)
        if len(found) == LISTED:
            response.next_cursor = found[-1].page_key
        return response

    async def _replay(self, thread: Thread, updates: Updates) -> None:
        pages = [await thread.history(limit=_PAGE)]
        while len(pages[-1]) == _PAGE:
            pages.append(await thread.history(before=pages[-1][0].id, limit=_PAGE))
        for page in reversed(pages):
            for message in page:
                await updates.replay(message)
        await show_waiting(thread, updates)

    async def _set_mode(self, given: SetSessionModeRequest) -> SetSessionModeResponse:
        session = self._session(given.session_id)
        if given.mode_id != NO_ROLE and given.mode_id not in self._modes:
            raise refused("unknown_mode", "the session has no such mode", "use a mode that the session offers")
        session.mode = given.mode_id
        return SetSessionModeResponse()

    async def _prompt(self, given: PromptRequest) -> PromptResponse:
        session = self._session(given.session_id)
        _check_idle(session)
        session.running = True
        session.cancelled.clear()
        try:
            prompt = await read_prompt(given.prompt, self._agent.attachments, account=self._account)
            role = self._modes.get(session.mode)
            thread = self._thread(session.id)
            run = PromptRun(self._agent, thread, session, self._client, role, self._ending)
            return PromptResponse(stop_reason=await run.run(prompt))
        finally:
            session.running = False

    async def _inject(self, given: InjectRequest) -> InjectResponse:
        session = self._session(given.session_id)
        prompt = await read_prompt(given.prompt, self._agent.attachments, account=self._account)
        if prompt.attachments:
            raise InvalidArgument(
                "a message beside a prompt has no attachment", remedy="send it as text, or with the next prompt"
            )
        thread = self._thread(session.id)
        if given.mode == "steer":
            message = await thread.steer(prompt.text)
        elif session.running:
            role = self._modes.get(session.mode)
            message = await thread.queue(prompt.text, role=UNSET if role is None else role)
        else:
            raise refused("no_prompt", "no prompt of the session runs", "send session/prompt", number=INVALID_REQUEST)
        session.injected.append(message.id)
        return InjectResponse(message_id=message.id)

    async def _revoke(self, given: RevokeRequest) -> RevokeResponse:
        session = self._session(given.session_id)
        return RevokeResponse(revoked=await self._thread(session.id).withdraw(given.message_id))

    async def _cancel(self, given: CancelNotification) -> None:
        session = self._sessions.get(given.session_id)
        if session is None or not session.running:
            return
        session.cancelled.set()
        thread = self._thread(session.id)
        for message_id in session.injected:  # else they would begin turns that no prompt follows
            await thread.withdraw(message_id)
        session.injected.clear()
        if session.stream is not None:
            await session.stream.cancel()

    # --- sessions ---

    def _open(self, session_id: str) -> Session:
        """Open a session. One that is open keeps its mode, and its client gets everything again."""
        known = self._sessions.get(session_id)
        mode = NO_ROLE if known is None else known.mode
        session = Session(session_id, mode, Updates(partial(self._client.update, session_id)))
        self._sessions[session_id] = session
        return session

    def _thread(self, session_id: str) -> Thread:
        return self._agent.thread(session_id, account=self._account, channel=self._channel)

    def _session(self, session_id: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise _unknown_session()
        return session

    def _mode_state(self, session: Session) -> SessionModeState:
        names = {NO_ROLE: "No role", **{name: name for name in self._modes}}
        modes = [SessionMode(id=mode, name=name) for mode, name in names.items()]
        return SessionModeState(current_mode_id=session.mode, available_modes=modes)


_Method: TypeAlias = Callable[[_Server, Any], Awaitable[BaseModel | None]]

_METHODS: Final[Mapping[str, tuple[type[BaseModel], _Method]]] = {
    "initialize": (InitializeRequest, _Server._initialize),
    "session/new": (NewSessionRequest, _Server._new_session),
    "session/load": (LoadSessionRequest, _Server._load_session),
    "session/list": (ListSessionsRequest, _Server._list_sessions),
    "session/set_mode": (SetSessionModeRequest, _Server._set_mode),
    "session/prompt": (PromptRequest, _Server._prompt),
    "session/cancel": (CancelNotification, _Server._cancel),
    INJECT: (InjectRequest, _Server._inject),
    REVOKE: (RevokeRequest, _Server._revoke),
}


class _Messages:
    """The messages of the client, in the form that the library's connection takes."""

    def __init__(self, received: Received, sent: Sent) -> None:
        self._received, self._sent = received, sent

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None at the end."""
        try:
            item = await self._received.receive()
        except anyio.EndOfStream:
            return None
        assert isinstance(item, SessionMessage), "`serving` refuses what is not a message"
        message: dict[str, Any] = item.message.model_dump(mode="json", by_alias=True, exclude_unset=True)
        if "method" in message and message["method"] not in _METHODS:
            message["method"] = _UNKNOWN  # a name that the client made up must not become the name of a span
        return message

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message. Nothing is sent to a client that no longer reads."""
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._sent.send(SessionMessage(jsonrpc_message_adapter.validate_python(message, by_name=False)))

    async def close(self) -> None:
        """Do nothing: `_Server.run` closes the streams."""


def _validated(model: type[BaseModel], params: Any) -> BaseModel:
    try:
        return model.model_validate({} if params is None else params)
    except ValidationError as failure:
        kinds = {item["type"] for item in errors_of(failure)}
        problem = describe_errors(model, failure, unknown="it has an unknown field")
    if "union_tag_invalid" in kinds:  # the text of pydantic quotes the tag
        raise InvalidArgument("the prompt has a block of an unknown type", remedy=_BLOCKS)
    raise InvalidArgument(f"the params are invalid: {problem}", remedy="send them as the protocol's schema says")


def _check_folder(given: NewSessionRequest | LoadSessionRequest) -> None:
    if not PurePath(given.cwd).is_absolute():
        raise InvalidArgument("`cwd` must be an absolute path", remedy="send the absolute path of the project")
    if given.mcp_servers:
        _log.warning("the client's MCP servers are not used; name them in the setting mcp_servers")


def _check_idle(session: Session) -> None:
    if session.running:
        raise refused(
            "prompt_running",
            "a prompt of the session is running",
            f"wait for its end, cancel it, or say it beside the prompt with {INJECT}",
            number=INVALID_REQUEST,
        )


def _unknown_session() -> RequestError:
    return refused(
        "unknown_session",
        "there is no such session",
        "call session/new, or session/load with the id of a thread that has a turn",
        number=NOT_FOUND,
    )
