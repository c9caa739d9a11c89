"""How one call is put to a service that may refuse tools: by its own means, or in words; what it takes is remembered.

Not here: how a form is written (`adapter`), and which errors may refuse one (`refuses_form`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from ..core.errors import WorldAgentError
from .adapter import PastStep, StepMade
from .engines import ModelConnection

_LOG = logging.getLogger("worldagent.models")

Form = Literal["native", "told", "words"]
"""How tools and the steps before are sent: both by the service's own means, the steps in words, or both in words."""


class Forms:
    """The forms that one call can have, best first. The next one is for where a service may have refused the form.

    Args:
        connection: The model; what is found out is written to its `tools`.
        tools: The setting `model_tools`.
        user_follows: Whether a message of a user would come right after results of tools.
    """

    def __init__(self, connection: ModelConnection, *, tools: str, user_follows: bool) -> None:
        self._connection, self._setting, self._user_follows = connection, tools, user_follows
        self._left = self._possible()
        self.first: WorldAgentError | None = None
        """Why the first form was refused."""

    @property
    def now(self) -> Form:
        """The form to ask in."""
        return self._left[0]

    def refused(self, error: WorldAgentError) -> bool:
        """Go on to the next form after a refusal; whether there is one."""
        if len(self._left) == 1:
            return False
        self.first = self.first or error
        del self._left[0]
        return True

    def restart(self) -> None:
        """Begin with the first form again: the service refuses the last one, too, so the form was not what it minds."""
        self._left = self._possible()

    def taken(self) -> None:
        """Remember that the service took the form of now, and so refused those before it. The first finding stands."""
        known, form, name = self._connection.tools, self.now, self._connection.name
        status = getattr(self.first, "status", None)
        why = "unsupported" if status is None else f"HTTP {status}"
        if known.known is None:
            known.known = form != "words"
            if form == "words" and self.first is not None:
                _LOG.warning(
                    "the model %r refused tools (%s) and took the same request in words; until this process ends it is "
                    "offered tools in words; set model_tools to 'native' or 'json' to settle it",
                    *(name, why),
                )
        if known.then_user is None and form != "words" and self._user_follows:
            known.then_user = form == "native"
            if form == "told":
                _LOG.warning(
                    "the model %r refused a user's message after results of tools (%s) and took the same results in "
                    "words; until this process ends it gets them so; nothing needs to be done",
                    *(name, why),
                )

    def _possible(self) -> list[Form]:
        known = self._connection.tools
        if self._setting == "json" or (self._setting == "auto" and known.known is False):
            return ["words"]
        forms: list[Form] = []
        if not self._user_follows or known.then_user is not False:
            forms.append("native")
        if self._user_follows and known.then_user is not True:
            forms.append("told")
        if self._setting == "auto" and known.known is None:
            forms.append("words")
        return forms


def user_follows(steps: Sequence[PastStep], *, role: bool) -> bool:
    """Whether results that are sent by the service's own means would come right before a message of a user.

    Args:
        steps: The steps before. Those in words are messages of a user.
        role: Whether the call ends in a role, which is one, too.
    """
    native = [isinstance(step, StepMade) and step.message is not None for step in steps]
    return any(results and not more for results, more in pairwise([*native, not role]))


__all__ = ["Form", "Forms", "user_follows"]
