"""What call code is run by, wherever that code reaches to. What is decided of its calls is `harness.gate`'s."""

from .exits import Exited, kept_in
from .inside import Inside, Origin

__all__ = ["Exited", "Inside", "Origin", "kept_in"]
