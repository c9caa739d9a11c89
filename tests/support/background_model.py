"""What docs/guides/background.md says of tasks and their reports, in plain code: who is told what, when, and how often.

It is written from the documentation and imports nothing of the package, so that both can only be wrong together by
being wrong in the same way.
"""

from dataclasses import dataclass, field

CHAIN = 1
"""How many turns in a row reports begin."""


@dataclass
class Told:
    """Something that the conversation has not read.

    Attributes:
        text: It.
        begins: Whether it begins a turn if none runs.
        chain: How many reports in a row have begun turns, with this one.
    """

    text: str
    begins: bool
    chain: int = 0


@dataclass
class Work:
    """A background task.

    Attributes:
        report: What its reports do.
        chain: How many reports in a row have begun turns, with its own.
        phase: `working`, `paused`, or `over`.
    """

    report: str
    chain: int
    phase: str = "working"


@dataclass
class Rules:
    """A conversation and its tasks.

    Attributes:
        log: What was said: `message` began a turn, a turn read a `word`, `answer` ended one.
        unread: What it is told and has not read.
        turn: The message that began the open turn; None if no turn runs.
        chain: How many reports in a row have begun turns, up to this turn.
        works: Its tasks, in the order in which they were dispatched.
    """

    log: list[tuple[str, str]] = field(default_factory=list)
    unread: list[Told] = field(default_factory=list)
    turn: str | None = None
    chain: int = 0
    works: list[Work] = field(default_factory=list)

    def say(self, text: str) -> None:
        """A person says something where no turn runs."""
        self._begin(Told(text, begins=True))

    def steer(self, text: str) -> None:
        """A person says something to the running turn."""
        self.unread.append(Told(text, begins=True))

    def dispatch(self, report: str) -> None:
        """Host code dispatches a task."""
        self.works.append(Work(report, 1))

    def call(self) -> None:
        """The turn dispatches a task, and thinks again."""
        self.works.append(Work("turn", self.chain + 1))
        self._read()

    def answer(self) -> None:
        """The turn ends."""
        self.log.append(("answer", f"re {self.turn}"))
        self.turn = None
        self._next()

    def tell(self, number: int, what: str, phase: str) -> None:
        """A task ends, or waits for a person."""
        work = self.works[number]
        work.phase = phase
        if work.report != "event":
            begins = work.report == "turn" and what != "was cancelled" and work.chain <= CHAIN
            self.unread.append(Told(f"{number} {what}", begins, work.chain))
            self._next()

    def cancel(self) -> None:
        """The turn is cancelled, and all tasks, which tell nothing of that."""
        self.turn = None
        for work in self.works:
            work.phase = "over"
        self._next()

    def remove(self) -> None:
        """Nothing of the conversation and its tasks is left."""
        self.log, self.unread, self.turn, self.works = [], [], None, []

    def _begin(self, told: Told) -> None:
        self.turn, self.chain = told.text, told.chain
        self.log.append(("message", told.text))
        self._read()

    def _read(self) -> None:
        self.log += [("word", told.text) for told in self.unread]
        self.unread = []

    def _next(self) -> None:
        first = next((told for told in self.unread if told.begins), None)
        if self.turn is None and first is not None:
            self.unread.remove(first)
            self._begin(first)
