"""The bounds of what clients send: one row for each surface.

They hold for one body over HTTP, and for one line over standard streams. 1,000 messages of a conversation fit, and
files up to the limit of bytes. Within them, no body holds the event loop for 50 ms; `benchmarks/hostile_requests.py`
measures it.
"""

from __future__ import annotations

from typing import Final

from ..core.bounds import Bounds

_LEVELS: Final = 128  # of a whole body; `VALUE` bounds the objects in it
_FILES: Final = 4 << 20  # characters; with base64, as many as there are bytes

MAX_TEXT: Final = 1 << 18
"""The most characters of the text of one message, twice those of a model's answer. Longer texts are sent as files."""

MAX_QUERY: Final = 1 << 14
"""The most bytes of the query of a URL, which is parsed in one step."""

VALUE: Final = Bounds(values=4096, levels=64, characters=MAX_TEXT)
"""Of one JSON object in a call, such as the params of a task or a JSON Schema: those of a model's answer."""

CALL: Final = Bounds(values=5000, levels=_LEVELS, characters=2 * MAX_TEXT)
"""Of one call of a tool: the paths of the web app, and MCP over HTTP and over standard streams."""

CONVERSATION: Final = Bounds(values=16_384, levels=_LEVELS, characters=_FILES)
"""Of a run of AG-UI and a completion of OpenAI's API, which have all messages of their conversation, and images."""

PROMPT: Final = Bounds(values=5000, levels=_LEVELS, characters=_FILES)
"""Of a message of an editor over ACP, with files in base64."""
