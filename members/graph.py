"""Who knows whom, and by whose introduction: as JSON, and as a Mermaid drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..core.checks import to_json
from .data.roles import ROOT, USER
from .mail.contacts import BIRTH
from .society import Society

_LEFT_OUT: Final = ("interface", "marks")


async def standing(society: Society) -> list[dict[str, Any]]:
    """The members of a workspace that are not terminated, as JSON, in the order in which they joined.

    Args:
        society: The society of the workspace.
    """
    return [
        {
            "id": each.id,
            "role": each.name,
            "status": each.life.status.value,
            "parent": each.spec.parent_role_id or ROOT,
            "soul_version": each.soul_version,
        }
        for each in await society.members.members(society.config.id)
    ]


async def graph_of(society: Society) -> dict[str, Any]:
    """The members of a workspace and all contacts, each with its owner and who introduced it, as JSON.

    Args:
        society: The society of the workspace.
    """
    contacts = [
        {
            "owner": owner,
            **{name: value for name, value in to_json(contact).items() if name not in _LEFT_OUT},
        }
        for owner, contact in await society.contacts.every()
    ]
    return {"members": await standing(society), "contacts": contacts}


def as_mermaid(graph: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Draw a graph of `graph_of` as a Mermaid flowchart.

    An arrow leads from a member to its contact, and its label says who introduced them. Contacts from birth have none.

    Args:
        graph: The graph.
    """
    roles = {USER: "the user", ROOT: "World Agent"} | {each["id"]: each["role"] for each in graph["members"]}
    for contact in graph["contacts"]:
        roles.setdefault(contact["id"], contact["role"])
    names = {id_: f"n{number}" for number, id_ in enumerate(roles)}
    lines = ["flowchart LR", *(f'  {names[id_]}["{_text(f"{role} ({id_})")}"]' for id_, role in roles.items())]
    for contact in graph["contacts"]:
        by = contact["introduced_by"]
        label = "" if by == BIRTH else f'|"{_text(by)}"|'
        lines.append(f"  {names[contact['owner']]} -->{label} {names[contact['id']]}")
    return "\n".join(lines)


def _text(value: str) -> str:
    """A text for a label: Mermaid reads quotation marks, brackets and `#` as its own."""
    return "".join(each if each.isalnum() or each in " -_.,()" else f"#{ord(each)};" for each in value)
