"""The commands and their help. What they do is in modules of their own, which load when a command runs."""

from __future__ import annotations

from typing import Annotated

import typer

from ._approvals_commands import add_approvals
from ._debug import DEBUG
from ._doctor_options import DoctorOptions
from ._models_options import ModelsOptions
from ._options import AskOptions, ChatOptions, TaskOptions, options_of
from ._profiles_commands import add_profiles
from ._role_options import RoleHostOptions, RolesOptions, RolesPutOptions
from ._serve_commands import add_serve
from ._storage_commands import add_storage
from ._thread_options import (
    BareValues,
    ForkOptions,
    RenameOptions,
    ResumeOptions,
    ShowOptions,
    ThreadOptions,
    ThreadsListOptions,
)
from ._trace_commands import add_trace
from ._upkeep_commands import add_upkeep

_ASK = """\
Say something to the agent and print its answer.

On a terminal the answer appears while it is written. Each question has a thread of its own; name one with --thread to
continue a conversation.

[bold]Examples[/bold]

  worldagent ask 'What is the capital of France?' --thread trip

  worldagent ask 'And of Spain?' --thread trip --role 'Answer in one word.'

  git diff | worldagent ask 'Review this change:' --role @reviewer.md --lm openai/gpt-4o

  worldagent ask 'What is on it?' --attach photo.png --lm openai/gpt-4o
"""

_CHAT = """\
Talk with the agent, message by message.

Answers appear while they are written; /help lists what else can be done. A turn that waits for a person asks there,
also one that was left for another day. Where stdin or stdout is no terminal, each line is a message, or the answer to
what waits, and what comes of it is printed; the exit code is 3 where a turn waits in the end.

[bold]Examples[/bold]

  worldagent chat --thread novel --account ana

  worldagent chat --role @reviewer.md --lm openai/gpt-4o

  cat questions.txt | worldagent chat --json
"""

_TASK = """\
Dispatch one task to a shape and print its result.

The shape that ships is [bold]subagent[/bold]: it runs a worker by its name, with the params worker and request.

[bold]Example[/bold]

  worldagent task subagent --worker 'critic=You judge in one sentence.' -p worker=critic -p request='Judge this: ...'

  worldagent task buy -p what=hat --app shop:agent --thread t1
"""

_RESUME = """\
Go on with a turn that waits for a person, was stopped, failed in passing, or was cut off with its process.

Where nothing is answered and the turn waits, it prints for what, and the exit code is 3. The agent is made of the same
options as when the turn began. Other users of the machine may see what is answered among its processes.

[bold]Examples[/bold]

  worldagent resume t1

  worldagent resume t1 --answer red

  worldagent resume t1 --app shop:agent --approve
"""

_THREADS = """\
The threads of a workspace: where they stand, what they wait for.

No model is asked, and none is needed.

[bold]Example[/bold]

  worldagent threads list --status paused
"""

_LIST_THREADS = """\
List the threads of a workspace by their newest turns, the newest first.

A thread is paused, stopped, running, done, failed, cancelled, cut_off (its process ended), abandoned (cut off, and new
input let go of it) or forked (branched off, with no turn of its own yet). [bold]worldagent resume[/bold] goes on with
what is paused, stopped, failed or cut_off.

[bold]Example[/bold]

  worldagent threads list --workspace novel --status paused

  worldagent threads list --account ana --query "dragons"
"""

_RENAME_THREAD = """\
Set the title that lists show for a thread.

A thread without one is listed with the first words of its first message. An empty TITLE gives them back.

[bold]Example[/bold]

  worldagent threads rename t1 "Dragons of Vell"
"""

_SHOW_THREAD = """\
Show where a thread stands, what it waits for, and its last messages.

What waits is shown with the command that answers it; add the --app or the other options that the turn began with.

[bold]Example[/bold]

  worldagent threads show t1
"""

_CANCEL_THREAD = """\
Cancel a thread's turn, in whatever process it runs or wherever it waits.

Where there is none to cancel, the exit code is 1.

[bold]Example[/bold]

  worldagent threads cancel t1
"""

_FORK_THREAD = """\
Make a thread that goes on from a message of another one, and print its name.

It costs one row, however long the past is: both share it. [bold]threads show --messages 100 --json[/bold] tells the ids
of messages.

[bold]Example[/bold]

  worldagent threads fork t1 --to plan-b
"""

_MODELS = """\
List the providers of models that --lm and the setting lm can name, and what models can do.

For each provider: its prefix, the environment variable of its key, whether that is set, what else it needs, and an
example. Keys are not printed, and nothing is contacted. Any other server that speaks OpenAI's chat protocol is
openai/MODEL with the setting api_base.

For each model: whether it takes tools, images and documents, can hold its answers to a JSON Schema, and reasons, and
how many tokens its prompt and its answer may have. With MODEL only that is told.

[bold]Examples[/bold]

  worldagent models

  worldagent models openai/gpt-4o anthropic/claude-sonnet-4-5 --json
"""

_ROLES = """\
The stored roles: one for each workspace, account and channel.

They are in the embedded store, or where a role host keeps them: see --role-host.

[bold]Example[/bold]

  worldagent roles put 'Answer in French.' --account ana
"""

_LIST = """\
List the roles that are set: of the workspace, and of the account and channel that are named.

The texts are in what [bold]get[/bold] prints, and in --json.

[bold]Example[/bold]

  worldagent roles list --workspace novel --account ana
"""

_GET = """\
Print the text of one role.

Where none is set, the exit code is 1.

[bold]Example[/bold]

  worldagent roles get --account ana
"""

_PUT = """\
Set or replace one role.

Other users of the machine may see TEXT among its processes; @FILE and - are not seen.

[bold]Examples[/bold]

  worldagent roles put 'Answer in French.' --account ana

  worldagent roles put @house.md --workspace novel --name 'house style'
"""

_DELETE = """\
Clear one role.

Where none is set, the exit code is 1.

[bold]Example[/bold]

  worldagent roles delete --account ana
"""

_ROLE_HOST = """\
Keep roles for others: a role host that speaks MCP, over its standard streams or HTTP.

Runs until Ctrl-C, SIGTERM, or, with --stdio, the end of its input.

[bold]Examples[/bold]

  worldagent role-host --stdio --store roles.db

  worldagent role-host --http 127.0.0.1:8100 --token-file token.txt
"""

_DOCTOR = """\
Check this installation, or a role host in any language, and say what is wrong and what to do.

Nothing is changed, but by --rekey, which makes a new role key where the old one was lost. A role host is checked
against the contract of role hosts, point by point; with --write by putting and deleting roles too. Where a point fails,
the exit code is 1.

[bold]Examples[/bold]

  worldagent doctor

  worldagent doctor --role-host https://host.example/mcp --token-file token.txt

  worldagent doctor --stdio 'node host.ts' --write --json
"""

_APP = """\
A World Agent: turns and tasks whose approach is shaped by roles that nothing stores.

[bold]Example[/bold]

  worldagent ask 'What is the capital of France?'

Exit codes: 0 done, 1 failed, 2 bad usage, 3 waits for a person, 130 interrupted, 143 stopped by SIGTERM.
"""

# No tracebacks with local variables: one of them may hold a role.
app = typer.Typer(
    name="worldagent",
    help=_APP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _ask(options: AskOptions) -> int:
    from ._ask import ask

    return ask(options)


def _chat(options: ChatOptions) -> int:
    from .chat import chat

    return chat(options)


def _task(options: TaskOptions) -> int:
    from ._task import task

    return task(options)


def _resume(options: ResumeOptions) -> int:
    from ._resume import resume

    return resume(options)


def _list_threads(options: ThreadsListOptions) -> int:
    from ._threads import list_threads

    return list_threads(options)


def _show_thread(options: ShowOptions) -> int:
    from ._threads import show_thread

    return show_thread(options)


def _rename_thread(options: RenameOptions) -> int:
    from ._threads import rename_thread

    return rename_thread(options)


def _cancel_thread(options: ThreadOptions) -> int:
    from ._threads import cancel_thread

    return cancel_thread(options)


def _fork_thread(options: ForkOptions) -> int:
    from ._threads import fork_thread

    return fork_thread(options)


def _list_roles(options: RolesOptions) -> int:
    from ._roles import list_roles

    return list_roles(options)


def _get_role(options: RolesOptions) -> int:
    from ._roles import get_role

    return get_role(options)


def _put_role(options: RolesPutOptions) -> int:
    from ._roles import put_role

    return put_role(options)


def _delete_role(options: RolesOptions) -> int:
    from ._roles import delete_role

    return delete_role(options)


def _role_host(options: RoleHostOptions) -> int:
    from ._role_host import role_host

    return role_host(options)


def _doctor(options: DoctorOptions) -> int:
    from ._doctor import doctor

    return doctor(options)


def _models(options: ModelsOptions) -> int:
    from ._models import models

    return models(options)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"worldagent {version('worldagent')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Print on stderr where an error comes from; never prompts or answers.")
    ] = False,
) -> None:
    DEBUG.set(debug)


app.command("ask", help=_ASK)(options_of(AskOptions, _ask))
app.command("chat", help=_CHAT)(options_of(ChatOptions, _chat))
app.command("task", help=_TASK)(options_of(TaskOptions, _task))
app.command("resume", help=_RESUME, cls=BareValues)(options_of(ResumeOptions, _resume))
app.command("role-host", help=_ROLE_HOST)(options_of(RoleHostOptions, _role_host))
app.command("doctor", help=_DOCTOR)(options_of(DoctorOptions, _doctor))
app.command("models", help=_MODELS)(options_of(ModelsOptions, _models))

roles = typer.Typer(no_args_is_help=True, help=_ROLES, rich_markup_mode="rich")
roles.command("list", help=_LIST)(options_of(RolesOptions, _list_roles))
roles.command("get", help=_GET)(options_of(RolesOptions, _get_role))
roles.command("put", help=_PUT)(options_of(RolesPutOptions, _put_role))
roles.command("delete", help=_DELETE)(options_of(RolesOptions, _delete_role))
app.add_typer(roles, name="roles")

threads = typer.Typer(no_args_is_help=True, help=_THREADS, rich_markup_mode="rich")
threads.command("list", help=_LIST_THREADS)(options_of(ThreadsListOptions, _list_threads))
threads.command("show", help=_SHOW_THREAD)(options_of(ShowOptions, _show_thread))
threads.command("rename", help=_RENAME_THREAD)(options_of(RenameOptions, _rename_thread))
threads.command("cancel", help=_CANCEL_THREAD)(options_of(ThreadOptions, _cancel_thread))
threads.command("fork", help=_FORK_THREAD)(options_of(ForkOptions, _fork_thread))
app.add_typer(threads, name="threads")
add_storage(app)
add_upkeep(app, threads)
add_trace(app)
add_approvals(app)
add_profiles(app)
add_serve(app)

__all__ = ["app"]
