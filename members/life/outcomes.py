"""What members did, what people say of it, and the trust that follows (A8).

The trust of a member is that of its definition, changed by each of its outcomes in their order. It is stored with the
member in the transaction that stores an outcome, and made again from the log when a person rates an old one. Outcomes
that are too old to keep leave their sum, with which a replay begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, get_args

from ...core import Clock, SystemClock, canonical_json, check_id
from ...core.checks import check_choice, check_texts, check_time, to_json
from ...core.errors import InvalidArgument, UnknownEpisode
from ...storage import Database, Row, Time, Transaction
from ..data.roles import Feedback, TrustProfile, change_of, changed_trust
from ..data.rows import read
from .members import Member, members_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of something that a member did.

    Attributes:
        episode_id: The id of its episode.
        role_id: The member.
        capability: What it used.
        succeeded: Whether it succeeded.
        at: When it ended.
        turn_id: The turn in which it was done; empty for none.
        feedback: What a person says of it.

    Raises:
        InvalidArgument: A field is invalid.
    """

    episode_id: str
    role_id: str
    capability: str
    succeeded: bool
    at: datetime
    turn_id: str = ""
    feedback: Feedback | None = None

    def __post_init__(self) -> None:
        for name in ("episode_id", "role_id", "capability"):
            check_id(name, getattr(self, name))
        check_time("at", self.at)
        if not isinstance(self.succeeded, bool):
            raise InvalidArgument("`succeeded` must be true or false", remedy="pass a bool")
        if self.feedback is not None:
            check_choice("feedback", self.feedback, get_args(Feedback))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustChange:
    """What one outcome did to the trust in its member (A8).

    Attributes:
        outcome: The outcome.
        change: By how much it changed the trust in its capability, in hundredths from -1 to 1.
        trust: The trust in the capability after it.
        reason: Why, such as `it succeeded` or `a person said bad`.
        at: When that was: when the episode ended, or when a person rated it.
    """

    outcome: Outcome
    change: float
    trust: float
    reason: str
    at: datetime


class _Stored(Row):
    episode: str
    member: str
    capability: str
    succeeded: bool
    at: Time
    turn: str
    feedback: Feedback | None


_COLUMNS: Final = ", ".join(_Stored.model_fields)
_ONE: Final = f"SELECT {_COLUMNS} FROM wa_outcome WHERE workspace=? AND episode=?"
_OF_TURN: Final = f"SELECT {_COLUMNS} FROM wa_outcome WHERE workspace=? AND turn=? ORDER BY member, place"
_OF_MEMBER: Final = f"SELECT {_COLUMNS} FROM wa_outcome WHERE workspace=? AND member=? ORDER BY place"
_RATED: Final = f"SELECT {_COLUMNS}, rated FROM wa_outcome WHERE workspace=? AND member=? ORDER BY place"
_ADD: Final = f"""INSERT INTO wa_outcome(workspace, {_COLUMNS}, place)
                  SELECT ?, ?, ?, ?, ?, ?, ?, ?, COALESCE(MAX(place), 0) + 1 FROM wa_outcome
                  WHERE workspace=? AND member=?"""
_FOLDED: Final = 500  # outcomes that one transaction puts into their sum
_OLD: Final = "SELECT DISTINCT member FROM wa_outcome WHERE workspace=? AND at < ?"
_FIRST_OLD: Final = f"""SELECT {_COLUMNS}, place FROM wa_outcome AS o WHERE workspace=? AND member=?
                        AND place < COALESCE((SELECT MIN(place) FROM wa_outcome AS y WHERE y.workspace=o.workspace
                                              AND y.member=o.member AND y.at >= ?), {1 << 62})
                        ORDER BY place LIMIT {_FOLDED}"""
_DROP: Final = "DELETE FROM wa_outcome WHERE workspace=? AND member=? AND place <= ?"
_SUMS: Final = "SELECT capability, shift, low, high FROM wa_outcome_sum WHERE workspace=? AND member=?"
_PUT_SUM: Final = """INSERT INTO wa_outcome_sum(workspace, member, capability, shift, low, high)
                     VALUES(?, ?, ?, ?, ?, ?) ON CONFLICT(workspace, member, capability) DO UPDATE
                     SET shift=excluded.shift, low=excluded.low, high=excluded.high"""
_RATE: Final = "UPDATE wa_outcome SET feedback=?, rated=? WHERE workspace=? AND episode=?"
_HOLD: Final = "SELECT id FROM wa_member WHERE workspace=? AND id=?"
_TRUST: Final = "UPDATE wa_member SET trust=? WHERE workspace=? AND id=?"


class Outcomes:
    """The log of what members did.

    Args:
        database: A database that was opened with the schema `SOCIETY`.
        workspace: The workspace.
        clock: Source of time.
    """

    def __init__(self, database: Database, workspace: str, clock: Clock | None = None) -> None:
        self._database = database
        self._workspace = workspace
        self._clock = clock or SystemClock()

    async def list(self, role_id: str) -> tuple[Outcome, ...]:
        """The kept outcomes of a member in their order, the oldest first; none for a member that was removed."""
        check_texts(role_id=role_id)
        given = (self._workspace, role_id)
        rows = await self._database.read(lambda tx: tx.execute(_OF_MEMBER, given))
        return tuple(_outcome(row) for row in rows)

    async def changes(self, role_id: str) -> tuple[TrustChange, ...]:
        """What each kept outcome of a member did to the trust in it, in their order, the oldest first.

        A rating counts at the place of its episode, so it also changes the trust after later ones.
        """
        check_texts(role_id=role_id)

        def work(tx: Transaction) -> tuple[TrustChange, ...]:
            found = members_of(tx, self._workspace, [role_id]).get(role_id)
            if found is None:
                return ()
            rows = tx.execute(_RATED, (self._workspace, role_id))
            return tuple(_changes(replayed(found, (), sums_of(tx, found)), rows))

        return await self._database.read(work)

    async def record(self, outcome: Outcome) -> bool:
        """Add an outcome, and change the trust of its member; False if it is there already, or its member is removed.

        Args:
            outcome: The outcome.
        """
        return await self._database.transact(lambda tx: record_outcome(tx, self._workspace, outcome))

    async def rate(self, episode_id: str, feedback: Feedback | None) -> TrustProfile:
        """Store what a person says of an episode, in place of any earlier feedback, and compute the trust again.

        What a person says counts instead of the outcome: good, although it failed, is good.

        Args:
            episode_id: The episode.
            feedback: `"good"` or `"bad"`; None takes earlier feedback back.

        Returns:
            The trust of the member after it.

        Raises:
            UnknownEpisode: The workspace has no outcome of this episode.
            InvalidArgument: `feedback` is not known.
        """
        check_texts(episode_id=episode_id)
        _check_feedback(feedback)

        def work(tx: Transaction) -> TrustProfile | None:
            rows = tx.execute(_ONE, (self._workspace, episode_id))
            return self._rated(tx, [_outcome(row) for row in rows], feedback)

        trust = await self._database.transact(work)
        if trust is None:
            raise UnknownEpisode(
                f"the workspace {self._workspace!r} has no episode {str(episode_id)[:60]!r}",
                remedy="list the outcomes of a member for the ids of its episodes; old ones are no longer kept",
            )
        return trust

    async def rate_turn(self, turn_id: str, feedback: Feedback | None) -> int:
        """Store what a person says of a turn for all episodes of it; returns how many there are.

        Raises:
            InvalidArgument: `feedback` is not known.
        """
        check_texts(turn_id=turn_id)
        _check_feedback(feedback)

        def work(tx: Transaction) -> int:
            found = [_outcome(row) for row in tx.execute(_OF_TURN, (self._workspace, turn_id))]
            self._rated(tx, found, feedback)
            return len(found)

        return await self._database.transact(work)

    def _rated(self, tx: Transaction, rated: Sequence[Outcome], feedback: Feedback | None) -> TrustProfile | None:
        trust, now = None, self._clock.now().timestamp()
        for role_id in sorted({each.role_id for each in rated}):
            tx.hold(_HOLD, (self._workspace, role_id), alone=True)
            for each in (each for each in rated if each.feedback != feedback):  # said again it keeps its time
                tx.execute(_RATE, (feedback, now, self._workspace, each.episode_id))
            member = members_of(tx, self._workspace, [role_id])[role_id]
            trust = replayed(member, outcomes_of(tx, member), sums_of(tx, member))
            _write_trust(tx, member, trust)
        return trust


def record_outcome(tx: Transaction, workspace: str, outcome: Outcome) -> bool:
    """Add an outcome in a transaction, and change the trust of its member.

    Returns:
        False if the episode has an outcome already, or its member is removed; then nothing changes.
    """
    held = tx.hold(_HOLD, (workspace, outcome.role_id), alone=True)
    if not held or tx.execute(_ONE, (workspace, outcome.episode_id)):
        return False
    member = members_of(tx, workspace, [outcome.role_id])[outcome.role_id]
    given = (outcome.episode_id, member.id, outcome.capability, int(outcome.succeeded), outcome.at.timestamp())
    tx.execute(_ADD, (workspace, *given, outcome.turn_id, outcome.feedback, workspace, member.id))
    _write_trust(tx, member, _after(member.trust, outcome))
    return True


def outcomes_of(tx: Transaction, member: Member) -> list[Outcome]:
    """The outcomes of a member in their order, in a transaction."""
    return [_outcome(row) for row in tx.execute(_OF_MEMBER, (member.spec.workspace, member.id))]


@dataclass(frozen=True, slots=True)
class Sum:
    """What a number of outcomes in a row did to the trust in one capability, whatever that was before.

    Attributes:
        shift: By how many hundredths they changed it together.
        low: The least that it is after them, in hundredths.
        high: The most.
    """

    shift: int = 0
    low: int = 0
    high: int = 100

    def then(self, change: int) -> Sum:
        """The sum with one more outcome, which changes the trust by some hundredths."""
        return Sum(self.shift + change, _bounded(self.low + change), _bounded(self.high + change))

    def after(self, trust: float) -> float:
        """The trust after these outcomes."""
        return min(self.high, max(self.low, round(trust * 100) + self.shift)) / 100


def _bounded(hundredths: int) -> int:
    return min(100, max(0, hundredths))


def sums_of(tx: Transaction, member: Member) -> dict[str, Sum]:
    """What the outcomes of a member that are no longer kept did to its trust, by capability, in a transaction."""
    rows = tx.execute(_SUMS, (member.spec.workspace, member.id))
    return {str(capability): Sum(*map(int, numbers)) for capability, *numbers in rows}


def members_with_old(tx: Transaction, workspace: str, before: float) -> list[str]:
    """The members with an outcome from before a time, in a transaction."""
    return [str(member) for (member,) in tx.execute(_OLD, (workspace, before))]


def fold_outcomes(tx: Transaction, workspace: str, role_id: str, before: float) -> int:
    """Put the first outcomes of a member into their sum, in a transaction: those before the first one to keep.

    Args:
        tx: The transaction.
        workspace: The workspace.
        role_id: The member.
        before: Outcomes from this time on are kept.

    Returns:
        How many are gone.
    """
    found = members_of(tx, workspace, [role_id]) if tx.hold(_HOLD, (workspace, role_id), alone=True) else {}
    rows = tx.execute(_FIRST_OLD, (workspace, role_id, before)) if found else []
    if not rows:
        return 0
    sums = sums_of(tx, found[role_id])
    for row in rows:
        outcome = _outcome(row[:-1])
        change = change_of(outcome.succeeded, outcome.feedback)
        if change:
            sums[outcome.capability] = sums.get(outcome.capability, Sum()).then(change)
    for capability, each in sums.items():
        tx.execute(_PUT_SUM, (workspace, role_id, capability, each.shift, each.low, each.high))
    tx.execute(_DROP, (workspace, role_id, rows[-1][-1]))
    return len(rows)


def replayed(member: Member, outcomes: Sequence[Outcome], sums: Mapping[str, Sum] | None = None) -> TrustProfile:
    """The trust of a member, computed again from its definition and its outcomes in their order.

    Args:
        member: The member.
        outcomes: All of its outcomes that are kept, the oldest first.
        sums: What those before them did, by capability.
    """
    scores = {} if member.spec.trust is None else member.spec.trust.scores
    trust = TrustProfile(scores=scores, default=member.trust.default)  # outcomes never change the default
    earlier = {capability: each.after(trust.trust_for(capability)) for capability, each in (sums or {}).items()}
    trust = replace(trust, scores={**trust.scores, **earlier})
    for outcome in outcomes:
        trust = _after(trust, outcome)
    return trust


def _after(trust: TrustProfile, outcome: Outcome) -> TrustProfile:
    return changed_trust(trust, outcome.capability, outcome.succeeded, outcome.feedback)


def _changes(trust: TrustProfile, rows: Iterable[Sequence[Any]]) -> Iterator[TrustChange]:
    """What some outcomes did to a trust, each row with the time of its rating."""
    for *row, rated in rows:
        outcome, before = _outcome(row), trust
        trust = _after(trust, outcome)
        now = trust.trust_for(outcome.capability)
        reason = "it succeeded" if outcome.succeeded else "it failed"
        yield TrustChange(
            outcome=outcome,
            change=round(now - before.trust_for(outcome.capability), 2),
            trust=now,
            reason=reason if outcome.feedback is None else f"a person said {outcome.feedback}",
            at=outcome.at if outcome.feedback is None or rated is None else datetime.fromtimestamp(rated, UTC),
        )


def _write_trust(tx: Transaction, member: Member, trust: TrustProfile) -> None:
    tx.execute(_TRUST, (canonical_json(to_json(trust)), member.spec.workspace, member.id))


def _check_feedback(feedback: object) -> None:
    if feedback is not None:
        check_choice("feedback", feedback, get_args(Feedback))


def _outcome(row: Sequence[Any]) -> Outcome:
    kept = read(_Stored, row, f"the outcome of {row[0]!r}")
    given = kept.model_dump(exclude={"episode", "member", "turn"})
    return Outcome(episode_id=kept.episode, role_id=kept.member, turn_id=kept.turn, **given)
