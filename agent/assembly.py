"""Puts an agent together: checks its arguments, and opens its parts in the one order that works.

This is the one place where a reader sees all features at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ..core import STORED_TIERS, Clock, Scope, SystemClock, check_id
from ..core.clock import Expiring
from ..core.errors import HostError, InvalidArgument, ModelNotConfigured
from ..core.validation import is_text
from ..graphs import Shape, ShapeRegistry
from ..harness import Function, Policy, Registry, Worker
from ..harness.gate import Approver
from ..harness.guard import OnError, harmless
from ..harness.trace import Trace, TraceSink
from ..harness.trace.index import TraceIndex
from ..harness.trace.tracer import Tracer
from ..mcp_client import HostRoleStore, HttpHost, StdioHost
from ..mcp_client.logins import LoginStore
from ..mcp_client.tools import McpServer, McpSources
from ..memory.attachments import Attachments
from ..profiles import Profile
from ..role_resolution import (
    ResolvedRole,
    ResolverOptions,
    RoleResolver,
    RoleStore,
    SqliteRoleStore,
)
from ..skills import SkillCatalogue
from ..storage import Storage
from ..tools import BuiltinTools
from .choices import (
    all_models,
    all_tools,
    all_workers,
    allowed_tools,
    check_approver,
    check_kinds,
    check_notifier,
    check_profile,
    check_queue,
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
    skill_catalogue,
    society_functions,
)
from .memory import Memory, MemoryFunctions, open_memory
from .recording import Recorder
from .roles import RoleRequests, Roles
from .runtime import RunnerParts, TurnRunner, trace_messages
from .settings import Settings
from .stores import Stores
from .submitting import Submissions, TurnQueue
from .unattended import AccountEvents, Notifier
from .upkeep import Retention

if TYPE_CHECKING:
    from ..memory.entries import Recall
    from ..signatures import LM, Converse, ModelCaller
    from ..signatures.converse import ConverseClass
    from ..society import SocietyFunctions, WorkspaceConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """What an agent is made of: its arguments, completed by the settings and checked. Nothing of it is open.

    Attributes:
        workspace: The workspace's id.
        settings: The settings.
        lm: The model.
        identity: Who the agent is.
        models: Further models by name.
        registry: Its functions and workers, with those that come with its features.
        shapes: Its shapes.
        skills: Its skill packages.
        servers: Its MCP servers by name.
        profile: Its profile.
        builtin_tools: What the built-in tools can access.
        policy: Which calls run at once, require approval or are refused.
        approver: Answers approval requests in this process.
        notifier: Is called for each pause of an unattended turn.
        storage: Where it keeps its files.
        roles: Where roles come from.
        requests: Lets users ask for a role of their thread.
        memory: What it remembers; None if the embedder or the profile switches it off.
        memory_functions: What its models call to remember.
        society: What its models call to reach members; None without a society.
        programs: Optimised programs by Signature name.
        converse: The Signature of its conversations.
        queue: Keeps submitted turns.
        trace: Where traces go.
        on_error: Receives the original of every error that it replaces.
        clock: Source of time.
    """

    workspace: str
    settings: Settings
    lm: str | LM
    identity: str | None
    models: Mapping[str, str | LM]
    registry: Registry
    shapes: tuple[Shape[Any, Any], ...]
    skills: SkillCatalogue
    servers: Mapping[str, McpServer]
    profile: Profile
    builtin_tools: BuiltinTools
    policy: Policy
    approver: Approver | None
    notifier: Notifier | None
    storage: Storage
    roles: Roles
    requests: RoleRequests
    memory: Memory | None
    memory_functions: MemoryFunctions
    society: SocietyFunctions | None
    programs: Mapping[str, Any]
    converse: ConverseClass | None
    queue: TurnQueue | None
    trace: Trace
    on_error: OnError | None
    clock: Clock


def spec_of(
    workspace: str,
    *,
    identity: str | None,
    lm: str | LM | None,
    tools: Iterable[Function | Callable[..., Any]],
    workers: Iterable[Worker | Function | PathLike[str]],
    models: Mapping[str, str | LM] | None,
    mcp: Mapping[str, McpServer] | None,
    shapes: Iterable[Shape[Any, Any]],
    skills: SkillCatalogue | Iterable[PathLike[str]],
    profile: str | Profile | None,
    builtin_tools: BuiltinTools | None,
    policy: Policy | None,
    approver: Approver | None,
    notifier: Notifier | None,
    storage: Storage | None,
    roles: Roles | None,
    memory: Memory | None,
    society: WorkspaceConfig | None,
    programs: Mapping[str, Any] | None,
    converse: type[Converse] | None,
    queue: TurnQueue | None,
    settings: Settings | None,
    trace: Trace | TraceSink | Sequence[TraceSink] | None,
    on_error: OnError | None,
    clock: Clock | None,
) -> AgentSpec:
    """Check the arguments of `WorldAgent`, and complete them by the settings. It raises what `WorldAgent` does."""
    check_id("workspace", workspace)
    check_kinds(storage=(storage, Storage), roles=(roles, Roles), settings=(settings, Settings))
    check_kinds(policy=(policy, Policy), builtin_tools=(builtin_tools, BuiltinTools), memory=(memory, Memory))
    _check_others(identity, approver, notifier, queue)
    settings, roles = settings or Settings(), roles or Roles()
    model, named = _model_of(lm, settings), all_models(models, settings)
    requests = RoleRequests(roles.on_request)
    all_shapes = (*ShapeRegistry(listed("shapes", shapes)).shapes.values(), *requests.shapes)
    catalogue, chosen = skill_catalogue(skills), chosen_profile(profile, settings)
    allowed = allowed_tools(builtin_tools, settings)
    memory = _memory_of(memory, settings, chosen)
    remembering, members = MemoryFunctions(memory), society_functions(society, workspace)
    of_members = () if members is None else members.functions
    own = (*all_tools(tools), *requests.functions, *remembering.functions, *of_members)
    place = settings.storage(storage)
    registry = registry_of(own, all_workers(workers, settings), chosen, allowed, home=place.resolve())
    gate, servers = settings.gate_policy(policy), servers_of(chosen, settings, mcp)
    check_profile(chosen, registry, all_shapes, servers, allowed)
    return AgentSpec(
        workspace=workspace,
        settings=settings,
        lm=model,
        identity=identity,
        models=named,
        registry=registry,
        shapes=all_shapes,
        skills=catalogue,
        servers=servers,
        profile=chosen,
        builtin_tools=allowed,
        policy=gate,
        approver=approver,
        notifier=notifier,
        storage=place,
        roles=roles,
        requests=requests,
        memory=memory,
        memory_functions=remembering,
        society=members,
        programs=dict(programs or {}),
        converse=converse_class(converse),
        queue=queue,
        trace=Trace.of(trace),
        on_error=None if on_error is None else harmless(on_error),
        clock=clock or SystemClock(),
    )


def _check_others(identity: object, approver: object, notifier: object, queue: object) -> None:
    check_approver(approver)
    check_notifier(notifier)
    check_queue(queue)
    if identity is not None and not is_text(identity):
        raise InvalidArgument("`identity` must be a non-empty string", remedy="say who the agent is, or omit it")


def _model_of(lm: str | LM | None, settings: Settings) -> str | LM:
    found = lm if lm is not None else settings.lm
    if found is None:
        raise ModelNotConfigured(
            "no model is configured",
            remedy="pass lm='local', a model string such as 'openai/gpt-4o', or a dspy.LM, or set the environment "
            "variable WORLDAGENT_LM",
        )
    return found


def _memory_of(given: Memory | None, settings: Settings, profile: Profile) -> Memory | None:
    if given is None and settings.memory:
        given = Memory(embedder=settings.memory_embedder)
    return given if profile.memory.long_term_memory else None


async def open_agent(spec: AgentSpec, runner: TurnRunner, opened: AsyncExitStack) -> RunnerParts:
    """Open what an agent needs, in the one order in which all can rely on what they use, and let its runner run turns.

    Args:
        spec: What it is made of.
        runner: Runs its turns.
        opened: What is opened, to close it in reverse order. If this raises, the caller closes it.

    Raises:
        ModelNotConfigured, MissingExtra: The model cannot be used.
        StorageUnavailable, StorageInvalid, SchemaTooNew: The home cannot be used; no file of it is changed.
        NameTaken, FunctionInvalid: Workers, shapes or programs do not match each other.
    """
    parts = await _open(spec, opened)
    if spec.society is not None:
        parts = _open_society(spec, spec.society.config, parts)
    spec.requests.open(parts)
    opened.callback(spec.requests.close)
    spec.memory_functions.open(parts)
    opened.callback(spec.memory_functions.close)
    if spec.memory is not None and spec.memory.source is None:
        from .distilling import MemoryUpkeep

        upkeep = MemoryUpkeep(parts, spec.workspace, spec.memory.distil_after)
        opened.push_async_callback(upkeep.aclose)
    runner.open(parts)
    if spec.society is not None and parts.members is not None:
        society = parts.members.society
        spec.society.open(society, parts.stores.attachments)
        await society.bootstrap()
        opened.callback(spec.society.close)
        opened.push_async_callback(society.aclose)
    return parts


async def _open_skills(spec: AgentSpec, mcp: McpSources, opened: AsyncExitStack) -> SkillCatalogue:
    catalogue = spec.skills
    if not spec.profile.skills.enabled:
        return SkillCatalogue(())
    if any(server.skills for server in spec.servers.values()):
        from ..skills.hosted import fetch_skills

        folder = Path(opened.enter_context(TemporaryDirectory(prefix="worldagent-skills-")))
        catalogue = catalogue.with_hosts(await fetch_skills(spec.servers, mcp, folder))
    return catalogue


def _skill_shapes(spec: AgentSpec, catalogue: SkillCatalogue, resolver: RoleResolver) -> tuple[Shape[Any, Any], ...]:
    if not catalogue.usable:
        return ()
    from ..skills.composer import SkillComposer

    made = SkillComposer(
        catalogue,
        spec.registry,
        spec.policy,
        spec.identity,
        lambda: resolver.key,
        memory=spec.memory is not None,
        find_tools_above=spec.settings.find_tools_above,
    )
    return (made.shape(),)


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


def _open_society(spec: AgentSpec, config: WorkspaceConfig, parts: RunnerParts) -> RunnerParts:
    """Return the parts with the members of the workspace."""
    from ..society import Society
    from ..society.wakeups import wakeups_of
    from ..society.workers import MemberWorkers

    stores, engine, notify = parts.stores, parts.engine, partial(trace_messages, parts, spec.workspace)
    wakeups = wakeups_of(stores.database, spec.settings.nats_url)
    is_taken = engine.is_taken
    society = Society(config, stores.database, stores.clock, notify=notify, wakeups=wakeups, is_taken=is_taken)
    known = engine.services.registry.workers
    members = MemberWorkers(society, known, add=engine.add_worker, remove=engine.remove_worker)
    return replace(parts, members=members)


async def _open(spec: AgentSpec, opened: AsyncExitStack) -> RunnerParts:
    # Imported here, since this loads dspy and langgraph: a program that only imports `WorldAgent` must not wait.
    from ..graphs import CheckpointSaver, TurnEngine
    from ..graphs.context import Services
    from ..signatures.models import Models

    settings, caller = spec.settings, await _open_model(spec)
    opened.push_async_callback(caller.aclose)
    models = Models(caller, spec.models, api_base=settings.api_base, on_error=spec.on_error)
    opened.push_async_callback(models.aclose)
    limit, wait = settings.attachment_limit, settings.thread_wait
    stores = await Stores.open(spec.storage, spec.clock, limit=limit, wait=wait)
    opened.push_async_callback(stores.aclose)
    tracer = _open_traces(spec, opened)
    usage = open_usage(settings, stores, spec.workspace)
    opened.push_async_callback(usage.aclose)
    resolver = await _open_resolver(spec, opened)
    mcp = await _open_servers(spec, stores.attachments, opened)
    skills = await _open_skills(spec, mcp, opened)
    recall = await _open_memory(spec, stores, opened)
    submissions = Submissions(spec.queue, spec.storage, spec.workspace)
    opened.push_async_callback(submissions.aclose)
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
        attachments=stores.attachments,
        examples=stores.examples,
        kept=stores.kept,
        recall=recall,
        policy=spec.policy,
        approver=spec.approver,
        callbacks=tuple(spec.trace.callbacks),
    )
    engine = TurnEngine(
        await CheckpointSaver(stores.database).create_tables(),
        services,
        shapes=(*spec.shapes, *_skill_shapes(spec, skills, resolver)),
        branches=stores.branches,
        identity=spec.identity,
        prompt=prompt_of(spec.profile, spec.registry, spec.builtin_tools),
        options=graph_options(settings, spec.profile),
        programs=spec.programs,
        converse=spec.converse,
        operators=spec.society is not None,
    )
    pins = Expiring[ResolvedRole](spec.clock)
    recorder = Recorder(stores.events, stores.leases, age=settings.event_age)
    opened.push_async_callback(recorder.aclose)
    account_events = AccountEvents()
    opened.callback(account_events.close)

    def removed(thread: str, turn: str) -> None:
        resolver.threads.forget(thread)
        pins.drop(turn)

    keep, age = settings.checkpoint_keep or None, settings.checkpoint_age
    return RunnerParts(
        engine=engine,
        resolver=resolver,
        stores=replace(stores, heads=engine.heads, removed=removed, flush=tracer.flush),
        settings=settings,
        pins=pins,
        retention=Retention(stores.checkpoints, spec.clock, keep, age),
        usage=usage,
        mcp=mcp,
        skills=skills,
        profile=spec.profile,
        recorder=recorder,
        notifier=spec.notifier,
        account_events=account_events,
        tracer=tracer,
        submissions=submissions,
    )


async def _open_memory(spec: AgentSpec, stores: Stores, opened: AsyncExitStack) -> Recall | None:
    if spec.memory is None:
        return None
    recall = await open_memory(spec.memory, stores.entries, spec.workspace, spec.settings, opened)
    if spec.society is None:
        return recall
    from ..society import Society
    from ..society.reading import reader_of

    society = Society(spec.society.config, stores.database, spec.clock)
    return replace(recall, readers=partial(reader_of, society))


def _open_traces(spec: AgentSpec, opened: AsyncExitStack) -> Tracer:
    """Open the tracer; the home's trace file is created with the first trace."""
    clock = spec.clock
    index = TraceIndex(spec.storage.traces, age=spec.settings.trace_age, clock=lambda: clock.now().timestamp())
    tracer = spec.trace.tracer(index, on=spec.settings.trace)
    opened.push_async_callback(tracer.aclose)
    return tracer


async def _open_servers(spec: AgentSpec, attachments: Attachments, opened: AsyncExitStack) -> McpSources:
    async def keep(scope: Scope | None, content: bytes, media_type: str, kind: str) -> Mapping[str, Any]:
        store = attachments if scope is None else attachments.reached_by(scope)
        return (await store.add(content, name=kind, media_type=media_type)).to_json()

    logins = LoginStore(spec.storage.resolve(), spec.workspace)
    sources = McpSources(spec.servers, registry=spec.registry, clock=spec.clock, keep=keep, logins=logins)
    opened.push_async_callback(sources.aclose)
    await sources.start()
    return sources


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
