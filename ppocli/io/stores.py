"""Stores of objects: S3, Google Cloud Storage, Azure and the Hugging Face hub, by way of `pyarrow.fs`.

Credentials and endpoints come from where the store's own tools take them (variables, their files, the
machine's role), and options of the URL go before.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyarrow import fs

from ppocli.core.url import AZURE, HIDDEN, Url
from ppocli.errors import InputError, PpoCliError, StorageError, UsageProblem, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMES = ("s3", "gs", "gcs", *AZURE, "hf")

ATTEMPTS = 5
"""How often a request to S3 is tried, unless AWS_MAX_ATTEMPTS says it."""

_CONNECT_SECONDS = _REQUEST_SECONDS = 10.0
_GIVE_UP_SECONDS = 60.0


@functools.lru_cache(maxsize=32)
def _store(scheme: str, user: str, host: str, options: tuple[tuple[str, str], ...]) -> Any:
    """Return the file system for a bucket; made once for an evaluation (see `places.forget`)."""
    url = Url(scheme, user, host, "", options)
    given = {name: unquote(value) for name, value in options}
    make, known = _MAKERS[scheme]
    unknown = sorted(given.keys() - known)
    if unknown:
        raise UsageProblem(
            f"{scheme}:// has no option '{one_line(unknown[0])}'",
            hint=f"known after the ?: {', '.join(sorted(known))}",
        )
    try:
        return make(url, given)
    except PpoCliError:
        raise
    except Exception as failure:  # of many kinds, and none of them has read anything
        raise failed(url, failure, "the store cannot be reached", whole=True) from None


def store_of(url: Url) -> Any:
    """Return the file system that a URL's objects are in.

    Raises
    ------
    UsageProblem
        An option that the scheme does not have or whose value it does not take; a library that is missing.
    InputError
        A scheme that is not read.
    StorageError
    """
    if url.scheme not in SCHEMES:
        raise not_read(url)
    return _store(url.scheme, url.user, url.host, url.options)


def forget() -> None:
    """Forget file systems: variables and credentials may change between two evaluations of one process."""
    _store.cache_clear()


def not_read(url: Url) -> InputError:
    """Return the error for a URL that no store of `SCHEMES` is for."""
    hint = "download the file first, and give its path"
    if url.scheme in ("http", "https"):
        if url.host == "huggingface.co":
            parts = [one for one in url.key.split("/") if one not in ("resolve", "blob", "main")]
            hint = f"read it from the hub: hf://{'/'.join(parts)}"
        return InputError(
            f"{url.scheme}:// is not read: it has no folders and patterns", where=url, hint=hint
        )
    if url.scheme == "s3a" or url.scheme == "s3n":
        hint = f"write s3://{url.host}/{url.key}"
    return InputError(
        f"{one_line(url.scheme)}:// is not read",
        where=url,
        hint=f"read are {'://, '.join(SCHEMES)}://; {hint}",
    )


def path_of(url: Url, key: str | None = None) -> str:
    """Return where an object is in its file system."""
    key = url.key if key is None else key
    root = container_of(url) if url.scheme in AZURE else url.host
    if url.scheme in AZURE and not _has_container(url):
        return key
    return f"{root}/{key}" if key else root


def bucket_of(url: Url) -> str:
    """Return the path of a URL's bucket: a container on Azure, a repository on the Hugging Face hub."""
    if url.scheme == "hf":
        named = url.host in ("datasets", "spaces", "buckets")
        return "/".join([url.host, *url.key.split("/")[: 2 if named else 1]])
    return path_of(url, "") if _has_container(url) else url.key.partition("/")[0]


_OWN_S3 = ("connect_timeout", "request_timeout", "endpoint_override")


def _s3(url: Url, given: Mapping[str, str]) -> Any:
    """Make the file system of S3 and what speaks its protocol."""
    access, _, secret = url.user.partition(":")
    settings: dict[str, Any] = (
        {"access_key": unquote(access), "secret_key": unquote(secret)} if access else {}
    )
    settings |= {name: value for name, value in given.items() if name not in _OWN_S3}
    for name in ("anonymous", "force_virtual_addressing"):
        if name in settings:
            settings[name] = _yes(url, name, settings[name])
    endpoint = given.get("endpoint_override") or _variable("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    if endpoint:
        scheme, mark, rest = endpoint.partition("://")
        settings["endpoint_override"] = (rest if mark else endpoint).rstrip("/")
        if mark:
            settings.setdefault("scheme", scheme)
    settings["connect_timeout"], settings["request_timeout"] = (
        _number(url, "connect_timeout", given.get("connect_timeout"), _CONNECT_SECONDS),
        _number(url, "request_timeout", given.get("request_timeout"), _REQUEST_SECONDS),
    )
    region = given.get("region") or _variable("AWS_REGION", "AWS_DEFAULT_REGION")
    if not region:
        region = "us-east-1" if endpoint else fs.resolve_s3_region(url.host)
    return fs.S3FileSystem(
        **{**settings, "region": region},
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_attempts()),
    )


def _attempts() -> int:
    """Return how often a request to S3 is tried."""
    given = _variable("AWS_MAX_ATTEMPTS") or ""
    return max(1, int(given)) if given.isdecimal() else ATTEMPTS


def _gcs(url: Url, given: Mapping[str, str]) -> Any:
    """Make the file system of Google Cloud Storage."""
    settings: dict[str, Any] = {
        name: given[name] for name in ("scheme", "endpoint_override", "project_id") if name in given
    }
    if "access_token" in given:
        from datetime import UTC, datetime

        settings["access_token"] = given["access_token"]
        settings["credential_token_expiration"] = datetime.now(UTC) + timedelta(hours=1)
    seconds = _number(url, "retry_limit_seconds", given.get("retry_limit_seconds"), _GIVE_UP_SECONDS)
    return fs.GcsFileSystem(
        anonymous=url.user == "anonymous" or _yes(url, "anonymous", given.get("anonymous", "false")),
        retry_time_limit=timedelta(seconds=seconds),
        **settings,
    )


def _azure(url: Url, given: Mapping[str, str]) -> Any:
    """Make the file system of an Azure storage account."""
    account, key = account_of(url)
    settings = {
        "account_key": key or _variable("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY"),
        "sas_token": _variable("AZURE_STORAGE_SAS_TOKEN"),
        **given,
    }
    if settings["account_key"] and settings["sas_token"]:
        # One of the two only; what the URL says goes before the variables.
        settings["account_key" if "sas_token" in given else "sas_token"] = None
    return fs.AzureFileSystem(account, **{name: value for name, value in settings.items() if value})


def account_of(url: Url) -> tuple[str, str]:
    """Return the storage account that a URL names, or a variable, and the key that the URL gives.

    `container@account.dfs.core.windows.net/path`, `account.blob.core.windows.net/container/path`,
    `account@container/path`, and `container/path` with AZURE_STORAGE_ACCOUNT.
    """
    name, _, key = url.user.partition(":")
    account = (
        url.host.partition(".")[0]
        if "." in url.host
        else name or _variable("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME")
    )
    if not account:
        raise UsageProblem(
            f"{url.scheme}:// needs a storage account: {url}",
            hint="abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH, or set AZURE_STORAGE_ACCOUNT",
        )
    return account, unquote(key)


def container_of(url: Url) -> str:
    """Return the container that stands before the path; empty where it is the path's first part."""
    if "." not in url.host:
        return url.host
    return url.user.partition(":")[0] if ".dfs." in url.host else ""


def _has_container(url: Url) -> bool:
    """Return whether a URL names its bucket before the key."""
    return url.scheme not in AZURE or bool(container_of(url))


def _hub(url: Url, given: Mapping[str, str]) -> Any:
    """Make the file system of the Hugging Face hub."""
    try:
        from huggingface_hub import HfFileSystem
    except ImportError:
        raise UsageProblem("hf:// needs huggingface_hub", hint="pip install 'ppocli[hf]'") from None
    return fs.PyFileSystem(fs.FSSpecHandler(HfFileSystem(**given)))


_MAKERS: dict[str, tuple[Callable[[Url, Mapping[str, str]], Any], frozenset[str]]] = {
    "s3": (
        _s3,
        frozenset(
            (
                *("access_key", "secret_key", "session_token", "anonymous", "region", "scheme"),
                *("endpoint_override", "connect_timeout", "request_timeout"),
                *("force_virtual_addressing", "tls_ca_file_path"),
                *("role_arn", "session_name", "external_id"),
            )
        ),
    ),
    **dict.fromkeys(
        ("gs", "gcs"),
        (
            _gcs,
            frozenset(
                (
                    *("anonymous", "access_token", "scheme", "endpoint_override", "project_id"),
                    "retry_limit_seconds",
                )
            ),
        ),
    ),
    **dict.fromkeys(
        AZURE,
        (
            _azure,
            frozenset(
                (
                    *("account_key", "sas_token", "client_id", "client_secret", "tenant_id"),
                    *("blob_storage_authority", "blob_storage_scheme"),
                    *("dfs_storage_authority", "dfs_storage_scheme"),
                )
            ),
        ),
    ),
    "hf": (_hub, frozenset(("token", "endpoint"))),
}


def _variable(*names: str) -> str | None:
    """Return the first of some environment variables that is set."""
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _yes(url: Url, name: str, value: str) -> bool:
    """Return an option that is true or false."""
    if value.lower() not in ("true", "false", "1", "0", ""):
        raise UsageProblem(f"option '{name}' of {url.scheme}:// is true or false")
    return value.lower() in ("true", "1", "")


def _number(url: Url, name: str, value: str | None, default: float) -> float:
    """Return an option that is a number."""
    try:
        return default if value is None else float(value)
    except ValueError:
        raise UsageProblem(f"option '{name}' of {url.scheme}:// is a number") from None


# What the messages of the stores' libraries say, in their words.
_BUCKET = re.compile(
    r"NO_SUCH_BUCKET|NoSuchBucket|bucket does not exist|ContainerNotFound|Bucket '.*' not found"
)
_CREDENTIALS = re.compile(
    r"INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|INVALID_CLIENT_TOKEN|UNRECOGNIZED_CLIENT|ExpiredToken"
    r"|EXPIRED_TOKEN|TokenRefreshRequired|InvalidToken|REQUEST_EXPIRED|UNAUTHENTICATED|invalid_grant"
    r"|AuthenticationFailed|InvalidAuthenticationInfo|AuthorizationHeaderMalformed|Could not create a OAuth2"
    r"|CredentialUnavailable|authentication unavailable|\b401\b",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"ACCESS_DENIED|PERMISSION_DENIED|AuthorizationPermissionMismatch|Forbidden|\b403\b", re.I
)
_NETWORK = re.compile(
    r"NETWORK_CONNECTION|curlCode|timed? ?out|Timeout|connection|UNAVAILABLE|SLOW_DOWN|INTERNAL_FAILURE"
    r"|\b50[0-9]\b|resolve host",
    re.IGNORECASE,
)
_REDIRECT = re.compile(r"PERMANENT_REDIRECT|HTTP status 301")

_LOG_IN = {
    "s3": "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; a public bucket: ?anonymous=true",
    "gs": "gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS; a public bucket: "
    "?anonymous=true",
    "abfs": "az login, or set AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN",
    "hf": "set HF_TOKEN, or: hf auth login",
}


_SECRET_VARIABLES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_KEY", "HF_TOKEN")


def failed(url: Url, failure: Exception, what: str, *, whole: bool) -> PpoCliError:
    """Return the error for a request that a store has not answered, or answered with a refusal.

    Parameters
    ----------
    url : Url
    failure : Exception
        Of the store's library.
    what : str
        What could not be done: the beginning of the message.
    whole : bool
        A refusal concerns the whole call, and not one object alone.
    """
    said = _said(url, failure)
    log_in = _LOG_IN[{"gcs": "gs", "abfss": "abfs"}.get(url.scheme, url.scheme)]
    if _BUCKET.search(said):
        return no_bucket(url)
    if _CREDENTIALS.search(said):
        return StorageError(f"the credentials are refused: {said}", where=url, hint=log_in)
    if _DENIED.search(said):
        kind = StorageError if whole else InputError
        return kind(f"access denied: {said}", where=url, hint=f"wrong credentials, or none: {log_in}")
    if _REDIRECT.search(said):
        hint = "set AWS_REGION, or give the region in the URL: ?region=NAME"
        return StorageError("the bucket is in another region", where=url, hint=hint)
    if isinstance(failure, FileNotFoundError):
        return InputError("no such object", where=url)
    if _NETWORK.search(said):
        hint = "is the store reachable from here, and its address (endpoint_override) right? Try it again"
        tried = f" (tried {_attempts()} times)" if url.scheme == "s3" else ""
        return InputError(f"{what}: {said}{tried}", where=url, hint=hint)
    return InputError(f"{what}: {said}", where=url)


def no_bucket(url: Url) -> StorageError:
    """Return the error for a bucket that does not exist."""
    word = {"hf": "repository", "abfs": "container", "abfss": "container"}.get(url.scheme, "bucket")
    return StorageError(f"no such {word}: '{one_line(bucket_of(url))}'", where=url)


def _said(url: Url, failure: Exception) -> str:
    """Return the first line of a library's message, without secrets and what differs from call to call."""
    text = (str(failure).strip() or type(failure).__name__).splitlines()[0]
    secrets = [*url.user.split(":"), *(value for _, value in url.options)]
    secrets += [os.environ.get(name, "") for name in _SECRET_VARIABLES]
    for secret in secrets:
        for form in (secret, unquote(secret)):
            if len(form) > 3 and form not in url:
                text = text.replace(form, HIDDEN)
    text = re.sub(r"^When .*?: (?=AWS Error)", "", text)
    return re.sub(r"\s*\(Request ID: [^)]*\)|\s*Details: .*$", "", text).rstrip(".; ")
