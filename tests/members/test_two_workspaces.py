"""Two workspaces of one process and one database see nothing of each other (A1)."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from support.role_specs import spec_of
from worldagent import Memory, Role, Storage, WorldAgent
from worldagent.core.errors import InvalidArgument, UnknownContact, UnknownMember
from worldagent.core.scope import account_of
from worldagent.members import Event, RoleMessage, WorkspaceConfig
from worldagent.testing import ScriptedLM, VirtualClock

pytestmark = pytest.mark.requirement("A1")


@pytest.mark.on_every_database
async def test_members_messages_memory_and_roles_of_one_workspace_are_not_those_of_another(tmp_path: Path) -> None:
    async with AsyncExitStack() as opened:
        first, second = [
            await opened.enter_async_context(
                WorldAgent(
                    workspace,
                    lm=ScriptedLM([]),
                    storage=Storage(home=tmp_path),
                    society=WorkspaceConfig(id=workspace, owner="charles"),
                    memory=Memory(),
                )
            )
            for workspace in ("w1", "w2")
        ]
        await first.society.join(spec_of("cro", workspace="w1", domains=("revenue",)))
        await first.society.join(spec_of("bdr", "cro", workspace="w1"))
        await second.society.join(spec_of("cro", workspace="w2"))
        # members
        assert [each.id for each in await second.society.members.list_roles("w2")] == ["cro"]
        assert await second.society.members.find_by_domain("w2", "revenue") == []
        with pytest.raises(UnknownMember):
            await second.society.members.member("w2", "bdr")
        # messages and events
        hello = RoleMessage(id="m1", type="notification", from_id="root", to_id="cro", content="Hello.")
        await first.society.mail.send("root", "cro", hello)
        assert await second.society.mail.waiting() == []
        with pytest.raises(UnknownContact):
            await second.society.mail.send("cro", "bdr", "Hello.", payload={"reason": "A test."})
        now = VirtualClock().now()
        await first.society.events.post(
            Event(id="e1", type="lead.created", source="shop", domain="revenue", payload={}, timestamp=now)
        )
        assert await second.society.events.list() == ()
        # memory
        await first.memory.add("The pipeline is in Lisbon.", account=account_of("w1", "cro"))
        for account in (account_of("w1", "cro"), account_of("w2", "cro"), None):
            assert await second.memory.search("pipeline", account=account) == ()
        # stored roles
        poet = Role("poet", "Answer in rhymes.")
        await first.roles.put("account", poet, scope_id=account_of("w1", "cro"))
        await first.roles.put("workspace", poet)
        assert await second.roles.get("account", scope_id=account_of("w2", "cro")) is None
        assert await second.roles.get("workspace") is None
        for tier, scope in (("workspace", "w1"), ("account", account_of("w1", "cro"))):
            for refused in (
                second.roles.put(tier, poet, scope_id=scope),
                second.roles.get(tier, scope_id=scope),
                second.roles.delete(tier, scope_id=scope),
            ):
                with pytest.raises(InvalidArgument, match="is not of the workspace 'w2'"):
                    await refused
            assert await second.roles.get(tier, scope_id=scope, other_workspace=True) == poet
