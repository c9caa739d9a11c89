"""Options that several commands share, word for word, and the groups that commands take as one dataclass.

Every `--help` imports this module, so it must not import the package or anything that is slow to load.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

WHERE: Final = "Where"
MODEL: Final = "Model and role"
OUTPUT: Final = "Output"
STORED: Final = "Stored roles"
REACH: Final = "How it is reached"
WHICH: Final = "Which"
ANSWERS: Final = "Answers"

WORKSPACE = "default"

# Options of several commands, word for word.
Home = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder of the databases. Default: the setting home, else the user's data folder.",
        rich_help_panel=WHERE,
    ),
]
Events = Annotated[
    bool,
    typer.Option("--events", help="Print each event of the turn as a line of JSON.", rich_help_panel=OUTPUT),
]
Policy = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The policy, as YAML or JSON: which calls run, which require approval, and which are refused. Default: "
        "the setting policy.",
        rich_help_panel=WHERE,
    ),
]
Lm = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="A model string such as openai/gpt-4o, or local for the embedded model. Default: the setting lm "
        "(WORLDAGENT_LM), else local. Keys come from the environment.",
        rich_help_panel=MODEL,
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        metavar="NUMBER",
        help="How much the model's answers vary, 0 to 2. Default: the setting model_options, else the service's.",
        rich_help_panel=MODEL,
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        metavar="TOKENS",
        help="The longest answer of the model. Default: the setting model_options, else the service's.",
        rich_help_panel=MODEL,
    ),
]
ReasoningEffort = Annotated[
    str | None,
    typer.Option(
        metavar="off|minimal|low|medium|high|xhigh|max",
        help="How much the model thinks before it answers. Default: the setting model_options, else the service's.",
        rich_help_panel=MODEL,
    ),
]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE|NAME=@FILE",
        help="A header for the model's service, such as an organisation's id. It is never printed, but other users of "
        "the machine can see VALUE in its list of processes. Repeatable.",
        rich_help_panel=MODEL,
    ),
]
Identity = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Who the agent is. A role cannot change it.", rich_help_panel=MODEL),
]
ProfileName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The profile that the agent starts with, such as coder: see worldagent profiles list. Its tools work in "
        "the current folder, unless the setting tool_roots names others. Default: the setting profile, else general.",
        rich_help_panel=MODEL,
    ),
]
WorkerTexts = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=TEXT|NAME=@FILE",
        help="A worker that the agent can dispatch work to, with its instructions. Repeatable.",
        rich_help_panel=MODEL,
    ),
]
WorkersFolder = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="A folder with workers in files NAME.worker.md. Default: the setting workers.",
        rich_help_panel=MODEL,
    ),
]
Unattended = Annotated[
    str | None,
    typer.Option(
        metavar="refuse|pause",
        help="No person watches this turn: refuse calls that require approval, or pause and notify.",
        rich_help_panel=MODEL,
    ),
]

TurnModels = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="The model of this turn only: a name from the setting models, or a model string. A turn that waits "
        "resumes with it. Repeatable: if one model cannot be reached, the next one is called.",
        rich_help_panel=MODEL,
    ),
]
JsonResult = Annotated[
    bool, typer.Option("--json", help="Print one JSON object: the result, or the error.", rich_help_panel=OUTPUT)
]
RoleHostToken = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A file with the token for --role-host.", rich_help_panel=STORED),
]

# Options of the commands that serve.
Stdio = Annotated[
    bool,
    typer.Option("--stdio", help="Serve the process that started this one, and end with it.", rich_help_panel=REACH),
]
Http = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="Serve at http://HOST:PORT/mcp. Port 0 picks a free port.", rich_help_panel=REACH
    ),
]
AllowRemote = Annotated[
    bool,
    typer.Option(
        "--allow-remote",
        help="Let other machines reach it without its own TLS, such as behind a proxy. It requires a token.",
        rich_help_panel=REACH,
    ),
]


@dataclass(frozen=True, kw_only=True)
class HostOptions:
    """The options of every command that needs the stored roles."""

    role_host: Annotated[
        str | None,
        typer.Option(
            metavar="URL|embedded",
            help="The role host that keeps the roles, or embedded for the embedded store. Default: the setting "
            "role_host, else embedded. "
            "The token comes from WORLDAGENT_ROLE_HOST_TOKEN or --token-file.",
            rich_help_panel=STORED,
        ),
    ] = None
    role_host_stdio: Annotated[
        str | None,
        typer.Option(
            "--role-host-stdio",
            "--stdio",
            metavar="COMMAND",
            help="A role host that is a program, such as 'my-host --stdio'.",
            rich_help_panel=STORED,
        ),
    ] = None
    token_file: RoleHostToken = None

    def option(self, field: str) -> str:
        """The name of a field's option on the command line."""
        return f"--{field.replace('_', '-')}"


@dataclass(frozen=True, kw_only=True)
class AgentOptions(HostOptions):
    """The options of every command that opens an agent."""

    app: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME",
            help="An agent of your own, with its functions and shapes: a WorldAgent, or a function that makes one. "
            "Modules of the current folder can be named.",
            rich_help_panel=WHERE,
        ),
    ] = None
    workspace: Annotated[str, typer.Option(metavar="ID", help="The agent's workspace.", rich_help_panel=WHERE)] = (
        WORKSPACE
    )
    home: Home = None
    policy: Policy = None
    lm: Lm = None
    temperature: Temperature = None
    max_tokens: MaxTokens = None
    reasoning_effort: ReasoningEffort = None
    header: Headers = None
    identity: Identity = None
    profile: ProfileName = None
    role: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT|@FILE|-",
            help="The role for this turn: how to go about it. @FILE reads a file, - reads standard input, @@ begins a "
            "text with a single @. It is never stored, but other users of the machine can see TEXT in its list of "
            "processes.",
            rich_help_panel=MODEL,
        ),
    ] = None
    worker: WorkerTexts = None
    workers: WorkersFolder = None
    json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object: the turn, or the error.", rich_help_panel=OUTPUT),
    ] = False
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Print on stderr which role tiers were active.", rich_help_panel=OUTPUT),
    ] = False


@dataclass(frozen=True, kw_only=True)
class SpeakerOptions(AgentOptions):
    """The options of every command that begins a turn, without the thread."""

    account: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The account that speaks. Its stored role applies.", rich_help_panel=WHERE),
    ] = None
    channel: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The channel of the thread. Its stored role applies.", rich_help_panel=WHERE),
    ] = None


@dataclass(frozen=True, kw_only=True)
class TurnOptions(SpeakerOptions):
    """The options of the commands that begin a turn on the thread `main` by default."""

    thread: Annotated[
        str, typer.Option(metavar="ID", help="The conversation within the workspace.", rich_help_panel=WHERE)
    ] = "main"


@dataclass(frozen=True, kw_only=True)
class ChatOptions(TurnOptions):
    """The options of `chat`."""

    attach: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE|URL",
            help="An image or a file to send with the first message. /attach adds to later ones. Repeatable.",
        ),
    ] = None
    role: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT|@FILE",
            help="A call role for every message, on every thread, until /role changes it. @FILE reads a file, @@ "
            "begins a text with a single @. It is never stored, but other users of the machine can see TEXT in its "
            "list of processes.",
            rich_help_panel=MODEL,
        ),
    ] = None
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Read messages line by line, and print one JSON object per line: the turn, or the error.",
            rich_help_panel=OUTPUT,
        ),
    ] = False
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            help="Print on stderr which role tiers were active. At a terminal, chat always shows them.",
            rich_help_panel=OUTPUT,
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class ResumingOptions(AgentOptions):
    """The options of every command that resumes a turn. The turn keeps the account and the channel it began with."""

    role: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT|@FILE|-",
            help="The call role again, if the turn began with one. @FILE reads a file, - reads standard input, @@ "
            "begins a text with a single @. It is never stored, but other users of the machine can see TEXT in its "
            "list of processes.",
            rich_help_panel=MODEL,
        ),
    ] = None
    account: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="The account that answers. A policy can limit the approvers.", rich_help_panel=ANSWERS
        ),
    ] = None
    no_role: Annotated[
        bool,
        typer.Option("--no-role", help="Resume without the call role that the turn began with.", rich_help_panel=MODEL),
    ] = False
    on_role_change: Annotated[
        str,
        typer.Option(
            metavar="fail|refresh",
            help="What to do if the active role differs from the one that the turn began with: fail, or resume with "
            "the one that is active now.",
            rich_help_panel=MODEL,
        ),
    ] = "fail"
    events: Events = False


@dataclass(frozen=True, kw_only=True)
class ThreadsOptions:
    """The options of every command of `threads`."""

    workspace: Annotated[str, typer.Option(metavar="ID", help="The workspace.", rich_help_panel=WHERE)] = WORKSPACE
    home: Home = None
    json: JsonResult = False


@dataclass(frozen=True, kw_only=True)
class ThreadOptions(ThreadsOptions):
    """The options of `threads cancel` and of every other command about one thread."""

    thread: Annotated[str, typer.Argument(metavar="THREAD", help="The conversation within the workspace.")]
