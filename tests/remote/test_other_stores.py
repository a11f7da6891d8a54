"""Google Cloud Storage against a small server, Azure as far as its address, the hub by a stand-in."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from remote_gcs import FakeGcs

import ppocli
from ppocli.cli.app import main
from ppocli.core.url import as_url
from ppocli.errors import EmptyInput, InputError, StorageError
from ppocli.io import remote, stores
from ppocli.io.source import expand

NAMES = ("log_probs", "old_log_probs", "advantages")


def file_of(n: int) -> bytes:
    draw, out = np.random.default_rng(3), io.BytesIO()
    table = {name: draw.normal(size=n) - 2 for pair in NAMES for name in (pair, f"other_{pair}")}
    pq.write_table(pa.table(table), out)
    return out.getvalue()


@pytest.fixture
def gcs() -> Iterator[FakeGcs]:
    server = FakeGcs("rollouts")
    yield server
    server.close()


def test_google_cloud_storage(gcs: FakeGcs, tmp_path: Any) -> None:
    whole = file_of(100_000)
    for name, content in {"run-1/x": whole, "run-2/x": whole, "run-2/_x": b"", "y": b""}.items():
        gcs.put(f"{name}.parquet", content)
    (tmp_path / "x.parquet").write_bytes(whole)
    here = ppocli.evaluate(str(tmp_path / "x.parquet"))
    for scheme in ("gs", "gcs"):
        gcs.ranges()
        url = f"{scheme}://rollouts/run-1/x.parquet{gcs.options}"
        assert ppocli.evaluate(url).metrics == here.metrics
        assert gcs.ranges() < len(whole) * 0.6 + remote.EDGE
    files, skipped = expand([f"gs://rollouts/run-*/*{gcs.options}"])
    assert [as_url(one).key for one in files] == ["run-1/x.parquet", "run-2/x.parquet"]  # type: ignore[union-attr]
    assert len(skipped) == 1
    with pytest.raises(InputError, match="no such object"):
        expand([f"gs://rollouts/run-1/z.parquet{gcs.options}"])
    with pytest.raises(EmptyInput):
        expand([f"gs://rollouts/run-1/*.npz{gcs.options}"])
    for key in ("x.parquet", "d/*", "*"):
        with pytest.raises(StorageError, match="no such bucket: 'nowhere'"):
            expand([f"gs://nowhere/{key}{gcs.options}"])


@pytest.mark.parametrize(("status", "said"), [(401, "credentials are refused"), (403, "access denied")])
def test_google_cloud_storage_refuses(gcs: FakeGcs, status: int, said: str) -> None:
    gcs.refuse(status)
    options = gcs.options.replace("anonymous=true", "access_token=never-shown")
    for key in ("x.parquet", "d/*"):
        with pytest.raises(StorageError, match=said) as caught:
            expand([f"gs://rollouts/{key}{options}"])
        assert "gcloud auth" in str(caught.value.hint)
        assert "never-shown" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "variables", "account", "settings", "path"),
    [
        (
            "abfs://box@acct.dfs.core.windows.net/d/x.parquet?sas_token=s%26g",
            {"AZURE_STORAGE_KEY": "k"},
            "acct",
            {"sas_token": "s&g"},
            "box/d/x.parquet",
        ),
        (
            "abfss://acct.blob.core.windows.net/box/x.parquet",
            {"AZURE_STORAGE_KEY": "k"},
            "acct",
            {"account_key": "k"},
            "box/x.parquet",
        ),
        ("abfs://acct:p%2Fw@box/x", {}, "acct", {"account_key": "p/w"}, "box/x"),
        (
            "abfs://box/x?blob_storage_authority=127.0.0.1:1&blob_storage_scheme=http",
            {"AZURE_STORAGE_ACCOUNT": "acct", "AZURE_STORAGE_SAS_TOKEN": "sig"},
            "acct",
            {"blob_storage_authority": "127.0.0.1:1", "blob_storage_scheme": "http", "sas_token": "sig"},
            "box/x",
        ),
    ],
)
def test_addresses_of_azure(
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    variables: dict[str, str],
    account: str,
    settings: dict[str, str],
    path: str,
) -> None:
    made: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(fs, "AzureFileSystem", lambda account, **settings: made.append((account, settings)))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    stores.forget()
    known = as_url(url)
    assert known is not None
    stores.store_of(known)
    stores.forget()
    assert made == [(account, settings)]
    assert stores.path_of(known) == path
    assert stores.bucket_of(known) == "box"


def test_azure_can_be_made() -> None:
    known = as_url("abfs://box@acct.dfs.core.windows.net/x?account_key=a2V5")
    assert known is not None
    assert stores.store_of(known).type_name == "abfs"


class FakeHub:
    """What of `fsspec` an HfFileSystem is asked for here."""

    protocol = "hf"
    content = file_of(50_000)

    def __init__(self, **settings: Any) -> None:
        assert settings in ({}, {"token": "hf_never_shown"})
        self._files = {
            "datasets/me/rollouts/run-1/x.parquet": self.content,
            "datasets/me/rollouts/y.md": b"y",
        }

    def info(self, path: str) -> dict[str, Any]:
        if path in self._files:
            return {"name": path, "size": len(self._files[path]), "type": "file"}
        if any(name.startswith(f"{path}/") for name in self._files):
            return {"name": path, "size": 0, "type": "directory"}
        raise FileNotFoundError(path)

    def isdir(self, path: str) -> bool:
        return path not in self._files and any(name.startswith(f"{path}/") for name in self._files)

    def isfile(self, path: str) -> bool:
        return path in self._files

    def exists(self, path: str) -> bool:
        return self.isdir(path) or self.isfile(path)

    def find(self, path: str, maxdepth: int | None, withdirs: bool, detail: bool) -> dict[str, Any]:
        below = [name for name in self._files if name.startswith(f"{path}/")]
        paths = {
            f"{path}/{'/'.join(name[len(path) + 1 :].split('/')[:depth])}"
            for name in below
            for depth in range(1, 1 + (maxdepth or 9))
        }
        return {one: self.info(one) for one in sorted(paths)}

    def open(self, path: str, mode: str) -> io.BytesIO:
        assert mode == "rb"
        return io.BytesIO(self._files[path])


def test_the_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    module = ModuleType("huggingface_hub")
    module.HfFileSystem = FakeHub  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    (tmp_path / "x.parquet").write_bytes(FakeHub.content)
    here = ppocli.evaluate(str(tmp_path / "x.parquet"))
    for key in ("run-1/x.parquet", "run-*/x.parquet", "run-1", "**/*.parquet", ""):
        there = ppocli.evaluate(f"hf://datasets/me/rollouts/{key}?token=hf_never_shown")
        assert there.metrics == here.metrics
        assert there.inputs[0].path == "hf://datasets/me/rollouts/run-1/x.parquet?token=***"
    with pytest.raises(StorageError, match="no such repository: 'datasets/me/nothing'"):
        expand(["hf://datasets/me/nothing/x.parquet"])
    with pytest.raises(InputError, match="no such object"):
        expand(["hf://datasets/me/rollouts/x.parquet"])


def test_the_hub_needs_its_library(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert main(["eval", "hf://datasets/me/rollouts/x.parquet"]) == 2
    assert capsys.readouterr().err == ("error: hf:// needs huggingface_hub\nhelp: pip install 'ppocli[hf]'\n")


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        (
            "https://huggingface.co/datasets/me/rollouts/resolve/main/run-1/x.parquet",
            "hf://datasets/me/rollouts/run-1/x.parquet",
        ),
        ("https://host/x.parquet", "download the file first"),
        ("s3a://bucket/x.parquet", "s3://bucket/x.parquet"),
        ("hdfs://host/x.parquet", "download the file first"),
    ],
)
def test_urls_that_are_not_read(capsys: pytest.CaptureFixture[str], url: str, hint: str) -> None:
    assert main(["eval", url]) == 3
    said = capsys.readouterr().err
    assert f"{url.partition(':')[0]}:// is not read" in said
    assert hint in said
