"""Which tiers a host keeps, as its schemas say, however they are written and whatever they are."""

from __future__ import annotations

from typing import Any

import pytest

from worldagent.core import Tier
from worldagent.mcp_client._contract import offered_tiers

USUAL = {Tier.WORKSPACE, Tier.ACCOUNT}


@pytest.mark.parametrize(
    ("tier", "offered"),
    [
        ({"enum": ["workspace", "account", "channel"]}, {*USUAL, Tier.CHANNEL}),
        ({"const": "workspace"}, {Tier.WORKSPACE}),
        ({"$ref": "#/$defs/Tier"}, USUAL),
        ({"anyOf": [{"const": "account"}, {"oneOf": [{"$ref": "#/$defs/Tier"}]}]}, USUAL),
        ({"type": "string"}, USUAL),
        ({"enum": ["call", "thread", 5, None, []]}, set[Tier]()),
        (True, USUAL),
        ({"$ref": 7}, USUAL),
    ],
)
def test_the_tiers_are_read_from_the_schema_of_role_get(tier: Any, offered: set[Tier]) -> None:
    schema = {"properties": {"tier": tier}, "$defs": {"Tier": {"enum": ["workspace", "account"]}}}
    assert offered_tiers(schema) == offered


@pytest.mark.parametrize(
    "definitions",
    [
        {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 200}},
        {f"a{place}" if place else "a": {"allOf": [{"$ref": f"#/$defs/a{place + 1}"}] * 2} for place in range(60)},
    ],
)
@pytest.mark.timeout(10)
def test_a_schema_that_refers_to_itself_without_end_is_read_at_once(definitions: dict[str, Any]) -> None:
    assert offered_tiers({"properties": {"tier": {"$ref": "#/$defs/a"}}, "$defs": definitions}) == USUAL
