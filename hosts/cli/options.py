"""Options that several commands share, word for word, and the groups of them that commands take as one dataclass.

Imported for every `--help`: nothing of the package and nothing heavy may be imported here.
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
        help="What may be called without asking, what a person is asked for, what is refused, as YAML or JSON. "
        "Default: the setting policy.",
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
        help="A header for the model's service, such as an organisation's id. It is never shown, but other users of "
        "the machine may see VALUE among its processes. Repeatable.",
        rich_help_panel=MODEL,
    ),
]
Identity = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Who the agent is; no role changes it.", rich_help_panel=MODEL),
]
ProfileName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="What the agent starts up with, such as coder: see worldagent profiles list. Its tools work in the "
        "current folder, unless the setting tool_roots names others. Default: the setting profile, else general.",
        rich_help_panel=MODEL,
    ),
]
WorkerTexts = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=TEXT|NAME=@FILE",
        help="A worker that work can be dispatched to, with its instructions. Repeatable.",
        rich_help_panel=MODEL,
    ),
]
WorkersFolder = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="A folder of workers, files called NAME.worker.md. Default: the setting workers.",
        rich_help_panel=MODEL,
    ),
]
Unattended = Annotated[
    str | None,
    typer.Option(
        metavar="refuse|pause",
        help="No person watches this turn: refuse calls that need approval, or pause and notify.",
        rich_help_panel=MODEL,
    ),
]

TurnModels = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="The model of this one turn: a name from the setting models, or a model string. A turn that waits goes on "
        "with it. Repeatable: the next one is asked where one cannot be reached.",
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
    typer.Option("--stdio", help="Serve the process that started this one; ends with it.", rich_help_panel=REACH),
]
Http = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="Serve at http://HOST:PORT/mcp; port 0 is a free one.", rich_help_panel=REACH
    ),
]
AllowRemote = Annotated[
    bool,
    typer.Option(
        "--allow-remote",
        help="Let other machines reach it without TLS of its own, such as behind a proxy; needs a token.",
        rich_help_panel=REACH,
    ),
]


@dataclass(frozen=True, kw_only=True)
class HostOptions:
    """What every command that needs the stored roles takes."""

    role_host: Annotated[
        str | None,
        typer.Option(
            metavar="URL|embedded",
            help="The role host that keeps them, or the embedded store. Default: the setting role_host, else embedded. "
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
        """What the option of a field is called on the command line."""
        return f"--{field.replace('_', '-')}"


@dataclass(frozen=True, kw_only=True)
class AgentOptions(HostOptions):
    """What every command that opens an agent takes."""

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
            help="How to go about this one turn. @FILE reads a file, - reads standard input, @@ begins a text with "
            "a single @. Nothing stores it, but other users of the machine may see TEXT among its processes.",
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
        typer.Option("--verbose", "-v", help="Say on stderr which role tiers were active.", rich_help_panel=OUTPUT),
    ] = False


@dataclass(frozen=True, kw_only=True)
class SpeakerOptions(AgentOptions):
    """What every command that begins a turn takes beside the thread."""

    account: Annotated[
        str | None, typer.Option(metavar="ID", help="Who speaks; their stored role applies.", rich_help_panel=WHERE)
    ] = None
    channel: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Where the thread hangs; its stored role applies.", rich_help_panel=WHERE),
    ] = None


@dataclass(frozen=True, kw_only=True)
class TurnOptions(SpeakerOptions):
    """What the commands take that begin a turn on the thread `main` where none is named."""

    thread: Annotated[
        str, typer.Option(metavar="ID", help="The conversation within the workspace.", rich_help_panel=WHERE)
    ] = "main"


@dataclass(frozen=True, kw_only=True)
class ChatOptions(TurnOptions):
    """What `chat` takes."""

    attach: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE|URL",
            help="An image or a file that goes with the first message; /attach adds to later ones. Repeatable.",
        ),
    ] = None
    role: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT|@FILE",
            help="A call role that goes with every message, on every thread, until /role says otherwise. @FILE reads a "
            "file, @@ begins a text with a single @. Nothing stores it, but other users of the machine may see TEXT "
            "among its processes.",
            rich_help_panel=MODEL,
        ),
    ] = None
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Read messages line by line and print one JSON object a line: the turn, or the error.",
            rich_help_panel=OUTPUT,
        ),
    ] = False
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            help="Say on stderr which role tiers were active. At a terminal chat always says it.",
            rich_help_panel=OUTPUT,
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class GoOnOptions(AgentOptions):
    """What every command takes that goes on with a turn. The turn keeps the account and the channel it began with."""

    role: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT|@FILE|-",
            help="The call role again, where the turn began with one. @FILE reads a file, - reads standard input, @@ "
            "begins a text with a single @. Nothing stores it, but other users of the machine may see TEXT among its "
            "processes.",
            rich_help_panel=MODEL,
        ),
    ] = None
    account: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Who answers; a policy may say who may.", rich_help_panel=ANSWERS),
    ] = None
    no_role: Annotated[
        bool,
        typer.Option("--no-role", help="Go on without the call role that the turn began with.", rich_help_panel=MODEL),
    ] = False
    on_role_change: Annotated[
        str,
        typer.Option(
            metavar="fail|refresh",
            help="What to do where another role is active than when the turn began: fail, or go on with what is "
            "active now.",
            rich_help_panel=MODEL,
        ),
    ] = "fail"
    events: Events = False


@dataclass(frozen=True, kw_only=True)
class ThreadsOptions:
    """What every command of `threads` takes."""

    workspace: Annotated[str, typer.Option(metavar="ID", help="The workspace.", rich_help_panel=WHERE)] = WORKSPACE
    home: Home = None
    json: JsonResult = False


@dataclass(frozen=True, kw_only=True)
class ThreadOptions(ThreadsOptions):
    """What `threads cancel` takes, and every other command about one thread."""

    thread: Annotated[str, typer.Argument(metavar="THREAD", help="The conversation within the workspace.")]
