"""The form of a call to a service that can refuse tools or a schema: native or in words.

The module remembers what a service accepts.

`adapter` writes the forms, and `refuses_form` decides which errors can refuse one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal

from ..core import digest
from ..core.errors import WorldAgentError
from ..core.files import packaged_table
from .adapter import PastStep, StepMade
from .calling import ToolsOfStep
from .engines.classification import ToolsRefused
from .engines.connect import ModelConnection
from .engines.sending import without_constraints

_LOG = logging.getLogger("worldagent.models")

_ROUNDS: Final = 16
"""How often tools are left out of one call: some services name one of those that they refuse at a time."""
_SHOWN: Final = 20

Tools = Literal["native", "steps_in_words", "words"]
"""How tools and previous steps are sent: both natively, only the steps in words, or both in words."""


@dataclass(frozen=True, slots=True)
class Form:
    """One form of a call.

    Attributes:
        tools: How tools and previous steps are sent, if there are any.
        schema: Whether the service is asked to hold the answer to its schema.
    """

    tools: Tools
    schema: bool = False


class Forms:
    """The forms that one call can have, best first.

    The next form is used if a service could have refused the current one.

    Args:
        connection: The model; new findings are stored in its `learned`.
        tools: The setting `model_tools`.
        offered: The tools.
        user_follows: Whether a user message would come directly after results of tools.
        schema: The schema of the answer that the service can be asked to hold it to; None is none.
    """

    def __init__(
        self,
        connection: ModelConnection,
        *,
        tools: str,
        offered: Sequence[Mapping[str, Any]],
        user_follows: bool,
        schema: str | None,
    ) -> None:
        self._connection, self._setting, self._user_follows = connection, tools, user_follows
        self._offered, self._schema, self._most = offered, schema, connection.learned.most
        self._refused: frozenset[str] = frozenset()
        self._limited = bool(connection.learned.left_out) or self._most is not None  # whether tools can be left out
        self._left_out, self._wrote, self._grammars = 0, False, connection.learned.grammars
        self._left: list[Form] = self._possible()
        self.first: WorldAgentError | None = None
        """The error with which the first form was refused."""

    @property
    def now(self) -> Form:
        """The current form."""
        return self._left[0]

    @property
    def reads_calls(self) -> bool:
        """Whether a call in the text is not taken for one that the service did not read."""
        return self._setting != "auto" or self._connection.learned.reads or self.now.tools == "words"

    @property
    def native_tools(self) -> Sequence[Mapping[str, Any]]:
        """The tools as they are sent natively: those that the service is not known to refuse."""
        if not self._limited and self._grammars:
            return self._offered
        return self._kept if self._grammars else [_without_constraints(tool) for tool in self._kept]

    @property
    def _kept(self) -> Sequence[Mapping[str, Any]]:
        refused, most = self._connection.learned.left_out | self._refused, self._most
        tools = [tool for tool in self._offered if _key(tool) not in refused] if refused else self._offered
        if most is None or len(tools) <= most:
            return tools
        # Those that the model has searched for are the last ones, and the ones that it needs.
        found = len(self._offered.found) if isinstance(self._offered, ToolsOfStep) else 0
        last = min(found, most)
        return [*tools[: most - last], *tools[len(tools) - last :]]

    def refused_tools(self, refused: ToolsRefused) -> bool:
        """Leave out the tools that a service has refused. Return whether there is another request to send."""
        if refused.grammar:
            if self.now.schema or not self._grammars:  # the schema of the answer can be the reason, and goes first
                return False
            self._grammars = False
            return True
        sent = self._kept
        self._refused |= {_key(sent[place]) for place in refused.places}
        self._most = refused.most or self._most
        self._left_out, self._limited = self._left_out + 1, True
        if not self._kept:
            self._left = self._possible()
        return self._left_out <= _ROUNDS and bool(self._kept or self.now.tools == "words")

    def wrote_call(self) -> bool:
        """Offer the tools in words, because a call stands in the text. Return whether that can help."""
        if self.reads_calls:
            return False
        self._left, self._wrote = [Form("words")], True
        return True

    def refused(self, error: WorldAgentError) -> bool:
        """Move to the next form after a refusal. Return whether there is one."""
        if len(self._left) == 1:
            return False
        self.first = self.first or error
        del self._left[0]
        return True

    def restart(self) -> None:
        """Return to the first form: the service refuses the last one too, so the form was not the reason."""
        self._left = self._possible()

    def taken(self, *, calls: bool = False) -> None:
        """Remember that the service accepted the current form, and so refused the earlier ones.

        The first finding about tools is final.

        Args:
            calls: Whether the answer has calls.
        """
        form = self._left[0]
        if self._schema is not None and (form.schema or self._without_schema()):
            self._connection.learned.found(self._schema, beside_tools=bool(self._offered), accepted=form.schema)
            if not form.schema:
                self._warn("no_schema")
        if self._offered:
            self._taken_tools(form.tools, calls=calls)

    def _without_schema(self) -> bool:
        """Whether the current form is the first one but for its schema, which was the reason then."""
        possible = self._possible()
        return self.first is not None and possible[:2] == [Form(self.now.tools, schema=True), self.now]

    def _taken_tools(self, form: Tools, *, calls: bool) -> None:
        known = self._connection.learned
        if self._wrote:
            self._remember_written(calls=calls)
            return
        known.reads = known.reads or (calls and form != "words")
        none_fits = form == "words" and self._limited and self._none_fits()
        if self._limited and (form != "words" or none_fits):
            known.left_out |= self._refused
            known.most = self._most if self._left_out else known.most
            self._name_left_out()
        if form != "words" and known.grammars and not self._grammars:
            known.grammars = False
            self._warn("no_grammar")
        if none_fits:
            return
        if known.takes_tools is None:
            known.takes_tools = form != "words"
            if form == "words" and self.first is not None:
                self._warn("no_tools")
        if known.then_user is None and form != "words" and self._user_follows:
            known.then_user = form == "native"
            if form == "steps_in_words":
                self._warn("no_user_after_results")

    def _warn(self, what: str, **more: object) -> None:
        """Log what was learned of the service; the texts are in `failures.toml`."""
        status = getattr(self.first, "status", None)
        why = "unsupported" if status is None else f"HTTP {status}"
        given = {"model": self._connection.name, "why": why, **more}
        _LOG.warning(packaged_table(f"{__package__}.engines", "failures.toml")["learned"][what], given)

    def _remember_written(self, *, calls: bool) -> None:
        """Remember that the service does not read calls, if the model calls tools in words. It can have quoted one."""
        known = self._connection.learned
        if calls and known.takes_tools is not False and not known.reads:
            known.takes_tools = False
            self._warn("call_in_text")

    def _name_left_out(self) -> None:
        """Warn of tools that are not offered, once of each."""
        known = self._connection.learned
        sent = {each["function"]["name"] for each in self._kept}
        left = {_key(each): each for each in self._offered if each["function"]["name"] not in sent}
        news = [each["function"]["name"] for key, each in left.items() if key not in known.named]
        known.named |= left.keys()
        if news:
            too_many = known.most is not None and len(sent) == known.most
            self._warn("too_many_tools" if too_many else "tools_left_out", most=known.most, tools=_shown(news))

    def _none_fits(self) -> bool:
        """Whether there are tools, and the service refuses them all."""
        return bool(self._offered) and not self._kept

    def _possible(self) -> list[Form]:
        forms = self._possible_tools()
        schema = self._schema
        if schema is None or forms[0] == "words":
            return [Form(each) for each in forms]
        asked = self._connection.learned.enforces(schema, beside_tools=bool(self._offered))
        return [*([Form(forms[0], schema=True)] if asked else []), *(Form(each) for each in forms)]

    def _possible_tools(self) -> list[Tools]:
        if not self._offered:
            return ["native"]
        known = self._connection.learned
        if self._setting == "json" or (
            self._setting == "auto" and (known.takes_tools is False or (self._limited and self._none_fits()))
        ):
            return ["words"]
        forms: list[Tools] = []
        if not self._user_follows or known.then_user is not False:
            forms.append("native")
        if self._user_follows and known.then_user is not True:
            forms.append("steps_in_words")
        if self._setting == "auto" and known.takes_tools is None:
            forms.append("words")
        return forms


def _without_constraints(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = tool["function"]
    return {**tool, "function": {**function, "parameters": without_constraints(function["parameters"])}}


def _key(tool: Mapping[str, Any]) -> str:
    """What a tool is known by that a service refused: another agent can have another one with the same name."""
    return digest(tool["function"])


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more


def user_follows(steps: Sequence[PastStep], *, role: bool) -> bool:
    """Whether results that are sent natively would come directly before a user message.

    Args:
        steps: The previous steps. Those in words are user messages.
        role: Whether the call ends with a role, which is a user message too.
    """
    native = [isinstance(step, StepMade) and step.message is not None for step in steps]
    return any(results and not more for results, more in pairwise([*native, not role]))
