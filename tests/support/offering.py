"""A workspace that offers a member over A2A, as a program, and a client on the JavaScript SDK that calls it."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.a2a_peers import FOLDER, NODE
from support.agents import calls
from support.processes import add
from support.role_specs import spec_of, workspace_of
from worldagent import Policy, Rule, Settings, Storage, WorldAgent, tool
from worldagent.members import SEND_RULES, AuthorityConfig
from worldagent.testing import ScriptedCall, ScriptedLM

HOME = "OFFERING_HOME"


@tool(risk="write", capabilities=["count"])
async def count(what: str) -> str:
    """Count something, with an effect."""
    add(Path(os.environ[HOME]) / "effects", what)
    return f"7 {what}"


async def _answer(call: ScriptedCall) -> dict[str, Any]:
    """The model of `ada`: it does what the message of a caller says."""
    message, steps = str(call.fields["message"]), call.steps
    who = message.partition("(")[2].partition(")")[0] if "(" in message.splitlines()[0] else "a2a:ana"
    who = next((word.strip("[]") for word in message.split() if word.startswith("a2a")), who)
    tell = {"to": who, "content": "", "reason": "You asked."}
    if "quiet" in message:
        return {"result": "A secret."}
    if "count" in message or "approve" in message:
        todo = [("count" if "count" in message else "deploy", {"what": "walls"})]
        if len(steps) < len(todo):
            return {"result": "", **calls(todo[len(steps)])}
    if "ask" in message and not steps:
        return {"result": "", **calls(("request_role", {"to": who, "content": "Which colour?"}))}
    if "slow" in message:
        while not (Path(os.environ[HOME]) / "go").exists():  # noqa: ASYNC110 -- a file sets no event
            await asyncio.sleep(0.05)
    said = str(steps[-1]) if steps else message
    done = 2 if ("count" in message or "approve" in message or "ask" in message) else 1
    if len(steps) < done:
        return {"result": "", **calls(("send_message", {**tell, "content": f"Ada says: {said}"[:500]}))}
    return {"result": "Done."}


@tool(risk="destructive")
async def deploy(what: str) -> str:
    """Deploy something."""
    return what


def agent() -> WorldAgent:
    """Make the agent, for `--app support.offering:agent`."""
    ada = spec_of(
        "ada",
        operator_ids=("count", "deploy"),
        authority=AuthorityConfig(autonomous=("count", "deploy")),
        domains=("walls",),
    )
    counting = Rule(decision="approve", function="count", after="message:*", arguments={"what": "*"}, times=1000)
    return WorldAgent(
        "novel",
        lm=ScriptedLM(_answer),
        society=workspace_of(roles=(ada, spec_of("bob"))),
        tools=[count, deploy],
        policy=Policy(rules=(*SEND_RULES, counting)),
        storage=Storage(home=Path(os.environ[HOME])),
        settings=Settings(model_attempts=1, model_backoff=0),
    )


class JsClient:
    """A client on the JavaScript SDK.

    Attributes:
        wire: What passed, as `check_wire` takes it.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.wire: list[Any] = []

    async def call(self, name: str, **params: Any) -> Any:
        """Make a call; gives its answer, or raises with what the SDK raised."""
        found = await self._called(name, params)
        if "failed" in found[-1]:
            raise AssertionError(str(found[-1]))
        return found[-1]["done"]

    async def refused(self, name: str, **params: Any) -> str:
        """Make a call that the agent refuses; gives the name of the error."""
        found = await self._called(name, params)
        return str(found[-1]["failed"]).removeprefix("JsonRpc")

    async def stream(self, **params: Any) -> list[Any]:
        found = await self._called("stream", params)
        assert "failed" not in found[-1], found[-1]
        return [each["event"] for each in found[:-1]]

    async def _called(self, name: str, params: Any) -> list[Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"call": name, "params": params}).encode() + b"\n")
        found = list[Any]()
        async with asyncio.timeout(60):
            while not found or not {"done", "failed"} & found[-1].keys():
                line = await self._process.stdout.readline()
                assert line, "the client ended"
                read = json.loads(line)
                if "wire" in read:
                    self.wire.append(read["wire"])
                else:
                    found.append(read)
        return found


@asynccontextmanager
async def js_client(url: str, token: str) -> AsyncGenerator[JsClient]:
    """Run a client of the agent at an address."""
    pipe = asyncio.subprocess.PIPE
    argv = (str(NODE), str(FOLDER / "client.mjs"), url, token)
    process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe, limit=1 << 24)
    try:
        yield JsClient(process)
    finally:
        process.kill()
        await process.wait()


def message(text: str, message_id: str, **more: Any) -> dict[str, Any]:
    """The params of a message."""
    return {"message": {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}], **more}}


__all__ = ["HOME", "JsClient", "agent", "js_client", "message"]
