"""Object stores for tests: fsspec's own filesystem in memory, a shared folder, and moto's S3 server on this machine."""

import hashlib
import logging
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen
from uuid import uuid4

from fsspec.core import url_to_fs

KINDS = ("memory", "file", "s3")
BUCKET = "agents"


def register_s3() -> None:
    """Have fsspec open `s3://` with obstore, as a program of a user's would."""
    from obstore.fsspec import register

    register("s3")


@contextmanager
def s3_server() -> Generator[dict[str, str]]:
    """Run an S3 server with a bucket; yields the variables by which clients find it."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        with urlopen(Request(f"{url}/{BUCKET}", method="PUT"), timeout=10):
            pass
        yield {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "a-test",
            "AWS_SECRET_ACCESS_KEY": "secret-of-a-test",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }
    finally:
        server.stop()


def new_url(kind: str, folder: Path) -> str:
    """The url of an empty store."""
    if kind == "s3":
        register_s3()
        return f"s3://{BUCKET}/{uuid4().hex}"
    return f"memory://{uuid4().hex}/kept" if kind == "memory" else f"file://{folder / 'shared'}"


def objects(url: str) -> dict[str, bytes]:
    """All objects of a store: pieces by their hash, marks and what is set aside with the folder that they are in."""
    files, root = _opened(url)
    found = {path: os.path.relpath(path, root).split("/") for path in files.find(root)}
    return {
        name if folder == name[:2] else f"{folder}/{name}": bytes(files.cat_file(path))
        for path, (folder, name) in found.items()
    }


def put(url: str, sha256: str, data: bytes | None) -> None:
    """Replace the content of a piece by other bytes, or remove it, behind the agent's back."""
    files, root = _opened(url)
    path = f"{root}/{sha256[:2]}/{sha256}"
    if data is None:
        files.rm_file(path)
    else:
        files.pipe_file(path, data)


def wrong_names(url: str) -> list[str]:
    """The pieces whose content is not what their name says."""
    pieces = {name: data for name, data in objects(url).items() if len(name) == 64}
    return [name for name, data in pieces.items() if data and hashlib.sha256(data).hexdigest() != name]


def _opened(url: str) -> tuple[Any, str]:
    files, root = url_to_fs(url, skip_instance_cache=True)
    files.dircache.use_listings_cache = False
    return files, root
