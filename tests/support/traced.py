"""Turns of every kind that callbacks of an embedder see, and a server that keeps what tracing services receive."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dspy
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel

from support.agents import CRITIC, scripted_agent
from support.serving import serving
from worldagent import Role, Trace
from worldagent.graphs.shapes import graph_shape, module_shape
from worldagent.harness import tool
from worldagent.testing import ScriptedCall, ScriptedLM

SECRET = "Answer as the lighthouse keeper who has not spoken to a soul since the great storm of 1911."
KEEPER = Role("zanzibar", SECRET)


class Review(dspy.Signature):
    """Review it."""

    draft: str = dspy.InputField()
    verdict: str = dspy.OutputField()


class Draft(BaseModel):
    draft: str = "Felt hats."


class Verdict(BaseModel):
    verdict: str


class Material(BaseModel):
    question: str = "Of what are hats?"
    answer: str = ""


@tool(risk="read_only")
async def look(what: str) -> str:
    """Look."""
    return f"a {what}"


def skill(call: ScriptedCall) -> dict[str, Any]:
    """A model that repeats its role in its answers; a worker has none."""
    if "draft" in call.fields:
        return {"reasoning": "So.", "verdict": f"Dull. {SECRET}"}
    if "request" in call.fields:
        return {"result": "Plain."}
    if call.steps:
        return {"reply": f"A hat. {SECRET}"}
    asked = [("look", {"what": "hat"}), ("critic", {"request": "A hat?"})]
    return {"calls": [{"tool": name, "arguments": arguments} for name, arguments in asked]}


def material() -> Any:
    """A graph of the embedder with a chat model of LangChain."""
    model = GenericFakeChatModel(messages=iter([AIMessage("Of felt.")]))

    async def ask(state: Material) -> dict[str, Any]:
        return {"answer": (await model.ainvoke(state.question)).content}

    graph = StateGraph(Material).add_node("ask", ask).add_edge(START, "ask").add_edge("ask", END)
    return graph.compile()


async def run_turns(home: Path, callbacks: list[Any]) -> None:
    """A conversation that calls a tool and a worker, a stream, a module and a graph, all under a role."""
    lm = ScriptedLM(skill)
    review = module_shape("review", dspy.ChainOfThought(Review), params=Draft, result=Verdict, entry=Review)
    shapes = [review, graph_shape("material", material(), params=Material, result=Material)]
    more: dict[str, Any] = {"tools": [look], "workers": [CRITIC], "shapes": shapes}
    async with scripted_agent(home, lm, trace=Trace(callbacks=callbacks), **more) as agent:
        thread = agent.thread("t")
        assert (await thread.converse("A hat?", role=KEEPER)).text.startswith("A hat.")
        async with thread.stream("A cap?", role=KEEPER) as stream:
            await stream.wait()
        assert (await thread.task("review", Draft(), role=KEEPER)).result.verdict.startswith("Dull.")
        assert (await thread.task("material", Material(), role=KEEPER)).result.answer == "Of felt."
    assert {call.role for call in lm.calls if "request" not in call.fields} == {SECRET}


@dataclass
class Service:
    """A server that accepts everything.

    Attributes:
        artifacts: The folder that MLflow is told to write the spans of a trace to.
        url: Its address.
        received: The heads and bodies of all requests.
    """

    artifacts: Path
    url: str = ""
    received: list[tuple[str, bytes]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
            body = await reader.readexactly(int(length[1]) if length else 0)
            self.received.append((head, body))
            sent = json.dumps(self._answer(head, body)).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(sent), sent))
            await writer.drain()

    def _answer(self, head: str, body: bytes) -> Any:
        if not head.startswith("POST /api/3.0/mlflow/traces "):
            return {}
        given = json.loads(body)
        given["trace"]["trace_info"]["tags"]["mlflow.artifactLocation"] = self.artifacts.as_uri()
        return given


@asynccontextmanager
async def tracing_service(artifacts: Path) -> AsyncGenerator[Service]:
    """Run such a server in the running loop."""
    service = Service(artifacts)
    async with serving(service.serve, asyncio.IncompleteReadError, ConnectionError) as port:
        service.url = f"http://127.0.0.1:{port}"
        yield service
