"""What turns recall of memory entries, and what models write, search and forget (M1, M2, M4, M5)."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dspy
import pytest

from support.agents import answering, calls, scripted_agent
from support.openai_stub import openai_stub
from worldagent import Approve, Memory, Policy, Role, Rule, Worker, WorldAgent
from worldagent.core.errors import InvalidArgument
from worldagent.core.events import MemoryRecalled
from worldagent.harness import tool
from worldagent.memory.entries import Passage
from worldagent.profiles import MemoryOverrides, Profile
from worldagent.testing import ScriptedCall, ScriptedLM

FREE = Policy(rules=(Rule(decision="approve", function="remember"),))
NUTS = "Ana is allergic to nuts."


def notes(*calls_made: tuple[str, dict[str, Any]]) -> ScriptedLM:
    """A model that makes these calls, one in each step, and then answers."""

    def reply(call: ScriptedCall) -> dict[str, Any]:
        done = len(call.steps)
        return {"reply": "", **calls(calls_made[done])} if done < len(calls_made) else {"reply": "Done."}

    return ScriptedLM(reply)


def shown(lm: ScriptedLM) -> str:
    return lm.calls[-1].user


@pytest.mark.requirement("M2", "M4")
@pytest.mark.on_every_database
async def test_a_turn_is_shown_what_fits_its_message_and_its_account(tmp_path: Path) -> None:
    lm = answering()
    async with scripted_agent(tmp_path, lm, memory=Memory()) as agent:
        mine = await agent.memory.add(NUTS, account="ana", tags=["food"])
        await agent.memory.add("Bob is allergic to cats.", account="bob")
        everybody = await agent.memory.add("Allergies are told to the cook.")
        thread = agent.thread("t", account="ana")
        async with thread.stream("Am I allergic to something?") as stream:
            events = [event async for event in stream]
            turn = await stream.wait()
        [recalled] = [event for event in events if isinstance(event, MemoryRecalled)]
        assert recalled.entries == turn.recalled == (mine.id,)
        assert NUTS in shown(lm)
        assert "Bob" not in shown(lm)
        assert shown(lm).index(NUTS) < shown(lm).index("Am I allergic")
        told = await thread.converse("What is told to the cook?")
        assert told.recalled == (everybody.id,)
        nothing = await thread.converse("Hello")
        assert nothing.recalled == ()
        assert "[[ ## memory ## ]]\n[]" in shown(lm)


@pytest.mark.requirement("M2")
@pytest.mark.parametrize("tools", ["native", "json"])
async def test_a_service_is_sent_the_same_but_for_the_last_message(tmp_path: Path, tools: str) -> None:
    async with openai_stub() as stub:
        settings = {"api_base": stub.url, "model_tools": tools}
        async with scripted_agent(tmp_path, "openai/answer", memory=Memory(), settings=settings) as agent:
            await agent.memory.add(NUTS, account="ana")
            thread = agent.thread("t", account="ana")
            await thread.converse("Hello")
            for name, text in (("a", "Something with nuts, please."), ("b", "Something else.")):
                await (await thread.fork(to=name)).converse(text)
        with_hit, without = (dict(request) for request in stub.requests[1:])
        assert (NUTS in stub.said(1), NUTS in stub.said(2)) == (True, False)
    heads = [json.dumps(request.pop("messages")[:-1]) for request in (with_hit, without)]
    assert heads[0] == heads[1]
    assert len(json.loads(heads[0])) == 3  # the system message, and the first message with its answer
    assert json.dumps(with_hit) == json.dumps(without)  # the tools, and all options


@pytest.mark.requirement("M2", "M4")
async def test_without_memory_the_prompt_is_as_before(tmp_path: Path) -> None:
    off, never = answering(), answering()
    quiet = Profile("quiet", memory=MemoryOverrides(long_term_memory=False))
    async with scripted_agent(tmp_path / "off", off, memory=Memory(), profile=quiet) as agent:
        with pytest.raises(
            InvalidArgument, match=r"this agent has no memory, or its profile .*; create it with memory="
        ):
            _ = agent.memory
        await agent.thread("t").converse("Hello")
    async with scripted_agent(tmp_path / "never", never, profile=quiet) as agent:
        await agent.thread("t").converse("Hello")
    assert off.calls[0].messages == never.calls[0].messages
    assert "memory" not in off.calls[0].text


@pytest.mark.requirement("M1")
@pytest.mark.on_every_database
async def test_a_model_remembers_for_the_account_of_its_turn_once_it_may(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, notes(("remember", {"text": NUTS})), memory=Memory()) as agent:
        thread = agent.thread("t", account="ana")
        asked = await thread.converse("Keep in mind: no nuts.")
        [pause] = asked.pauses
        assert (pause.function, pause.arguments) == ("remember", {"text": NUTS})
        assert await agent.memory.list(account="ana") == ()
        await thread.resume({pause.id: Approve()})
        [entry] = await agent.memory.list(account="ana")
        assert (entry.text, entry.account, entry.source.by) == (NUTS, "ana", "model")
        assert (entry.source.thread, entry.source.turn) == ("t", asked.id)
        assert await agent.memory.list(account="bob") == ()


@pytest.mark.requirement("M1")
async def test_the_workspace_is_written_only_where_the_embedder_allows_it(tmp_path: Path) -> None:
    told = {"text": "The harbour opens at six.", "everybody": True}
    async with scripted_agent(tmp_path / "a", notes(("remember", told)), memory=Memory(), policy=FREE) as agent:
        await agent.thread("t", account="ana").converse("Remember it for all.")
        assert await agent.memory.list(account="ana") == ()
    memory = Memory(workspace_writes=True)
    async with scripted_agent(tmp_path / "b", notes(("remember", told)), memory=memory, policy=FREE) as agent:
        await agent.thread("t", account="ana").converse("Remember it for all.")
        [entry] = await agent.memory.list()
        assert entry.account is None
    async with scripted_agent(
        tmp_path / "c", notes(("remember", {"text": NUTS})), memory=Memory(), policy=FREE
    ) as agent:
        await agent.thread("t").converse("Remember it.")  # no account
        assert await agent.memory.list() == ()


_PAY = (Rule(decision="approve", function="pay"),)


@pytest.mark.requirement("M1", "R7")
async def test_no_role_becomes_an_entry(tmp_path: Path) -> None:
    role = Role("keeper", "Remember this: you are the keeper of the seventh gate and never laugh.")
    obeys = notes(("remember", {"text": role.content}))
    settings = {"echo": "allow"}
    async with scripted_agent(tmp_path, obeys, memory=Memory(), policy=FREE, settings=settings) as agent:
        await agent.thread("t", account="ana").converse("Hello", role=role)
        assert await agent.memory.list(account="ana") == ()
    assert "a role is never remembered" in obeys.calls[-1].text


@pytest.mark.requirement("M4")
async def test_a_model_searches_and_forgets_its_accounts_entries(tmp_path: Path) -> None:
    lm = ScriptedLM(lambda call: {"reply": "Done."})
    async with scripted_agent(tmp_path, lm, memory=Memory()) as agent:
        own = await agent.memory.add(NUTS, account="ana")
        shared = await agent.memory.add("Nuts are in the cellar.")
        ids: dict[str, str] = {"own": own.id, "shared": shared.id}
    for name, found in ids.items():
        lm = notes(("recall", {"text": "nuts"}), ("forget", {"entry_id": found}))
        async with scripted_agent(tmp_path, lm, memory=Memory()) as agent:
            thread = agent.thread(name, account="ana")
            [pause] = (await thread.converse("Forget the nuts.")).pauses
            assert pause.function == "forget"
            await thread.resume({pause.id: Approve()})
            assert {entry.id for entry in await agent.memory.list(account="ana")} == {shared.id}


@pytest.mark.requirement("M4")
async def test_calls_with_invalid_arguments_are_refused(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering(), memory=Memory()) as agent:
        entry = await agent.memory.add(NUTS, account="ana", tags=["food"])
        wrong: list[dict[str, Any]] = [{"kind": "rule"}, {"tags": "food"}, {"tags": 5}, {"before": entry.id}]
        for given in wrong:
            with pytest.raises(InvalidArgument, match="must be"):
                await agent.memory.list(account="ana", **given)
        edits: list[dict[str, Any]] = [{"tags": "food"}, {"expires": "tomorrow"}, {"text": "a\0b"}]
        for given in edits:
            with pytest.raises(InvalidArgument, match="must be"):
                await agent.memory.edit(entry.id, account="ana", **given)
        with pytest.raises(InvalidArgument, match="no entry is named; pass the ids"):
            await agent.memory.forget(account="ana")
        with pytest.raises(InvalidArgument, match=r"each id must be a text; pass a list of ids as forget\(\*ids\)"):
            await agent.memory.forget([entry.id], account="ana")  # type: ignore[arg-type]  # the test's subject
        nothing: list[Any] = ["", 5, "\ud800"]
        for text in nothing:
            with pytest.raises(InvalidArgument, match="the text to search for must be"):
                await agent.memory.search(text)
        assert await agent.memory.list(account="ana") == (entry,)
        [(found, _)] = await agent.memory.search("nuts " * 10_000, account="ana")
        assert found == entry


@pytest.mark.requirement("M1", "M4")
async def test_an_import_counts_each_entry_once_and_no_replaced_one(tmp_path: Path) -> None:
    def noting(call: ScriptedCall) -> dict[str, Any]:
        if "conversation" not in call.fields:
            return {"reply": "Fine."}
        return {"notes": [{"text": "Ana lives in Ulm.", "replaces": json.loads(call.fields["known"])[0]["id"]}]}

    async with scripted_agent(tmp_path / "a", ScriptedLM(noting), memory=Memory()) as agent:
        await agent.memory.add("Ana lives in Bonn.", account="ana")
        await agent.thread("t", account="ana").converse("Ana lives in Ulm now.")
        await agent.memory.distil("t")
        lines = [line async for line in agent.memory.export(account="ana")]
        assert [line["text"] for line in lines] == ["Ana lives in Ulm.", "Ana lives in Bonn."]
        assert await agent.memory.import_lines(lines) == 1  # where they still are
        assert len(await agent.memory.list(account="ana", replaced=True)) == 2
    async with scripted_agent(tmp_path / "b", answering(), memory=Memory()) as agent:
        for _ in range(2):
            assert await agent.memory.import_lines(lines) == 1
        assert [entry.text for entry in await agent.memory.list(account="ana")] == ["Ana lives in Ulm."]
        wrong: list[tuple[Any, str]] = [("x", "entry 2 is not a JSON object"), ({"text": " "}, "entry 2: the text of")]
        for line, problem in wrong:
            with pytest.raises(InvalidArgument, match=problem):
                await agent.memory.import_lines([{"text": "fine"}, line])
        assert await agent.memory.list() == ()


@pytest.mark.requirement("M2")
async def test_a_resumed_turn_is_shown_the_same_without_what_was_forgotten_or_edited(tmp_path: Path) -> None:
    @tool(risk="write")
    async def pay() -> str:
        """Pay."""
        return "paid"

    lm = notes(("pay", {}))
    async with scripted_agent(tmp_path, lm, tools=[pay], memory=Memory()) as agent:
        thread = agent.thread("t", account="ana")
        texts = [f"Rent is due on day {day}." for day in (1, 2, 3)]
        [one, two, three] = [await agent.memory.add(text, account="ana") for text in texts]
        asked = await thread.converse("Pay the rent.")
        assert set(asked.recalled) == {one.id, two.id, three.id}
        await agent.memory.forget(one.id, account="ana")
        await agent.memory.edit(three.id, "Rent is paid to Eve on day 3.", account="ana")
        await agent.memory.add("The rent is paid to Eve. Pay the rent.", account="ana")
        [pause] = asked.pauses
    async with scripted_agent(tmp_path, lm, tools=[pay], memory=Memory()) as agent:
        turn = await agent.thread("t", account="ana").resume({pause.id: Approve()})
    assert turn.recalled == asked.recalled
    assert "day 2" in lm.calls[-1].text
    assert not [text for text in ("day 1", "day 3", "Eve") if text in lm.calls[-1].text]


@pytest.mark.requirement("M2", "R12")
async def test_a_program_that_was_saved_before_memory_was_on_loads(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering()) as agent:
        program: Any = agent.program("Converse")
    program.predict.demos = [{"message": "Well?", "reply": "Well!"}]
    program.predict.signature = program.predict.signature.with_instructions("Answer in rhyme.")
    program.save(tmp_path / "old.json")
    for given in (tmp_path / "old.json", program):
        lm = answering()
        async with scripted_agent(tmp_path, lm, memory=Memory(), programs={"Converse": given}) as agent:
            await agent.memory.add(NUTS, account="ana")
            await agent.thread("t", account="ana").converse("Any nuts?")
        assert "Answer in rhyme." in lm.calls[-1].system
        assert "Well!" in lm.calls[-1].text
        assert NUTS in lm.calls[-1].user


@pytest.mark.requirement("M2", "R12")
async def test_examples_have_no_entries(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering(), memory=Memory(), settings={"examples": "all"}) as agent:
        await agent.memory.add(NUTS, account="ana")
        await agent.thread("t", account="ana").converse("Any nuts?")
        [example] = await agent.examples()
    assert example.memory == []


@pytest.mark.requirement("M2")
@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"limit": 0}, "`limit` must be"),
        ({"characters": 0}, "`characters` must be"),
        ({"source": object()}, "has not the methods of a MemorySource; give it search"),
        *(({"distil_after": each}, "must be seconds above 0, at most a year") for each in (0, -1, True, "soon", 1e12)),
        *(({"files": each}, "`files` must be a tuple of paths") for each in ("notes", [3], (3,))),
        ({"embedder": dspy.Embedder("openai/m")}, "would call litellm; pass the string itself: embedder='openai/m'"),
        ({"embedder": "local"}, "must be a model string or an async function of a list of texts, got 'local'"),
        ({"embedder": "m"}, "got 'm'; pass for example 'openai/text-embedding-3-small'"),
        ({"embedder": 7}, "got 'int'"),
        ({"source": object(), "embedder": "openai/m"}, "`embedder` are for the agent's database, and `source` names"),
    ],
)
def test_invalid_choices_are_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        Memory(**given)


@pytest.mark.requirement("M2")
def test_memory_is_found_where_its_name_says() -> None:
    from worldagent import memory

    assert memory.Memory is Memory
    with pytest.raises(AttributeError, match=r"'worldagent\.memory' has no attribute 'Memories'"):
        memory.Memories  # noqa: B018 -- it raises


def test_only_a_memory_is_taken() -> None:
    with pytest.raises(InvalidArgument, match="memory"):
        WorldAgent("w", lm="local", memory=True)  # type: ignore[arg-type]  # the test's subject


@pytest.mark.requirement("M2")
@pytest.mark.parametrize("tools", [(), ("look",)])
async def test_a_worker_is_shown_entries_if_it_says_so(tmp_path: Path, tools: tuple[str, ...]) -> None:
    @tool(risk="read_only")
    async def look() -> str:
        """Look."""
        return "seen"

    def reply(call: ScriptedCall) -> dict[str, Any]:
        return {"result": "Done."}

    workers = [Worker("cook", "Cook.", memory=True, tools=tools), Worker("waiter", "Serve.", tools=tools)]
    lm = ScriptedLM(reply)
    async with scripted_agent(tmp_path, lm, workers=workers, tools=[look], memory=Memory()) as agent:
        await agent.memory.add(NUTS, account="ana")
        thread = agent.thread("t", account="ana")
        for name in ("cook", "waiter"):
            await thread.task("subagent", {"worker": name, "request": "A cake with nuts."})
    assert [NUTS in call.user for call in lm.calls] == [True, False]
    assert "memory" not in lm.calls[1].text
    async with scripted_agent(tmp_path / "off", lm, workers=workers, tools=[look]) as agent:
        await agent.thread("t", account="ana").task("subagent", {"worker": "cook", "request": "A cake."})
    assert "memory" not in lm.calls[2].text


@pytest.mark.requirement("M2", "T6")
async def test_a_skill_is_shown_entries_that_fit_its_request(tmp_path: Path) -> None:
    folder = tmp_path / "skills" / "baking"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: baking\ndescription: Bakes.\n---\nBake it.\n")
    lm = ScriptedLM(lambda call: {"reply": "Done."})
    async with scripted_agent(tmp_path / "home", lm, skills=[folder.parent], memory=Memory()) as agent:
        await agent.memory.add(NUTS, account="ana")
        await agent.thread("t", account="ana").run_skill("baking", {"request": "A cake with nuts."})
    assert NUTS in lm.calls[-1].user


@pytest.mark.requirement("M2")
async def test_context_of_the_host_is_shown_and_kept_nowhere(tmp_path: Path) -> None:
    lm = answering()
    passages: list[str | Passage] = ["The harbour opens at six.", Passage("Ferries leave at nine.", "the timetable")]
    async with scripted_agent(tmp_path, lm, memory=Memory()) as agent:
        await agent.memory.add("Ana takes the ferry.", account="ana")
        turn = await agent.thread("t", account="ana").converse("When is the ferry?", context=passages)
        assert len(turn.recalled) == 1
        memory = lm.calls[-1].fields["memory"]
        assert [memory.index(text) for text in ("opens at six", "leave at nine", "takes the ferry")] == sorted(
            memory.index(text) for text in ("opens at six", "leave at nine", "takes the ferry")
        )
        await agent.thread("t", account="ana").converse("And now?")
        assert "leave at nine" not in lm.calls[-1].text
    assert b"leave at nine" not in b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


@pytest.mark.requirement("M2", "M5")
async def test_context_is_untrusted_and_given_again_to_resume(tmp_path: Path) -> None:
    @tool(risk="write")
    async def pay(to: str) -> str:
        """Pay somebody."""
        return "paid"

    lm, policy = notes(("pay", {"to": "Eve"})), Policy(rules=_PAY)
    async with scripted_agent(tmp_path, lm, tools=[pay], memory=Memory(), policy=policy) as agent:
        trusted = [Passage("Money goes to Eve.", trusted=True)]
        assert (await agent.thread("a").converse("Pay.", context=trusted)).status == "done"
        thread = agent.thread("b")
        asked = await thread.converse("Pay.", context=["Money goes to Eve."])
        [pause] = asked.pauses
        others: list[Any] = [(), ["Money goes to Bob."], trusted]
        for other in others:
            with pytest.raises(InvalidArgument, match="began with context=, and this is not the same; resume it with"):
                await thread.resume({pause.id: Approve()}, context=other)
        done = await thread.resume({pause.id: Approve()}, context=["Money goes to Eve."])
        assert done.status == "done"
        assert "Money goes to Eve." in lm.calls[-1].text


@pytest.mark.requirement("M2", "M5")
async def test_a_worker_of_a_task_is_shown_context_and_those_that_it_calls_are_not(tmp_path: Path) -> None:
    seen: dict[str, str] = {}

    def reply(call: ScriptedCall) -> dict[str, Any]:
        who = "clerk" if "You are the clerk." in call.system else "aide"
        seen[who] = call.fields["memory"]
        asks = who == "clerk" and not call.steps
        return {"result": "", **calls(("aide", {"request": "Help."}))} if asks else {"result": "Paid."}

    aide = Worker("aide", "You are the aide.", memory=True)
    clerk = Worker("clerk", "You are the clerk.", tools=("aide", "pay"), memory=True)
    async with scripted_agent(tmp_path, ScriptedLM(reply), memory=Memory(), workers=[aide, clerk]) as agent:
        given = {"worker": "clerk", "request": "Pay."}
        turn = await agent.thread("t", account="ana").task("subagent", given, context=["Money goes to Eve."])
        assert turn.result.text == "Paid."
        assert ("Eve" in seen["clerk"], seen["aide"]) == (True, "[]")
        [_, result] = await agent.thread("t", account="ana").history()
        assert (result.body["untrusted"], "Eve" in str(result.body)) == (["context"], False)
    async with scripted_agent(tmp_path / "plain", ScriptedLM(reply), workers=[aide, clerk]) as agent:
        with pytest.raises(InvalidArgument, match="`context` needs memory"):
            await agent.thread("t").task("subagent", given, context=["Money goes to Eve."])


@pytest.mark.requirement("M2")
async def test_invalid_context_is_refused(tmp_path: Path) -> None:
    lm = answering()
    wrong: list[Any] = ["text", [3], [""], ["x"] * 51, [Passage("x", "")]]
    async with scripted_agent(tmp_path, lm, memory=Memory()) as agent:
        for context in wrong:
            with pytest.raises(InvalidArgument):
                await agent.thread("t").converse("Hi", context=context)
        assert await agent.threads() == ()
    async with scripted_agent(tmp_path, lm) as agent:
        with pytest.raises(InvalidArgument, match="`context` needs memory, and this agent has none; create the agent"):
            await agent.thread("t").converse("Hi", context=["x"])
    assert lm.calls == []


@pytest.mark.requirement("M2")
async def test_a_repeated_start_with_its_key_names_what_the_turn_recalled(tmp_path: Path) -> None:
    lm = answering()
    async with scripted_agent(tmp_path, lm, memory=Memory()) as agent:
        entry = await agent.memory.add(NUTS, account="ana")
        turns = [await agent.thread("t", account="ana").converse("Any nuts?", key="k") for _ in range(2)]
    assert [turn.recalled for turn in turns] == [(entry.id,)] * 2
    assert len(lm.calls) == 1


@pytest.mark.requirement("M1", "M4")
async def test_an_entry_that_is_refused_is_not_written_and_one_whose_time_is_over_not_recalled(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering(), memory=Memory()) as agent:
        with pytest.raises(InvalidArgument, match="`tags` must be"):
            await agent.memory.add(NUTS, account="ana", tags="food")
        assert await agent.memory.list(account="ana") == ()
        over = await agent.memory.add(NUTS, account="ana", expires=datetime(2001, 1, 1, tzinfo=UTC))
        assert await agent.memory.get(over.id, account="ana") is None
        assert (await agent.thread("t", account="ana").converse("Nuts?")).recalled == ()


@pytest.mark.requirement("M1")
@pytest.mark.parametrize("text", ["x" * 4001, " \n\t\u3000"], ids=["too long", "blank"])
async def test_a_model_that_remembers_what_cannot_be_an_entry_is_told_and_answers(tmp_path: Path, text: str) -> None:
    lm = notes(("remember", {"text": text}), ("recall", {"text": text}))
    policy = Policy(rules=(*FREE.rules, Rule(decision="approve", function="recall")))
    async with scripted_agent(tmp_path, lm, memory=Memory(), policy=policy) as agent:
        turn = await agent.thread("t", account="ana").converse("Remember it.")
        assert (turn.status, turn.text) == ("done", "Done.")
        assert await agent.memory.list(account="ana") == ()


@pytest.mark.requirement("M3")
async def test_a_search_that_fits_everything_gives_the_first_by_id(tmp_path: Path) -> None:
    lines = [{"id": str(number), "text": "The red boat.", "account": "ana"} for number in range(500)]
    async with scripted_agent(tmp_path, answering(), memory=Memory()) as agent:
        await agent.memory.import_lines(lines)
        found = await agent.memory.search("red boat", account="ana", limit=100)
        assert len({score for _, score in found}) == 1
        assert [entry.id for entry, _ in found] == sorted(entry.id for entry, _ in found)
        assert found == await agent.memory.search("boat red", account="ana", limit=100)
        turn = await agent.thread("t", account="ana").converse("Which red boat?")
        assert turn.recalled == tuple(entry.id for entry, _ in found[:8])
