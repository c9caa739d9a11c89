"""Who may see a value: a guarded model passes results on only to those who may see all that they were made of (H11)."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.agents import call, scripted_agent, shape
from worldagent import Memory, Policy, Rule, Worker, WorldAgent, tool
from worldagent.agent import Turn
from worldagent.core.errors import FunctionInvalid, InvalidArgument, PolicyInvalid
from worldagent.graphs import TaskContext
from worldagent.harness import WorkerContext
from worldagent.harness.gate import Predicate
from worldagent.harness.gate.labels import Label
from worldagent.mcp_client import StdioHost
from worldagent.mcp_client.tools import McpServer
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("H11")

SECRET = "The code is 4711."
FILES: list[dict[str, Any]] = [
    {"text": SECRET, "shared": ["ana@corp.com", "*@board.com"]},
    {"text": "Hats are fine.", "shared": None},
    {"text": "Broken.", "shared": 7},
]


@tool(risk="read_only", readers=["*@corp.com"])
async def plan() -> str:
    """Read the plan."""
    return SECRET


@tool(risk="read_only", untrusted=True, readers=lambda item: item["shared"])
async def files() -> list[dict[str, Any]]:
    """List the files."""
    return FILES


@tool(risk="read_only")
async def through(ctx: WorkerContext, name: str) -> str:
    """Read by code."""
    return str(await ctx.call(name, {}))


@pytest.mark.parametrize(
    ("glob", "recipient", "may"),
    [
        ("*@corp.com", "a.n+a@corp.com", True),
        ("*@*.corp.com", "ana@paris.corp.com", True),
        ("*@*.corp.com", "ana@x.io,b@a.corp.com", False),
        ("ana@corp.com", "ANA@corp.com", True),
        ("Ana <ana@corp.com>", "Ana <ana@corp.com>", True),
        ("team-*", "team-red", True),
        ("team-*", "team-red,eve", False),
        ("team-*", "team-red eve", False),
        ("team-*", "team-red@x.io,eve@x.io", False),
        ("https://corp.com/*", "https://corp.com/hook?x=1", True),
        ("*", "eve@x.io", True),
        ("*", "eve@x.io,ana@corp.com", False),
    ],
)
def test_a_glob_of_readers_fits_one_recipient(glob: str, recipient: str, may: bool) -> None:
    assert Label(readers=frozenset({(glob,)})).may_reach([recipient]) is may


def rule(**body: Any) -> Rule:
    """A rule about mail, with a condition on its body."""
    return Rule(decision="approve", function="send", arguments={"to": Predicate(each="*"), "body": Predicate(**body)})


REMEMBER = Rule(decision="approve", function="remember", arguments={"text": Predicate(origin="any", readers="any")})
READERS = rule(origin="any", readers="to")


class Desk:
    """A guarded clerk that reads and sends."""

    def __init__(self, *steps: Mapping[str, Any]) -> None:
        self.steps, self.sent = steps, list[str]()
        self.read = ""

    def agent(self, home: Path, *rules: Rule, files: Any = files, **more: Any) -> WorldAgent:
        async def send(to: list[str], body: str) -> str:
            self.sent.append(body)
            return "sent"

        names = ("plan", "files", "through", "send", "reader", "remember", "recall", "crm_*")
        worker = Worker("clerk", "You are the clerk.", tools=names, guard=True)
        tools = [plan, files, through, tool(risk=("write", "network"))(send)]
        workers = [worker, Worker("reader", "You are the reader.", tools=("plan",))]
        policy = Policy(rules=rules, default="refuse")
        return scripted_agent(home, ScriptedLM(self._reply), tools=tools, workers=workers, policy=policy, **more)

    def _reply(self, called: ScriptedCall) -> Mapping[str, Any]:
        if "You are the reader." in called.system:
            return call("plan") if not called.steps else {"result": SECRET}
        self.read += "\n".join(called.steps)
        place = len(called.steps)
        return self.steps[place] if place < len(self.steps) else {"result": "Done."}


async def worked(agent: WorldAgent) -> Turn:
    params = {"worker": "clerk", "request": "Send it."}
    return await agent.thread("t", account="ana").task("subagent", params, unattended="refuse")


PLAN, FILE = {"$": "r0"}, {"$": "r0[0].text"}
CASES: dict[str, tuple[Mapping[str, Any], Sequence[str], Any, Rule, bool]] = {
    "one who may": (call("plan"), ["ana@corp.com"], PLAN, READERS, True),
    "one who may, in other case": (call("plan"), ["Ana@Corp.com"], PLAN, READERS, True),
    "one who may not": (call("plan"), ["eve@x.io"], PLAN, READERS, False),
    **{
        f"a reader beside a stranger in one text: {text}": (call("plan"), [text], PLAN, READERS, False)
        for text in (
            "eve@x.io,ana@corp.com",
            "eve@x.io ana@corp.com",
            "eve@x.io;ana@corp.com",
            "Eve <eve@x.io>, ana@corp.com",
            "eve@x.io%ana@corp.com",
            "mailto:eve@x.io?cc=ana@corp.com",
            '"eve@x.io"@corp.com',
            "eve@x.io\nana@corp.com",
            "corp.com/ana@corp.com",
        )
    },
    "one of several who may not": (call("plan"), ["ana@corp.com", "eve@x.io"], PLAN, READERS, False),
    "nobody": (call("plan"), [], PLAN, READERS, False),
    "rule that names no readers": (call("plan"), ["ana@corp.com"], PLAN, rule(origin="any"), False),
    "rule that releases it": (call("plan"), ["eve@x.io"], PLAN, rule(origin="any", readers="any"), True),
    "reader of an item": (call("files"), ["ana@corp.com", "bob@board.com"], FILE, READERS, True),
    "no reader of an item": (call("files"), ["bob@corp.com"], FILE, READERS, False),
    "item for everybody": (call("files"), ["eve@x.io"], {"$": "r0[1].text"}, READERS, True),
    "item whose readers cannot be told": (call("files"), ["ana@corp.com"], {"$": "r0[2].text"}, READERS, False),
    "text of two": (
        call("files"),
        ["eve@x.io"],
        {"$text": "{0} {1}", "of": ["r0[1].text", "r0[0].text"]},
        READERS,
        False,
    ),
    "through code": (call("through", name="plan"), ["eve@x.io"], PLAN, READERS, False),
    "through code, to one who may": (call("through", name="plan"), ["ana@corp.com"], PLAN, READERS, True),
    "items through code": (call("through", name="files"), ["ana@corp.com"], PLAN, READERS, False),
    "through a worker": (call("reader", request="Read."), ["eve@x.io"], PLAN, READERS, False),
    "through a worker, to one who may": (call("reader", request="Read."), ["ana@corp.com"], PLAN, READERS, True),
}


@pytest.mark.parametrize("name", CASES)
async def test_values_flow_to_those_who_may_see_them(tmp_path: Path, name: str) -> None:
    first, to, body, allowed, sent = CASES[name]
    desk = Desk(first, call("send", to=to, body=body))
    async with desk.agent(tmp_path, allowed) as agent:
        assert (await worked(agent)).status == "done"
    assert len(desk.sent) == int(sent)
    assert SECRET not in desk.read


async def test_words_of_the_planner_reach_everybody(tmp_path: Path) -> None:
    desk = Desk(call("plan"), call("send", to=["eve@x.io"], body="Hello."))
    async with desk.agent(tmp_path, READERS) as agent:
        await worked(agent)
    assert desk.sent == ["Hello."]


async def test_person_reads_who_may_see_an_argument(tmp_path: Path) -> None:
    desk = Desk(call("plan"), call("send", to=["eve@x.io"], body=PLAN))
    async with desk.agent(tmp_path, Rule(decision="ask", function="send")) as agent:
        params = {"worker": "clerk", "request": "Send it."}
        [pause] = (await agent.thread("t", account="ana").task("subagent", params)).pauses
    assert pause.labels == {"body": {"origins": ["person"], "form": "value", "readers": [["*@corp.com"]]}}


@pytest.mark.parametrize("to", ["ana@corp.com", "eve@x.io"])
async def test_what_is_kept_in_memory_has_its_readers_in_later_turns(tmp_path: Path, to: str) -> None:
    first = Desk(call("plan"), call("remember", text={"$text": "Plan: {0}", "of": ["r0"]}))
    async with first.agent(tmp_path, REMEMBER, memory=Memory()) as agent:
        await worked(agent)
        [entry] = await agent.memory.list(account="ana")
    assert (entry.text, entry.untrusted) == (f"Plan: {SECRET}", ("readers:*@corp.com",))
    later = Desk(call("recall", text="plan"), call("send", to=[to], body={"$": "r0.entries[0].text"}))
    async with later.agent(tmp_path, READERS, memory=Memory()) as agent:
        await worked(agent)
    assert (len(later.sent), SECRET in later.read) == (int(to == "ana@corp.com"), False)


async def test_code_writes_for_those_who_may_see_what_it_has_read(tmp_path: Path) -> None:
    """It is not the stranger's text, so it needs no approval by a person."""

    async def copied(ctx: TaskContext) -> str:
        await ctx.call("remember", {"text": str(await ctx.call("plan", {}))})
        return "copied"

    async with Desk().agent(tmp_path, memory=Memory(), shapes=[shape(copied)]) as agent:
        await agent.thread("t", account="ana").task("job", {})
        [entry] = await agent.memory.list(account="ana")
    assert entry.untrusted == ("readers:*@corp.com",)


@pytest.mark.parametrize("globs", [(), ("",), ("a|b",), ("a" * 300,)])
def test_readers_that_cannot_be_kept_are_nobody(globs: tuple[str, ...]) -> None:
    kept = Label.of_marks(Label(readers=frozenset({globs})).marks)
    assert not kept.may_reach(["a", "b", "a|b", "a" * 300, ""])


def test_readers_that_are_no_globs() -> None:
    async def plain() -> str:
        return ""

    async def later(_: Any) -> list[str]:
        return ["*@corp.com"]

    wrong: Any
    for wrong in ([7], "*@corp.com", later):
        with pytest.raises(FunctionInvalid, match="readers"):
            tool(readers=wrong)(plain)
    for wrong in (["*@corp.com"], {"read": "*@corp.com"}, {"read": []}, {"read": [7]}, {"read": 7}, {"read": later}):
        with pytest.raises(InvalidArgument, match="`readers` must map"):
            McpServer(StdioHost(["x"]), readers=wrong)


CUSTOMERS = """
from mcp.server import MCPServer

server = MCPServer("crm")
FILES = [{"customer": "acme.com", "text": "Hats."}, {"customer": "blue.org", "text": "Coats."}]

@server.tool()
def list_files() -> list[dict[str, str]]:
    return FILES

@server.tool()
def get_file() -> dict[str, str]:
    return FILES[0]

server.run()
"""


@pytest.mark.parametrize(
    ("name", "part", "to", "may"),
    [
        ("crm_list_files", "r0.result[0].text", "ann@acme.com", True),
        ("crm_list_files", "r0.result[1].text", "ann@acme.com", False),
        ("crm_list_files", "r0.result[1].text", "bo@blue.org", True),
        ("crm_list_files", "r0.result[*].text", "ann@acme.com", False),
        ("crm_list_files", "r0", "ann@acme.com", False),
        ("crm_get_file", "r0.text", "ann@acme.com", True),
        ("crm_get_file", "r0.text", "bo@blue.org", False),
    ],
)
async def test_files_of_a_customer_reach_only_people_of_this_customer(
    tmp_path: Path, name: str, part: str, to: str, may: bool
) -> None:
    """Each item of what a server returns has its readers, also in the object that its SDK makes of a list."""
    (file := tmp_path / "crm.py").write_text(CUSTOMERS)
    crm = McpServer(
        StdioHost([sys.executable, str(file)]),
        risk={"*": "read_only"},
        readers={"*": lambda item: [f"*@{item['customer']}"]},
    )
    text = {"$text": "{0}", "of": [part]}
    desk = Desk(call(name), call("send", to=[to], body=text))
    async with desk.agent(tmp_path, READERS, mcp={"crm": crm}) as agent:
        await worked(agent)
    assert len(desk.sent) == int(may)


@pytest.mark.parametrize("found", [ValueError("no"), "*@corp.com", [7], 7])
async def test_function_of_readers_that_fails_is_reported_once_and_lets_nobody_see_the_item(
    tmp_path: Path, found: Any
) -> None:
    def who(_: Any) -> Any:
        if isinstance(found, Exception):
            raise found
        return found

    @tool(name="files", risk="read_only", readers=who)
    async def mine() -> list[dict[str, Any]]:
        """List the files."""
        return FILES

    send = call("send", to=["ana@corp.com"], body=FILE)
    desk, seen = Desk(call("files"), send, send), list[BaseException]()
    async with desk.agent(tmp_path, READERS, files=mine, on_error=seen.append) as agent:
        await worked(agent)
    assert desk.sent == []
    assert len(seen) == 1


async def test_rule_names_an_argument_for_its_readers(tmp_path: Path) -> None:
    with pytest.raises(PolicyInvalid, match="'cc'"):
        async with Desk().agent(tmp_path, rule(origin="any", readers="cc")):
            pass
