"""The drawing in the README: the graph of an agent with a tool and a worker, as `agent.graph()` draws it."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory

from support.house import ROOT
from worldagent import Storage, Worker, WorldAgent
from worldagent.testing import ScriptedLM

README = ROOT / "README.md"
_BLOCK = re.compile(r"(?<=```mermaid\n)---\n.*?(?=```)", re.DOTALL)


async def drawing() -> str:
    """Draw it."""
    critic = Worker("critic", "Find what is wrong with a text.", description="Finds what is wrong with a text.")
    with TemporaryDirectory() as home:
        async with WorldAgent("shop", lm=ScriptedLM([]), workers=[critic], storage=Storage(home=Path(home))) as agent:
            return agent.graph().get_graph(xray=True).draw_mermaid()


def shown() -> str:
    """The drawing that the README shows."""
    [found] = _BLOCK.findall(README.read_text(encoding="utf-8"))
    return str(found)


def write(drawn: str) -> None:
    """Put a drawing into the README."""
    text = README.read_text(encoding="utf-8")
    README.write_text(_BLOCK.sub(lambda _: drawn, text), encoding="utf-8")
