"""A NATS server with JetStream, from a wheel, that tests can kill and start again."""

import json
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


class NatsServer:
    """A server whose streams are in a folder.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._port = -1  # a free one, and the same again after the first start
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"nats://127.0.0.1:{self._port}"

    def start(self, limit: float = 30) -> None:
        """Start it; it takes connections when this returns."""
        program = Path(sys.executable).with_name("nats-server")
        where = ["-a", "127.0.0.1", "-p", str(self._port), "--ports_file_dir", str(self._folder)]
        argv = [str(program), *where, "-js", "-sd", str(self._folder / "store"), "-l", str(self._folder / "log")]
        self._process = process = subprocess.Popen(argv)
        ports, deadline = self._folder / f"{program.name}_{process.pid}.ports", time.monotonic() + limit
        while True:
            try:
                [address] = json.loads(ports.read_text())["nats"]
                break
            except (OSError, ValueError):  # it is not written, or not to its end
                assert process.poll() is None, (self._folder / "log").read_text()
                assert time.monotonic() < deadline, "it did not start in time"
                time.sleep(0.01)
        self._port = int(address.rpartition(":")[2])

    def kill(self) -> None:
        """Kill it with `kill -9`. Its streams stay in the folder."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)


@contextmanager
def nats_server(folder: Path) -> Generator[NatsServer]:
    """Run a server until the end of the block."""
    server = NatsServer(folder)
    try:
        yield server
    finally:
        server.kill()
