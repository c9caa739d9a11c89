"""The role as a value: what it takes, what it shows, and that nothing can write it out."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel, ConfigDict, TypeAdapter

from worldagent import Role, Tier
from worldagent.core.errors import RoleInvalid
from worldagent.role_resolution import ResolvedRole

SECRET = "Speak as the widow of Vell and never of the sea."


@pytest.mark.requirement("R1")
@pytest.mark.parametrize("show", [repr, str])
def test_a_role_never_shows_its_content(show: Any) -> None:
    shown = show(Role("widow", SECRET))
    assert "widow" in shown
    assert str(len(SECRET)) in shown
    assert "sea" not in shown


@pytest.mark.requirement("R1")
def test_a_role_cannot_be_changed() -> None:
    role = Role("widow", SECRET)
    with pytest.raises(AttributeError):
        role.content = "other"
    with pytest.raises(AttributeError):
        del role.name
    with pytest.raises(AttributeError):
        role.extra = 1
    assert role.content == SECRET


@pytest.mark.requirement("R1")
def test_equal_roles_are_equal_and_hash_alike() -> None:
    assert Role("a", "x", applies_to=["b*"]) == Role("a", "x", applies_to=("b*",))
    assert hash(Role("a", "x")) == hash(Role("a", "x"))
    assert Role("a", "x") != Role("a", "x", exclusive=True)
    assert Role("a", "x", applies_to="b*").applies_to == ("b*",)


class _Holder(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    role: Role


WRITERS: dict[str, Any] = {
    "pickle": pickle.dumps,
    "json": json.dumps,
    "checkpoint with pickle": lambda role: JsonPlusSerializer(pickle_fallback=True).dumps_typed({"role": role}),
    "pydantic": lambda role: _Holder(role=role).model_dump_json(),
    "type adapter": lambda role: TypeAdapter(Role).dump_json(role),
}


STATES: dict[str, Any] = {
    "reduce_ex": lambda role: role.__reduce_ex__(2),
    "state": lambda role: role.__getstate__(),
    "attributes": vars,
}


@pytest.mark.requirement("R1", "R7")
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    "holder", [Role("widow", SECRET), ResolvedRole({"Converse": SECRET}, (Tier.CALL,))], ids=["role", "resolved role"]
)
def test_the_state_of_a_role_cannot_be_asked_for(holder: Any, state: str) -> None:
    with pytest.raises(TypeError) as caught:
        STATES[state](holder)
    assert "sea" not in str(caught.value)


@pytest.mark.requirement("R1", "R7")
@pytest.mark.parametrize("writer", WRITERS)
def test_nothing_can_write_a_role_out(writer: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        WRITERS[writer](Role("widow", SECRET))
    assert "sea" not in str(caught.value)


@pytest.mark.requirement("R15")
@pytest.mark.parametrize("name", ["x" * 201, "x\0", "x\x1b[2J", "x\u200b"])
def test_a_name_is_short_and_printable_and_of_another_only_the_length_is_shown(name: str) -> None:
    with pytest.raises(RoleInvalid, match=f"of {len(name)} characters") as caught:
        Role(name, "Be terse.")
    assert "x" not in str(caught.value)
    assert "200 printable characters" in caught.value.problem


@pytest.mark.requirement("R15")
@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("widow", "   ", "'widow'"),
        ("widow", "half \ud800 pair", "'widow'"),
        (None, "Be terse.", "name"),
        ("half \udc00", "Be terse.", "name"),
    ],
)
def test_what_is_no_text_is_refused_with_the_remedy(name: Any, content: Any, says: str) -> None:
    with pytest.raises(RoleInvalid, match=says) as caught:
        Role(name, content)
    assert str(caught.value).endswith(caught.value.remedy)
