"""How an answer is judged against its request. Who asks, and what becomes of the verdict, is decided in `graphs`."""

from .signatures import CHECK

__all__ = ["CHECK"]
