"""Runs one scripted turn in the folder given, and fails where that loads what the base package does without.

Started by test_package.py in an environment that has the base dependencies only. With `alone` after the folder no
module of `UNWANTED` can be imported, as in such an environment.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from worldagent import Storage, WorldAgent
from worldagent.testing import ScriptedLM

# The provider's SDKs that dspy can load (D6), what a role host alone needs (D9), and what the extras bring (D16).
UNWANTED = {"litellm", "openai", "mcp", "typer", "rich", "xllamacpp", "worldagent.signatures.engines.local"}


async def main(home: Path) -> None:
    async with WorldAgent("w", lm=ScriptedLM([{"reply": "Hi."}]), storage=Storage(home=home)) as agent:
        turn = await agent.thread("t").converse("Hello")
    assert turn.text == "Hi.", turn.text
    loaded = {name for name in UNWANTED if sys.modules.get(name) is not None}
    assert not loaded, f"a turn loaded {sorted(loaded)}"
    print(turn.text)


if __name__ == "__main__":
    if "alone" in sys.argv:
        missing: Any = dict.fromkeys(UNWANTED)  # None makes an import fail
        sys.modules.update(missing)
    asyncio.run(main(Path(sys.argv[1])))
