"""The card of a member: what others can ask it, from its interface spec. Its soul and its functions are not in it."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

from a2a.types import a2a_pb2 as pb
from a2a.utils.constants import PROTOCOL_VERSION_1_0

from ...members.life.members import Member

_MODES: Final = ("text/plain",)
_BEARER: Final = "bearer"


def card_of(member: Member, url: str) -> pb.AgentCard:
    """Return the card of a member.

    Args:
        member: The member.
        url: Where it is called.
    """
    interface, domains = member.interface, ", ".join(member.spec.domains)
    services = interface.services if interface is not None else domains or f"A member called {member.name}."
    forms = () if interface is None else (f"Send: {interface.input_format}", f"You get: {interface.output_format}")
    skill = pb.AgentSkill(
        id=member.id,
        name=member.name,
        description="\n".join((services, *forms)),
        tags=member.spec.domains or (member.id,),
        examples=() if interface is None or not interface.examples else (interface.examples,),
    )
    bearer = pb.SecurityScheme(http_auth_security_scheme=pb.HTTPAuthSecurityScheme(scheme="Bearer"))
    return pb.AgentCard(
        name=member.name,
        description=services,
        version=version("worldagent"),
        supported_interfaces=[
            pb.AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version=PROTOCOL_VERSION_1_0)
        ],
        capabilities=pb.AgentCapabilities(streaming=True, push_notifications=False),
        security_schemes={_BEARER: bearer},
        security_requirements=[pb.SecurityRequirement(schemes={_BEARER: pb.StringList()})],
        default_input_modes=_MODES,
        default_output_modes=_MODES,
        skills=[skill],
    )
