"""What a worker is asked, with and without tools, and what it answers. Its loop is in `graphs.workers`."""

from ._ask import Question, Thought, ask
from ._signatures import Offer, WorkerSignatures

__all__ = ["Offer", "Question", "Thought", "WorkerSignatures", "ask"]
