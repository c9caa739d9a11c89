"""Members of a society, for tests."""

from typing import Any

from worldagent.members import AuthorityConfig, RoleSpec


def spec_of(role_id: str, parent: str = "", *, workspace: str = "novel", **more: Any) -> RoleSpec:
    """A member that reports to its parent, else to the owner, and can run and do nothing."""
    given: dict[str, Any] = {
        "role_id": role_id,
        "workspace": workspace,
        "soul": f"You are {role_id}.",
        "domains": (),
        "reports_to": parent,
        "operator_ids": (),
        "authority": AuthorityConfig(),
        "parent_role_id": parent,
    }
    return RoleSpec(**(given | more))
