"""`--app MODULE:NAME`: an agent that somebody else's code makes, with functions and shapes that no option can give."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import AgentClosed, InvalidArgument, WorldAgentError
from ._options import WORKSPACE, AgentOptions
from ._sources import expanded, policy

if TYPE_CHECKING:
    from ...agent import WorldAgent

_REMEDY: Final = "name a WorldAgent, or a function that makes one, as MODULE:NAME, such as shop:agent"
_POLICY: Final = "WORLDAGENT_POLICY"
_MAKERS: Final = ("lm", "identity", "profile", "worker", "workers", "role_host", "role_host_stdio", "token_file")


def check_app(options: AgentOptions) -> None:
    """Refuse options that would make another agent than the app's, before anything is loaded.

    Raises:
        InvalidArgument: One is given beside `--app`; the text names it.
    """
    if options.app is None:
        return
    given = [name for name in _MAKERS if getattr(options, name)]
    if given:
        name = f"--{given[0].replace('_', '-')}"
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
    wanted = policy(options.policy)
    with _deciding(options.policy):
        agent = _named(spec)
    if wanted is not None and agent.policy != wanted:
        raise InvalidArgument(
            "--policy: the agent of --app has a policy of its own",
            remedy="leave --policy out, or let the app make its agent without policy=",
        )
    if options.workspace not in (WORKSPACE, agent.workspace):
        raise InvalidArgument(
            f"--workspace is {options.workspace!r}, and the agent of --app is of {agent.workspace!r}",
            remedy="leave --workspace out",
        )
    if options.home is not None and options.home.expanduser().resolve() != agent.storage.resolve().resolve():
        raise InvalidArgument(
            f"--home is {str(options.home)!r}, and the agent of --app has another one", remedy="leave --home out"
        )
    return agent


@contextmanager
def _deciding(file: Path | None) -> Generator[None, None, None]:
    """Let agents that are made meanwhile have this policy, unless they are given one."""
    if file is None:
        yield
        return
    before = os.environ.get(_POLICY)
    os.environ[_POLICY] = str(expanded("--policy", file).absolute())
    try:
        yield
    finally:
        if before is None:
            del os.environ[_POLICY]
        else:
            os.environ[_POLICY] = before


def _named(spec: str) -> WorldAgent:
    module, colon, name = spec.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        raise InvalidArgument(f"--app {spec[:80]!r} is not MODULE:NAME", remedy=_REMEDY)
    found: Any = _imported(module)
    for part in name.split("."):
        if not hasattr(found, part):
            raise InvalidArgument(f"--app: the module {module!r} has no {name!r}", remedy=_REMEDY)
        found = getattr(found, part)
    return _agent(found, spec)


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


__all__ = ["app_agent", "check_app"]
