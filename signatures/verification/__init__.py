"""The Signature that judges an answer against its request. `graphs` calls it and uses the verdict."""

from .signatures import CHECK

__all__ = ["CHECK"]
