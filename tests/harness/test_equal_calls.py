"""Equal calls of one body: by order where they follow each other, by `key=` where they run at the same time (D8)."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.steps import Turns, flow_of, turns_of
from worldagent.core import Emitter, Scope, SystemClock
from worldagent.core.errors import CallRefused, Diverged, InvalidArgument
from worldagent.core.pauses import Approve, Reject
from worldagent.harness import CallContext, Function, Registry, call, tool
from worldagent.harness.journal import Drive, frame

pytestmark = pytest.mark.requirement("T5")


class Line:
    """Lets the branches of a first run pass in a chosen order; when they run again, nothing holds them."""

    def __init__(self, order: list[int]) -> None:
        self._order = order
        self._gates = {branch: asyncio.Event() for branch in order}
        self._gates[order[0]].set()

    def function(self) -> Function:
        async def pass_by(branch: int) -> int:
            await asyncio.wait_for(self._gates[branch].wait(), 30)
            return branch

        made: Function = tool(name="pass_by")(pass_by)
        return made

    def next(self, branch: int) -> None:
        after = self._order[self._order.index(branch) + 1 :]
        if after:
            self._gates[after[0]].set()


def tickets() -> Function:
    """Gives 0, 1, 2 and so on: a call that is made again must get the same one."""
    given_out: list[int] = []

    async def ticket() -> int:
        given_out.append(len(given_out))
        return given_out[-1]

    made: Function = tool(name="ticket")(ticket)
    return made


def marks(done: list[str], *, approval: bool = False) -> Function:
    async def mark(what: str = "") -> str:
        done.append(what)
        return what

    made: Function = tool(name="mark", approval=approval)(mark)
    return made


async def driven(turns: Turns, answer: Callable[[int], Any]) -> Any:
    """Drive the turn to its end, answering one pause a run."""
    count = 0
    while isinstance(found := await turns.drive("main", {}), list) and found and not isinstance(found[0], str):
        assert await turns.answer(found[0], answer(count))
        count += 1
    return found


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.permutations(range(4)), st.integers(1, 3))
def test_keyed_calls_keep_their_results(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], rounds: int
) -> None:
    async def run() -> None:
        line, seen, done = Line(order), list[tuple[int, tuple[int, ...]]](), list[str]()

        async def branch(ctx: CallContext, number: int) -> str:
            await ctx.call("pass_by", {"branch": number})
            mine = tuple([await ctx.call("ticket", {}, key=str(number)) for _ in range(rounds)])
            seen.append((number, mine))
            line.next(number)
            await ctx.ask_person("go on?", key=str(number))
            return str(await ctx.call("mark", {"what": f"{number}: {mine}"}))

        async def main(ctx: CallContext) -> Any:
            return list(await asyncio.gather(*(branch(ctx, number) for number in range(4))))

        functions = (line.function(), tickets(), marks(done), flow_of(main))
        async with turns_of(tmp_path_factory.mktemp("home"), *functions) as turns:
            result = await driven(turns, lambda count: "yes")
        first = dict(seen[:4])
        assert {number for number, _ in seen[:4]} == set(range(4))
        assert all(first[number] == mine for number, mine in seen)
        assert result == [f"{number}: {first[number]}" for number in range(4)]
        assert sorted(done) == sorted(result)

    asyncio.run(run())


async def test_an_interrupted_call_with_a_key_does_not_take_the_result_of_its_equal(tmp_path: Path) -> None:
    """Nothing is recorded of the interrupted call, and it is first in line when the turn runs again."""
    looks, cut = list[int](), asyncio.Event()

    async def look() -> int:
        looks.append(len(looks))
        if len(looks) == 2:
            cut.set()
            await asyncio.Event().wait()
        return looks[-1]

    async def short(ctx: CallContext) -> str:
        await ctx.ask_person("go on?")
        return f"short {await ctx.call('look', {}, key='short')}"

    async def long(ctx: CallContext) -> str:
        for number in range(5):
            await ctx.call("mark", {"what": str(number)})
        return f"long {await ctx.call('look', {}, key='long')}"

    async def main(ctx: CallContext) -> Any:
        return list(await asyncio.gather(short(ctx), long(ctx)))

    functions = (tool(name="look", idempotent=True)(look), marks([]), flow_of(main))
    async with turns_of(tmp_path, *functions) as turns:
        [pause] = await turns.drive("main", {})
        await turns.answer(pause, "yes")
        running = asyncio.create_task(turns.drive("main", {}))
        await asyncio.wait_for(cut.wait(), 30)
        running.cancel()
        await asyncio.wait([running], timeout=30)
        assert await turns.drive("main", {}) == ["short 2", "long 0"]


async def test_equal_calls_one_after_the_other_need_no_key(tmp_path: Path) -> None:
    async def main(ctx: CallContext) -> Any:
        got = [await ctx.call("ticket", {})]
        got += await asyncio.gather(ctx.call("ticket", {}))
        got.append(await asyncio.create_task(ctx.call("ticket", {})))
        return [*map(str, got), await ctx.ask_person("go on?"), await ctx.ask_person("go on?")]

    async with turns_of(tmp_path, tickets(), flow_of(main)) as turns:
        assert await driven(turns, lambda count: f"yes {count}") == ["0", "1", "2", "yes 0", "yes 1"]


@pytest.mark.parametrize("key", [None, "a"])
async def test_a_second_equal_call_that_starts_while_the_first_runs_is_refused(tmp_path: Path, key: str | None) -> None:
    done: list[str] = []

    async def main(ctx: CallContext) -> Any:
        calls = [ctx.call("mark", {"what": "a"}, key=key), ctx.call("mark", {"what": "a"}, key=key)]
        with contextlib.suppress(InvalidArgument):
            await asyncio.gather(*calls)
        await ctx.call("mark", {"what": "b"})

    async with turns_of(tmp_path, marks(done), flow_of(main)) as turns:
        for _ in range(2):  # and it is so when the turn runs again
            with pytest.raises(InvalidArgument, match="of 'mark' run at the same time") as caught:
                await turns.drive("main", {})
            assert "key=" in caught.value.remedy
    assert done == ["a"]


async def test_kept_turn_with_concurrent_equal_calls_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier versions let them through. They come again in the order of their numbers."""
    done: list[str] = []

    async def main(ctx: CallContext) -> Any:
        return sorted(await asyncio.gather(*(ctx.call("mark", {"what": "a"}) for _ in range(3))))

    async def let_through(*_: Any) -> None:
        return

    async with turns_of(tmp_path, marks(done, approval=True), flow_of(main)) as turns:
        with monkeypatch.context() as earlier:
            earlier.setattr(frame.Frame, "_refuse", let_through)
            pauses = await turns.drive("main", {})
        assert len({pause.id for pause in pauses}) == 3
        for pause in pauses:
            assert await turns.answer(pause, Approve())
        assert await turns.drive("main", {}) == ["a", "a", "a"]
    assert done == ["a", "a", "a"]


@pytest.mark.parametrize("answer", [Approve(), Reject("no")])
async def test_a_body_that_ends_without_what_it_waited_for_is_refused(tmp_path: Path, answer: Any) -> None:
    done: list[str] = []
    again: list[bool] = []

    async def main(ctx: CallContext) -> Any:
        if not again:
            await ctx.call("mark", {"what": "paid"})
        return "done"

    async with turns_of(tmp_path, marks(done, approval=True), flow_of(main)) as turns:
        [pause] = await turns.drive("main", {})
        again.append(True)
        with pytest.raises(Diverged, match="mark:"):
            await turns.drive("main", {})  # while it waits
        await turns.answer(pause, answer)
        with pytest.raises(Diverged, match="mark:"):
            await turns.drive("main", {})
        again.clear()
        if isinstance(answer, Approve):
            assert await turns.drive("main", {}) == "done"
    assert done == ["paid"] * isinstance(answer, Approve)


async def test_call_of_a_cancelled_branch_is_not_made_by_a_resume(tmp_path: Path) -> None:
    """A sibling failed before the branch came to its call; when all is there at once, it must not come to it either."""
    done, failing = list[str](), asyncio.Event()

    async def fail(what: str) -> str:
        if what == "late":
            await asyncio.wait_for(failing.wait(), 10)
        raise CallRefused(f"{what} fails", remedy="do without it")

    async def charges(ctx: CallContext) -> None:
        for number in range(3):
            await ctx.call("mark", {"what": str(number)})
        failing.set()
        if not again:
            await asyncio.Event().wait()
        await ctx.call("mark", {"what": "charged"})

    async def fails(ctx: CallContext) -> None:
        await ctx.call("fail", {"what": "late"})

    again: list[bool] = []

    async def main(ctx: CallContext) -> Any:
        with contextlib.suppress(CallRefused):
            await ctx.call("fail", {"what": "early"})
        branches = [asyncio.create_task(each) for each in (charges(ctx), fails(ctx))]
        await asyncio.wait(branches, return_when=asyncio.FIRST_EXCEPTION)
        branches[0].cancel()
        await asyncio.wait(branches)
        return [await ctx.ask_person("go on?")]

    functions = (tool(name="fail", idempotent=True)(fail), marks(done), flow_of(main))
    async with turns_of(tmp_path, *functions) as turns:
        [pause] = await turns.drive("main", {})
        again.append(True)
        await turns.answer(pause, "yes")
        assert await turns.drive("main", {}) == ["yes"]
    assert done == ["0", "1", "2"]


async def test_equal_calls_of_a_context_of_the_host_are_refused() -> None:
    @tool(risk="read_only")
    async def look() -> int:
        await asyncio.sleep(0)
        return 1

    clock = SystemClock()
    ctx = CallContext(
        scope=Scope(workspace="w"),
        registry=Registry([look]),
        emit=Emitter("turn", clock, lambda event: None),
        frame=frame.Frame(Drive("turn", clock=clock), "turn", 0),
    )
    first, second = await asyncio.gather(*(call("look", {}, ctx) for _ in range(2)), return_exceptions=True)
    assert first == 1
    assert isinstance(second, InvalidArgument)
    assert "two equal calls of 'look' run at the same time" in second.problem
