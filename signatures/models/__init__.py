"""The models of one agent: its own, and those that workers and turns name. `signatures` calls them."""

from ..engines import PROVIDERS, Abilities, abilities_of, check_model
from .models import Models

__all__ = ["PROVIDERS", "Abilities", "Models", "abilities_of", "check_model"]
