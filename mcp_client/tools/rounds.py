"""Calls in rounds of work on the server: with questions to a person between them (T4), or as a task of the server (T5).

A server can ask, and a server to which each account logs in for itself can need a login. Each round and each question
is a step of the call's own frame, so answers survive a restart. A server of the revision 2026-07-28 ends a round to
ask, and gets the answers with the next one, so nothing is held open. An older server asks during the call. That call
stays open in this process while the person thinks. If it is lost, it is made again, and answered questions get their
answers at once.

A server with tasks can end the first round with the id of a task. The round's record is where the id is kept, so the
call is not made again after a restart of either side: the next round asks for the state of the task until it ends or
asks a person, and is repeated if it is interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from ...core import canonical_json
from ...core.errors import CallRefused, FunctionInvalid, McpLoginRequired, McpServerInvalid, McpServerUnavailable
from ...harness import CallContext
from ...harness.context import Question, ask_person
from ...harness.journal import SUSPENDED, Ask, Step
from ...harness.schema import result_of
from .following import CallTask
from .results import CONTENT, can_repeat, made_by
from .server import Asked, CallTool, ToolAnswer, ToolSpec

if TYPE_CHECKING:
    from .source import McpSource

_ASKS: Final = "$asks"
"""The key that marks a recorded round as one that is not the last. The result of a server cannot have it.

It has the questions for a person, which can be none. Beside it are the server's `state` for the next round, or the id
of the `task` that goes on with the call; without one, a task that the call had is unknown to the server.
"""

MAX_QUESTIONS: Final = 10  # the limit of questions in one call
GO_ON, DECLINE = "continue", "do not log in"
"""The answers to the question for a login."""

_LONGEST: Final = 2000  # the limit of characters of a question
HOLD_SECONDS: Final = 3600.0  # seconds that a call is held open while a person thinks
MAX_OPEN_CALLS: Final = 32  # the limit of open calls of one server


@dataclass(frozen=True, slots=True)
class _Answered:
    """A question of the server, and the person's answer; None declines."""

    asked: Asked
    answer: Any

    @property
    def json(self) -> dict[str, Any]:
        return {**asdict(self.asked), "answer": self.answer}


@dataclass(slots=True, eq=False)
class _Open:
    """A running call of the server, and the question that it waits with, if any."""

    known: dict[str, Any]
    task: asyncio.Task[ToolAnswer] = field(init=False)
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    asked: Asked | None = None
    answer: asyncio.Future[Any] | None = None
    limit: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Abandon it, and notify the server."""
        if self.limit is not None:
            self.limit.cancel()
        self.task.cancel()


class Rounds:
    """The calls of one server during which a person can be asked.

    Args:
        source: The server.
    """

    def __init__(self, source: McpSource) -> None:
        self._source = source
        self._open: dict[str, _Open] = {}
        self._active: _Open | None = None
        self._turn = asyncio.Lock()

    async def call(self, spec: ToolSpec, arguments: Mapping[str, Any], ctx: CallContext) -> Any:
        """Make a call in rounds, and ask between them; see `McpSource.call`."""
        task = CallTask(self._source, spec.name, ctx)
        try:
            return await self._until_over(spec, arguments, task, ctx)
        except (asyncio.CancelledError, Exception) as error:
            task.cancel_after(error)
            raise

    async def _until_over(self, spec: ToolSpec, arguments: Mapping[str, Any], task: CallTask, ctx: CallContext) -> Any:
        answered: list[_Answered] = []
        new: list[_Answered] = []
        state: str | None = None
        current = ""  # the id of the task
        number = lost = 0
        while True:
            if current:
                given = await self._look(spec, answered, new, task, ctx)
            else:
                given = await self._round(spec, arguments, answered, state, task, ctx, doubtful=lost > 0)
            asks = given.get(_ASKS) if isinstance(given, dict) else None
            if not isinstance(asks, list):
                return given
            state, then = given.get("state"), given.get("task", "")
            if then != current:
                answered = []  # a task has keys of its own for questions
                lost += not then
                if lost > 1 and can_repeat(spec, self._source.server):
                    raise self._source.failures.forgets().error()
            task.take(then)
            current, new = then, []
            for each in asks:
                new.append(await self._ask(Asked(**each), number, ctx))
                number += 1
            answered = [*answered, *new]

    async def read(self, ctx: CallContext, /, *, uri: str) -> Any:
        """Read a resource; see `McpSource.read`."""
        return await self._step(ctx, {"uri": uri}, lambda: self._source.read_for(ctx, uri=uri))

    async def log_in(self, ctx: CallContext) -> None:
        """Ask the person to log in, unless that is done."""
        await self._step(ctx, {}, self._source.connect)

    async def elicit(self, asked: Asked) -> Any:
        """Answer a server that asks during a call: the answer, or None."""
        call = self._active
        if call is None:
            return None
        known = _key(asked)
        if known in call.known:
            return call.known.pop(known)
        call.asked, call.answer = asked, asyncio.get_running_loop().create_future()
        call.moved.set()
        return await call.answer

    def close(self) -> None:
        """Abandon all calls that are held open."""
        for path in list(self._open):
            self._drop(path)

    # --- one round --------------------------------------------------------------------------------------------------

    async def _round(
        self,
        spec: ToolSpec,
        arguments: Mapping[str, Any],
        answered: Sequence[_Answered],
        state: str | None,
        task: CallTask,
        ctx: CallContext,
        *,
        doubtful: bool,
    ) -> Any:
        """Let the server work, as a step, until it finishes, asks or makes a task."""
        given = {"arguments": dict(arguments), "answers": [each.json for each in answered], "state": state}

        async def work() -> Any:
            with self._source.progress(ctx) as progress:
                request = CallTool(
                    tool=spec.name,
                    arguments=arguments,
                    progress=progress,
                    answers={each.asked.key: each.answer for each in answered if each.asked.key},
                    state=state,
                )
                outcome = await self._work(request, answered, ctx.path)
                if isinstance(outcome, ToolAnswer) and outcome.task is not None:
                    task.begin(outcome.task, progress)
                    return {_ASKS: [], "task": task.id}
            if isinstance(outcome, Asked):
                return {_ASKS: [asdict(outcome)]}
            if outcome.asks and self._source.server.elicitation:
                return {_ASKS: [asdict(asked) for asked in outcome.asks], "state": outcome.state}
            return await self._given(spec, outcome, ctx)

        def result() -> dict[str, Any]:
            return result_of(spec.name, CONTENT if spec.result is None else spec.result).json_schema()

        once = not can_repeat(spec, self._source.server)
        return await self._step(ctx, given, work, once=once, doubtful=doubtful, result_schema=result)

    async def _given(self, spec: ToolSpec, answer: ToolAnswer, ctx: CallContext) -> Any:
        value = await self._source.given(spec, answer, ctx)
        if isinstance(value, dict) and _ASKS in value:
            raise self._source.failures.invalid(f"must answer without the key {_ASKS!r}").error()
        return value

    async def _step(
        self,
        ctx: CallContext,
        given: Any,
        work: Callable[[], Awaitable[Any]],
        *,
        doubtful: bool = False,
        **more: Any,
    ) -> Any:
        """Do something as a step. If that needs the login of an account, ask the person for it, and do it again."""
        frame, name = ctx.frame, ctx.path.rpartition("/")[2].partition(":")[0]
        asked = 0
        while True:
            call_id = await frame.child(name, given)

            async def body(_: Any, call_id: str = call_id) -> Any:
                with made_by(call_id):
                    return await work()

            try:
                step = Step(id=call_id, parent=frame.path, name=name, kind="round", input=given, body=body, **more)
                step.doubtful = doubtful and not asked  # before it asks for the login it does nothing
                return await frame.do(step)
            except McpLoginRequired:
                if self._source.account is None or not frame.drive.can_ask or asked == MAX_QUESTIONS:
                    raise
            await self._ask_to_log_in(ctx, again=asked > 0)
            asked += 1

    async def _ask_to_log_in(self, ctx: CallContext, *, again: bool) -> None:
        """Ask the person of the turn's account, as a step. It has no link: a link has secrets, and is made later."""
        name, account, failures = self._source.name, self._source.account, self._source.failures
        why = f"The MCP server {name!r} {'still ' if again else ''}needs a login of the account {account!r}."
        # In a browser the person has a button for it, and no terminal.
        text = f"{why} Log in, then continue. At a terminal, {failures.login}."
        question = Question.of(text, (GO_ON, DECLINE), None, None)
        question = replace(question, ask=replace(question.ask, login=name))
        if await ask_person(ctx, question, "log_in") == DECLINE:
            raise CallRefused(f"a person declined to log in to MCP server {name!r}", remedy="do without it")

    async def _work(self, request: CallTool, answered: Sequence[_Answered], path: str) -> ToolAnswer | Asked:
        """Make the call, or continue the one that is held open, until it finishes or asks."""
        seconds = self._source.server.timeout
        await self._source.connect()
        if self._source.asks_in_rounds or not self._source.server.elicitation:
            return await self._source.send(request, seconds)
        # An older server does not say which call a question belongs to, so its calls are made one by one.
        async with _held(self._turn, seconds, self._source.name):
            call = self._open.pop(path, None)
            if call is None or not self._takes(call, answered):
                if call is not None:
                    call.close()
                call = _Open({_key(each.asked): each.answer for each in answered})
                call.task = asyncio.create_task(self._source.send(request, HOLD_SECONDS))
            return await self._until(call, path)

    def _takes(self, call: _Open, answered: Sequence[_Answered]) -> bool:
        """Whether a call that is held open waits for the last answer, and accepts it."""
        last = answered[-1] if answered else None
        if last is None or call.task.done() or call.asked is None or _key(call.asked) != _key(last.asked):
            return False
        assert call.answer is not None
        if call.limit is not None:
            call.limit.cancel()
        call.moved.clear()
        call.asked = None
        call.answer.set_result(last.answer)
        return True

    async def _until(self, call: _Open, path: str) -> ToolAnswer | Asked:
        self._active = call
        moved = asyncio.ensure_future(call.moved.wait())
        kept = False
        try:
            done, _ = await asyncio.wait(
                {call.task, moved}, timeout=self._source.server.timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if call.task in done:
                return call.task.result()
            if not done:
                raise self._source.failures.late(self._source.server.timeout).error()
            assert call.asked is not None
            self._hold(call, path)
            kept = True
            return call.asked
        finally:
            self._active = None
            moved.cancel()
            if not kept:
                call.close()

    def _hold(self, call: _Open, path: str) -> None:
        while len(self._open) >= MAX_OPEN_CALLS:
            self._drop(next(iter(self._open)))
        self._open[path] = call
        call.limit = asyncio.get_running_loop().call_later(HOLD_SECONDS, self._drop, path)

    def _drop(self, path: str) -> None:
        call = self._open.pop(path, None)
        if call is not None:
            call.close()

    # --- a task -----------------------------------------------------------------------------------------------------

    async def _look(
        self,
        spec: ToolSpec,
        answered: Sequence[_Answered],
        new: Sequence[_Answered],
        task: CallTask,
        ctx: CallContext,
    ) -> Any:
        """Follow the task of a call, as a step that can be repeated, until it ends or asks, or the turn is stopped."""
        known = {each.asked.key for each in answered}
        answers = {each.asked.key: each.answer for each in new}

        async def work() -> Any:
            with self._source.progress(ctx) as progress:
                found = await task.follow(known, answers, progress)
            if found is SUSPENDED:
                return SUSPENDED
            if found is None:
                return {_ASKS: []}
            if found.asks and self._source.server.elicitation:
                return {_ASKS: [asdict(asked) for asked in found.asks if asked.key not in known], "task": task.id}
            return await self._given(spec, found, ctx)

        return await self._step(ctx, {"task": task.id, "answers": [each.json for each in answered]}, work)

    # --- one question -----------------------------------------------------------------------------------------------

    async def _ask(self, asked: Asked, number: int, ctx: CallContext) -> _Answered:
        """Ask a person, as a step. In the run that asks first this does not return."""
        name = self._source.name
        try:
            if number >= MAX_QUESTIONS:
                raise McpServerInvalid(
                    f"MCP server {name!r} must ask at most {MAX_QUESTIONS} questions in one call",
                    remedy="do without it",
                )
            question = self._question(asked)
            return _Answered(asked, await ask_person(ctx, question, str(number)))
        except Exception:
            self._drop(ctx.path)
            raise

    def _question(self, asked: Asked) -> Question:
        name = self._source.name
        # No answer, which is None, declines.
        schema = {**asked.schema, "type": ["object", "null"]}
        text = asked.message.encode("utf-8", "replace").decode()[:_LONGEST]
        try:
            answer = result_of(f"a question of MCP server {name}", schema)
        except FunctionInvalid as error:
            problem = error.problem
        else:
            said = f"The MCP server {name!r} asks: {text}"
            return Question(Ask(kind="question", question=said, schema=schema), answer)
        raise McpServerInvalid(
            f"MCP server {name!r} must ask a person with a valid form: {problem}", remedy="do without it"
        )


@contextlib.asynccontextmanager
async def _held(lock: asyncio.Lock, seconds: float, name: str) -> AsyncGenerator[None]:
    """Hold `lock`, after waiting until it is free."""
    late = False
    try:
        async with asyncio.timeout(seconds):
            await lock.acquire()
    except TimeoutError:
        late = True
    if late:
        raise McpServerUnavailable(
            f"MCP server {name!r} was busy with another call for more than {seconds:g} s", remedy="try again later"
        )
    try:
        yield
    finally:
        lock.release()


def _key(asked: Asked) -> str:
    return canonical_json([asked.message, asked.schema])
