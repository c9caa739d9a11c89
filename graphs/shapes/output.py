"""The output of a program as text of limited length, for `investigation`."""

from __future__ import annotations

import reprlib
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_monty import MontyError


class _Text(reprlib.Repr):
    """`repr` with limits, and dicts in their own order."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.maxlevel = 20
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxfrozenset = most
        self.maxstring = self.maxlong = self.maxother = most

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        if level <= 0:
            return "{...}"
        items = [f"{self.repr1(k, level - 1)}: {self.repr1(v, level - 1)}" for k, v in islice(x.items(), self.maxdict)]
        return f"{{{', '.join([*items, '...'] if len(x) > len(items) else items)}}}"


def text_of(value: Any, most: int) -> str:
    """The value of a program's last expression.

    Args:
        value: The value.
        most: The limit of useful characters.
    """
    try:
        return _Text(most).repr(value)
    except (RecursionError, ValueError) as error:  # a number can have too many digits
        return f"a {type(value).__name__} that cannot be shown ({type(error).__name__})"


def shown(printed: str, value: str, problem: MontyError | None, unkept: list[str] | None, most: int) -> str:
    """The output of a program. If it is too long, it keeps the beginning of the output and the end of the error.

    Args:
        printed: What it printed.
        value: The value of its last expression, as text.
        problem: The error that ended it.
        unkept: The names of variables that could not be kept; None if no variables are kept.
        most: The limit of characters, without the notes about omitted characters.
    """
    text = "\n".join(filter(None, (printed.rstrip("\n"), value)))
    end = [] if problem is None else [_error_text(problem)]
    if unkept is None:
        end.append("(what this program has set is not kept for the next program)")
    elif unkept:
        end.append(f"(too large for the next program: {', '.join(unkept)})")
    last = "\n".join(end)
    if len(last) > most:  # the actual error is at the end
        last = f"({len(last) - most} characters before) ...{last[-most:]}"
    first = _cut(text, max(most - len(last), 0))
    return "\n".join(filter(None, (first, last)))


def _error_text(problem: MontyError) -> str:
    from pydantic_monty import MontyRuntimeError, MontySyntaxError

    if isinstance(problem, MontyRuntimeError | MontySyntaxError):
        return problem.display()
    return f"the program was stopped: {problem}"


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[:most]}... ({len(text) - most} more characters)"


__all__ = ["shown", "text_of"]
