"""The wire contract: arguments and answers of the tools, as models and as JSON Schemas."""

from .tools import TOOLS, ToolSpec, published, schemas
from .words import CONTRACT

__all__ = ["CONTRACT", "TOOLS", "ToolSpec", "published", "schemas"]
