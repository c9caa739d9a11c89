"""The conversation planner: reply, or say who should do part of the work (D17). It carries nothing out.

What a plan may name is checked by `graphs`, which also tells the planner what was wrong with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..core.errors import OutputInvalid
from ..role_resolution import NO_ROLE, ResolvedRole
from ._adapter import Past
from ._escape import escape_description
from ._pool import PredictorPool
from ._predictor import Listener, ModelCaller, Predictor
from ._prompts import DEFAULT_IDENTITY, REPLY_DEMOS, brief_instructions
from ._signature import CONVERSE, plan_signature, reply_signature
from .media import MEDIA_FIELDS

_PLAN_DEMOS: tuple[Mapping[str, Any], ...] = (
    {
        "message": "Ask gardener how to prune roses.",
        "dispatches": [{"to": "gardener", "request": "How do you prune roses?"}],
        "reply": "I will ask gardener.",
    },
    {
        "message": "Let painter choose a colour for the hall.",
        "dispatches": [{"to": "painter", "request": "Choose a colour for the hall."}],
        "reply": "I will ask painter.",
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RosterEntry:
    """Somebody whom the planner can dispatch to.

    Attributes:
        name: A worker's name or a shape's key.
        description: What it is for.
        params: The JSON Schema of its params, where it takes some of its own.
    """

    name: str
    description: str = ""
    params: Mapping[str, Any] | None = None

    def line(self) -> str:
        """How it is shown to the planner."""
        text = f"- {self.name}: {self.description or 'no description'}"
        if self.params is not None:
            text = f"{text}; params: {json.dumps(self.params, sort_keys=True)}"
        return escape_description(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the planner gave.

    Attributes:
        reply: The answer, or an interim word where there are dispatches.
        dispatches: Each with `to`, `request` and perhaps `params`.
    """

    reply: str
    dispatches: tuple[dict[str, Any], ...] = ()


class Planner:
    """The planner of one agent, built once.

    Args:
        identity: Who the agent is; None is the default identity.
        roster: Whom it can dispatch to.
        plain: Whether the agent's model is the embedded one. A turn may have one of the other kind, for which a planner
            of that kind is built then; optimised programs are not for it.
        prompt: What stands after the identity in its instructions.
    """

    NAME = CONVERSE
    """The name of its Signature, which roles name in `applies_to`."""

    def __init__(
        self, identity: str | None, roster: Sequence[RosterEntry], *, plain: bool, prompt: str | None = None
    ) -> None:
        who = "\n\n".join(filter(None, ((identity or DEFAULT_IDENTITY).strip(), prompt)))
        self._other: Callable[[], Planner] = cache(lambda: Planner(identity, roster, plain=not plain, prompt=prompt))
        self._names = [entry.name for entry in roster]
        self._plain = plain
        lines = "\n".join(entry.line() for entry in roster)
        params = any(entry.params is not None for entry in roster)
        reply = reply_signature(who)
        if plain:
            reply.instructions = brief_instructions(who)
        self._reply = Predictor(reply, demos=REPLY_DEMOS if plain else ())
        self._plan: Predictor | None = None
        self._attached: dict[tuple[Predictor, tuple[str, ...]], Predictor] = {}
        if roster:
            plan = plan_signature(who, lines, params=params, dispatches_first=plain)
            self._plan = Predictor(plan, demos=_PLAN_DEMOS if plain else ())

    @property
    def predictors(self) -> tuple[Predictor, ...]:
        """Its predictors, the fullest last."""
        return (self._reply,) if self._plan is None else (self._reply, self._plan)

    def use(self, pool: PredictorPool) -> None:
        """Take optimised programs over from `pool`."""
        self._reply = pool.get(self._reply.signature)
        self._plan = pool.get(self._plan.signature) if self._plan is not None else None
        self._attached.clear()

    async def __call__(
        self,
        message: str | Mapping[str, Any],
        caller: ModelCaller,
        *,
        role: ResolvedRole = NO_ROLE,
        past: Sequence[Past] = (),
        listener: Listener,
        direct: bool = False,
    ) -> Plan:
        """Plan one round.

        Args:
            message: What the person, or the schedule, says; with attachments a mapping that has those of
                `MEDIA_FIELDS` beside `message`. Without, every byte is as if there were no such fields.
            caller: Model, adapter and options.
            role: The turn's resolved role.
            past: Earlier turns, results of this turn's dispatches, and what was wrong with the last plan.
            listener: Who hears of deltas and tokens.
            direct: Answer now; dispatches are not offered.

        Raises:
            OutputInvalid: The plan cannot be read, or is empty.
            RoleEchoed, HostError: See `Predictor`.
        """
        if caller.plain != self._plain:
            return await self._other()(message, caller, role=role, past=past, listener=listener, direct=direct)
        inputs = {"message": message} if isinstance(message, str) else message
        predictor = self._choose(str(inputs["message"]), direct=direct, past=past)
        fields = tuple(name for name in MEDIA_FIELDS if name in inputs)
        if fields:
            predictor = self._with_media(predictor, fields)
        answer = await predictor(inputs, caller, role=role, past=past, listener=listener)
        given = answer.fields.get("dispatches") or ()
        plan = Plan(
            reply=str(answer.fields["reply"]).strip(),
            dispatches=tuple(item.model_dump(exclude_defaults=True) for item in given),
        )
        if not plan.reply and not plan.dispatches:
            raise OutputInvalid("the plan has neither a reply nor dispatches", remedy="give at least one of them")
        return plan

    def _with_media(self, predictor: Predictor, fields: tuple[str, ...]) -> Predictor:
        if (predictor, fields) not in self._attached:
            self._attached[predictor, fields] = predictor.with_media(fields)
        return self._attached[predictor, fields]

    def _choose(self, message: str, *, direct: bool, past: Sequence[Past]) -> Predictor:
        if self._plan is None or direct:
            return self._reply
        if not self._plain:
            return self._plan
        # The embedded model plans soundly only where the message names somebody, and not with results before it.
        said = message.casefold()
        named = any(re.search(rf"(?<!\w){re.escape(name.casefold())}(?!\w)", said) for name in self._names)
        results = bool(past) and past[-1].kind == "note"
        return self._plan if named and not results else self._reply
