"""A TCP proxy: counts what a server sends, and drops connections on request."""

from __future__ import annotations

import contextlib
import socket
import threading

BLOCK = 1 << 16


class Proxy:
    """Passes bytes between clients and a server.

    Attributes
    ----------
    sent : int
        Bytes that the server has sent so far.
    requests : list of str
        First lines of the requests.
    drop_after : int, optional
        Connections are closed once the server has sent so many bytes on one of them.
    drops : int
        How many connections are still to be dropped; -1: all.
    drop_path : str
        Only those whose last request has this text in its first line.
    """

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self.sent, self.requests = 0, list[str]()
        self.drop_after: int | None = None
        self.drops, self.drop_path = -1, ""
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def options(self) -> str:
        return f"?endpoint_override=http://127.0.0.1:{self.port}"

    def reset(self) -> None:
        """Count from 0."""
        self.sent, self.requests = 0, []

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.create_connection(self._server)
            last = [""]
            for work in (self._up, self._down):
                threading.Thread(target=work, args=(client, server, last), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket, last: list[str]) -> None:
        """Pass what the client says; a request's head comes in one piece from the clients used here."""
        with contextlib.suppress(OSError):
            while data := client.recv(BLOCK):
                line = data.split(b"\r\n", 1)[0]
                if line.endswith(b"HTTP/1.1"):
                    last[0] = line.decode()
                    self.requests.append(last[0])
                server.sendall(data)
        self._end(client, server)

    def _down(self, client: socket.socket, server: socket.socket, last: list[str]) -> None:
        """Pass what the server says, and count it."""
        passed = 0
        with contextlib.suppress(OSError):
            while data := server.recv(BLOCK):
                with self._lock:
                    self.sent += len(data)
                passed += len(data)
                dropped = self.drops != 0 and self.drop_path in last[0] and last[0].startswith("GET")
                if dropped and self.drop_after is not None and passed > self.drop_after:
                    client.sendall(data[: max(0, len(data) - (passed - self.drop_after))])
                    self.drops -= 1
                    break
                client.sendall(data)
        self._end(client, server)

    def _end(self, *ends: socket.socket) -> None:
        for one in ends:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
