"""The command `serve`: the sidecar as a process of its own. What it answers is in `hosts.sidecar`."""

from __future__ import annotations

import os
import signal
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, cast

from ...core.errors import InvalidArgument
from ._serve_options import ServeOptions
from .hosts import check_hosts
from .output import Output
from .serve_agents import Served, agent_options, served_by
from .session import INTERRUPTED, TERMINATED, load_engine, run
from .sidecar_files import RunningSidecar, SidecarFile
from .sources import expanded

if TYPE_CHECKING:
    from ..serving import Address
    from ..sidecar import Sidecar

_FORMATS: Final = ("text", "json")
_LEVELS: Final = ("debug", "info", "warning")
_TOKENS: Final = "set WORLDAGENT_SIDECAR_TOKEN, or give --token-file"
_OF_HTTP: Final = ("token_file", "allow_remote", "tls_cert", "tls_key", "server_name", "json")
_CODES: Final[Mapping[int | None, int | None]] = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}


def serve(options: ServeOptions) -> int:
    """Run the command and return its exit code."""
    output = Output.of(json=options.json and not options.stdio)

    def begin() -> Coroutine[Any, Any, int | None]:
        _check(options)
        served = served_by(options, output)
        load_engine()  # now, since the first agent starts while others are served
        return _Serving(options, output, served).run()

    return run(output, begin)


class _Serving:
    """One sidecar from its start to its end."""

    def __init__(self, options: ServeOptions, output: Output, served: Served) -> None:
        self._options = options
        self._output = output
        self._served = served
        self._file: SidecarFile | None = None

    async def run(self) -> int | None:
        from ..serving import quiet_logs
        from ..sidecar import Limits, Sidecar

        options, served = self._options, self._served
        await served.check_model()
        sidecar = Sidecar(
            self._make,
            tokens=served.tokens,
            grant=served.grant,
            limits=Limits(turns=options.turns, workspaces=options.workspaces),
            client_roles=served.client_roles,
            storage=served.storage,
        )
        level = options.log_level or ("warning" if options.stdio else "info")
        try:
            with quiet_logs(level=cast("Any", level), form=cast("Any", options.log_format)):  # `_check` knows them
                async with sidecar:
                    return _CODES.get(await self._until_stopped(sidecar))
        finally:
            if self._file is not None:
                self._file.remove()

    async def _until_stopped(self, sidecar: Sidecar) -> int | None:
        from ..serving import Address, HttpOptions, serve_http, serve_stdio

        options = self._options
        if options.http is None:
            self._tell(None)
            return await serve_stdio(sidecar, drain=options.drain, draining=self._draining)
        cert = None if options.tls_cert is None else expanded("--tls-cert", options.tls_cert)
        key = None if options.tls_key is None else expanded("--tls-key", options.tls_key)
        return await serve_http(
            sidecar,
            Address.parse(options.http),
            HttpOptions(
                allow_remote=options.allow_remote,
                tls_cert=cert,
                tls_key=key,
                names=tuple(options.server_name or ()),
                drain=options.drain,
            ),
            ready=self._ready,
            draining=self._draining,
            tokens_by=_TOKENS,
        )

    def _make(self, workspace: str) -> Any:
        agent = self._served.make(workspace)
        if self._file is not None:
            self._file.add(agent.storage.sidecars)
        return agent

    def _ready(self, found: Address) -> None:
        told = self._tell(found.url)
        self._output.result(told.model_dump(mode="json", exclude={"state", "since"}), found.url)
        if self._served.tokens is None:
            self._output.note("note: no token is asked for, so every program of this machine may use the agents")

    def _tell(self, address: str | None) -> RunningSidecar:
        """Write down that it runs."""
        told = RunningSidecar(
            pid=os.getpid(),
            transport="stdio" if address is None else "http",
            address=address,
            workspaces=self._served.workspaces,
            since=datetime.now(UTC),
            state="ready",
            version=version("worldagent"),
        )
        self._file = SidecarFile(told)
        self._file.add(self._served.storage.sidecars)
        return told

    def _draining(self) -> None:
        if self._file is not None:
            self._file.set("draining")


def _check(options: ServeOptions) -> None:
    """Refuse options that do not go together, before anything is loaded."""
    if options.stdio == (options.http is not None):
        raise InvalidArgument("serve takes one of --stdio and --http", remedy="give one of them")
    given = [f"--{name.replace('_', '-')}" for name in _OF_HTTP if getattr(options, name)]
    if options.stdio and given:
        raise InvalidArgument(f"{given[0]} is for --http", remedy="leave it out with --stdio")
    if options.stdio and any(worker.partition("=")[2] == "-" for worker in options.worker or ()):
        raise InvalidArgument("--worker reads standard input, which is the client's", remedy="give it as @FILE")
    if (options.tls_cert is None) != (options.tls_key is None):
        raise InvalidArgument("--tls-cert and --tls-key go together", remedy="give both, or neither")
    check_hosts(agent_options(options))
    _check_values(options)


def _check_values(options: ServeOptions) -> None:
    for name in ("turns", "workspaces"):
        if getattr(options, name) < 1:
            raise InvalidArgument(f"--{name} is {getattr(options, name)}", remedy="give 1 or more")
    if not 0 <= options.drain < float("inf"):
        raise InvalidArgument(f"--drain is {options.drain}", remedy="give seconds, 0 or more")
    for option, value, known in (
        ("--log-format", options.log_format, _FORMATS),
        ("--log-level", options.log_level or "info", _LEVELS),
    ):
        if value not in known:
            raise InvalidArgument(f"{option} {value[:40]!r} is unknown", remedy=f"use one of {', '.join(known)}")


__all__ = ["serve"]
