"""What a paused turn waits for, as every host shows it: JSON for programs, lines of text for people. A leaf package.

`forms` has the forms that a person fills in. The code that resumes a turn decides which answers it accepts. `cli`
handles what a person types into a terminal, and `sidecar` handles the forms of MCP.
"""

from .texts import is_late, numbered, one_line, pause_lines, printable, unanswered

__all__ = ["is_late", "numbered", "one_line", "pause_lines", "printable", "unanswered"]
