"""The tools that a conversation or a worker can call, and the checks of a model's answer before anything is done."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from pydantic import TypeAdapter

from ...core import canonical_json
from ...core.errors import ParamsInvalid, ResultInvalid
from ...core.validation import json_of_value, read_model, read_value
from ...harness import CONVERSATION, Function, Registry, ServiceTool, Worker
from ...harness.function import READ_ONLY
from ...harness.gate import Policy, is_like
from ...harness.handles import with_handles
from ...harness.registry import GLOB
from ...harness.worker import REQUEST, TEXT, WorkerRequest, gives_text, takes_text
from ...signatures import Offer, OfferedTools, Signature, Thought, worker_signature
from ...signatures.calling import FIND_TOOLS, TOOLS
from ...signatures.converse import checked_outputs
from ..shape import SUBAGENT
from .finding import FINDING, ToolSearch, finder_of
from .reading import ASKING

MAX_CALLS: Final = 16
"""The limit of calls that a model can request in one step."""

WARN_ABOVE_TOOLS: Final = 100  # from this number of tools on, a warning states their cost
CHARACTERS_PER_TOKEN: Final = 4  # characters of a token, an estimate
_SHOWN: Final = 80
_NAMESPACE: Final = re.compile(r"^(functions?|default_api|tools?)[.:/_]", re.IGNORECASE)
"""What models write before names because their services describe tools so to them."""
_LOG = logging.getLogger("worldagent.tools")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tools:
    """The tools of one conversation or worker.

    Attributes:
        signature: The entry Signature.
        functions: The functions that can be called, by name.
        offered: The same functions as models see them.
        searched: The names of those that are offered only once they are found.
        result: The type that the answer must have.
        as_said: Whether the answer is stored as the model gave it, because not every type reads its own JSON.
        outputs: The types of an answer's further outputs, by name.
        services: Tools of the model's service. The model cannot call them here.
        variant: That of the worker of the member that speaks; None if the conversation was handed to none.
    """

    signature: Signature
    functions: Mapping[str, Function] = field(default_factory=dict)
    offered: OfferedTools = field(default_factory=OfferedTools)
    searched: frozenset[str] = frozenset()
    result: TypeAdapter[Any] = field(default=TEXT)
    as_said: bool = False
    outputs: Mapping[str, TypeAdapter[Any]] = field(default_factory=dict)
    services: Sequence[ServiceTool] = ()
    variant: str | None = None

    @classmethod
    def of_conversation(
        cls,
        signature: Signature,
        registry: Registry,
        policy: Policy,
        search: ToolSearch | None = None,
        speaker: Worker | None = None,
    ) -> Tools:
        """All offered functions, in a fixed order, without those that the policy always refuses.

        A warning is logged if they are many and none of them are searched.

        Args:
            signature: The entry Signature.
            registry: What there is.
            policy: The policy of the agent.
            search: When tools are searched.
            speaker: The worker of the member that speaks, which is offered no other functions than its own.
        """
        functions = sorted(
            (each for each in registry.offered.values() if policy.could_allow(each.name, each.risk, CONVERSATION)),
            key=lambda each: each.name,
        )
        if speaker is not None:
            own = {each.name for each in callable_by(speaker, registry)}
            functions = [each for each in functions if each.name in own]
        if not policy.could_allow(FIND_TOOLS, READ_ONLY, CONVERSATION):
            search = None
        functions, services = _divided(functions)
        if speaker is not None:
            of_member = cls(signature=signature, services=services, variant=speaker.variant)
            return of_member._with(functions, search, descriptions=speaker.descriptions)
        tools = cls(signature=signature, services=services)._with(functions, search)
        if len(functions) > WARN_ABOVE_TOOLS and not tools.searched:
            offered = tools.offered
            tokens = len(canonical_json(dict(offered.inputs))) // CHARACTERS_PER_TOKEN
            _LOG.warning(
                "the conversation is offered %d tools, about %s tokens in every request; offer fewer with a profile's "
                "tools or offered=False, or let the setting find_tools_above hide them",
                len(functions),
                f"{tokens:,}",
            )
        return tools

    @classmethod
    def of_worker(
        cls,
        worker: Worker,
        functions: Sequence[Function],
        *,
        memory: bool = False,
        search: ToolSearch | None = None,
    ) -> Tools:
        """The tools of a worker.

        Args:
            worker: The worker.
            functions: What it can call.
            memory: Whether it is shown memory entries.
            search: When tools are searched.

        Raises:
            FunctionInvalid: An input of the worker has the name of an output.
        """
        own = worker.function
        functions, services = _divided(functions)
        signature = worker_signature(
            worker.name,
            worker.instructions,
            fields=None if worker.prompt or own.params is WorkerRequest else own.input_schema.get("properties", {}),
            output=None if gives_text(own) else own.output_schema,
            tools=bool(functions),
            memory=memory,
            about_role=worker.about_role,
            about_result=worker.about_result,
        )
        tools = cls(signature=signature, result=worker.result, services=services)
        return tools._with(functions, search, descriptions=worker.descriptions)

    def _with(
        self, functions: Sequence[Function], search: ToolSearch | None, *, descriptions: Mapping[str, str] | None = None
    ) -> Tools:
        """These tools with functions, of which some are searched if they are many."""
        described = functions
        if descriptions:
            described = [replace(each, description=descriptions.get(each.name, each.description)) for each in functions]
        always, searched = (described, ()) if search is None else search.divided(described)
        own = {each.name: each for each in functions}
        offers = [*map(_offer, always), *map(_offer, searched)]
        if not searched:
            return replace(self, functions=own, offered=OfferedTools.of(offers))
        wire = OfferedTools.of([_offer(FINDING), *offers]).names
        finder = finder_of(searched, {name: shown for shown, name in wire.items()})
        return replace(
            self,
            functions={FIND_TOOLS: finder, **own},
            offered=OfferedTools.of([_offer(finder), *offers], always=1 + len(always)),
            searched=frozenset(each.name for each in searched),
        )

    def guarded(self) -> Tools:
        """The same tools for a guarded model: arguments can be handles, and no tool of the service is offered."""
        return _guarded(self)

    def inputs(self, made: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Mapping[str, Any]:
        """The input fields that offer them at the next step of a turn.

        Args:
            made: The calls of the steps before it, with their outcomes. A tool is offered once it was found or called.
        """
        found: dict[str, None] = {}
        for call, outcome in made:
            names = [call["tool"]]
            if call["tool"] == FIND_TOOLS:
                names = [self.offered.names.get(each["name"], "") for each in outcome.get("value", ())]
            found |= dict.fromkeys(name for name in names if name in self.searched)
        return self.offered.with_found(found)

    def checked(self, thought: Thought, later: Collection[int] = ()) -> dict[str, Any]:
        """The answer of a model in stored form: its calls with any text, its result and outputs, or a fault.

        Args:
            thought: The answer.
            later: The places of calls whose arguments are checked when they are made.
        """
        if not thought.calls:
            result = self._result(thought.answer)
            return self._with_outputs(result, thought.outputs) if self.outputs and "fault" not in result else result
        thought = replace(thought, calls=tuple((self._known(name), given) for name, given in thought.calls))
        fault = self._fault(thought.calls, later)
        if fault:
            return {"fault": fault}
        said: dict[str, Any] = {"calls": [{"tool": name, "arguments": arguments} for name, arguments in thought.calls]}
        if isinstance(thought.answer, str) and thought.answer.strip():
            said["text"] = thought.answer.strip()
        return said

    def _known(self, name: str) -> str:
        """The tool that a model means by a name with a known namespace before it, or in other case."""
        if name in self.functions:
            return name
        own = _NAMESPACE.sub("", name.strip()).casefold()
        alike = [each for each in self.functions if each.casefold() == own]
        return alike[0] if len(alike) == 1 else name

    def _with_outputs(self, said: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return {**said, "outputs": checked_outputs(self.outputs, given)}
        except ResultInvalid as error:
            return {"fault": error.problem}

    def _fault(self, calls: Sequence[tuple[str, dict[str, Any]]], later: Collection[int]) -> str:
        if len(calls) > MAX_CALLS:
            return f"it has {len(calls)} calls, and at most {MAX_CALLS} are made at once"
        for place, (name, arguments) in enumerate(calls):
            function = self.functions.get(name)
            if function is None:
                there = f"the tools are: {', '.join(self.functions)}" if self.functions else "there are no tools"
                if self.searched:
                    there = f"look it up with {FIND_TOOLS!r}"
                return f"there is no tool {name[:_SHOWN]!r}; {there}"
            if place in later:
                continue
            try:
                read_model(function.params, arguments, what=f"arguments of {name!r}", error=ParamsInvalid)
            except ParamsInvalid as error:
                return error.problem
        return ""

    def _result(self, given: Any) -> dict[str, Any]:
        if self.result is TEXT:
            text = given.strip() if isinstance(given, str) else ""
            empty = "it has neither calls nor an answer" if self.functions else "the answer is empty"
            return {"result": text} if text else {"fault": empty}
        what = "the result"
        try:
            value = read_value(self.result, given, what=what, error=ResultInvalid)
            if self.as_said:
                return {"result": json.loads(canonical_json(given))}
            return {"result": json_of_value(self.result, value, what=what, error=ResultInvalid)}
        except ResultInvalid as error:
            return {"fault": error.problem}


@lru_cache(maxsize=256)
def _guarded(tools: Tools) -> Tools:
    offered = tools.offered.with_params(with_handles)
    if ASKING.name in tools.functions:  # the reader is asked in arguments alone
        return replace(tools, offered=offered, services=())
    if not tools.searched:  # as above
        asking = OfferedTools.of([_offer(ASKING)]).inputs[TOOLS]
        inputs = {TOOLS: (*offered.inputs[TOOLS], *asking)}
        offered = replace(offered, inputs=inputs, names={**offered.names, ASKING.name: ASKING.name})
    functions = {**tools.functions, ASKING.name: ASKING}
    return replace(tools, functions=functions, offered=offered, services=())


def _divided(functions: Iterable[Function]) -> tuple[list[Function], list[ServiceTool]]:
    """The functions that are called here, and the tools that the model's service runs."""
    every = list(functions)
    return [each for each in every if not isinstance(each, ServiceTool)], [
        each for each in every if isinstance(each, ServiceTool)
    ]


def _offer(function: Function) -> Offer:
    return Offer(name=function.name, description=function.description, params=_params(function))


def _params(function: Function) -> Mapping[str, Any]:
    """The JSON Schema of its params as models see it: the same for a worker and for a function in its place (H8)."""
    schema = function.input_schema
    if takes_text(function) and "description" not in schema["properties"][REQUEST]:
        schema = WorkerRequest.model_json_schema()
    return {name: value for name, value in schema.items() if name not in ("title", "description")}


def callable_by(worker: Worker, registry: Registry) -> tuple[Function, ...]:
    """The functions that a worker's globs name. The shape that runs workers must be named exactly."""
    if not worker.tools:
        return ()
    exact = frozenset(worker.tools)  # an agent can have thousands of workers, and globs are slow
    globs = [name for name in worker.tools if GLOB.intersection(name)]
    names = [name for name in registry.names if name in exact or (globs and is_like(name, globs))]
    return tuple(registry.function(name) for name in names if name != SUBAGENT or SUBAGENT in worker.tools)
