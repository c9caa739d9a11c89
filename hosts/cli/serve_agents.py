"""What `serve` serves: the agents of its workspaces, as options or `--app` make them, and who reaches them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ...core import check_id
from ...core.errors import InvalidArgument
from ...core.files import others_may
from ...storage import Storage
from .apps import app_maker, check_app
from .options import WORKSPACE, AgentOptions
from .output import Output
from .session import EMBEDDED_MODEL, agent_maker
from .sources import expanded

if TYPE_CHECKING:
    from ...agent import Settings, WorldAgent
    from ..serving import Tokens
    from ..sidecar import ClientRoles, Grant
    from .serve import ServeOptions

_ANY: Final = "*"
_NAMED: Final = 5  # workspaces that an error names


@dataclass(frozen=True, kw_only=True)
class Served:
    """What is served.

    Attributes:
        workspaces: The ids; `*` among them is any.
        make: Makes the agent of a workspace, not started.
        tokens: What callers over HTTP must have; None takes every caller.
        grant: What a caller may use where no token is asked for.
        storage: Where it is kept, as far as that is known before an agent is asked for.
        client_roles: The roles that the client over standard streams may keep, where no role host is named.
        lm: The model of its agents; None is the app's matter.
        api_base: Where the model's service is, if not at its usual address.
    """

    workspaces: tuple[str, ...]
    make: Callable[[str], WorldAgent]
    tokens: Tokens[Grant] | None
    grant: Grant
    storage: Storage
    client_roles: ClientRoles | None
    lm: str | None
    api_base: str | None

    async def check_model(self) -> None:
        """Refuse a model that no turn could use. No weights are loaded for it.

        Raises:
            ModelNotConfigured, MissingExtra: It cannot be used.
        """
        if self.lm is not None:
            from ...signatures.models import check_model

            await check_model(self.lm, api_base=self.api_base)


def served_by(options: ServeOptions, output: Output) -> Served:
    """Read all that the options name, and make a first agent of it.

    Args:
        options: The command's options.
        output: Where notes go.

    Raises:
        UsageError: An option, a setting, the token file or the app does not fit.
    """
    base = agent_options(options)
    check_app(base)
    for each in set(options.workspace or ()) - {_ANY}:
        check_id("--workspace", each)
    roles: ClientRoles | None = None  # known once the settings are, and asked for after that alone

    def offered() -> ClientRoles | None:
        return roles if roles is not None and roles.offered else None

    with contextlib.redirect_stdout(sys.stderr):  # what the app's code prints is no part of the protocol
        only, make = (
            (None, agent_maker(base, output, host=offered))
            if options.app is None
            else app_maker(base, options.app, host=offered)
        )
    from ...agent import Settings

    settings = Settings()
    roles = _client_roles(options, settings)
    tokens = _given_tokens(options, settings, output) if options.http is not None else _GivenTokens()
    workspaces = _workspaces(options.workspace, tokens.workspaces, only)
    grant = _grant(workspaces)
    agents = _Agents(make, keep=roles is None)  # of a client's roles it is not known yet whether there are any
    first = next((each for each in workspaces if each != _ANY), WORKSPACE if options.app is None else None)
    storage = settings.storage(Storage(home=options.home)) if first is None else agents.begin(first).storage
    return Served(
        workspaces=workspaces,
        make=agents,
        tokens=tokens.reaching(workspaces, grant),
        grant=grant,
        storage=storage,
        client_roles=roles,
        lm=None if options.app is not None else options.lm or settings.lm or EMBEDDED_MODEL,
        api_base=settings.api_base,
    )


def _client_roles(options: ServeOptions, settings: Settings) -> ClientRoles | None:
    if options.http is not None or options.role_host or options.role_host_stdio or settings.role_host:
        return None
    from ..sidecar import ClientRoles

    return ClientRoles(timeout=settings.role_host_timeout)


class _AgentOptions(AgentOptions):
    """Says what an option is called here, where `--token-file` is about the callers' tokens."""

    def option(self, field: str) -> str:
        return super().option("role_host_token_file" if field == "token_file" else field)


def agent_options(options: ServeOptions) -> AgentOptions:
    """The options of an agent as other commands have them."""
    return _AgentOptions(
        app=options.app,
        home=options.home,
        policy=options.policy,
        lm=options.lm,
        identity=options.identity,
        profile=options.profile,
        worker=options.worker,
        workers=options.workers,
        role_host=options.role_host,
        role_host_stdio=options.role_host_stdio,
        token_file=options.role_host_token_file,
    )


class _Agents:
    """Makes agents; the first one, which was made to see whether it can be, is not made twice."""

    def __init__(self, make: Callable[[str], WorldAgent], *, keep: bool) -> None:
        self._make = make
        self._keep = keep
        self._made: dict[str, WorldAgent] = {}

    def begin(self, workspace: str) -> WorldAgent:
        with contextlib.redirect_stdout(sys.stderr):
            agent = self._make(workspace)
        if self._keep:
            self._made[workspace] = agent
        return agent

    def __call__(self, workspace: str) -> WorldAgent:
        made = self._made.pop(workspace, None)
        return made if made is not None else self._make(workspace)


@dataclass(frozen=True, kw_only=True)
class _GivenTokens:
    """The tokens as they are given.

    Attributes:
        tokens: The tokens, where there are any.
        named: Whether each says what it may use; one alone may use whatever is served.
    """

    tokens: Tokens[Grant] | None = None
    named: bool = False

    @property
    def workspaces(self) -> tuple[str, ...]:
        grants = self.tokens.grants if self.tokens is not None and self.named else ()
        return tuple(sorted({each for grant in grants for each in grant.workspaces}))

    def reaching(self, workspaces: Collection[str], grant: Grant) -> Tokens[Grant] | None:
        """The tokens with grants that reach no workspace but these."""
        if self.tokens is None or not self.named:
            return None if self.tokens is None else self.tokens.changed(lambda _: grant)
        tokens = self.tokens.changed(lambda each: replace(each, workspaces=_common(each.workspaces, workspaces)))
        if any(each.workspaces for each in tokens.grants):
            return tokens
        some = ", ".join(map(repr, list(workspaces)[:_NAMED])) + (" and more" if len(workspaces) > _NAMED else "")
        raise InvalidArgument(
            f"no token reaches a workspace that is served, which is {some}",
            remedy="name one of them in the token file, or serve one that a token names: --workspace",
        )


def _given_tokens(options: ServeOptions, settings: Settings, output: Output) -> _GivenTokens:
    """The tokens of the option, else of the settings.

    Raises:
        InvalidArgument: The file cannot be read, or does not fit.
    """
    from ..sidecar import read_token_file, tokens_of_setting

    if options.token_file is None and settings.sidecar_token is not None:
        return _GivenTokens(tokens=tokens_of_setting(settings.sidecar_token.get_secret_value()))
    given = options.token_file or settings.sidecar_token_file
    if given is None:
        return _GivenTokens()
    file = expanded("--token-file", given)
    tokens = read_token_file(file)
    if others_may(file):
        output.note(f"note: others may read the token file {str(file)!r}; run `chmod 600 {str(file)!r}`")
    return _GivenTokens(tokens=tokens, named=file.suffix == ".toml")


def _workspaces(named: Collection[str] | None, by_tokens: Collection[str], only: str | None) -> tuple[str, ...]:
    """The workspaces that are served.

    Raises:
        InvalidArgument: The app has the agent of another one.
    """
    if only is None:
        return tuple(dict.fromkeys(named or by_tokens or (WORKSPACE,)))
    if not set(named or ()) <= {only, _ANY}:
        raise InvalidArgument(
            f"--workspace names another one, and the agent of --app is of {only!r}", remedy="leave --workspace out"
        )
    return (only,)


def _grant(workspaces: Collection[str]) -> Grant:
    from ..sidecar import Grant

    return Grant(workspaces, (_ANY,), operator=True)


def _common(one: Collection[str], other: Collection[str]) -> Collection[str]:
    """The workspaces that are in both."""
    if _ANY in other:
        return one
    return other if _ANY in one else frozenset(one) & frozenset(other)
