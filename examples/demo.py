"""Turns and a task whose approach is shaped by roles, from an embedded store and from a role host: `make demo`.

At the end it searches all files for the texts of the roles.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter

# Otherwise dspy asks the network for a price list at its first call.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

from worldagent import Role, Roles, Settings, Storage, Tier, WorldAgent
from worldagent.agent import Thread, Turn
from worldagent.core.errors import WorldAgentError
from worldagent.harness import Worker
from worldagent.mcp_client import StdioHost
from worldagent.testing import scan_for_roles

HOUSE = Role("house style", "Answer in plain words and short sentences, and name the country you speak of.")
ANA = Role("about Ana", "Ana is a teacher of geography, so she needs no long explanations of places.")
BRIEF = Role("brief", "Answer in a single short sentence that begins with the name of the city.")
STRICT = Role("strict", "Be a strict examiner who first says whether an answer is right or wrong.")
SPAIN = "What is the capital of Spain?"
CRITIC = Worker("critic", "You judge an answer in one sentence.", description="judges answers")

TINY = """\
The embedded model answers. It is tiny: it shows that everything is connected, and hardly follows a role.
To use a larger model:  WORLDAGENT_LM=openai/gpt-4o make demo  (with OPENAI_API_KEY set)
"""


def show(title: str, asked: str, turn: Turn, seconds: float) -> None:
    print(f"{title}\n  asked         {asked}")
    print(f"  active tiers  {', '.join(turn.role_tiers) or 'none'}")
    print(f"  answered      {getattr(turn.result, 'text', turn.text)}")
    print(f"  took          {seconds:.1f} s, {turn.usage.calls} model calls\n")


async def ask(title: str, thread: Thread, text: str, role: Role | None = None) -> Turn:
    began = perf_counter()
    turn = await thread.converse(text, role=role)
    show(title, text, turn, perf_counter() - began)
    return turn


async def store_roles(agent: WorldAgent) -> None:
    await agent.roles.put(Tier.WORKSPACE, HOUSE)
    await agent.roles.put(Tier.ACCOUNT, ANA, scope_id="ana")


async def run(home: Path, lm: str) -> list[Turn]:
    async with WorldAgent("atlas", lm=lm, workers=[CRITIC], storage=Storage(home=home)) as agent:
        await store_roles(agent)
        print("Stored: the workspace role 'house style' and the account role 'about Ana'.\n")

        thread = agent.thread("lesson", account="ana")
        first = await ask("1. A question", thread, "What is the capital of France?")
        second = await ask("2. The same thread, with a call role", thread, SPAIN, BRIEF)

        began = perf_counter()
        request = f"Is this answer right? {second.text}"
        third = await thread.task("subagent", {"worker": "critic", "request": request}, role=STRICT)
        show("3. A task for the sub-agent 'critic', with a call role", request, third, perf_counter() - began)
        return [first, second, third]


async def run_hosted(home: Path, lm: str) -> Turn:
    """The second turn once more, with the stored roles at a role host, which can be a program in any language."""
    command = [sys.executable, "-P", "-m", "worldagent.hosts.cli", "role-host", "--stdio"]
    env = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}  # a child gets few others
    roles = Roles(host=StdioHost([*command, "--store", str(host_store(home))], env, stderr="inherit"))
    async with WorldAgent("atlas", lm=lm, storage=Storage(home=home), roles=roles) as agent:
        began = perf_counter()
        await store_roles(agent)
        seconds = perf_counter() - began
        print(f"Started the role host `worldagent role-host --stdio` and stored both roles there: {seconds:.1f} s.\n")
        thread = agent.thread("lesson with a host", account="ana")
        return await ask("4. The second turn once more, its stored roles at the role host", thread, SPAIN, BRIEF)


def host_store(home: Path) -> Path:
    return home / "role-host" / "roles.db"


def search(home: Path, turns: list[Turn]) -> bool:
    """Look for every role where none may be, and for the call roles in the role store too; True if there is none."""
    # With -wal and -shm, where they are.
    store = [path for folder in (home, host_store(home).parent) for path in sorted(folder.glob("roles.db*"))]
    rest = [path for path in sorted(home.rglob("*")) if path.is_file() and path not in store]
    everything = scan_for_roles([*rest, *turns], [role.content for role in (HOUSE, ANA, BRIEF, STRICT)])
    stored = scan_for_roles(store, [role.content for role in (BRIEF, STRICT)])

    looked = everything.bytes_scanned + stored.bytes_scanned
    names = ", ".join(str(path.relative_to(home)) for path in store)
    print(f"Looked through {looked:,} bytes: everything under the agent's home, and the four turns.")
    print(f"The role stores ({names}) contain the two stored roles, as they should;")
    print("they were searched for the two call roles.")
    for finding in (*everything.findings, *stored.findings):
        print(f"  FOUND: {finding}")
    if everything.findings or stored.findings:
        return False
    print("No text of any role was found, neither plain nor as JSON, UTF-16, base64 or hex.")
    return True


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, help="an empty folder to keep the files in (default: a temporary one)")
    parser.add_argument("--lm", help="the model (default: WORLDAGENT_LM, else the embedded one)")
    given = parser.parse_args(argv)
    with ExitStack() as kept:
        home = given.home or Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="worldagent-demo-")))
        try:
            lm = given.lm or Settings().lm or "local"
            if lm.partition(":")[0] == "local":
                print(TINY)
            turns = [*asyncio.run(run(home, lm)), asyncio.run(run_hosted(home, lm))]
        except WorldAgentError as error:
            print(f"error: {error.problem}\nremedy: {error.remedy}", file=sys.stderr)
            return 1
        return 0 if search(home, turns) else 1


if __name__ == "__main__":
    sys.exit(main())
