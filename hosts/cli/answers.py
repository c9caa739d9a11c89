"""Going on with a turn on the command line: what `resume` and the commands of `approvals` have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ...core import check_id
from ...core.errors import InvalidArgument, NothingToResume
from ...core.pauses import PersonAnswer
from ._thread_options import GoOnOptions
from .output import Output
from .sources import one_reader, role
from .turn import one_form, one_turn

if TYPE_CHECKING:
    from ...agent import Turn, WorldAgent
    from ...role_resolution import Role

_CHANGES: Final = ("fail", "refresh")


@dataclass(frozen=True)
class GoingOn:
    """A turn to go on with.

    Attributes:
        thread: Its thread.
        answers: What is answered, by the ids of pauses.
        role: The call role that is given again.
    """

    thread: str
    answers: Mapping[str, PersonAnswer]
    role: Role | None = field(repr=False)


def output_of(options: GoOnOptions) -> Output:
    """What prints the turn."""
    return Output.of(json=options.json, events=options.events, verbose=options.verbose)


def checked_role(options: GoOnOptions, name: str, given: str | None) -> Role | None:
    """Check how the turn is to go on before anything is opened, and read the call role.

    Args:
        options: The command's options.
        name: What the command reads beside the role.
        given: What was given for it.

    Raises:
        InvalidArgument: Options do not go together.
    """
    one_form(options.json, options.events)
    one_reader(options, name, given)
    if options.account is not None:
        check_id("--account", options.account)
    if options.role is not None and options.no_role:
        raise InvalidArgument("--role and --no-role exclude each other", remedy="give one of them")
    if options.on_role_change not in _CHANGES:
        raise InvalidArgument(
            f"--on-role-change {options.on_role_change[:40]!r} is unknown", remedy="use fail or refresh"
        )
    return role(options.role)


async def go_on(agent: WorldAgent, options: GoOnOptions, output: Output, going: GoingOn) -> int:
    """Hand in the answers, go on with the turn, print how it ended, and give the exit code.

    Raises:
        WorldAgentError: As `Thread.resume` does; the remedy is one for the command line.
    """
    from ...agent import UNSET

    thread = agent.thread(going.thread, account=options.account)
    given = going.role if going.role is not None else None if options.no_role else UNSET
    change: Any = options.on_role_change  # checked before

    async def begin() -> Turn:
        async with thread.stream_resume(going.answers, role=given, on_role_change=change) as stream:
            async for event in stream:
                output.event(event)
        return stream.turn

    return await one_turn(agent, options, output, going.thread, begin)


def no_thread(workspace: str, thread: str) -> NothingToResume:
    """There is no such thread to go on with."""
    return NothingToResume(
        f"the workspace {workspace!r} has no thread {thread!r}",
        remedy="see `worldagent threads list`, with the --workspace and --home of the turn",
    )


__all__ = ["GoingOn", "checked_role", "go_on", "no_thread", "output_of"]
