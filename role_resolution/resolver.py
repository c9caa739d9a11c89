"""Asks all tiers at once and returns one `ResolvedRole` (R3, R14). It handles sources and time limits, not models.

`role.compose` has the rules of precedence. Only `signatures` reads the texts of the result.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..core import Clock, Scope, SystemClock, Tier
from ..core.errors import HostError, HostForbidden, RoleSourceInvalid, RoleSourceUnavailable
from .keys import RoleKey
from .role import NO_ROLE, ROLE_LIMIT, Policy, ResolvedRole, Role, active_tiers, check_applies, check_length, compose
from .sources import CachedRoleStore, RoleSource, RoleStore, ThreadRoles

OnUnavailable = Literal["fail", "skip"]
TierState = Literal["active", "blocked", "not_applicable", "absent", "unavailable"]

GRACE_SECONDS = 1.0  # seconds that a cancelled source has to end


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolverOptions:
    """How roles are resolved.

    Attributes:
        policy: `stack` or `block` (R4).
        on_unavailable: Whether a tier whose source is down fails the turn or is left out (R14).
        limit: The most bytes of UTF-8 in one role's content (R15).
        timeout: The most seconds that each source can take.
        cache_ttl: Seconds for which a stored role is kept in memory; 0 turns the cache off (R9).
        key: The key of role digests, or the file that has it (R13); None makes a key for this process only.
    """

    policy: Policy = "stack"
    on_unavailable: OnUnavailable = "fail"
    limit: int = ROLE_LIMIT
    timeout: float = 5.0
    cache_ttl: float = 5.0
    key: str | Path | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TierExplanation:
    """One tier in an explanation. It shows a name and a length, never the content.

    Attributes:
        tier: The tier.
        state: Whether the role is active, and if not, why.
        name: The role's name; None if the tier has no role.
        length: How many characters its content has.
        signatures: The names of the Signatures that it is active for.
    """

    tier: Tier
    state: TierState
    name: str | None = None
    length: int = 0
    signatures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RoleExplanation:
    """Which roles are active now, in what order and how long they are. It is for people and is never stored.

    Attributes:
        tiers: All five tiers, lowest precedence first, which is the order in a stack.
        policy: `stack` or `block`.
    """

    tiers: tuple[TierExplanation, ...]
    policy: Policy


@dataclass(frozen=True, slots=True)
class Resolution:
    """A resolved role, and the tiers that were left out because their source was down, each with the error's code."""

    role: ResolvedRole
    skipped: Mapping[Tier, str] = field(default_factory=dict)

    @property
    def skipped_tiers(self) -> tuple[Tier, ...]:
        """The tiers that were left out, lowest precedence first."""
        return tuple(tier for tier in reversed(Tier) if tier in self.skipped)


class RoleResolver:
    """Resolves the five tiers of a scope.

    Args:
        store: The store of workspace and account roles, and of channel roles if it offers them.
        sources: The sources of the tiers that the store does not offer.
        options: Policy, limits and times.
        clock: The source of time.
    """

    def __init__(
        self,
        store: RoleStore,
        sources: Mapping[Tier, RoleSource],
        *,
        options: ResolverOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.options = options or ResolverOptions()
        clock = clock or SystemClock()
        self.store = CachedRoleStore(store, ttl=self.options.cache_ttl, clock=clock, limit=self.options.limit)
        self.threads = ThreadRoles(self.options.limit, clock)
        self._sources = dict(sources)
        self._key: RoleKey | None = None

    @property
    def key(self) -> RoleKey:
        """The key of role digests. The first use reads its file, or makes it.

        Raises:
            StorageUnavailable, StorageInvalid: Its file cannot be used.
        """
        if self._key is None:
            given = self.options.key
            self._key = RoleKey.open(given) if isinstance(given, Path) else RoleKey(given or secrets.token_hex(32))
        return self._key

    async def load_key(self) -> None:
        """Read the key on a thread, because stretching a chosen key takes time. A missing file is not made.

        An unusable file is reported when the key is first used, because a turn without a role does not need the key.
        """
        given = self.options.key
        with contextlib.suppress(HostError):
            if isinstance(given, Path):
                self._key = await asyncio.to_thread(RoleKey.read, given)
            elif given is not None:
                self._key = await asyncio.to_thread(RoleKey, given)

    async def resolve(
        self,
        scope: Scope,
        *,
        call: Role | None,
        entry: str | tuple[str, ...],
        signatures: Iterable[str] = (),
        turn: str | None = None,
        tiers: Collection[Tier] | None = None,
        known: Collection[str] | None = None,
    ) -> Resolution:
        """Ask all tiers at once and compose their roles (R3).

        Args:
            scope: The scope whose roles are resolved.
            call: The call's own role, if any.
            entry: The name of the entry Signature, or several; empty if the roles are only checked.
            signatures: The names of the turn's other Signatures.
            turn: The turn that is resumed; None for a new one.
            tiers: The tiers that count, besides that of the call; None is all of them.
            known: The names of all Signatures of the agent, which `applies_to` is checked against; None checks nothing.

        Raises:
            RoleInvalid: `applies_to` of a role names no Signature of the agent, or no predictor of the turn's module.
            RoleSourceUnavailable: A source failed or was late, and `on_unavailable` is `fail`.
            RoleSourceInvalid: A source returned something that is not a role, and `on_unavailable` is `fail`.
            HostForbidden: A role host refuses the token or a scope. It is raised whatever `on_unavailable` is.
            RoleTooLong: A role is over the limit.
        """
        roles, skipped = await self._gather(scope, call, turn=turn)
        if tiers is not None:
            roles = {tier: role for tier, role in roles.items() if tier in (*tiers, Tier.CALL)}
        if not roles:
            return Resolution(NO_ROLE, skipped)
        resolved = compose(roles, entry=entry, signatures=signatures, policy=self.options.policy)
        if known is not None:
            for role in roles.values():
                check_applies(role, known)
        return Resolution(resolved, skipped)

    def resolve_call(
        self,
        call: Role | None,
        *,
        entry: str | tuple[str, ...],
        signatures: Iterable[str] = (),
        known: Collection[str] | None = None,
    ) -> ResolvedRole:
        """Resolve only the call tier, for a dispatch inside a turn (T8); see `resolve`.

        Raises:
            RoleTooLong: The role is over the limit.
            RoleInvalid: As for `resolve`.
        """
        if call is None:
            return NO_ROLE
        check_length(call, Tier.CALL, self.options.limit)
        resolved = compose({Tier.CALL: call}, entry=entry, signatures=signatures, policy=self.options.policy)
        if known is not None:
            check_applies(call, known)
        return resolved

    async def explain(
        self, scope: Scope, *, call: Role | None, entry: str | tuple[str, ...], signatures: Iterable[str] = ()
    ) -> RoleExplanation:
        """Explain what `resolve` would return for this scope now. A source that is down is shown, not raised."""
        roles, skipped = await self._gather(scope, call, on_unavailable="skip")
        entries = (entry,) if isinstance(entry, str) else entry
        names = tuple(dict.fromkeys((*entries, *signatures)))
        policy = self.options.policy
        by_name = {name: active_tiers(roles, name, entry=entries, policy=policy) for name in names}
        explained = []
        for tier in reversed(Tier):
            role = roles.get(tier)
            if role is None:
                explained.append(TierExplanation(tier=tier, state="unavailable" if tier in skipped else "absent"))
                continue
            attached = tuple(name for name in names if tier in by_name[name][0])
            blocked = any(by_name[name][1].get(tier) == "blocked" for name in names)
            state: TierState = "active" if attached else "blocked" if blocked else "not_applicable"
            explained.append(
                TierExplanation(tier=tier, state=state, name=role.name, length=len(role.content), signatures=attached)
            )
        return RoleExplanation(tuple(explained), policy)

    async def _gather(
        self, scope: Scope, call: Role | None, *, on_unavailable: OnUnavailable | None = None, turn: str | None = None
    ) -> tuple[dict[Tier, Role], dict[Tier, str]]:
        roles: dict[Tier, Role] = {}
        if call is not None:
            check_length(call, Tier.CALL, self.options.limit)
            roles[Tier.CALL] = call
        tiers = self.store.tiers
        found, failed = await self._ask_all(scope, turn)
        if self.store.tiers != tiers:
            # A role host says which tiers it offers once it is connected, and this turn may have connected it.
            found, failed = await self._ask_all(scope, turn)
        for tier, role in found.items():
            check_length(role, tier, self.options.limit)
            roles[tier] = role
        refused = next((error for error in failed.values() if isinstance(error, HostForbidden)), None)
        if refused is not None and on_unavailable is None:
            # A refusal is a decision, not an outage. Continuing without the role would bypass that decision.
            raise refused
        if failed and (on_unavailable or self.options.on_unavailable) == "fail":
            raise next(iter(failed.values()))
        return roles, {tier: error.code for tier, error in failed.items()}

    async def _ask_all(self, scope: Scope, turn: str | None) -> tuple[dict[Tier, Role], dict[Tier, HostError]]:
        """Ask the store for the tiers that it offers, in one request, and the sources for the other tiers."""
        offered = self.store.tiers
        wanted = {tier: scope_id for tier in offered if (scope_id := scope.id_of(tier)) is not None}
        asked: dict[tuple[Tier, ...], Awaitable[Any]] = {}
        kept = self.store.peek(wanted)
        if kept is None:
            asked[tuple(wanted)] = self.store.list(wanted)
        of_thread = self.threads.get(scope, turn)
        for tier, source in self._sources.items():
            if tier is Tier.THREAD and of_thread is not None:
                continue
            if tier not in offered and scope.id_of(tier) is not None:
                asked[(tier,)] = _ask(source, scope, tier)
        found, failed = await self._settle(asked) if asked else ({}, {})
        own = {} if of_thread is None else {Tier.THREAD: of_thread}
        return {**(kept or {}), **found, **own}, failed

    async def _settle(
        self, asked: Mapping[tuple[Tier, ...], Awaitable[Any]]
    ) -> tuple[dict[Tier, Role], dict[Tier, HostError]]:
        """Wait for all sources up to the time limit, and cancel those that are late."""
        tasks = {asyncio.ensure_future(question): tiers for tiers, question in asked.items()}
        try:
            _, late = await asyncio.wait(tasks, timeout=self.options.timeout)
        finally:
            for task in tasks:
                task.cancel()
        if late:
            await asyncio.wait(late, timeout=GRACE_SECONDS)
        found: dict[Tier, Role] = {}
        failed: dict[Tier, HostError] = {}
        for task, tiers in tasks.items():
            answer = self._read(task, tiers, late=task in late)
            if isinstance(answer, HostError):
                failed.update(dict.fromkeys(tiers, answer))
            else:
                found.update(answer)
        return found, failed

    def _read(self, task: asyncio.Future[Any], tiers: tuple[Tier, ...], *, late: bool) -> dict[Tier, Role] | HostError:
        if late:
            return _unavailable(tiers, f"its source did not answer within {self.options.timeout:g} s")
        if task.cancelled():
            return _unavailable(tiers, "its source was cancelled")
        error = task.exception()
        if isinstance(error, HostError):
            return _of_host(tiers, error)
        if error is not None:
            return _unavailable(tiers, f"its source failed with {type(error).__name__}")
        answer = task.result()
        if not isinstance(answer, Mapping) or not all(
            tier in tiers and isinstance(role, Role) for tier, role in answer.items()
        ):
            return RoleSourceInvalid(
                f"the {_names(tiers)} role could not be read: its source returned something that is not a role",
                remedy="return a Role or None from the source",
            )
        return dict(answer)


async def _ask(source: RoleSource, scope: Scope, tier: Tier) -> object:
    role: object = await source(scope)
    return {} if role is None else {tier: role}


def _unavailable(tiers: tuple[Tier, ...], why: str) -> RoleSourceUnavailable:
    return RoleSourceUnavailable(
        f"the {_names(tiers)} role could not be read: {why}",
        remedy="bring the source back; in Python, Roles(on_unavailable='skip') continues without this tier",
    )


def _of_host(tiers: tuple[Tier, ...], error: HostError) -> HostError:
    """A new error with the store's text and the tiers. The original error is dropped: its frames may contain a role."""
    kept = (RoleSourceInvalid, HostForbidden)  # a retry helps with neither
    kind = next((kind for kind in kept if isinstance(error, kind)), RoleSourceUnavailable)
    return kind(f"the {_names(tiers)} role could not be read: {error.problem}", remedy=error.remedy)


def _names(tiers: tuple[Tier, ...]) -> str:
    return " and ".join(tier.value for tier in sorted(tiers, key=list(Tier).index))
