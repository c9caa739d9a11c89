"""The check of an installation, point by point, and the points about what the settings name. It changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from ...core import SystemClock
from ...core.errors import WorldAgentError
from ...harness import Registry
from ...mcp_client.logins import LoginStore
from ...mcp_client.tools import McpSource, McpSources
from ...members.data.workspace import WorkspacePolicy
from ...members.stalls import Stall, find_stalls, look
from ...memory.members import SOCIETY
from ...storage import Transaction
from ...testing.role_host_conformance import Failed, Point, Points, Result, Skipped, Tell, Warned, settle
from ...tools.shell import hides_host
from . import files, installation, keys
from .installation import InstallationOptions, Site

SERVICE_POINTS: Final = Points()
_WORKSPACE: Final = "default"  # the one of commands that name none
point: Final = SERVICE_POINTS.add

_MAX_STALLS: Final = 3  # that are shown
_QUESTION: Final = "Say hello."


@point("model.configured", "the model can be used", needs=("settings.values",))
async def configured(site: Site) -> str | None:
    """An agent could open it: it has a vendor and a key, or weights. A hosted model is not contacted."""
    # Here, because it imports dspy.
    from ...signatures import open_model

    caller = await open_model(site.lm, api_base=site.settings.api_base if site.settings else None)
    await caller.aclose()
    if site.options.lm is None and (site.settings is None or site.settings.lm is None):
        return "local, the embedded model, since no other is set (WORLDAGENT_LM)"
    return site.lm


@point("model.call", "the model answers", needs=("model.configured",), when="--model")
async def answers(site: Site) -> str | None:
    """Run one turn, as the command line does, in a temporary home."""
    from ...agent import WorldAgent
    from ...storage import Storage

    with tempfile.TemporaryDirectory(prefix="worldagent-doctor-") as home:
        assert site.settings is not None, "the settings fit"
        settings = site.settings.model_copy(update={"role_host": None, "mcp_servers": {}, "model_attempts": 1})
        storage = Storage(home=Path(home))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(site.options.timeout):
                async with WorldAgent("doctor", lm=site.lm, storage=storage, settings=settings) as agent:
                    usage = (await agent.thread("doctor").converse(_QUESTION)).usage
                    return f"{usage.input_tokens} tokens sent, {usage.output_tokens} received"
    raise Failed(f"the model did not answer within {site.options.timeout:g} s", "check its service, or raise --timeout")


@point("role_host.reach", "the role host of the settings answers", needs=("settings.values",))
async def role_host(site: Site) -> str | None:
    """The role host can be reached with the token, and offers the tools."""
    from ...mcp_client import HostRoleStore

    host = site.settings.host() if site.settings else None
    if host is None:
        return "none: the embedded store is used"
    limit = min(site.options.timeout, host.connect_timeout)
    store = HostRoleStore(replace(host, connect_timeout=limit))
    async with contextlib.aclosing(store):
        await store.connect()
        tiers = ", ".join(sorted(store.tiers))
    return f"keeps {tiers}; check it with `worldagent doctor --role-host URL`"


@point("mcp.servers", "the MCP servers of the settings answer", needs=("settings.values",))
async def mcp_servers(site: Site) -> str | None:
    """Each server can be reached, and all of its tools can be used."""
    assert site.settings is not None, "the settings fit"
    servers = site.settings.servers()
    if not servers:
        return "none"
    logins = LoginStore(site.home, _WORKSPACE)
    sources = McpSources(servers, registry=Registry(), clock=SystemClock(), logins=logins)
    async with contextlib.aclosing(sources):
        async with asyncio.TaskGroup() as looking:
            looks = {name: looking.create_task(_server_tools(sources[name], site.options.timeout)) for name in servers}
        found = {name: look.result() for name, look in looks.items()}
    failed = {name: each for name, each in found.items() if each.status == "fail"}
    if failed:
        remedies = "; ".join(f"{name}: {each.remedy}" for name, each in failed.items())
        what = "; ".join(f"{name}: {each.shown}" for name, each in failed.items())
        raise Failed(what, f"{remedies}; or remove them from mcp_servers")
    odd = [f"{name}: {each.shown}" for name, each in found.items() if each.status == "warn"]
    if odd:
        raise Warned("; ".join(odd), "repair these tools, or remove them from allow")
    return "; ".join(f"{name}: {each.shown}" for name, each in found.items())


class _Outcome(NamedTuple):
    status: str
    shown: str
    remedy: str = ""


async def _server_tools(source: McpSource, seconds: float) -> _Outcome:
    """The outcome for one server."""
    if source.server.login is not None and source.server.login.by == "account":
        return _Outcome("pass", "each account logs in for itself")
    try:
        async with asyncio.timeout(seconds):
            await source.connect()
    except TimeoutError:
        return _Outcome("fail", f"no answer within {seconds:g} s", "repair it, or raise --timeout")
    except WorldAgentError as error:
        return _Outcome("fail", error.problem, error.remedy)
    if source.left_out:
        odd = ", ".join(f"the tool {name!r} is left out: {why}" for name, why in source.left_out.items())
        return _Outcome("warn", odd)
    return _Outcome("pass", f"{len(source.functions)} functions")


@point("tools.shell", "commands cannot read the keys of the process")
async def shell(site: Site) -> str | None:
    """The system hides the environment of the process from commands of the tool `shell`."""
    if os.name != "posix":
        return "this system has no /bin/sh, so the tool `shell` runs nothing"
    if await hides_host():
        return "the kernel hides the environment of the process from commands of the tool `shell`"
    raise Warned(
        "a command of the tool `shell` can read the environment of the process, with its keys",
        "allow user namespaces (Linux), or run agents with this tool where no key is in the environment",
    )


@point("society.stalls", "members of workspaces get on", needs=("database.agent",))
async def stalls(site: Site) -> str | None:
    """Nothing stands still among members or goes round, by the alarms of a policy that sets none."""
    found = await keys.read_database(site.storage.place, _stalls, tuple[tuple[str, Stall], ...]())
    if found:
        more = f"; and {len(found) - _MAX_STALLS} more" if len(found) > _MAX_STALLS else ""
        shown = "; ".join(f"{each.what} ({workspace})" for workspace, each in found[:_MAX_STALLS])
        raise Warned(
            f"{shown}{more}", f"{found[0][1].remedy}; see `worldagent society stalls --workspace {found[0][0]}`"
        )
    return None


def _stalls(tx: Transaction, database: str) -> tuple[tuple[str, Stall], ...]:
    versions = dict(tx.execute("SELECT name, version FROM wa_schema"))
    if versions.get(SOCIETY.name, 0) < len(SOCIETY.migrations):  # the next agent that opens it brings it up to date
        return ()
    now, policy = SystemClock().now(), WorkspacePolicy()
    workspaces = [workspace for (workspace,) in tx.execute("SELECT workspace FROM wa_society ORDER BY workspace")]
    return tuple((each, stall) for each in workspaces for stall in find_stalls(look(tx, each, policy, now), policy))


@point("sidecar.tokens", "only the owner can read the tokens of a sidecar", needs=("settings.values",))
async def sidecar_tokens(site: Site) -> str | None:
    """The tokens in the settings are valid, and no other user can read their file."""
    assert site.settings is not None, "the settings fit"
    from ..sidecar import read_token_file, tokens_of_setting

    if site.settings.sidecar_token is not None:
        tokens_of_setting(site.settings.sidecar_token.get_secret_value())
        return "one, from the setting sidecar_token"
    if site.settings.sidecar_token_file is None:
        return "none in the settings"
    file = Path(os.path.expanduser(site.settings.sidecar_token_file))  # noqa: ASYNC240 -- nothing is read
    count = len(read_token_file(file).grants)
    files.check_private(file)
    return f"{count}, in {str(file)!r}"


INSTALLATION_POINTS: Final = (*installation.POINTS, *files.POINTS, *keys.POINTS, *SERVICE_POINTS)
"""The points of an installation, in the order in which they are checked."""


async def check_installation(options: InstallationOptions | None = None, *, tell: Tell | None = None) -> list[Result]:
    """Check whether agents can run here: versions, settings, home, model, role host.

    Nothing is created or changed. A home that does not exist yet is not created.

    Args:
        options: What to check.
        tell: Called with each result as soon as it is known.

    Returns:
        The results, in the order of the points.
    """
    site = Site(options or InstallationOptions())
    results: dict[str, Result] = {}
    for point in INSTALLATION_POINTS:
        result = await settle(point, partial(_check_point, site, point, results))
        results[point.id] = result
        if tell is not None:
            tell(result)
    return list(results.values())


async def _check_point(site: Site, point: Point, results: Mapping[str, Result]) -> str | None:
    if point.when == "--model" and not site.options.call_model:
        raise Skipped("the model was not called", "add --model to send it one question")
    for needed in point.needs:
        if results[needed].status in ("fail", "skip"):
            raise Skipped(f"it needs {needed}, which did not pass", f"fix {needed} first", reason="needs")
    return await point.check(site)
