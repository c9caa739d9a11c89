"""Remote agents that refuse, lie, send too much or cannot be reached (A22)."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from support.a2a_peers import TOKEN, TOKEN_VARIABLE, free_port
from support.web import served
from worldagent.core.errors import RemoteAgentFailed, RemoteAgentUnavailable, WorldAgentError
from worldagent.mcp_client.hosts import LONGEST_ANSWER
from worldagent.members import RemoteAgent
from worldagent.members.remote.client import RemoteClient

pytestmark = pytest.mark.requirement("A22")

SAID = "a text of a stranger"


@asynccontextmanager
async def lying(answer: Callable[[], Response], endpoint: str = "") -> AsyncGenerator[RemoteClient]:
    """A client of an agent with a card that is in order, whose endpoint answers so."""

    async def card(request: Request) -> Response:
        at = {"url": endpoint or f"{request.base_url}rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        return JSONResponse({"name": "Liar", "description": SAID, "version": "1", "supportedInterfaces": [at]})

    async def call(request: Request) -> Response:
        return answer()

    app = Starlette(routes=[Route("/card", card), Route("/rpc", call, methods=["POST"])])
    async with served(app) as url:
        yield RemoteClient(RemoteAgent(card=f"{url}/card", token_variable=TOKEN_VARIABLE, timeout=20))


def result(value: Any) -> Response:
    return JSONResponse({"jsonrpc": "2.0", "id": "1", "result": value})


def nested() -> Response:
    return Response('{"jsonrpc": "2.0", "result": ' + "[" * 50_000 + "]" * 50_000 + "}")


ANSWERS: dict[str, tuple[Callable[[], Response], type[WorldAgentError], str]] = {
    "token": (lambda: Response(status_code=401), RemoteAgentFailed, "refuses the token"),
    "moved": (lambda: Response(status_code=307, headers={"location": "/card"}), RemoteAgentFailed, "status 307"),
    "busy": (lambda: Response(status_code=503), RemoteAgentUnavailable, "status 503"),
    "text": (lambda: Response(SAID), RemoteAgentFailed, "does not allow"),
    "list": (lambda: JSONResponse([SAID]), RemoteAgentFailed, "refused the call|does not allow"),
    "nothing": (lambda: result({}), RemoteAgentFailed, "does not allow"),
    "no id": (lambda: result({"task": {"contextId": "c"}}), RemoteAgentFailed, "does not allow"),
    "kind": (lambda: result({"task": {"id": {"a": SAID}}}), RemoteAgentFailed, "does not allow"),
    "nested": (nested, RemoteAgentFailed, "does not allow"),
    "long": (lambda: Response(b"1" * (LONGEST_ANSWER + 1)), RemoteAgentFailed, "too long"),
    "packed": (lambda: Response(b"x", headers={"content-encoding": "gzip"}), RemoteAgentFailed, "compressed"),
    "error": (
        lambda: JSONResponse({"jsonrpc": "2.0", "id": "1", "error": {"code": -32602, "message": SAID}}),
        RemoteAgentFailed,
        "InvalidParamsError",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_a_bad_answer_is_a_typed_error_without_its_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    answer, kind, said = ANSWERS[name]
    async with lying(answer) as client:
        with pytest.raises(kind, match=said) as raised:
            await client.send("m1", "Hello.", context="", task="")
    assert SAID not in str(raised.value)
    assert TOKEN not in str(raised.value)
    assert raised.value.__cause__ is None


async def test_the_token_goes_to_the_host_of_the_card_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    asked = list[str]()

    async def note(request: Request) -> Response:
        asked.append(json.dumps(dict(request.headers)))
        return result({})

    app = Starlette(routes=[Route("/rpc", note, methods=["POST"])])
    async with served(app) as other, lying(lambda: result({}), f"{other}/rpc") as client:
        with pytest.raises(RemoteAgentFailed, match="another host"):
            await client.send("m1", "Hello.", context="", task="")
    assert asked == []


async def test_without_its_token_or_its_host_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = RemoteAgent(card=f"http://127.0.0.1:{free_port()}/card", token_variable=TOKEN_VARIABLE)
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    with pytest.raises(RemoteAgentFailed, match=TOKEN_VARIABLE):
        await RemoteClient(gone).interface()
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    with pytest.raises(RemoteAgentUnavailable, match="cannot be reached"):
        await asyncio.wait_for(RemoteClient(gone).interface(), 30)
