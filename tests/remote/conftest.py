"""A local S3 server and a proxy that counts and drops; nothing of the user's environment is read."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from remote_proxy import Proxy

BUCKET = "rollouts"
KEY, SECRET = "AKIATESTKEY", "wJalr-test-SECRET"


@dataclass(frozen=True)
class Server:
    """Where the server listens, and a file system to put files into it."""

    host: str
    port: int
    store: Any

    @property
    def options(self) -> str:
        return f"?endpoint_override=http://{self.host}:{self.port}"

    def put(self, key: str, content: bytes) -> str:
        """Store an object and return its URL."""
        with self.store.open_output_stream(f"{BUCKET}/{key}") as out:
            out.write(content)
        return self.url(key)

    def url(self, key: str) -> str:
        return f"s3://{BUCKET}/{key}{self.options}"


@pytest.fixture(scope="session")
def _server() -> Iterator[Server]:
    from moto.server import ThreadedMotoServer
    from pyarrow import fs

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    store = fs.S3FileSystem(
        access_key=KEY,
        secret_key=SECRET,
        endpoint_override=f"{host}:{port}",
        scheme="http",
        region="us-east-1",
        allow_bucket_creation=True,
        allow_bucket_deletion=True,
        background_writes=False,
    )
    yield Server(host, port, store)
    server.stop()


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of the stores are those of the test alone."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "HF_", "CLOUD_STORAGE_")):
            monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")


@pytest.fixture
def s3(_server: Server) -> Iterator[Server]:
    """The server with an empty bucket."""
    _server.store.create_dir(BUCKET)
    yield _server
    _server.store.delete_dir_contents(BUCKET)


@pytest.fixture
def proxy(s3: Server) -> Iterator[Proxy]:
    """A way to the server on which bytes are counted and connections can be dropped."""
    between = Proxy((s3.host, s3.port))
    yield between
    between.close()
