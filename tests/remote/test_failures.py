"""Stores that refuse and connections that break: the URL is named, and secrets are not."""

from __future__ import annotations

import io
import json
import socket
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ppocli
from ppocli.cli.app import main
from ppocli.errors import InputError, PpoCliError, StorageError, UsageProblem
from ppocli.io.source import expand

if TYPE_CHECKING:
    from remote.conftest import Server
    from remote_proxy import Proxy

SECRETS = ("AKIAWRONGKEY", "never/print+this", "never%2Fprint%2Bthis", "token-never-shown")
WITH_USER = "s3://AKIAWRONGKEY:never%2Fprint%2Bthis@rollouts/"
IN_OPTIONS = "&access_key=AKIAWRONGKEY&secret_key=never%2Fprint%2Bthis&session_token=token-never-shown"


def file_of(n: int) -> bytes:
    draw, out = np.random.default_rng(0), io.BytesIO()
    table = {name: draw.normal(size=n) - 2 for name in ("log_probs", "old_log_probs", "advantages")}
    pq.write_table(pa.table(table), out, row_group_size=20_000)
    return out.getvalue()


@pytest.fixture
def strict(s3: Server) -> Iterator[Server]:
    """The server, asking for credentials, of which it knows none."""
    from moto import settings
    from moto.core.responses import ActionAuthenticatorMixin

    s3.put("d/a.parquet", file_of(1_000))
    before = settings.INITIAL_NO_AUTH_ACTION_COUNT
    ActionAuthenticatorMixin.request_count = 0
    settings.INITIAL_NO_AUTH_ACTION_COUNT = 0.0
    yield s3
    settings.INITIAL_NO_AUTH_ACTION_COUNT = before


def test_a_connection_that_breaks_once_is_made_again(s3: Server, proxy: Proxy) -> None:
    s3.put("a.parquet", file_of(100_000))
    proxy.drop_after, proxy.drops = 300_000, 1
    report = ppocli.evaluate(f"s3://rollouts/a.parquet{proxy.options}")
    assert proxy.drops == 0
    there = ppocli.evaluate(s3.url("a.parquet"))
    assert report.metrics == there.metrics
    assert report.metrics["n_tokens"] == 100_000


@pytest.mark.parametrize("kind", ["a.parquet", "a.npz", "a.jsonl"])
def test_a_connection_that_always_breaks(
    s3: Server, proxy: Proxy, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    out = io.BytesIO(file_of(100_000))
    if kind == "a.npz":
        out = io.BytesIO()
        np.savez(out, **{name: np.zeros(100_000) for name in ("log_probs", "old_log_probs", "advantages")})
    if kind == "a.jsonl":
        line = json.dumps({name: [-1.0] * 9_000 for name in ("log_probs", "old_log_probs", "advantages")})
        out = io.BytesIO(f"{line}\n".encode() * 20)
    s3.put(kind, out.getvalue())
    proxy.drop_after = 200_000
    url = f"s3://rollouts/{kind}{proxy.options}"
    assert main(["eval", url]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: the object cannot be read: AWS Error NETWORK_CONNECTION")
    assert "(tried 2 times)" in said.err
    assert f"  --> {url}\n" in said.err


def test_skip_bad_leaves_an_unreadable_object_out(
    s3: Server, proxy: Proxy, capsys: pytest.CaptureFixture[str]
) -> None:
    s3.put("d/a.parquet", file_of(1_000))
    s3.put("d/b.parquet", file_of(100_000))
    s3.put("d/c.parquet", b"no such thing")
    proxy.drop_after, proxy.drop_path = 100_000, "b.parquet"
    assert main(["eval", f"s3://rollouts/d{proxy.options}", "--skip-bad", "-f", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["metrics"]["n_tokens"] == 1_000
    reasons = [one["reason"] for one in document["skipped"]]
    assert [one["path"].split("?")[0] for one in document["skipped"]] == [
        "s3://rollouts/d/b.parquet",
        "s3://rollouts/d/c.parquet",
    ]
    assert reasons[0].startswith("unreadable: the object cannot be read: AWS Error NETWORK_CONNECTION")
    assert reasons[1].startswith("unreadable: not a file of a known format")


def test_a_server_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        url = f"s3://rollouts/a.parquet?endpoint_override=http://127.0.0.1:{port}&request_timeout=1"
        with pytest.raises(InputError, match="Timeout was reached") as caught:
            expand([url])
    assert caught.value.where == url
    assert "reachable" in str(caught.value.hint)


def test_a_server_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(InputError, match="NETWORK_CONNECTION"):
        expand([f"s3://rollouts/a.parquet?endpoint_override=http://127.0.0.1:{port}"])


@pytest.mark.parametrize("key", ["a.parquet", "d", "*.parquet", "**", "d/*/x", ""])
def test_a_missing_bucket(s3: Server, key: str) -> None:
    with pytest.raises(StorageError, match="no such bucket: 'nowhere'") as caught:
        expand([f"s3://nowhere/{key}{s3.options}"])
    assert caught.value.exit_code == 3
    assert str(caught.value.where).startswith("s3://nowhere")


@pytest.mark.parametrize("key", ["d/a.parquet", "d", "d/*.parquet", "**/*.parquet"])
@pytest.mark.parametrize("skip", [[], ["--skip-bad"]])
@pytest.mark.parametrize("way", ["user", "options", "variables"])
def test_wrong_credentials_concern_the_whole_call(
    strict: Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    key: str,
    skip: list[str],
    way: str,
) -> None:
    monkeypatch.setenv("PPOCLI_DEBUG", "1")
    url = strict.url(key)
    if way == "user":
        url = f"{WITH_USER}{key}{strict.options}"
    elif way == "options":
        url += IN_OPTIONS
    else:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", SECRETS[0])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRETS[1])
    assert main(["eval", url, *skip]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert "Traceback" in said.err
    assert "error: access denied" in said.err or "error: the credentials are refused" in said.err
    assert "AWS_ACCESS_KEY_ID" in said.err
    assert "rollouts" in said.err
    assert not [one for one in SECRETS if one in said.err]


def test_secrets_are_in_no_document(s3: Server, capsys: pytest.CaptureFixture[str]) -> None:
    s3.put("d/a.parquet", file_of(1_000))
    s3.put("d/b.txt", b"x")
    for url in (f"{WITH_USER}d{s3.options}", f"s3://rollouts/d{s3.options}{IN_OPTIONS}"):
        for words in (
            ["eval", url, "--worst", "2"],
            ["eval", url],
            ["check", url, "--max", "clip_frac=1"],
            ["check", url, "--max", "clip_frac=1", "-f", "junit"],
            ["check", url + "x", "--max", "clip_frac=1", "-f", "junit"],
            ["inspect", url],
            ["parity", url],
            ["drift", url, "--a", "log_probs", "--b", "old_log_probs", "-f", "json"],
            ["eval", url, "-f", "json"],
            ["eval", url, "-f", "csv"],
            ["eval", url, "-o", url],
            ["convert", url, "-o", url],
            ["eval", url, "--nothing", url],
            ["drift", url, url, url],
        ):
            main(words)
            said = capsys.readouterr()
            assert said.out + said.err
            assert not [one for one in SECRETS if one in said.out + said.err], words
    assert main(["eval", f"{WITH_USER}d/a.parquet{s3.options}", "-f", "json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["inputs"]
    assert one["path"] == f"s3://***@rollouts/d/a.parquet{s3.options}"


def test_secrets_are_in_no_traceback_of_python(strict: Server) -> None:
    with pytest.raises(PpoCliError) as caught:
        ppocli.evaluate(f"{WITH_USER}d/a.parquet{strict.options}")
    text = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert not [one for one in SECRETS if one in text]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://b/k?bucket=x", "s3:// has no option 'bucket'"),
        ("gs://b/k?region=x", "gs:// has no option 'region'"),
        ("s3://b/k?anonymous=perhaps", "'anonymous' of s3:// is true or false"),
        ("s3://b/k?connect_timeout=soon", "'connect_timeout' of s3:// is a number"),
        ("abfs://container/k", "needs a storage account"),
    ],
)
def test_options_that_are_none(url: str, said: str) -> None:
    with pytest.raises(UsageProblem, match=r"option|account") as caught:
        expand([url])
    assert said in str(caught.value)
    assert caught.value.exit_code == 2


def test_no_room_for_what_is_read(s3: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    url = s3.put("a.parquet", file_of(100_000))
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    with pytest.raises(InputError, match="no room for what is read") as caught:
        ppocli.evaluate(url)
    assert caught.value.where == url
    assert "TMPDIR" in str(caught.value.hint)


def test_damage_is_told_with_its_row_group(s3: Server) -> None:
    whole = bytearray(file_of(100_000))
    meta = pq.ParquetFile(io.BytesIO(whole)).metadata
    start = meta.row_group(3).column(1).data_page_offset
    whole[start : start + 40] = b"\xff" * 40
    url = s3.put("bad.parquet", bytes(whole))
    with pytest.raises(InputError, match="damaged") as caught:
        ppocli.evaluate(url)
    assert caught.value.where == f"{url}, row group 3"
    url = s3.put("cut.parquet", file_of(100_000)[:-100])
    with pytest.raises(InputError, match="truncated"):
        ppocli.evaluate(url)
    with pytest.raises(InputError, match="empty"):
        ppocli.evaluate(s3.put("empty.parquet", b""))
