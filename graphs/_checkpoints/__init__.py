"""LangGraph's savers on either database, and the one way graphs are run over them."""

from ._open import Saver, open_saver
from ._promises import DURABILITY
from ._run import run_graph
from ._sqlite import WholeSaver

__all__ = ["DURABILITY", "Saver", "WholeSaver", "open_saver", "run_graph"]
