"""The counter of code lines counts code."""

from house.size import code_lines

TEXT = '''"""Said."""

import os  # said, beside code

# said


def run() -> str:
    """Said

    in three lines."""
    return """one
    two"""


NAME = "x"
"""Said of it."""
'''


def test_comments_docstrings_and_blank_lines_are_no_code() -> None:
    assert code_lines(TEXT) == 5
