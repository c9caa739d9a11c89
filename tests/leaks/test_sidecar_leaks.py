"""Whatever clients do with a sidecar, over whichever transport: a role that they gave it is nowhere but in the call."""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.leaks import on_the_server
from support.sidecar_app import HASTY, WORKSPACE, digest
from support.sidecar_calls import Call, Refused
from support.sidecar_clients import BOUND, HttpClient, StdioClient, exchanged, request
from support.sidecar_leaks import Looked, SidecarCase, every_case, looked
from support.sidecars import TOKEN, until
from worldagent.core import ECHO_RUN

Client = HttpClient | StdioClient
Outcome = Callable[["Asking", Client], Awaitable[None]]
OUTCOMES: dict[str, Callable[[Looked], Awaitable[None]]] = {}
LONGEST_ROLE = 32 * 1024


@dataclass
class Asking:
    """One outcome of a case.

    Attributes:
        looked: The sidecar.
        outcome: Its name.
        workspace: Where it is.
    """

    looked: Looked
    outcome: str
    workspace: str = WORKSPACE

    def __post_init__(self) -> None:
        case = self.looked.case
        self.content, self.label = case.content(self.outcome), case.label(self.outcome)
        self.looked.planted += [self.content, self.label]
        self.account = "_".join(self.outcome.split())

    @property
    def ids(self) -> dict[str, Any]:
        return {"workspace": self.workspace, "account": self.account, "thread": f"t-{self.account}"}

    @property
    def role(self) -> dict[str, Any]:
        """The role as a call has it; empty where it comes from somewhere else."""
        if self.looked.case.source != "call":
            return {}
        return {"role": {"content": self.content, "name": self.label}}

    async def place(self, client: Client) -> None:
        """Put the role where the case has it from, if that is not the call."""
        if self.looked.case.source == "thread":
            role = {"content": self.content, "name": self.label}
            await client.ask("thread_role_set", **self.ids, role=role, ttl=600.0)
        await self.looked.put(self.account, self.label, self.content)

    def says(self, client: Client, text: str, *, progress: bool = True, **more: Any) -> Call:
        """Begin a turn under the role."""
        return client.call("converse", {**self.ids, "text": text, **self.role, **more}, progress=progress)

    async def resumed(self, client: Client, **more: Any) -> dict[str, Any]:
        """Go on under the role."""
        async with client.call("resume", {**self.ids, **self.role, **more}) as call:
            return await call.answer()

    async def refused(self, work: Awaitable[Any]) -> Refused:
        """See that something is refused; keeps what was said."""
        try:
            given = await work
        except Refused as refused:
            self.looked.told.append(refused.told)
            return refused
        raise AssertionError(f"it was not refused: {json.dumps(given)[:200]}")


def outcome(
    name: str, *, reached: bool = False, workspace: str = WORKSPACE, placed: bool = True
) -> Callable[[Outcome], Outcome]:
    """An outcome, which gets a client; the role is in its place by then, unless it is not to be `placed`.

    Where it says `reached`, the model has had the role in the end.
    """

    def add(work: Outcome) -> Outcome:
        async def whole(looked: Looked) -> None:
            asking = Asking(looked, name, workspace)
            async with looked.client() as client:
                if placed:
                    await asking.place(client)
                await work(asking, client)
            if reached:
                await looked.reached(asking.content)
            await looked.look([asking.content, asking.label])

        OUTCOMES[name] = whole
        return work

    return add


async def try_all(looked: Looked) -> None:
    """Try every outcome, and look after each."""
    for name, work in OUTCOMES.items():
        try:
            async with asyncio.timeout(BOUND):
                await work(looked)
        except Exception as error:
            log = looked.sidecar.errors.read_text(errors="replace")
            error.add_note(f"in the outcome {name!r} of {looked.case}; the log ends {log[-1000:]!r}")
            raise


# --- turns that end --------------------------------------------------------------------------------------------------


@outcome("answers", reached=True)
async def _(asking: Asking, client: Client) -> None:
    async with asking.says(client, "Is it good? words=5") as call:
        answer = await call.answer()
    assert answer["turn"]["status"] == "done"
    assert call.events, "there were no events, so this shows little"
    asking.looked.told += [await client.ask(tool, **asking.ids) for tool in ("history", "pauses")]
    asking.looked.told.append(await client.ask("threads", workspace=asking.workspace))


@outcome("is recorded and read again", reached=True)
async def _(asking: Asking, client: Client) -> None:
    async with asking.says(client, "Is it good?", progress=False, key="k1") as call:
        first = await call.answer()
    async with asking.says(client, "Is it good?", key="k1") as call:
        assert (await call.answer())["turn"]["id"] == first["turn"]["id"]
    read = await client.ask("events", workspace=asking.workspace, account=asking.account, turn_id=first["turn"]["id"])
    assert read["events"][-1]["type"] == "turn_ended"
    other = {**asking.ids, "text": "Something else", "key": "k1", **asking.role}
    assert (await asking.refused(client.ask("converse", **other))).code == "key_reused"


@outcome("surfaces", reached=True)
async def _(asking: Asking, client: Client) -> None:
    task = {"worker": "critic", "request": "Judge it."}
    for tool, more in (
        ("task", {"shape": "subagent", "params": task}),
        ("run_skill", {"skill": {"prompt": "Count syllables.", "params": task}}),
        ("run_scheduled", {"schedule": "daily", "fired_at": "2030-01-01T10:00:00Z", "payload": {"n": 1}}),
    ):
        async with client.call(tool, {**asking.ids, **more, **asking.role, "detach": True}) as call:
            assert (await call.answer())["turn"]["status"] == "done"
    explained = await client.ask("explain_role", **asking.ids, **asking.role)
    assert any(tier["length"] == len(asking.content) for tier in explained["tiers"])
    _forget_name(client, asking.label)
    await client.ask("fork", **asking.ids)
    await client.ask("thread_role_clear", **asking.ids)


def _forget_name(client: Client, label: str) -> None:
    """Leave out the one answer that shows a role's name, which is what it is for; see that it has no content."""
    told = client.heard.pop()
    assert label in json.dumps(told)


@outcome("model fails and quotes the prompt", reached=True)
async def _(asking: Asking, client: Client) -> None:
    for more in ({}, {"detach": True}):
        async with asking.says(client, "Is it good? fail=1", **more) as call:
            refused = await asking.refused(call.answer())
        assert refused.code in ("model_unavailable", "model_refused")
        asking.looked.told.append(call.events)


@outcome("model repeats the role")
async def _(asking: Asking, client: Client) -> None:
    # Less than that is the model's own word (R16).
    text = "Is it good? repeat=1" if len(asking.content) >= ECHO_RUN else "Is it good?"
    async with asking.says(client, text, detach=True) as call:
        assert (await call.answer())["turn"]["status"] == "done"


@outcome("model is too slow", reached=True, workspace=HASTY)
async def _(asking: Asking, client: Client) -> None:
    async with asking.says(client, "Is it good? slow=1") as call:
        assert (await asking.refused(call.answer())).code == "model_timeout"


# --- turns that wait --------------------------------------------------------------------------------------------------


@outcome("pauses and is resumed")
async def _(asking: Asking, client: Client) -> None:
    async with asking.says(client, "do=buy what=hat", pauses="return", key="k1") as call:
        paused = await call.answer()
    assert paused["turn"]["status"] == "paused"
    asking.looked.told.append(await client.ask("pauses", **asking.ids))
    assert (await asking.refused(client.ask("converse", **asking.ids, text="And?"))).code == "thread_paused"
    await asking.looked.look([asking.content, asking.label])
    answers: dict[str, Any] = {pause["id"]: {"approve": {}} for pause in paused["turn"]["pauses"]}
    async with asking.looked.client() as later:
        await _under_another(asking, later, answers)
        # What was answered to a call that had no role, or another, is kept.
        done = await asking.resumed(later, **({} if asking.role else {"answers": answers}))
        assert done["turn"]["status"] == "done"
        assert (await asking.refused(asking.resumed(later, answers=answers))).code in (
            "already_answered",
            "nothing_to_resume",
            "unknown_pause",
        )


async def _under_another(asking: Asking, client: Client, answers: dict[str, Any]) -> None:
    """Resume without the role and with another one, which is refused; and with answers that do not fit."""
    if asking.role:
        another = asking.looked.case.content(f"another of {asking.outcome}")
        asking.looked.planted.append(another)
        missing = await asking.refused(client.ask("resume", **asking.ids, answers=answers))
        assert missing.code == "role_required"
        changed = await asking.refused(client.ask("resume", **asking.ids, role={"content": another}))
        assert changed.code == "role_changed"
        await asking.looked.look([another])
    wrong = await asking.refused(asking.resumed(client, answers={"nothing": {"approve": {}}}))
    assert wrong.code == "unknown_pause"


@outcome("is asked through the client")
async def _(asking: Asking, client: Client) -> None:
    asking.looked.person_says(decision="approve")
    before = len(asking.looked.elicited)
    async with asking.says(client, "do=buy what=coat", detach=True) as call:
        done = await call.answer()
    assert done["turn"]["status"] == "done"
    assert len(asking.looked.elicited) == before + 1
    asking.looked.person_says(answer="red", street="Elm Street", number=3)
    asking.looked.told.append(asking.looked.elicited)


@outcome("a question is declined and the turn cancelled")
async def _(asking: Asking, client: Client) -> None:
    asking.looked.person_says()
    async with asking.says(client, "do=choose what=hat") as call:
        paused = await call.answer()
    assert paused["turn"]["status"] == "paused"
    assert await client.ask("cancel", **asking.ids) == {"contract": 1, "cancelled": True}


# --- turns that are broken off ----------------------------------------------------------------------------------------


@outcome("is cancelled in mid-call")
async def _(asking: Asking, client: Client) -> None:
    async with asking.looked.client() as other, asking.says(client, "hold=never", detach=True) as call:
        waiting = asyncio.create_task(call.answer())
        await asking.looked.reached(asking.content)
        assert (await other.ask("cancel", **asking.ids))["cancelled"] is True
        assert (await waiting)["turn"]["status"] == "cancelled"


@outcome("client goes away and the turn with it", placed=False)
async def _(asking: Asking, _: Client) -> None:
    async with asking.looked.client() as client:
        await asking.place(client)
        await _left(asking, client, "hold=never", detach=False)

    async def cancelled() -> bool:
        return bool((await client.ask("pauses", **asking.ids))["status"] == "cancelled")

    async with asking.looked.client() as client:
        await until(cancelled)


@outcome("client goes away and another attaches", placed=False)
async def _(asking: Asking, _: Client) -> None:
    async with asking.looked.client() as client:
        await asking.place(client)
        turn_id = await _left(asking, client, f"hold={asking.account}", detach=True)
    await asking.looked.look([asking.content, asking.label])
    async with asking.looked.client() as client:
        who = {"workspace": asking.workspace, "account": asking.account}
        async with client.call("events", {**who, "turn_id": turn_id, "after": 1}) as call:
            (asking.looked.home / asking.account).touch()
            assert (await call.answer())["turn"]["status"] == "done"
        assert call.events[-1]["type"] == "turn_ended"


async def _left(asking: Asking, client: Client, text: str, **more: Any) -> str:
    """Begin a turn and vanish once the model has its role; gives the turn."""
    async with asking.says(client, text, **more) as call:
        event = await anext(aiter(call))
        await asking.looked.reached(asking.content)
        asking.looked.told.append(call.events)
    return str(event["turn_id"])


# --- what does not fit ------------------------------------------------------------------------------------------------


TIDE: dict[str, Any] = {"schedule": "tide", "when": {"cron": "30 7 * * *"}, "starts": {"message": "Is it low?"}}


def misplaced(content: str, label: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Calls that have a role where none goes, or in a form that none has."""
    role = {"content": content, "name": label}
    for wrong in (
        content,
        [content],
        [role],
        {"content": [content]},
        {"content": {"content": content}},
        {"content": 5, "name": label},
        {"content": content, "name": 5},
        {"content": content, "name": ["x", label]},
        {"content": content, "name": label * 30},
        {"content": content, "x": label},
        {"content": content, label: 1},
        {"content": content, "applies_to": label},
        {"content": content, "applies_to": [label, 5]},
        {"content": content, "exclusive": label},
        {"content": " ", "name": label},
        {"content": f"{content} " * (LONGEST_ROLE // len(content) + 1), "name": label},
    ):
        yield "converse", {"text": "Hi", "role": wrong}
        yield "resume", {"role": wrong}
        yield "thread_role_set", {"role": wrong}
        yield "explain_role", {"role": wrong}
        yield "stored_role_set", {"tier": "account", "role": wrong}
    yield "converse", {"role": role}
    yield "converse", {"text": "Hi", "role": role, "key": ""}
    yield "converse", {"text": "Hi", "role": role, "channel": 5}
    yield "converse", {"text": "Hi", "Role": role}
    yield "converse", {"text": "Hi", content: label}
    yield "converse", {"text": "Hi", "role": role, "model": {content: label}}
    yield "task", {"shape": "buy", "params": {"role": role}}
    yield "task", {"shape": "buy", "params": {"what": [content]}, "role": role}
    yield "run_skill", {"skill": {"prompt": "x", "role": content}}
    yield "run_scheduled", {"schedule": "x", "fired_at": content, "role": role}
    yield "schedule_add", {**TIDE, "role": role}
    yield "schedule_add", {**TIDE, "schedule": content}
    yield "schedule_add", {**TIDE, "zone": content}
    yield "schedule_add", {**TIDE, "when": {"cron": content}}
    yield "schedule_add", {**TIDE, "when": {"at": content}}
    yield "schedule_add", {**TIDE, "starts": {"message": content, "role": role}}
    yield "schedule_add", {**TIDE, "starts": {"task": content}}
    yield "schedule_add", {**TIDE, "starts": {"skill": content, "input": label}}
    yield "schedule_add", {**TIDE, "starts": {"message": "x", "params": {"role": role}}}
    yield "memory_add", {"text": "Hi", "role": role}
    yield "memory_add", {"text": [content]}
    yield "memory_add", {"text": "Hi", "kind": content}
    yield "memory_add", {"text": "Hi", "expires": content}
    yield "memory_list", {"before": content[:200]}
    yield "memory_show", {"entry": content[:200]}
    yield "memory_edit", {"entry": content[:200], "text": "Hi"}
    yield "memory_forget", {"entries": [content[:200]]}
    yield "memory_distil", {"thread": "t1", "role": role}
    yield "society_send", {"to": content[:200], "text": "Hi"}
    yield "event_post", {"event": content, "type": "a", "domain": "b"}
    yield "event_post", {"event": "a", "type": "a", "domain": "b", "payload": content}
    yield "event_list", {"state": content}
    yield "society_send", {"to": "root", "text": "Hi", "role": role}
    yield "society_send", {"to": "root", "text": "Hi", "message_type": content}
    yield "society_contacts", {"member": content[:200]}
    yield "society_withdraw", {"member": content[:200], "contact": content[:200]}
    yield "society_feedback", {"episode": content[:200], "feedback": "good"}
    yield "resume", {"on_role_change": content, "role": role}
    yield "resume", {"answers": {"p": {"approve": {label: content}}}, "role": role}
    yield "thread_role_set", {"role": role, "ttl": content}
    yield "thread_role_set", {"role": role, "ttl": -1}
    yield "stored_role_set", {"tier": content, "role": role}
    yield "turn_feedback", {"turn_id": "t1", "feedback": content}
    yield "turn_feedback", {"turn_id": content[:200], "feedback": "good"}
    yield "skill_show", {"skill": content[:200]}
    yield "stored_role_list", {"channel": [content]}
    yield "stored_role_clear", {"tier": "account", "role": role}
    yield "history", {"role": role}
    yield "thread_role_clear", {"role": role}


@outcome("is in the wrong place", placed=False)
async def _(asking: Asking, client: Client) -> None:
    for tool, arguments in misplaced(asking.content, asking.label):
        refused = await asking.refused(client.ask(tool, **{**asking.ids, **arguments}))
        assert isinstance(refused.code, str), (tool, refused.code)
    await asking.refused(client.ask(asking.content, role=asking.content))
    for params in (asking.content, [asking.content], {"name": 5, "arguments": asking.content}):
        with contextlib.suppress(Refused, TypeError, ValueError):
            await client.request("tools/call", **(params if isinstance(params, dict) else {"arguments": params}))


@outcome("is in no message at all", placed=False)
async def _(asking: Asking, client: Client) -> None:
    broken = json.dumps({"method": "tools/call", "params": {"role": asking.content}})[:-1].encode()
    half = {
        "name": "converse",
        "arguments": {**asking.ids, "text": "Hi", "role": {"content": f"{asking.content}\ud800"}},
    }
    whole = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": half}).encode()
    if isinstance(client, StdioClient):
        inner = b'{"jsonrpc":"2.0","method":"x","params":' + broken + b"}"
        for line in (broken, whole, asking.content.encode(), inner):
            await client.say(line)
        await client.request("tools/list")
        return
    sidecar, query = asking.looked.sidecar, asking.content.replace(" ", "%20")
    for path, headers in (("/mcp", {"X-Role": asking.content}), (f"/mcp?role={query}", {}), (f"/{query}", {})):
        for more in ({}, {"Authorization": f"Bearer {asking.content}"}, {"Authorization": f"Bearer {sidecar.token}"}):
            sent = request("POST", path, {**headers, **more}.items(), whole if path == "/mcp" else broken)
            asking.looked.told.append(await exchanged(sidecar.url, sent))


# --- tests ------------------------------------------------------------------------------------------------------------

SAMPLE = every_case()[::5]  # each transport, revision, source and length
REST = [case for case in every_case() if case not in SAMPLE]
_BYTES = 21  # that `COPY` gives of a table without rows


def events_kept(home: Path) -> int:
    """How many batches of events the database holds."""
    if tables := on_the_server():
        return len(tables["wa_event"]) - _BYTES
    with closing(sqlite3.connect(home / "agent.db", timeout=30)) as connection:
        return int(connection.execute("SELECT count(*) FROM wa_event").fetchone()[0])


async def check(case: SidecarCase, folder: Path) -> None:
    async with looked(case, folder) as found:
        async with found.running() as sidecar:
            await try_all(found)
            assert events_kept(found.home) > 0, "no event was kept, so this shows nothing of them"
            held = await killed_in_mid_call(found)
        async with found.running():
            await resumed_later(found, held)
            await found.look()
        assert sidecar.process.returncode is not None
        await found.look()
        log = sidecar.errors.read_text()
        assert log.count("tool=converse") > 5, "the log has no requests, so it shows nothing"
        assert ": mcp" in log, "the libraries logged nothing, so the log shows little"


async def killed_in_mid_call(found: Looked) -> Asking:
    """Kill the sidecar while a model has the role."""
    asking = Asking(found, "killed in mid-call")
    async with found.client() as client:
        await asking.place(client)
        async with asking.says(client, "hold=later", key="k1", detach=True) as call:
            waiting = asyncio.create_task(call.answer())
            await found.reached(asking.content)
            await found.sidecar.killed()
            await asyncio.wait([waiting], timeout=BOUND)
            assert waiting.exception() is not None
        await found.look([asking.content, asking.label])
    return asking


async def resumed_later(found: Looked, asking: Asking) -> None:
    """Resume the turn in another process."""
    (found.home / "later").touch()
    async with found.client() as client:
        await asking.place(client)
        done = await asking.resumed(client)
    assert done["turn"]["status"] == "done"
    assert found.digests.count(digest(asking.content)) == 2


@pytest.mark.requirement("R7", "R9", "R10", "T10")
@pytest.mark.parametrize("case", SAMPLE, ids=str)
async def test_a_role_that_a_client_gave_is_nowhere_afterwards(tmp_path: Path, case: SidecarCase) -> None:
    await check(case, tmp_path)


@pytest.mark.requirement("R7")
@pytest.mark.parametrize("case", SAMPLE[:1], ids=str)
@pytest.mark.parametrize("database_engine", ["postgres"], indirect=True)
async def test_a_role_that_a_client_gave_is_in_no_table(tmp_path: Path, case: SidecarCase) -> None:
    await check(case, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", REST, ids=str)
async def test_a_role_that_any_client_gave_is_nowhere_afterwards(tmp_path: Path, case: SidecarCase) -> None:
    await check(case, tmp_path)


@pytest.mark.requirement("R7")
async def test_the_command_line_of_a_process_has_no_token_and_no_role(tmp_path: Path) -> None:
    case = SidecarCase("http", "2026-07-28", "call", 400)
    from support.sidecars import over_http

    async with over_http(tmp_path / "home", fresh=True) as sidecar, sidecar.client() as client:
        await client.ask("converse", thread="t", text="Hi", role={"content": case.content("ps"), "name": "x"})
        told: list[Any] = sidecar.arguments
        assert "serve" in told
        assert TOKEN not in " ".join(told)
        assert case.content("ps") not in " ".join(told)
