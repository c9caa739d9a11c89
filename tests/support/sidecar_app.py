"""What tests of the sidecar serve: `--app support.sidecar_app:make`, agents whose model does what a message tells it.

The words `name=value` of a message steer the model that answers it:

* `words=20` is the length of the answer, `delay=0.2` the seconds before it, `pace=0.05` those between its words;
* `hold=NAME` keeps the model waiting until there is a file of that name in the home, where `NAME.held` tells that it
  waits; `fail=1` lets it fail and quote all that it was sent, `repeat=1` repeat its role, `slow=1` take longer than it
  may, which is a second in the workspace `hasty`;
* `do=KEY` dispatches the shape of that key first, which asks a person where it is `buy`, `choose` or `both`.

What was bought is in the file `bought` of the home. The digests of the roles that the model got are in the file that
`WORLDAGENT_TESTS_SEEN` names, one a line: what is looked for in everything else may not stand there. The agents have
memory if there is a variable `WORLDAGENT_TESTS_MEMORY`, a society of the owner charles if there is one
`WORLDAGENT_TESTS_SOCIETY`, and the skills that ship as examples if there is one `WORLDAGENT_TESTS_SKILLS`. With
`WORLDAGENT_TESTS_SERVICE` their model is the service at that address, they can `look`, and a workspace that is called
as a mode of `echo` has that mode.
"""

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncGenerator
from typing import Any, get_args

from support.processes import eventually
from support.shop import HOME, Address, Order, Receipt, both, buy, home, pay, shapes
from worldagent import Memory, Roles, Settings, Storage, WorldAgent
from worldagent.graphs import TaskContext
from worldagent.harness import Worker, tool
from worldagent.members import WorkspaceConfig
from worldagent.role_resolution import Echo
from worldagent.skills import EXAMPLES
from worldagent.testing import ScriptedCall, ScriptedLM

SEEN = "WORLDAGENT_TESTS_SEEN"
MEMORY = "WORLDAGENT_TESTS_MEMORY"
SOCIETY = "WORLDAGENT_TESTS_SOCIETY"
SKILLS = "WORLDAGENT_TESTS_SKILLS"
SERVICE = "WORLDAGENT_TESTS_SERVICE"
OWNER = "charles"
WORKSPACE, HASTY = "shop", "hasty"
_HELD = 600  # seconds: more than any test has, so that what is held is held for as long as one looks


async def choose(params: Order, ctx: TaskContext) -> Receipt:
    """A question with options, then one with a form."""
    colour = await ctx.calls.ask_person(f"Which {params.what}?", ["red", "blue"])
    address = await ctx.calls.ask_person("Where to?", form=Address)
    return Receipt(text=f"{colour}, to {address.street} {address.number}")


@tool(risk="read_only", capture=True)
def look(where: str) -> str:
    """Look somewhere."""
    return f"nothing at {where}"


def make(workspace: str, roles: Roles | None = None) -> WorldAgent:
    """The agent of a workspace; those of all workspaces share a home."""
    lm = ScriptedLM(_reply, on_call=lambda call: lm.calls.clear())  # a soak would fill the memory with them
    served: dict[str, Any] = {"api_base": os.environ[SERVICE]} if SERVICE in os.environ else {}
    if served and workspace in get_args(Echo):
        served["echo"] = workspace
    timeout = 1 if workspace == HASTY else _HELD
    return WorldAgent(
        workspace,
        lm="openai/gpt-stub" if served else lm,
        workers=[Worker("critic", "You judge in one sentence.", tools=("look",) if served else ())],
        tools=[tool(approval=True, risk="write")(pay), *([look] if served else [])],
        shapes=shapes(buy, choose, both),
        skills=[EXAMPLES] if SKILLS in os.environ else (),
        roles=roles,
        memory=Memory() if MEMORY in os.environ else None,
        society=WorkspaceConfig(id=workspace, owner=OWNER) if SOCIETY in os.environ else None,
        storage=Storage(home=home()),
        settings=Settings(model_attempts=1, model_backoff=0, model_timeout=timeout, **served),
    )


def shop() -> WorldAgent:
    """The agent of the first workspace, for commands that serve one."""
    return make(WORKSPACE)


def digest(content: str) -> str:
    """What stands in the file of digests for a role."""
    return hashlib.sha256(content.encode()).hexdigest()


def wishes(text: str) -> dict[str, str]:
    """The words `name=value` of a text; the last of a name counts."""
    return dict(re.findall(r"\b([a-z]+)=([\w.]+)", text))


async def _reply(call: ScriptedCall) -> Any:
    _note(call.role)
    fields = call.fields
    wish = wishes(fields.get("message", ""))
    if "request" in fields:
        return {"result": "Fine."}
    if "known" in fields:
        return {"notes": [{"text": "Ana eats nuts.", "replaces": ""}]}
    if "do" in wish and not call.steps:
        return {"reply": "", "calls": [{"tool": wish["do"], "arguments": {"what": wish.get("what", "hat")}}]}
    await asyncio.sleep(float(wish.get("delay", "0")))
    if "hold" in wish:
        (home() / f"{wish['hold']}.held").touch()
        await eventually((home() / wish["hold"]).exists, _HELD)
    if "slow" in wish:
        await asyncio.Event().wait()
    if "fail" in wish:
        raise RuntimeError(f"no reply to {call.text}", call.text)
    if "repeat" in wish:
        return {"reply": f"I am told: {call.role}", "calls": []}
    return _told(int(wish.get("words", "1")), float(wish.get("pace", "0")))


def _note(role: str | None) -> None:
    file = os.environ.get(SEEN)
    if file and role is not None:
        with open(file, "a", encoding="ascii") as out:
            out.write(f"{digest(role)}\n")


async def _told(words: int, pace: float) -> AsyncGenerator[str]:
    yield "[[ ## reply ## ]]\n"
    for number in range(words):
        await asyncio.sleep(pace)
        yield f"word{number} "
    yield "\n\n[[ ## calls ## ]]\n[]\n\n[[ ## completed ## ]]"


__all__ = [
    "HASTY",
    "HOME",
    "MEMORY",
    "OWNER",
    "SEEN",
    "SERVICE",
    "SKILLS",
    "SOCIETY",
    "WORKSPACE",
    "digest",
    "home",
    "look",
    "make",
    "shop",
    "wishes",
]
