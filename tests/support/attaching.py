"""Processes that attach images and are killed, or that attach and remove the same image at once."""

import os
import sys
from pathlib import Path
from typing import Any

from support.agents import answering, scripted_agent
from support.homes import PNG
from support.object_stores import register_s3
from worldagent.memory import ConversationLog
from worldagent.memory.attachments.objects import ObjectPieces
from worldagent.testing import ScriptedLM


def _stop(*given: Any, **more: Any) -> None:
    sys.stdout.write("there\n")
    sys.stdout.flush()
    sys.stdin.read()


async def stop_at(home: Path, point: str) -> None:
    """Attach an image and remove its thread, up to a point at which this process waits for its kill."""
    remove = ObjectPieces._remove

    def remove_and_stop(pieces: ObjectPieces, path: str) -> None:
        if "/held/" not in path:
            if point == "set aside":
                remove(pieces, path)
            _stop()

    points: dict[str, tuple[Any, str, Any]] = {
        "content half written": (os, "fsync", _stop),
        "before the content": (ObjectPieces, "_write", _stop),
        "before the message": (ConversationLog, "append", _stop),
        "half set aside": (ObjectPieces, "_remove", remove_and_stop),
        "set aside": (ObjectPieces, "_remove", remove_and_stop),
    }
    if point in points:
        setattr(*points[point])
    register_s3()
    lm = ScriptedLM(_stop) if point == "before the answer" else answering()
    async with scripted_agent(home, lm) as agent:
        await agent.thread("t").converse("Look.", attachments=[PNG])
        await agent.upkeep.remove("t")


async def attach_and_remove(home: Path, name: str, times: int) -> None:
    """Attach an image on new threads, and remove every second one; 0 times goes on for ever, with other content too."""
    register_s3()
    async with scripted_agent(home, answering()) as agent:
        done = 0
        while not times or done < times:
            thread = agent.thread(f"{name}{done}")
            given = [PNG] if times else [PNG, os.urandom(200_000) + name.encode()]
            await thread.converse("Look.", attachments=given)
            if done % 2:
                await agent.upkeep.remove(thread.scope.thread or "")
            await agent.attachments.drop_unreferenced()
            done += 1
            if done == 3:
                sys.stdout.write("there\n")
                sys.stdout.flush()
