"""How members begin, remember, change and end."""
