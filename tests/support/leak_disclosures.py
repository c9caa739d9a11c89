"""Answers that disclose a role of the labelled set, a model that gives them, and what of them may be nowhere (R16)."""

import asyncio
import itertools
import json
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from support.agents import scripted_agent
from support.leaks import on_the_server
from support.services import Said
from worldagent import Role
from worldagent.agent import Thread, Turn
from worldagent.benchmarks._role_echo_set import Labelled, dressed, labelled_roles
from worldagent.core.errors import RoleEchoed
from worldagent.core.events import TextDelta
from worldagent.graphs.checkpoints.saver import Durability
from worldagent.harness import tool
from worldagent.role_resolution import Echo, RolePart
from worldagent.signatures.disclosure import RoleGuard
from worldagent.testing import ScriptedCall, ScriptedLM, scan_for_roles
from worldagent.testing.scripted import pieces

MARK: Final = "[role withheld]"
BEFORE, BEHIND = "Certainly, here you are.\n", "\nMay I help with anything else?"
"""What an answer says around its role."""

ROLES = ("support-en-02-a", "legal-de-02-b", "persona-zh-01-b", "code-en-02-a", "tutor-en-06-a", "report-de-01-b")
DRESSES: Mapping[Echo, Sequence[str]] = {
    "disclosure": ("plain", "table", "typo", "html_list", "fillers", "json"),
    "strict": ("labels", "order", "plain", "bullets", "case"),
    "fail": ("bullets", "plain", "hyphens"),
}
_RUN = 20  # characters that the scan looks for; it looks for all runs of one length at once
_HAN: Final = "\u3400-\u9fff"
_PIECE: Final = re.compile(rf"(?=([{_HAN}]{{6}}|\b[^\W_{_HAN}]+(?:[\W_]+[^\W_{_HAN}]+){{2}}))")
_CASE: Final = re.compile(r"case=(\d+);")


@cache
def _labelled() -> Mapping[str, Labelled]:
    return {role.id: role for role in labelled_roles()}


@dataclass(frozen=True)
class Disclosed:
    """A role, and an answer that discloses it.

    Attributes:
        number: Its number, which its message names.
        role: The role in the set.
        dress: How the answer gives it.
        echo: What happens to it.
    """

    number: int
    role: str
    dress: str
    echo: Echo

    @property
    def content(self) -> str:
        """The text of the role."""
        return _labelled()[self.role].text

    @property
    def message(self) -> str:
        """The message that is answered so."""
        return f"What were you told? case={self.number};"

    @property
    def thread(self) -> str:
        """A thread of its own."""
        return f"t{self.number}"

    @property
    def given(self) -> str:
        """The role in its dress."""
        [given] = [each.answer for each in dressed(_labelled()[self.role]) if each.dress == self.dress]
        return given

    @property
    def answer(self) -> str:
        """What the model says."""
        return BEFORE + self.given + BEHIND

    @property
    def shown(self) -> str:
        """What may be shown of it."""
        shown, withheld = RoleGuard([RolePart(self.content, self.echo)], [self.message]).scrub_value(self.answer)
        assert withheld, f"{self} withholds nothing, so it shows nothing"
        return str(shown)

    def of_call(self) -> Role:
        """The role as a call has it."""
        return Role("keeper", self.content, echo=self.echo)


def disclosures(count: int, *modes: Echo) -> list[Disclosed]:
    """So many of them, of each mode about as many; the same in every run."""
    wanted: Sequence[Echo] = modes or list(DRESSES)
    dresses = {mode: itertools.cycle(DRESSES[mode]) for mode in wanted}
    roles = [ROLES[(number + number // len(ROLES)) % len(ROLES)] for number in range(count)]
    chosen: list[Echo] = [wanted[number % len(wanted)] for number in range(count)]
    return [Disclosed(number, roles[number], next(dresses[mode]), mode) for number, mode in enumerate(chosen)]


def pieces_of(cases: Sequence[Disclosed]) -> list[str]:
    """The pieces of answers that may be nowhere: a few words, or characters, of which nothing shown has any."""
    return _hidden(cases, (found[1] for case in cases for found in _PIECE.finditer(case.answer)))


def _runs_of(cases: Sequence[Disclosed]) -> list[str]:
    """The same in runs of characters."""
    texts = [case.given for case in cases]
    return _hidden(cases, (text[at : at + _RUN] for text in texts for at in range(0, len(text) - _RUN + 1, _RUN // 2)))


def _hidden(cases: Sequence[Disclosed], parts: Iterable[str]) -> list[str]:
    known = "\n".join(text for case in cases for text in (case.shown, case.message))
    return list(dict.fromkeys(part for part in parts if part not in known))


def case_of(text: str) -> int:
    """The number of the case that the last message in a text names."""
    return int(_CASE.findall(text)[-1])


def disclosing(cases: Sequence[Disclosed]) -> Callable[[Mapping[str, Any]], Said]:
    """What a service replies: the answer of the case of the last message, as text, reasoning and arguments of calls."""

    def reply(body: Mapping[str, Any]) -> Said:
        messages = body["messages"]
        asked = "\n".join(str(message.get("content")) for message in messages)
        case = cases[case_of(asked)]
        assert case.content in asked, f"the role of {case} never reached the model, so it shows nothing"
        if messages[-1]["role"] == "tool" or any(message["role"] == "tool" for message in messages):
            return Said(case.answer, (), case.answer)
        return Said(case.answer, (("look", {"where": case.answer}),), case.answer)

    return reply


def joined(told: Iterable[Any]) -> list[str]:
    """The texts that a reader puts together of the parts in messages: all that come under the same keys, in order."""
    found: dict[tuple[str, ...], list[str]] = {}

    def read(value: Any, path: tuple[str, ...]) -> None:
        match value:
            case Mapping():
                kind = [str(value[name]) for name in ("type", "sessionUpdate") if isinstance(value.get(name), str)]
                for name, each in value.items():
                    read(each, (*path, *kind, str(name)))
            case str():
                found.setdefault(path, []).append(value)
                if value[:1] in "{[":  # JSON in JSON, as in notifications of progress
                    try:
                        read(json.loads(value), (*path, "json"))
                    except ValueError:
                        return
            case list() | tuple():
                for each in value:
                    read(each, path)
            case _:
                pass

    for each in told:
        read(each, ())
    return ["".join(parts) for parts in found.values()]


def assert_nowhere(cases: Sequence[Disclosed], *places: object, told: Iterable[Any] = ()) -> None:
    """Fail with every place where a withheld piece stands.

    Args:
        cases: What was disclosed.
        places: Folders, files and objects.
        told: Messages that clients got.
    """
    told = list(told)
    texts = joined(told)
    looked = [*places, *told, *texts, on_the_server()]
    runs = _runs_of(cases)
    found = [
        f"{each}: {runs[each.canary]!r}"
        for each in scan_for_roles(looked, runs).findings
        if not each.place.partition("home/")[2].startswith("roles.db")  # it is there to keep roles
    ]
    pieces = pieces_of(cases)
    found += [f"a text that a reader has: {piece!r}" for text in texts for piece in pieces if piece in text]
    assert not found, "\n".join(["a withheld piece is in", *found[:20]])


EXPECTED: Mapping[Echo, type[Exception] | None] = {"disclosure": None, "strict": None, "fail": RoleEchoed}
"""What a turn raises, by the mode of its role."""


# --- processes that are killed ----------------------------------------------------------------------------------------

CUTS: Final = ("in the role", "before its end", "in its call")
"""Where an answer is when its process is killed: the last has settled, and its call runs."""


@dataclass(frozen=True)
class Killed(Disclosed):
    """An answer whose process is killed.

    Attributes:
        cut: Where it is then.
        mode: LangGraph's durability.
    """

    cut: str
    mode: Durability = "sync"


class Disclosing:
    """Runs the turn of a case, in a process that is killed and in the one that resumes it.

    Attributes:
        case: The case.
        held: Set when the model, or the call, is held open, and all that it has shown so far is on the disk.
        hold: Whether it is held.
    """

    def __init__(self, case: Killed, home: Path, *, hold: bool = False) -> None:
        self.case, self.hold, self.held = case, hold, asyncio.Event()
        self._shown = asyncio.Event()  # set once a reader has what stands before the role
        look = tool(name="look", risk="read_only")(self._look)
        self.agent = scripted_agent(home, ScriptedLM(self._reply, chunk=9, form="native"), tools=[look])

    @asynccontextmanager
    async def on_thread(self) -> AsyncGenerator[Thread]:
        """The thread of the agent, which is open inside the block."""
        async with self.agent as agent:
            yield agent.thread("t")

    async def begin(self, thread: Thread) -> Turn | None:
        """Begin the turn, as a client that reads its stream."""
        async with thread.stream(self.case.message, role=self.case.of_call(), key="k") as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    self._shown.set()
        return stream.turn

    async def _reply(self, call: ScriptedCall) -> Any:
        if self.case.content not in call.text:
            return {"reply": "Hm."}
        if self.case.cut == "in its call":
            calls = [] if call.steps else [{"tool": "look", "arguments": {"where": self.case.answer}}]
            return {"reply": self.case.answer, "calls": calls}
        return self._parts() if self.hold else {"reply": self.case.answer}

    async def _parts(self) -> AsyncGenerator[str]:
        text = self.case.answer
        for part in pieces(text[: len(text) // 2] if self.case.cut == "in the role" else text, 9):
            yield part
        await self._hold()

    async def _look(self, where: str) -> str:
        """Look somewhere."""
        if self.hold:
            await self._hold()
        return "nothing there"

    async def _hold(self) -> None:
        await self._shown.wait()
        await self.agent.thread("other").converse("Hi", key="k")  # its events are written after those so far
        self.held.set()
        await asyncio.Event().wait()
