"""What a paused turn waits for, as every host shows it: to programs as JSON, to people as lines. A leaf of its own.

`forms` has the forms that a person fills in. Which answers are taken is decided where a turn goes on; what a person
types into a terminal is the matter of `cli`, and forms of MCP are that of `sidecar`.
"""

from .texts import is_late, numbered, one_line, pause_lines, printable, unanswered

__all__ = ["is_late", "numbered", "one_line", "pause_lines", "printable", "unanswered"]
