"""The command `doctor`: checks a role host, or this installation, and prints a line for each point as it is known."""

from __future__ import annotations

import logging
import shutil
import textwrap
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ...core import Tier, check_id
from ...core.errors import InvalidArgument
from ._doctor_options import DoctorOptions
from ._hosts import EMBEDDED, check_hosts, named_host
from ._output import Output
from ._rekey import rekey
from ._session import FAILED, run

if TYPE_CHECKING:
    from ...mcp_client import HttpHost, StdioHost
    from ...testing.role_host_conformance import Result

_MARKS: Final = {"pass": "[ ok ]", "warn": "[warn]", "fail": "[FAIL]", "skip": "[skip]"}
_COUNTED: Final = {"pass": "passed", "fail": "failed", "warn": "warned", "skip": "skipped"}
_OF_A_HOST: Final = ("role_host", "role_host_stdio", "token_file", "write", "scope", "foreign_scope")
_NAME: Final = 18
_INDENT: Final = " " * (len(_MARKS["pass"]) + 1)
_WIDEST: Final = 100


def doctor(options: DoctorOptions) -> int:
    """Run the command and return its exit code."""
    output = Output.of(json=options.json)

    def begin() -> Coroutine[Any, Any, int | None]:
        check_hosts(options)
        if options.rekey:
            _refuse(options, ("model", "lm", "timeout", *_OF_A_HOST), "are of no use with --rekey", "leave it out")
            return rekey(options, output)
        _refuse(options, ("yes",), "are for --rekey", "add --rekey, or leave it out")
        if options.role_host_stdio is None and options.role_host in (None, EMBEDDED):
            _refuse(options, ("write", "scope", "foreign_scope"), "are for a role host", "add --role-host URL")
            return _installation(options, output)
        _refuse(options, ("model", "lm", "home"), "are for an installation", "leave out the role host, or this")
        return _host(
            options, output, _scopes("--scope", options.scope), _scopes("--foreign-scope", options.foreign_scope)
        )

    with _silence():
        return run(output, begin)


async def _host(
    options: DoctorOptions, output: Output, scopes: dict[Tier, str], foreign: dict[Tier, str]
) -> int | None:
    from ...agent import Settings
    from ...testing.role_host_conformance import HostCheckOptions, check_host

    found = named_host(options, Settings())
    assert found is not None, "one is named"
    host: HttpHost | StdioHost = found
    more = {} if options.timeout is None else {"timeout": options.timeout}
    checked = HostCheckOptions(write=options.write, scopes=scopes, foreign=foreign, **more)
    printer = _Printer(output)
    printer.head(f"role host {host.label}")
    results = await check_host(host, checked, tell=printer.tell)
    return printer.end(results)


async def _installation(options: DoctorOptions, output: Output) -> int | None:
    from ..doctor import InstallationOptions, check_installation

    if options.timeout is not None and not 0 < options.timeout < float("inf"):
        raise InvalidArgument(f"--timeout {options.timeout!r} is no time limit", remedy="give seconds, above 0")
    more = {} if options.timeout is None else {"timeout": options.timeout}
    checked = InstallationOptions(home=options.home, lm=options.lm, call_model=options.model, **more)
    printer = _Printer(output)
    printer.head("this installation")
    results = await check_installation(checked, tell=printer.tell)
    return printer.end(results)


class _Printer:
    """Prints results as lines of text, or all of them as one JSON object."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._columns = min(shutil.get_terminal_size().columns, _WIDEST)
        self._unwritten = 0
        self._blocked: list[str] = []

    def head(self, about: str) -> None:
        self._line(f"Checking {about}")

    def tell(self, result: Result) -> None:
        """Print one result. Points that were left out for another one, or for want of --write, are told at the end."""
        if result.reason == "needs":
            self._blocked.append(result.id)
            return
        if result.reason == "write":
            self._unwritten += 1
            return
        said = result.problem or (f"{result.title}: {result.detail}" if result.detail else result.title)
        self._line(f"{_MARKS[result.status]} {result.id:<{_NAME}} {said}", _INDENT + " " * (_NAME + 1))
        if result.remedy:
            self._line(f"{_INDENT}remedy: {result.remedy}", _INDENT)

    def end(self, results: list[Result]) -> int | None:
        """Print the summary, or the JSON; the exit code."""
        ok = all(result.status != "fail" for result in results)
        counts = [(sum(result.status == status for result in results), word) for status, word in _COUNTED.items()]
        if self._blocked:
            self._line(f"{_MARKS['skip']} they need a point that does not hold: {', '.join(self._blocked)}", _INDENT)
        if self._unwritten:
            self._line(
                f"{_MARKS['skip']} {self._unwritten} points of putting and deleting roles: they need --write", _INDENT
            )
        shown = ", ".join(f"{count} {word}" for count, word in counts if count or word in ("passed", "failed"))
        points = [result.as_object() for result in results]
        self._output.result({"ok": ok, "points": points}, shown)
        return None if ok else FAILED

    def _line(self, text: str, hanging: str = "") -> None:
        if self._output.form == "json":
            return
        lines = textwrap.wrap(
            text, self._columns, subsequent_indent=hanging, break_on_hyphens=False, drop_whitespace=True
        )
        self._output.result({}, "\n".join(lines))


def _scopes(option: str, given: list[str] | None) -> dict[Tier, str]:
    scopes: dict[Tier, str] = {}
    for item in given or ():
        name, equals, scope_id = item.partition("=")
        if not equals:
            raise InvalidArgument(f"{option} {item!r} has no '='", remedy=f"write {option} workspace=ID")
        tier = Tier.parse(name)
        if tier in scopes:
            raise InvalidArgument(f"{option} names two scopes of the {tier} tier", remedy="name one for a tier")
        scopes[tier] = check_id(option, scope_id)
    return scopes


def _refuse(options: DoctorOptions, names: tuple[str, ...], why: str, remedy: str) -> None:
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(options, name)]
    if given:
        raise InvalidArgument(
            f"{' and '.join(given)} {why if len(given) > 1 else why.replace('are', 'is', 1)}", remedy=remedy
        )


@contextmanager
def _silence() -> Generator[None, None, None]:
    """Keep logs quiet: libraries write of every fault that a broken host makes them see, with what it said."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


__all__ = ["doctor"]
