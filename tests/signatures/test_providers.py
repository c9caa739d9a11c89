"""The providers that a model string can name: where their calls go, with which key, and what errors say of others."""

import json
from typing import Any

import dspy
import pytest
from typer.testing import CliRunner

from support.agents import Ask
from support.openai_stub import openai_stub
from worldagent.core.errors import ModelNotConfigured
from worldagent.hosts.cli.app import app
from worldagent.signatures.engines.connect import connect_model
from worldagent.signatures.engines.http import find_route
from worldagent.signatures.engines.providers import providers

KEY = "sk-secret-1234567890"


def models(*words: str) -> Any:
    done = CliRunner().invoke(app, ["models", *words])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["models"] if "--json" in words else done.stdout


@pytest.mark.parametrize(
    "provider", [each for each in providers() if each.prefix in ("mistral", "lm_studio")], ids=lambda each: each.prefix
)
async def test_declared_service_gets_the_model_and_its_own_key(provider: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "true")
    for name in provider.variables:
        monkeypatch.setenv(name, KEY)
    async with openai_stub() as stub:
        connection = await connect_model(f"{provider.prefix}/maker/answer", api_base=stub.url)
        with dspy.context(lm=connection.lm, adapter=dspy.ChatAdapter(use_json_adapter_fallback=False)):
            assert (await dspy.Predict(Ask).acall(message="Where?")).reply == "Paris."
        await connection.aclose()
    assert stub.requests[0]["model"] == "maker/answer"
    assert stub.paths == ["/chat/completions"]
    assert stub.keys == [f"Bearer {KEY if provider.variables else 'none'}"]


def test_every_listed_example_reaches_its_provider_and_reads_the_listed_variable() -> None:
    for provider in providers():
        address = "http://localhost" if provider.api_base else None
        for name in provider.variables or ("NO_KEY",):
            route = find_route(provider.example, api_key=None, api_base=address, env={name: KEY})
            assert (route.provider, route.api_key) == (provider.id, KEY if provider.variables else None), provider


@pytest.mark.parametrize(
    ("model", "variable"), [("bedrock-chat/m", "AWS_REGION"), ("vertex/gemini-2.5-flash", "GOOGLE_CLOUD_PROJECT")]
)
async def test_cloud_names_its_missing_variable(model: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", KEY)
    with pytest.raises(ModelNotConfigured) as caught:
        await connect_model(model)
    assert variable in caught.value.remedy


def test_models_lists_providers_and_whether_a_key_is_set_but_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MISTRAL_API_KEY", KEY)
    monkeypatch.delenv("COHERE_API_KEY", raising=False)
    listed = models("--json")
    assert [each["example"] for each in listed if each["api_base"]] == ["openai/MODEL"]
    found = {each["prefix"]: each for each in listed}
    assert found["mistral"] == {
        "prefix": "mistral",
        "variables": ["MISTRAL_API_KEY"],
        "set": True,
        "api_base": False,
        "needs": "",
        "example": "mistral/mistral-small-latest",
    }
    assert found["cohere"]["set"] is False
    assert found["ollama"]["set"] is None
    text = models()
    assert KEY not in text
    assert "mistral/mistral-small-latest" in text
    assert "api_base" in text


def abilities(*words: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["models", *words, "--json"])
    assert done.exit_code == 0, done.output
    return {each.pop("name") or each["model"]: each for each in json.loads(done.stdout)["abilities"]}


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object, **named: object) -> None:
        raise AssertionError("the network is used")

    monkeypatch.delenv("LITELLM_LOCAL_MODEL_COST_MAP", raising=False)
    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)


@pytest.mark.usefixtures("no_network")
def test_models_says_what_a_model_can_do_without_the_network() -> None:
    found = abilities("openai/gpt-4o", "ollama/mine", "local")
    assert found == {
        "openai/gpt-4o": {
            "model": "openai/gpt-4o",
            "tools": True,
            "images": True,
            "files": True,
            "json_schema": True,
            "reasoning": False,
            "context": 128000,
            "answer": 16384,
        },
        "ollama/mine": {"model": "ollama/mine", **dict.fromkeys(ABILITIES)},
        "local": {
            "model": "local",
            **dict.fromkeys(("images", "files", "reasoning"), False),
            **dict.fromkeys(("tools", "json_schema"), True),
            "context": 4096,
            "answer": 256,
        },
    }
    assert "? is not known offline" in models("anthropic/claude-sonnet-4-5", "ollama/mine")
    assert "not known" not in models("anthropic/claude-sonnet-4-5", "local")


ABILITIES = ("tools", "images", "files", "json_schema", "reasoning", "context", "answer")


@pytest.mark.usefixtures("no_network")
def test_models_includes_the_models_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLDAGENT_LM", "openai/gpt-4o")
    monkeypatch.setenv("WORLDAGENT_MODELS", '{"fast": "groq/openai/gpt-oss-20b", "odd": "nosuch/m"}')
    found = abilities()
    assert (found["lm"]["model"], found["lm"]["images"]) == ("openai/gpt-4o", True)
    assert (found["fast"]["tools"], found["fast"]["context"]) == (True, 131072)
    assert found["odd"] == {"model": "nosuch/m", **dict.fromkeys(ABILITIES)}, "a mistake there does not hide the rest"
    assert abilities("fast") == {"fast": found["fast"]}
    monkeypatch.setenv("WORLDAGENT_API_BASE", "http://127.0.0.1:9/v1")
    assert abilities()["lm"] == {"model": "openai/gpt-4o", **dict.fromkeys(ABILITIES)}, "a server has its own models"
    assert abilities()["fast"] == found["fast"]
