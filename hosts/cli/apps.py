"""`--app MODULE:NAME`: an agent that the user's own code makes, with functions and shapes that no option can give."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import InvalidArgument
from ..service.apps import made_agent, named_app, takes_arguments
from .options import WORKSPACE, AgentOptions
from .sources import expanded, policy

if TYPE_CHECKING:
    from ...agent import WorldAgent
    from ...role_resolution import RoleStore

_OPTION: Final = "--app"
_POLICY: Final = "WORLDAGENT_POLICY"
_HOME: Final = "WORLDAGENT_HOME"
_MAKERS: Final = (
    *("lm", "temperature", "max_tokens", "reasoning_effort", "header", "identity", "profile", "worker", "workers"),
    *("capability", "role_host", "role_host_stdio", "token_file"),
)


def check_app(options: AgentOptions) -> None:
    """Refuse options that describe an agent other than the app's, before anything is loaded.

    Raises:
        InvalidArgument: One is given with `--app`; the error names it.
    """
    if options.app is None:
        return
    given = [options.option_name(field) for field in _MAKERS if getattr(options, field) not in (None, "", [])]
    if given:
        name = given[0]
        raise InvalidArgument(
            f"--app and {name} exclude each other", remedy=f"omit {name}; the app decides what it sets"
        )


def app_agent(options: AgentOptions, spec: str) -> WorldAgent:
    """The agent that `--app` names, not started.

    Args:
        options: The command's options. A workspace or home that they name must be the agent's. A policy applies to an
            agent that has none.
        spec: `MODULE:NAME`. NAME can have dots. The module is looked for in the current folder first.

    Raises:
        PolicyInvalid, MissingExtra: The policy cannot be read.
        InvalidArgument: The module or name does not exist, is not an agent, or its code fails. The error repeats
            neither the message nor the values of the failure, since they can hold anything.
        WorldAgentError: The app's code raised it; it is passed on unchanged.
    """
    agent = _fitting(options, lambda: made_agent(named_app(spec, _OPTION), spec, _OPTION))
    if options.workspace not in (WORKSPACE, agent.workspace):
        raise InvalidArgument(
            f"--workspace is {options.workspace!r}, and the agent of --app belongs to {agent.workspace!r}",
            remedy="omit --workspace",
        )
    return agent


def app_maker(
    options: AgentOptions, spec: str, *, host: Callable[[], RoleStore | None]
) -> tuple[str | None, Callable[[str], WorldAgent]]:
    """The workspace of the agents that `--app` names, and a function that makes them. None is any workspace.

    If `--app` names a function, it is called for each agent, with the id of the workspace if it takes arguments. If
    `--app` names an agent, that agent is returned each time.

    Args:
        options: As for `app_agent`, without the workspace.
        spec: As for `app_agent`.
        host: Gives the stored roles for an app function with a parameter `roles`. None lets the function choose.

    Raises:
        PolicyInvalid, MissingExtra, InvalidArgument, WorldAgentError: As for `app_agent`, and if an agent belongs to a
            workspace other than the requested one. The returned function raises them too.
    """
    with _deciding(options):  # for an agent that is made when its module is imported
        found = named_app(spec, _OPTION)
    if not _takes_workspace(found):
        only = _fitting(options, lambda: made_agent(found, spec, _OPTION)).workspace
        return only, lambda workspace: _of(workspace, _fitting(options, lambda: made_agent(found, spec, _OPTION)))

    def made(workspace: str) -> WorldAgent:
        from ...agent import Roles

        given = {}
        if "roles" in _parameters(found):
            store = host()
            given["roles"] = None if store is None else Roles(host=store)
        return _of(workspace, _fitting(options, lambda: made_agent(partial(found, workspace, **given), spec, _OPTION)))

    return None, made


def _parameters(found: Any) -> Collection[str]:
    try:
        return inspect.signature(found).parameters
    except (TypeError, ValueError):  # a function written in C has no signature
        return ()


def _takes_workspace(found: Any) -> bool:
    from ...agent import WorldAgent

    if isinstance(found, WorldAgent) or not callable(found):
        return False
    return takes_arguments(found) or "workspace" in _parameters(found)


def _of(workspace: str, agent: WorldAgent) -> WorldAgent:
    if agent.workspace == workspace:
        return agent
    raise InvalidArgument(
        f"--app made an agent of the workspace {agent.workspace!r}, and {workspace!r} was requested",
        remedy="make the agent for the workspace that the function is called with",
    )


def _fitting(options: AgentOptions, make: Callable[[], WorldAgent]) -> WorldAgent:
    """Make an agent under the policy and home of the options, and check that it uses them."""
    wanted = policy(options.policy)
    with _deciding(options):
        agent = make()
    if wanted is not None and agent.policy != wanted:
        raise InvalidArgument(
            "--policy: the agent of --app sets its own policy",
            remedy="omit --policy, or make the app's agent without policy=",
        )
    if options.home is not None and options.home.expanduser().resolve() != agent.storage.resolve().resolve():
        raise InvalidArgument(
            f"--home is {str(options.home)!r}, and the agent of --app uses another home",
            remedy="omit --home, or make the app's agent without a home",
        )
    return agent


@contextmanager
def _deciding(options: AgentOptions) -> Generator[None, None, None]:
    """Give agents that are made in this block the policy and home of the options, unless they set their own."""
    wanted = {
        name: str(expanded(option, file).absolute())
        for name, option, file in ((_POLICY, "--policy", options.policy), (_HOME, "--home", options.home))
        if file is not None
    }
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
