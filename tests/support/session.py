"""What a run of tests has of its own: files in memory, a check of what it leaves behind, and a table of its time."""

import gc
import os
import resource
import ssl
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any

import httpcore2
import jsonschema  # type: ignore[import-untyped]  # it has no types
import pytest
from _pytest.terminal import TerminalReporter

from support import forks
from support.processes import children

_SHOWN = 0.01  # the share of the whole time from which a folder has a line of its own
_ENDING = 10.0  # seconds in which processes that are ending end
_MEMORY = "/dev/shm"
_ROOM = 4 << 30  # bytes


def keep_files_in_memory() -> None:
    """Put temporary files in memory where that has room: on a disk, a turn and its agent wait for it thirty times."""
    if "TMPDIR" in os.environ or not os.access(_MEMORY, os.W_OK):
        return
    there = os.statvfs(_MEMORY)
    if not there.f_flag & os.ST_NOEXEC and there.f_bavail * there.f_frsize >= _ROOM:
        os.environ["TMPDIR"] = tempfile.tempdir = _MEMORY


def read_certificates_once() -> None:
    """Have the clients of tests share a TLS context: each of them takes 30 ms to read what the system trusts."""
    read = httpcore2.default_ssl_context

    @cache
    def once(trust_env: bool, *_of_environment: str | None) -> ssl.SSLContext:
        return read(_trust_env=trust_env)

    def shared(*, _trust_env: bool = True) -> ssl.SSLContext:
        return once(_trust_env, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))

    httpcore2.default_ssl_context = shared


def check_schemas_once() -> None:
    """Have a JSON Schema that is valid checked once: each client of MCP checks those of all its tools, for 50 ms."""
    schemas: Any = jsonschema.Draft202012Validator
    check = schemas.check_schema
    valid: set[str] = set()

    def once(schema: Any, **more: Any) -> None:
        text = repr(schema)
        if text not in valid or more:
            check(schema, **more)
            valid.add(text)

    schemas.check_schema = once


def _spent() -> float:
    """Seconds of CPU of this process, of its children that have ended, and of its forks that have."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used) + forks.spent()


_before = [_spent()]
_thawed: list[str] = []  # the tests that have called gc.unfreeze() since it was frozen


def pytest_collection_finish() -> None:
    """Leave what collecting has made out of each later search for garbage: half a second every time."""
    gc.collect()
    gc.freeze()
    unfreeze = gc.unfreeze

    def noted() -> None:
        unfreeze()
        _thawed.append(os.environ.get("PYTEST_CURRENT_TEST", "nothing"))

    gc.unfreeze = noted


def pytest_runtest_logstart() -> None:
    """Leave it out again after a test that has taken it in: each search of all later tests would go through it."""
    if _thawed:
        gc.collect()
        gc.freeze()
        _thawed.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note the CPU that a part of a test took."""
    report = yield
    _before.append(_spent())
    vars(report)["cpu"] = _before[-1] - _before.pop(0)  # xdist hands on what it finds there
    return report


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Print seconds and CPU by folder, the largest first."""
    seconds, cpu = defaultdict[str, float](float), defaultdict[str, float](float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                for folder in ("/".join(Path(report.nodeid.partition("::")[0]).parts[:2]), "all"):
                    seconds[folder] += report.duration
                    cpu[folder] += vars(report).get("cpu", 0.0)
    terminalreporter.section("seconds of tests and of CPU by folder")
    for folder, taken in sorted(seconds.items(), key=lambda item: -item[1]):
        if taken >= _SHOWN * seconds["all"]:
            terminalreporter.line(f"{taken:8.0f} {cpu[folder]:8.0f}  {folder}")


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left() -> Generator[None]:
    """Fail the last test of a process where something outlives the tests: a process or a temporary folder."""
    folders: dict[str, str] = {}
    make = tempfile.mkdtemp

    def noted(*args: Any, **more: Any) -> Any:
        folder = make(*args, **more)
        folders[folder] = os.environ.get("PYTEST_CURRENT_TEST", "nothing")
        return folder

    tempfile.mkdtemp = noted
    yield
    tempfile.mkdtemp = make
    if (postgres := sys.modules.get("support.postgres")) is not None:
        postgres.stop()  # here: xdist kills a worker that takes ten seconds to end, before its handlers at exit
    kept = [
        f"{folder}, made in {test}"
        for folder, test in folders.items()
        if os.path.exists(folder) and "pytest-of-" not in folder
    ]
    deadline = time.monotonic() + _ENDING
    while (left := [*children(), *forks.running()]) and time.monotonic() < deadline:
        time.sleep(0.05)
    found = [*map(str, left), *kept]
    assert not found, "\n".join(["tests have left", *found])
