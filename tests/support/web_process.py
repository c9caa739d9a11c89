"""A web app under uvicorn in a process of its own: `python web_process.py` prints its address and serves until SIGTERM.

It serves the agents of `sidecar_app`, to everyone as `ana`.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import uvicorn

from support.forks import forking
from support.house import ROOT
from support.processes import clean_environment, listening
from support.shop import HOME
from support.sidecar_app import shop
from support.web import BOUND, client_of
from worldagent.hosts.web import Limits, WebApp


class Served:
    """Such a process.

    Attributes:
        url: Its address.
    """

    def __init__(self, url: str, process: subprocess.Popen[bytes]) -> None:
        self.url, self._process = url, process

    def client(self) -> httpx2.AsyncClient:
        """A client of it."""
        return client_of(self.url)

    def end(self, how: signal.Signals) -> int:
        """Send a signal, and return how the process ended."""
        self._process.send_signal(how)
        self._process.communicate(timeout=BOUND)
        return self._process.returncode


@contextmanager
def web_process(home: Path) -> Generator[Served]:
    """Start the process, which is killed at the end of the block."""
    home.mkdir(exist_ok=True)
    argv = forking((sys.executable, "-P", ROOT / "tests" / "support" / "web_process.py"))
    database = {name: os.environ[name] for name in ("WORLDAGENT_DATABASE_URL",) if name in os.environ}
    env = clean_environment(**{HOME: str(home)}, **database)
    with listening(argv, env=env, errors=home / "errors") as (url, process):
        yield Served(url, process)


def main() -> None:
    """Serve."""
    listener = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"http://127.0.0.1:{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    app = WebApp(shop(), login=lambda _: "ana", limits=Limits(account_turns=1000, account_readers=2000))
    config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=20)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    assert os.environ[HOME]
    main()
