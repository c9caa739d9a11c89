"""The command `doctor`: checks this installation or a role host, and prints each result as soon as it is known.

`hosts.doctor` does the checks, and makes a new key of role digests after the old one was lost (R13).
"""

from __future__ import annotations

import logging
import shutil
import textwrap
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from .command import Work, bad_usage, command, confirm, run
from .exits import FAILED
from .options import HostOptions, home_option, option_group
from .output import Output, table

if TYPE_CHECKING:
    from ...core import Tier
    from ...testing.role_host_conformance import Result
    from ..doctor import KeyState

_INSTALLATION: Final = "For this installation"
_MARKS: Final = {"pass": "[ ok ]", "warn": "[warn]", "fail": "[FAIL]", "skip": "[skip]"}
_COUNTED: Final = {"pass": "passed", "fail": "failed", "warn": "warned", "skip": "skipped"}
_OF_A_HOST: Final = ("role_host", "role_host_stdio", "token_file", "write", "scope", "foreign_scope")
_NAME: Final = 18
_INDENT: Final = " " * (len(_MARKS["pass"]) + 1)
MAX_COLUMNS: Final = 100
_RESUME: Final = (
    "Resume such a turn with on_role_change='refresh' (`worldagent resume --on-role-change refresh`): it then follows "
    "the role that is active now. Or cancel it."
)
_RESTART: Final = "Running agents keep the old key in memory: restart them, here and on machines with a copy"

app = typer.Typer()


@option_group
class DoctorOptions(HostOptions):
    """What `doctor` takes.

    Attributes:
        write (--write; For a role host): Also put and delete roles, in the check's own scopes, which it clears.
        scope (--scope TIER=ID; For a role host): A scope to use, if the token does not reach all scopes. With --write
            it must have no role. Repeatable, once for each tier.
        foreign_scope (--foreign-scope TIER=ID; For a role host): A scope that the token must not reach; it is only
            read. Repeatable, once for each tier.
        timeout (--timeout SECONDS): The time limit of one call. Default: 10 for a role host, 60 for the model.
        model (--model; For this installation): Send the model one tiny question. A service can charge for it.
        lm (--lm MODEL; For this installation): The model. Default: the setting lm (WORLDAGENT_LM), else local.
        rekey (--rekey; For this installation): Make a new role.key after the old one was lost, and list the turns that
            were recorded with another.
        yes (--yes; For this installation): With --rekey: replace an existing key without asking.
        json (--json; Output): Print one JSON object: whether all points passed, and the points.
    """

    write: bool = False
    scope: list[str] | None = None
    foreign_scope: list[str] | None = None
    timeout: float | None = None
    model: bool = False
    lm: str | None = None
    home: Path | None = home_option(_INSTALLATION)
    rekey: bool = False
    yes: bool = False
    json: bool = False


@command(app, panel="Configuration")
def doctor(options: DoctorOptions) -> int:
    """Check this installation, or a role host in any language. Print what is wrong and what to do.

    Only --rekey changes this installation: it makes a new role key after the old one was lost. A role host is checked
    against the contract of role hosts, point by point. With --write, the check also puts and deletes roles. If a point
    fails, the exit code is 1.

    [bold]Examples[/bold]

      worldagent doctor

      worldagent doctor --role-host https://host.example/mcp --token-file token.txt

      worldagent doctor --stdio 'node host.ts' --write --json
    """
    output = Output(json=options.json)
    with _silence():
        return run(output, lambda: _begin(options, output))


def _begin(options: DoctorOptions, output: Output) -> Work:
    from .agents import EMBEDDED, check_hosts

    check_hosts(options)
    if options.rekey:
        _refuse(options, ("model", "lm", "timeout", *_OF_A_HOST), "are not used with --rekey", "omit it")
        return _rekey(options, output)
    _refuse(options, ("yes",), "are for --rekey", "add --rekey, or omit it")
    if options.role_host_stdio is None and options.role_host in (None, EMBEDDED):
        _refuse(options, ("write", "scope", "foreign_scope"), "are for a role host", "add --role-host URL")
        return _installation(options, output)
    _refuse(options, ("model", "lm", "home"), "are for an installation", "omit the role host, or this option")
    return _host(options, output, _scopes("--scope", options.scope), _scopes("--foreign-scope", options.foreign_scope))


async def _host(
    options: DoctorOptions, output: Output, scopes: dict[Tier, str], foreign: dict[Tier, str]
) -> int | None:
    from ...agent import Settings
    from ...testing.role_host_conformance import HostCheckOptions, check_host
    from .agents import named_host

    found = named_host(options, Settings())
    assert found is not None, "one is named"
    checked = HostCheckOptions(write=options.write, scopes=scopes, foreign=foreign, **_limit(options))
    printer = _Printer(output, f"role host {found.label}")
    return printer.end(await check_host(found, checked, tell=printer.tell))


async def _installation(options: DoctorOptions, output: Output) -> int | None:
    from ..doctor import InstallationOptions, check_installation

    if options.timeout is not None and not 0 < options.timeout < float("inf"):
        raise bad_usage(f"--timeout must be a finite number above 0, got {options.timeout!r}", remedy="give seconds")
    checked = InstallationOptions(home=options.home, lm=options.lm, call_model=options.model, **_limit(options))
    printer = _Printer(output, "this installation")
    return printer.end(await check_installation(checked, tell=printer.tell))


def _limit(options: DoctorOptions) -> dict[str, float]:
    return {} if options.timeout is None else {"timeout": options.timeout}


class _Printer:
    """Prints results as lines of text, or all of them as one JSON object."""

    def __init__(self, output: Output, about: str) -> None:
        self._output = output
        self._unwritten = 0
        self._blocked: list[str] = []
        self._line(f"Checking {about}")

    def tell(self, result: Result) -> None:
        """Print one result. Points that were skipped for another point, or without --write, are printed at the end."""
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
        """Print the summary or the JSON, and return the exit code."""
        ok = all(result.status != "fail" for result in results)
        counts = [(sum(result.status == status for result in results), word) for status, word in _COUNTED.items()]
        if self._blocked:
            self._line(f"{_MARKS['skip']} a point that they need did not pass: {', '.join(self._blocked)}", _INDENT)
        if self._unwritten:
            self._line(f"{_MARKS['skip']} {self._unwritten} points put or delete roles: they need --write", _INDENT)
        shown = ", ".join(f"{count} {word}" for count, word in counts if count or word in ("passed", "failed"))
        points = [result.as_object() for result in results]
        self._output.result({"ok": ok, "points": points}, shown)
        return None if ok else FAILED

    def _line(self, text: str, hanging: str = "") -> None:
        if self._output.form != "json":
            self._output.result({}, _filled(text, hanging))


def _scopes(option: str, given: list[str] | None) -> dict[Tier, str]:
    from ...core import Tier, check_id

    scopes: dict[Tier, str] = {}
    for item in given or ():
        name, equals, scope_id = item.partition("=")
        if not equals:
            raise bad_usage(f"{option} {item!r} has no '='", remedy=f"write {option} workspace=ID")
        tier = Tier.parse(name)
        if tier in scopes:
            raise bad_usage(f"{option} must name one scope of the {tier} tier, not two", remedy="name one of them")
        scopes[tier] = check_id(option, scope_id)
    return scopes


def _refuse(options: DoctorOptions, names: tuple[str, ...], why: str, remedy: str) -> None:
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(options, name)]
    if given:
        raise bad_usage(
            f"{' and '.join(given)} {why if len(given) > 1 else why.replace('are', 'is', 1)}", remedy=remedy
        )


@contextmanager
def _silence() -> Generator[None, None, None]:
    """Silence all logs: libraries log every fault of a broken host, with the text that it sent."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


# --- a new key -------------------------------------------------------------------------------------------------------


def _rekey(options: DoctorOptions, output: Output) -> Work:
    """Look at the home and ask whether to replace its key. The returned work makes the new key."""
    from ..doctor import InstallationOptions, look_at_key, make_key
    from ..doctor.keys import recorded_with_other_key

    state = look_at_key(InstallationOptions(home=options.home))
    if state.there and not options.yes:
        _confirm_replacing(state, output)

    async def work() -> None:
        made = make_key(state, replace=state.there)
        shown = {
            "rekeyed": True,
            "file": str(state.file),
            "key": made,
            "replaced": state.key,
            "turns": [
                {"workspace": turn.workspace, "thread": turn.thread, "turn_id": turn.turn_id, "status": turn.status}
                for turn in recorded_with_other_key(state.turns, made)
            ],
            "processes": [int(process) for process in state.processes],
        }
        output.result(shown, _report(state, made))

    return work()


def _confirm_replacing(state: KeyState, output: Output) -> None:
    """Ask whether to replace the existing key.

    Raises:
        InvalidArgument: No person can be asked.
    """
    from ..doctor.keys import recorded_with_other_key, turn_names, unfinished_turns_text

    held = f"{str(state.file)!r} holds " + (f"the key {state.key!r}" if state.key else "no key")
    shown = [f"{held}, and replacing it must be confirmed"]
    remedy = "keep it, or give --yes"
    if lost := [turn for turn in state.turns if state.key in turn.keys]:
        shown.append(f"{unfinished_turns_text(lost)} recorded with it")
    if gone := recorded_with_other_key(state.turns, state.key):
        shown.append(f"{unfinished_turns_text(gone)} recorded with another: {turn_names(gone)}")
        remedy = "keep it and resume the turns with another key by --on-role-change refresh, or give --yes"
    if state.key is None:
        remedy = "restore it from a copy, or give --yes"
    problem = "; ".join(shown)
    confirm(output, False, "Replace it?", problem=problem, remedy=remedy, notes=shown, kept="nothing was changed")


def _report(state: KeyState, made: str) -> str:
    from ..doctor.keys import recorded_with_other_key, unfinished_turns_text

    turns = recorded_with_other_key(state.turns, made)
    lines = [_filled(f"Made the key {made!r} in {str(state.file)!r}.")]
    if turns:
        gone = f"{unfinished_turns_text(turns)} recorded with a lost key, so their roles cannot be compared:"
        lines += [
            _filled(gone),
            table(
                ("workspace", "thread", "status"),
                [(turn.workspace, turn.thread, turn.status) for turn in turns],
                widths=(24, 32),
            ),
            _filled(_RESUME),
        ]
    else:
        lines.append("No unfinished turn was recorded with another key.")
    running = f": process {', '.join(state.processes)}" if state.processes else ""
    return "\n".join([*lines, _filled(f"{_RESTART}{running}.")])


def _filled(text: str, hanging: str = "") -> str:
    columns = min(shutil.get_terminal_size().columns, MAX_COLUMNS)
    return textwrap.fill(
        text, columns, subsequent_indent=hanging, break_on_hyphens=False, break_long_words=bool(hanging)
    )
