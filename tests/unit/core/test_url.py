"""What is a URL, what it is made of, and what is shown of it."""

from __future__ import annotations

import copy
import pickle

import pytest

from ppocli.core.url import Url, addressed, as_local, as_url, without_secrets


@pytest.mark.parametrize(
    ("text", "shown", "parts"),
    [
        ("s3://b/d/x", "s3://b/d/x", ("s3", "", "b", "d/x", ())),
        ("S3://b", "s3://b", ("s3", "", "b", "", ())),
        ("s3://b/d/", "s3://b/d", ("s3", "", "b", "d", ())),
        ("s3://b?region=eu", "s3://b?region=eu", ("s3", "", "b", "", (("region", "eu"),))),
        ("s3://b/run-?/x?.npz", "s3://b/run-?/x?.npz", ("s3", "", "b", "run-?/x?.npz", ())),
        (
            "s3://b/run-?/x?endpoint_override=http://h:1&secret_key=a/b",
            "s3://b/run-?/x?endpoint_override=http://h:1&secret_key=***",
            ("s3", "", "b", "run-?/x", (("endpoint_override", "http://h:1"), ("secret_key", "a/b"))),
        ),
        (
            "s3://b/x?endpoint_override=http://me:pw@h",
            "s3://b/x?endpoint_override=***",
            ("s3", "", "b", "x", (("endpoint_override", "http://me:pw@h"),)),
        ),
        ("s3://KEY:a/b+c@b/k", "s3://***@b/k", ("s3", "KEY:a/b+c", "b", "k", ())),
        ("s3://KEY@b/k@2", "s3://***@b/k@2", ("s3", "KEY", "b", "k@2", ())),
        ("abfs://c@a.dfs.x/k", "abfs://c@a.dfs.x/k", ("abfs", "c", "a.dfs.x", "k", ())),
        ("abfs://c:pw@a.dfs.x/k", "abfs://c:***@a.dfs.x/k", ("abfs", "c:pw", "a.dfs.x", "k", ())),
        (
            "hf://datasets/o/n@main/x",
            "hf://datasets/o/n@main/x",
            ("hf", "", "datasets", "o/n@main/x", ()),
        ),
        ("https://u:p@h/x?sig", "https://***@h/x?***", ("https", "u:p", "h", "x?sig", ())),
    ],
)
def test_parts_and_text(text: str, shown: str, parts: tuple[object, ...]) -> None:
    url = as_url(text)
    assert url is not None
    assert url == shown
    assert url.identity == parts


@pytest.mark.parametrize(
    "path", ["x", "~/x", "C:\\x", "C:/x", "C://x", "./s3://b", "/s3://x", "-", "a b://c", "s3:/b/x", ""]
)
def test_paths_are_no_urls(path: str) -> None:
    assert as_url(path) is None
    assert type(addressed(path)) is str


def test_a_url_goes_whole_to_another_process_and_as_text_into_documents() -> None:
    url = as_url("s3://KEY:hush@b/x?secret_key=hush&region=eu")
    assert url is not None
    again = pickle.loads(pickle.dumps(url.at("y", 7)))
    assert isinstance(again, Url)
    assert (again.identity, again.size) == (("s3", "KEY:hush", "b", "y", url.options), 7)
    assert type(copy.deepcopy(url)) is str
    assert "hush" not in repr([url]) + f"{url}" + url.lower()


def test_file_urls() -> None:
    assert as_local("file:///a%20b/*.npz") == "/a b/*.npz"
    assert as_local("file://localhost/a") == "/a"
    assert as_local("file://elsewhere/a") == "file://elsewhere/a"
    assert as_local("/a%20b") == "/a%20b"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("cannot write 's3:/K:S@b/x'", "cannot write 's3:/***@b/x'"),
        ("s3://K:a/b@b/x and s3://b/x?a=1&secret_key=S'", "s3://***@b/x and s3://b/x?a=1&secret_key=***'"),
        ("abfs://c:***@a/k", "abfs://c:***@a/k"),
        ("https://h/x?X-Amz-Signature=abc&y", "https://h/x?X-Amz-Signature=***&y"),
        ("12:30 me@b, s3://b/x: y@z", "12:30 me@b, s3://b/x: y@z"),
    ],
)
def test_messages(text: str, left: str) -> None:
    assert without_secrets(text) == left
