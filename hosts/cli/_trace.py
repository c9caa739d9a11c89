"""The commands `trace list`, `show` and `export`: out of the home's traces alone, or a file of them; no model."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from ...core import check_id, summed
from ...core.errors import InvalidArgument, StorageUnavailable, TraceInvalid
from ...harness.trace import Traces, TurnTrace, read_trace
from ...harness.trace.index import TraceIndex
from ...harness.trace.records import HEADER
from ...storage import Storage
from ._output import Output
from ._session import run
from ._thread_options import ThreadsOptions
from ._trace_commands import TraceExportOptions, TraceListOptions, TraceShowOptions
from ._trace_page import BEGIN, trace_page
from ._trace_text import count_text, trace_text

_WIDTHS: Final = (37, 9, 9, 11)  # of turn, thread, status and begin; with the tokens the table fits 80 columns

Work = Callable[[Traces, Output], Awaitable[None]]


def list_traces(options: TraceListOptions) -> int:
    """Run `trace list` and return its exit code."""

    async def work(traces: Traces, output: Output) -> None:
        found = await traces.list(thread=options.thread, limit=options.limit)
        if not found:
            which = f" of the thread {options.thread!r}" if options.thread else ""
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
        told = output.table(("TURN", "THREAD", "STATUS", "BEGAN", "TOKENS"), rows, widths=_WIDTHS) if rows else None
        output.result({"traces": [_object(trace) for trace in found]}, told)

    return _run(options, work)


def show_trace(options: TraceShowOptions) -> int:
    """Run `trace show` and return its exit code."""

    async def work(traces: Traces, output: Output) -> None:
        trace = await _found(traces, options, output)
        records = [record.model_dump(mode="json", exclude_defaults=True) for record in trace.records]
        value: dict[str, Any] = {"trace": _object(trace) | {"records": records}}
        if options.html is None:
            output.result(value, trace_text(trace))
            return
        await asyncio.to_thread(_replace, options.html, trace_page(trace), BEGIN)
        output.note(f"wrote {str(options.html)!r}")
        output.result(value | {"file": str(options.html)})

    return _run(options, work)


def export_trace(options: TraceExportOptions) -> int:
    """Run `trace export` and return its exit code."""

    async def work(traces: Traces, output: Output) -> None:
        trace = await traces.get(options.turn)
        lines = [HEADER, *(record.line() for record in trace.records)]
        if options.output is None:
            output.result({"trace": lines}, "\n".join(lines))
            return
        await asyncio.to_thread(_replace, options.output, "".join(f"{line}\n" for line in lines), HEADER)
        output.note(f"wrote {len(trace.records)} records to {str(options.output)!r}")
        output.result({"exported": {"turn": trace.id, "file": str(options.output), "records": len(trace.records)}})

    return _run(options, work)


async def _found(traces: Traces, options: TraceShowOptions, output: Output) -> TurnTrace:
    if options.file is None:
        if options.turn is None:
            raise InvalidArgument("no turn is named", remedy="name TURN; `worldagent trace list` tells which there are")
        return await traces.get(options.turn)
    read = await asyncio.to_thread(read_trace, options.file)
    if read.skipped:
        output.note(f"skipped what is no record: line {', '.join(map(str, read.skipped))} of {str(options.file)!r}")
    turns = {record.turn: None for record in read.records if record.kind == "turn"}
    turn = options.turn or (next(iter(turns)) if len(turns) == 1 else None)
    cut = sorted({record.turn for record in read.records} - turns.keys())
    if turn in cut or (not turns and cut):
        named = ", ".join(repr(each) for each in ([turn] if turn in cut else cut[:20]))
        raise TraceInvalid(
            f"{str(options.file)!r} tells what happened in the turn {named}, and neither its begin nor its end",
            remedy="give the file in which it begins or ends, or leave out --file where the home has it",
        )
    if turn is None or turn not in turns:
        problem = f"has no turn {turn!r}" if turn else f"has {len(turns)} turns"
        raise TraceInvalid(
            f"{str(options.file)!r} {problem}",
            remedy=f"name one of them: {', '.join(list(turns)[:20]) or 'there is none'}",
        )
    return TurnTrace.of(record for record in read.records if record.turn == turn)


def _run(options: ThreadsOptions, work: Work) -> int:
    output = Output.of(json=options.json)

    def begin() -> Coroutine[Any, Any, None]:
        check_id("--workspace", options.workspace)
        return _with_traces(options, output, work)

    return run(output, begin)


async def _with_traces(options: ThreadsOptions, output: Output, work: Work) -> None:
    from ...agent import Settings

    storage = Settings().storage(Storage(home=options.home))
    index = TraceIndex(storage.traces)
    try:
        await work(Traces(index, options.workspace), output)
    finally:
        await index.aclose()


def _replace(file: Path, text: str, begin: str) -> None:
    """Write a file for its owner alone; what is there is replaced only if it begins as such files do."""
    problem = ""
    try:
        with contextlib.suppress(FileNotFoundError), file.open("rb") as there:
            if there.read(len(begin.encode())) != begin.encode():
                raise InvalidArgument(f"{str(file)!r} is something else", remedy="name a file that is not there")
        handle, name = tempfile.mkstemp(prefix=f".{file.name[:100]}.", dir=file.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as new:
                new.write(text)
            os.replace(name, file)
        finally:
            Path(name).unlink(missing_ok=True)
    except OSError as error:
        problem = error.strerror or type(error).__name__
    if problem:
        raise StorageUnavailable(
            f"{str(file)!r} cannot be written ({problem})", remedy="name a file in a folder of yours"
        )


def _object(trace: TurnTrace) -> dict[str, Any]:
    return {
        "turn": trace.id,
        "kind": trace.name,
        "workspace": trace.workspace,
        "thread": trace.thread or None,
        "account": trace.account or None,
        "status": trace.status,
        "code": trace.code or None,
        "start": trace.start.isoformat(),
        "end": None if trace.end is None else trace.end.isoformat(),
        "runs": trace.runs,
        "calls": trace.calls,
        "models": trace.models,
        "input_tokens": trace.input_tokens,
        "output_tokens": trace.output_tokens,
        "cached_tokens": trace.cached_tokens,
        "reasoning_tokens": trace.reasoning_tokens,
        "cost": trace.cost,
        "unpriced": trace.unpriced,
    }


__all__ = ["export_trace", "list_traces", "show_trace"]
