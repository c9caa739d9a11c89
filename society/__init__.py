"""The names that `worldagent.society` had before version 0.2.0. Each warns when it is imported."""

from ..core.lazy import lazy

__getattr__ = lazy(
    __name__,
    {
        "..members": "AuthorityConfig Event InterfaceSpec KeyResult Letter Objective RoleMessage"
        " RoleSpec RoleTemplate SEND_RULES Society WorkspaceConfig WorkspacePolicy",
        "..members.mail.transport": "InMemoryTransport",
    },
    moved=True,
)
