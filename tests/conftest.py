"""What every test gets: no setting of this machine's user, none of their folders, and repeatable property tests."""

import faulthandler
import os
import signal
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import HealthCheck, settings

from support.databases import ENGINES, Engine
from support.session import (
    check_schemas_once,
    keep_files_in_memory,
    nothing_is_left,
    pytest_collection_finish,
    pytest_runtest_logstart,
    pytest_runtest_makereport,
    pytest_terminal_summary,
    read_certificates_once,
)

if TYPE_CHECKING:
    from playwright.async_api import Page

    from support.browser import Browser

__all__ = [
    "nothing_is_left",
    "pytest_collection_finish",
    "pytest_runtest_logstart",
    "pytest_runtest_makereport",
    "pytest_terminal_summary",
]

# dspy may import litellm, which asks the network for a price list at import unless this is set.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

keep_files_in_memory()
read_certificates_once()
check_schemas_once()

# A shell that runs this in the background has Ctrl-C ignored, and so would have each process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: the machine is shared. Derandomised: a failure in CI is one that everybody sees.
settings.register_profile("sample", deadline=None, derandomize=True, max_examples=60)
settings.register_profile(
    "soak", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "sample"))

_CLEANING_UP = 120.0  # seconds that a failed test has for it

# An address or key of the user's would send a test to a real service, or dspy to another engine.
_FOREIGN = ("WORLDAGENT_", "OPENAI_", "ANTHROPIC_", "DSPY_", "LANGSMITH_", "LANGCHAIN_", "OTEL_")


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """End the process at twice a test's time limit, with all stacks; xdist then names the test and runs the others.

    pytest-timeout raises in the main thread. asyncio can swallow that, and native code that never returns does not
    see it.
    """
    _end_process_after(2 * settings.timeout, item)


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> None:
    """Remove the bound at the end of a test: xdist lets a process without work wait for the others."""
    faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Bound what a failed test still cleans up: its own bound and pytest-timeout's end with its failure."""
    if isinstance(node, pytest.Item):
        _end_process_after(_CLEANING_UP, node)


def _end_process_after(seconds: float, item: pytest.Item) -> None:
    # Each call replaces the one before. The file is what stderr was before pytest began to capture it.
    faulthandler.dump_traceback_later(seconds, exit=True, file=item.config.stash[fault_handler_stderr_fd_key])


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    for name in [name for name in os.environ if name.startswith(_FOREIGN)]:
        monkeypatch.delenv(name)
    home: Path = tmp_path_factory.getbasetemp() / "user"
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(home / name.lower()))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what is marked `on_every_database` on each engine, without the test's doing (D10).

    With `soak=True` Postgres has its turn in `make soak` alone: where the code under test has no SQL of its own.
    """
    marker = metafunc.definition.get_closest_marker("on_every_database")
    if marker is not None:
        soaked = [pytest.mark.soak] if marker.kwargs.get("soak") else []
        engines = [engine if engine == "sqlite" else pytest.param(engine, marks=soaked) for engine in ENGINES]
        metafunc.parametrize("database_engine", engines, indirect=True)


@pytest.fixture(autouse=True)  # so that each test has it, and `pytest_generate_tests` can set its parameter
def database_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The engine that agents of this test take unless they say otherwise, in other processes as well."""
    engine: Engine = getattr(request, "param", "sqlite")
    if engine == "postgres":
        from support.postgres import new_database  # it starts a server

        monkeypatch.setenv("WORLDAGENT_DATABASE_URL", new_database())
    return engine


@pytest.fixture
async def browser() -> AsyncGenerator["Browser"]:
    """A browser that fails the test for what its pages do wrong; the test is skipped where there is no Chromium."""
    from support.browser import started_browser  # loading it takes a moment, and few tests need it

    async with started_browser() as running:
        yield running


@pytest.fixture
async def page(browser: "Browser") -> "Page":
    """An empty page in it."""
    return await browser.page()
