"""URLs of objects in stores: what they are made of, and how they are printed, which is without secrets."""

from __future__ import annotations

import re
from typing import Any

_FORM = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(?:([^/@]*:[^@]*|[^/@]*)@)?([^/?]*)/*(.*)", re.DOTALL)
_OPTIONS = re.compile(r"\?(?=[A-Za-z_-]+=)")

HIDDEN = "***"
"""What stands for a secret."""

# All options but these may be secrets, and are hidden.
_OPEN_OPTIONS = frozenset(
    (
        *("anonymous", "blob_storage_authority", "blob_storage_scheme", "connect_timeout"),
        *("dfs_storage_authority", "dfs_storage_scheme", "endpoint_override", "force_virtual_addressing"),
        *(
            "project_id",
            "region",
            "request_timeout",
            "retry_limit_seconds",
            "revision",
            "scheme",
            "tls_ca_file_path",
        ),
    )
)

AZURE = ("abfs", "abfss")
"""The part before the @ of these names a container or an account, and only what follows a colon is secret."""


class Url(str):
    """A URL of an object, a folder or a pattern. As text it has no secrets: `s3://***@bucket/key`.

    The key is taken as it is typed, without percent-decoding, as the stores' own tools do. Options follow the
    first `?` that stands before `name=`; any other `?` is part of a pattern.

    Attributes
    ----------
    scheme : str
        In lower case.
    user : str
        What stands before the @, as it is typed: `KEY:SECRET`, or Azure's container.
    host : str
        The bucket.
    key : str
        What follows it, without slashes around it.
    options : tuple of (str, str)
        As they are typed.
    size : int, optional
        Bytes, of an object that a store has listed.
    """

    scheme: str
    user: str
    host: str
    key: str
    options: tuple[tuple[str, str], ...]
    size: int | None

    def __new__(
        cls,
        scheme: str,
        user: str,
        host: str,
        key: str,
        options: tuple[tuple[str, str], ...] = (),
        size: int | None = None,
    ) -> Url:
        """Make the text without secrets, and keep the parts."""
        made = super().__new__(cls, _text(scheme, user, host, key, options))
        made.scheme, made.user, made.host, made.key, made.options, made.size = (
            *(scheme, user, host, key, options),
            size,
        )
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Url, (*self.identity, self.size)

    def __deepcopy__(self, memo: Any) -> str:
        """Return the text alone: documents are deep copies of reports."""
        return str(self)

    @property
    def identity(self) -> tuple[str, str, str, str, tuple[tuple[str, str], ...]]:
        """All that decides what is read, and with which secrets."""
        return self.scheme, self.user, self.host, self.key, self.options

    def at(self, key: str, size: int | None = None) -> Url:
        """Return the URL of another key of the same bucket."""
        return Url(self.scheme, self.user, self.host, key, self.options, size)


def as_url(path: str) -> Url | None:
    """Return a path as a URL if it is one: two letters or more, then `://`. A Windows path is none."""
    if isinstance(path, Url):
        return path
    found = _FORM.fullmatch(path) if "://" in path else None
    if found is None:
        return None
    scheme, user, host, rest = found[1].lower(), found[2] or "", found[3], found[4]
    key, *given = _OPTIONS.split(rest, maxsplit=1)
    pairs = tuple((name, value) for name, _, value in (one.partition("=") for one in _split(given)))
    return Url(scheme, user, host, key.rstrip("/"), pairs)


def addressed(path: str) -> str:
    """Return a path, or the URL that it is: so its secrets are never printed."""
    url = as_url(path)
    return path if url is None else url


def as_local(path: str) -> str:
    """Return the path that a `file://` URL stands for; any other path as it is."""
    if path[:7].lower() != "file://":
        return path
    from urllib.parse import unquote

    host, slash, rest = path[7:].partition("/")
    return unquote(slash + rest) if host in ("", "localhost") and slash else path


def _split(given: list[str]) -> list[str]:
    """Return the options of the text after a question mark."""
    return [one for one in given[0].split("&") if one] if given else []


def _text(scheme: str, user: str, host: str, key: str, options: tuple[tuple[str, str], ...]) -> str:
    """Return a URL without its secrets."""
    if user and scheme in AZURE:
        name, colon, _ = user.partition(":")
        before = f"{name}{colon}{HIDDEN if colon else ''}@"
    else:
        before = f"{HIDDEN}@" if user else ""
    if scheme in ("http", "https"):
        # Of these anything behind the path may be a signature.
        key, mark, _ = key.partition("?")
        options, key = (), f"{key}?{HIDDEN}" if mark or options else key
    shown = "&".join(f"{name}={_shown(name, value)}" for name, value in options)
    return f"{scheme}://{before}{host}{'/' if key else ''}{key}{'?' if shown else ''}{shown}"


def _shown(name: str, value: str) -> str:
    """Return an option's value, hidden where it is or may hold a secret."""
    return value if name in _OPEN_OPTIONS and "@" not in value and "%40" not in value else HIDDEN


_USER = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+:/{1,2})([^/\s@'\"]*):([^@\s'\"]*)@")
_SECRET_OPTION = re.compile(
    r"([?&](?:access_key|secret_key|session_token|access_token|token|sas_token|sas|account_key|client_secret"
    r"|sig|signature|password|X-Amz-[A-Za-z-]+|X-Goog-[A-Za-z-]+)=)[^&\s'\"]+",
    re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """Return a message without the secrets of URLs in it, whoever put them there."""
    if ":/" not in text:
        return text
    text = _USER.sub(lambda found: found[0] if found[3] == HIDDEN else f"{found[1]}{HIDDEN}@", text)
    return _SECRET_OPTION.sub(rf"\1{HIDDEN}", text)
