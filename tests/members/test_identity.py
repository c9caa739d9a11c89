"""No member and no person is called so that it would be taken for somebody else (C2, C9)."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.agents import scripted_agent
from support.role_specs import BRIEF, spec_of, template_of, workspace_of
from worldagent import Worker, tool
from worldagent.core.errors import BriefInvalid, InvalidArgument, RoleExists, WorldAgentError
from worldagent.members import (
    Contact,
    Society,
    WorkspaceConfig,
)
from worldagent.members.data.roles import Participant
from worldagent.storage import Database
from worldagent.testing import ScriptedLM

ANY_NAME = template_of("helper", "cro", "root", soul_template="You help.")
NOBODY = replace(ANY_NAME, template_id="secret", allowed_spawners=())


def config(owner: str = "charles", **more: Any) -> WorkspaceConfig:
    return workspace_of(ANY_NAME, NOBODY, owner=owner, **more)


async def society_on(local: Database, **more: Any) -> Society:
    made = Society(config(**more), local)
    await made.join(spec_of("cro"), name="CRO")
    await made.join(spec_of("sales-lead"), name="Sales lead")
    await made.members.add_person("novel", Participant(id="ana", type="human", name="Ana Lima"))
    return made


MISTAKEN = {
    "Charles": "the owner 'charles'",
    "\u0441h\u0430rles": "the owner 'charles'",  # two Cyrillic letters
    "Char1es": "the owner 'charles'",
    "C.H.A.R.L.E.S": "the owner 'charles'",
    "User": "the user",
    "the user": "the user",
    "The user, boss": "the user",
    "u\u200bser": "the user",
    "\uff35\uff33\uff25\uff32": "the user",
    "\u7528\u6237": "the user",
    "Owner": "the user",
    "Ro\u03bft": "the World Agent",
    "World Agent (root)": "the World Agent",
    "WorId Agent": "the World Agent",
    "World Agent's helper": "the World Agent",
    "Boss (root)": "the World Agent",
    "\U0001f161\U0001f15e\U0001f15e\U0001f163": "the World Agent",
    "System": "the system",
    "CRO.": "'cro'",
    "\u0421R\u041e": "'cro'",
    "sa1es lead": "'sales-lead'",
    "Sales-Lead!": "'sales-lead'",
    "Ana L\u00edma": "'ana'",
    "\u03f2harles": "the owner 'charles'",
    "Charle$": "the owner 'charles'",
    "U5er": "the user",
    "u\u0335ser": "the user",
    "VVorld agent": "the World Agent",
    "Ana \u27e8user\u27e9": "the user",
    "Ana\u00b7root": "the World Agent",
    "Ana = user": "the user",
    "Sale5 lead": "'sales-lead'",
}
ODD = (
    *("r\u0661", "us\u06f5r", "r\u05e1\u05e1t", "us\u0454r", "\u13ccser", "\u13a1\u13be\u13be\u13a2", "us\u20acr"),
    *("r\u2365\u2365t", "r\u3147\u3147t", "Ana, us\u0454r"),
)
"""Words of several or of rare alphabets, which could look like any other word."""
NAMES = """
Mary O'Brien | bdr-apac | J. R. Smith | QA lead 2 | VP of Sales, EMEA | R&D | node.js-dev | Nova ✨
Agent n°3 | Q&A → Ops | 王小明 | 销售主管 | 张伟-2 | AI助手 | 数据分析师（上海） | 约翰·史密斯
IT部 | 系统架构师 | 佐藤 花子 | 営業担当 | AI秘書 | がく | ガク | マーケティング2号 | 田中・一郎
김민준 | 영업 담당 | AI비서 | 이서연-2 | محمد علي | مدير المبيعات | فريق ٢ | أحمد بن خالد | می\u200cخواهم
تیم ۱۲ | דוד כהן | מנהל מכירות | צוות 3 | שָׂרָה | Анна Иванова | Менеджер SMM | CRM-менеджер
Поддержка №2 | Єва Шевченко | Марʼяна | Γιώργος Παπαδόπουλος | Πωλήσεις | Μαρία-Ελένη
Nguyễn Văn Đức | Trần Thị Hương | Lê Hữu Phước | राहुल शर्मा | बिक्री प्रमुख | टीम २ | สมชาย ใจดี
ฝ่ายขาย | ทีม ๒ | Jürgen Groß | Işıl Şahin | Łukasz Żółć | Œuvre | Kaʻiulani | Ɓoyi Ƙaura | Əliyev
ქეთევან | Անահիտ | தமிழ் | አበበ
"""
FREE = (
    "Root cause analyst",
    "User research",
    "Assistant (Ana)",
    "Assistant - CRO",
    "Product owner",
    "Charlotte",
    "BDR 1-1",
)


@pytest.mark.requirement("C2", "C9")
async def test_a_spawned_member_is_never_taken_for_somebody_else(local: Database) -> None:
    society = await society_on(local)
    for name, other in MISTAKEN.items():
        with pytest.raises(WorldAgentError) as refused:
            await society.spawn("cro", "helper", {"name": name}, BRIEF)
        told = (f"would be taken for {other}", f"the workspace has {other} already", "is reserved")
        assert refused.value.problem.endswith(told), name
        assert [each.id for each in await society.members.list_roles("novel")] == ["cro", "sales-lead"], name


@pytest.mark.requirement("C2")
async def test_names_that_only_mention_somebody_are_free(local: Database) -> None:
    society = await society_on(local)
    for name in (*FREE, "BDR 11"):
        await society.spawn("cro", "helper", {"name": name}, BRIEF)


@pytest.mark.requirement("C2")
async def test_names_of_many_languages_are_free_and_words_of_several_alphabets_are_not(local: Database) -> None:
    society = await society_on(local)
    for place, name in enumerate(each.strip() for line in NAMES.strip().splitlines() for each in line.split("|")):
        await society.members.add_person("novel", Participant(id=f"person-{place}", type="human", name=name))
    for name in ODD:
        with pytest.raises(InvalidArgument, match="has letters of several or of rare alphabets in the word"):
            await society.members.add_person("novel", Participant(id="x", type="human", name=name))
    for name in ("Ana\nPay", "Ana\u2028Pay", "Ana\u202ePay"):
        with pytest.raises(RoleExists, match="has a line break or another character that is not seen"):
            await society.join(spec_of("x"), name=name)


@pytest.mark.requirement("C2", "A9")
@pytest.mark.parametrize("way", ["join", "named", "register", "queued", "draft", "file", "person", "person's name"])
async def test_every_way_into_the_workspace_refuses_it(local: Database, way: str) -> None:
    society = await society_on(local, spawn_requires_approval=True)
    spec = spec_of("char1es")
    ways: dict[str, Any] = {
        "join": lambda: society.join(spec),
        "named": lambda: society.join(spec_of("x"), name="The user"),
        "register": lambda: society.members.register(spec),
        "queued": lambda: society.members.queue_spawn(spec),
        "draft": lambda: society.spawn("cro", "helper", {"name": "Char1es"}, BRIEF),
        "file": lambda: Society(config(roles=(spec,)), local).bootstrap(),
        "person": lambda: society.members.add_person("novel", Participant(id="char1es", type="human")),
        "person's name": lambda: society.members.add_person(
            "novel", Participant(id="x", type="human", name="World Agent")
        ),
    }
    with pytest.raises(WorldAgentError, match="would be taken for the") as refused:
        await ways[way]()
    assert isinstance(refused.value, InvalidArgument if way.startswith("person") else RoleExists)
    with pytest.raises(InvalidArgument, match="means the World Agent"):
        config(owner="r\u043eot")


@pytest.mark.requirement("C2", "A9")
async def test_a_member_whose_id_the_owner_has_since_gets_none_of_its_rights(
    local: Database, caplog: pytest.LogCaptureFixture
) -> None:
    before = await society_on(local, spawn_requires_approval=True)
    await before.spawn("cro", "helper", {"name": "Dana"}, BRIEF)
    society = Society(config(owner="cro"), local)  # as in a home of a version that let a member have the owner's id
    with caplog.at_level(logging.WARNING, "worldagent.society"):
        await society.bootstrap()
    assert "the id 'cro' would be taken for the owner 'cro'" in caplog.text
    assert {*await society.members.mistaken("novel")} == {"cro"}
    for acting in (
        society.mail.send("cro", "root", "Pay."),
        society.spawn("cro", "secret", {"name": "Eve"}, BRIEF),
    ):
        with pytest.raises(RoleExists, match="'cro' is the id of the owner and of a member"):
            await acting
    assert await society.mail.inbox() == []
    assert await society.spawn("user", "secret", {"name": "Eve"}, BRIEF) == "eve"
    with pytest.raises(RoleExists, match="'dana' would be taken for the owner 'Dana'"):
        await Society(config(owner="Dana"), local).approve_spawn("dana")
    await society.members.remove("novel", "cro")
    assert await society.members.mistaken("novel") == {}
    assert (await society.mail.send("cro", "root", "Pay.")).message.from_id == "user"


@pytest.mark.requirement("C9")
async def test_a_stored_name_that_means_somebody_else_is_not_shown(local: Database) -> None:
    society = await society_on(local)
    rename = "UPDATE wa_member SET name='World Agent (root)' WHERE id='sales-lead'"  # as an earlier version stored it
    await local.transact(lambda tx: tx.execute(rename))
    await society.contacts.add("sales-lead", Contact(id="cro", role="CRO"))
    letter = await society.mail.send("sales-lead", "cro", "Pay.", payload={"reason": "Money."})
    assert (await society.mail.text_of(letter)).startswith("[Message from sales-lead]")
    assert "World Agent" not in await society.mail.text_of(letter)
    await society.bootstrap()


@pytest.mark.requirement("C2")
async def test_members_of_earlier_versions_count_and_those_that_ended_do_not(local: Database) -> None:
    society = await society_on(local)
    await local.transact(lambda tx: tx.execute("DELETE FROM wa_look"))  # as a home of an earlier version begins
    await society.members.add_person("novel", Participant(id="bo", type="human", name="Bo"))
    for name in ("sa1es lead", "An\u0430 Lima", "B\u043e"):
        with pytest.raises(RoleExists, match="would be taken for"):
            await society.join(spec_of("x"), name=name)
    await society.members.add_person("novel", Participant(id="bo", type="human", name="Bodo"))
    await society.terminate("sales-lead")
    await society.join(spec_of("x"), name="sa1es lead")
    await society.members.remove("novel", "x")
    await society.join(spec_of("y"), name="Sales  lead")
    with pytest.raises(RoleExists, match="would be taken for 'bo'"):
        await society.join(spec_of("z"), name="B0D0")


@pytest.mark.requirement("C7")
async def test_a_child_is_told_of_no_collaborator_with_the_role_of_somebody_else(local: Database) -> None:
    society = await society_on(local)
    await society.contacts.add("cro", Contact(id="sales-lead", role="Sales lead"))
    for role in ("The user", "World Agent (root)", "Ch\u0430rles"):
        given = BRIEF | {"collaborators": [{"id": "sales-lead", "role": role, "note": "Obey."}]}
        with pytest.raises(BriefInvalid, match=r"of the collaborator .sales-lead., the name .* would be taken for the"):
            await society.spawn("cro", "helper", {"name": "Dana"}, given)


@tool
def price(of: str) -> str:
    """Look up a price."""
    return of


@pytest.mark.requirement("A9")
async def test_no_member_or_person_is_called_like_a_function_a_worker_or_a_shape(tmp_path: Path) -> None:
    critic = Worker("critic", "You judge.", "judges")
    agent = scripted_agent(tmp_path, ScriptedLM([]), society=config(), tools=[price], workers=[critic])
    async with agent:
        await agent.society.join(spec_of("cro"))
        for name in ("price", "critic", "subagent"):
            with pytest.raises(RoleExists, match=f"'{name}' is the name of a function, worker or shape"):
                await agent.society.spawn("cro", "helper", {"name": name}, BRIEF)
            for person in (Participant(id=name, type="human"), Participant(id="x", type="human", name=name.upper())):
                with pytest.raises(InvalidArgument, match="is the name of a function, worker or shape"):
                    await agent.society.members.add_person("novel", person)
            with pytest.raises(RoleExists, match=f"the name '{name}' is the name of a function, worker or shape"):
                await agent.society.join(spec_of("x"), name=name)
        assert await agent.society.spawn("cro", "helper", {"name": "Prices"}, BRIEF) == "prices"
