"""A capability in a package of its own: `examples/capability_notes`, which the agent knows nothing of."""

import os
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from support.agents import answering, scripted_agent
from support.browser import Browser
from support.capability_hosts import site
from support.command_line import Run, as_json, home, refusal, run, serving
from support.role_hosts import http_client_of
from worldagent import Settings, Storage, WorldAgent
from worldagent.agent import assembly
from worldagent.agent.copying import copy_storage
from worldagent.agent.stores import Stores
from worldagent.agent.upkeep import Upkeep
from worldagent.core import Scope
from worldagent.core.capability import Capability, InputField, Runtime
from worldagent.core.errors import CapabilityFailed, FunctionInvalid, InvalidArgument, NameTaken
from worldagent.hosts.service.operations import of_others
from worldagent.memory.owned import OwnedTable
from worldagent.testing import ScriptedLM, VirtualClock

__all__ = ["home", "run"]  # fixtures

EXAMPLE = Path(__file__).parents[2] / "examples" / "capability_notes"


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package as pip installs it: on the path, with its entry point."""
    info = tmp_path / "installed" / "capability_notes-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: capability-notes\nVersion: 1.0\n")
    listed = "notes = capability_notes:Notes\nbroken = capability_broken:Broken\n"
    (info / "entry_points.txt").write_text(f"[worldagent.capabilities]\n{listed}")
    (info.parent / "capability_broken.py").write_text("raise KeyError")
    for folder in (info.parent, EXAMPLE):
        monkeypatch.syspath_prepend(str(folder))
    for cached in (assembly.named_capability, of_others):
        cached.cache_clear()
    yield
    for cached in (assembly.named_capability, of_others):
        cached.cache_clear()
    for name in ("capability_notes", "capability_notes_hosts"):
        sys.modules.pop(name, None)


@pytest.mark.requirement("H10")
@pytest.mark.on_every_database
async def test_a_package_of_its_own_brings_tools_a_table_and_an_input(tmp_path: Path) -> None:
    lm = answering()
    async with scripted_agent(tmp_path / "home", lm, capabilities=["notes"]) as agent:
        await agent.call("write_note", {"text": "likes tea"}, account="ana")
        await agent.call("write_note", {"text": "likes hats"}, account="ben")
        assert await agent.call("find_notes", {"words": "likes"}, account="ana") == ["likes tea"]
        await agent.thread("1", account="ana").converse("Hi")
        await agent.thread("2", account="cid").converse("Hi")
    with_note, without = lm.calls
    assert with_note.fields["notes"] == '["likes tea"]'
    assert "notes" not in without.fields


@pytest.mark.requirement("M4")
@pytest.mark.on_every_database
async def test_its_rows_go_with_their_account_also_where_it_is_not_installed(tmp_path: Path) -> None:
    storage = Settings().storage(Storage(home=tmp_path / "home"))
    async with scripted_agent(tmp_path / "home", answering(), capabilities=["notes"]) as agent:
        for account in ("ana", "ben"):
            await agent.call("write_note", {"text": "likes tea"}, account=account)
    async with aclosing(await Stores.open(storage)) as stores:  # as the command line does, which knows no capability
        assert (await Upkeep(stores, "novel").remove_account("ana")).rows == 1
        left = await stores.database.read(lambda tx: tx.execute("SELECT account FROM notes_note"))
    assert left == [("ben",)]


@pytest.mark.requirement("H10")
async def test_its_input_is_stored_with_the_message_so_that_a_later_turn_has_it_again(tmp_path: Path) -> None:
    lm = answering()
    async with scripted_agent(tmp_path / "home", lm, capabilities=["notes"]) as agent:
        await agent.call("write_note", {"text": "likes tea"}, account="ana")
        thread = agent.thread("1", account="ana")
        await thread.converse("Hi")
        await agent.call("write_note", {"text": "likes hats"}, account="ana")
        await thread.replay()
        await thread.converse("And now?")
        await thread.converse("And these?", inputs={"notes": ["from the caller"]})
    shown = [call.fields["notes"] for call in lm.calls]
    assert shown == ['["likes tea"]', '["likes tea"]', '["likes hats", "likes tea"]', '["from the caller"]']


@pytest.mark.requirement("M4")
async def test_its_tables_are_copied_and_a_copy_without_the_package_is_refused(tmp_path: Path) -> None:
    old, new = Storage(home=tmp_path / "old"), Storage(home=tmp_path / "new")
    async with scripted_agent(tmp_path / "old", answering(), capabilities=["notes"]) as agent:
        await agent.call("write_note", {"text": "likes tea"}, account="ana")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [each for each in sys.path if not each.endswith("installed")])
        with pytest.raises(InvalidArgument, match="tables of the capability 'notes', which no installed package has"):
            await copy_storage(old, new)
    copied = await copy_storage(old, new)
    assert copied.parts["notes_note"].rows == 1
    async with scripted_agent(tmp_path / "new", answering(), capabilities=["notes"]) as agent:
        assert await agent.call("find_notes", {"words": ""}, account="ana") == ["likes tea"]


class Broken(Capability[None]):
    name = "broken"

    def fields(self, runtime: Runtime) -> list[InputField]:
        async def fill(scope: Scope) -> str:
            raise KeyError("a secret")

        return [InputField(name="broken", description="breaks", fill=fill)]


@pytest.mark.requirement("H10")
async def test_an_input_that_cannot_be_filled_fails_the_turn_before_anything_is_written(tmp_path: Path) -> None:
    seen: list[Exception] = []
    async with scripted_agent(tmp_path, ScriptedLM([]), capabilities=[Broken()], on_error=seen.append) as agent:
        thread = agent.thread("1")
        with pytest.raises(CapabilityFailed, match="the input 'broken' of the capability 'broken' raised") as failed:
            await thread.converse("Hi")
        assert "secret" not in str(failed.value)
        assert await thread.state() is None
    assert [type(each) for each in seen] == [KeyError]


class First(Capability["First"]):
    name, after = "first", ("second",)


class Second(Capability["Second"]):
    name, after = "second", ("first",)


class Taken(Capability[None]):
    name = "taken"

    def fields(self, runtime: Runtime) -> list[InputField]:
        async def fill(scope: Scope) -> None: ...

        return [InputField(name="message", description="takes a name", fill=fill)]


class Visits(Capability[None]):
    name = "visits"

    @asynccontextmanager
    async def opened(self, runtime: Runtime) -> AsyncGenerator[None]:
        async def remove(work: Any, before: float) -> dict[str, int]:
            return {"visits": 3, "dry" if work.dry_run else "removed": int(before)}

        runtime.hooks.aged["visits"] = remove
        yield


@pytest.mark.requirement("M4")
async def test_its_rows_go_by_an_age_of_its_own(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with scripted_agent(tmp_path, answering(), capabilities=[Visits()], clock=clock) as agent:
        old = int(clock.now().timestamp()) - 60
        assert (await agent.upkeep.prune_by_age(visits=60)).more == {"visits": 3, "removed": old}
        found = await agent.upkeep.prune_by_age(visits=60, runs=60, dry_run=True)
        assert (found.runs, found.more) == (0, {"visits": 3, "dry": old})
        with pytest.raises(InvalidArgument, match=r"no capability here removes 'visit' by age;.* there are: visits"):
            await agent.upkeep.prune_by_age(visit=60)
        with pytest.raises(InvalidArgument, match="`visits` must be seconds from 0"):
            await agent.upkeep.prune_by_age(visits=-1)


@pytest.mark.requirement("H10")
def test_what_cannot_be_a_capability_is_refused_by_its_name(tmp_path: Path) -> None:
    def agent(**more: Any) -> WorldAgent:
        return scripted_agent(tmp_path, answering(), **more)

    with pytest.raises(InvalidArgument, match=r"no installed package .* 'note'.*broken, mcp, memory, notes, queue"):
        agent(capabilities=["note"])
    with pytest.raises(InvalidArgument, match=r"the capability 'society' needs arguments.*Members\(\.\.\.\)"):
        agent(capabilities=["society"])
    with pytest.raises(InvalidArgument, match=r"the capability 'broken' cannot be loaded: its module raised KeyError"):
        agent(settings={"capabilities": ("broken",)})
    with pytest.raises(InvalidArgument, match=r"`capabilities` must hold capabilities, got 'int'"):
        agent(capabilities=[3])
    with pytest.raises(NameTaken, match=r"two capabilities 'notes'"):
        agent(capabilities=["notes", "notes"])
    with pytest.raises(InvalidArgument, match="would each open after another"):
        agent(capabilities=[First(), Second()])
    with pytest.raises(FunctionInvalid, match="the input 'message' of the capability 'taken'"):
        agent(capabilities=[Taken()])
    with pytest.raises(TypeError, match="unexpected keyword argument 'capability'"):
        agent(capability=["notes"])
    for name in ("wa_turn", "Notes", "a b", "x;DROP TABLE wa_turn"):
        with pytest.raises(InvalidArgument, match="cannot be the name of an owned table"):
            OwnedTable(name=name)


@pytest.mark.requirement("H10")
async def test_a_setting_switches_it_on_and_get_returns_what_it_offers(tmp_path: Path) -> None:
    class Other(Capability[str]):
        name = "other"

    settings = Settings(capabilities=("notes",)).model_dump(exclude_unset=True)
    async with scripted_agent(tmp_path, answering(), settings=settings, capabilities=[Second()]) as agent:
        from capability_notes import Notes  # type: ignore[import-not-found]

        await agent.get(Notes).add("ana", "1", "likes tea")
        assert await agent.get(Notes).find("ana", "tea") == ["likes tea"]
        assert isinstance(agent.get(Second), Second)
        with pytest.raises(InvalidArgument, match="this agent has no other"):
            agent.get(Other)


@pytest.mark.local
@pytest.mark.requirement("H10")
async def test_the_command_line_switches_it_on_with_an_option(run: Run) -> None:
    asked = await as_json(run, "ask", "--lm", "local", "--with", "notes", "Hi")
    assert asked["status"] == "done"
    told = await refusal(run, "ask", "--lm", "local", "--with", "nots", "Hi")
    assert "no installed package has the capability 'nots'" in str(told)
    told = await refusal(run, "ask", "--with", "notes", "--app", "x:y", "Hi")
    assert "--app and --with exclude each other" in str(told)


@pytest.mark.local
@pytest.mark.requirement("H10")
async def test_its_operations_are_commands(run: Run) -> None:
    written = await as_json(run, "notes", "add", "likes tea", "--account", "ana", "--lm", "local")
    assert written == {"notes": ["likes tea"]}
    assert await as_json(run, "notes", "list", "--account", "ana", "--lm", "local") == written
    told = await refusal(run, "notes", "list", "--lm", "local")
    assert "notes belong to an account" in str(told)
    assert "Lets an agent keep notes" in (await run("--help")).output


@pytest.mark.local
@pytest.mark.requirement("H10")
@pytest.mark.xdist_group("browser")
@pytest.mark.timeout(240)
async def test_its_operations_are_tools_and_paths_and_its_page_is_in_the_console(
    tmp_path: Path, page: Page, browser: Browser
) -> None:
    path = os.pathsep.join((str(tmp_path / "installed"), str(EXAMPLE)))
    site(tmp_path / "installed", {"stuck": "page = Path(__file__).with_name('stuck.js')"})
    (tmp_path / "installed" / "stuck.js").write_text("await new Promise(() => {});")
    browser.allow("The page of the capability stuck cannot be loaded")
    async with serving(tmp_path / "home", "--web", "--with", "notes", "--lm", "local", PYTHONPATH=path) as server:
        root = server.url.removesuffix("/mcp")
        async with http_client_of(server.url, "auto") as client:
            answer = await client.call_tool("notes_add", {"text": "likes tea", "account": "ana"})
        assert answer.structured_content is not None
        assert answer.structured_content.get("notes") == ["likes tea"], answer.structured_content
        await page.add_init_script("""localStorage.setItem("who", '{"account": "ana"}')""")
        await page.goto(f"{root}/console/#/notes")
        await expect(page.locator(".rows li")).to_have_text(["likes tea"])
        await page.get_by_label("A note").fill("likes hats")
        await page.get_by_role("button", name="Write").click()
        await expect(page.locator(".rows li")).to_have_text(["likes hats", "likes tea"])
        assert await page.locator("#pages a").last.text_content() == "Notes"
        await browser.leave()
