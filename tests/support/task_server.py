"""An MCP server with the extension `io.modelcontextprotocol/tasks`, written from its schema and from nothing of ours.

`python task_server.py FOLDER [MODE]` speaks over stdio; `app(folder)` is the same over HTTP. In the mode `plain` it is
without the extension, in the mode `old` of an older revision, and in the mode `undeclared` it does not say that it has
the extension. In the mode `unsteady` it can die at any request about a task, before or after that is done. The folder
has what outlives the program: its tasks, and each request that it got, as lines of JSON.

A file `fate` there, of JSON such as `["before", "tasks/get", "die"]`, says what happens to the next request of this
method: before it is done, or after that but before it is answered, the program dies as by `kill -9`, or hangs. The tool
`forever` ends once there is a file `end`. What a file `says` has, as JSON, is said of every task.
"""

import json
import os
import random
import signal
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

EXTENSION = "io.modelcontextprotocol/tasks"
FORM = {"type": "object", "properties": {"colour": {"type": "string", "enum": ["red", "blue"]}}, "required": ["colour"]}
NAMED = {"name": "tasks", "version": "1"}
CACHE = {"ttlMs": 0, "cacheScope": "private"}
DEATHS = 0.2  # of the requests about a task, if it is unsteady
TOOLS = ("at_once", "done", "work", "fail", "break", "ask", "sample", "forever")


def requests_in(folder: Path, method: str = "") -> list[dict[str, Any]]:
    """The requests that it got, or those of one method."""
    log = folder / "requests"
    found = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return [each for each in found if method in ("", each["method"])]


class Refused(Exception):
    """A JSON-RPC error."""


class TaskServer:
    def __init__(self, folder: Path, mode: str = "") -> None:
        self.folder, self.mode, self.client = folder, mode, os.getppid()
        (folder / "tasks").mkdir(parents=True, exist_ok=True)

    def answer(self, asked: dict[str, Any], name: str | None = None) -> dict[str, Any] | None:
        """Answer a message; None if it is not a request. `name` is the header `Mcp-Name`."""
        if "id" not in asked:
            return None
        method, params = asked["method"], asked.get("params", {})
        self.note(method, params, name)
        self.meet("before", method)
        try:
            said: dict[str, Any] = {"result": self.result(method, params, offers=EXTENSION in offered(params))}
        except Refused as error:
            said = {"error": {"code": error.args[0], "message": "no"}}
        self.meet("after", method)
        return {"jsonrpc": "2.0", "id": asked["id"], **said}

    def note(self, method: str, params: Mapping[str, Any], name: str | None) -> None:
        given = {key: value for key, value in params.items() if key != "_meta"}
        line = {"method": method, "params": given, "offers": offered(params), "pid": os.getpid()}
        with (self.folder / "requests").open("a") as file:
            file.write(json.dumps(line if name is None else {**line, "name": name}) + "\n")

    def meet(self, when: str, method: str) -> None:
        if self.mode == "unsteady" and method.startswith("tasks/") and random.random() < DEATHS:
            os.kill(os.getpid(), signal.SIGKILL)
        fate = self.folder / "fate"
        if not fate.exists() or json.loads(fate.read_text())[:2] != [when, method]:
            return
        how = json.loads(fate.read_text())[2]
        fate.rename(self.folder / "met")
        if how == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        while (
            os.getppid() == self.client and not (self.folder / "go on").exists()
        ):  # the client can be killed meanwhile
            time.sleep(0.01)

    def result(self, method: str, params: dict[str, Any], *, offers: bool) -> dict[str, Any]:
        if method.startswith("tasks/") and not offers:
            raise Refused(-32021)
        match method:
            case "server/discover" if self.mode != "old":
                extensions: dict[str, Any] = {"extensions": {EXTENSION: {}}} if self.mode in ("", "unsteady") else {}
                capabilities = {"tools": {}, **extensions}
                return {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, **complete(), **CACHE}
            case "initialize":
                return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": NAMED}
            case "tools/list":
                schema = {"type": "object", "properties": {"polls": {"type": "integer"}}}
                return {"tools": [{"name": name, "inputSchema": schema} for name in TOOLS], **complete(), **CACHE}
            case "tools/call":
                return self.call(params["name"], params.get("arguments", {}), offers=offers)
            case "tasks/get":
                says = self.folder / "says"
                more = json.loads(says.read_text()) if says.exists() else {}
                return {**self.step(self.task(params["taskId"])), **complete(), **more}
            case "tasks/update":
                task = self.task(params["taskId"])
                given = {key: each for key, each in params["inputResponses"].items() if key in task["asks"]}
                task["answers"] |= given
                task["asks"] = [key for key in task["asks"] if key not in given]
                self.keep(task)
                return complete()
            case "tasks/cancel":
                task = self.task(params["taskId"])
                if task["status"] in ("working", "input_required"):
                    self.keep({**task, "status": "cancelled"})
                return complete()
            case _:
                raise Refused(-32601)

    # --- tasks ------------------------------------------------------------------------------------------------------

    def call(self, tool: str, arguments: Mapping[str, Any], *, offers: bool) -> dict[str, Any]:
        with (self.folder / "effects").open("a") as file:
            file.write(tool + "\n")
        if tool == "at_once" or not offers or self.mode == "plain":
            return {**text("at once"), **complete()}
        polls = 0 if tool == "done" else int(arguments.get("polls", 2))
        task = {"id": str(uuid.uuid4()), "tool": tool, "polls": polls, "status": "working", "asks": [], "answers": {}}
        self.keep({**task, "done": 0})
        return {**self.seen({**task, "done": 0}), "resultType": "task"}

    def task(self, id_: str) -> dict[str, Any]:
        file = self.folder / "tasks" / id_
        if not file.exists():
            raise Refused(-32602)
        found: dict[str, Any] = json.loads(file.read_text())
        return found

    def keep(self, task: Mapping[str, Any]) -> None:
        new = self.folder / "tasks" / f"{task['id']}.new"
        new.write_text(json.dumps(task))
        new.replace(self.folder / "tasks" / task["id"])

    def seen(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """A task as it is on the wire."""
        times = {"createdAt": "2026-07-28T10:00:00Z", "lastUpdatedAt": "2026-07-28T10:00:00Z", "ttlMs": 60_000}
        wait = {"pollIntervalMs": 10} if task["tool"] != "forever" else {"pollIntervalMs": 50}
        said = f"{task['done']} of {task['polls']}"
        return {"taskId": task["id"], "status": task["status"], "statusMessage": said, **times, **wait}

    def step(self, task: dict[str, Any]) -> dict[str, Any]:
        """Let it go on, one part with each look, and give what `tasks/get` answers."""
        if task["status"] in ("working", "input_required"):
            task = self.went_on(task)
            self.keep(task)
        more: dict[str, Any] = {}
        match task["status"], task["tool"]:
            case "input_required", "sample":
                say = {"role": "user", "content": {"type": "text", "text": "hello"}}
                params: dict[str, Any] = {"messages": [say], "maxTokens": 5}
                more = {"inputRequests": {"say": {"method": "sampling/createMessage", "params": params}}}
            case "input_required", _:
                params = {"mode": "form", "message": f"Which colour, {task['asks'][0]}?", "requestedSchema": FORM}
                more = {
                    "inputRequests": {key: {"method": "elicitation/create", "params": params} for key in task["asks"]}
                }
            case "failed", _:
                more = {"error": {"code": -32603, "message": "secret detail"}}
            case "completed", "fail":
                more = {"result": {**text("the paper is out"), "isError": True}}
            case "completed", "ask":
                colours = [each.get("content", {}).get("colour", each["action"]) for each in task["answers"].values()]
                more = {"result": text(" ".join(colours))}
            case "completed", _:
                more = {"result": text(f"worked {task['polls']}")}
            case _:
                pass
        return {**self.seen(task), **more}

    def went_on(self, task: dict[str, Any]) -> dict[str, Any]:
        if task["tool"] == "sample":
            return {**task, "status": "input_required"}
        if task["tool"] == "ask" and len(task["answers"]) < task["polls"]:
            asks = task["asks"] or [f"colour{len(task['answers']) + 1}"]
            return {**task, "status": "input_required", "asks": asks}
        ends = (self.folder / "end").exists() if task["tool"] == "forever" else task["done"] >= task["polls"]
        if task["tool"] == "ask" or ends:
            return {**task, "status": "failed" if task["tool"] == "break" else "completed"}
        return {**task, "status": "working", "done": task["done"] + 1}


def offered(params: Mapping[str, Any]) -> dict[str, Any]:
    """The extensions that the client offers with a request."""
    meta = params.get("_meta", {}).get("io.modelcontextprotocol/clientCapabilities", {})
    found: dict[str, Any] = (meta or params.get("capabilities", {})).get("extensions", {})
    return found


def text(said: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}]}


def complete() -> dict[str, Any]:
    return {"resultType": "complete"}


def app(folder: Path) -> Any:
    """The server as an ASGI application."""
    server = TaskServer(folder)

    async def respond(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        name = dict(scope["headers"]).get(b"mcp-name", b"").decode()
        said = server.answer(json.loads(body), name)
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 202 if said is None else 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if said is None else json.dumps(said).encode()})

    return respond


def command(folder: Path, *more: str) -> list[str]:
    """The argv of the server as a program."""
    return [sys.executable, "-S", "-E", __file__, str(folder), *more]


def main() -> None:
    server = TaskServer(Path(sys.argv[1]), *sys.argv[2:])
    for line in sys.stdin:
        said = server.answer(json.loads(line))
        if said is not None:
            sys.stdout.write(json.dumps(said) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
