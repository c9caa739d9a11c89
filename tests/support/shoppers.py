"""Workers that call tools, and what a scripted model says for them."""

from __future__ import annotations

from typing import Any

from worldagent.harness import Function, Worker, tool

SHOPPER = Worker("shopper", "You find prices.", "finds prices", tools=("price", "stock", "pay"))


@tool(risk="read_only")
async def price(what: str) -> int:
    """Look a price up.

    Args:
        what: The article.
    """
    return len(what)


@tool(risk="read_only")
async def stock(what: str) -> dict[str, Any]:
    """Say what is in stock."""
    return {"left": what.upper()}


def paying(done: list[str]) -> Function:
    """A tool that asks before it pays, and notes that it did."""

    @tool(name="pay", risk="write")
    async def pay(what: str) -> str:
        done.append(what)
        return f"paid {what}"

    made: Function = pay
    return made


def calls(*asked: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """An answer that calls tools."""
    return {"calls": [{"tool": name, "arguments": arguments} for name, arguments in asked]}


def to(worker: str, request: str = "Go.") -> dict[str, Any]:
    """A plan that asks a worker."""
    return {"reply": "", "calls": [{"tool": worker, "arguments": {"request": request}}]}


def told(call: Any) -> list[str]:
    """What the model got of its calls, and of what it gave last."""
    return list(call.steps)
