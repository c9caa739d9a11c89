"""The budgets of members: what is reserved before it is used, counted for all above, and returned (A16).

A holder of limits is a member, the brief that is the last task of one, or the case of an event. What a member does is
counted for its own holders and for those of all members above it, in one transaction. So what is reserved and spent
below a holder is part of what is counted for it, and its limits hold for all of it together.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from ..core import Scope, canonical_json, digest, new_id
from ..core.checks import check_texts
from ..core.clock import uninterrupted
from ..core.errors import BudgetInvalid, BudgetReached
from ..core.scope import member_of
from ..memory.reports import conversation_of
from ..storage import Transaction, portions
from .data.accounts import case_of_turn, thread_of
from .data.limits import KINDS, Amounts, MemberLimits, in_nano, limits_of, put_limits, window
from .data.roles import ROOT, USER, RoleSpec, RoleStatus, check_kind
from .data.store import WorkspaceStore
from .life.members import one_member, unknown_member
from .mail.letters import handled_by, letter_of, post
from .mail.messages import RoleMessage

TOLD: Final = 80
"""At how many percent of a limit the superior is told."""

MEMBER, BRIEF, CASE = "member ", "brief ", "case "
_FINAL: Final = (RoleStatus.TERMINATED,)

_TASK: Final = "SELECT task FROM wa_mailbox WHERE workspace=? AND member=? AND task <> ''"
_LIMITS: Final = "SELECT holder, limits FROM wa_limit WHERE workspace=? AND holder IN ({})"
_ALL_LIMITS: Final = "SELECT holder, member, limits FROM wa_limit WHERE workspace=? ORDER BY holder"
_USED: Final = "SELECT turns, calls, tokens, cost FROM wa_budget WHERE workspace=? AND holder=? AND span=?"
_OPEN: Final = """INSERT INTO wa_budget(workspace, holder, span, turns, calls, tokens, cost)
                  VALUES(?, ?, ?, 0, 0, 0, 0)"""
_OVER: Final = "DELETE FROM wa_budget WHERE workspace=? AND holder=? AND span < ? AND span <> 'life'"
_ADD: Final = """UPDATE wa_budget SET turns=turns+?, calls=calls+?, tokens=tokens+?, cost=cost+?
                 WHERE workspace=? AND holder=? AND span=?"""
_RESERVE: Final = """INSERT INTO wa_reserved(workspace, id, work, member, debits, turns, calls, tokens, cost, at)
                     VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_SHARES: Final = "SELECT id, debits, turns, calls, tokens, cost FROM wa_reserved WHERE workspace=? AND id IN ({})"
_SHARE: Final = "UPDATE wa_reserved SET calls=?, tokens=?, cost=? WHERE workspace=? AND id=?"
_RETURN: Final = """DELETE FROM wa_reserved WHERE workspace=? AND {}=?
                    RETURNING id, debits, turns, calls, tokens, cost"""
_WORKS: Final = "SELECT DISTINCT work FROM wa_reserved WHERE workspace=? AND work <> ''"
_LEFT: Final = "DELETE FROM wa_reserved WHERE workspace=? AND work='' AND at < ?"
_RESERVED: Final = "SELECT debits, turns, calls, tokens, cost FROM wa_reserved WHERE workspace=?"
_HOLD: Final = """INSERT INTO wa_held(workspace, work, member, case_id, holder, needs, since)
                  VALUES(?, ?, ?, ?, ?, ?, ?)
                  ON CONFLICT(workspace, work) DO UPDATE SET holder=excluded.holder, needs=excluded.needs"""
_HELD: Final = "SELECT work, member, case_id, holder, needs, since FROM wa_held WHERE workspace=? ORDER BY since, work"
_HELD_ONE: Final = "SELECT member, case_id, needs FROM wa_held WHERE workspace=? AND work=?"
_LET_GO: Final = "DELETE FROM wa_held WHERE workspace=? AND work=?"
_DISPATCH: Final = Amounts(1, 1, 1, 1)  # what must be left for a turn to begin

_Debit = tuple[str, str]  # a holder and the window in which it is counted
_Chain = dict[str, MemberLimits | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetState:
    """What a member, a brief or a case can use and has used in its current window.

    Attributes:
        holder: `member ID`, `brief ID` with the id of the message, or `case ID`.
        member: The member that it is about; empty for a case.
        limits: Its limits; None if it has none of its own.
        used: What it and all below it has spent and reserved, by `turns`, `calls`, `tokens` and `cost`.
        reserved: What of that is reserved.
        until: When its window ends; None for one that does not.
        share: How much of its limits is used: 1 is all of one of them.
    """

    holder: str
    member: str
    limits: MemberLimits | None
    used: Mapping[str, float]
    reserved: Mapping[str, float]
    until: datetime | None
    share: float

    def to_text(self) -> str:
        """What is used, in a line."""
        limits = self.limits.to_json() if self.limits is not None else {}
        parts = [
            f"{self.used[kind]:g}{f' of {limits[kind]:g}' if kind in limits else ''} {kind}"
            for kind in KINDS
            if kind in limits or self.used[kind]
        ]
        each = {"life": "in all"}.get(str(limits.get("period", "life")), f"a {limits.get('period')}")
        return f"{', '.join(parts) or 'nothing used'}{f', {each}' if limits else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldWork:
    """A message or an event that waits because a budget is reached.

    Attributes:
        work: The id of the message, or the case of the event.
        member: The member that is to do it.
        case: The case that it belongs to.
        holder: Whose budget is reached: `member ID`, `brief ID` or `case ID`.
        since: Since when.
    """

    work: str
    member: str
    case: str
    holder: str
    since: datetime


class Budgets:
    """The budgets of a workspace.

    Args:
        store: The database of the workspace.
        end: Ends work that waits.
    """

    def __init__(self, store: WorkspaceStore, end: Callable[[HeldWork], Awaitable[None]]) -> None:
        self._store = store
        self._workspace = store.id
        self._end = end
        self._fresh = True  # whether something was counted since the superiors were told

    # --- what a host asks for -----------------------------------------------------------------------------------------

    async def of(self, member: str) -> BudgetState:
        """What a member can use, and what it has used with all members below it.

        Raises:
            UnknownMember: There is no such member.
        """
        check_texts(member=member)

        def work(tx: Transaction) -> BudgetState:
            if one_member(tx, self._workspace, member) is None:
                raise unknown_member(member, self._workspace)
            holder = f"{MEMBER}{member}"
            return self._state(tx, holder, member, self._limits(tx, [holder]).get(holder))

        return await self._store.read(work)

    async def list(self) -> tuple[BudgetState, ...]:
        """All budgets with limits: of members, of briefs and of cases."""

        def work(tx: Transaction) -> list[BudgetState]:
            rows = tx.execute(_ALL_LIMITS, (self._workspace,))
            return [self._state(tx, holder, member, limits_of(json.loads(body))) for holder, member, body in rows]

        return tuple(await self._store.read(work))

    async def held(self) -> tuple[HeldWork, ...]:
        """The messages and events that wait because a budget is reached, the longest waiting first."""
        rows = await self._store.read(lambda tx: tx.execute(_HELD, (self._workspace,)))
        return tuple(
            HeldWork(work=work, member=member, case=case, holder=holder, since=datetime.fromtimestamp(since, UTC))
            for work, member, case, holder, _, since in rows
        )

    async def extend(self, member: str, limits: MemberLimits | Mapping[str, object], *, by: str = USER) -> BudgetState:
        """Replace the limits of a member; work that waits for them goes on.

        Args:
            member: The member, or another holder: `brief ID` or `case ID`.
            limits: Its new limits, also as JSON.
            by: Who does it: the owner, or a member above it.

        Raises:
            BudgetInvalid: They are wider than those above, `by` is neither the owner nor above the member, or has less
                left than the member could use then.
            UnknownMember: There is no such member.
        """
        check_texts(member=member, by=by)
        new = limits_of(limits)
        check_kind("limits", new, MemberLimits)
        assert new is not None

        def work(tx: Transaction) -> BudgetState:
            holder = member if member.startswith((BRIEF, CASE)) else f"{MEMBER}{member}"
            about = {row[0]: row[1] for row in tx.execute(_ALL_LIMITS, (self._workspace,))}
            id_ = member if holder.startswith(MEMBER) else about.get(holder, "")
            if holder not in about and one_member(tx, self._workspace, id_) is None:
                raise unknown_member(member, self._workspace)
            self._lock(tx)
            above = self._above(tx, id_, holder)
            self._check_extension(tx, holder, new, above, by)
            put_limits(tx, self._workspace, holder, new, member=id_)
            return self._state(tx, holder, id_, new)

        self._store.limited = self._fresh = True
        return await self._store.transact(work, wakes=True)

    async def end(self, work: str, *, by: str = USER) -> None:
        """End work that waits because a budget is reached: a message fails for its sender, and an event is cancelled.

        Args:
            work: The id of the message or of the event.
            by: Who does it: the owner, or a member above the one whose work it is.

        Raises:
            BudgetInvalid: It does not wait for a budget, or `by` is neither the owner nor above its member.
        """
        check_texts(work=work, by=by)
        found = next(
            (each for each in await self.held() if work in (each.work, each.work.removeprefix("event."))), None
        )
        if found is None:
            raise BudgetInvalid(
                f"{work[:60]!r} does not wait for a budget", remedy="`society.budgets.held()` lists what does"
            )
        about = found.member
        above = await self._store.read(lambda tx: self._above(tx, about, f"{MEMBER}{about}"))
        if by not in (USER, self._store.config.owner) and f"{MEMBER}{by}" not in above:
            raise BudgetInvalid(f"{by!r} is not above {about!r}", remedy="ask its superior, or the owner")
        self._store.limited = True
        await self._end(found)

    def _above(self, tx: Transaction, member: str, holder: str) -> _Chain:
        """The holders above one, by their limits."""
        chain = self._chain(tx, member, "") if member else {}
        names = [*chain]
        return {name: chain[name] for name in names[names.index(holder) + 1 :]} if holder in chain else chain

    def _check_extension(self, tx: Transaction, holder: str, new: MemberLimits, above: _Chain, by: str) -> None:
        owner = by in (USER, self._store.config.owner)
        if not owner and f"{MEMBER}{by}" not in above:
            raise BudgetInvalid(f"{by!r} is not above {holder!r}", remedy="ask its superior, or the owner")
        for name, limits in above.items():
            if limits is not None and new.within(limits) != new:
                raise BudgetInvalid(
                    f"these limits of {holder!r} are wider than those of {name!r}", remedy="extend those first"
                )
        limits = above.get(f"{MEMBER}{by}")
        if limits is None:
            if not owner:
                raise BudgetInvalid(f"{by!r} has no budget that it could give from", remedy="ask the owner")
            return
        now = self._store.clock.now()
        spent = self._used(tx, holder, window(new.period, now)[0])
        own = self._used(tx, f"{MEMBER}{by}", window(limits.period, now)[0])
        for kind, most, had, limit, used in zip(KINDS, new.most, spent, limits.most, own, strict=True):
            if limit is not None and (most is None or most - had > limit - used):
                raise BudgetInvalid(
                    f"{by!r} has less {kind} left than {holder!r} could use then", remedy="extend it by less"
                )

    # --- in a transaction ---------------------------------------------------------------------------------------------

    def begin(self, tx: Transaction, work: str, member: str, case: str, *, own: str) -> None:
        """Reserve the share of a dispatch: a turn, and what is left of its own limits. Repeating it has no effect.

        It comes last in its transaction, as `close` does, so that two transactions cannot wait for each other.

        Args:
            tx: The transaction that stores the dispatch.
            work: The id of the message, or the case of the event.
            member: The member that does the work.
            case: The case.
            own: The holder whose limits are those of the dispatch, if it has any.

        Raises:
            BudgetReached: A budget is used up.
        """
        self._lock(tx)
        chain, turn = self._chain(tx, member, case), f"turn {work}"
        if not chain or tx.execute(_SHARES.format("?"), (self._workspace, turn)):
            return
        refused = self._lacks(tx, chain, _DISPATCH)
        if refused is not None:
            raise _reached(refused, chain)
        self._take(tx, turn, work, member, chain, Amounts(turns=1), returned=Amounts())
        if chain.get(own) is not None:
            above = {name: limits for name, limits in chain.items() if name != own}
            left = self._left(tx, chain, own)
            self._take(tx, f"share {own}", work, member, above, left, returned=left)
        tx.execute(_LET_GO, (self._workspace, work))

    async def hold(self, work: str, member: str, case: str) -> None:
        """Note that the dispatch of some work waits for a budget.

        Args:
            work: The id of the message, or the case of the event.
            member: The member that is to do it.
            case: The case.
        """

        def note(tx: Transaction) -> None:
            chain = self._chain(tx, member, case)
            refused = self._lacks(tx, chain, _DISPATCH)
            if refused is not None and not tx.execute(_HELD_ONE, (self._workspace, work)):
                self._note_held(tx, work, member, case, refused, _DISPATCH)

        await self._store.database.transact(note)

    def close(self, tx: Transaction, work: str) -> None:
        """Return the rest of what the dispatch of some work reserved. Calls under way stay counted at their bound."""
        self._lock(tx)
        for id_, debits, *amounts in tx.execute(_RETURN.format("work"), (self._workspace, work)):
            if id_.startswith("share "):
                self._add(tx, json.loads(debits), Amounts().less(Amounts(*amounts)))
        tx.execute(_LET_GO, (self._workspace, work))

    def _lock(self, tx: Transaction) -> None:
        tx.lock(f"budgets of {self._workspace}")

    def _chain(self, tx: Transaction, member: str, case: str) -> _Chain:
        """The holders that something is counted for, the lowest first; empty if none of them has limits."""
        names, seen, todo = [f"{CASE}{case}"] if case else [], set[str](), [member]
        for id_ in todo:
            found = None if id_ in seen else one_member(tx, self._workspace, id_)
            if found is None:
                continue
            seen.add(id_)
            names += [f"{BRIEF}{task}" for (task,) in tx.execute(_TASK, (self._workspace, id_))]
            names.append(f"{MEMBER}{id_}")
            todo += _superiors(found.spec)
        limits = self._limits(tx, names)
        return {name: limits.get(name) for name in names if name in limits or name.startswith(MEMBER)} if limits else {}

    def _limits(self, tx: Transaction, names: Sequence[str]) -> _Chain:
        rows = [
            row
            for marks, some in portions(names)
            for row in tx.execute(_LIMITS.format(marks), (self._workspace, *some))
        ]
        return {holder: limits_of(json.loads(body)) for holder, body in rows}

    def _used(self, tx: Transaction, holder: str, span: str) -> Amounts:
        rows = tx.execute(_USED, (self._workspace, holder, span))
        return Amounts(*rows[0]) if rows else Amounts()

    def _debit(self, holder: str, limits: MemberLimits | None) -> _Debit:
        return holder, window("life" if limits is None else limits.period, self._store.clock.now())[0]

    def _share(self, tx: Transaction, chain: Iterable[str]) -> tuple[str, set[_Debit], Amounts] | None:
        """The open share of the lowest holder that has one."""
        names = [f"share {each}" for each in chain]
        rows = {row[0]: row[1:] for row in tx.execute(_SHARES.format(_marks(names)), (self._workspace, *names))}
        for name in names:
            if name in rows:
                debits, *left = rows[name]
                return name, {(one, two) for one, two in json.loads(debits)}, Amounts(*left)
        return None

    def _parts(self, tx: Transaction, chain: _Chain, amounts: Amounts) -> tuple[dict[_Debit, Amounts], str, Amounts]:
        """What is counted for each holder; what is taken of a share that was reserved before is counted for it already.

        Returns:
            Both, the share, and what is left of it.
        """
        found = self._share(tx, chain)
        if found is None:
            return {self._debit(*each): amounts for each in chain.items()}, "", Amounts()
        name, covered, left = found
        taken = Amounts(*map(min, amounts, left))
        parts = {debit: amounts.less(taken) if debit in covered else amounts for debit in _debits(self, chain)}
        return parts, name, left.less(taken)

    def _lacks(self, tx: Transaction, chain: _Chain, amounts: Amounts) -> tuple[str, str] | None:
        """The first holder and kind of which less is left than this; None if there is enough."""
        parts, _, _ = self._parts(tx, chain, amounts)
        for (holder, span), more in parts.items():
            limits = chain[holder]
            if limits is not None:
                for kind, most, had, need in zip(KINDS, limits.most, self._used(tx, holder, span), more, strict=True):
                    if most is not None and need and had + need > most:
                        return holder, kind
        return None

    def _take(
        self, tx: Transaction, id_: str, work: str, member: str, chain: _Chain, amounts: Amounts, *, returned: Amounts
    ) -> None:
        """Count something that is left, and note what of it can be returned."""
        parts, share, left = self._parts(tx, chain, amounts)
        if share:
            tx.execute(_SHARE, (*left[1:], self._workspace, share))
        for debit, more in parts.items():
            self._add(tx, [debit], more)
        at = self._store.clock.now().timestamp()
        debits = canonical_json([*map(list, parts)])
        tx.execute(_RESERVE, (self._workspace, id_, work, member, debits, *returned, at))
        self._fresh = True

    def _add(self, tx: Transaction, debits: Iterable[Sequence[str]], amounts: Amounts) -> None:
        for holder, span in debits:
            key = (self._workspace, holder, span)
            if not tx.execute(_USED, key):
                tx.execute(_OVER, (self._workspace, holder, span))
                tx.execute(_OPEN, key)
            tx.execute(_ADD, (*amounts, *key))

    def _left(self, tx: Transaction, chain: _Chain, own: str) -> Amounts:
        """What is left of the limits of a holder, as far as it is left of those above it."""
        found = list[int]()
        for place in range(len(KINDS)):
            lefts = [
                limits.most[place] - self._used(tx, *self._debit(name, limits))[place]  # type: ignore[operator]
                for name, limits in chain.items()
                if limits is not None and limits.most[place] is not None
            ]
            has = chain[own] is not None and chain[own].most[place] is not None  # type: ignore[union-attr]
            found.append(max(0, min(lefts)) if has and KINDS[place] != "turns" else 0)
        return Amounts(*found)

    def _note_held(
        self, tx: Transaction, work: str, member: str, case: str, refused: tuple[str, str], needs: Amounts
    ) -> None:
        now = self._store.clock.now().timestamp()
        tx.execute(_HOLD, (self._workspace, work, member, case, refused[0], canonical_json([*needs]), now))
        self._fresh = True

    def _state(self, tx: Transaction, holder: str, member: str, limits: MemberLimits | None) -> BudgetState:
        span, until = window("life" if limits is None else limits.period, self._store.clock.now())
        used, reserved = self._used(tx, holder, span), Amounts()
        for debits, *amounts in tx.execute(_RESERVED, (self._workspace,)):
            if [holder, span] in json.loads(debits):
                reserved = Amounts(*map(sum, zip(reserved, amounts, strict=True)))
        return BudgetState(
            holder=holder,
            member=member,
            limits=limits,
            used=used.to_json(),
            reserved=reserved.to_json(),
            until=until,
            share=_share_of(limits, used),
        )

    # --- the gateway --------------------------------------------------------------------------------------------------

    async def waits(self, work: str) -> bool:
        """Whether some work waits for a budget that still lacks what it needs."""
        if not self._store.limited:
            return False

        def look(tx: Transaction) -> bool:
            for member, case, needs in tx.execute(_HELD_ONE, (self._workspace, work)):
                return self._lacks(tx, self._chain(tx, member, case), Amounts(*json.loads(needs))) is not None
            return False

        return await self._store.read(look)

    async def sweep(self) -> None:
        """Return what work still holds that is over without its end having been noted, such as that of ended members.

        What a killed process reserved for calls in the background is no longer shown as reserved after a day.
        """
        if not self._store.limited:
            return

        def work(tx: Transaction) -> None:
            for (id_,) in tx.execute(_WORKS, (self._workspace,)):
                letter = letter_of(tx, self._workspace, id_)
                if letter is None and id_.startswith("event."):
                    continue
                if letter is None or letter.state == "handled":
                    self.close(tx, id_)
            tx.execute(_LEFT, (self._workspace, (self._store.clock.now() - timedelta(days=1)).timestamp()))

        await self._store.database.transact(work)

    async def tell(self) -> None:
        """Tell the superiors of members whose budgets are used to 80 % or reached, once for each window and limit."""
        if not (self._store.limited and self._fresh):
            return
        self._fresh = False

        def work(tx: Transaction) -> list[RoleMessage]:
            reached = self._reached(tx)
            found = list[RoleMessage]()
            for holder, member, body in tx.execute(_ALL_LIMITS, (self._workspace,)):
                state = self._state(tx, holder, member, limits_of(json.loads(body)))
                if state.share * 100 >= TOLD:
                    found.append(self._notice(tx, state))
                if holder in reached:
                    found.append(self._notice(tx, state, reached[holder]))
            return [each for each in found if letter_of(tx, self._workspace, each.id) is None]

        def send(tx: Transaction, messages: Sequence[RoleMessage]) -> None:
            for each in messages:
                if letter_of(tx, self._workspace, each.id) is None:
                    post(tx, self._workspace, each, now=self._store.clock.now())

        if messages := await self._store.read(work):
            await self._store.transact(lambda tx: send(tx, messages))

    def _reached(self, tx: Transaction) -> dict[str, str]:
        """The holders that are reached, each with the work that waits longest for it."""
        found = dict[str, str]()
        for work, member, case, _, needs, _ in tx.execute(_HELD, (self._workspace,)):
            lacks = self._lacks(tx, self._chain(tx, member, case), Amounts(*json.loads(needs)))
            if lacks is not None:
                found.setdefault(lacks[0], work)
        return found

    def _notice(self, tx: Transaction, state: BudgetState, waits: str = "") -> RoleMessage:
        """The message to the one above a holder, the same one in a window until the limits change."""
        limits = state.limits or MemberLimits()
        span, _ = window(limits.period, self._store.clock.now())
        member = one_member(tx, self._workspace, state.member) if state.member else None
        above = [] if member is None else [one_member(tx, self._workspace, each) for each in _superiors(member.spec)]
        told = next((each.id for each in above if each is not None and each.life.status not in _FINAL), USER)
        id_ = f"budget.{digest([state.holder, span, limits.to_json(), waits != ''], length=24)}"
        what = f"is reached, and {waits} waits" if waits else f"is used to {state.share:.0%}"
        text = f"From the system: The budget of {state.holder.strip()} {what}: {state.to_text()}."
        payload = {"budget": state.holder, "remedy": "extend it, end the work that waits, or wait for its next period"}
        return RoleMessage(id=id_, type="notification", from_id=ROOT, to_id=told, content=text, payload=payload)

    # --- model calls --------------------------------------------------------------------------------------------------

    def purse(self, scope: Scope) -> TurnPurse | None:
        """What pays for the model calls of a turn or a call; None if no budget of the workspace has limits."""
        member = member_of(self._workspace, scope.account) if self._store.limited else None
        return None if member is None else TurnPurse(self, scope, member)

    async def reserve(
        self, scope: Scope, member: str, bound: tuple[int, float | None], model: str
    ) -> Callable[[tuple[int, float] | None], Awaitable[None]]:
        """Reserve the most that one model call of a turn can use; see `Purse.reserve`."""
        id_ = new_id("hold")

        def take(tx: Transaction) -> BudgetReached | bool:
            return self._reserve(tx, id_, scope, member, bound, model)

        async def settle(used: tuple[int, float] | None) -> None:
            if taken is True and used is not None:
                await uninterrupted(self._settle(id_, Amounts(0, 1, used[0], in_nano(used[1]))))

        taken, cancelled = await uninterrupted(self._store.database.transact(take))
        if cancelled:
            await settle((0, 0.0))
            raise asyncio.CancelledError
        if isinstance(taken, BudgetReached):
            raise taken
        return settle

    def _reserve(
        self, tx: Transaction, id_: str, scope: Scope, member: str, bound: tuple[int, float | None], model: str
    ) -> BudgetReached | bool:
        """Reserve something for a call; False if no budget counts it. That work must wait is noted."""
        self._lock(tx)
        work, case = self._work(tx, scope, member)
        chain, (tokens, cost) = self._chain(tx, member, case), bound
        if not chain:
            return False
        if cost is None and _in_dollars(chain):
            raise no_price(member, model)
        if conversation_of(scope.thread or "") != scope.thread:
            work = ""  # what runs in the background can end after the turn that it rides on, and returns its own
        most = Amounts(0, 1, tokens, in_nano(cost or 0.0))
        refused = self._lacks(tx, chain, most)
        if refused is not None:
            if work:
                self._note_held(tx, work, member, case, refused, most)
            return _reached(refused, chain)
        self._take(tx, id_, work, member, chain, most, returned=most)
        tx.execute(_LET_GO, (self._workspace, work))
        return True

    async def spend(self, scope: Scope, member: str, tokens: int, model: str) -> None:
        """Count a model call of a turn that is over and was not reserved; see `Purse.spend`."""

        def work(tx: Transaction) -> BudgetReached | None:
            self._lock(tx)
            work, case = self._work(tx, scope, member)
            chain = self._chain(tx, member, case)
            if _in_dollars(chain):
                raise no_price(member, model)
            for debit in _debits(self, chain):
                self._add(tx, [debit], Amounts(0, 1, tokens))
            self._fresh = True
            needs = Amounts(0, 1, 1)
            refused = self._lacks(tx, chain, needs)
            if refused is None:
                return None
            if work and conversation_of(scope.thread or "") == scope.thread:
                self._note_held(tx, work, member, case, refused, needs)
            return _reached(refused, chain)

        reached, _ = await uninterrupted(self._store.database.transact(work))
        if reached is not None:
            raise reached

    async def _settle(self, id_: str, used: Amounts) -> None:
        def work(tx: Transaction) -> None:
            self._lock(tx)
            for _, debits, *bound in tx.execute(_RETURN.format("id"), (self._workspace, id_)):
                self._add(tx, json.loads(debits), used.less(Amounts(*bound)))

        await self._store.database.transact(work)

    def _work(self, tx: Transaction, scope: Scope, member: str) -> tuple[str, str]:
        """The work that a turn is on, and its case; work in the background rides on the turn that began it."""
        thread = conversation_of(scope.thread or "")
        if thread == thread_of(member):
            letter = handled_by(tx, self._workspace, member)
            return ("", "") if letter is None else (letter.message.id, letter.case)
        case = case_of_turn(replace(scope, thread=thread), member, "")
        return case, case


class TurnPurse:
    """Pays for the model calls of one run of a turn of a member.

    Args:
        budgets: The budgets.
        scope: The scope of the turn.
        member: The member.
    """

    def __init__(self, budgets: Budgets, scope: Scope, member: str) -> None:
        self._budgets, self._scope, self._member = budgets, scope, member

    async def reserve(
        self, tokens: int, cost: float | None, *, model: str
    ) -> Callable[[tuple[int, float] | None], Awaitable[None]]:
        """See `core.Purse`."""
        return await self._budgets.reserve(self._scope, self._member, (tokens, cost), model)

    async def spend(self, tokens: int, *, model: str) -> None:
        """See `core.Purse`."""
        await self._budgets.spend(self._scope, self._member, tokens, model)


def no_price(whose: str, model: str) -> BudgetInvalid:
    """The error of a limit in dollars for a model whose calls have no known price."""
    return BudgetInvalid(
        f"there is a limit in dollars for {whose!r}, and the model {model!r} has no known price",
        remedy="use a model with a known price, or limit tokens",
    )


def _superiors(spec: RoleSpec) -> list[str]:
    """The members directly above one: whom it reports to, and its parent."""
    return [*dict.fromkeys(each for each in (spec.reports_to, spec.parent_role_id) if each)]


def _in_dollars(chain: _Chain) -> bool:
    return any(each is not None and each.cost is not None for each in chain.values())


def _debits(budgets: Budgets, chain: _Chain) -> list[_Debit]:
    return [budgets._debit(*each) for each in chain.items()]


def _marks(names: Sequence[str]) -> str:
    return ", ".join("?" * len(names))


def _reached(refused: tuple[str, str], chain: _Chain) -> BudgetReached:
    holder, kind = refused
    limits = chain[holder]
    assert limits is not None
    most = limits.to_json()[kind]
    return BudgetReached(
        f"the budget of {holder!r} is reached: less is left of its {most:g} {kind} than the work needs",
        remedy="extend it with `society.budgets.extend`, end the work, or wait for its next period",
    )


def _share_of(limits: MemberLimits | None, used: Amounts) -> float:
    if limits is None:
        return 0.0
    shares = [1.0 if not most else had / most for most, had in zip(limits.most, used, strict=True) if most is not None]
    return max(shares, default=0.0)
