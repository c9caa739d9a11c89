"""Agents with homes of their own on one Postgres database: what was attached at one is named at the other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support.agents import answering, scripted_agent
from support.postgres import new_database
from worldagent.core.errors import AttachmentMissing

pytestmark = [pytest.mark.requirement("T4"), pytest.mark.timeout(200)]


async def test_what_is_attached_in_another_home_is_named_with_where_to_bring_it(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    shared = {"database_url": new_database()}
    async with scripted_agent(one, answering(), settings=shared) as here:
        await here.thread("t").converse("Look.", attachments=[b"a,b\n1,2\n"])
        async with scripted_agent(other, answering(), settings=shared) as there:
            thread = there.thread("t")
            [said, _] = await thread.history()
            [attachment] = there.attachments.of(said)
            missing = rf"{attachment.sha256}.*; copy its file to '{other / 'attachments'}', such as from the home"
            with pytest.raises(AttachmentMissing, match=missing):
                await there.attachments.read(attachment)
            assert (await thread.converse("And now?")).text == "Fine."
            with pytest.raises(AttachmentMissing, match=missing):
                await thread.replay(said.id, to="again")
            shutil.copytree(one / "attachments", other / "attachments", dirs_exist_ok=True)
            assert await there.attachments.read(attachment) == b"a,b\n1,2\n"
            assert (await there.thread("again").resume()).text == "Fine."
            for name in ("t", "again"):
                await there.upkeep.remove(name)
            with pytest.raises(AttachmentMissing):
                await there.attachments.read(attachment)
        assert await here.attachments.read(attachment) == b"a,b\n1,2\n", "a home is tidied up by its own agents"
        assert (await here.upkeep.prune()).attachments == 1
