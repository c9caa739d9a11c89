"""Options that several commands share, word for word, and the groups that commands take as one object.

Every `--help` imports this module, so it must not import the package or anything that is slow to load.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, dataclass_transform

import typer
from typer.models import ParameterInfo

WHERE: Final = "Where"
MODEL: Final = "Model and role"
OUTPUT: Final = "Output"
STORED: Final = "Stored roles"
REACH: Final = "How it is reached"

WORKSPACE = "default"


T = TypeVar("T")
Declare = Callable[[Any], Any]
"""Makes an option or an argument with a default."""

_DOCUMENTED: Final = re.compile(r"(?m)^    (\w+) \((.+?)\): (.*(?:\n {5,}.*)*)")


def option(metavar: str, help: str, panel: str) -> Any:
    """An option with a value, named as its parameter.

    Args:
        metavar: The form of the value.
        help: What it does.
        panel: The heading in `--help` that it is listed under.
    """
    return typer.Option(None, metavar=metavar, help=help, rich_help_panel=panel)


def flag(name: str, help: str, panel: str) -> Any:
    """An option without a value, and without typer's second name that begins with `--no-`."""
    return typer.Option(False, name, help=help, rich_help_panel=panel)


def argument(metavar: str, help: str) -> Any:
    """An argument, which must be given."""
    return typer.Argument(..., metavar=metavar, help=help)


def documented(text: str, section: str) -> tuple[str, dict[str, Declare]]:
    """Read the options and arguments that a docstring documents.

    An option is written as `name (--name VALUE; Panel): What it does.`, and an argument as `name (VALUE): What it is.`
    What follows the semicolon is the heading in `--help` that it is listed under.

    Args:
        text: The docstring.
        section: The heading of the section.

    Returns:
        The docstring without the section, and what makes the option or argument of each name from its default.
    """
    above, _, below = inspect.cleandoc(text).partition(f"\n{section}:\n")
    found: dict[str, Declare] = {}
    for name, shown, told in _DOCUMENTED.findall(below):
        words, _, panel = shown.partition("; ")
        names = [word for word in words.split(" ") if word.startswith("-")]
        more = {
            "metavar": " ".join(word for word in words.split(" ") if not word.startswith("-")) or None,
            "help": " ".join(told.split()),
            "rich_help_panel": panel or None,
        }
        found[name] = partial(_declared, names, more)
    return above.rstrip(), found


def _declared(names: Sequence[str], more: Mapping[str, Any], default: Any) -> Any:
    return typer.Option(default, *names, **more) if names else typer.Argument(default, **more)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def option_group(group: type[T]) -> type[T]:
    """Make a class the options of a command: a frozen dataclass with an option or an argument for each field.

    The value of a field is its option, or the default of one that the docstring documents; see `documented`.
    """
    _, found = documented(group.__doc__ or "", "Attributes")
    for name in vars(group).get("__annotations__", ()):
        value = vars(group).get(name, ...)
        declared = value if isinstance(value, ParameterInfo) else found[name](value)
        default = MISSING if declared.default is ... else declared.default
        setattr(group, name, field(default=default, metadata={"declared": declared}))
    return dataclass(frozen=True, kw_only=True)(group)


def home_option(panel: str, what: str = "the databases") -> Any:
    """The option `--home`."""
    return option("FOLDER", f"Folder of {what}. Default: the setting home, else the user's data folder.", panel)


def app_option(what: str) -> Any:
    """The option `--app`; `what` says what it names and what for."""
    return option("MODULE:NAME", what, WHERE)


def role_host_option(token_file: str) -> Any:
    """The option `--role-host`; `token_file` is the option of its token."""
    return option(
        "URL|embedded",
        "The role host that keeps the roles, or embedded for the embedded store. Default: the setting role_host, else "
        f"embedded. The token comes from WORLDAGENT_ROLE_HOST_TOKEN or {token_file}.",
        STORED,
    )


# Options of several commands, word for word.
HOME: Final = home_option(WHERE)
EVENTS: Final = flag("--events", "Print each event of the turn as a line of JSON.", OUTPUT)
PROFILE: Final = option(
    "NAME|FILE",
    "The profile that the agent starts with, such as coder: see worldagent profiles list; or its file, with a / or "
    "the ending .yaml. Its tools work in "
    "the current folder, unless the setting tool_roots names others. Default: the setting profile, else general.",
    MODEL,
)

JSON_RESULT: Final = flag("--json", "Print one JSON object: the result, or the error.", OUTPUT)
HOME_ROLES: Final = flag(
    "--home-roles",
    "Start on Postgres although stored roles, or the role key, are in the home: all machines share it, or there is "
    "only one.",
    STORED,
)
ROLE_HOST_TOKEN: Final = option("FILE", "A file with the token for --role-host.", STORED)


@option_group
class MadeOptions:
    """What an agent is made of, for every command that makes one.

    Attributes:
        policy (--policy FILE; Where): The policy, as YAML or JSON: which calls run, which require approval, and which
            are refused. Default: the setting policy.
        lm (--lm MODEL; Model and role): A model string such as openai/gpt-4o, or local for the embedded model. Default:
            the setting lm (WORLDAGENT_LM), else local. Keys come from the environment.
        identity (--identity TEXT; Model and role): Who the agent is. A role cannot change it.
        worker (--worker NAME=TEXT|NAME=@FILE; Model and role): A worker that the agent can dispatch work to, with its
            instructions. Repeatable.
        workers (--workers FOLDER; Model and role): A folder with workers in files NAME.worker.md. Default: the setting
            workers.
        capability (--with NAME; Model and role): An installed capability that the agent has besides those of the
            setting capabilities, such as notes. Repeatable.
    """

    home: Path | None = HOME
    policy: Path | None = None
    lm: str | None = None
    identity: str | None = None
    profile: str | None = PROFILE
    worker: list[str] | None = None
    workers: Path | None = None
    capability: list[str] | None = None


@option_group
class HostOptions:
    """The options of every command that needs the stored roles.

    Attributes:
        role_host_stdio (--role-host-stdio --stdio COMMAND; Stored roles): A role host that is a program, such as
            'my-host --stdio'.
    """

    role_host: str | None = role_host_option("--token-file")
    role_host_stdio: str | None = None
    token_file: Path | None = ROLE_HOST_TOKEN

    def option_name(self, field: str) -> str:
        """The name of a field's option on the command line."""
        return "--with" if field == "capability" else f"--{field.replace('_', '-')}"


@option_group
class AgentOptions(MadeOptions, HostOptions):
    """The options of every command that opens an agent.

    Attributes:
        workspace (--workspace ID; Where): The agent's workspace.
        temperature (--temperature NUMBER; Model and role): How much the model's answers vary, 0 to 2. Default: the
            setting model_options, else the service's.
        max_tokens (--max-tokens TOKENS; Model and role): The longest answer of the model. Default: the setting
            model_options, else the service's.
        reasoning_effort (--reasoning-effort off|minimal|low|medium|high|xhigh|max; Model and role): How much the model
            thinks before it answers. Default: the setting model_options, else the service's.
        header (--header NAME=VALUE|NAME=@FILE; Model and role): A header for the model's service, such as an
            organisation's id. It is never printed, but other users of the machine can see VALUE in its list of
            processes. Repeatable.
        role (--role TEXT|@FILE|-; Model and role): The role for this turn: how to go about it. @FILE reads a file, -
            reads standard input, @@ begins a text with a single @. It is never stored, but other users of the machine
            can see TEXT in its list of processes.
        json (--json; Output): Print one JSON object: the turn, or the error.
        verbose (--verbose -v; Output): Print on stderr which role tiers reached a model, and which memory entries.
    """

    app: str | None = app_option(
        "An agent of your own, with its functions and shapes: a WorldAgent, or a function that makes one. "
        "Modules of the current folder can be named."
    )
    workspace: str = "default"
    temperature: float | None = None
    max_tokens: int | None = None
    reasoning_effort: str | None = None
    header: list[str] | None = None
    role: str | None = None
    json: bool = False
    verbose: bool = False


@option_group
class SpeakerOptions(AgentOptions):
    """The options of every command that begins a turn, without the thread.

    Attributes:
        account (--account ID; Where): The account that speaks. Its stored role applies.
        channel (--channel ID; Where): The channel of the thread. Its stored role applies.
    """

    account: str | None = None
    channel: str | None = None


@option_group
class BeginOptions(SpeakerOptions):
    """The options of every command that begins one turn.

    Attributes:
        turn_model (--turn-model NAME; Model and role): The model of this turn only: a name from the setting models, or
            a model string. A turn that waits resumes with it. Repeatable: if one model cannot be reached, the next one
            is called.
        unattended (--unattended refuse|pause; Model and role): No person watches this turn: refuse calls that require
            approval, or pause and notify.
        guard (--guard/--no-guard; Model and role): No model of this turn that calls tools reads what a stranger can
            have written. Default: the profile, else the setting guard.
    """

    turn_model: list[str] | None = None
    unattended: str | None = None
    guard: bool | None = None

    @property
    def how(self) -> dict[str, Any]:
        """How the turn runs."""
        return {"model": self.turn_model or None, "unattended": self.unattended, "guard": self.guard}


@option_group
class TurnOptions(BeginOptions):
    """The options of the commands that begin a turn on the thread `main` by default.

    Attributes:
        thread (--thread ID; Where): The conversation within the workspace.
    """

    thread: str = "main"


@option_group
class ChatOptions(SpeakerOptions):
    """The options of `chat`.

    Attributes:
        thread (--thread ID; Where): The conversation within the workspace.
        attach (--attach FILE|URL): An image or a file to send with the first message. /attach adds to later ones.
            Repeatable.
        role (--role TEXT|@FILE; Model and role): A call role for every message, on every thread, until /role changes
            it. @FILE reads a file, @@ begins a text with a single @. It is never stored, but other users of the machine
            can see TEXT in its list of processes.
        guard (--guard/--no-guard; Model and role): No model that calls tools reads what a stranger can have written.
            Default: the profile, else the setting guard.
        json (--json; Output): Read messages line by line, and print one JSON object per line: the turn, or the error.
        verbose (--verbose -v; Output): Print on stderr which role tiers reached a model, and which memory entries. At a
            terminal, chat always shows them.
    """

    thread: str = "main"
    attach: list[str] | None = None
    role: str | None = None
    guard: bool | None = None
    json: bool = False
    verbose: bool = False


@option_group
class ResumingOptions(AgentOptions):
    """The options of every command that resumes a turn. The turn keeps the account and the channel it began with.

    Attributes:
        role (--role TEXT|@FILE|-; Model and role): The call role again, if the turn began with one. @FILE reads a file,
            - reads standard input, @@ begins a text with a single @. It is never stored, but other users of the machine
            can see TEXT in its list of processes.
        account (--account ID; Answers): The account that answers. A policy can limit the approvers.
        no_role (--no-role; Model and role): Resume without the call role that the turn began with.
        on_role_change (--on-role-change fail|refresh; Model and role): What to do if the active role differs from the
            one that the turn began with: fail, or resume with the one that is active now.
    """

    role: str | None = None
    account: str | None = None
    no_role: bool = False
    on_role_change: str = "fail"
    events: bool = EVENTS


@option_group
class ThreadsOptions:
    """The options of every command of `threads`.

    Attributes:
        workspace (--workspace ID; Where): The workspace.
    """

    workspace: str = "default"
    home: Path | None = HOME
    json: bool = JSON_RESULT


@option_group
class ThreadOptions(ThreadsOptions):
    """The options of `threads cancel` and of every other command about one thread.

    Attributes:
        thread (THREAD): The conversation within the workspace.
    """

    thread: str
