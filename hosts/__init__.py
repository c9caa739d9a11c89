"""Leaves: programs that embed the package. Nothing in the package imports them; each is a folder of its own."""
