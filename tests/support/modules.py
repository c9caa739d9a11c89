"""Modules of dspy as shapes: a Signature with its params and result, and a role for them."""

import dspy
from pydantic import BaseModel

from worldagent import Role, Shape
from worldagent.graphs.shapes import module_shape

SECRET = "Answer as the lighthouse keeper who has not spoken to a soul since the great storm of 1911."
KEEPER = Role("keeper", SECRET)


class Answer(dspy.Signature):
    """Answer it."""

    question: str = dspy.InputField()
    answer: str = dspy.OutputField()


class Question(BaseModel):
    question: str = "What is a hat?"


class Said(BaseModel):
    answer: str


def asking(module: dspy.Module, entry: type[dspy.Signature] | None = Answer) -> Shape[Question, Said]:
    return module_shape("ask", module, params=Question, result=Said, entry=entry)
