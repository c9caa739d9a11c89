"""A trace as lines for people: the words of each record, and the tree of records in a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from io import StringIO
from typing import Any, Final

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from ...core import ROOT
from ...harness.trace import Flow, TraceRecord, TurnTrace
from ...harness.trace.records import TraceNode
from ..service.pauses import flow_ways, one_line, printable, shortened, source_text
from .output import cost_text, counted, duration_text, tokens_text

MAX_CAPTURED_CHARACTERS = 200  # of a captured text

MAX_TREE_DEPTH: Final = 100
"""Levels that are drawn. Deeper records are drawn on the last level."""


NO_FLOWS: Final = (
    "its values were not followed, because it is not guarded and read nothing that strangers can have written"
)
"""What is said of a turn in place of where its values went."""


def trace_text(trace: TurnTrace, *, flow: bool = False) -> str:
    """A trace as a tree of lines, below a summary.

    Args:
        trace: The trace.
        flow: Whether the tree is that of where values went; see `flow_tree`.
    """
    return "\n".join([*head(trace), "", flow_tree(trace) if flow else _record_tree(trace)])


def _record_tree(trace: TurnTrace) -> str:
    above, flows = [_root()], _flows(trace)  # by level
    for node, level, _ in _walk(trace.tree()):
        label = one_line(f"{node.record.kind} {', '.join(words(node))}")
        above[level + 1 :] = [above[level].add(Text(label, no_wrap=True))]
        for name, value in captured(node.record):
            text = shortened(json.dumps(value, ensure_ascii=False), MAX_CAPTURED_CHARACTERS)
            above[-1].add(Text(printable(f"{name}: {text}").replace("\n", " ")))
        for flow in flows.get(node.record.id, ()):
            above[-1].add(_line(flow_text(flow)))
    return _drawn(above[0])


def _root() -> Tree:
    return Tree("", guide_style="", hide_root=True)


def _drawn(tree: Tree) -> str:
    out = StringIO()
    Console(file=out, width=1000, no_color=True, legacy_windows=False).print(tree)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _flows(trace: TurnTrace) -> dict[str, list[Flow]]:
    """Where values come from, by the id of the record that they are drawn below."""
    found: dict[str, list[Flow]] = {}
    for flow in trace.flows:
        found.setdefault(flow.record, []).append(flow)
    return found


def flow_text(flow: Flow) -> str:
    """Where an argument of a call, or a part of an answer, comes from, on one line."""
    return f"{flow.argument or 'all arguments'}: {source_text([flow.model_dump()])}"


def flow_tree(trace: TurnTrace) -> str:
    """Where values went in a turn, as a tree of lines from their origins to the arguments that they reached."""
    places: dict[tuple[str, ...], Tree] = {(): _root()}
    for way in flow_ways(trace):
        for end in range(1, len(way) + 1):
            if way[:end] not in places:
                places[way[:end]] = places[way[: end - 1]].add(_line(way[end - 1]))
    return _drawn(places[()]) or NO_FLOWS


def flow_graph(trace: TurnTrace) -> str:
    """Where values went in a turn, as a graph in Mermaid."""
    ids: dict[tuple[str, ...], str] = {}
    lines = ["flowchart LR"]
    for way in flow_ways(trace):
        keys = [*(way[:end] for end in range(1, len(way))), way[-1:]]  # what was reached is one node for all origins
        for key in keys:
            if key not in ids:
                ids[key] = f"n{len(ids)}"
                lines.append(f'  {ids[key]}["{_quoted(key[-1])}"]')
        lines.append(f"  {' --> '.join(ids[key] for key in keys)}")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return "".join(each if each.isalnum() or each in " .,:_*()-" else f"#{ord(each)};" for each in one_line(text))


def _line(text: str) -> Text:
    return Text(one_line(text), no_wrap=True)


def head(trace: TurnTrace) -> Iterator[str]:
    """The summary of a trace: its turn and its totals."""
    about = [f"{name} {value}" for name, value in (("thread", trace.thread), ("account", trace.account)) if value]
    tiers = next((record.role_tiers for record in trace.records if record.kind == "turn"), ())
    about += [f"role {', '.join(tiers)}"] if tiers else []
    about += [f"for {trace.on_behalf_of}"] if trace.on_behalf_of != ROOT else []
    yield ", ".join([f"{trace.id}: {trace.status}{f' ({trace.code})' if trace.code else ''}", *about])
    runs = "" if trace.runs == 1 else f" in {trace.runs} runs"
    yield (
        f"began {trace.start.astimezone():%Y-%m-%d %H:%M:%S}, {counted(trace.calls, 'call')}{runs}, "
        f"{counted(trace.models, 'model call')}, {tokens_text(trace.input_tokens, trace.output_tokens)}, "
        f"{_cost_of(trace)}"
    )
    dropped = sum(record.count for record in trace.records if record.kind == "dropped")
    if dropped:
        yield f"{counted(dropped, 'event')} of it were dropped, because writing traces was too slow"


def words(node: TraceNode) -> Iterator[str]:
    """The words about one record, after its kind."""
    record = node.record
    match record.kind:
        case "approval":
            by = f"by {record.gate}{f' ({record.account})' if record.account else ''}"
            yield from (record.name, record.status, by)
        case "retry":
            yield from (f"try {record.attempt}", f"after {record.code}", f"waited {duration_text(record.seconds)}")
        case "check":
            yield from (f"answer {record.attempt}", record.status)
        case "pause":
            yield from filter(None, (record.label, record.status))
        case "message" | "introduction" | "refusal":
            yield from _of_message(record)
        case "error":
            yield from filter(None, (record.name, record.label, record.code))
        case "held":
            yield record.name
        case "dropped":
            yield f"{counted(record.count, 'event')} dropped"
        case _:
            yield from _of_lasting(node)


def _of_message(record: TraceRecord) -> Iterator[str]:
    if record.status == "read":
        yield from (f"from {record.name}", record.label, f"read before step {record.attempt}", record.message)
        return
    yield f"{record.sender or '(unknown)'} to {record.receiver or '(unknown)'}"
    if record.kind == "refusal":
        yield record.code
        return
    if record.kind == "introduction":
        yield f"introduced {record.introduced}" if record.introduced else record.status
    else:
        yield record.label
    yield f"{record.chain} in the chain"
    yield record.message


def _of_lasting(node: TraceNode) -> Iterator[str]:
    record = node.record
    label = f" ({record.label})" if record.kind == "task" and record.label not in ("", record.name) else ""
    yield f"{record.name}{label}"
    if record.model:
        yield record.model
    code = f" ({record.code})" if record.code else ""
    yield " then ".join(run.status for run in node.runs) + code
    if node.seconds is not None:
        yield duration_text(node.seconds)
    if record.risk:
        yield "+".join(record.risk)
    if record.gate:
        yield f"allowed by {record.gate}"
    if node.tokens != (0, 0):
        yield tokens_text(*node.tokens)
    if node.cost is not None:
        yield cost_text(node.cost)
    if record.withheld:
        yield f"{counted(record.withheld, 'character')} withheld"


def shown(node: TraceNode) -> Iterator[TraceNode]:
    """The records to draw below a record, without errors that the record itself shows."""
    codes = {run.code for run in node.runs}
    for child in node.children:
        if child.record.kind != "error" or child.record.code not in codes:
            yield child


def captured(record: TraceRecord) -> Iterator[tuple[str, Any]]:
    """The captured values of a record."""
    for name, value in (("inputs", record.inputs), ("outputs", record.outputs), ("prompt", record.prompt)):
        if value is not None:
            yield name, value


def _cost_of(trace: TurnTrace) -> str:
    """What a turn cost, as far as that is known."""
    if not trace.models:
        return "no cost"
    if trace.cost is None:
        return "cost not known"
    return cost_text(trace.cost) + (f" and {counted(trace.unpriced, 'call')} unknown" if trace.unpriced else "")


def _walk(root: TraceNode) -> Iterator[tuple[TraceNode, int, bool]]:
    """The records in the order in which they are drawn, each with its level and whether others are drawn below it."""
    left = [(root, 0)]
    while left:
        node, level = left.pop()
        children = list(shown(node))
        yield node, level, bool(children) and level < MAX_TREE_DEPTH
        left += [(child, min(level + 1, MAX_TREE_DEPTH)) for child in reversed(children)]


BEGIN = "<!doctype html><!-- worldagent trace/1 -->"

_STYLE = """
:root { color-scheme: light dark; font: 14px/1.5 system-ui, sans-serif; }
body { max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
details, .leaf { margin-left: 1.25rem; border-left: 1px solid #8886; padding-left: .75rem; }
summary { cursor: pointer; }
.kind { display: inline-block; min-width: 4.5rem; font-weight: 600; }
.failed > summary, .error { color: #c33; }
.approval, .pause { color: #a60; }
.bar { position: relative; height: 3px; background: #8882; }
.bar i { position: absolute; height: 3px; min-width: 2px; background: #48a; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #8881; padding: .5rem; }
"""


def trace_page(trace: TurnTrace) -> str:
    """A trace as a page."""
    title, *more = (escape(line) for line in head(trace))
    shown = "".join(f"<p>{line}</p>" for line in more)
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return "\n".join(
        [
            BEGIN,
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            f"<title>{escape(trace.id)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{title}</h1>{shown}",
            *_lines(trace.tree(), trace),
            *([f"<h2>Where values went</h2><pre>{escape(flow_tree(trace))}</pre>"] if trace.flows else []),
            "</body></html>",
            "",
        ]
    )


def _lines(root: TraceNode, trace: TurnTrace) -> Iterator[str]:
    opened: list[int] = []  # the levels of open elements
    for node, level, has_parts in _walk(root):
        while opened and opened[-1] >= level:
            opened.pop()
            yield "</details>"
        yield from _own_lines(node, trace, bare=not has_parts, top=level == 0)
        if has_parts:
            opened.append(level)
    yield from ["</details>"] * len(opened)


def _own_lines(node: TraceNode, trace: TurnTrace, *, bare: bool, top: bool) -> Iterator[str]:
    """The lines of one record. Its element stays open if other records are part of it."""
    record = node.record
    name = escape(record.kind)
    shown = f'<span class="kind">{name}</span> {escape(", ".join(words(node)))}{_bar(node, trace)}'
    kept = list(captured(record))
    if bare and not kept:
        yield f'<div class="leaf {name}" title="{escape(record.id)}">{shown}</div>'
        return
    failed = " failed" if record.status == "failed" else ""
    is_open = " open" if top or record.lasts else ""
    yield f'<details class="{name}{failed}"{is_open}><summary title="{escape(record.id)}">{shown}</summary>'
    for what, value in kept:
        text = json.dumps(value, ensure_ascii=False, indent=2)
        yield f"<details><summary>{escape(what)}</summary><pre>{escape(text)}</pre></details>"
    if bare:
        yield "</details>"


def _bar(node: TraceNode, trace: TurnTrace) -> str:
    """The bar that shows when a record ran within the turn."""
    last = max((record.end or record.start for record in trace.records), default=trace.start)
    total = (last - trace.start).total_seconds()
    if total <= 0:
        return ""
    bars = []
    for run in node.runs:
        if run.end is not None and (run.lasts or run.kind == "model"):
            left = 100 * (run.start - trace.start).total_seconds() / total
            wide = 100 * (run.end - run.start).total_seconds() / total
            bars.append(f'<i style="left:{max(left, 0):.3f}%;width:{wide:.3f}%"></i>')
    return f'<div class="bar">{"".join(bars)}</div>' if bars else ""
