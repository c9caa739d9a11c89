"""An agent on fasta2a, run by the Python of its own environment: fasta2a_agent.py FOLDER PORT.

It prints its address, and writes each message of the wire, and each task that it begins, to FOLDER.
"""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fasta2a import FastA2A, Skill, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.storage import InMemoryStorage

folder, port = Path(sys.argv[1]), int(sys.argv[2])
url = f"http://127.0.0.1:{port}"


def note(file: str, value: object) -> None:
    with (folder / file).open("a") as out:
        out.write(json.dumps(value) + "\n")


class Executor(Worker[Any]):
    async def run_task(self, params: Any) -> None:
        task = await self.storage.load_task(params["id"])
        text = "\n".join(part["text"] for part in params["message"]["parts"])
        note("effects", f"{text.split(' ')[0]} {params['message']['message_id']}")
        await self.storage.update_task(task["id"], state="working")
        while text.startswith("slow") and not (folder / "go").exists():  # noqa: ASYNC110 -- a file sets no event
            await asyncio.sleep(0.05)
        if text.startswith("ask"):
            said = {"role": "agent", "parts": [{"text": "Which colour?"}], "message_id": f"{task['id']}-q"}
            await self.storage.update_task(task["id"], state="input-required", new_messages=[said])
            return
        artifact = {"artifact_id": "answer", "parts": [{"text": f"fast: {text}"}]}
        await self.storage.update_task(task["id"], state="completed", new_artifacts=[artifact])

    async def cancel_task(self, params: Any) -> None:
        note("cancelled", params["id"])
        await self.storage.update_task(params["id"], state="canceled")

    def build_message_history(self, history: Any) -> list[Any]:
        return list(history)

    def build_artifacts(self, result: Any) -> list[Any]:
        return []


storage, broker = InMemoryStorage(), InMemoryBroker()
worker = Executor(broker=broker, storage=storage)


@asynccontextmanager
async def lifespan(app: FastA2A) -> AsyncGenerator[None]:
    async with app.task_manager, worker.run():
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        yield


modes = ["text/plain"]
skill = Skill(id="count", name="Count", description="Counts.", tags=["numbers"], input_modes=modes, output_modes=modes)
agent = FastA2A(
    storage=storage,
    broker=broker,
    name="Counter",
    url=url,
    description="Counts things.",
    skills=[skill],
    lifespan=lifespan,
)


async def app(scope: Any, receive: Any, send: Any) -> None:
    """The agent, with its wire written down, for callers with the token."""
    if scope["type"] != "http":
        await agent(scope, receive, send)
        return
    if dict(scope["headers"]).get(b"authorization") != b"Bearer secret-token":
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body"})
        return
    asked, answered = bytearray(), bytearray()

    async def received() -> Any:
        message = await receive()
        asked.extend(message.get("body", b""))
        return message

    async def sent(message: Any) -> None:
        answered.extend(message.get("body", b""))
        await send(message)

    await agent(scope, received, sent)
    if scope["method"] == "POST":
        note("wire", {"request": json.loads(asked), "response": json.loads(answered)})
    else:
        note("wire", {"card": json.loads(answered)})


uvicorn.run(app, host="127.0.0.1", port=port, log_config=None)
