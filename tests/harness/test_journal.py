"""Calls that are recorded: what a replay gives again, what waits for a person, that no effect happens twice (D8)."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.postgres import new_database, rows
from support.processes import eventually
from support.steps import TURN, Turns, effects, flow_of, turns_of
from worldagent.core.errors import AnswerInvalid, Diverged, EffectLost
from worldagent.core.pauses import Answer, Approve, Happened, NotHappened, Pause, RunAgain
from worldagent.harness import CallContext, tool
from worldagent.harness.journal import JOURNAL, CallRecord, Journal, decision_of
from worldagent.storage import EPOCHS, Database, PostgresAddress


async def interrupted(turns: Turns, under_way: asyncio.Event) -> Pause:
    """Interrupt the turn in the middle of an effect; returns the pause that asks about it."""
    running = asyncio.create_task(turns.drive("main", {}))
    await under_way.wait()
    running.cancel()
    await asyncio.wait({running})
    pauses: list[Pause] = await turns.drive("main", {})
    assert len(pauses) == 1
    return pauses[0]


@pytest.mark.requirement("T5")
@pytest.mark.parametrize(
    ("answer", "outcome", "count"), [(Happened("ok"), "ok", 1), (NotHappened(), "lost", 1), (RunAgain(), "ok x", 2)]
)
async def test_interrupted_effect_is_uncertain(tmp_path: Path, answer: Any, outcome: str, count: int) -> None:
    done: list[str] = []
    cut = asyncio.Event()

    async def body(what: str) -> str:
        done.append(what)
        if len(done) == 1:
            cut.set()
            await asyncio.Event().wait()
        return f"ok {what}"

    async def main(ctx: CallContext) -> Any:
        try:
            return await ctx.call("write", {"what": "x"})
        except EffectLost:
            return "lost"

    async with turns_of(tmp_path, tool(name="write")(body), flow_of(main)) as turns:
        pause = await interrupted(turns, cut)
        assert (pause.kind, pause.function) == ("uncertain", "write")
        await turns.answer(pause, answer)
        assert await turns.drive("main", {}) == outcome
    assert len(done) == count


@pytest.mark.requirement("T5")
async def test_effect_that_happened_is_not_repeated(tmp_path: Path) -> None:
    done: list[str] = []
    cut = asyncio.Event()

    async def body(what: str) -> None:
        done.append(what)
        cut.set()
        await asyncio.Event().wait()

    async def main(ctx: CallContext) -> Any:
        return [await ctx.call("write", {"what": "x"})]

    async with turns_of(tmp_path, tool(name="write")(body), flow_of(main)) as turns:
        pause = await interrupted(turns, cut)
        assert pause.schema == {"type": "null"}
        with pytest.raises(AnswerInvalid, match="does not fit its schema"):
            await turns.answer(pause, Happened(5))
        await turns.answer(pause, Happened())
        assert await turns.drive("main", {}) == [None]
    assert done == ["x"]


@pytest.mark.parametrize(
    ("key", "says"), [(None, "write:"), ("k", "'turn_1/main:.*/write:k' was recorded with another")]
)
async def test_a_body_that_takes_another_path_is_refused_before_any_effect(
    tmp_path: Path, key: str | None, says: str
) -> None:
    done: list[str] = []
    times = 0

    async def main(ctx: CallContext) -> Any:
        nonlocal times
        times += 1
        await ctx.call("write", {"what": f"{times}"}, key=key)
        return await ctx.call("ask", {"what": "x"})

    async with turns_of(tmp_path, effects(done), effects(done, approval=True, name="ask"), flow_of(main)) as turns:
        [pause] = await turns.drive("main", {})
        await turns.answer(pause, Approve())
        with pytest.raises(Diverged, match=says):
            await turns.drive("main", {})
    assert done == ["1"]


async def test_key_with_a_slash_is_not_a_nested_call(tmp_path: Path) -> None:
    done: list[str] = []

    async def main(ctx: CallContext) -> Any:
        return await asyncio.gather(*(ctx.call("ask", {"what": key}, key=key) for key in ("a", "a/b")))

    async with turns_of(tmp_path, effects(done, approval=True, name="ask"), flow_of(main)) as turns:
        first, second = sorted(await turns.drive("main", {}), key=lambda pause: str(pause.arguments["what"]))
        assert await turns.answer(first, Approve())
        assert [pause.id for pause in await turns.drive("main", {})] == [second.id]
        assert done == ["a"]


async def test_withdrawn_call_requires_approval_again(tmp_path: Path) -> None:
    done: list[str] = []

    async def main(ctx: CallContext) -> Any:
        return await ctx.call("ask", {"what": "x"})

    async with turns_of(tmp_path, effects(done, approval=True, name="ask"), flow_of(main)) as turns:
        [pause] = await turns.drive("main", {})
        await turns.journal.withdraw(TURN)
        assert [again.id for again in await turns.drive("main", {})] == [pause.id]
        assert done == []
        assert await turns.answer(pause, Approve())
        assert await turns.drive("main", {}) == "ok x"


def form(schema: Mapping[str, Any]) -> Pause:
    """A question whose answer has a form that somebody else gave."""
    return Pause(id="turn_1/ask:x", kind="question", function="ask_person", schema=schema, since=datetime.now(UTC))


FORMS: list[tuple[dict[str, Any], Any, Any, str]] = [
    ({"pattern": "^(a+)+$"}, "aaa", "a" * 5000 + "!", "value: does not fit pattern"),
    ({"properties": {"a": {"type": "string"}}, "required": ["a"]}, {"a": "x"}, {"a": 7}, "a: should be string"),
    ({"pattern": r"^(?!no)\w+$"}, "yes", 7 * [[]], ""),
]


@pytest.mark.requirement("T4")
@pytest.mark.parametrize(("schema", "fits", "does_not", "problem"), FORMS)
def test_check_of_a_foreign_form_is_bounded(schema: dict[str, Any], fits: Any, does_not: Any, problem: str) -> None:
    assert decision_of(form(schema), Answer(fits)) == {"kind": "answer", "value": fits}
    if not problem:  # what cannot be checked here, whoever asks checks
        assert decision_of(form(schema), Answer(does_not))["value"] == does_not
        return
    with pytest.raises(AnswerInvalid) as caught:
        decision_of(form(schema), Answer(does_not))
    assert f"does not fit its schema ({problem})" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "kept"), [({}, {"colour": "red"}), ({"note": "large"}, {"colour": "red", "note": "large"})]
)
def test_answer_that_leaves_fields_out_has_the_defaults_of_the_form(value: Any, kept: Any) -> None:
    properties: dict[str, Any] = {"colour": {"enum": ["red", "blue"], "default": "red"}, "note": {"type": "string"}}
    for answer in (Answer(value), value):
        found = decision_of(form({"type": "object", "properties": properties, "required": ["colour"]}), answer)
        assert found == {"kind": "answer", "value": kept}
    with pytest.raises(AnswerInvalid, match="does not fit its schema"):
        decision_of(form({"type": "object", "properties": properties, "required": ["note"]}), Answer({}))


def test_arguments_that_are_not_a_mapping_are_refused() -> None:
    arguments: Any = [1]
    pause = Pause(id="turn_1/f:x", kind="approval", function="f", schema={}, since=datetime.now(UTC))
    with pytest.raises(AnswerInvalid, match="the arguments for the pause 'turn_1/f:x' must be a mapping, got 'list'"):
        decision_of(pause, Approve(arguments=arguments))


@pytest.mark.requirement("T4")
def test_a_form_that_leads_back_to_itself_is_not_followed_for_ever() -> None:
    with pytest.raises(AnswerInvalid, match="takes too many steps to check"):
        decision_of(form({"$ref": "#"}), Answer("x"))


WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname=current_database() AND wait_event_type='Lock'"
YES = {"kind": "answer", "value": "yes"}


def question(name: str) -> CallRecord:
    ask = '{"kind": "question", "question": "Is it?"}'
    return CallRecord(
        id=f"turn/{name}", turn="turn", parent="turn", name="ask_person", kind="question", hash="0", state="waiting",
        epoch=1, at=0.0, ask=ask,
    )  # fmt: skip


@pytest.mark.requirement("T4")
async def test_second_answer_waits_and_learns_of_the_first() -> None:
    url = new_database()
    async with aclosing(await Database.open(PostgresAddress(url), schemas=[EPOCHS, JOURNAL])) as database:
        journal = Journal(database)
        await journal.put([question("a"), question("b")], lease=None)
        with psycopg.connect(url) as other:
            other.execute('UPDATE wa_call SET decision=\'{"kind": "answer", "value": "no"}\' WHERE id=\'turn/b\'')
            late = asyncio.create_task(journal.answer("turn", {"turn/b": YES, "turn/a": YES}))
            assert await eventually(lambda: rows(url, WAITING) == [(1,)]), "it did not wait"
            other.commit()
        assert await late == ("turn/b",)
        found = await journal.load("turn")
        assert {name: record.decided for name, record in found.items()} == {
            "turn/a": None,
            "turn/b": {"kind": "answer", "value": "no"},
        }
        assert await journal.answer("turn", {"turn/a": YES}) == ()
        assert await journal.answer("turn", {"turn/a": YES, "turn/c": YES}) == ("turn/a", "turn/c")
