"""LangSmith and MLflow receive the turns of an agent over HTTP, without roles (H5, R7)."""

import asyncio
import json
import re
from collections import Counter
from pathlib import Path

import pytest
from langchain_core.tracers.langchain import LangChainTracer
from langsmith import Client

from support.processes import run_script
from support.traced import KEEPER, SECRET, run_turns, tracing_service
from worldagent.testing import assert_no_role_leak

pytestmark = [pytest.mark.requirement("H5"), pytest.mark.requirement("R7")]


async def test_langsmith_receives_the_runs_of_graphs_and_chat_models_and_no_role(tmp_path: Path) -> None:
    async with tracing_service(tmp_path) as service:
        client = Client(api_url=service.url, api_key="key", info={})
        tracer = LangChainTracer(project_name="hats", client=client)
        await run_turns(tmp_path / "home", [tracer])
        await asyncio.to_thread(tracer.wait_for_futures)
        await asyncio.to_thread(client.close)
    text = b"".join(body for _, body in service.received).decode()
    named = set(re.findall(r'"name":"([^"]*)"', text))
    assert named >= {"turn", "critic", "think", "act", "ask", "GenericFakeChatModel"}
    assert "Of felt." in text
    assert_no_role_leak([service.received, tmp_path], [SECRET, KEEPER.name])


MLFLOW = """
import asyncio, logging, os, sys
from pathlib import Path
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
import mlflow
from mlflow.dspy.callback import MlflowCallback
from mlflow.entities.trace_location import MlflowExperimentLocation
from mlflow.langchain.langchain_tracer import MlflowLangchainTracer
from support.traced import run_turns

mlflow.set_tracking_uri(sys.argv[1])
mlflow.tracing.set_destination(MlflowExperimentLocation("1"))
mlflow.dspy.autolog()

async def main():
    with mlflow.start_span("hats"):
        await run_turns(Path(sys.argv[2]), [MlflowCallback(), MlflowLangchainTracer()])

logging.disable(logging.INFO)  # it says that it flushes
asyncio.run(main())
mlflow.flush_trace_async_logging()
"""


async def test_mlflow_receives_the_calls_of_signatures_and_modules_and_no_role(tmp_path: Path) -> None:
    async with tracing_service(tmp_path / "spans") as service:
        await run_script(MLFLOW, service.url, tmp_path / "home")
    [file] = (tmp_path / "spans").rglob("*.json")
    turns, *spans = json.loads(file.read_text())["spans"]
    assert turns["name"] == "hats"
    assert all(span["parent_span_id"] for span in spans)
    found = Counter(span["name"] for span in spans)
    # Two turns call the conversation, the worker and the conversation again; two tasks run a module and a graph.
    wanted = {"Predict.forward": 7, "ChainOfThought.forward": 1, "turn": 4, "critic": 2, "GenericFakeChatModel": 1}
    assert {name: found[name] for name in wanted} == wanted
    shown = json.dumps(spans)
    assert all(text in shown for text in ("A hat. [role withheld]", "Felt hats.", "Of felt."))
    assert_no_role_leak([service.received, tmp_path], [SECRET, KEEPER.name])
