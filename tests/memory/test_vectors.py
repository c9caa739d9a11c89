"""Search of memory entries by vectors: other words with the same meaning find an entry (M3)."""

import asyncio
import logging
import math
import sys
from collections.abc import Callable
from contextvars import copy_context
from pathlib import Path
from typing import Any

import dspy
import numpy as np
import pytest

from support.agents import answering, calls, scripted_agent
from support.databases import ENGINES, Engine, made, storage_of
from support.homes import selected
from support.memory_tables import replace_entry
from support.openai_stub import openai_stub
from worldagent import Memory, Policy, Role, Rule, WorldAgent
from worldagent.agent.copying import copy_storage
from worldagent.core import Embedder
from worldagent.core.errors import EmbedderFailed, MissingExtra, ModelNotConfigured
from worldagent.memory.entries import nearest, vectors
from worldagent.storage.schema import packed
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("M3")

MEANINGS = (("nuts", "almonds"), ("boat", "vessel"), ("opens", "hours"))
NUTS, BOAT = "Ana eats no nuts.", "The boat is blue."


class Meanings:
    """An embedder whose vectors have one number for each of a few meanings.

    Attributes:
        seen: All texts that it got.
        contexts: How many context variables there were.
        fail: Replaces the vectors.
    """

    name = "meanings"

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.contexts: set[int] = set()
        self.fail: Callable[[list[list[float]]], Any] | None = None

    async def __call__(self, texts: list[str], /) -> Any:
        self.seen += texts
        self.contexts.add(len(copy_context()))
        vectors = [[float(any(word in text.lower() for word in words)) for words in MEANINGS] for text in texts]
        return vectors if self.fail is None else self.fail(vectors)


def broken(vectors: list[list[float]]) -> Any:
    raise ConnectionError("secret text of the service")


def on(home: Path) -> dict[str, Any]:
    """What makes an agent use the database of a home."""
    url = storage_of(home).url
    return {"settings": {"database_url": url}} if url else {}


async def found(agent: WorldAgent, text: str, account: str | None = None) -> list[str]:
    return [entry.text for entry, _ in await agent.memory.search(text, account=account)]


@pytest.mark.on_every_database
async def test_other_words_with_the_same_meaning_find_an_entry_of_the_reader(tmp_path: Path) -> None:
    lm = answering()
    async with scripted_agent(tmp_path, lm, memory=Memory(embedder=Meanings())) as agent:
        await agent.memory.add(NUTS, account="ana")
        await agent.memory.add("Bob sells nuts.", account="bob")
        await agent.memory.add(BOAT)
        assert await found(agent, "almonds", "ana") == [NUTS]
        assert await found(agent, "almonds", "bob") == ["Bob sells nuts."]
        assert await found(agent, "almonds") == []
        turn = await agent.thread("t", account="ana").converse("May I have almonds?")
        assert len(turn.recalled) == 1
        assert NUTS in lm.calls[-1].user
        assert "Bob" not in lm.calls[-1].user


@pytest.mark.on_every_database
async def test_ranks_by_words_and_by_vectors_are_joined(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering(), memory=Memory(embedder=Meanings())) as agent:
        both = await agent.memory.add("The vessel has a red sail.")
        await agent.memory.add("A red lamp.")
        await agent.memory.add(BOAT)
        first, *others = await agent.memory.search("red vessel")
        assert first[0].id == both.id
        assert {entry.text for entry, _ in others} == {"A red lamp.", BOAT}


@pytest.mark.on_every_database
async def test_a_changed_replaced_or_forgotten_entry_keeps_no_old_vector(tmp_path: Path) -> None:
    embedder = Meanings()
    async with scripted_agent(tmp_path, answering(), memory=Memory(embedder=embedder)) as agent:
        entry = await agent.memory.add(NUTS)
        await agent.memory.edit(entry.id, "Ana has a boat.")
        assert (await found(agent, "almonds"), await found(agent, "vessel")) == ([], ["Ana has a boat."])
        embedder.fail = broken
        await agent.memory.edit(entry.id, "Ana eats no nuts again.")
        assert await selected(agent, "SELECT * FROM wa_entry_vector") == []
        embedder.fail = None
        newer = await agent.memory.add("Ana eats nuts now.")
        assert {*await found(agent, "almonds")} == {"Ana eats no nuts again.", "Ana eats nuts now."}
        source = agent._runner.parts.stores.entries
        await replace_entry(source, agent.workspace, entry.id, newer.id)
        assert await found(agent, "almonds") == ["Ana eats nuts now."]
        await agent.memory.forget(newer.id)
        assert await found(agent, "almonds") == ["Ana eats no nuts again."]


@pytest.mark.on_every_database
async def test_a_vector_of_a_text_that_changed_meanwhile_is_not_stored(tmp_path: Path) -> None:
    embedder = Meanings()
    asked, may = asyncio.Event(), asyncio.Event()

    async def slow(texts: list[str]) -> list[list[float]]:
        asked.set()
        await may.wait()
        vectors: list[list[float]] = await embedder(texts)
        return vectors

    plain = scripted_agent(tmp_path, answering(), memory=Memory())
    async with scripted_agent(tmp_path, answering(), memory=Memory(embedder=slow)) as agent, plain as other:
        adding = asyncio.create_task(agent.memory.add(NUTS))
        await asyncio.wait_for(asked.wait(), 20)
        [entry] = await other.memory.list()
        await other.memory.edit(entry.id, BOAT)
        may.set()
        await adding
        assert (await found(agent, "almonds"), await found(agent, "vessel")) == ([], [BOAT])
        assert embedder.seen.count(BOAT) == 1


@pytest.mark.on_every_database
async def test_entries_without_vectors_get_them_when_an_agent_opens(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering(), memory=Memory()) as agent:
        for number in range(70):
            await agent.memory.add(f"Shop {number} sells nuts.")
    embedder, done = Meanings(), asyncio.Event()

    async def noticing(texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = await embedder(texts)
        if len(embedder.seen) == 70:
            done.set()
        return vectors

    async with scripted_agent(tmp_path, answering(), memory=Memory(embedder=noticing)) as agent:
        await asyncio.wait_for(done.wait(), 20)
        await agent.memory.add(BOAT)  # it comes after what is made in the background
        assert len(await agent.memory.search("almonds", limit=100)) == 70
    other = Meanings()
    other.name = "other"
    async with scripted_agent(tmp_path, answering(), memory=Memory(embedder=other)) as agent:
        await agent.memory.add(NUTS)
        assert len(await agent.memory.search("almonds", limit=100)) == 71
        assert len(other.seen) == 73


@pytest.mark.on_every_database
async def test_a_failing_embedder_loses_no_entry_and_no_turn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    embedder, lm = Meanings(), answering()
    embedder.fail = broken
    async with scripted_agent(tmp_path, lm, memory=Memory(embedder=embedder)) as agent:
        with caplog.at_level(logging.WARNING, "worldagent.memory"):
            await agent.memory.add(NUTS, account="ana")
            await agent.thread("t", account="ana").converse("What about nuts?")
        assert NUTS in lm.calls[-1].user
        assert "Memory is searched by words alone: the embedder 'meanings' failed with ConnectionError" in caplog.text
        assert "secret" not in caplog.text
        with pytest.raises(EmbedderFailed, match=r"'meanings' failed with ConnectionError; correct it, or try again"):
            await agent.memory.search("nuts", account="ana")
        embedder.fail = None
        await agent.memory.add(BOAT)
        assert await found(agent, "almonds", "ana") == [NUTS]


WRONG: dict[str, tuple[Callable[[list[list[float]]], Any], str]] = {
    "count": (lambda vectors: [*vectors, vectors[0]], "returned 2 vectors for 1 texts"),
    "kind": (lambda vectors: {"a": 1}, "returned something other than a list for 1 texts"),
    "texts": (lambda vectors: [["a", "b", "c"]], "returned something other than vectors"),
    "nan": (lambda vectors: [[math.nan, 0.0, 0.0]], "returned something other than vectors"),
    "infinite": (lambda vectors: [[math.inf, 0.0, 0.0]], "returned something other than vectors"),
    "empty": (lambda vectors: [[]], "returned something other than vectors"),
    "long": (lambda vectors: [[1.0] * 8193], "lists of finite numbers, all of the same length, from 1 to 8,192"),
    "booleans": (lambda vectors: [[True, False, True]], "returned something other than vectors"),
}


async def test_a_wrong_answer_of_an_embedder_is_a_typed_error(tmp_path: Path) -> None:
    embedder = Meanings()
    async with scripted_agent(tmp_path, answering(), memory=Memory(embedder=embedder)) as agent:
        for embedder.fail, problem in WRONG.values():
            with pytest.raises(EmbedderFailed, match=problem):
                await agent.memory.search("nuts")


@pytest.mark.on_every_database
async def test_vectors_of_another_length_are_not_mixed_with_those_that_are_stored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    embedder = Meanings()
    async with scripted_agent(tmp_path, answering(), memory=Memory(embedder=embedder)) as agent:
        await agent.memory.add(NUTS)
        embedder.fail = lambda vectors: [[*vector, 1.0] for vector in vectors]
        with caplog.at_level(logging.WARNING, "worldagent.memory"):
            await agent.memory.add(BOAT)
        assert "returned a vector of 4 numbers, and those that are stored have 3; give an embedder that" in caplog.text
        with pytest.raises(EmbedderFailed, match="a vector of 4 numbers, and those that are stored have 3"):
            await agent.memory.search("boat")


async def test_an_embedder_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "MAX_EMBED_SECONDS", 0.01)

    async def hangs(texts: list[str]) -> list[list[float]]:
        await asyncio.Event().wait()
        return []

    async with scripted_agent(tmp_path, answering(), memory=Memory(embedder=hangs)) as agent:
        assert (await agent.memory.add(NUTS)).text == NUTS
        with pytest.raises(EmbedderFailed, match=r"hangs' did not answer within 0.01 s; check its service"):
            await agent.memory.search("nuts")


async def test_a_forgotten_vector_is_in_no_file(tmp_path: Path) -> None:
    embedder = Meanings()
    embedder.fail = lambda rows: [[0.6, 0.64, 0.48] for _ in rows]
    trace = packed([0.6, 0.64, 0.48])

    def kept() -> bool:
        return any(trace in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())

    async with scripted_agent(tmp_path, answering(), memory=Memory(embedder=embedder)) as agent:
        entry = await agent.memory.add(NUTS)
        assert kept()
        await agent.memory.forget(entry.id)
        assert not kept()


async def test_a_function_that_is_not_async_is_refused_at_its_first_call(tmp_path: Path) -> None:
    def plain(texts: list[str]) -> list[list[float]]:
        return [[1.0] for _ in texts]

    given: Any = plain
    async with scripted_agent(tmp_path, answering(), memory=Memory(embedder=given)) as agent:
        with pytest.raises(EmbedderFailed, match="is not async; make it an `async def` function"):
            await agent.memory.search("nuts")


async def test_an_embedder_of_dspy_over_a_function_is_used_and_caches_nothing(tmp_path: Path) -> None:
    seen: list[str] = []

    def numbers(texts: list[str]) -> Any:
        seen.extend(texts)
        return np.array([[float("nuts" in text or "almonds" in text), 0.5] for text in texts], dtype=np.float32)

    given: Any = dspy.Embedder(numbers)
    async with scripted_agent(tmp_path, answering(), memory=Memory(embedder=given)) as agent:
        await agent.memory.add(BOAT)
        await agent.memory.add(NUTS)
        assert await found(agent, "almonds") == [NUTS, BOAT]
        await found(agent, "almonds")
        assert seen.count("almonds") == 2


async def test_a_file_needs_numpy_for_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(MissingExtra, match=r"run pip install 'worldagent\[memory\]', or omit the embedder"):
        await scripted_agent(tmp_path, answering(), memory=Memory(embedder=Meanings())).start()


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_copy_to_the_other_engine_has_the_vectors(tmp_path: Path, engine: Engine) -> None:
    homes = [made(each, tmp_path / each) for each in sorted(ENGINES, key=lambda each: each != engine)]
    embedder = Meanings()
    async with scripted_agent(homes[0], answering(), memory=Memory(embedder=embedder), **on(homes[0])) as agent:
        await agent.memory.add(NUTS)
        before = await agent.memory.search("almonds")
    await copy_storage(storage_of(homes[0]), storage_of(homes[1]))
    async with scripted_agent(homes[1], answering(), memory=Memory(embedder=embedder), **on(homes[1])) as agent:
        assert await agent.memory.search("almonds") == before
    assert embedder.seen == [NUTS, "almonds", "almonds"]


async def test_a_server_without_pgvector_is_searched_by_words_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(vectors, "PGVECTOR", "SELECT false, null")
    home, embedder = made("postgres", tmp_path / "home"), Meanings()
    with caplog.at_level(logging.WARNING, "worldagent.memory"):
        async with scripted_agent(home, answering(), memory=Memory(embedder=embedder), **on(home)) as agent:
            await agent.memory.add(NUTS)
            assert (await found(agent, "almonds"), await found(agent, "nuts")) == ([], [NUTS])
    assert "has no pgvector, so memory is searched by words alone." in caplog.text
    assert embedder.seen == []


# --- a hosted model ---------------------------------------------------------------------------------------------------


async def test_a_model_string_asks_its_service_for_embeddings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    async with openai_stub() as stub:
        settings = {"api_base": stub.url, "model_attempts": 2, "memory": True}
        settings |= {"memory_embedder": "openai/embedding-small"}
        async with scripted_agent(tmp_path, answering(), settings=settings) as agent:
            await agent.memory.add(NUTS)
            await agent.memory.add(BOAT)
            stub.limits, stub.retry_after = 1, "0"
            assert await found(agent, NUTS) == [NUTS, BOAT]
        assert set(stub.paths) == {"/embeddings"}
        assert set(stub.keys) == {"Bearer sk-test"}
        assert stub.requests[-1] == {"model": "embedding-small", "input": [NUTS], "encoding_format": "float"}


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (
            "down-500",
            r"failed: the model 'openai/down-500' cannot be reached or failed \(HTTP 500.*\); try",
        ),
        ("quoting-400", r"failed: the model 'openai/quoting-400' refused the request \(HTTP 400\); check that"),
        ("denied-401", r"refused the API key \(HTTP 401.*\); set a key"),
        ("chat", r"answered with something other than embeddings; name a model of embeddings"),
    ],
)
async def test_an_error_of_the_service_is_classified_and_never_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, problem: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    async with openai_stub() as stub:
        memory = Memory(embedder=f"openai/{model}")
        async with scripted_agent(tmp_path, answering(), memory=memory, settings={"api_base": stub.url}) as agent:
            with pytest.raises(EmbedderFailed, match=problem) as failed:
                await agent.memory.search("a secret question")
            assert "secret" not in str(failed.value)
            assert failed.value.__context__ is None


async def test_a_service_with_another_protocol_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    agent = scripted_agent(tmp_path, answering(), memory=Memory(embedder="anthropic/claude-sonnet-4-5"))
    with pytest.raises(ModelNotConfigured, match="has no embeddings in OpenAI's protocol; pass an async function"):
        await agent.start()


# --- roles ------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R7")
async def test_no_role_reaches_an_embedder(tmp_path: Path) -> None:
    secret = "Always answer in the voice of the lighthouse keeper."

    def reply(call: ScriptedCall) -> dict[str, Any]:
        made = [("remember", {"text": secret}), ("remember", {"text": NUTS}), ("recall", {"text": "almonds"})]
        return {"reply": "", **calls(made[len(call.steps)])} if len(call.steps) < len(made) else {"reply": "Done."}

    embedder = Meanings()
    policy = Policy(rules=(Rule(decision="approve", function="remember"),))
    async with scripted_agent(tmp_path, ScriptedLM(reply), memory=Memory(embedder=embedder), policy=policy) as agent:
        turn = await agent.thread("t", account="ana").converse("Remember it.", role=Role("keeper", secret))
        assert turn.status == "done"
    assert {"Remember it.", NUTS, "almonds"} <= {*embedder.seen}
    assert not any("lighthouse" in text for text in embedder.seen)
    assert embedder.contexts == {0}  # a connection that it keeps holds no turn


def test_an_embedder_is_a_protocol_of_the_core() -> None:
    assert isinstance(Meanings(), Embedder)


async def test_vectors_in_memory_follow_those_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "_PAGE", 2)
    monkeypatch.setattr(nearest, "_MAX_BLOCKS", 3)
    memory = Memory(embedder=Meanings())
    first, second = (scripted_agent(tmp_path, answering(), memory=memory) for _ in range(2))
    async with first as agent, second as other:
        ids: list[str] = []
        for number in range(9):
            entry = await (agent, other)[number % 2].memory.add(f"Shop {number} sells nuts.")
            ids.append(entry.id)
            assert {each.id for each, _ in await agent.memory.search("almonds", limit=100)} == {*ids}
        await other.memory.forget(ids.pop(3))
        await other.memory.edit(ids[0], BOAT)
        assert {each.id for each, _ in await agent.memory.search("almonds", limit=100)} == {*ids[1:]}
        monkeypatch.setattr(nearest, "MAX_KEPT_BYTES", 0)  # too many to keep
        assert {each.id for each, _ in await agent.memory.search("almonds", limit=100)} == {*ids[1:]}
