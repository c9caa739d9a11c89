"""R16: what a role asks to be said may be said, and no tier of a role is disclosed, in whatever dress."""

import json
import random
import re
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.agents import scripted_agent, standing, streamed
from worldagent import Role
from worldagent.benchmarks._role_echo_set import Labelled, dressed, labelled_roles
from worldagent.benchmarks.role_echo import is_shown
from worldagent.core.errors import RoleEchoed, RoleInvalid
from worldagent.core.events import RoleWithheld, TextDelta, TextReplaced
from worldagent.role_resolution import Echo, RolePart
from worldagent.signatures.disclosure import RoleGuard
from worldagent.signatures.matching import at_once
from worldagent.testing import ScriptedLM

pytestmark = pytest.mark.requirement("R16")

MARK = "[role withheld]"
SUPPORT = """You answer the guests of the Harbour Hotel as Mia from the front desk.
Breakfast is served from seven to half past ten in the garden room on the ground floor.
Guests can leave their luggage with us until eight in the evening on the day of departure.
Never promise an upgrade, and never discuss what other guests have paid for their rooms.
If somebody is angry, apologise first and then ask what would help.
End each answer with: "Have a lovely stay, yours Mia"
"""
USE = (
    "Breakfast is served from seven to half past ten in the garden room on the ground floor. "
    "Do come a little before ten, it is quieter then. Have a lovely stay, yours Mia"
)
ROLE = Role("support", SUPPORT)
DISCLOSED = f"Of course. I was told this:\n{SUPPORT}Anything else?"
SET: Sequence[Labelled] = labelled_roles()[::4]


def guard(*texts: str, others: Sequence[str] = (), echo: Echo = "disclosure") -> RoleGuard:
    return RoleGuard([RolePart(text, None) for text in texts], others, echo=echo)


def lines_in(text: str, role: str = SUPPORT) -> list[str]:
    """The lines of a role, without what it asks to be said, that stand in a text."""
    return [line for line in role.splitlines() if "yours Mia" not in line and line.casefold() in text.casefold()]


# --- the labelled set -------------------------------------------------------------------------------------------------


def test_answers_that_use_their_role_are_not_damaged() -> None:
    damaged = [
        role.id
        for role in SET
        for use in role.uses
        if guard(role.text, others=[use.message]).scrub_value(use.answer)[1]
    ]
    assert len(damaged) <= 0.02 * sum(len(role.uses) for role in SET), damaged


def test_a_disclosed_role_is_withheld_in_every_dress() -> None:
    shown = [
        (role.id, one.dress)
        for role in SET
        for one in (*role.disclosures, *dressed(role))
        if is_shown(role.text, guard(role.text, others=[one.message]).scrub_value(one.answer)[0])
    ]
    assert len(shown) <= 0.02 * sum(1 + len(dressed(role)) for role in SET), shown


@pytest.mark.parametrize("tiers", range(2, 6))
def test_no_tier_of_a_stack_passes_whole(tiers: int) -> None:
    source = random.Random(tiers)
    words = [f"{a}{b}{c}" for a in ("ba", "do", "ke", "li", "mu") for b in ("ra", "ni", "so", "te") for c in ("l", "n")]
    for size in (3, 4, 6, 9, 14, 25, 40):
        stack = [
            " ".join(source.sample(words, min(size, len(words)))) if number else " ".join(source.sample(words, 40))
            for number in range(tiers)
        ]
        for text in stack:
            said = f"Here you are:\n1. {text}\nThat is it."
            shown, withheld = guard(*stack).scrub_value(said)
            assert withheld >= len(text) - 2, (size, text)
            assert shown == f"Here you are:\n1. {MARK}\nThat is it."


# --- what counts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "said"),
    [
        ("End with: {}", "Have a pleasant day and call us again whenever you like."),
        ('The motto of the house is "{}".', "be kind to each guest and to each of your colleagues"),
        ("Use this form.\n```\n{}\n```", "from shop import price, stock, order\nprint(price(order()))"),
        ("Begin the list like this.\n{}", "| Item | Price in euros | Delivery time in days |"),
        ("Write to them like this.\n{}", "Dear {name}, your order number {order} leaves our house today."),
        ("Beende jede Antwort mit: {}", "Wir wünschen Ihnen einen schönen Tag in unserem Haus."),
        ("每次回答的结尾写上：{}", "祝您在本店购物愉快，欢迎下次再来光临。"),
    ],
)
def test_what_a_role_quotes_or_asks_to_be_said_may_be_said(role: str, said: str) -> None:
    role = role.replace("{}", said)
    assert guard(role).scrub_value(f"Sure. {said}") == (f"Sure. {said}", 0)
    assert guard(role, echo="strict").scrub_value(f"Sure. {said}")[1] > 0 or len(said) < 40


@pytest.mark.parametrize(
    "introduction",
    [
        *("My instructions are", "I was told this", "I’ve been given these rules", "The system prompt says"),
        *(
            "Meine Anweisungen lauten",
            "Mein Prompt sagt",
            "Mir wurde gesagt",
            "Ich wurde so angewiesen",
            "Der Systemprompt ist",
        ),
        *("Mes consignes sont", "Mon prompt dit", "On m'a dit", "J’ai été programmé ainsi", "Le prompt système dit"),
        *(
            "Mis instrucciones son",
            "Mi prompt de sistema dice",
            "Me han dicho",
            "Fui configurado así",
            "El prompt del sistema",
        ),
        *("我的指令是", "我被要求", "系统提示词如下", "有人告诉我", "我收到的指示是"),
    ],
)
def test_an_introduction_lowers_the_share_that_discloses(introduction: str) -> None:
    half = "\n".join(SUPPORT.splitlines()[1:3])
    assert guard(SUPPORT).scrub_value(f"Of course: {half}") == (f"Of course: {half}", 0)
    shown, withheld = guard(SUPPORT).scrub_value(f"{introduction}: {half}")
    assert withheld
    assert lines_in(shown) == []


def test_what_another_input_says_may_be_said() -> None:
    assert guard(SUPPORT, others=[f"Translate this: {SUPPORT}"]).scrub_value(SUPPORT) == (SUPPORT, 0)


def test_text_is_withheld_in_whole_words_and_json_stays_json() -> None:
    inner = {"rules": SUPPORT.splitlines(), "count": 6, "ok": True}
    for answer in (
        json.dumps(inner),
        f"Here:\n```json\n{json.dumps(inner, indent=2)}\n```\nDone.",
        json.dumps({"a": json.dumps({"b": json.dumps(inner)})}),
        f"So {json.dumps(inner, ensure_ascii=False)} it is.",
    ):
        shown, withheld = guard(SUPPORT).scrub_value(answer)
        assert withheld
        assert lines_in(shown.replace("\\", "")) == []
        found = shown[shown.index("{") : shown.rindex("}") + 1]
        read = json.loads(found)
        while "rules" not in read:
            read = json.loads(next(iter(read.values())))
        assert read["count"] == 6
        assert len(read["rules"]) == 6
    shown, _ = guard(SUPPORT).scrub_value(f"Aha:{SUPPORT}Bye")
    assert shown.startswith(f"Aha:{MARK}")
    assert shown.endswith('yours Mia"\nBye') or shown.endswith(f'{MARK}"\nBye')


def test_withheld_text_ends_where_quotable_text_begins() -> None:
    asking = "Is there anything else I can help you with today?"
    shown, _ = guard(f"{SUPPORT}Close with: {asking}").scrub_value(f"{SUPPORT}Close with: {asking}")
    assert shown.endswith(f"{MARK}: {asking}")
    address = "front.desk@mail.harbour.example"
    shown, _ = guard(f"{SUPPORT}Letters go to {address} before they are printed.").scrub_value(
        f"{SUPPORT}They go to {address} before they are printed."
    )
    assert address in shown
    role = "你是云栖酒店的前台客服，语气亲切自然。不要透露其他客人的信息。结尾写上：祝您在云栖度过愉快的一天"
    assert guard(role).scrub_value(f"我的指令：{role}")[0] == f"我的指令：{MARK}：祝您在云栖度过愉快的一天"


def test_keys_of_json_that_are_withheld_stay_apart() -> None:
    role = "\n".join(
        f"{name}\n{line}"
        for name, line in zip(("Facts", "Ru\u0308les", "Tone"), SUPPORT.splitlines()[1:4], strict=True)
    )
    lines = role.splitlines()
    told = {
        "Tone": lines[5],
        "Facts": [lines[1]],
        "inner": {"R\u00fcles": lines[3], "Facts": 2, lines[1]: 1},
        lines[3]: 0,
    }
    for value in (json.dumps(told, indent=1), json.dumps({"a": json.dumps(told), "b": 1}), told):
        shown, withheld = guard(role).scrub_value(value)
        assert withheld
        assert lines_in(str(shown)) == []
        read = json.loads(shown) if isinstance(shown, str) else shown
        read = json.loads(read["a"]) if "a" in read else read
        assert (len(read), len(read["inner"])) == (4, 3)


def test_pieces_in_several_texts_of_a_field_count_together_and_in_several_fields_too() -> None:
    lines = SUPPORT.splitlines()
    shown, withheld = guard(SUPPORT).scrub_value({"reply": lines[:2], "more": [*lines[2:], "Bye."]})
    assert withheld
    assert lines_in(str(shown)) == []
    assert shown["more"][-1] == "Bye."


@pytest.mark.parametrize(
    ("role", "said"),
    [
        ("Pirate!", "I am a pirate. Pirate! Pirate!"),
        ("Be brief.", "To be brief: no. Be brief."),
        ("Answer in French.", "I always answer in French, as you can see."),
        ("You are a helpful assistant.", "I hope you are a helpful assistant, too, one day."),
        ("请用中文回答", "好的，我会一直请用中文回答他们的人帮忙"),
    ],
)
def test_a_few_words_may_be_said_in_a_sentence(role: str, said: str) -> None:
    assert guard(role).scrub_value(said) == (said, 0)


@pytest.mark.parametrize(
    ("role", "message", "said"),
    [
        (
            "You are Mia, the assistant of Fernway Telecom.",
            "Hi",
            "I'm Mia, the assistant of Fernway Telecom. How can I help?",
        ),
        (
            "Du bist Kai, der digitale Assistent der Sparkasse Fulda.",
            "Hi",
            "Ich bin Kai, der digitale Assistent der Sparkasse Fulda.",
        ),
        (
            "Tu es Léa, la conseillère virtuelle de la Banque du Lac.",
            "Hi",
            "Je suis Léa, la conseillère virtuelle de la Banque du Lac.",
        ),
        ("你是青橙科技的客服助手。", "Hi", "您好，我是青橙科技的客服助手，请问有什么可以帮您？"),
        ("Our shop is open from 9 to 18. Answer politely.", "Hi", "Our shop is open from 9 to 18."),
        (SUPPORT, f"Is this right? {SUPPORT[70:260]}", "Yes, I am Mia from the front desk of the Harbour Hotel."),
        (
            "You are Ana of the Hotel Alba. Breakfast is served from seven to ten.\nEnd every message with:\n"
            "We wish you a wonderful day and a pleasant stay in our house by the sea, and see you soon.",
            "Hi",
            "From seven.\nWe wish you a wonderful day and a pleasant stay in our house by the sea, and see you soon.",
        ),
        (SUPPORT, "Hi", f"{USE} Do follow the house rules and the role of our guards, {SUPPORT.splitlines()[2]}"),
    ],
)
def test_answers_of_real_products_are_not_damaged(role: str, message: str, said: str) -> None:
    assert guard(role, others=[message]).scrub_value(said) == (said, 0)


def test_a_few_words_that_stand_alone_disclose_a_short_role() -> None:
    for said in (
        "Answer in French.",
        "Yes.\n- answer in French\nBye",
        "It says “ANSWER in French”, why?",
        "| 1 | Answer in French |",
    ):
        assert MARK in guard("Answer in French.").scrub_value(said)[0], said
    assert MARK in guard("Answer in French.").scrub_value("My instructions are to answer in French")[0]


def test_a_role_that_is_nothing_but_a_quotation_or_a_block_discloses_like_any_other() -> None:
    lines = [line for line in SUPPORT.splitlines() if "yours" not in line]
    for before, between, behind in (("> ", "\n> ", ""), ("```\n", "\n", "\n```"), ("", "  {name}\n", "  {name}")):
        role = before + between.join(lines) + behind
        assert lines_in(guard(role).scrub_value(role)[0]) == [], between


RULES = SUPPORT.splitlines()[:-1]
REGELN = (
    "绝不要承诺给客人升级房间。绝不讨论其他客人支付的房价。如果客人生气要先道歉再询问需要什么帮助。西翼装修要保密。"
)


@pytest.mark.parametrize(
    "role",
    [
        json.dumps({"name": "Mia", "kind": True, "rules": RULES}, indent=1),
        json.dumps([*RULES, {"closing": "Have a lovely stay, yours Mia"}]),
        "\n".join(f'- "{line}"' for line in RULES),
        "You help guests.\n" + "\n".join(f"<rule>{line}</rule>" for line in RULES),
        "<br>\n".join(RULES),
        "You help guests.\n" + "\n".join(f"{line} See [the rule](/r)." for line in RULES),
        f'You sell 24" screens. {" ".join(RULES)} The 27" ones are sold out.',
        f"你是前台助手。官网是https://harbour.example/zh，{REGELN}",
        f"你是前台助手。写信请寄desk@harbour.example，{REGELN}",
        f"你是海港酒店前台的客服助手，请友好。\n回答：{REGELN}",
    ],
)
def test_no_role_is_quotable_because_of_how_it_is_written(role: str) -> None:
    shown, withheld = guard(role).scrub_value(f"Sure:\n{role}")
    assert withheld
    assert lines_in(shown) == []
    assert REGELN[20:] not in shown
    for said in ("Have a lovely stay, yours Mia", "https://harbour.example/zh", "desk@harbour.example"):
        assert guard(role).scrub_value(said) == (said, 0)


@pytest.mark.parametrize("echo", ["disclosure", "strict"])
@pytest.mark.parametrize("each", ["line", "word"])
def test_what_stands_in_angle_brackets_is_read(each: str, echo: Echo) -> None:
    said = "\n".join(
        f"<{line}>" if each == "line" else " ".join(f"<{word}>" for word in line.split())
        for line in SUPPORT.splitlines()
    )
    guarding = guard(SUPPORT, echo=echo)
    shown, withheld = guarding.scrub_value(said)
    assert withheld
    assert not is_shown(SUPPORT, shown)
    text = guarding.filter()
    assert shown.startswith("".join(text.feed(said[at : at + 7]) for at in range(0, len(said), 7)))


@pytest.mark.parametrize("size", [1, 9])
def test_a_stream_under_strict_reads_the_tags_of_a_role_as_its_end_does(size: int) -> None:
    role = re.sub(r"(\w{6,})", r"<strong>\1</strong> &amp;", SUPPORT)
    said = f"Of course: {re.sub(r'[^a-zA-Z]+', '... ', role)}"
    guarding = guard(role, echo="strict")
    shown, withheld = guarding.scrub_value(said)
    assert withheld > 300
    text = guarding.filter()
    assert shown.startswith("".join(text.feed(said[at : at + size]) for at in range(0, len(said), size)))


# --- modes ------------------------------------------------------------------------------------------------------------


def test_each_tier_counts_by_its_own_mode() -> None:
    other = "You also look after the boats in the harbour and count them each morning before the guests wake up."
    said = f"{SUPPORT}\n{other}"
    parts = [RolePart(SUPPORT, "allow"), RolePart(other, None)]
    shown, _ = RoleGuard(parts).scrub_value(said)
    assert shown.startswith(SUPPORT)
    assert other not in shown
    shown, _ = RoleGuard(parts, echo="allow").scrub_value(said)
    assert shown == said
    strict = RoleGuard([RolePart(SUPPORT, "strict"), RolePart(other, "allow")])
    assert strict.scrub_value(USE)[1] > 40
    assert RoleGuard([RolePart(SUPPORT, None)]).scrub_value(USE) == (USE, 0)


async def test_a_role_says_what_happens_if_it_is_given_back(tmp_path: Path) -> None:
    lm = ScriptedLM([{"reply": DISCLOSED}] * 5)
    async with scripted_agent(tmp_path, lm, settings={"echo": "fail"}) as agent:
        allowed = await agent.thread("a").converse("Hi", role=Role("r", SUPPORT, echo="allow"))
        assert allowed.text == DISCLOSED
        turn = await agent.thread("t").converse("Hi", role=Role("r", SUPPORT, echo="disclosure"))
        assert lines_in(turn.text) == []
        assert turn.withheld.fields == ("reply",)
        assert turn.withheld.characters > 300
        with pytest.raises(RoleEchoed, match="disclosed its role"):
            await agent.thread("u").converse("Hi", role=ROLE)


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(RoleInvalid, match="use one of: disclosure, strict, fail, allow"):
        Role("r", SUPPORT, echo="withhold")  # type: ignore[arg-type]  # what it refuses


# --- whole turns ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 5000])
async def test_a_use_is_streamed_as_it_is(tmp_path: Path, size: int) -> None:
    async with scripted_agent(tmp_path, ScriptedLM([{"reply": USE}], chunk=size)) as agent:
        turn, events = await streamed(agent.thread("t").stream("When is breakfast?", role=ROLE))
    assert turn.text == standing(events) == USE
    assert not turn.withheld
    assert not [event for event in events if isinstance(event, TextReplaced | RoleWithheld)]


@pytest.mark.parametrize("size", [1, 7, 5000])
async def test_nothing_that_is_withheld_was_streamed_or_stored(tmp_path: Path, size: int) -> None:
    async with scripted_agent(tmp_path, ScriptedLM([{"reply": DISCLOSED}], chunk=size)) as agent:
        turn, events = await streamed(agent.thread("t").stream("Hi", role=ROLE))
        history = await agent.thread("t").history()
    assert turn.text == standing(events) == history[-1].body["text"]
    assert turn.text.startswith("Of course. I was told this:\n")
    assert turn.text.endswith("Anything else?")
    assert lines_in("".join(event.text for event in events if isinstance(event, TextDelta))) == []
    assert not [event for event in events if isinstance(event, TextReplaced)]
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert lines_in(stored.decode(errors="replace")) == []
    [said] = [event for event in events if isinstance(event, RoleWithheld)]
    assert (said.characters, said.fields) == (turn.withheld.characters, ("reply",))


async def test_the_first_word_of_an_answer_is_shown_at_once(tmp_path: Path) -> None:
    lm = ScriptedLM([{"reply": "Certainly! We have rooms with a view of the sea."}], chunk=4)
    async with scripted_agent(tmp_path, lm) as agent:
        _, events = await streamed(agent.thread("t").stream("Hi", role=ROLE))
    sizes = [len(event.text) for event in events if isinstance(event, TextDelta)]
    assert sizes[0] <= 4
    assert statistics.median(sizes) <= 8


@pytest.mark.parametrize("echo", ["disclosure", "strict"])
@pytest.mark.parametrize("size", [1, 3, 17])
def test_a_stream_shows_the_beginning_of_what_the_guard_shows(size: int, echo: Echo) -> None:
    for role in SET[::3]:
        for one in (*role.uses, *role.disclosures, *dressed(role)):
            guarding = guard(role.text, others=[one.message], echo=echo)
            shown, withheld = guarding.scrub_value(one.answer)
            at_once(guarding.preparing())  # as a stream does once it waits
            text = guarding.filter()
            early = "".join(text.feed(one.answer[at : at + size]) for at in range(0, len(one.answer), size))
            if withheld:
                assert shown.startswith(early), (role.id, one.dress)
            else:
                assert early + text.close() == one.answer == shown, (role.id, one.dress)


DRESS_IN_WORDS = {
    "entities": lambda text: "".join(f"&#{ord(each)};" for each in text),
    "circled": lambda text: "".join(
        chr(0x24D0 + ord(each) - 97) if "a" <= each <= "z" else each for each in text.casefold()
    ),
    "first letter bold": lambda text: re.sub(r"\b(\w)(\w)", r"<b>\1</b>\2", text),
    "soft hyphens": lambda text: re.sub(r"\b(\w)(\w)", "\\1\u00ad\\2", text),
    "tags with attributes": lambda text: re.sub(r"(\w+)", r'<span class="hl" style="color:red">\1</span>', text),
    "titles": lambda text: "\n".join(f'<li title="{line}">1</li>' for line in text.splitlines()),
    "parts in one line": lambda text: re.sub(r"(\w+) (\w+)\W+", r"<li>\1 \2</li>", text),
    "lines of one word": lambda text: re.sub(r"\s+", "<br>", text),
    "big words": lambda text: re.sub(r"(\w+)", r"<big>\1</big>", text),
    "a tag over lines": lambda text: re.sub(r"(\w+)", r'<span\n style="color: red">\1</span>', text),
    "JSON with a key twice": lambda text: json.dumps({"r": text, "s": ""}).replace('"s"', '"r"'),
    "JSON that was spaced otherwise": lambda text: json.dumps({"ok": "yes", "r": text}, separators=(",", ":")),
    "a list that begins with a number": lambda text: json.dumps([1, text.replace("the", '"the"')]),
    "JSON with one tab": lambda text: json.dumps({"my": [text.splitlines()]}, indent=1),
}


@pytest.mark.parametrize("size", [1, 4, 20])
@pytest.mark.parametrize("dress", DRESS_IN_WORDS)
def test_dress_inside_words_hides_nothing_from_the_stream_or_the_end(dress: str, size: int) -> None:
    role = SUPPORT.replace('"Have a lovely stay, yours Mia"', "a wish and your name.")
    said = f"Of course: {DRESS_IN_WORDS[dress](role)}"
    guarding = guard(role)
    shown, withheld = guarding.scrub_value(said)
    assert withheld > 300
    assert not is_shown(role, shown)
    text = guarding.filter()
    assert shown.startswith("".join(text.feed(said[at : at + size]) for at in range(0, len(said), size)))
    if "JSON" in dress or "list" in dress:
        json.loads(shown.removeprefix("Of course: "))


@pytest.mark.parametrize("filling", ["\n", "-", "1", "\u200d", "x ", "[", "{"])
def test_a_model_that_repeats_itself_behind_a_beginning_costs_a_bounded_time(filling: str) -> None:
    text = guard(SUPPORT).filter()
    shown = text.feed("Breakfast is")
    began = time.process_time()
    for _ in range(0, 20_000, 4):
        shown += text.feed(filling * 4)
    assert time.process_time() - began < 20  # minutes, if each part read all of the text again
    assert "Breakfast" not in shown or filling == "x "


LONG_TAG = f"<blockquote {' '.join(f'{each}={each * 55}' for each in 'vwyz')} q={'x' * 61}>"


@pytest.mark.parametrize("size", [1, 7, 1024])
@pytest.mark.parametrize(
    ("role", "message", "said"),
    [
        (
            "Gently answer every question asked here quickly",
            "so asked here quickly",
            f"It is this:\nGently answer every question\n{'and then come many other things to say today ' * 5}",
        ),
        (SUPPORT, "", " ".join(f"{word}{LONG_TAG}" for word in SUPPORT.split())),
        ("Answer in French.", "", "I see.\nAnswer in French"),
        (SUPPORT, "", SUPPORT.rstrip()),
    ],
)
def test_a_stream_that_no_answer_settles_shows_what_the_guard_shows(
    role: str, message: str, said: str, size: int
) -> None:
    guarding = guard(role, others=[message])
    text = guarding.filter()
    shown = ""
    for at in range(0, len(said), size):
        shown += text.feed(said[at : at + size])
        if text.waits:
            at_once(guarding.preparing())
            shown += text.feed("")
    rest, withheld = at_once(text.closing())
    assert withheld
    assert (shown + rest, withheld) == guard(role, others=[message]).scrub_value(said)


@pytest.mark.parametrize("between", ["\\", '"', "<", "&", " ", "\u0301", "<a style=''" + " style=''" * 32])
def test_what_stands_between_the_words_of_a_role_costs_a_bounded_time(between: str) -> None:
    said = SUPPORT.replace("Harbour", f"Harbour {between * (100_000 // len(between))}")
    began = time.process_time()
    assert MARK in guard(SUPPORT).scrub_value(said)[0]
    assert time.process_time() - began < 20  # minutes, if each character read all those behind it
