"""What `serve` serves, and to whom."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final

from ...core import check_id
from ...core.errors import InvalidArgument
from ...core.files import accessible_to_others
from ...storage import Storage
from .agents import EMBEDDED_MODEL, agent_maker
from .apps import app_maker, check_app
from .options import WORKSPACE, AgentOptions, MadeOptions
from .output import Output
from .sources import expanded

if TYPE_CHECKING:
    from ...agent import Settings, WorldAgent
    from ..serving import Tokens
    from ..sidecar import ClientRoles, Grant
    from .serve import ServeOptions

_ANY: Final = "*"
_SHARED: Final = ("app", *(each.name for each in fields(MadeOptions)), "role_host", "role_host_stdio")
_NAMED: Final = 5  # workspaces that an error names


@dataclass(frozen=True, kw_only=True)
class Served:
    """What is served.

    Attributes:
        workspaces: The ids of the workspaces; `*` is any.
        make: Makes the agent of a workspace, not started.
        tokens: The tokens of callers over HTTP; None accepts every caller.
        grant: What a caller can use if no token is required.
        storage: The storage, as far as it is known before an agent is made.
        client_roles: The roles that the client over standard streams can keep, if no role host is named.
        lm: The model of the agents; None lets the app decide.
        api_base: The address of the model's service, if it is not the usual one.
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
        """Refuse a model that no turn can use. This loads no weights.

        Raises:
            ModelNotConfigured, MissingExtra: It cannot be used.
        """
        if self.lm is not None:
            from ...signatures.engines.connect import check_model

            await check_model(self.lm, api_base=self.api_base)


def served_by(options: ServeOptions, output: Output) -> Served:
    """Read everything that the options name, and make a first agent from it.

    Args:
        options: The command's options.
        output: Where notes go.

    Raises:
        UsageError: An option, a setting, the token file or the app is not valid.
    """
    base = agent_options(options)
    check_app(base)
    for each in set(options.workspace or ()) - {_ANY}:
        check_id("--workspace", each)
    roles: ClientRoles | None = None  # set once the settings are read, and used only after that

    def offered() -> ClientRoles | None:
        return roles if roles is not None and roles.offered else None

    with contextlib.redirect_stdout(sys.stderr):  # the app's code must not print into the protocol
        only, make = (
            (None, agent_maker(base, output, host=offered))
            if options.app is None
            else app_maker(base, options.app, host=offered)
        )
    from ...agent import Settings
    from ..sidecar import Grant

    settings = Settings()
    roles = _client_roles(options, settings)
    tokens = _given_tokens(options, settings, output) if options.http is not None else None
    named = {each for grant in tokens.grants for each in grant.workspaces} if tokens is not None else ()
    workspaces = _workspaces(options.workspace, sorted(named), only)
    grant = Grant(workspaces, (_ANY,), operator=True)
    first = next((each for each in workspaces if each != _ANY), WORKSPACE if options.app is None else None)
    made: dict[str, WorldAgent] = {}
    if first is not None:  # as a check
        with contextlib.redirect_stdout(sys.stderr):
            made[first] = make(first)
    storage = made[first].storage if first is not None else settings.storage(Storage(home=options.home))
    if roles is not None:  # whether the client keeps roles is not known yet
        made.clear()
    return Served(
        workspaces=workspaces,
        make=lambda workspace: made.pop(workspace, None) or make(workspace),
        tokens=None if tokens is None else _reaching(tokens, workspaces),
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
    """Names options as `serve` does, where `--token-file` is the file of the callers' tokens."""

    def option_name(self, field: str) -> str:
        return super().option_name("role_host_token_file" if field == "token_file" else field)


def agent_options(options: ServeOptions) -> AgentOptions:
    """The options of an agent, as for other commands."""
    shared = {name: getattr(options, name) for name in _SHARED}
    return _AgentOptions(**shared, token_file=options.role_host_token_file)


def _reaching(tokens: Tokens[Grant], workspaces: Collection[str]) -> Tokens[Grant]:
    """The tokens, with grants that reach only these workspaces. A grant that names none reaches all of them.

    Raises:
        InvalidArgument: None of the tokens reaches one of the workspaces.
    """
    tokens = tokens.changed(lambda each: replace(each, workspaces=_common(each.workspaces or (_ANY,), workspaces)))
    if any(each.workspaces for each in tokens.grants):
        return tokens
    some = ", ".join(map(repr, list(workspaces)[:_NAMED])) + (" and more" if len(workspaces) > _NAMED else "")
    raise InvalidArgument(
        f"a token must reach one of the served workspaces: {some}",
        remedy="name one of them in the token file, or serve one that a token names: --workspace",
    )


def _given_tokens(options: ServeOptions, settings: Settings, output: Output) -> Tokens[Grant] | None:
    """The tokens from the option, else from the settings. The grant of a single token names no workspace.

    Raises:
        InvalidArgument: The file cannot be read, or is not valid.
    """
    from ..sidecar import Grant, read_token_file, tokens_of_setting

    all_served = Grant((), (_ANY,), operator=True)
    if options.token_file is None and settings.sidecar_token is not None:
        return tokens_of_setting(settings.sidecar_token.get_secret_value(), all_served)
    given = options.token_file or settings.sidecar_token_file
    if given is None:
        return None
    file = expanded("--token-file", given)
    tokens = read_token_file(file, all_served)
    if accessible_to_others(file):
        output.note(f"note: other users can read the token file {str(file)!r}; run `chmod 600 {str(file)!r}`")
    return tokens


def _workspaces(named: Collection[str] | None, by_tokens: Collection[str], only: str | None) -> tuple[str, ...]:
    """The workspaces to serve.

    Raises:
        InvalidArgument: The agent of the app belongs to another workspace.
    """
    if only is None:
        return tuple(dict.fromkeys(named or by_tokens or (WORKSPACE,)))
    if not set(named or ()) <= {only, _ANY}:
        raise InvalidArgument(
            f"--workspace must be {only!r}, the workspace of the agent of --app", remedy="omit --workspace"
        )
    return (only,)


def _common(one: Collection[str], other: Collection[str]) -> Collection[str]:
    """The workspaces that are in both."""
    if _ANY in other:
        return one
    return other if _ANY in one else frozenset(one) & frozenset(other)
