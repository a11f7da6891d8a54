"""As much of Google Cloud Storage's JSON interface as reading needs: buckets, metadata, listings, ranges.

The server is a process of its own: PyArrow keeps the interpreter lock while it opens an object of this store.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


class FakeGcs:
    """A server with one bucket, in a process of its own."""

    def __init__(self, bucket: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(bucket, other), daemon=True)
        self._process.start()
        self._port = self._pipe.recv()

    @property
    def options(self) -> str:
        return f"?anonymous=true&endpoint_override=127.0.0.1:{self._port}&scheme=http"

    def put(self, name: str, content: bytes) -> None:
        """Store an object."""
        self._ask("put", name, content)

    def refuse(self, status: int) -> None:
        """Answer every request with this status."""
        self._ask("refuse", status)

    def ranges(self) -> int:
        """Return how many bytes were sent for requests of ranges since the last call."""
        return int(self._ask("ranges"))

    def close(self) -> None:
        self._process.terminate()
        self._process.join()

    def _ask(self, *words: Any) -> Any:
        self._pipe.send(words)
        return self._pipe.recv()


def _serve(bucket: str, pipe: Any) -> None:
    """Run the server, and do what the other end of the pipe says."""
    server = _Server(bucket)
    pipe.send(server.port)
    while True:
        try:
            what, *words = pipe.recv()
        except EOFError:
            return
        answer = None
        if what == "put":
            server.objects[words[0]] = words[1]
        elif what == "refuse":
            server.status = words[0]
        else:
            answer, server.sent = server.sent, 0
        pipe.send(answer)


class _Server:
    def __init__(self, bucket: str) -> None:
        self.bucket = bucket
        self.objects: dict[str, bytes] = {}
        self.sent = 0
        self.status: int | None = None
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                with contextlib.suppress(ConnectionError):  # the client had enough
                    fake.answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        self.port = server.server_port
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def answer(self, request: Any) -> None:
        """Answer one request."""
        address = urlsplit(request.path)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        parts = address.path.strip("/").split("/")
        if self.status is not None:
            return self._send(request, self.status, b'{"error": {"message": "refused"}}')
        if parts[:3] == ["storage", "v1", "b"] and parts[3] == self.bucket:
            if len(parts) == 4:
                return self._send(request, 200, self._json({"kind": "storage#bucket", "name": self.bucket}))
            if len(parts) == 5:
                return self._send(request, 200, self._json(self._listing(query)))
            name = unquote(parts[5])
            if name in self.objects and query.get("alt") != "media":
                return self._send(request, 200, self._json(self._about(name)))
        name = unquote("/".join(parts[1:])) if parts[0] == self.bucket else unquote(parts[-1])
        if name not in self.objects:
            return self._send(request, 404, b"{}")
        return self._content(request, self.objects[name])

    def _listing(self, query: dict[str, str]) -> dict[str, Any]:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        items, folders = [], {}
        for name in sorted(one for one in self.objects if one.startswith(prefix)):
            head, found, _ = name[len(prefix) :].partition(delimiter or "\0")
            if found:
                folders[prefix + head + found] = None
            else:
                items.append(self._about(name))
        return {"items": items, "prefixes": list(folders)}

    def _content(self, request: Any, whole: bytes) -> None:
        first, _, last = request.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        start, stop = int(first), min(int(last) + 1 if last else len(whole), len(whole))
        self.sent += stop - start if "Range" in request.headers else 0
        extra = {"Content-Range": f"bytes {start}-{stop - 1}/{len(whole)}", "x-goog-generation": "1"}
        self._send(request, 206 if "Range" in request.headers else 200, whole[start:stop], extra)

    def _about(self, name: str) -> dict[str, Any]:
        return {
            "kind": "storage#object",
            "name": name,
            "bucket": self.bucket,
            "size": str(len(self.objects[name])),
            "generation": "1",
            "updated": "2025-01-01T00:00:00.000Z",
            "timeCreated": "2025-01-01T00:00:00.000Z",
        }

    @staticmethod
    def _json(value: Any) -> bytes:
        return json.dumps(value).encode()

    @staticmethod
    def _send(request: Any, status: int, body: bytes, extra: dict[str, str] | None = None) -> None:
        request.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(extra or {})}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)
