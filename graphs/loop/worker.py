"""The loop of a worker. Its steps are in the journal, and it fails if its result cannot be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.types import Command

from ...core.errors import OutputInvalid
from ...harness import CallContext, Worker
from ...harness.journal import SUSPENDED, Step
from ...harness.requests import REQUEST
from ...signatures import ModelCaller, Thought
from ..context import TurnContext
from .loop import END, Loop, Node
from .tools import Tools


class WorkerLoop(Loop):
    """One run of a worker. The journal has its model calls and other calls, which are found again by their ids.

    Args:
        worker: The worker.
        inputs: Its params as JSON.
    """

    def __init__(
        self, turn: TurnContext, calls: CallContext, tools: Tools, *, worker: Worker, inputs: Mapping[str, Any]
    ) -> None:
        super().__init__(turn, calls, tools)
        self.result: Any = None
        self._worker = worker
        self._inputs = inputs
        self._faults = 0

    @property
    def models(self) -> Sequence[str | None]:
        return (self._worker.model, *self._worker.fallbacks)

    def tuned(self, caller: ModelCaller) -> ModelCaller:
        own, models = self._worker.generation, self.turn.services.models
        return models.tuned(caller, name=self._worker.model, generation=own.sent(), headers=own.revealed_headers())

    async def find(self) -> Node:
        """Restore the steps from the journal, and return the node to continue at."""
        node: Node | None = "think"
        while node == "think" and self.is_over(self.think_id):
            node = await self._think()
            if node == "act" and all(self.is_over(call_id) for call_id in self.act_ids):
                node = await self._act()
        assert node is not None, "a finished step never waits for a person"
        return node

    async def think(self, state: Mapping[str, Any]) -> Command[Node]:
        """Let the model call tools, or give its result. An unusable answer is reported to the model.

        Raises:
            OutputInvalid: The model used all retries of the worker.
            HostError: The model failed.
        """
        return self._goto(await self._think())

    async def act(self, state: Mapping[str, Any]) -> Command[Node]:
        """Make the calls that the model requested."""
        return self._goto(await self._act())

    async def asked(self, final: bool) -> Thought:
        inputs = {REQUEST: self._worker.message(self._inputs)} if self._worker.prompt else self._inputs
        return await self.ask(inputs, final=final, notes=self.fault_notes())

    async def _think(self) -> Node | None:
        """Let the model think once, and return the next node; None if the turn has to stop."""
        if self.tools.functions:
            given = {"input": self._inputs, "step": self.round}
            name, path = self._worker.name, self.calls.path
            step = Step(id=self.think_id, parent=path, name=name, kind="model", input=given, body=self._said)
            said = await self.calls.frame.direct(step)
        else:  # nothing would resume from it, because the task that it ends is recorded
            said = await self._said(None)
        if said is SUSPENDED:
            return None
        think_id, self.round = self.think_id, self.round + 1
        self._fault = said.get("fault", "")
        if self._fault:
            self._check_retries()
            return "think"
        self._faults = 0
        if "calls" in said:
            self.on_step(think_id, said)
            return "act"
        self.result = said["result"]
        return END

    async def _said(self, _: Any) -> Any:
        return await self.said(final=len(self.steps) >= self._worker.max_steps or self.limit_reached())

    async def _act(self) -> Node | None:
        return "think" if await self.acted() else None

    def _check_retries(self) -> None:
        self._faults += 1
        if self._faults > self._worker.retries:
            raise OutputInvalid(
                f"the worker {self._worker.name!r} gave nothing usable in {self._faults} tries: {self._fault}",
                remedy="use a larger model, or correct its instructions",
            )

    def _goto(self, node: Node | None) -> Command[Node]:
        status = {"think": "think", "act": "act", END: "done", None: "waiting"}[node]
        return Command(update={"round": self.round, "status": status}, goto=node or END)


__all__ = ["WorkerLoop"]
