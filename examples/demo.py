"""Two turns and a task whose approach is shaped by roles, and a search for what is left of the roles: `make demo`."""

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

from worldagent import Role, Settings, Storage, Tier, WorldAgent
from worldagent.agent import Thread, Turn
from worldagent.core.errors import WorldAgentError
from worldagent.harness import Worker
from worldagent.testing import scan_for_roles

HOUSE = Role("house style", "Answer in plain words and short sentences, and name the country you speak of.")
ANA = Role("about Ana", "Ana is a teacher of geography, so she needs no long explanations of places.")
BRIEF = Role("brief", "Answer in a single short sentence that begins with the name of the city.")
STRICT = Role("strict", "Be a strict examiner who first says whether an answer is right or wrong.")
CRITIC = Worker("critic", "You judge an answer in one sentence.", description="judges answers")

TINY = """\
The embedded model answers. It is tiny and shows wiring, not wit: it hardly obeys a role.
For a real one, this one line:  WORLDAGENT_LM=openai/gpt-4o make demo  (with OPENAI_API_KEY set)
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


async def run(home: Path, lm: str) -> list[Turn]:
    async with WorldAgent("atlas", lm=lm, workers=[CRITIC], storage=Storage(home=home)) as agent:
        await agent.roles.put(Tier.WORKSPACE, HOUSE)
        await agent.roles.put(Tier.ACCOUNT, ANA, scope_id="ana")
        print("Stored: the workspace role 'house style' and the account role 'about Ana'.\n")

        thread = agent.thread("lesson", account="ana")
        first = await ask("1. A question", thread, "What is the capital of France?")
        second = await ask("2. The same thread, with a call role", thread, "What is the capital of Spain?", BRIEF)

        began = perf_counter()
        request = f"Is this answer right? {second.text}"
        third = await thread.task("subagent", {"worker": "critic", "request": request}, role=STRICT)
        show("3. A task for the sub-agent 'critic', with a call role", request, third, perf_counter() - began)
        return [first, second, third]


def search(home: Path, turns: list[Turn]) -> bool:
    """Look for every role where none may be, and for the call roles in the role store too; True if there is none."""
    store = sorted(home.glob("roles.db*"))  # with -wal and -shm, where they are
    rest = [path for path in sorted(home.iterdir()) if path not in store]
    everything = scan_for_roles([*rest, *turns], [role.content for role in (HOUSE, ANA, BRIEF, STRICT)])
    stored = scan_for_roles(store, [role.content for role in (BRIEF, STRICT)])

    looked = everything.bytes_scanned + stored.bytes_scanned
    names = ", ".join(path.name for path in store)
    print(f"Looked through {looked:,} bytes: everything under the agent's home, and the three turns.")
    print(f"Apart from that stands the role store ({names}), where the two stored roles belong;")
    print("it was searched for the two call roles.")
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
            turns = asyncio.run(run(home, lm))
        except WorldAgentError as error:
            print(f"error: {error.problem}\nremedy: {error.remedy}", file=sys.stderr)
            return 1
        return 0 if search(home, turns) else 1


if __name__ == "__main__":
    sys.exit(main())
