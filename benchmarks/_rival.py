"""The same delegation by deepagents, if it is installed. The package does not depend on it."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from worldagent.benchmarks._measure import Work
from worldagent.benchmarks._stubs import ANSWER, CRITIC, QUESTION

_TASK = {"description": "Judge the claim that Queen Ada rules Vell.", "subagent_type": "critic"}


class _Constant(BaseChatModel):
    """Plans one `task`, answers as the sub-agent, then answers, without latency and without a service."""

    @property
    def _llm_type(self) -> str:
        return "constant"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        if messages[-1].type == "tool":
            said = AIMessage(ANSWER)
        elif CRITIC.instructions in messages[0].text:
            said = AIMessage("No source before the fire names her.")
        else:
            said = AIMessage("I will ask critic.", tool_calls=[{"name": "task", "args": _TASK, "id": "call_1"}])
        return ChatResult(generations=[ChatGeneration(message=said)])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return self._generate(messages, stop)


def deepagents_delegation() -> Work | None:
    """Return one delegation by deepagents without a checkpointer; None if it is not installed."""
    if importlib.util.find_spec("deepagents") is None:
        return None
    agent = importlib.import_module("deepagents").create_deep_agent(
        model=_Constant(),
        subagents=[{"name": CRITIC.name, "description": "judges claims", "system_prompt": CRITIC.instructions}],
    )

    async def delegate() -> object:
        state = await agent.ainvoke({"messages": [{"role": "user", "content": QUESTION}]})
        kinds = [message.type for message in state["messages"]]
        assert kinds == ["human", "ai", "tool", "ai"], kinds
        return state

    return delegate
