"""What a worker is asked and gives, as texts, and a function that stands in its place likewise (H8)."""

from .request import REQUEST, TEXT, WorkerRequest, gives_text, inputs_of, request_of, takes_text, text_of, value_of

__all__ = [
    "REQUEST",
    "TEXT",
    "WorkerRequest",
    "gives_text",
    "inputs_of",
    "request_of",
    "takes_text",
    "text_of",
    "value_of",
]
