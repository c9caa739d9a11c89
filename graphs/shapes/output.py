"""What a program shows, as text with bounds. What the model makes of it is for `investigation`."""

from __future__ import annotations

import reprlib
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_monty import MontyError


class _Text(reprlib.Repr):
    """`repr` with bounds, and dicts in their own order."""

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
        most: How many characters of it are of any use.
    """
    try:
        return _Text(most).repr(value)
    except (RecursionError, ValueError) as error:  # a number may have too many digits
        return f"a {type(value).__name__} that cannot be shown ({type(error).__name__})"


def shown(printed: str, value: str, problem: MontyError | None, unkept: list[str] | None, most: int) -> str:
    """All that a program showed; where that is too much, the beginning of it and the end of the error.

    Args:
        printed: What it printed.
        value: Its last expression's value, as text.
        problem: The error that ended it.
        unkept: The names of variables that it could not leave; None where it leaves nothing that it has set.
        most: How many characters there may be, beside what says how many were cut off.
    """
    text = "\n".join(filter(None, (printed.rstrip("\n"), value)))
    end = [] if problem is None else [_told(problem)]
    if unkept is None:
        end.append("(what this program has set is not kept for the next program)")
    elif unkept:
        end.append(f"(too large for the next program: {', '.join(unkept)})")
    last = "\n".join(end)
    if len(last) > most:  # what is wrong stands at the end of it
        last = f"({len(last) - most} characters before) ...{last[-most:]}"
    first = _cut(text, max(most - len(last), 0))
    return "\n".join(filter(None, (first, last)))


def _told(problem: MontyError) -> str:
    from pydantic_monty import MontyRuntimeError, MontySyntaxError

    if isinstance(problem, MontyRuntimeError | MontySyntaxError):
        return problem.display()
    return f"the program was stopped: {problem}"


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[:most]}... ({len(text) - most} more characters)"


__all__ = ["shown", "text_of"]
