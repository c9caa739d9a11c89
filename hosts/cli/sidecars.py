"""The sidecars of a home: what `serve` serves and to whom, and the files by which `ps` finds the running ones.

A running sidecar has one file in each home that it has agents in, and its process locks the file as long as it lives.
The system frees the lock of a process that ends, even after kill -9, so the files of ended processes are found and
removed. A process id would not work: another process can have it by now, and the id of a sidecar in a container means
nothing outside the container.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...core import check_id
from ...core.errors import InvalidArgument, StorageUnavailable
from ...core.files import accessible_to_others
from ...storage import Storage
from .agents import EMBEDDED_MODEL, agent_maker
from .apps import app_maker, check_app
from .options import WORKSPACE, AgentOptions
from .output import Output
from .sources import expanded

if TYPE_CHECKING:
    from ...agent import Settings, WorldAgent
    from ..serving import Tokens
    from ..sidecar import ClientRoles, Grant
    from .serve import ServeOptions

# --- what is served ---------------------------------------------------------------------------------------------------

_ANY: Final = "*"
_SHARED: Final = (
    *("app", "home", "policy", "lm", "identity", "profile", "worker", "workers"),
    *("role_host", "role_host_stdio"),
)
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


# --- the files of running sidecars ------------------------------------------------------------------------------------

LOCK_WAIT_SECONDS: Final = 5.0  # seconds to wait for a process that is removing old files
MAX_FILE_BYTES: Final = 1 << 20  # bytes that are read of a file


class RunningSidecar(BaseModel):
    """A running sidecar, as it describes itself to other processes. It holds no token.

    Attributes:
        pid: The id of its process.
        transport: How it is reached.
        address: Its MCP endpoint; None over standard streams.
        web: The address of the web app; None if it serves none.
        workspaces: The workspaces that it serves; `*` is any.
        since: When it began to serve.
        state: Whether it accepts turns, or is stopping.
        version: The version of the package.
    """

    model_config = ConfigDict(frozen=True)  # a later version can have more fields

    pid: int = Field(ge=0)
    transport: Literal["http", "stdio"]
    address: str | None
    web: str | None = None
    workspaces: tuple[str, ...]
    since: datetime
    state: Literal["ready", "draining"]
    version: str


class SidecarFile:
    """The file of this process's sidecar, in each home that it has agents in.

    Args:
        record: The contents of the file.
    """

    def __init__(self, record: RunningSidecar) -> None:
        self._record = record
        self._name = f"{record.pid}-{secrets.token_hex(4)}"
        self._locks: dict[Path, FileLock] = {}

    def add(self, folder: Path) -> None:
        """Write the file into a folder, unless it is there already.

        Args:
            folder: `Storage.sidecars` of a home; created if it is missing.

        Raises:
            StorageUnavailable: The folder cannot be written.
        """
        if folder in self._locks:
            return
        problem = ""
        lock = _lock(folder / f"{self._name}.lock")
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock.acquire(timeout=LOCK_WAIT_SECONDS)
            self._locks[folder] = lock
            self._write(folder)
        except (OSError, NotImplementedError) as error:  # filelock raises the latter if the file system has no locks
            problem = getattr(error, "strerror", None) or type(error).__name__
        if problem:
            raise StorageUnavailable(
                f"the folder {str(folder)!r} cannot be written: {problem}",
                remedy="make it writable for this user, or use another home",
            )

    def set(self, **changes: str) -> RunningSidecar:
        """Change fields of the record, and return it. If it cannot be written, the file keeps the old ones."""
        self._record = self._record.model_copy(update=changes)
        for folder in self._locks:
            with contextlib.suppress(OSError):
                self._write(folder)
        return self._record

    def remove(self) -> None:
        """Remove the files."""
        for folder, lock in self._locks.items():
            _remove(folder / f"{self._name}.json", lock)
        self._locks.clear()

    def _write(self, folder: Path) -> None:
        draft = folder / f"{self._name}.new"
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(self._record.model_dump_json())
        draft.replace(folder / f"{self._name}.json")


def running_sidecars(folder: Path) -> tuple[RunningSidecar, ...]:
    """The running sidecars, the newest first. The files of killed sidecars are removed.

    Args:
        folder: `Storage.sidecars` of a home.
    """
    found = filter(None, map(_running, _names(folder)))
    return tuple(sorted(found, key=lambda sidecar: sidecar.since, reverse=True))


def _names(folder: Path) -> Iterator[Path]:
    """The paths of all files that a sidecar can have, without their suffixes."""
    with contextlib.suppress(OSError):
        yield from sorted({file.with_suffix("") for file in folder.iterdir() if file.suffix in (".json", ".lock")})


def _running(name: Path) -> RunningSidecar | None:
    """The sidecar of this name; None if it does not run, and its files are then removed."""
    file, lock = name.with_suffix(".json"), _lock(name.with_suffix(".lock"))
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return _read(file)
    except (OSError, NotImplementedError):  # another user's file, or no locks as above: ignore it
        return None
    _remove(file, lock)
    return None


def _read(file: Path) -> RunningSidecar | None:
    try:
        with file.open("rb") as opened:
            return RunningSidecar.model_validate_json(opened.read(MAX_FILE_BYTES))
    except (OSError, ValidationError):  # it is being written, or is not one of our files
        return None


def _remove(file: Path, lock: FileLock) -> None:
    """Remove the files that a held lock protects, and the lock."""
    for each in (file.with_suffix(".new"), file, Path(lock.lock_file)):
        with contextlib.suppress(OSError):  # if a file in use cannot be deleted, the next look removes it
            each.unlink(missing_ok=True)
    lock.release()


def _lock(file: Path) -> FileLock:
    # No soft fallback: it is only a file, and would outlive a killed process.
    return FileLock(file, mode=0o600, thread_local=False, fallback_to_soft=False)
