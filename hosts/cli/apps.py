"""`--app MODULE:NAME`: an agent that somebody else's code makes, with functions and shapes that no option can give."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import AgentClosed, InvalidArgument, WorldAgentError
from .options import WORKSPACE, AgentOptions
from .sources import expanded, policy

if TYPE_CHECKING:
    from ...agent import Roles, WorldAgent
    from ...role_resolution import RoleStore

_REMEDY: Final = "name a WorldAgent, or a function that makes one, as MODULE:NAME, such as shop:agent"
_POLICY: Final = "WORLDAGENT_POLICY"
_HOME: Final = "WORLDAGENT_HOME"
_MAKERS: Final = (
    *("lm", "temperature", "max_tokens", "reasoning_effort", "header", "identity", "profile", "worker", "workers"),
    *("role_host", "role_host_stdio", "token_file"),
)


def check_app(options: AgentOptions) -> None:
    """Refuse options that would make another agent than the app's, before anything is loaded.

    Raises:
        InvalidArgument: One is given beside `--app`; the text names it.
    """
    if options.app is None:
        return
    given = [options.option(field) for field in _MAKERS if getattr(options, field) not in (None, "", [])]
    if given:
        name = given[0]
        raise InvalidArgument(
            f"--app and {name} exclude each other", remedy=f"leave {name} out; what it sets is the app's matter"
        )


def app_agent(options: AgentOptions, spec: str) -> WorldAgent:
    """The agent that `--app` names, not started.

    Args:
        options: The command's options. A workspace or home that they name must be the agent's. A policy is for one that
            brings none.
        spec: `MODULE:NAME`. NAME may have dots; a module is looked for in the current folder first.

    Raises:
        PolicyInvalid, MissingExtra: The policy cannot be read.
        InvalidArgument: There is no such module or name, it is something else, or its code fails. The text has neither
            the failure's own words nor values: they may hold anything.
        WorldAgentError: What the code raises of ours, as it is.
    """
    agent = _fitting(options, lambda: _agent(_found(spec), spec))
    if options.workspace not in (WORKSPACE, agent.workspace):
        raise InvalidArgument(
            f"--workspace is {options.workspace!r}, and the agent of --app is of {agent.workspace!r}",
            remedy="leave --workspace out",
        )
    return agent


def app_maker(
    options: AgentOptions, spec: str, *, host: Callable[[], RoleStore | None]
) -> tuple[str | None, Callable[[str], WorldAgent]]:
    """What makes the agents that `--app` names, and the workspace that they are of; None is any, as it is asked.

    A function is asked for an agent each time, with the workspace's id unless it can do without. An agent is the same
    one each time.

    Args:
        options: As for `app_agent`, but for the workspace.
        spec: As for `app_agent`.
        host: Gives the stored roles for a function that takes `roles`, whenever it is asked; None where it may choose.

    Raises:
        PolicyInvalid, MissingExtra, InvalidArgument, WorldAgentError: As `app_agent`, and where an agent is of another
            workspace than it was asked for; what is made raises them as well.
    """
    with _deciding(options):  # an agent that is made when its module is imported
        found = _found(spec)
    if not _takes_workspace(found):
        only = _fitting(options, lambda: _agent(found, spec)).workspace
        return only, lambda workspace: _of(workspace, _fitting(options, lambda: _agent(found, spec)))

    def made(workspace: str) -> WorldAgent:
        given = {"roles": _roles_of(host())} if "roles" in _parameters(found) else {}
        return _of(workspace, _fitting(options, lambda: _agent(partial(found, workspace, **given), spec)))

    return None, made


def _parameters(found: Any) -> Collection[str]:
    try:
        return inspect.signature(found).parameters
    except (TypeError, ValueError):  # a function of C that does not tell
        return ()


def _roles_of(host: RoleStore | None) -> Roles | None:
    from ...agent import Roles

    return None if host is None else Roles(host=host)


def _takes_workspace(found: Any) -> bool:
    from ...agent import WorldAgent

    if isinstance(found, WorldAgent) or not callable(found):
        return False
    try:
        inspect.signature(found).bind()
    except (TypeError, ValueError):  # it takes something, or does not tell
        return True
    return "workspace" in _parameters(found)


def _of(workspace: str, agent: WorldAgent) -> WorldAgent:
    if agent.workspace == workspace:
        return agent
    raise InvalidArgument(
        f"--app gives an agent of the workspace {agent.workspace!r} where {workspace!r} is wanted",
        remedy="let it make the agent of the workspace that it is called with",
    )


def _fitting(options: AgentOptions, make: Callable[[], WorldAgent]) -> WorldAgent:
    """Make an agent under the policy of the options, and see that it is one of theirs."""
    wanted = policy(options.policy)
    with _deciding(options):
        agent = make()
    if wanted is not None and agent.policy != wanted:
        raise InvalidArgument(
            "--policy: the agent of --app has a policy of its own",
            remedy="leave --policy out, or let the app make its agent without policy=",
        )
    if options.home is not None and options.home.expanduser().resolve() != agent.storage.resolve().resolve():
        raise InvalidArgument(
            f"--home is {str(options.home)!r}, and the agent of --app has another one",
            remedy="leave --home out, or let the app make its agent without a home",
        )
    return agent


@contextmanager
def _deciding(options: AgentOptions) -> Generator[None, None, None]:
    """Let agents that are made meanwhile have the policy and home of the options, unless they are given their own."""
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


def _found(spec: str) -> Any:
    module, colon, name = spec.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        raise InvalidArgument(f"--app {spec[:80]!r} is not MODULE:NAME", remedy=_REMEDY)
    found: Any = _imported(module)
    for part in name.split("."):
        if not hasattr(found, part):
            raise InvalidArgument(f"--app: the module {module!r} has no {name!r}", remedy=_REMEDY)
        found = getattr(found, part)
    return found


def _imported(module: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    problem = f"importing {module!r} fails"
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        wanted = error.name or module
        if module == wanted or module.startswith(f"{wanted}."):
            problem = f"there is no module {wanted!r}"
        else:
            problem += f", since it needs the module {wanted!r}, which is not there"
    except WorldAgentError:
        raise
    # Whatever others' code raises is told to the person who named it; a script that is no module may end the process.
    except (Exception, SystemExit) as error:
        problem += f" with {_where(error)}"
    raise InvalidArgument(
        f"--app: {problem}", remedy="run the command in the folder of the module, and see that it can be imported"
    )


def _agent(found: Any, spec: str) -> WorldAgent:
    from ...agent import WorldAgent

    made = found
    if not isinstance(made, WorldAgent):
        made = _made(found, spec)
    if not isinstance(made, WorldAgent):
        if inspect.iscoroutine(made):
            made.close()
        given = "gives" if callable(found) else "is"
        raise InvalidArgument(f"--app: {spec!r} {given} a {type(made).__name__}", remedy=_REMEDY)
    if _is_open(made):
        raise InvalidArgument(f"--app: the agent of {spec!r} is open already", remedy="name one that is not started")
    return made


def _made(maker: Any, spec: str) -> Any:
    if not callable(maker):
        return maker
    problem: str | None = None
    try:
        inspect.signature(maker).bind()
    except TypeError:
        problem = f"--app: {spec!r} takes arguments"
    except ValueError:  # a function of C that does not tell; the call will
        pass
    if problem is None:
        try:
            return maker()
        except WorldAgentError:
            raise
        except (Exception, SystemExit) as error:  # others' code, as above
            problem = f"--app: {spec!r} fails with {_where(error)}"
    raise InvalidArgument(problem, remedy="name a function that makes an agent and can be called without arguments")


def _is_open(agent: WorldAgent) -> bool:
    try:
        agent.roles  # noqa: B018 -- only one that is open has them
    except AgentClosed:
        return False
    return True


def _where(error: BaseException) -> str:
    """What was raised and where, without its words."""
    kind = type(error).__name__
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{kind} in {os.path.basename(error.filename)!r}, line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    # The line of their own code says more than one of the library that it calls.
    here = os.path.join(os.getcwd(), "")
    own = [frame for frame in frames if frame.filename.startswith(here) and "site-packages" not in frame.filename]
    at = (own or frames)[-1]
    return f"{kind} in {os.path.basename(at.filename)!r}, line {at.lineno}"
