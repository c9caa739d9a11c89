"""What members did, what people say of it, and the trust that follows (A8).

The trust of a member is that of its definition, changed by each of its outcomes in their order. It is stored with the
member in the transaction that stores an outcome, and made again from the log when a person rates an old one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, get_args

from ..core import canonical_json, check_id
from ..core.checks import check_choice, check_texts, check_time, to_json
from ..core.errors import InvalidArgument, UnknownEpisode
from ..storage import Database, Moment, Row, Transaction, read_row
from .members import Member, members_of
from .roles import Feedback, TrustProfile, changed_trust


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


class _Stored(Row):
    episode: str
    member: str
    capability: str
    succeeded: int
    at: Moment
    turn: str
    feedback: Feedback | None


_COLUMNS: Final = "episode, member, capability, succeeded, at, turn, feedback"
_ONE: Final = f"SELECT {_COLUMNS} FROM wa_outcome WHERE workspace=? AND episode=?"
_OF_TURN: Final = f"SELECT {_COLUMNS} FROM wa_outcome WHERE workspace=? AND turn=? ORDER BY member, place"
_OF_MEMBER: Final = f"SELECT {_COLUMNS} FROM wa_outcome WHERE workspace=? AND member=? ORDER BY place"
_ADD: Final = f"""INSERT INTO wa_outcome(workspace, {_COLUMNS}, place)
                  SELECT ?, ?, ?, ?, ?, ?, ?, ?, COALESCE(MAX(place), 0) + 1 FROM wa_outcome
                  WHERE workspace=? AND member=?"""
_RATE: Final = "UPDATE wa_outcome SET feedback=? WHERE workspace=? AND episode=?"
_HOLD: Final = "SELECT id FROM wa_member WHERE workspace=? AND id=?"
_TRUST: Final = "UPDATE wa_member SET trust=? WHERE workspace=? AND id=?"


class Outcomes:
    """The log of what members did, in a database that was opened with the schema `SOCIETY`.

    Args:
        database: The database.
        workspace: The workspace.
    """

    def __init__(self, database: Database, workspace: str) -> None:
        self._database = database
        self._workspace = workspace

    async def list(self, role_id: str) -> tuple[Outcome, ...]:
        """The outcomes of a member in their order, the oldest first; none for a member that was removed."""
        check_texts(role_id=role_id)
        given = (self._workspace, role_id)
        rows = await self._database.read(lambda tx: tx.execute(_OF_MEMBER, given))
        return tuple(_outcome(row) for row in rows)

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
                remedy="list the outcomes of a member for the ids of its episodes",
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
        trust = None
        for role_id in sorted({each.role_id for each in rated}):
            tx.hold(_HOLD, (self._workspace, role_id), alone=True)
            for each in rated:
                tx.execute(_RATE, (feedback, self._workspace, each.episode_id))
            member = members_of(tx, self._workspace, [role_id])[role_id]
            trust = replayed(member, outcomes_of(tx, member))
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


def replayed(member: Member, outcomes: Sequence[Outcome]) -> TrustProfile:
    """The trust of a member, computed again from its definition and its outcomes in their order.

    Args:
        member: The member.
        outcomes: All of its outcomes, the oldest first.
    """
    scores = {} if member.spec.trust is None else member.spec.trust.scores
    trust = TrustProfile(scores=scores, default=member.trust.default)  # outcomes never change the default
    for outcome in outcomes:
        trust = _after(trust, outcome)
    return trust


def _after(trust: TrustProfile, outcome: Outcome) -> TrustProfile:
    return changed_trust(trust, outcome.capability, outcome.succeeded, outcome.feedback)


def _write_trust(tx: Transaction, member: Member, trust: TrustProfile) -> None:
    tx.execute(_TRUST, (canonical_json(to_json(trust)), member.spec.workspace, member.id))


def _check_feedback(feedback: object) -> None:
    if feedback is not None:
        check_choice("feedback", feedback, get_args(Feedback))


def _outcome(row: Sequence[Any]) -> Outcome:
    kept = read_row(_Stored, row, what=f"the outcome of {row[0]!r}", database="the society")
    return Outcome(
        episode_id=kept["episode"],
        role_id=kept["member"],
        capability=kept["capability"],
        succeeded=bool(kept["succeeded"]),
        at=datetime.fromtimestamp(kept["at"], UTC),
        turn_id=kept["turn"],
        feedback=kept["feedback"],
    )


__all__ = ["Outcome", "Outcomes", "outcomes_of", "record_outcome", "replayed"]
