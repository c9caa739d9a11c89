"""What hosts make of installed capabilities: `python -m support.capability_hosts HOME` prints it as JSON.

`site` writes packages as pip installs them. This runs in a process of its own, since the tables of hosts are made once.
"""

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import httpx2
from mcp import Client
from starlette.applications import Starlette

from support.agents import answering, scripted_agent
from worldagent import WorldAgent
from worldagent.hosts.service.call import Grant
from worldagent.hosts.service.operations import OPERATIONS, of_others
from worldagent.hosts.sidecar import Sidecar
from worldagent.hosts.web import WebApp

HEAD = """
from pathlib import Path
from typing import Any
from pydantic import Field
from worldagent.agent import WorldAgent
from worldagent.core.capability import Capability
from worldagent.core.errors import InvalidArgument
from worldagent.hosts.service.arguments import WorkspaceArguments
from worldagent.hosts.service.call import Call
from worldagent.hosts.service.operation import operation
from worldagent.hosts.service.records import Answer
"""


def site(folder: Path, packages: Mapping[str, str]) -> Path:
    """Install packages, each with a capability `It` of its name: the code of its module, or the body of the class."""
    for name, code in packages.items():
        info = folder / f"x_{name}-1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: x-{name}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[worldagent.capabilities]\n{name} = x_{name}:It\n")
        body = "" if "It" in code else f"class It(Capability):\n    'Does {name}.'\n    name = {name!r}\n"
        (folder / f"x_{name}.py").write_text(HEAD + (body + indent(dedent(code), "    ") if body else dedent(code)))
    return folder


async def main(home: str) -> dict[str, Any]:
    """Ask a web app and a sidecar for operations of the packages."""
    seen: list[str] = []
    others = [*of_others()]

    def agent(workspace: str = "novel", **more: Any) -> WorldAgent:
        return scripted_agent(Path(home), answering(), capabilities=others, **more)

    watched = agent(on_error=lambda each: seen.append(type(each).__name__))
    grant = Grant(("novel",), ("ana",), threads=("ana-*",))
    operator = Grant(("novel",), operator=True)
    app, sidecar = WebApp(watched, login=lambda request: grant), Sidecar(agent, grant=operator)
    transport = httpx2.ASGITransport(app=app)
    answers: dict[str, Any] = {}
    async with app.lifespan(Starlette()), httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        for each in _asked():
            [(name, given)] = each.items()
            answers[f"{name} {json.dumps(given)}"] = (await client.post(f"/operations/{name}", json=given)).json()
    async with sidecar, Client(sidecar.server) as tools:
        for name in ("fine_wrong", "fine_raises", "fine_owner"):
            called = await tools.call_tool(name, {"workspace": "novel"})
            answers[f"tool {name}"] = called.structured_content
    return {"names": sorted(OPERATIONS), "answers": answers, "seen": seen}


def _asked() -> Iterator[dict[str, Any]]:
    yield from ({"fine_last": {"thread": each}} for each in ("ana-1", "ben-1", None))
    yield from ({name: {}} for name in ("fine_wrong", "fine_raises", "fine_owner"))


if __name__ == "__main__":
    json.dump(asyncio.run(main(sys.argv[1])), sys.stdout)
