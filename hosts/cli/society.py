"""The commands of `society`: members, whom they know, and the messages that wait for people. None needs a model."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from .command import Work, command, confirm
from .operating import ask, fields_of, open_upkeep, opened, operation
from .options import ThreadsOptions, argument, option_group
from .output import Output, lines_of, records_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..service.society import SpawnRecord

_MEMBERS: Final = {"ID": "id", "ROLE": "role", "STATUS": "status", "PARENT": "parent", "SOUL": "soul_version"}
_WAITING: Final = {"WAITS": "id", "TYPE": "type", "FROM": "source", "STATE": "state", "SINCE": "since"}
_CONTACTS: Final = {"ID": "id", "ROLE": "role", "INTRODUCED BY": "introduced_by", "NOTE": "note"}
_STALLS: Final = {"KIND": "kind", "SINCE": "since", "WHAT": "what", "REMEDY": "remedy"}
_MEMBER: Final = argument("MEMBER", "The id of the member.")
_SPAWN: Final = argument("MEMBER", "The id of the member, as `society spawns` shows it.")

app = typer.Typer(name="society", no_args_is_help=True)


@app.callback()
def _society() -> None:
    """Members of a workspace: who they are, whom they know, and what they write to people.

    Agents have members if your own agent has society=WorkspaceConfig(...).

    [bold]Example[/bold]

      worldagent society inbox
    """


@option_group
class PersonOptions(ThreadsOptions):
    """The options of `society inbox`.

    Attributes:
        person (--person ID; Which): The person whose messages they are.
        limit (--limit N; Which): How many to show, 1 to 1000, the oldest first.
    """

    person: str = "user"
    limit: int = 100


@operation(
    app, "members", "society_members", show=lambda found: records_table(_MEMBERS, found.members, "there are no members")
)
def members(options: ThreadsOptions, output: Output) -> None:
    """List the members that are not terminated, in the order in which they joined.

    [bold]Example[/bold]

      worldagent society members --workspace studio
    """


def _shown(found: Any) -> str:
    """A member, and below that what waits for it."""
    member = found.member
    waiting = records_table(_WAITING, [*member.messages, *member.events])
    return lines_of(fields_of(found)["member"], "messages", "events") + (f"\n\n{waiting}" if waiting else "")


@operation(app, "show", "society_member", show=_shown)
def show(options: ThreadsOptions, output: Output, member: str = _MEMBER) -> None:
    """Show a member: its goals and domains, how far it is trusted, and the messages and events that wait for it.

    [bold]Example[/bold]

      worldagent society show cro
    """


@operation(
    app,
    "contacts",
    "society_contacts",
    show=lambda found: records_table(_CONTACTS, found.contacts, "there are no contacts"),
)
def contacts(options: ThreadsOptions, output: Output, member: str) -> None:
    """List whom a member can write to, and who introduced them.

    [bold]Example[/bold]

      worldagent society contacts cro

    Args:
        member (MEMBER): The id of the member, or user or root.
    """


@operation(app, "graph", "society_graph", show=lambda found: found.mermaid)
def graph(options: ThreadsOptions, output: Output) -> None:
    """Draw who knows whom, and by whose introduction, as a Mermaid flowchart; with --json as data.

    [bold]Example[/bold]

      worldagent society graph > who-knows-whom.mmd
    """


@operation(
    app, "stalls", "society_stalls", show=lambda found: records_table(_STALLS, found.stalls, "nothing stands still")
)
def stalls(options: ThreadsOptions, output: Output) -> None:
    """List what stands still among the members or goes round, and what to do.

    [bold]Example[/bold]

      worldagent society stalls --workspace studio
    """


@command(
    app,
    "inbox",
    asks=(
        "society_inbox",
        "society_read",
    ),
)
async def inbox(options: PersonOptions, output: Output, read: bool = False) -> None:
    """Show the messages that members wrote to a person and that are not marked as read.

    [bold]Example[/bold]

      worldagent society inbox --read

    Args:
        read (--read; Which): Mark the messages as read.
    """
    from ..service.society import SocietyInboxAnswer, mail_record

    async with opened(options) as workspace:
        society = workspace.society
        found = await society.mail.inbox(options.person, limit=options.limit)
        shown = [f"{each.message.id}\n{await society.mail.text_of(each, can_reply=False)}" for each in found]
        for letter in found if read else ():
            await society.mail.read(letter.message.id)
    answer = SocietyInboxAnswer(messages=[mail_record(each) for each in found])
    output.result(fields_of(answer), "\n\n".join(shown) or "there are no messages")


@operation(app, "send", "society_send", show=lambda found: f"sent as {found.message.id}")
def send(options: ThreadsOptions, output: Output, to: str, text: str) -> None:
    """Write to a member as the owner of the workspace. Its turn starts where a gateway runs.

    The owner knows the World Agent, and members that wrote first.

    [bold]Example[/bold]

      worldagent society send root 'Please have the contract checked.'

    Args:
        to (MEMBER): The id of the member, or root for the World Agent.
        text (TEXT): What to write.
    """


@command(app, "withdraw", asks=("society_withdraw",))
async def withdraw(options: ThreadsOptions, output: Output, member: str, contact: str) -> None:
    """Take a contact away from a member: its next message to it is refused, unless it is a reply.

    The World Agent and the owner always know each other.

    [bold]Example[/bold]

      worldagent society withdraw bdr legal

    Args:
        member (MEMBER): The id of the member, or user or root.
        contact (CONTACT): The id of the contact that it loses.
    """
    found = await ask(options, "society_withdraw", member=member, contact=contact)
    left = f"{contact!r} is not a contact of {member!r} that can be withdrawn"
    output.result(fields_of(found), "withdrawn" if found.withdrawn else left)


@operation(app, "spawns", "society_spawns", show=lambda found: _spawns(found.spawns) or "no member waits for approval")
def spawns(options: ThreadsOptions, output: Output) -> None:
    """List the members that wait for your approval, with their tasks. A workspace's policy can require it.

    [bold]Example[/bold]

      worldagent society spawns
    """


@operation(app, "approve", "society_approve", show=lambda found: f"{found.approved} is active")
def approve(options: ThreadsOptions, output: Output, member: str = _SPAWN) -> None:
    """Approve a member that waits for it. It begins with its task where a gateway runs.

    [bold]Example[/bold]

      worldagent society approve bdr-apac
    """


@operation(app, "reject", "society_reject", show=lambda found: f"{found.rejected} was rejected")
def reject(options: ThreadsOptions, output: Output, member: str = _SPAWN, reason: str = "") -> None:
    """Reject a member that waits for approval. Its id is free again.

    [bold]Example[/bold]

      worldagent society reject bdr-apac --reason 'The brief names no budget.'

    Args:
        reason (--reason TEXT): Why, for the member that made it.
    """


@command(app, "export")
async def export(options: ThreadsOptions, output: Output, id: str = _MEMBER, file: Path | None = None) -> None:
    """Write all that is stored of a member as JSON: its definition and life, contacts, messages and memory.

    [bold]Example[/bold]

      worldagent society export cro -o cro.json

    Args:
        file (--output -o FILE; Which): The file to write; standard output by default.
    """
    from asyncio import to_thread

    from ...core.files import replace_file, storage_errors
    from ...members.life.removal import export_member

    async with open_upkeep(options) as upkeep:
        found = await export_member(upkeep, id)
    text = dumps(found, ensure_ascii=False, indent=2)
    if file is None:
        output.result(found, text)
        return
    problem = f"the file {str(file)!r} cannot be written"
    with storage_errors(problem, remedy="name a file in another folder"):
        await to_thread(replace_file, file, f"{text}\n".encode())
    output.result({"exported": id, "file": str(file)}, f"the member {id!r} is in {str(file)!r}")


@operation(app, "state", "society_state", show=lambda found: f"{found.member} is {found.status}")
def state(options: ThreadsOptions, output: Output, member: str = _MEMBER, *, state: str) -> None:
    """Change the state of a member: a draft is tested, a tested one works, an active one is suspended or resumed.

    In testing it receives messages and events, and what it does has no effect. While it is suspended it receives
    nothing.

    [bold]Example[/bold]

      worldagent society state bdr-apac suspended

    Args:
        state (testing|active|suspended): Its new state.
    """


@command(app, "terminate", asks=("society_terminate",))
def terminate(
    options: ThreadsOptions, output: Output, id: str = _MEMBER, reason: str = "human_decision", yes: bool = False
) -> Work:
    """End a member and all members below it. What it did and wrote is kept; `society rm` removes that.

    A gateway then does with its memory what its `memory_policy` says.

    [bold]Example[/bold]

      worldagent society terminate bdr-apac --yes

    Args:
        reason (--reason TEXT; Which): Why.
        yes (--yes -y; Which): Terminate it without asking.
    """
    asked, problem = f"End the member {id!r} and all members below it for good?", f"ending the member {id!r}"
    confirm(output, yes, asked, problem=f"{problem} must be confirmed", kept="nothing was changed")

    async def work() -> None:
        ended = await ask(options, "society_terminate", member=id, reason=reason)
        output.result(fields_of(ended), f"terminated {', '.join(ended.terminated)}")

    return work()


@command(app, "rm")
def remove(options: ThreadsOptions, output: Output, id: str = _MEMBER, yes: bool = False, cancel: bool = False) -> Work:
    """Remove a member: its definition, contacts, messages, threads, memory and stored role.

    One that lives is terminated, and the members below it with it. If a role host keeps the roles, remove its role with
    [bold]roles delete --account member:WORKSPACE/ID[/bold].

    [bold]Example[/bold]

      worldagent society rm cro --yes

    Args:
        yes (--yes -y; Which): Remove it without asking.
        cancel (--cancel; Which): Cancel its turns that run or can be resumed.
    """
    asked = f"Remove the member {id!r} from the workspace {options.workspace!r} for good?"
    confirm(output, yes, asked, problem=f"removing the member {id!r} must be confirmed")

    async def work() -> None:
        from ...members.life.removal import remove_member

        async with open_upkeep(options) as upkeep:
            value = asdict(await remove_member(upkeep, id, cancel=cancel))
        parts = [f"{count:,} {key}" for key, count in value.items() if key != "shared"]
        output.note(f"removed the member {id!r}, and of its account: {', '.join(parts)}")
        output.result({"removed": {"member": id, **value, "shared": [*value["shared"]]}})

    return work()


def _spawns(found: Iterable[SpawnRecord]) -> str:
    return "\n\n".join(f"{each.id} ({each.role}), made by {each.parent}\n{each.task}".rstrip() for each in found)
