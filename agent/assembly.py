"""Puts an agent together: checks its arguments, and opens its parts in the one order that works.

The features of an agent are its capabilities. This module knows those of the package by the names of entry points.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import cache
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, TypedDict

from ..core import STORED_TIERS, Clock, SystemClock, check_id
from ..core.capability import Capability, InputField
from ..core.clock import Expiring
from ..core.errors import HostError, InvalidArgument, ModelNotConfigured, NameTaken
from ..core.validation import is_text
from ..graphs import Shape, ShapeRegistry
from ..harness import Function, Policy, Registry, Worker
from ..harness.gate import Approver
from ..harness.guard import OnError, harmless
from ..harness.trace import Trace, TraceSink
from ..harness.trace.index import TraceIndex
from ..harness.trace.tracer import Tracer
from ..mcp_client import HostRoleStore, HttpHost, StdioHost
from ..memory.owned import write_owned
from ..profiles import Profile
from ..role_resolution import (
    ResolvedRole,
    ResolverOptions,
    RoleResolver,
    RoleStore,
    SqliteRoleStore,
)
from ..storage import Storage
from ..tools import BuiltinTools
from .asking import Asking
from .capabilities import (
    brought_by,
    checked_capability,
    in_order,
    made_by_name,
    schema_of,
    tables_made,
)
from .capabilities import (
    named_capability as named_capability,  # hosts take it from here
)
from .choices import (
    all_models,
    all_tools,
    all_workers,
    allowed_tools,
    check_approver,
    check_kinds,
    check_notifier,
    check_profile,
    chosen_profile,
    converse_class,
    generation_options,
    graph_options,
    listed,
    model_options,
    open_usage,
    prompt_of,
    registry_of,
    servers_of,
)
from .recording import Recorder
from .roles import RoleRequests, Roles
from .runtime import RunnerParts, TurnRunner
from .runtime.inside import AgentRuntime
from .settings import Settings
from .stores import Stores
from .unattended import AccountEvents, Notifier
from .upkeep import Retention

if TYPE_CHECKING:
    from ..mcp_client.tools import McpServer
    from ..signatures import LM, Converse, ModelCaller
    from ..signatures.converse import ConverseClass
    from ..skills import SkillCatalogue
    from .memory import Memory

_LOG: Final = logging.getLogger("worldagent.agent")


class Shorthands(TypedDict, total=False):
    """Keywords of `WorldAgent` that stand for capabilities of this package, each by the name of its entry point.

    Attributes:
        mcp: MCP servers by name, whose tools it can also call; they override those of the setting `mcp_servers`.
        skills: Folders with skill packages, or a `SkillCatalogue`. Its conversations are offered them, and
            `thread.run_skill` runs one by name (T6).
        memory: What it remembers across threads. Default: the setting `memory`. If off, no prompt has a place for it.
        society: Makes it the root of a workspace of members that know each other by introduction: a
            `worldagent.members.WorkspaceConfig` with the workspace's id. Messages need approval, unless the policy
            has `worldagent.members.SEND_RULES`.
        queue: Keeps submitted turns until a worker process begins them: a `worldagent.scheduling.Queue` (D10).
        background: Lets conversations work in the background: True, or a `worldagent.agent.Background` (T17).
    """

    mcp: Mapping[str, McpServer] | None
    skills: SkillCatalogue | Iterable[PathLike[str]]
    memory: Memory | None
    society: Any
    queue: Capability[Any] | None
    background: Capability[Any] | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """What an agent is made of: its arguments, completed by the settings and checked. Nothing of it is open.

    Attributes:
        workspace: The workspace's id.
        settings: The settings.
        lm: The model.
        identity: Who the agent is.
        models: Further models by name.
        capabilities: Its capabilities, in the order in which they open.
        registry: Its functions and workers, with those of its capabilities.
        shapes: Its shapes, with those of its capabilities.
        profile: Its profile.
        builtin_tools: What the built-in tools can access.
        policy: Which calls run at once, require approval or are refused.
        approver: Answers approval requests in this process.
        notifier: Is called for each pause of an unattended turn.
        storage: Where it keeps its files.
        roles: Where roles come from.
        programs: Optimised programs by Signature name.
        converse: The Signature of its conversations, with the inputs that its capabilities fill.
        fields: The inputs that its capabilities fill.
        trace: Where traces go.
        on_error: Receives the original of every error that it replaces.
        clock: Source of time.
    """

    workspace: str
    settings: Settings
    lm: str | LM
    identity: str | None
    models: Mapping[str, str | LM]
    capabilities: tuple[Capability[Any], ...]
    registry: Registry
    shapes: tuple[Shape[Any, Any], ...]
    profile: Profile
    builtin_tools: BuiltinTools
    policy: Policy
    approver: Approver | None
    notifier: Notifier | None
    storage: Storage
    roles: Roles
    programs: Mapping[str, Any]
    converse: ConverseClass | None
    fields: tuple[InputField, ...]
    trace: Trace
    on_error: OnError | None
    clock: Clock


def spec_of(
    runtime: AgentRuntime,
    *,
    identity: str | None,
    lm: str | LM | None,
    tools: Iterable[Function | Callable[..., Any]],
    workers: Iterable[Worker | Function | PathLike[str]],
    models: Mapping[str, str | LM] | None,
    shapes: Iterable[Shape[Any, Any]],
    profile: str | Profile | None,
    builtin_tools: BuiltinTools | None,
    policy: Policy | None,
    approver: Approver | None,
    notifier: Notifier | None,
    storage: Storage | None,
    roles: Roles | None,
    programs: Mapping[str, Any] | None,
    converse: type[Converse] | None,
    settings: Settings | None,
    trace: Trace | TraceSink | Sequence[TraceSink] | None,
    on_error: OnError | None,
    clock: Clock | None,
    capabilities: Iterable[Capability[Any] | str],
    shorthands: Shorthands,
) -> AgentSpec:
    """Check the arguments of `WorldAgent`, and complete them by the settings. It raises what `WorldAgent` does."""
    check_id("workspace", runtime.workspace)
    check_kinds(storage=(storage, Storage), roles=(roles, Roles), settings=(settings, Settings))
    check_kinds(policy=(policy, Policy), builtin_tools=(builtin_tools, BuiltinTools))
    _check_others(identity, approver, notifier)
    settings, roles = settings or Settings(), roles or Roles()
    model, named = _model_of(lm, settings), all_models(models, settings)
    own_shapes, chosen = listed("shapes", shapes), chosen_profile(profile, settings)
    allowed = allowed_tools(builtin_tools, settings)
    tell = None if on_error is None else harmless(on_error)
    brought = _capabilities(capabilities, shorthands, settings, chosen, roles, tell)
    own = tuple(all_tools(tools))
    fields, further, functions = brought_by(brought, runtime, own, tell)
    all_shapes = tuple(ShapeRegistry((*own_shapes, *further)).shapes.values())
    functions = (*own, *functions)
    place = settings.storage(storage)
    registry = registry_of(functions, all_workers(workers, settings), chosen, allowed, home=place.resolve())
    gate = settings.gate_policy(policy)
    check_profile(chosen, registry, all_shapes, _servers(brought), allowed)
    return AgentSpec(
        workspace=runtime.workspace,
        settings=settings,
        lm=model,
        identity=identity,
        models=named,
        capabilities=brought,
        registry=registry,
        shapes=all_shapes,
        profile=chosen,
        builtin_tools=allowed,
        policy=gate,
        approver=approver,
        notifier=notifier,
        storage=place,
        roles=roles,
        programs=dict(programs or {}),
        converse=converse_class(converse, fields),
        fields=tuple(each for _, each in fields),
        trace=Trace.of(trace),
        on_error=tell,
        clock=clock or SystemClock(),
    )


def _check_others(identity: object, approver: object, notifier: object) -> None:
    check_approver(approver)
    check_notifier(notifier)
    if identity is not None and not is_text(identity):
        raise InvalidArgument("`identity` must be a non-empty string", remedy="say who the agent is, or omit it")


def _model_of(lm: str | LM | None, settings: Settings) -> str | LM:
    found = lm if lm is not None else settings.lm
    return _embedded_model() if found is None else found


@cache
def _embedded_model() -> str:
    """Choose the embedded model, and say so once in a process."""
    from ..signatures.engines.local import is_installed  # here, since an agent with a model does without

    if not is_installed():
        raise ModelNotConfigured(
            "no model is configured",
            remedy="pass lm='local', a model string such as 'openai/gpt-4o', or a dspy.LM, or set the environment "
            "variable WORLDAGENT_LM",
        )
    _LOG.warning("no model is configured, so agents use the embedded one, which is tiny; set WORLDAGENT_LM to another")
    return "local"


# --- capabilities -----------------------------------------------------------------------------------------------------


def _capabilities(
    given: Iterable[Capability[Any] | str],
    shorthands: Shorthands,
    settings: Settings,
    profile: Profile,
    roles: Roles,
    on_error: OnError | None,
) -> tuple[Capability[Any], ...]:
    """The capabilities of an agent, each after those that it needs open."""
    found: dict[str, Capability[Any]] = {}
    for each in listed("capabilities", given):
        _add(found, made_by_name(each, on_error) if isinstance(each, str) else each)
    for name, value in shorthands.items():
        if name not in Shorthands.__annotations__:
            raise TypeError(f"WorldAgent() got an unexpected keyword argument {name!r}")
        if value is not None and value is not False and value != ():
            _add(found, named_capability(name).of(value))
    if roles.on_request == "ask":
        _add(found, RoleRequests())
    _complete(found, settings, profile, on_error)
    return in_order(found)


def _complete(
    found: dict[str, Capability[Any]], settings: Settings, profile: Profile, on_error: OnError | None
) -> None:
    """Add the capabilities that the settings and the profile ask for, and drop those that the profile switches off."""
    for name in settings.capabilities:  # also named in capabilities=, it is still one
        if name not in found:
            _add(found, made_by_name(name, on_error))
    servers = servers_of(profile, settings, _servers(found.values()))
    if servers:
        found["mcp"] = named_capability("mcp").of(servers)
    if any(each.skills for each in servers.values()) and "skills" not in found:
        found["skills"] = named_capability("skills")()
    if settings.memory and "memory" not in found and profile.memory.long_term_memory:
        memory: Any = named_capability("memory")
        found["memory"] = memory(embedder=settings.memory_embedder)
    for name, wanted in (("memory", profile.memory.long_term_memory), ("skills", profile.skills.enabled)):
        if not wanted:
            found.pop(name, None)


def _add(found: dict[str, Capability[Any]], made: object) -> None:
    capability = checked_capability(made)
    if capability.name in found:
        raise NameTaken(f"the agent has two capabilities {capability.name!r}", remedy="pass one of them")
    found[capability.name] = capability


def _servers(brought: Iterable[Capability[Any]]) -> Mapping[str, McpServer]:
    servers: Mapping[str, McpServer] = next(
        (getattr(each, "servers", {}) for each in brought if each.name == "mcp"), {}
    )
    return servers


# --- opening ----------------------------------------------------------------------------------------------------------


async def open_agent(spec: AgentSpec, runtime: AgentRuntime, runner: TurnRunner, opened: AsyncExitStack) -> RunnerParts:
    """Open what an agent needs, in the one order in which all can rely on what they use, and let its runner run turns.

    Args:
        spec: What it is made of.
        runtime: What its capabilities get.
        runner: Runs its turns.
        opened: What is opened, to close it in reverse order. If this raises, the caller closes it.

    Raises:
        ModelNotConfigured, MissingExtra: The model cannot be used.
        StorageUnavailable, StorageInvalid, SchemaTooNew: The home cannot be used; no file of it is changed.
        NameTaken, FunctionInvalid: Workers, shapes or programs do not match each other.
        CapabilityFailed: A capability could not be opened or started.
    """
    runtime.clear()
    opened.callback(runtime.clear)
    parts = replace(await _open(spec, runtime, opened), unread=runner.pending.wake)
    parts.stores.turns.ended, parts.stores.turns.reported = runtime.ended, runner.pending.reported
    runtime.complete(parts, runner)
    runner.open(parts)
    # It closes first, also if a capability cannot start. Turns are also ended if waiting for them is cancelled.
    opened.push_async_callback(runner.close)
    for start in runtime.hooks.started:
        await start()
    runner.pending.open(spec.workspace)
    return parts


async def _open_model(spec: AgentSpec) -> ModelCaller:
    from ..signatures import open_model

    settings, generation = spec.settings, generation_options(spec.settings, spec.profile)
    return await open_model(
        spec.lm,
        api_base=settings.api_base,
        options=model_options(settings, spec.workspace),
        generation=generation.sent(),
        headers=generation.revealed_headers(),
        on_error=spec.on_error,
    )


async def _open(spec: AgentSpec, runtime: AgentRuntime, opened: AsyncExitStack) -> RunnerParts:
    # Imported here, since this loads dspy and langgraph: a program that only imports `WorldAgent` must not wait.
    from ..graphs import CheckpointSaver, TurnEngine
    from ..graphs.context import Services
    from ..signatures.models import Models

    settings, caller = spec.settings, await _open_model(spec)
    opened.push_async_callback(caller.aclose)
    models = Models(caller, spec.models, api_base=settings.api_base, on_error=spec.on_error)
    opened.push_async_callback(models.aclose)
    stores = await _open_stores(spec, opened)
    tracer = _open_traces(spec, opened)
    usage = open_usage(settings, stores, spec.workspace)
    opened.push_async_callback(usage.aclose)
    resolver = await _open_resolver(spec, opened)
    runtime.ready(stores, resolver)
    for each in spec.capabilities:
        runtime.opened[each.name] = await Asking(each.name, spec.on_error).open(each, runtime, opened)
    services = Services(
        caller=caller,
        models=models,
        registry=spec.registry,
        resolver=resolver,
        log=stores.log,
        clock=spec.clock,
        summary_cooldown=Expiring(spec.clock),
        on_error=spec.on_error,
        journal=stores.journal,
        places=stores.places,
        attachments=stores.attachments,
        examples=stores.examples,
        kept=stores.kept,
        inbox=stores.inbox,
        recall=runtime.recall,
        policy=spec.policy,
        approver=spec.approver,
        callbacks=tuple(spec.trace.callbacks),
    )
    engine = TurnEngine(
        await CheckpointSaver(stores.database).create_tables(),
        services,
        shapes=(*spec.shapes, *runtime.shapes),
        branches=stores.branches,
        identity=spec.identity,
        prompt=prompt_of(spec.profile, spec.registry, spec.builtin_tools),
        options=graph_options(settings, spec.profile),
        programs=spec.programs,
        converse=spec.converse,
        operators=runtime.operators,
    )
    pins = Expiring[ResolvedRole](spec.clock)
    recorder = Recorder(stores.events, stores.leases, age=settings.event_age)
    opened.push_async_callback(recorder.aclose)
    account_events = AccountEvents()
    opened.callback(account_events.close)

    def removed(thread: str, turn: str) -> None:
        resolver.threads.forget(thread)
        pins.drop(turn)
        runtime.ended()

    keep, age = settings.checkpoint_keep or None, settings.checkpoint_age
    return RunnerParts(
        engine=engine,
        resolver=resolver,
        stores=replace(stores, heads=engine.heads, removed=removed, flush=tracer.flush),
        settings=settings,
        pins=pins,
        retention=Retention(stores.checkpoints, spec.clock, keep, age),
        usage=usage,
        hooks=runtime.hooks,
        fields=spec.fields,
        profile=spec.profile,
        recorder=recorder,
        notifier=spec.notifier,
        account_events=account_events,
        tracer=tracer,
        queue=runtime.opened.get("queue"),
    )


async def _open_stores(spec: AgentSpec, opened: AsyncExitStack) -> Stores:
    """Open the database, with the tables of the capabilities."""
    limit, wait = spec.settings.attachment_limit, spec.settings.thread_wait
    made = {name for each in spec.capabilities for name in tables_made(each)}
    schemas = [schema_of(each) for each in spec.capabilities if each.migrations]
    stores = await Stores.open(spec.storage, spec.clock, limit=limit, wait=wait, schemas=schemas)
    opened.push_async_callback(stores.aclose)
    if made:
        owned, server = [table for each in spec.capabilities for table in each.owned], stores.checkpoints.postgres
        await stores.database.transact(lambda tx: write_owned(tx, owned, made, server=server))
    return stores


def _open_traces(spec: AgentSpec, opened: AsyncExitStack) -> Tracer:
    """Open the tracer; the home's trace file is created with the first trace."""
    clock = spec.clock
    index = TraceIndex(spec.storage.traces, age=spec.settings.trace_age, clock=lambda: clock.now().timestamp())
    tracer = spec.trace.tracer(index, on=spec.settings.trace)
    opened.push_async_callback(tracer.aclose)
    return tracer


async def _open_resolver(spec: AgentSpec, opened: AsyncExitStack) -> RoleResolver:
    settings = spec.settings
    key = spec.storage.role_key if settings.role_key is None else settings.role_key.get_secret_value()
    resolver = RoleResolver(
        await _open_role_store(spec, opened),
        spec.roles.sources,
        options=ResolverOptions(
            policy=spec.roles.policy,
            on_unavailable=spec.roles.on_unavailable,
            limit=settings.role_limit,
            timeout=settings.role_timeout,
            cache_ttl=settings.role_cache_ttl,
            key=key,
        ),
        clock=spec.clock,
    )
    await resolver.load_key()
    return resolver


async def _open_role_store(spec: AgentSpec, opened: AsyncExitStack) -> RoleStore:
    host = spec.roles.host_of(spec.settings)
    if isinstance(host, HttpHost | StdioHost):
        reached = HostRoleStore(host, clock=spec.clock)
        opened.push_async_callback(reached.aclose)
        # A host that is down fails a turn or is skipped by it (R14); the agent starts without it.
        with contextlib.suppress(HostError, TimeoutError):
            async with asyncio.timeout(spec.settings.role_timeout):
                await reached.connect()
        return reached
    if host is not None:
        return host
    # If the embedder passes a source for the channel tier, the embedded store does not offer that tier.
    offered = frozenset(STORED_TIERS) - spec.roles.sources.keys()
    store = await SqliteRoleStore.open(spec.storage.roles, limit=spec.settings.role_limit, tiers=offered)
    opened.push_async_callback(store.aclose)
    return store
