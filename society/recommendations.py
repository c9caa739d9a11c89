"""The children that members' episodes speak for, until a person or the policy decides about each (A15)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from ..core import Clock, SystemClock, canonical_json
from ..core.checks import check_texts, to_json
from ..storage import Database, Transaction
from .members import read_as
from .workspace import SpawnRecommendation

_OPEN: Final = """SELECT member, body, at FROM wa_recommendation WHERE workspace=? AND member=?
                  ORDER BY at, template, signal"""
_ADD: Final = """INSERT INTO wa_recommendation(workspace, member, template, signal, body, at) VALUES(?, ?, ?, ?, ?, ?)
                 ON CONFLICT DO NOTHING"""
_OF_TEMPLATE: Final = "SELECT body FROM wa_recommendation WHERE workspace=? AND template=?"
_CLOSE: Final = "DELETE FROM wa_recommendation WHERE workspace=? AND member=? AND template=?"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRecommendation:
    """A recommendation that waits for a decision.

    Attributes:
        member: The member that would make the child.
        recommendation: The recommendation, as it was when its signal fired.
        at: When that was.
    """

    member: str
    recommendation: SpawnRecommendation
    at: datetime


class Recommendations:
    """The open recommendations of a workspace's members. One is over once the member has spawned of its template.

    Args:
        database: A database that was opened with the schema `SOCIETY`.
        workspace: The workspace.
        clock: Source of time.
    """

    def __init__(self, database: Database, workspace: str, clock: Clock | None = None) -> None:
        self._database = database
        self._workspace = workspace
        self._clock = clock or SystemClock()

    async def open(self, member: str) -> tuple[OpenRecommendation, ...]:
        """Return the open recommendations of a member, the oldest first."""
        check_texts(member=member)
        rows = await self._database.read(lambda tx: tx.execute(_OPEN, (self._workspace, member)))
        return tuple(
            OpenRecommendation(
                member=id_,
                recommendation=read_as(SpawnRecommendation, json.loads(body)),
                at=datetime.fromtimestamp(at, UTC),
            )
            for id_, body, at in rows
        )

    async def add(self, member: str, found: Iterable[SpawnRecommendation]) -> tuple[OpenRecommendation, ...]:
        """Open recommendations; one that is open stays as it is. Returns all that are open.

        Args:
            member: The member.
            found: The recommendations.
        """
        check_texts(member=member)
        given, now = [*found], self._clock.now().timestamp()

        def work(tx: Transaction) -> None:
            for each in given:
                body = canonical_json(to_json(each))
                tx.execute(_ADD, (self._workspace, member, each.template_id, each.signal_id, body, now))

        if given:
            await self._database.transact(work)
        return await self.open(member)

    async def dismiss(self, member: str, template_id: str) -> None:
        """Close the recommendations of a member for a template. They open again when their signal fires again."""
        check_texts(member=member, template_id=template_id)
        await self._database.transact(lambda tx: close_recommendations(tx, self._workspace, member, template_id))


def untrusted_in(tx: Transaction, workspace: str, template_id: str, params: Collection[str]) -> set[str]:
    """The untrusted content that params of a template come from, if open recommendations suggest them.

    Args:
        tx: The transaction.
        workspace: The workspace.
        template_id: The template.
        params: The values of the params.
    """
    rows = tx.execute(_OF_TEMPLATE, (workspace, template_id))
    found: list[SpawnRecommendation] = [read_as(SpawnRecommendation, json.loads(body)) for (body,) in rows]
    return {mark for each in found if {*each.suggested_params.values()} & {*params} for mark in each.untrusted}


def close_recommendations(tx: Transaction, workspace: str, member: str, template_id: str) -> None:
    """Close the recommendations of a member for a template, in a transaction."""
    tx.execute(_CLOSE, (workspace, member, template_id))
