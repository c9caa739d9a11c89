"""What goes over the wire: arguments and answers of the tools as models and as JSON Schemas. Nothing is decided here.

The models themselves are in the modules of this folder, by what they are about.
"""

from .tools import TOOLS, ToolSpec, published, schemas
from .words import CONTRACT

__all__ = ["CONTRACT", "TOOLS", "ToolSpec", "published", "schemas"]
