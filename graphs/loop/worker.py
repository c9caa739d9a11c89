"""The loop of a worker: its steps are in the journal, and it fails where it gives nothing that can be used."""

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
    """One run at a worker. The journal has what it thought and called; here it is found again by ids.

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
        """Take up again what the journal has; where it continues."""
        node: Node | None = "think"
        while node == "think" and self.is_over(self.think_id):
            node = await self._think()
            if node == "act" and all(self.is_over(call_id) for call_id in self.act_ids):
                node = await self._act()
        assert node is not None, "no person is asked about what is over"
        return node

    async def think(self, state: Mapping[str, Any]) -> Command[Node]:
        """Let the model call tools, or give its result. An answer that cannot be used is reported to it.

        Raises:
            OutputInvalid: That was so as often as the worker may retry.
            HostError: The model failed.
        """
        return self._goto(await self._think())

    async def act(self, state: Mapping[str, Any]) -> Command[Node]:
        """Make the calls that the model asked for."""
        return self._goto(await self._act())

    async def asked(self, final: bool) -> Thought:
        inputs = {REQUEST: self._worker.message(self._inputs)} if self._worker.prompt else self._inputs
        return await self.ask(inputs, final=final, notes=self.fault_notes())

    async def _think(self) -> Node | None:
        """Let the model think once; where to go after it, or None where the turn is to stop."""
        if self.tools.functions:
            given = {"input": self._inputs, "step": self.round}
            name, path = self._worker.name, self.calls.path
            step = Step(id=self.think_id, parent=path, name=name, kind="model", input=given, body=self._said)
            said = await self.calls.frame.direct(step)
        else:  # nothing would continue from it: the task that it ends is recorded
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
            self.took_step(think_id, said)
            return "act"
        self.result = said["result"]
        return END

    async def _said(self, _: Any) -> Any:
        return await self.said(final=len(self.steps) >= self._worker.max_steps or self.used_up())

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
