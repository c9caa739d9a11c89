"""A trace as one self-contained page of HTML, without scripts, fonts or images. All texts in it are escaped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape

from ...harness.trace import TurnTrace
from ...harness.trace.tree import TraceNode
from .trace_text import MAX_TREE_DEPTH, captured, head, shown, words

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
    told = "".join(f"<p>{line}</p>" for line in more)
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return "\n".join(
        [
            BEGIN,
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            f"<title>{escape(trace.id)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{title}</h1>{told}",
            *_lines(trace.tree(), trace),
            "</body></html>",
            "",
        ]
    )


def _lines(root: TraceNode, trace: TurnTrace) -> Iterator[str]:
    left: list[tuple[TraceNode, int] | str] = [(root, 0)]
    while left:
        each = left.pop()
        if isinstance(each, str):
            yield each
            continue
        node, depth = each
        children = list(shown(node))
        yield from _own_lines(node, trace, bare=not children, top=depth == 0)
        if depth < MAX_TREE_DEPTH:
            if children:
                left.append("</details>")
            left += [(child, depth + 1) for child in reversed(children)]
        else:
            if children:
                yield "</details>"
            left += [(child, depth) for child in reversed(children)]


def _own_lines(node: TraceNode, trace: TurnTrace, *, bare: bool, top: bool) -> Iterator[str]:
    """The lines of one record. Its element stays open if other records are part of it."""
    record = node.record
    name = escape(record.kind)
    told = f'<span class="kind">{name}</span> {escape(", ".join(words(node)))}{_bar(node, trace)}'
    kept = list(captured(record))
    if bare and not kept:
        yield f'<div class="leaf {name}" title="{escape(record.id)}">{told}</div>'
        return
    failed = " failed" if record.status == "failed" else ""
    is_open = " open" if top or record.lasts else ""
    yield f'<details class="{name}{failed}"{is_open}><summary title="{escape(record.id)}">{told}</summary>'
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
