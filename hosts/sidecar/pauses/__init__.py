"""Pauses over the wire: converts pauses and answers to and from JSON, and asks a person through a client.

The package defines what a turn waits for and which answers it accepts. `people` decides who can answer.
"""

from .answers import ANSWERS_SCHEMA, read_answers
from .asking import Asking
from .rounds import Round, next_steps, pause_result

__all__ = ["ANSWERS_SCHEMA", "Asking", "Round", "next_steps", "pause_result", "read_answers"]
