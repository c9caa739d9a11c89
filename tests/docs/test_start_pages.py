"""The pages for newcomers: a reader who types what they say, in an empty folder, gets what they promise."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.example_clients import TYPESCRIPT_CHAT
from support.example_hosts import NODE
from support.forks import forking
from support.house import ROOT
from support.pages import DOCS, blocks, files_of
from support.processes import clean_environment, listening
from support.role_hosts import free_port
from support.services import Said, Service, in_words, service

START = DOCS / "start"


def typed_on(page: Path) -> list[str]:
    """The commands that a page tells its reader to type, a block at a time."""
    return [block.code for block in blocks("sh") if block.page == page]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package of this checkout, built."""
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-P", "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=100)
    return target


def newcomer(home: Path, wheel: Path, stub: Service) -> dict[str, str]:
    """The environment of a reader: pip finds the package of this checkout alone, and any service is the stub."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "WORLDAGENT_", "PIP_"))}
    return {
        **kept,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": str(home),
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",  # what it depends on comes from this environment
        "PIP_FIND_LINKS": str(wheel),
        "PIP_CONFIG_FILE": os.devnull,
        "WORLDAGENT_API_BASE": stub.url("chat"),
    }


@pytest.mark.timeout(400)
def test_quickstart_leads_from_an_empty_folder_to_an_approved_call(
    tmp_path: Path, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = START / "quickstart.md"
    install, *rest = typed_on(page)
    files = tmp_path / "files"
    files.mkdir()
    for name, code in files_of(page).items():
        (files / name).write_text(code, encoding="utf-8")
    packages = [folder for folder in sys.path if folder.endswith("site-packages")]
    (files / "others.pth").write_text("\n".join(packages), encoding="utf-8")
    (tmp_path / "empty").mkdir()
    # The reader makes the files between the commands, and pip would have brought what the package depends on.
    made = f"cp {files}/*.py . && cp {files}/others.pth .venv/lib/python3.*/site-packages/\n"
    script = "set -euo pipefail\n" + install + made + "".join(rest).replace("shop.py\n", "shop.py <<< y\n")
    said = [
        Said("Bonjour."),
        Said("Felt and straw."),
        Said("Bowler, beret and boater."),
        Said("", (("price", {"item": "hat"}),)),
        Said("", (("buy", {"item": "hat"}),)),
        Said("I bought you a hat for 20 euros."),
    ]
    began = time.monotonic()
    with service(*said) as stub:
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path / "empty",
            env=newcomer(tmp_path, wheel, stub),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    minutes = (time.monotonic() - began) / 60
    assert done.returncode == 0, done.stdout + done.stderr
    [shown] = [block.code for block in blocks("text") if block.page == page]
    typed = shown.replace("[y/n] y\n", "[y/n] ")  # what a reader types is not printed to a pipe
    for part in ("Bonjour.", "Felt and straw.", "Bowler, beret and boater.\n", typed):
        assert part in done.stdout
    assert "order" in done.stdout.split(typed)[1]
    assert stub.streamed[2:] == [True] * 4
    assert not stub.answers
    assert (tmp_path / "empty" / "shop" / ".venv" / "bin" / "worldagent").exists()
    assert minutes < 10
    with capsys.disabled():
        sys.stdout.write(f"the quickstart took {minutes:.1f} minutes\n")


@contextmanager
def sidecar(folder: Path, stub: Service) -> Generator[dict[str, str]]:
    """Serve the agent of the page about other languages; gives the environment of its clients."""
    page = files_of(START / "other-languages.md")
    port = free_port()
    for name, code in page.items():
        (folder / name).write_text(code.replace("127.0.0.1:8200", f"127.0.0.1:{port}"), encoding="utf-8")
    model = {"WORLDAGENT_LM": "openai/gpt-4o", "OPENAI_API_KEY": "k", "WORLDAGENT_API_BASE": stub.url("chat")}
    env = clean_environment(
        WORLDAGENT_SIDECAR_TOKEN="a-long-random-text", WORLDAGENT_HOME=str(folder / "home"), **model
    )
    command = [sys.executable, "-P", "-m", "worldagent.hosts.cli", "serve", "--app", "counter:agent"]
    errors = folder / "errors"
    with listening(forking([*command, "--http", f"127.0.0.1:{port}"]), cwd=folder, env=env, errors=errors) as (line, _):
        assert line.startswith("http://"), errors.read_text()
        yield env


BOUGHT = (Said("", (("buy", {"item": "hat"}),)), Said("A hat is on its way."))


@pytest.mark.timeout(200)
def test_curl_gets_an_answer_and_approves_a_call(tmp_path: Path) -> None:
    with service(Said("Hello."), *BOUGHT) as stub, sidecar(tmp_path, stub) as env:
        command = ["bash", "-euo", "pipefail", "buy.sh"]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert re.findall(r'"status":"(\w+)","text":"([^"]*)"', done.stdout) == [
        ("done", "Hello."),
        ("done", "A hat is on its way."),
    ]


@pytest.mark.timeout(200)
def test_typescript_gets_a_stream_and_approves_a_call(tmp_path: Path) -> None:
    packages = TYPESCRIPT_CHAT / "node_modules"
    assert packages.is_dir(), "the packages of the example are missing: run `make setup`"
    (tmp_path / "node_modules").symlink_to(packages)
    (tmp_path / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    with service(*BOUGHT) as stub, sidecar(tmp_path, stub) as env:
        command = [NODE, "buy.ts"]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == 'approving buy {"item":"hat"}\nA hat is on its way.\n[done]\n', done.stderr


PRICED = Said("", (("price", {"item": "hat"}),))
SHOPS = {
    "from-langgraph": ((PRICED, *BOUGHT), "A hat is on its way.\n"),
    "from-openai-agents": ((PRICED, *BOUGHT), "A hat is on its way.\n"),
    "from-dspy": ((PRICED, Said("20 euros."), in_words(verdict="Dull.")), "20 euros.\nDull.\n"),
}


@pytest.mark.timeout(100)
@pytest.mark.parametrize("page", SHOPS)
def test_program_does_the_same_as_that_of_another_framework(page: str, tmp_path: Path) -> None:
    said, printed = SHOPS[page]
    [(name, code)] = files_of(START / f"{page}.md").items()
    (tmp_path / name).write_text(code, encoding="utf-8")
    with service(*said) as stub:
        env = clean_environment(OPENAI_API_KEY="k", WORLDAGENT_API_BASE=stub.url("chat"))
        command = forking([sys.executable, "-P", name])
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.stdout == printed, done.stderr
        assert not stub.answers
