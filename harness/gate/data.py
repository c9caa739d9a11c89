"""The base class of rules, policies and predicates; their validation errors are a `PolicyInvalid`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ...core.errors import PolicyInvalid
from ...core.validation import describe_failure


class Data(BaseModel):
    """A frozen model whose validation errors are raised as a `PolicyInvalid`."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
            return
        except ValidationError as failure:
            problems = describe_failure(failure)
        what = f"the rule {data['name']!r}" if isinstance(data.get("name"), str) else f"a {type(self).__name__.lower()}"
        keys = ", ".join(type(self).model_fields)
        raise PolicyInvalid(f"{what} cannot be read: {problems}", remedy=f"its keys are: {keys}")


__all__ = ["Data"]
