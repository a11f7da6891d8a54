"""A local S3 server, and a proxy before it that counts and drops. No variable of the user is read."""

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
    bucket: str = BUCKET

    @property
    def options(self) -> str:
        return f"?endpoint_override=http://{self.host}:{self.port}"

    def put(self, key: str, content: bytes) -> str:
        """Store an object and return its URL."""
        with self.store.open_output_stream(f"{self.bucket}/{key}") as out:
            out.write(content)
        return self.url(key)

    def url(self, key: str) -> str:
        return f"s3://{self.bucket}/{key}{self.options}"


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    from moto.server import ThreadedMotoServer
    from pyarrow import fs

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
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
    moto.stop()


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
def s3(server: Server) -> Iterator[Server]:
    """The server with an empty bucket."""
    server.store.create_dir(BUCKET)
    yield server
    server.store.delete_dir_contents(BUCKET)


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """A way to the server on which bytes are counted and connections can be dropped."""
    between = Proxy((server.host, server.port))
    yield between
    between.close()
