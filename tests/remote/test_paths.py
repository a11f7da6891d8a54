"""Folders and patterns on a store: what local paths of the same names give."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ppocli.core.url import Url
from ppocli.errors import EmptyInput, InputError
from ppocli.io.source import expand

if TYPE_CHECKING:
    from remote.conftest import Server
    from remote_proxy import Proxy

NAMES = (
    *("run-1/x.parquet", "run-2/x.parquet", "run-10/x.parquet", "run-10/y.npz", "run-2/notes.txt"),
    *("run-2/step=3/part.2.parquet", "run-2/step=3/part.10.parquet", "run-2/.cache/z.parquet"),
    *("run-2/_tmp/z.parquet", "run-2/_SUCCESS", "run-2/.hidden.parquet", "run-1/log.jsonl"),
    *("a b/[1].parquet", "a b/1.parquet", "50%25/x.parquet", "deep/er/est/x.arrow"),
)


@pytest.fixture(scope="module")
def folder(server: Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[Server, Path]:
    """The same files in a bucket and here."""
    here = tmp_path_factory.mktemp("here")
    there = replace(server, bucket="folders")
    there.store.create_dir("folders")
    for name in NAMES:
        there.put(name, b"x")
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(b"x")
    return there, here


@pytest.fixture
def both(folder: tuple[Server, Path], monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.chdir(folder[1])
    return folder[0]


@pytest.mark.parametrize(
    "path",
    [
        *("run-1", "run-2", "run-2/", "run-*/x.parquet", "run-?/x.parquet", "run-[12]/x.parquet", "run-*"),
        *("**/x.parquet", "**", "run-2/**", "run-2/**/*.parquet", "**/step=*/*", "run-*/*.jsonl"),
        *("run-2/.*", "run-2/.cache/*", "run-2/_tmp", "run-2/*/*", "a b/[1].parquet", "a b/*"),
        *("50%25/x.parquet", "deep/*/*/x.arrow", "*/x.*", "run-1*/", "deep/**/est"),
    ],
)
def test_a_store_is_looked_up_as_a_folder_is(both: Server, path: str) -> None:
    there, skipped = expand([both.url(path)])
    here, left_out = expand([path])
    assert here
    keys = [url.key for url in there if isinstance(url, Url)]
    assert keys == [str(Path(one)) for one in here]
    urls = [(both.url(str(Path(one.path))), one.reason) for one in left_out]
    assert [(str(one.path), one.reason) for one in skipped] == urls


def test_sizes_come_with_the_listing(both: Server) -> None:
    from ppocli.engine.reading import total_bytes

    files, _ = expand([both.url("run-2")])
    assert total_bytes(files) == len(files) == 3


def test_folders_are_listed_with_few_requests(both: Server, proxy: Proxy) -> None:
    expand([f"s3://folders/run-2{proxy.options}"])
    # The object that is none, the folder that is there, what is below it.
    assert len(proxy.requests) <= 3
    proxy.reset()
    expand([f"s3://folders/run-*/x.parquet{proxy.options}"])
    # No such object, the bucket, one listing, and three objects.
    assert len(proxy.requests) <= 3 + 1 + 3


def test_the_whole_bucket(both: Server) -> None:
    files, _ = expand([f"s3://folders{both.options}"])
    assert len(files) == 10
    assert files == expand([f"s3://folders/{both.options}"])[0] == expand([both.url("**")])[0]


def test_urls_and_paths_together_and_each_object_once(both: Server) -> None:
    url = both.url("run-1/x.parquet")
    files, skipped = expand([url, "run-1/x.parquet", both.url("run-1/*.parquet")])
    assert files == (url, "run-1/x.parquet")
    assert [one.reason for one in skipped] == [f"same file as '{url}'"]


def test_what_is_not_there(both: Server) -> None:
    with pytest.raises(InputError, match="no such object") as caught:
        expand([both.url("run-1/xx.parquet")])
    assert caught.value.where == both.url("run-1/xx.parquet")
    assert both.url("run-1/x.parquet") in str(caught.value.hint)
    with pytest.raises(InputError, match="no such object") as caught:
        expand([both.url("nowhere/x.parquet")])
    assert "does not exist either" in str(caught.value.hint)
    with pytest.raises(EmptyInput) as empty:
        expand([both.url("run-2/*.npz")])
    assert empty.value.exit_code == 5
    assert "holds" in str(empty.value.hint)
    both.put("run-2/_empty/notes.txt", b"x")
    with pytest.raises(EmptyInput, match="no rollout file in") as empty:
        expand([both.url("run-2/_empty")])
    assert str(empty.value.hint).endswith("holds 'notes.txt'")
    with pytest.raises(InputError, match="a pattern cannot stand for buckets"):
        expand([f"s3://roll*/x{both.options}"])


def test_file_urls_are_paths(folder: tuple[Server, Path]) -> None:
    here = folder[1]
    assert expand([f"file://{here}/a%20b/1.parquet"])[0] == (f"{here}/a b/1.parquet",)
    assert expand([f"file://localhost{here}/run-*/x.parquet"])[0] == tuple(
        f"{here}/run-{n}/x.parquet" for n in (1, 2, 10)
    )
