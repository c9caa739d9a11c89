"""Pauses over the wire: as JSON with the answers that fit, answers out of JSON, and asking a person through a client.

What a turn waits for and which answers are taken is the package's matter; who may answer is in `people`.
"""

from .answers import ANSWERS_SCHEMA, read_answers
from .asking import Asking
from .results import next_steps, pause_result
from .rounds import Round

__all__ = ["ANSWERS_SCHEMA", "Asking", "Round", "next_steps", "pause_result", "read_answers"]
