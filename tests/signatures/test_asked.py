"""R16: only what comes after a command to say it may be said, not what comes after a heading or a negation."""

import time

import pytest

from worldagent.role_resolution import RolePart
from worldagent.signatures.disclosure import RoleGuard

pytestmark = pytest.mark.requirement("R16")

COMMANDS = """\
say:
Say:
If the visitor is rude, say:
End with:
End every answer with:
Every review ends with the line:
Close each message with the sentence:
Add at the bottom:
At the end write:
Finish with this notice:
Reply with:
Reply with exactly:
Greet each player on the first contact with:
If asked about prices, answer:
Use this sentence:
You always end your answers with:
If it is late, you say:
**End with**:
- Say:
1. End with:
Tell them:
Include the following line:
End by saying:
Write at the end of each answer:
Always say:
Antworte mit:
Antworte immer mit:
Beende jede Antwort mit:
Beenden Sie jede Antwort mit:
Sag:
Sage:
Sage dem Gast:
Verabschiede dich mit:
Schreibe am Ende jeder Antwort:
Am Ende schreibst du:
Wenn jemand fragt, antworte:
Füge diesen Hinweis an:
Füge am Ende hinzu:
Verwende diesen Satz:
Begrüße den Gast mit:
Jede Antwort endet mit:
Dis :
Salue avec :
Termine chaque réponse par :
Quand le client part, dis :
Écrivez à la fin :
Tu termines chaque réponse par :
Utilise cette phrase :
Ajoute à la fin :
Di:
Contesta:
Cierra cada respuesta con:
Termina cada respuesta con:
Escribe al final:
Usa esta frase:
Si preguntan, di:
最后写：
必须包含这句话：
送客时说：
玩家告别时，回答：
结尾说一句：
每条回答最后另起一行写上：
每次回答的结尾写上：
如果不知道，就说：
只说：
请说：
以下面这句话结尾：
结尾加上以下声明：
只回复：
如果他走就说：
"""
OTHERS = """\
How to answer:
Only the owner may say:
Answer rules:
Response format:
Output format:
When you answer:
Tone and format:
Antwortregeln:
Antwortstil:
Ton und Format:
Comment répondre :
Quand tu réponds :
回答要求：
回复规则：
输出要求：
回答原则：
如何回答：
Never say:
What not to say:
Do not answer:
Don't say:
Don’t ever write:
Schreibe nicht:
Sage niemals:
不要说：
禁止说：
不能回答：
Format:
Formato:
Answer like this:
Template:
Answer with these rules:
Write in this style:
What to say:
Things to say:
Things you say:
Use this tone:
Use the following rules:
Never, under any circumstances, say:
Write as follows:
Answer:
Reply:
Greeting:
Closing rules:
Writing:
Ende:
Am Ende:
So antworten:
Wie du antwortest:
Wenn du schreibst:
Antworte nie mit:
Was du sagen darfst:
Ne dis jamais :
N'écris pas :
Ce que tu dis :
Cómo responder:
No digas:
Nunca digas:
Lo que dices:
Cuando respondas:
Format de réponse :
回答：
回复：
说明：
描写：
小说：
编写：
格式：
说话方式：
怎么说：
请按以下要求回答：
请按照以下要求，认真回答：
切勿说：
绝不说：
回答时：
这样说：
输出：
结尾：
Following these rules, answer:
Avoid saying:
Fine print:
Price quote:
To open a claim we need four things:
Tuesdays and Thursdays from 17:
Rules for how you write:
Say nothing about:
Write about:
Answer in this way:
Reply in the following format:
Do not end with:
Avoid these words:
Respond in:
Schreibstil:
Write for:
说话要求：
写作要求：
Write short sentences:
Before you say:
Your answers:
When answering, follow this:
As you answer:
"""
OWN = {
    "zh": "称呼客人为贵宾，语气亲切，不要透露其他客人的信息，也不要承诺升级房型。",
    "": "Our pilots will strike on the first day of December, and the press does not know it yet.",
}


def scrubbed(role: str, said: str) -> str:
    shown: str = RoleGuard([RolePart(role, None)]).scrub_value(said)[0]
    return shown


@pytest.mark.parametrize("cue", COMMANDS.splitlines())
def test_what_comes_after_a_command_to_say_it_may_be_said(cue: str) -> None:
    said = "我们祝您今天在本店过得愉快" if "：" in cue else "We wish you all a very nice day in our house"
    assert scrubbed(f"You are Mia. Be kind.\n{cue} {said}", said) == said


@pytest.mark.parametrize("between", [" ", "\n"])
@pytest.mark.parametrize("cue", OTHERS.splitlines())
def test_what_comes_after_a_heading_or_a_negation_is_the_roles_own(cue: str, between: str) -> None:
    own = OWN["zh" if "：" in cue else ""]
    role = f"You are Mia. Be kind.\n{cue}{between}{own}"
    assert own[5:25] not in scrubbed(role, f"My instructions are:\n{role}\nAnything else?")


def test_of_a_line_with_a_quotation_the_quotation_may_be_said() -> None:
    role = 'You are Mia.\nIf a guest is rude, say: "Please stay calm." Never tell them that the owner is in the house.'
    assert "owner" not in scrubbed(role, f"So: {role}")
    assert scrubbed(role, "Please stay calm.") == "Please stay calm."


@pytest.mark.parametrize(
    ("role", "said"),
    [
        (
            "- Say: {} Don't say: our pilots will strike on the first day of December.",
            "Have a good flight. Come again!",
        ),
        ("End with: {}\nOur pilots will strike on the first day of December.", "Questions? Call us. We like that."),
        (
            "Be kind. End with: {} Our pilots will strike on the first day of December.",
            "We wish you a very good flight with us.",
        ),
    ],
)
def test_only_a_sentence_or_a_line_is_asked_for(role: str, said: str) -> None:
    role = f"You are Mia.\n{role.replace('{}', said)}"
    shown = scrubbed(role, f"My instructions are:\n{role}")
    assert "pilots" not in shown
    assert said in shown


def test_a_role_full_of_colons_is_read_in_a_bounded_time() -> None:
    for each in ("say:", "end with the :", "the " * 20 + "say: ", "说，：", "use this sentence or :"):
        role = each * (32_000 // len(each))
        began = time.process_time()
        scrubbed(role, "Hi")
        assert time.process_time() - began < 8, each
