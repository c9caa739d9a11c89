"""The checks of the points of a host, by the points' ids. Each takes the kit and returns what it found, or raises."""

from ._http import CHECKS as HTTP
from ._load import CHECKS as LOAD
from ._reading import CHECKS as READING
from ._refusals import CHECKS as REFUSALS
from ._stdio import CHECKS as STDIO
from ._tools import CHECKS as TOOLS
from ._whole import CHECKS as WHOLE
from ._writing import CHECKS as WRITING

__all__ = ["HTTP", "LOAD", "READING", "REFUSALS", "STDIO", "TOOLS", "WHOLE", "WRITING"]
