"""Tasks of the sidecar as clients of MCP's extension have them: begun, polled, answered."""

import asyncio
from collections.abc import Iterable
from typing import Any

from support.sidecar_calls import Calling
from support.sidecar_clients import BOUND, HttpClient


def asks(message: dict[str, Any]) -> dict[str, Any]:
    """A person is there, and is not asked over the connection."""
    raise AssertionError(message)


def with_tasks(url: str, token: str = "", *, elicits: bool = True, **more: Any) -> HttpClient:
    """A client that supports tasks, to be opened."""
    client = HttpClient(url, token, elicit=asks if elicits else None, **more)
    client.tasks = True
    return client


async def begun(client: Calling, tool: str, **arguments: Any) -> str:
    """Begin a task, and give its id."""
    made = await client.request("tools/call", name=tool, arguments=arguments)
    assert made["resultType"] == "task", made
    assert (made["status"], made["ttlMs"], made["pollIntervalMs"]) == ("working", None, 1000)
    assert not {"result", "error", "inputRequests", "task"} & made.keys()
    return str(made["taskId"])


async def got(client: Calling, task: str) -> dict[str, Any]:
    """Poll a task once."""
    found = await client.request("tasks/get", taskId=task)
    assert (found["resultType"], found["taskId"]) == ("complete", task)
    fields = {"completed": "result", "failed": "error", "input_required": "inputRequests"}
    assert {"result", "error", "inputRequests"} & found.keys() == {fields.get(found["status"], "status")} - {"status"}
    return found


async def until(client: Calling, task: str, *statuses: str) -> dict[str, Any]:
    """Poll a task until it has one of these statuses."""
    async with asyncio.timeout(BOUND):
        while (found := await got(client, task))["status"] not in statuses:
            pass
    return found


async def answer(client: Calling, task: str, responses: dict[str, Any]) -> None:
    """Answer some of what a task asks."""
    acked = await client.request("tasks/update", taskId=task, inputResponses=responses)
    assert acked.keys() - {"_meta"} == {"resultType"}
    assert acked["resultType"] == "complete"


def accepted(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


def all_of(asked: Iterable[str], response: Any) -> dict[str, Any]:
    """The same response to all that is asked."""
    return dict.fromkeys(asked, response)
