"""What servers publish of their tools is so: annotations, and the `outputSchema` of every answer and error."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import aclosing, closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, get_args

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it has no types
from mcp import Client
from mcp.types import Tool

from support import sidecar_calls
from support.broken_hosts import MemoryStore
from support.role_hosts import BOUND
from support.role_specs import BRIEF, spec_of
from support.sidecar_app import MEMORY, OWNER, SKILLS, SOCIETY, WORKSPACE
from support.sidecar_calls import Calling, check_answer, least_arguments
from support.sidecar_served import agents, caller_of, served
from support.sidecars import over_http
from worldagent import Memory, Storage
from worldagent.agent.stores import Stores
from worldagent.core import STORED_TIERS, Tier
from worldagent.core.errors import WorldAgentError
from worldagent.harness import Worker
from worldagent.hosts import role_host
from worldagent.hosts.role_host import RoleHost
from worldagent.hosts.role_host.contract import Code
from worldagent.hosts.service.call import OwnCode, Refused
from worldagent.hosts.sidecar import Sidecar
from worldagent.hosts.sidecar.tools import TOOLS
from worldagent.members import Contact, MemberLimits, Society, WorkspaceConfig
from worldagent.members.life.drafts import proposed
from worldagent.members.life.outcomes import Outcome
from worldagent.role_resolution import Role, SqliteRoleStore
from worldagent.skills import EXAMPLES
from worldagent.testing import ScriptedLM

# --- annotations ------------------------------------------------------------------------------------------------------


PLACE = {"tier": "account", "scope_id": "ana", "name": "French", "content": "Answer in French."}
GIVEN: dict[str, Any] = {"scope_ids": {"account": "ana"}, **PLACE}
MESSAGE = "msg_hello"
EXAMPLE = "t1"  # the thread that the examples of the published schemas name


MEMBER: str = least_arguments(TOOLS["society_withdraw"].arguments.model_json_schema())["member"]


async def seen(client: Calling, tool: str) -> dict[str, Any]:
    """All of a workspace that can be read, by what it is about; for a tool about members, what is known of them."""
    if tool.startswith("board"):
        return {each["id"]: each for each in (await client.ask("board_list"))["briefs"]}
    if tool.startswith(("society", "draft", "budget")):
        known = {each: await client.ask(each) for each in ("society_graph", "society_inbox", "society_spawns")}
        known |= {each["id"]: each for each in (await client.ask("draft_list", every=True))["drafts"]}
        known["budgets"] = await client.ask("budget_list")
        return known | {"outcomes": await client.ask("society_outcomes", member=MEMBER)}
    listed = (await client.ask("threads"))["threads"]
    found: dict[str, Any] = {each["thread"]: each for each in listed}
    for name in list(found):
        read = [await client.ask(tool, thread=name) for tool in ("pauses", "history", "explain_role")]
        found[name] = [found[name], *read]
    entries = (await client.ask("memory_list", account="ana"))["entries"]
    kept = [*(await client.ask("schedule_list"))["schedules"], *entries]
    roles: dict[str, Any] = {each["tier"]: each for each in (await client.ask("stored_role_list"))["roles"]}
    return found | {each["id"]: each for each in kept} | roles


async def peopled(place: Path, workspace: str) -> None:
    """A member with a contact that can be withdrawn, a message of it to the owner, and two that wait for approval."""
    example = least_arguments(TOOLS["society_withdraw"].arguments.model_json_schema())
    async with aclosing(await Stores.open(Storage(home=place))) as stores:
        society = Society(WorkspaceConfig(id=workspace, owner=OWNER), stores.database)
        await society.join(spec_of(MEMBER, workspace=workspace))
        for each in (example["contact"], "user"):
            await society.contacts.add(MEMBER, Contact(id=each, role="someone"))
        await society.mail.send(MEMBER, "user", "Hello.", message_id=MESSAGE)
        rated = least_arguments(TOOLS["society_feedback"].arguments.model_json_schema())["episode"]
        done = Outcome(episode_id=rated, role_id=MEMBER, capability="mail", succeeded=True, at=datetime.now(UTC))
        await society.outcomes.record(done)
        task = {"message_type": "task_assignment", "task_brief": BRIEF}
        brief = least_arguments(TOOLS["board_move"].arguments.model_json_schema())["brief"]
        await society.mail.send("root", MEMBER, payload=task, message_id=brief)
        await society.board.close(brief, "It is retried.")
        for tool in ("society_approve", "society_reject"):
            draft = least_arguments(TOOLS[tool].arguments.model_json_schema())["member"]
            await society.members.queue_spawn(spec_of(draft, workspace=workspace))
        await society.join(spec_of("idle", workspace=workspace, limits=MemberLimits(turns=0)))
        over = least_arguments(TOOLS["budget_end"].arguments.model_json_schema())["work"]
        letter = await society.mail.send("root", "idle", "Go.", message_id=over, payload={"reason": "Work."})
        await society.budgets.hold(over, "idle", letter.case)
        for tool in ("draft_approve", "draft_reject"):
            draft = least_arguments(TOOLS[tool].arguments.model_json_schema())["draft"]
            await society.drafts.propose(proposed("root", tool, "You are kind."), draft_id=draft)


def about(tool: Tool, entry: str, workspace: str = "novel") -> dict[str, Any]:
    """Arguments about an entry, for the tools that need one that exists."""
    more: dict[str, Any] = {"entry": entry, "entries": [entry], "messages": [MESSAGE], "id": MESSAGE}
    more["file"] = f"workspace: {workspace}\nowner: {OWNER}\n"
    found = {name: value for name, value in more.items() if name in (tool.input_schema.get("required") or ())}
    found |= {"member": MEMBER} if tool.name == "thread_hand_over" else {}
    return found | {"text": "Ana eats nuts."} if tool.name in ("memory_edit", "society_send") else found


async def prepared(client: Calling, tool: Tool) -> dict[str, Any]:
    """The arguments of a call that has something to change, to take away or to read."""
    given = least_arguments(tool.input_schema)
    if {"thread", "turn_id"} & given.keys():
        await client.ask("converse", thread=EXAMPLE, text="Hi")
    if "turn_id" in given:
        given["turn_id"] = (await client.ask("pauses", thread=EXAMPLE))["turn_id"]
    match tool.name:
        case "cancel":
            await client.ask("task", thread=EXAMPLE, shape="buy", params={"what": "hat"})
        case "turn_feedback":
            await client.ask("turn_feedback", turn_id=given["turn_id"], feedback="bad")
        case "thread_role_clear":
            await client.ask("thread_role_set", thread=EXAMPLE, role={"content": "Be brief."})
        case "stored_role_set" | "stored_role_clear":
            await client.ask("stored_role_set", tier="workspace", role={"content": "Be brief."})
        case "thread_rename":
            await client.ask("thread_rename", thread=EXAMPLE, title="A title")
        case "thread_hand_back":
            await client.ask("thread_hand_over", thread=EXAMPLE, member=MEMBER)
        case "memory_distil":
            await client.ask("converse", thread=EXAMPLE, text="Hi", account="ana")
        case _:
            pass
    return given | about(tool, (await client.ask("memory_add", text="Ana."))["entry"]["id"], WORKSPACE)


@pytest.mark.requirement("T10")
async def test_annotations_of_the_sidecar_say_what_each_tool_does(tmp_path: Path) -> None:
    await peopled(tmp_path / "home", WORKSPACE)
    more: dict[str, Any] = {MEMORY: "1", SOCIETY: "1", SKILLS: "1"}
    async with over_http(tmp_path / "home", **more) as sidecar, sidecar.client() as client:
        tools = [Tool.model_validate(tool) for tool in (await client.request("tools/list"))["tools"]]
        assert len({tool.title for tool in tools}) == len(tools)
        checked = set()

        async def looked() -> dict[str, Any]:
            """All that is seen, and the feedback on turns, which no tool shows."""
            with closing(sqlite3.connect(tmp_path / "home" / "agent.db", timeout=BOUND)) as connection:
                rated = dict(connection.execute("SELECT turn, feedback FROM wa_feedback"))
            return await seen(client, tool.name) | rated

        for tool in tools:
            hints = tool.annotations
            assert hints is not None
            assert tool.title
            given = await prepared(client, tool)
            if hints.open_world_hint:  # the agent runs, and its tools may do anything
                assert (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint) == (False, True, False)
                assert "text" in given or tool.name != "converse"
                continue
            if tool.name in ("thread_withdraw", "thread_reorder", "background_cancel"):  # nothing waits or works here
                continue
            before = await looked()
            await client.ask(tool.name, **given)
            after = await looked()
            kept = {name: after.get(name) for name in before} == before
            assert hints.read_only_hint == (after == before), tool.name
            assert hints.destructive_hint == (not kept), tool.name
            with suppress(sidecar_calls.Refused):  # an id is taken, or is gone
                await client.ask(tool.name, **given)
            assert hints.idempotent_hint == (await looked() == after), tool.name
            checked.add(tool.name)
        runs = {
            "converse",
            "task",
            "run_skill",
            "run_scheduled",
            "resume",
            "schedule_run",
            "board_move",
            "society_approve",
            "society_send",
            "event_post",
            "thread_steer",
            "thread_queue",
            "thread_release",
            "thread_withdraw",
            "thread_reorder",
            "background_start",
            "background_steer",
            "background_cancel",
        }
        assert {tool.name for tool in tools} - checked == runs


@pytest.mark.requirement("R9")
async def test_annotations_of_the_role_host_say_what_each_tool_does(tmp_path: Path) -> None:
    store = await SqliteRoleStore.open(tmp_path / "roles.db")

    async def kept() -> list[str]:
        found = await store.list(dict.fromkeys(STORED_TIERS, "ana"))
        return [json.dumps([tier, role.name, role.content]) for tier, role in found.items()]

    async with Client(RoleHost(store).server, read_timeout_seconds=BOUND) as client:
        for tool in (await client.list_tools()).tools:
            hints = tool.annotations
            assert hints is not None
            assert tool.title
            await store.put(Tier.ACCOUNT, "ana", Role("English", "Answer in English."))
            before = await kept()
            arguments = {name: GIVEN[name] for name in tool.input_schema["required"]}
            await client.call_tool(tool.name, arguments)
            after = await kept()
            assert hints.read_only_hint == (after == before), tool.name
            assert hints.destructive_hint == (not set(before) <= set(after)), tool.name
            await client.call_tool(tool.name, arguments)
            assert hints.idempotent_hint == (await kept() == after), tool.name
            assert hints.open_world_hint is False
    await store.aclose()


# --- answers ----------------------------------------------------------------------------------------------------------


def errors() -> Iterator[Exception]:
    """Every error that a call can end with: those of the package and those of the sidecar itself."""
    waiting: list[type[WorldAgentError]] = [WorldAgentError]
    while waiting:
        kind = waiting.pop()
        if kind.__module__.startswith("worldagent.core.errors"):
            yield kind("a problem", remedy="a remedy")
            waiting += kind.__subclasses__()
    for code in get_args(OwnCode):
        yield Refused(code, "a problem", remedy="a remedy")
    yield OSError("an error of some other kind")


def usable_with(tool: Tool) -> Draft202012Validator:
    """The validator of a tool's published schema, which every revision and every client can use."""
    schema = tool.output_schema
    assert schema is not None
    assert schema["type"] == "object"  # all revisions before 2026-07-28 require it
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.mark.requirement("T10")
async def test_every_error_of_the_sidecar_matches_the_schema_of_each_tool(tmp_path: Path) -> None:
    raised: list[Exception] = []

    def make(workspace: str) -> NoReturn:
        raise raised[-1]

    async with Sidecar(make) as sidecar, Client(sidecar.server, read_timeout_seconds=BOUND) as client:
        tools = [(tool, usable_with(tool)) for tool in (await client.list_tools()).tools]
        met = set()
        for error in errors():
            raised.append(error)
            for tool, schema in tools:
                result = await client.call_tool(tool.name, {"workspace": "novel", **least_arguments(tool.input_schema)})
                content = result.structured_content or {}
                schema.validate(content)
                assert result.is_error, (tool.name, result)
                met.add(content["error"]["code"])
                assert isinstance(content["error"]["retryable"], bool)
    assert met >= {error.code for error in errors() if isinstance(error, WorldAgentError | Refused)}


async def test_the_answer_of_every_tool_of_the_sidecar_matches_its_schema(tmp_path: Path) -> None:
    lm = ScriptedLM(lambda call: {"result": "Fine."} if {"request", "task"} & {*call.fields} else {"reply": "Yes."})
    workers = [Worker("critic", "You judge in one sentence.")]
    await peopled(tmp_path, "novel")
    society = WorkspaceConfig(id="novel", owner=OWNER)
    make = agents(tmp_path, lm=lm, workers=workers, memory=Memory(), society=society, skills=[EXAMPLES])
    async with served(Sidecar(make)) as url, caller_of(url, "auto") as ask:
        turn = (await ask("converse", workspace="novel", thread="t1", text="Hi", detach=True))["turn"]["id"]
        answered = set()
        tools = (await ask.client.list_tools()).tools
        for tool in tools:
            least = least_arguments(tool.input_schema)
            more: dict[str, Any] = {"turn_id": turn} if "turn_id" in least else {}
            more |= {"skill": {"prompt": "Be brief."}} if tool.name == "run_skill" else {}
            more |= (
                {"params": {"worker": "critic", "request": "Look."}}
                if "params" in tool.input_schema["properties"]
                else {}
            )
            more |= about(tool, (await ask("memory_add", workspace="novel", text="Ana."))["entry"]["id"])
            result = await ask.raw(tool.name, workspace="novel", **least | more)
            usable_with(tool).validate(result.structured_content)
            check_answer(tool.name, result.structured_content, failed=result.is_error)
            if not result.is_error:
                answered.add(tool.name)
    beside = {"thread_steer", "thread_queue", "thread_reorder", "thread_release"}  # nothing runs or waits
    beside |= {"background_start", "background_steer", "background_cancel"}  # it has no such work
    assert {tool.name for tool in tools} - answered == {"resume", *beside}  # the turn is done


class Store(MemoryStore):
    """A store of roles that fails as it is told to."""

    away = False

    def key(self, tier: Tier, scope_id: str) -> tuple[Tier, str]:
        if self.away:
            raise OSError("the store is away")
        return super().key(tier, scope_id)


@pytest.mark.requirement("R9")
async def test_every_answer_and_error_of_the_role_host_matches_the_schema_of_its_tool() -> None:
    store = Store()
    grant = role_host.Grant({Tier.ACCOUNT: frozenset({"ana"})})
    host = RoleHost(store, grant=grant)
    met: set[str | None] = set()
    async with Client(host.server, read_timeout_seconds=BOUND) as client:
        tools = (await client.list_tools()).tools

        async def walk(change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
            for tool in tools:
                asked = change({name: GIVEN[name] for name in tool.input_schema["required"]})
                result = await client.call_tool(tool.name, asked)
                usable_with(tool).validate(result.structured_content)
                check_answer(tool.name, result.structured_content, failed=bool(result.is_error))
                met.add((result.structured_content or {}).get("code"))

        await walk(lambda given: given)  # it puts before it deletes
        await walk(
            lambda given: {**given, "scope_id": "bo"} if "scope_id" in given else {"scope_ids": {"account": "bo"}}
        )
        await walk(lambda given: {**given, "content": "x" * (33 << 10)} if "content" in given else given)
        await walk(lambda given: {})
        store.away = True
        await walk(lambda given: given)
    assert met == {None, *get_args(Code)}
