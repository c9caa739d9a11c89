"""The requests and answers of workers, and of functions that replace a worker, as texts (H8)."""

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
