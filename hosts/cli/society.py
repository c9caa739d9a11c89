"""The commands of `society`: members, whom they know, and the messages that wait for people. None needs a model."""

from __future__ import annotations

from asyncio import to_thread
from contextlib import asynccontextmanager
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from .command import Work, command, confirmed, storage_of
from .exits import FAILED
from .options import WHICH, ThreadsOptions, argument, flag, option, option_group
from .output import Output, table

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ...agent.upkeep import Upkeep
    from ...members.society import Society
    from ..service.records import Answer

_MEMBERS: Final = ("ID", "ROLE", "STATUS", "PARENT", "SOUL")
_CONTACTS: Final = ("ID", "ROLE", "INTRODUCED BY", "NOTE")

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _society() -> None:
    """Members of a workspace: who they are, whom they know, and what they write to people.

    Agents have members if your own agent has society=WorkspaceConfig(...).

    [bold]Example[/bold]

      worldagent society inbox
    """


@option_group
class PersonOptions(ThreadsOptions):
    """The options of `society inbox`."""

    person: str = option("ID", "The person whose messages they are.", WHICH, default="user")
    limit: int = option("N", "How many to show, 1 to 1000, the oldest first.", WHICH, default=100)


@command(app, "members")
async def members(options: ThreadsOptions, output: Output) -> None:
    """List the members that are not terminated, in the order in which they joined.

    [bold]Example[/bold]

      worldagent society members --workspace studio
    """
    from ..service.society import members_answer

    async with open_society(options) as society:
        found = await members_answer(society)
    rows = [(each.id, each.role, each.status, each.parent, str(each.soul_version)) for each in found.members]
    output.result(fields_of(found), table(_MEMBERS, rows) if rows else "there are no members")


@command(app, "contacts")
async def contacts(
    options: ThreadsOptions, output: Output, id: str = argument("MEMBER", "The id of the member, or user or root.")
) -> None:
    """List whom a member can write to, and who introduced them.

    [bold]Example[/bold]

      worldagent society contacts cro
    """
    from ..service.society import contacts_answer

    async with open_society(options) as society:
        found = await contacts_answer(society, id)
    rows = [(each.id, each.role, each.introduced_by, each.note) for each in found.contacts]
    output.result(fields_of(found), table(_CONTACTS, rows) if rows else "there are no contacts")


@command(app, "graph")
async def graph(options: ThreadsOptions, output: Output) -> None:
    """Draw who knows whom, and by whose introduction, as a Mermaid flowchart; with --json as data.

    [bold]Example[/bold]

      worldagent society graph > who-knows-whom.mmd
    """
    from ..service.society import graph_answer

    async with open_society(options) as society:
        found = await graph_answer(society)
    output.result(fields_of(found), found.mermaid)


@command(app, "inbox")
async def inbox(
    options: PersonOptions, output: Output, read: bool = flag("--read", "Mark the messages as read.", WHICH)
) -> None:
    """Show the messages that members wrote to a person and that are not marked as read.

    [bold]Example[/bold]

      worldagent society inbox --read
    """
    from ..service.society import inbox_answer

    async with open_society(options) as society:
        found = await society.mail.inbox(options.person, limit=options.limit)
        shown = [f"{each.message.id}\n{await society.mail.text_of(each, can_reply=False)}" for each in found]
        for letter in found if read else ():
            await society.mail.read(letter.message.id)
    output.result(fields_of(inbox_answer(found)), "\n\n".join(shown) or "there are no messages")


@command(app, "send")
async def send(
    options: ThreadsOptions,
    output: Output,
    to: str = argument("MEMBER", "The id of the member, or root for the World Agent."),
    text: str = argument("TEXT", "What to write."),
) -> None:
    """Write to a member as the owner of the workspace. Its turn starts where a gateway runs.

    The owner knows the World Agent, and members that wrote first.

    [bold]Example[/bold]

      worldagent society send root 'Please have the contract checked.'
    """
    from ..service.society import send_answer

    async with open_society(options) as society:
        letter = await society.mail.send("user", to, text)
    output.result(fields_of(send_answer(letter)), f"sent as {letter.message.id}")


@command(app, "withdraw")
async def withdraw(
    options: ThreadsOptions,
    output: Output,
    id: str = argument("MEMBER", "The id of the member, or user or root."),
    contact: str = argument("CONTACT", "The id of the contact that it loses."),
) -> None:
    """Take a contact away from a member: its next message to it is refused, unless it is a reply.

    The World Agent and the owner always know each other.

    [bold]Example[/bold]

      worldagent society withdraw bdr legal
    """
    from ..service.society import withdraw_answer

    async with open_society(options) as society:
        found = await withdraw_answer(society, id, contact)
    shown = "withdrawn" if found.withdrawn else f"{contact!r} is not a contact of {id!r} that can be withdrawn"
    output.result(fields_of(found), shown)


@command(app, "spawns")
async def spawns(options: ThreadsOptions, output: Output) -> None:
    """List the members that wait for your approval, with their tasks. A workspace's policy can require it.

    [bold]Example[/bold]

      worldagent society spawns
    """
    from ..service.society import spawns_answer

    async with open_society(options) as society:
        found = await spawns_answer(society)
    shown = [f"{each.id} ({each.role}), made by {each.parent}\n{each.task}".rstrip() for each in found.spawns]
    output.result(fields_of(found), "\n\n".join(shown) or "no member waits for approval")


@command(app, "approve")
async def approve(
    options: ThreadsOptions,
    output: Output,
    id: str = argument("MEMBER", "The id of the member, as `society spawns` shows it."),
) -> None:
    """Approve a member that waits for it. It begins with its task where a gateway runs.

    [bold]Example[/bold]

      worldagent society approve bdr-apac
    """
    async with open_society(options) as society:
        member = await society.approve_spawn(id)
    output.result({"approved": member}, f"{member} is active")


@command(app, "reject")
async def reject(
    options: ThreadsOptions,
    output: Output,
    id: str = argument("MEMBER", "The id of the member, as `society spawns` shows it."),
    reason: str = option("TEXT", "Why, for the member that made it.", default=""),
) -> None:
    """Reject a member that waits for approval. Its id is free again.

    [bold]Example[/bold]

      worldagent society reject bdr-apac --reason 'The brief names no budget.'
    """
    async with open_society(options) as society:
        member = await society.reject_spawn(id, reason)
    output.result({"rejected": member}, f"{member} was rejected")


@command(app, "export")
async def export(
    options: ThreadsOptions,
    output: Output,
    id: str = argument("MEMBER", "The id of the member."),
    file: Path | None = option("FILE", "The file to write; standard output by default.", WHICH, "--output", "-o"),
) -> None:
    """Write all that is stored of a member as JSON: its definition and life, contacts, messages and memory.

    [bold]Example[/bold]

      worldagent society export cro -o cro.json
    """
    from ...core.files import replace_file, storage_errors

    async with _upkeep(options) as upkeep:
        from ...members.life.removal import export_member

        found = await export_member(upkeep, id)
    text = dumps(found, ensure_ascii=False, indent=2)
    if file is None:
        output.result(found, text)
        return
    problem = f"the file {str(file)!r} cannot be written"
    with storage_errors(problem, remedy="name a file in another folder"):
        await to_thread(replace_file, file, f"{text}\n".encode())
    output.result({"exported": id, "file": str(file)}, f"the member {id!r} is in {str(file)!r}")


@command(app, "state")
async def state(
    options: ThreadsOptions,
    output: Output,
    id: str = argument("MEMBER", "The id of the member."),
    state: str = argument("testing|active|suspended", "Its new state."),
) -> None:
    """Change the state of a member: a draft is tested, a tested one works, an active one is suspended or resumed.

    In testing it receives messages and events, and what it does has no effect. While it is suspended it receives
    nothing.

    [bold]Example[/bold]

      worldagent society state bdr-apac suspended
    """
    from ...core.checks import check_choice

    check_choice("state", state, ("testing", "active", "suspended"))
    async with open_society(options) as society:
        if state == "active":
            before = (await society.members.member(options.workspace, id)).life.status
            await (society.resume(id) if before == "suspended" else society.activate(id))
        else:
            await (society.test(id) if state == "testing" else society.suspend(id))
    output.result({"member": id, "status": state}, f"{id} is {state}")


@command(app, "terminate")
def terminate(
    options: ThreadsOptions,
    output: Output,
    id: str = argument("MEMBER", "The id of the member."),
    reason: str = option("TEXT", "Why.", WHICH, default="human_decision"),
    yes: bool = flag("--yes", "Terminate it without asking.", WHICH, "-y"),
) -> Work:
    """End a member and all members below it. What it did and wrote is kept; `society rm` removes that.

    A gateway then does with its memory what its `memory_policy` says.

    [bold]Example[/bold]

      worldagent society terminate bdr-apac --yes
    """
    asked = f"End the member {id!r} and all members below it for good?"
    if not (yes or confirmed(output, asked, problem=f"ending the member {id!r} must be confirmed")):
        output.note("nothing was changed")
        raise typer.Exit(FAILED)

    async def work() -> None:
        async with open_society(options) as society:
            ended = await society.terminate(id, reason)
        output.result({"terminated": [*ended]}, f"terminated {', '.join(ended)}")

    return work()


@command(app, "rm")
def remove(
    options: ThreadsOptions,
    output: Output,
    id: str = argument("MEMBER", "The id of the member."),
    yes: bool = flag("--yes", "Remove it without asking.", WHICH, "-y"),
    cancel: bool = flag("--cancel", "Cancel its turns that run or can be resumed.", WHICH),
) -> Work:
    """Remove a member: its definition, contacts, messages, threads, memory and stored role.

    One that lives is terminated, and the members below it with it. If a role host keeps the roles, remove its role with
    [bold]roles delete --account member:WORKSPACE/ID[/bold].

    [bold]Example[/bold]

      worldagent society rm cro --yes
    """
    asked = f"Remove the member {id!r} from the workspace {options.workspace!r} for good?"
    if not (yes or confirmed(output, asked, problem=f"removing the member {id!r} must be confirmed")):
        output.note("nothing was removed")
        raise typer.Exit(FAILED)

    async def work() -> None:
        async with _upkeep(options) as upkeep:
            from ...members.life.removal import remove_member

            value = asdict(await remove_member(upkeep, id, cancel=cancel))
        parts = [f"{count:,} {key}" for key, count in value.items() if key != "shared"]
        output.note(f"removed the member {id!r}, and of its account: {', '.join(parts)}")
        output.result({"removed": {"member": id, **value, "shared": [*value["shared"]]}})

    return work()


@asynccontextmanager
async def _upkeep(options: ThreadsOptions) -> AsyncGenerator[Upkeep]:
    """The upkeep of the workspace, with the roles of the home if there are some."""
    from contextlib import AsyncExitStack, aclosing

    from ...agent.stores import Stores
    from ...agent.upkeep import Upkeep
    from ...role_resolution import SqliteRoleStore

    storage = storage_of(options.home)
    async with AsyncExitStack() as opened:
        stores = await opened.enter_async_context(aclosing(await Stores.open(storage)))
        roles = None
        if storage.roles.exists():
            roles = await opened.enter_async_context(aclosing(await SqliteRoleStore.open(storage.roles)))
        yield Upkeep(stores, options.workspace, roles)


@asynccontextmanager
async def open_society(options: ThreadsOptions) -> AsyncGenerator[Society]:
    """The society of a workspace, on the database of a home. Its policy and templates are not known here."""
    from contextlib import aclosing

    from ...agent import Settings
    from ...agent.stores import Stores
    from ...members.data.workspace import WorkspaceConfig
    from ...members.mail.wakeups import wakeups_of
    from ...members.society import Society

    config = WorkspaceConfig(id=options.workspace, owner="user")
    async with aclosing(await Stores.open(storage_of(options.home))) as stores:
        wakeups = wakeups_of(stores.database, Settings().nats_url)
        async with aclosing(Society(config, stores.database, stores.clock, wakeups=wakeups)) as society:
            yield society


def fields_of(answer: Answer) -> dict[str, Any]:
    """The fields of the sidecar's answer."""
    return answer.model_dump(mode="json", exclude={"contract"})
