import json, pytest, asyncio
from support.agents import streamed
from support.services import *
from support.services import Said, agent_at, schema_of, service, in_words
from pydantic import BaseModel
from typing import Literal
import dspy
from worldagent.core import events as ev
from worldagent.signatures import Converse
pytestmark = pytest.mark.requirement("T12")
class Moody(Converse):
    mood: Literal["glad", "sour"] = dspy.OutputField()
CASES = {"reply null": {"reply": None, "mood":"glad"}, "mood null": {"reply":"Hi","mood":None}, "no mood": {"reply":"Hi"}, "wrapper": {"answer":{"reply":"Hi","mood":"glad"}}, "reply obj": {"reply":{"a":1},"mood":"glad"}, "reply num": {"reply":5,"mood":"glad"}, "bad mood":{"reply":"Hi","mood":"x"}, "order":{"mood":"glad","reply":"Hi"},
 "dup": '{"reply":"One","mood":"glad","reply":"Two"}', "two": '{"reply":"One","mood":"glad"}\n{"reply":"Two","mood":"sour"}', "trunc": '{"reply":"One, two, th', "trunc2": '{"reply":"One","moo', "plain": "Just prose.", "prose with braces": "Use {x} and {y}.", "json answer": 'The config: {"reply": 3}'}
async def test_moody(tmp_path):
    for name, c in CASES.items():
        text = c if isinstance(c,str) else json.dumps(c)
        with service(Said(text, ended="length" if "trunc" in name else "")) as stub:
            stub.reply = lambda b: Said(json.dumps({"reply":"again","mood":"sour"}))
            async with agent_at(tmp_path/name, stub, "chat", tools=[], converse=Moody) as agent:
                try:
                    turn, events = await streamed(agent.thread("t").stream("x"))
                    ds=[(type(e).__name__[4:], getattr(e,"text","")) for e in events if isinstance(e,(ev.TextDelta,ev.TextReplaced))]
                    shown=""
                    for k,t in ds: shown = (shown+t) if k=="Delta" else t
                    print(f"{name:18} {turn.text!r} {turn.outputs} n={len(stub.requests)} {'ok' if shown==turn.text else ds}")
                except Exception as e: print(f"{name:18} {type(e).__name__} {str(e)[:150]} n={len(stub.requests)}")
