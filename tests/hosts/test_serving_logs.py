"""What a serving process writes to its log: requests as data, our own lines, and of libraries no text at any level."""

from __future__ import annotations

import json
import logging
import warnings
from pathlib import Path
from typing import Any, get_args

import pytest

from support.served import SECRET, Wire, call, initialize, modern, served
from worldagent.core.errors import InvalidArgument
from worldagent.hosts.serving import RequestLog, quiet_logs
from worldagent.hosts.serving.logs import LogForm, LogLevel

TOKEN = "t0ken-of-the-novel"
FORMS = pytest.mark.parametrize("form", get_args(LogForm))


def raised() -> ValueError:
    try:
        raise ValueError(SECRET)
    except ValueError as error:
        return error


@pytest.mark.requirement("R7")
@FORMS
@pytest.mark.parametrize("level", get_args(LogLevel))
def test_libraries_are_named_and_not_heard(capsys: pytest.CaptureFixture[str], level: LogLevel, form: LogForm) -> None:
    with quiet_logs(level=level, form=form):
        for number in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
            logging.getLogger("some.library").log(number, "took %s", SECRET, exc_info=raised())
            logging.getLogger("some.library").log(number, SECRET, extra={"worldagent_fields": {"a": SECRET}})
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(SECRET, UserWarning, stacklevel=1)
        logging.getLogger("some.library").error(SECRET, "one argument too many")
    told = capsys.readouterr().err
    assert SECRET not in told
    assert "some.library" in told
    assert "ValueError" in told
    assert "py.warnings" in told
    assert ("debug" in told) == (level == "debug")


@pytest.mark.parametrize("given", [{"level": "loud"}, {"form": "xml"}])
def test_an_unknown_level_or_form_of_the_log_is_refused(given: Any) -> None:
    with (
        pytest.raises(InvalidArgument, match="level debug, info or warning and form text or json"),
        quiet_logs(**given),
    ):
        pass


@FORMS
def test_a_request_is_one_line_of_data(capsys: pytest.CaptureFixture[str], form: LogForm) -> None:
    requests = RequestLog({"converse"})
    fields: dict[str, Any] = {"method": "tools/call", "tool": "converse", "workspace": "the novel\n"}
    fields |= {"thread": "t1", "turn": "u1", "code": "ok"}
    with quiet_logs(level="info", form=form):
        for _ in range(3):
            requests.record(**fields, ms=1.26)
        requests.record(method=SECRET, tool=SECRET, code="invalid", ms=0.0)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert len(set(lines[:3])) <= 3
    if form == "text":
        named = r'workspace="the novel\n" thread=t1 turn=u1 code=ok ms=1.3'
        assert lines[0] == f"info: request method=tools/call tool=converse {named}"
        assert lines[3] == 'info: request method="?" tool="?" code=invalid ms=0.0'
        return
    read: list[dict[str, Any]] = [json.loads(line) for line in lines]
    told = {"level": "info", "logger": "worldagent.requests", "message": "request", **fields, "ms": 1.3}
    assert {name: read[0][name] for name in read[0] if name != "time"} == told
    assert (read[3]["method"], read[3]["tool"]) == ("?", "?")


@FORMS
def test_a_line_that_comes_again_and_again_is_counted(capsys: pytest.CaptureFixture[str], form: LogForm) -> None:
    with quiet_logs(form=form):
        for _ in range(1000):
            logging.getLogger("worldagent.serving").warning("the same")
        for number in range(3000):
            logging.getLogger("worldagent.serving").warning("another %d", number)
    lines = capsys.readouterr().err.splitlines()
    same = [line for line in lines if "the same" in line]
    assert len(same) < 10
    if form == "json":
        assert sum(json.loads(line).get("more", 0) for line in same) + len({"first"}) >= 999
    assert len(lines) < 3020


@pytest.mark.requirement("R7")
def test_at_debug_no_request_leaves_text_or_token_in_the_log(tmp_path: Path) -> None:
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    with served(tmp_path, level="debug", form="json", tokens={TOKEN: ""}) as found, Wire(found.address) as wire:
        session = initialize(wire, **bearer)
        for tool in ("say", "fail", SECRET):
            message = call(tool, {"text": SECRET, SECRET: SECRET})
            body, headers = modern(message)
            for headers_given, sent in (({**headers, **bearer}, body), (session, json.dumps(message).encode())):
                wire.ask("POST", "/mcp", sent, **headers_given)
        wire.ask("GET", f"/{SECRET.replace(' ', '-')}", b"", **bearer)
        wire.ask("POST", "/mcp", SECRET.encode(), **{**session, "Mcp-Session-Id": SECRET})
        wire.ask("POST", "/mcp", body, **{**headers, **bearer, "Host": SECRET})
        wire.ask("POST", "/mcp", body, **{**headers, **bearer, "Origin": SECRET})
        told = found.told()
    assert SECRET not in told
    assert SECRET.replace(" ", "-") not in told
    assert TOKEN not in told
    assert "mcp.server" in told
    assert all(json.loads(line)["level"] for line in told.splitlines())
