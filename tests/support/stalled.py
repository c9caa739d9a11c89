"""A proxy between a process and a Postgres server, which can take all bytes and forward nothing."""

import selectors
import socket
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import parse_qs, urlsplit


class StallingProxy:
    """A proxy on a port of its own, from its start to `close`.

    Args:
        url: The url of a database, on a server with a socket of Unix.

    Attributes:
        url: The url of the database, through it.
        stalled: Set it, and from then on it takes what comes, also connections, and forwards nothing.
        taken: Whether something came since then.
        at: It stalls by itself when it gets these bytes from a client.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        [folder] = parse_qs(parts.query)["host"]
        self._target = f"{folder}/.s.PGSQL.5432"
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"postgresql://postgres@127.0.0.1:{self._listener.getsockname()[1]}{parts.path}"
        self.stalled = threading.Event()
        self.taken = threading.Event()
        self.at: bytes | None = None
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        """End all connections."""
        self._wake.send(b".")
        self._thread.join()
        self._wake.close()

    def _run(self) -> None:
        with ExitStack() as opened, selectors.DefaultSelector() as found:
            for each in (self._listener, self._woken):
                opened.enter_context(each)
                found.register(each, selectors.EVENT_READ)
            while True:
                for key, _ in found.select():
                    if key.fileobj is self._woken:
                        return
                    if key.fileobj is self._listener:
                        self._accept(opened, found)
                    else:
                        self._forward(key, found)

    def _accept(self, opened: ExitStack, found: selectors.BaseSelector) -> None:
        client = opened.enter_context(self._listener.accept()[0])
        server = opened.enter_context(socket.socket(socket.AF_UNIX))
        server.connect(self._target)
        found.register(client, selectors.EVENT_READ, server)
        found.register(server, selectors.EVENT_READ, client)

    def _forward(self, key: selectors.SelectorKey, found: selectors.BaseSelector) -> None:
        source, target = key.fileobj, key.data
        assert isinstance(source, socket.socket)
        try:
            data = source.recv(1 << 16)
            if self.at is not None and self.at in data:
                self.stalled.set()
            if self.stalled.is_set():
                self.taken.set()
            elif data:
                target.sendall(data)
        except OSError:
            data = b""
        if not data:
            found.unregister(source)
            if not self.stalled.is_set():
                with suppress(OSError):
                    target.shutdown(socket.SHUT_WR)


@contextmanager
def stalling(url: str) -> Generator[StallingProxy]:
    """Run a proxy inside the block."""
    proxy = StallingProxy(url)
    try:
        yield proxy
    finally:
        proxy.close()
