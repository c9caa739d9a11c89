"""An agent as a LangGraph graph, as a node of one, and as a tool of LangChain. The role comes from the context alone.

A node runs again from its start when its graph retries it or resumes it. Its turn has the key of the graph's task, so
each run finds the same turn, and what the graph was resumed with answers its pauses.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from ..core import new_id
from ..core.errors import (
    AgentClosed,
    AlreadyAnswered,
    AnswerInvalid,
    FunctionInvalid,
    InvalidArgument,
    KeyReused,
    NotAnApprover,
    NothingToResume,
    RoleChanged,
    RoleRequired,
    ThreadPaused,
    UnknownPause,
    WorldAgentError,
)
from ..core.pauses import Answer, Approve, Happened, NotHappened, PersonAnswer, Reject, RunAgain
from ..core.validation import is_text
from .graph import GraphContext, context_of, role_in
from .runtime.runner import TurnStream
from .settings import UNSET
from .thread import Thread, within_node
from .turns import Turn

if TYPE_CHECKING:
    from ..graphs.outer import LangChainTool, MessagesGraph, OuterRuntime

NodeMessage: TypeAlias = str | Callable[[Any], str]
NodeAnswer: TypeAlias = str | Callable[[Turn], Any]
NodeThread: TypeAlias = Thread | Callable[["OuterRuntime"], Thread] | None
Node: TypeAlias = Callable[[Any], Awaitable[Any]]

_FORMS: Final[Mapping[str, type[Any]]] = {
    "approve": Approve,
    "reject": Reject,
    "happened": Happened,
    "not_happened": NotHappened,
    "run_again": RunAgain,
}

NODE: Final = "converse"
"""The name of the node of `agent.graph()`."""

_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The names of tools that all model services accept."""


def graph_of(
    open_thread: Callable[..., Thread], name: str, turn: Any, *, checkpointer: Any, account: str | None
) -> MessagesGraph:
    """Return the agent as a graph of messages; see `WorldAgent.graph`.

    It has one node. A turn keeps its own thread, lease and journal.

    Args:
        open_thread: Makes a thread, as `WorldAgent.thread` does.
        name: The workspace of the agent.
        turn: The graph of a turn, which is shown as the node's subgraph.
        checkpointer: The checkpointer of the graph.
        account: The account of runs that name none.
    """
    from ..graphs.outer import messages_graph

    node = node_of(open_thread, context=partial(context_of, own=True, account=account))
    return messages_graph(NODE, node, turn, GraphContext, name=name, checkpointer=checkpointer)


def node_of(
    open_thread: Callable[..., Thread],
    *,
    message: NodeMessage = "messages",
    answer: NodeAnswer = "messages",
    thread: NodeThread = None,
    context: Callable[[OuterRuntime], GraphContext] = context_of,
) -> Node:
    """Return the function of a node; see `WorldAgent.as_node`.

    Args:
        open_thread: Makes a thread, as `WorldAgent.thread` does.
        message: Where the message is.
        answer: Where the answer goes.
        thread: The thread.
        context: Reads the graph's context.

    Raises:
        InvalidArgument: An argument has the wrong type.
    """
    for name, given in (("message", message), ("answer", answer)):
        if not callable(given) and not is_text(given):
            raise InvalidArgument(f"`{name}` must be a key of the state or a function", remedy="pass one of them")
    if thread is not None and not isinstance(thread, Thread) and not callable(thread):
        raise InvalidArgument(
            "`thread` must be a Thread or a function", remedy="pass agent.thread(...), or a function of the runtime"
        )

    async def agent(state: Any) -> Any:
        from ..graphs.outer import message_text, node_runtime, outer_thread_id, task_key

        runtime = node_runtime()
        given = context(runtime)
        if thread is None:
            chosen = open_thread(outer_thread_id(runtime), account=given.account, channel=given.channel)
        else:
            chosen = _thread_of(thread, runtime)
        text = message(state) if callable(message) else message_text(state, message)
        of_task = _NodeTurn(chosen, text, task_key(runtime), runtime, given)
        turn = await of_task.run()
        return answer(turn) if callable(answer) else of_task.update(answer, turn)

    return agent


def tool_of(open_thread: Callable[[str], Thread], *, name: str, description: str, thread: NodeThread) -> LangChainTool:
    """Return the agent as a tool of LangChain; see `WorldAgent.as_tool`.

    Raises:
        InvalidArgument: An argument has the wrong type, a text is blank, or model services refuse the name.
    """
    from ..graphs.outer import ToolWaits, apart, langchain_tool, outer_runtime

    for label, given in (("name", name), ("description", description)):
        if not is_text(given):
            raise InvalidArgument(f"`{label}` must be a text that is not blank", remedy="say what the agent is for")
    if not _TOOL_NAME.fullmatch(name):
        raise InvalidArgument(
            f"`name` must be 1 to 64 letters, digits, '_' or '-', got {name[:80]!r}, which model services refuse",
            remedy=f"use a name such as {re.sub('[^A-Za-z0-9_-]+', '_', name)[:64]!r}",
        )
    if thread is not None and not isinstance(thread, Thread):
        raise InvalidArgument("`thread` must be a Thread", remedy="pass agent.thread(...), or omit it")

    async def run(text: str) -> str:
        runtime = outer_runtime()
        chosen = open_thread(new_id("tool")) if thread is None else thread
        role = None if runtime is None else role_in(runtime.context)
        try:
            with apart():
                turn = await chosen.converse(text, role=role)
        except ThreadPaused as error:  # an earlier call on the same thread waits
            problem, turn_id = error.problem, error.turn_id
        else:
            if turn.status != "paused":
                return _done(turn).text
            problem, turn_id = f"the turn {turn.id!r} of thread {turn.thread!r} waits for a person", turn.id
        waiting = ToolWaits(
            problem,
            remedy="say that it waits, and do not call the tool again for it; the host answers with "
            f"agent.thread({chosen.scope.thread!r}).resume(), or uses agent.as_node() in place of the tool",
        )
        waiting.turn_id = turn_id
        raise waiting

    return langchain_tool(name, description, run)


def read_answers(given: object) -> dict[str, PersonAnswer]:
    """Read the answers that a graph was resumed with, as JSON: forms such as `{"approve": {}}` by the ids of pauses.

    Raises:
        AnswerInvalid: They are not; the text names the pause and no value.
    """
    if not isinstance(given, Mapping):
        raise AnswerInvalid(
            "the answers must be an object",
            remedy="resume with Command(resume={pause_id: answer}), with the ids of the interrupt's pauses",
        )
    return {str(pause_id): _read(str(pause_id), answer) for pause_id, answer in given.items()}


def _read(pause_id: str, answer: object) -> PersonAnswer:
    name = f"the answer to the pause {pause_id[:200]!r}"
    if isinstance(answer, Mapping) and len(answer) == 1:
        [(form, body)] = cast("Mapping[str, Any]", answer).items()
        if form == "answer":
            return Answer(body)
        if form in _FORMS:
            kind = _FORMS[form]
            names = [field.name for field in fields(kind)]
            if isinstance(body, Mapping) and set(body) <= set(names):
                made: PersonAnswer = kind(**body)
                return made
            raise AnswerInvalid(
                f"{name} is invalid", remedy=f"{form} is an object with {', '.join(names) or 'no field'}"
            )
    raise AnswerInvalid(
        f"{name} must be an object with exactly one form of answer",
        remedy=f"give one of {', '.join([*_FORMS, 'answer'])}, such as {{'approve': {{}}}}",
    )


class _NodeTurn:
    """The turn of one task of the outer graph, whether this run of the node begins it or finds it.

    While an earlier turn of the thread waits for a person, the graph is interrupted for that one first: the message of
    the task is sent once it is over.
    """

    def __init__(self, thread: Thread, text: str, key: str, runtime: OuterRuntime, given: GraphContext) -> None:
        from ..graphs.outer import shows_tasks, view_of_node

        self._view = view_of_node()
        self._thread, self._text, self._key, self._runtime = within_node(thread, self._view), text, key, runtime
        self._given, self._subagents = given, shows_tasks(self._view)
        self._before: dict[str, Turn] = {}  # earlier turns of the thread that this run of the node has resumed
        self._message_ids: dict[str, str] = {}  # by turn, of the answers that the graph's stream has shown

    async def run(self) -> Turn:
        """Run the turn to its end, and interrupt the graph while it waits for a person.

        Raises:
            RoleRequired, RoleChanged: The graph was resumed without the role, or with another one.
            InvalidArgument: It was resumed with another account, channel, inputs or message.
            FunctionInvalid: The turn waits for a person, and the graph has no checkpointer.
        """
        failure: WorldAgentError
        try:
            return await self._run()
        except (RoleRequired, RoleChanged) as error:
            failure = type(error)(error.problem, remedy=_restore_role(self._thread.scope.thread))
            failure.turn_id = error.turn_id
        except KeyReused:  # the key is the task's; the caller may be another account, so this does not name the turn
            failure = InvalidArgument(
                "the graph was run again with another account, channel, inputs or message than those that the turn of "
                "its task began with",
                remedy="run it again with None as its input and the context that the turn began with",
            )
        raise failure

    def update(self, key: str, turn: Turn) -> dict[str, Any]:
        """Return the update of the graph's state.

        Args:
            key: The key of the answer. For `messages`, the answers of the earlier turns come first.
            turn: The turn of the task.
        """
        from ..graphs.outer import MESSAGES, answer_message

        if key != MESSAGES:
            return {key: turn.text}
        ended = [each for each in (*self._before.values(), turn) if each.status == "done"]
        return {
            key: [
                answer_message(each.text, self._message_ids.get(each.id, each.id), each.to_json(), each.usage)
                for each in ended
            ]
        }

    async def _run(self) -> Turn:
        from ..graphs.outer import ask, has_checkpointer

        turn, problem = await self._own(), None
        while turn.status == "paused" or turn.id in self._before:
            if turn.status != "paused":
                self._before[turn.id] = _done(turn) if turn.status == "stopped" else turn
                turn = await self._own()
                continue
            if not has_checkpointer():
                raise _with_turn(
                    FunctionInvalid(
                        f"the turn {turn.id!r} waits for a person, but a graph without checkpointer cannot be resumed",
                        remedy="compile the graph with one: compile(checkpointer=InMemorySaver()); this turn ends with "
                        f"agent.thread({self._thread.scope.thread!r}).resume() or cancel()",
                    ),
                    turn,
                )
            given = ask(_asked(turn, problem))
            turn, problem = await self._answered(turn, given)
        return _done(turn)

    async def _own(self) -> Turn:
        """Return the turn of the task; or, while an earlier turn of its thread waits for a person, that one.

        Raises:
            ThreadPaused: An earlier turn is another account's or was stopped, or the graph cannot be interrupted.
        """
        from ..graphs.outer import has_checkpointer

        if await self._thread.repeats(self._key):  # it has streamed its events in the run that began it
            return await self._found()
        try:
            return await self._streamed(self._turn_stream())
        except ThreadPaused:
            state = await self._thread.state()
            pauses = tuple(pause for pause in await self._thread.pauses() if not pause.answered)
            if state is None or state.account != self._thread.scope.account or not pauses or not has_checkpointer():
                raise
        self._before[state.turn_id] = waiting = Turn(
            id=state.turn_id, thread=state.thread, status="paused", pauses=pauses
        )
        return waiting

    def _turn_stream(self) -> TurnStream:
        # Detached: a run of the node that times out, or fails with another node, must not cancel the turn of the task.
        given = self._given
        return self._thread.stream(
            self._text, role=given.role, inputs=given.inputs, key=self._key, detach=True, subagents=self._subagents
        )

    async def _found(self) -> Turn:
        from ..graphs.outer import apart

        with apart():
            async with self._turn_stream() as stream:
                return await stream.wait()

    async def _answered(self, turn: Turn, given: object) -> tuple[Turn, str | None]:
        """Resume the turn with the answers; returns it, and why they were not accepted.

        A refused answer does not raise: the graph would pass it to each later run of the node, before a better one.
        """
        role = UNSET if self._given.role is None else self._given.role
        try:
            answers = read_answers(given)
            stream = self._thread.stream_resume(answers, role=role, detach=True, subagents=self._subagents)
            return await self._streamed(stream), None
        except (AlreadyAnswered, NothingToResume):  # by an earlier run of the node, or by another caller
            pass
        except (AnswerInvalid, NotAnApprover, UnknownPause) as error:
            return turn, str(error)
        return await (self._own() if turn.id in self._before else self._found()), None

    async def _streamed(self, stream: TurnStream) -> Turn:
        from ..graphs.outer import AnswerPieces, apart

        async with AsyncExitStack() as opened:
            with apart():  # the turn runs in a task of its own, which must not see the graph
                await opened.enter_async_context(stream)
            pieces = await opened.enter_async_context(AnswerPieces(self._view, self._text))
            async for event in stream:
                self._runtime.stream_writer(event.model_dump(mode="json"))
                await pieces.take(event)
            if pieces.message_id is not None:
                self._message_ids[stream.turn.id] = pieces.message_id
        return stream.turn


def _restore_role(thread: str | None) -> str:
    """What the user of a graph can do, who cannot pass arguments to `resume`."""
    return (
        "run the graph again with None as its input and the role that the turn began with (a call role as its context, "
        "or as `role` in that; set a stored one again), or first resume the turn without it: "
        f"agent.thread({thread!r}).resume(answers, on_role_change='refresh')"
    )


def _asked(turn: Turn, problem: str | None) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "turn": turn.id,
        "thread": turn.thread,
        "pauses": [pause.to_json() for pause in turn.pauses],
    }
    return asked if problem is None else {**asked, "problem": problem}


def _done(turn: Turn) -> Turn:
    """Return a turn that is done.

    Raises:
        AgentClosed: It was stopped and can be resumed.
        NothingToResume: It was cancelled or abandoned.
    """
    if turn.status == "done":
        return turn
    if turn.status == "stopped":
        raise _with_turn(
            AgentClosed(
                f"the turn {turn.id!r} was stopped because the agent closes",
                remedy="run the graph again with None as its input once the agent is open",
            ),
            turn,
        )
    raise _with_turn(
        NothingToResume(f"the turn {turn.id!r} was {turn.status}", remedy="run the graph with a new message"), turn
    )


def _with_turn(error: WorldAgentError, turn: Turn) -> WorldAgentError:
    error.turn_id = turn.id
    return error


def _thread_of(thread: Thread | Callable[[OuterRuntime], Thread], runtime: OuterRuntime) -> Thread:
    chosen = thread if isinstance(thread, Thread) else thread(runtime)
    if isinstance(chosen, Thread):
        return chosen
    raise InvalidArgument(
        f"the function `thread` must return a Thread, got {type(chosen).__name__!r}", remedy="return agent.thread(...)"
    )
