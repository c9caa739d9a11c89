"""Commands that ask for an operation. The person at this machine calls it, as an operator of the workspace."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

import typer

from .command import bad_usage, command, storage_of
from .options import AgentOptions, ThreadsOptions
from .output import Output

if TYPE_CHECKING:
    from ...agent.upkeep import Upkeep
    from ..service.arguments import WorkspaceArguments
    from ..service.home import Workspace
    from ..service.operation import Operation
    from ..service.records import Answer


def fields_of(answer: Answer) -> dict[str, Any]:
    """The fields of an answer, for a program."""
    return answer.model_dump(mode="json", exclude={"contract"})


def operation(
    app: typer.Typer,
    name: str,
    asked: str,
    *,
    show: Callable[[Any], str | None],
    value: Callable[[Any], dict[str, Any]] = fields_of,
    read: Callable[[dict[str, Any]], dict[str, Any]] = lambda given: given,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a command that asks for an operation with its options as the arguments, and shows the answer.

    The function has the options, each named as an argument of the operation, and the docstring. It is not called.

    Args:
        app: The app.
        name: The command's name.
        asked: The operation.
        show: What a person reads of an answer.
        value: What a program reads of it.
        read: Reads what options name, and checks what only a person can write.
    """

    async def work(options: ThreadsOptions | AgentOptions, output: Output, **given: Any) -> None:
        named = {name: each for name, each in read(given).items() if each is not None and each != []}
        answer = await ask(options, asked, output, **named)
        output.result(value(answer), show(answer))

    return command(app, name, work=work, asks=(asked,))


async def ask(options: ThreadsOptions | AgentOptions, asked: str, output: Output | None = None, /, **given: Any) -> Any:
    """Ask for an operation.

    Args:
        options: The command's options. With those of an agent, it is asked of an agent.
        asked: The operation's name.
        output: Where notes about the agent go.
        given: The arguments.

    Raises:
        WorldAgentError: As the operation says.
    """
    async with opened(options, output) as workspace:
        return await ask_in(workspace, options, asked, **given)


async def ask_in(workspace: Any, options: ThreadsOptions | AgentOptions | None, asked: str, /, **given: Any) -> Any:
    """As `ask`, in a workspace that is open."""
    from ..service.operations import OPERATIONS

    found = OPERATIONS[asked]
    names = found.arguments.model_fields.keys() - {"role"}
    of_options = {name: getattr(options, name) for name in names if hasattr(options, name)}
    # What runs below checks the values, and its errors name them as a person wrote them.
    return await answer_to(workspace, options, found, found.arguments.model_construct(**of_options | given))


async def answer_to(
    workspace: Any, options: ThreadsOptions | AgentOptions | None, found: Operation, arguments: WorkspaceArguments
) -> Any:
    """What an operation answers the person at this machine."""
    from ..service.call import ANY, Call, Caller, Grant

    grant = Grant((workspace.workspace,), (ANY,), operator=True)
    caller = Caller(workspace=workspace.workspace, account=getattr(options, "account", None), grant=grant)
    return await found(Call(given=arguments, caller=caller), workspace)


@asynccontextmanager
async def opened(options: ThreadsOptions | AgentOptions, output: Output | None = None) -> AsyncGenerator[Workspace]:
    """What a command works on: the workspace of a home or, with the options of an agent, an agent."""
    if isinstance(options, AgentOptions):
        from .agents import open_agent

        if options.role is not None:
            raise bad_usage("a call role has no effect here", remedy="omit --role")
        async with open_agent(options, output or Output()) as agent:
            yield agent
        return
    from ..service.home import open_home

    async with open_home(storage_of(options.home), options.workspace) as home:
        yield home


def json_read(given: dict[str, Any], *names: str) -> dict[str, Any]:
    """Read the options that give a JSON object: as text, `@FILE`, or `-`."""
    from .sources import json_object, text

    read = {name: json_object(f"--{name}", text(f"--{name}", given[name])) for name in names if given[name] is not None}
    return given | read


@asynccontextmanager
async def open_upkeep(options: ThreadsOptions) -> AsyncGenerator[Upkeep]:
    """The upkeep of a workspace, with the roles of the home if there are some. A missing database is made."""
    from ...agent import Settings
    from ...agent.stores import Stores
    from ...agent.upkeep import Upkeep
    from ...members.life.aging import prune_members
    from ...role_resolution import SqliteRoleStore

    settings, storage = Settings(), storage_of(options.home)
    async with AsyncExitStack() as opened:
        stores = await opened.enter_async_context(aclosing(await Stores.open(storage, wait=settings.thread_wait)))
        roles = None
        if storage.roles.exists():
            roles = await opened.enter_async_context(aclosing(await SqliteRoleStore.open(storage.roles)))
        aged, old = {"society": prune_members}, settings.society_age
        yield Upkeep(stores, options.workspace, roles, aged=aged, society_age=old)
