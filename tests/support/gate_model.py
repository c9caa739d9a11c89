"""What docs/guides/approvals.md says of a tree of calls, in plain code: what is asked, what happens, in which order.

It is written from the documentation and imports nothing of the package, so that both can only be wrong together by
being wrong in the same way.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

Kind = Literal["leaf", "flow", "shape", "thinking", "worker", "map"]
Said = Literal["approve", "reject", "always", "any", "notes/changed", "etc/changed"]


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A leaf: what it does to the world, whether strangers wrote what it gives, whether it always asks."""

    risk: frozenset[str]
    untrusted: bool = False
    approval: bool = False


READS = frozenset({"read_only"})
TOOLS: Mapping[str, Tool] = {
    "look": Tool(risk=READS),
    "write": Tool(risk=frozenset({"write"})),
    "send": Tool(risk=frozenset({"network"})),
    "both": Tool(risk=frozenset({"write", "network"})),
    "unsaid": Tool(risk=frozenset({"write", "network"})),
    "erase": Tool(risk=frozenset({"destructive"})),
    "wipe": Tool(risk=frozenset({"write", "destructive"})),
    "fetch": Tool(risk=READS, untrusted=True),
    "post": Tool(risk=frozenset({"network"}), untrusted=True),
    "careful": Tool(risk=READS, approval=True),
    "stamp": Tool(risk=frozenset({"write"}), approval=True),
    "plug.put": Tool(risk=frozenset({"write", "network"}), untrusted=True),
}
HOSTILE: Mapping[str, frozenset[str]] = {
    "notes/a\n": frozenset({"notes/*", "under notes", "under etc"}),
    "etc\n/x": frozenset({"etc/x", "*/x", "under notes", "under etc"}),
    "e\x00tc/x": frozenset({"etc/x", "*/x", "under notes", "under etc"}),
    "notes/../etc/x": frozenset({"notes/*", "etc/x", "*/x", "under etc"}),
    "../app/notes/a": frozenset({"notes/*", "etc/x", "*/x", "under notes", "under etc"}),
    "etc\\x": frozenset({"etc/x", "*/x", "under notes", "under etc"}),
    "~/notes/a": frozenset({"under notes", "under etc"}),
    "/srv/etc/x": frozenset({"*/x", "under notes", "under etc"}),
    "./etc/x": frozenset({"etc/x", "*/x", "under etc"}),
    "notes//a/.": frozenset({"notes/*", "under notes"}),
}
"""Paths that are not as they look, and what of `notes/*`, `etc/x`, `*/x` and the folders each may be meant as."""

SURE: Mapping[str, frozenset[str]] = {
    "notes/../etc/x": frozenset({"under etc"}),
    "/srv/etc/x": frozenset({"*/x"}),
    "./etc/x": frozenset({"*/x", "under etc"}),
    "notes//a/.": frozenset({"notes/*", "under notes"}),
}
"""What they surely are."""

INNER = Tool(risk=READS)
"""What flows, workers and shapes are to the gate."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """One call and what it calls.

    Attributes:
        name: What is called.
        path: The argument of a leaf.
        together: Whether its calls are made side by side.
        brittle: Whether a call that is refused ends it.
        times: How many items a map has, of its one child.
    """

    kind: Kind
    name: str
    path: str = ""
    children: "tuple[Node, ...]" = ()
    together: bool = False
    brittle: bool = False
    times: int = 1


@dataclass(frozen=True, kw_only=True)
class Line:
    """A rule of the policy: `path` is a glob over the argument of that name, `under` the folder it is in."""

    decision: Literal["approve", "ask", "refuse"]
    function: str = "*"
    risk: frozenset[str] = frozenset()
    caller: str = "*"
    path: str | None = None
    under: str | None = None
    after: str | None = None
    times: int = 20


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a person is asked."""

    function: str
    path: str
    caller: str


class Refused(Exception):
    """A call was not allowed; `heard` says whether a model had a say in that."""

    def __init__(self, *, heard: bool) -> None:
        super().__init__()
        self.heard = heard


@dataclass(kw_only=True)
class Model:
    """One turn.

    Attributes:
        lines: The policy's rules.
        default: What becomes of a call that no rule matches.
        times: What an `always` stands for.
        person: What a person says to a function with a path; approves, if left out.
        second: What they say where the policy refused what they put in its place.
        asked: What was asked, in order.
        done: What happened, in order.
    """

    lines: tuple[Line, ...] = ()
    default: Literal["ask", "refuse"] = "ask"
    times: int = 20
    person: Mapping[tuple[str, str], Said] = field(default_factory=dict)
    second: Literal["approve", "reject"] = "approve"
    asked: list[Asked] = field(default_factory=list)
    done: list[tuple[str, str]] = field(default_factory=list)
    marks: set[str] = field(default_factory=set, init=False)
    _used: Counter[int | None] = field(default_factory=Counter, init=False)
    _always: dict[tuple[str, str], int] = field(default_factory=dict, init=False)
    _covered: set[tuple[str, str, object]] = field(default_factory=set, init=False)

    def call(self, node: Node, caller: str, *, model_influenced: bool) -> bool:
        """Make a call; whether a model had a say in what it gives.

        Raises:
            Refused: It was not allowed, or what it called was not and it did not go on.
        """
        path = self._leave(node, caller, model_influenced=model_influenced)
        if node.kind == "leaf":
            self.done.append((node.name, path))
            if TOOLS[node.name].untrusted:
                self.marks.add(node.name)
            return False
        heard = node.kind in ("thinking", "worker")
        for child in node.children * node.times:
            try:
                heard |= self.call(child, node.name, model_influenced=model_influenced or heard)
            except Refused as refused:
                heard |= refused.heard
                if node.brittle:
                    raise Refused(heard=heard) from None
        return heard

    def _leave(self, node: Node, caller: str, *, model_influenced: bool) -> str:
        """The path that a call may be made with."""
        match self._decided(node, node.path, caller, model_influenced=model_influenced):
            case "approve":
                return node.path
            case "refuse":
                raise Refused(heard=False)
            case _:
                return self._answered(node, caller, model_influenced=model_influenced)

    def _answered(self, node: Node, caller: str, *, model_influenced: bool) -> str:
        asked = Asked(function=node.name, path=node.path, caller=caller)
        self.asked.append(asked)
        said: str = self.person.get((node.name, node.path), "approve")
        if said in ("notes/changed", "etc/changed"):
            if self._allows(node, said, caller, model_influenced=model_influenced):
                return said
            self.asked.append(asked)
            said = self.second
        if said == "reject":
            raise Refused(heard=False)
        if said in ("always", "any"):
            self._always.setdefault((node.name, caller), self.times)
            self._covered.add((node.name, caller, _arguments(node) if said == "always" else None))
        return node.path

    def _allows(self, node: Node, path: str, caller: str, *, model_influenced: bool) -> bool:
        """Whether a person may put this path in the place of what was asked: unless the policy refuses it."""
        line = self._line(node, path, caller)
        if line is not None:
            return self.lines[line].decision != "refuse"
        return True

    def _decided(self, node: Node, path: str, caller: str, *, model_influenced: bool) -> str:
        tool = TOOLS.get(node.name, INNER)
        found = self._line(node, path, caller)
        line = None if found is None else self.lines[found]
        if line is not None and line.decision == "refuse":
            return "refuse"
        said = self._by_policy(tool, found, model_influenced=model_influenced)
        if said == "ask" and self._always_may(node, tool, caller):
            return "approve"
        if said == "approve" and found is not None and tool.risk != READS and model_influenced and not tool.approval:
            self._used[found] += 1
        return said

    def _by_policy(self, tool: Tool, found: int | None, *, model_influenced: bool) -> str:
        line = None if found is None else self.lines[found]
        if line is not None and line.decision == "ask":
            return "ask"
        if tool.risk == READS or not model_influenced:
            said = "approve"
        elif line is None:
            said = self.default
        else:
            strange = bool(self.marks) and line.after is None
            over = self._used[found] >= line.times
            said = "ask" if "destructive" in tool.risk or strange or over else "approve"
        return "ask" if said == "approve" and tool.approval else said

    def _always_may(self, node: Node, tool: Tool, caller: str) -> bool:
        name = node.name
        left = self._always.get((name, caller), 0)
        covered = {(name, caller, None), (name, caller, _arguments(node))} & self._covered
        if not left or not covered or "destructive" in tool.risk or (self.marks and tool.risk != READS):
            return False
        self._always[name, caller] = left - 1
        return True

    def _line(self, node: Node, path: str, caller: str) -> int | None:
        """Which rule is the first that matches."""
        tool = TOOLS.get(node.name, INNER)
        for place, line in enumerate(self.lines):
            if (
                fnmatchcase(node.name, line.function)
                and fnmatchcase(caller, line.caller)
                and _about(line, tool.risk)
                and (line.path is None or (node.kind == "leaf" and _is(path, line, line.path)))
                and (line.under is None or (node.kind == "leaf" and _is(path, line, f"under {line.under}")))
                and (line.after is None or self._after(line))
            ):
                return place
        return None

    def _after(self, line: Line) -> bool:
        """To ask or refuse, one of the untrusted functions is enough; to approve there must be no other."""
        found = [fnmatchcase(mark, line.after or "") for mark in self.marks]
        return bool(found) and (all(found) if line.decision == "approve" else any(found))


def _arguments(node: Node) -> object:
    """Stands for the arguments of a call: those of a map are its item and how many there are."""
    return (tuple(each.name for each in node.children), node.times) if node.kind == "map" else node.path


def _is(path: str, line: Line, what: str) -> bool:
    """Whether a path is what a rule says: to approve surely, to ask or refuse as it may be meant."""
    if path in HOSTILE:
        told = SURE if line.decision == "approve" else HOSTILE
        clean = not any(each in path for each in ("\n", "\0", ".."))
        return what in told.get(path, ()) or (what == "*" and (line.decision != "approve" or clean))
    if what.startswith("under "):
        return path.startswith(f"{what.removeprefix('under ')}/")
    return fnmatchcase(path, what)


def _about(line: Line, risk: frozenset[str]) -> bool:
    if not line.risk:
        return True
    return risk <= line.risk if line.decision == "approve" else bool(risk & line.risk)
