"""The commands `trace list`, `show` and `export`. They read the home's traces or a file, and need no model."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from .command import command, storage_of
from .options import ThreadsOptions
from .output import Output, count_text
from .threads import check_ids

if TYPE_CHECKING:
    from ...harness.trace import Traces, TurnTrace

_COLUMNS: Final = ("TURN", "THREAD", "STATUS", "BEGAN", "TOKENS")
MAX_TRACES: Final = 1000  # traces that are searched for the newest turn
_TOTALS: Final = (
    *("runs", "calls", "models", "input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens"),
    *("cost", "unpriced"),
)
_WIDTHS: Final = (37, 9, 9, 11)  # of turn, thread, status and begin; with the tokens the table fits 80 columns

app = typer.Typer(name="trace", no_args_is_help=True)


@app.callback()
def _trace() -> None:
    """Show what turns and calls did: when they ran, what allowed them, how many tokens they used, and what they cost.

    Traces never hold a role. They hold texts of a person or a model only if the agent captures them.

    [bold]Example[/bold]

      worldagent trace list --thread t1
    """


@command(app, "list")
async def list_traces(options: ThreadsOptions, output: Output, thread: str | None = None, limit: int = 50) -> None:
    """List the newest turns and calls of a workspace, the newest first.

    TOKENS is the sum of the tokens that were sent to models and received from them.

    [bold]Example[/bold]

      worldagent trace list --thread t1 --limit 20

    Args:
        thread (--thread ID; Which): List only traces of this thread.
        limit (--limit N; Which): How many to list, 1 to 1000.
    """
    from ...core import summed

    async with open_traces(options) as traces:
        found = await traces.list(thread=thread, limit=limit)
    if not found:
        which = f" of the thread {thread!r}" if thread else ""
        output.note(f"the workspace {options.workspace!r} has no trace{which}")
    rows = [
        (
            trace.id,
            trace.thread or f"[{trace.name}]",
            trace.status,
            f"{trace.start.astimezone():%m-%d %H:%M}",
            count_text(summed((trace.input_tokens, trace.output_tokens))),
        )
        for trace in found
    ]
    shown = output.table(_COLUMNS, rows, widths=_WIDTHS) if rows else None
    output.result({"traces": [_object(trace) for trace in found]}, shown)


@command(app, "show", asks=("turn_trace",))
async def show_trace(
    options: ThreadsOptions,
    output: Output,
    turn: str | None = None,
    file: Path | None = None,
    html: Path | None = None,
    flow: bool = False,
    mermaid: bool = False,
) -> None:
    """Draw what a turn did as a tree, with times, decisions, tokens and costs.

    If the turn is guarded or has read what strangers can have written, each call has where its arguments come from.

    TURN is the id of a turn, or of a call without a turn, as [bold]trace list[/bold] shows it. By default, it draws the
    newest turn of the workspace, or the only turn of a file.

    [bold]Examples[/bold]

      worldagent trace show

      worldagent trace show turn_01a2

      worldagent trace show turn_01a2 --flow

      worldagent trace show turn_01a2 --html turn.html

      worldagent trace show --file agent.jsonl

    Args:
        turn ([TURN]): The turn, or a call without a turn. Default: the newest turn.
        file (--file FILE; Where): Read traces from JSON Lines, not from the home.
        html (--html FILE; Output): Write it as one self-contained page. An existing file is replaced only if it is such
            a page.
        flow (--flow; Output): Draw instead which values reached which arguments: from the person, fields of results
            and other origins, by readers and programs, with the decisions about them.
        mermaid (--mermaid; Output): Print that as a graph in Mermaid, for a page in Markdown.
    """
    import asyncio

    from ..service.pauses import flow_record
    from .trace_text import BEGIN, NO_FLOWS, flow_graph, trace_page, trace_text

    async with open_traces(options) as traces:
        if file is not None:
            trace = await asyncio.to_thread(_trace_in_file, file, turn, output)
        else:
            trace = await traces.get(turn or await _newest(traces, options.workspace))
    records = [record.model_dump(mode="json", exclude_defaults=True) for record in trace.records]
    flows = [flow_record(each) for each in trace.flows]
    value: dict[str, Any] = {"trace": _object(trace) | {"records": records, "flows": flows}}
    if mermaid and not flows:
        output.note(NO_FLOWS)
    if html is None:
        output.result(value, flow_graph(trace) if mermaid else trace_text(trace, flow=flow))
        return
    await asyncio.to_thread(replace_own, html, trace_page(trace), BEGIN)
    output.note(f"wrote {str(html)!r}")
    output.result(value | {"file": str(html)})


@command(app, "export")
async def export_trace(options: ThreadsOptions, output: Output, turn: str, file: Path | None = None) -> None:
    """Write a turn's trace as JSON Lines (trace/1), to standard output or a file.

    [bold]Example[/bold]

      worldagent trace export turn_01a2 -o turn.jsonl

    Args:
        turn (TURN): The turn, or a call without a turn.
        file (--output -o FILE; Output): The file to write. An existing file is replaced only if it is a trace.
    """
    import asyncio

    from ...harness.trace.records import HEADER

    async with open_traces(options) as traces:
        trace = await traces.get(turn)
    lines = [HEADER, *(record.line() for record in trace.records)]
    if file is None:
        output.result({"trace": lines}, "\n".join(lines))
        return
    await asyncio.to_thread(replace_own, file, "".join(f"{line}\n" for line in lines), HEADER)
    output.note(f"wrote {len(trace.records)} records to {str(file)!r}")
    output.result({"exported": {"turn": trace.id, "file": str(file), "records": len(trace.records)}})


def _trace_in_file(file: Path, turn: str | None, output: Output) -> TurnTrace:
    """The trace of a turn in a file, or of the only turn in it.

    Raises:
        TraceInvalid: The file cannot be read, or does not hold the complete turn.
    """
    from ...core.errors import TraceInvalid
    from ...harness.trace import TurnTrace, read_trace

    read = read_trace(file)
    if read.skipped:
        output.note(f"skipped lines that are not records: {', '.join(map(str, read.skipped))} of {str(file)!r}")
    turns = {record.turn: None for record in read.records if record.kind == "turn"}
    turn = turn or (next(iter(turns)) if len(turns) == 1 else None)
    cut = sorted({record.turn for record in read.records} - turns.keys())
    if turn in cut or (not turns and cut):
        named = ", ".join(repr(each) for each in ([turn] if turn in cut else cut[:20]))
        raise TraceInvalid(
            f"{str(file)!r} has records of the turn {named}, but neither its start nor its end",
            remedy="give the file in which it starts or ends, or omit --file if the home has it",
        )
    if turn is None or turn not in turns:
        problem = f"has no turn {turn!r}" if turn else f"has {len(turns)} turns"
        raise TraceInvalid(
            f"{str(file)!r} {problem}",
            remedy=f"name one of them: {', '.join(list(turns)[:20]) or 'the file has none'}",
        )
    return TurnTrace.of(record for record in read.records if record.turn == turn)


async def _newest(traces: Traces, workspace: str) -> str:
    """The id of a workspace's newest turn. Calls without a turn, which have no thread, are skipped."""
    from ...core.errors import TraceInvalid

    for trace in await traces.list(limit=MAX_TRACES):
        if trace.thread:
            return trace.id
    raise TraceInvalid(
        f"the workspace {workspace!r} has no trace of a turn",
        remedy="give the --workspace and --home of the turn, or name TURN; see `worldagent trace list`",
    )


@contextlib.asynccontextmanager
async def open_traces(options: ThreadsOptions) -> AsyncGenerator[Traces]:
    """The traces of the workspace of some options."""
    from ...harness.trace import Traces
    from ...harness.trace.index import TraceIndex

    check_ids(options)
    async with contextlib.aclosing(TraceIndex(storage_of(options.home).traces)) as index:
        yield Traces(index, options.workspace)


def replace_own(file: Path, text: str, begin: str) -> None:
    """Write a file that only its owner can read. An existing file is replaced only if it begins with `begin`."""
    from ...core.errors import InvalidArgument
    from ...core.files import replace_file, storage_errors

    remedy = "name a file in a folder that you can write to"
    with storage_errors(f"{str(file)!r} cannot be written", remedy=remedy):
        with contextlib.suppress(FileNotFoundError), file.open("rb") as there:
            if there.read(len(begin.encode())) != begin.encode():
                raise InvalidArgument(f"{str(file)!r} exists and is something else", remedy="name a new file")
        replace_file(file, text.encode())


def _object(trace: TurnTrace) -> dict[str, Any]:
    about = {
        "turn": trace.id,
        "kind": trace.name,
        "workspace": trace.workspace,
        "thread": trace.thread or None,
        "account": trace.account or None,
        "on_behalf_of": trace.on_behalf_of,
        "status": trace.status,
        "code": trace.code or None,
        "start": trace.start.isoformat(),
        "end": None if trace.end is None else trace.end.isoformat(),
    }
    return about | {name: getattr(trace, name) for name in _TOTALS}
