"""The command `models`: the providers that a model string can name. Nothing is contacted, and no key is printed."""

from __future__ import annotations

from ...signatures.models import PROVIDERS
from ._models_options import ModelsOptions
from ._output import Output

_HEAD = ("PREFIX", "KEY VARIABLE", "SET", "EXAMPLE", "ALSO NEEDS")
_STATES = {True: "yes", False: "no", None: "-"}


def models(options: ModelsOptions) -> int:
    """Run the command and return its exit code."""
    found = [
        {
            "prefix": each.prefix,
            "variables": list(each.variables),
            "set": each.is_set(),
            "api_base": each.api_base,
            "needs": each.needs,
            "example": each.example,
        }
        for each in PROVIDERS
    ]
    rows = [
        (
            each.prefix,
            " or ".join(each.variables) or "none",
            _STATES[each.is_set()],
            each.example,
            each.needs.replace("`", "") or "-",
        )
        for each in PROVIDERS
    ]
    widths = [max(len(row[column]) for row in (_HEAD, *rows)) for column in range(len(_HEAD))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (_HEAD, *rows)
    ]
    Output.of(json=options.json).result({"models": found}, "\n".join(lines))
    return 0


__all__ = ["models"]
