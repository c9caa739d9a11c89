"""What worldagent does, on the embedded model: `make demo`.

The first act has turns and a task whose approach is shaped by roles, from an embedded store and from a role host. In
the second a tool call waits for an approval, and the process that runs it is killed before the effect. At the end all
files are searched for the texts of the roles.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from time import perf_counter

# Otherwise dspy asks the network for a price list at its first call.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

from worldagent import Approve, Role, Roles, Settings, Storage, Tier, WorldAgent, tool
from worldagent.agent import Thread, Turn, TurnStream
from worldagent.core.errors import WorldAgentError
from worldagent.core.events import PauseOpened, TextDelta, TextReplaced
from worldagent.harness import Function, Worker
from worldagent.mcp_client import StdioHost
from worldagent.testing import scan_for_roles

HOUSE = Role("house style", "Answer in plain words and short sentences, and name the country you speak of.")
ANA = Role("about Ana", "Ana is a teacher of geography, so she needs no long explanations of places.")
BRIEF = Role("brief", "Answer in a single short sentence that begins with the name of the city.")
STRICT = Role("strict", "Be a strict examiner who first says whether an answer is right or wrong.")
SPAIN = "What is the capital of Spain?"
CRITIC = Worker(  # a task dispatches it; a model that is this small would call it for any question
    "critic", "You judge an answer in one sentence.", description="judges answers", offered=False
)
TRIP = "Please book a train ticket to Madrid."

TINY = """\
The embedded model answers. It is tiny: it shows that everything is connected, and hardly follows a role.
To use a larger model:  WORLDAGENT_LM=openai/gpt-4o make demo  (with OPENAI_API_KEY set)
"""


def say(text: str = "", end: str = "\n") -> None:
    print(text, end=end, flush=True)  # at once, also through a pipe


def show(turn: Turn, seconds: float) -> None:
    say(f"  active tiers  {', '.join(turn.role_tiers) or 'none'}")
    say(f"  took          {seconds:.1f} s, {turn.usage.calls} model calls\n")


async def streamed(stream: TurnStream) -> Turn:
    """Show a turn's text while the model writes it, and what it waits for."""
    async with stream:
        begun = "  answered      "
        async for event in stream:
            match event:
                case TextDelta(text=text):
                    say(begun + text, end="")
                    begun = ""
                case TextReplaced(text=text):
                    say(f"\n  instead       {text}", end="")
                case PauseOpened():
                    say(f"  waits         for an approval of {event.function} {event.arguments}", end="")
                case _:
                    pass
        say()
    return stream.turn


async def ask(title: str, thread: Thread, text: str, role: Role | None = None) -> Turn:
    say(f"{title}\n  asked         {text}")
    began = perf_counter()
    turn = await streamed(thread.stream(text, role=role))
    show(turn, perf_counter() - began)
    return turn


async def store_roles(agent: WorldAgent) -> None:
    await agent.roles.put(Tier.WORKSPACE, HOUSE)
    await agent.roles.put(Tier.ACCOUNT, ANA, scope_id="ana")


async def run(home: Path, lm: str) -> list[Turn]:
    async with WorldAgent("atlas", lm=lm, workers=[CRITIC], storage=Storage(home=home)) as agent:
        await store_roles(agent)
        say("Stored: the workspace role 'house style' and the account role 'about Ana'.\n")

        thread = agent.thread("lesson", account="ana")
        first = await ask("1. A question", thread, "What is the capital of France?")
        second = await ask("2. The same thread, with a call role", thread, SPAIN, BRIEF)

        request = f"Is this answer right? {second.text}"
        say(f"3. A task for the sub-agent 'critic', with a call role\n  asked         {request}")
        began = perf_counter()
        third = await thread.task("subagent", {"worker": "critic", "request": request}, role=STRICT)
        say(f"  answered      {getattr(third.result, 'text', third.text)}")
        show(third, perf_counter() - began)
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
        say(f"Started the role host `worldagent role-host --stdio` and stored both roles there: {seconds:.1f} s.\n")
        thread = agent.thread("lesson with a host", account="ana")
        return await ask("4. The second turn once more, its stored roles at the role host", thread, SPAIN, BRIEF)


# --- the second act: a call with an effect ----------------------------------------------------------------------------


def booking(home: Path, wait: float = 0) -> Function:
    """A tool whose effect is a file for each ticket.

    Args:
        home: The folder of the agent; tickets are in `tickets` there.
        wait: The seconds between its beginning and its effect.
    """

    # Idempotent, because a ticket that is booked twice is one file: after a kill the call runs again. Of another tool a
    # person is asked whether the effect happened.
    @tool(risk="write", idempotent=True)
    async def book_train(city: str) -> str:
        """Book a train ticket to a city."""
        say(f"  [book_train {city!r} begins in process {os.getpid()}]")
        await asyncio.sleep(wait)
        (home / "tickets").mkdir(exist_ok=True)
        (home / "tickets" / f"{city.replace('/', ' ')}.txt").write_text("booked\n", encoding="utf-8")
        return f"A ticket to {city} is booked."

    return book_train


def traveller(home: Path, lm: str, wait: float = 0) -> WorldAgent:
    return WorldAgent("travel", lm=lm, tools=[booking(home, wait)], storage=Storage(home=home))


async def approve(home: Path, lm: str, pause: str) -> None:
    """Approve a call in a process of its own, which `run_killed` kills before the effect."""
    async with traveller(home, lm, wait=60) as agent:
        await agent.thread("trip", account="ben").resume({pause: Approve()})


async def run_killed(home: Path, lm: str) -> Turn:
    """A tool call that waits for an approval, a process that is killed after the approval, and another that resumes."""
    async with traveller(home, lm) as agent:
        asked = await ask("5. A tool call that needs an approval", agent.thread("trip", account="ben"), TRIP)
    if not asked.pauses:
        say("The model called no tool, so the rest of this part is left out.\n")
        return asked
    say("6. Approved in another process, which is killed between the approval and the effect")
    command = [sys.executable, "-P", __file__, "--home", str(home), "--lm", lm, "--approve", asked.pauses[0].id]
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert child.stdout is not None
    try:
        async for line in child.stdout:
            say(line.decode().rstrip())
            if b"book_train" in line:
                break
    finally:
        with suppress(ProcessLookupError):
            child.kill()
        await child.wait()
    say(f"  [killed; tickets booked: {tickets(home)}]\n")
    say("7. A process that resumes the turn: the approval was kept, and the effect happens")
    began = perf_counter()
    async with traveller(home, lm) as agent:
        turn = await streamed(agent.thread("trip", account="ben").stream_resume())
    say(f"  [tickets booked: {tickets(home)}]")
    show(turn, perf_counter() - began)
    return turn


def tickets(home: Path) -> int:
    return len(list((home / "tickets").glob("*.txt")))


# --- the search for roles ---------------------------------------------------------------------------------------------


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
    print(f"Looked through {looked:,} bytes: everything under the agent's home, and all turns.")
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
    parser.add_argument("--approve", metavar="PAUSE", help=argparse.SUPPRESS)  # what `run_killed` starts
    given = parser.parse_args(argv)
    with ExitStack() as kept:
        home = given.home or Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="worldagent-demo-")))
        try:
            lm = given.lm or Settings().lm or "local"
            if given.approve is not None:
                asyncio.run(approve(home, lm, given.approve))
                return 0
            say(TINY if lm.partition(":")[0] == "local" else "")
            turns = [*asyncio.run(run(home, lm)), asyncio.run(run_hosted(home, lm)), asyncio.run(run_killed(home, lm))]
        except WorldAgentError as error:
            print(f"error: {error.problem}\nremedy: {error.remedy}", file=sys.stderr)
            return 1
        return 0 if search(home, turns) else 1


if __name__ == "__main__":
    sys.exit(main())
