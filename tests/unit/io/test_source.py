from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ppocli.core.chunk import ReadOptions
from ppocli.errors import EmptyInput, InputError
from ppocli.io.source import expand, natural_key, open_input

BYTES = {"log_probs": [-1.0], "old_log_probs": [-1.1], "advantages": [1.0]}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def touch(*names: str) -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(b"x")


def refusal(path: str) -> InputError:
    with pytest.raises(InputError) as caught:
        open_input(path, ReadOptions(), {})
    assert str(caught.value.where).startswith(path)
    return caught.value


def test_natural_order() -> None:
    names = ["part.10", "part.2", "part.1", "step_9/b", "step_10/a", "part"]
    assert sorted(names, key=natural_key) == ["part", "part.1", "part.2", "part.10", "step_9/b", "step_10/a"]


def test_directory_is_walked_in_natural_order_and_what_is_passed_over_is_listed(here: Path) -> None:
    touch(*[f"run/part.{index}.parquet" for index in range(12)])
    touch(
        "run/sub/x.npz", "run/_SUCCESS", "run/.part.crc", "run/notes.txt", "run/.git/a.parquet", "run/Y.NPZ"
    )
    files, skipped = expand(["run"])
    parts = tuple(f"run/part.{index}.parquet" for index in range(12))
    assert files == ("run/Y.NPZ", *parts, "run/sub/x.npz")
    assert {one.path: one.reason for one in skipped} == {
        "run/_SUCCESS": "name begins with an underscore",
        "run/.part.crc": "hidden",
        "run/.git": "hidden",
        "run/notes.txt": "not named *.parquet, *.npz or *.arrow",
    }


def test_the_current_directory_gives_bare_names(here: Path) -> None:
    touch("part.10.parquet", "part.9.parquet")
    assert expand(["."])[0] == ("part.9.parquet", "part.10.parquet")


def test_arguments_keep_their_order(here: Path) -> None:
    touch("b.parquet", "a.parquet")
    assert expand(["b.parquet", "a.parquet"])[0] == ("b.parquet", "a.parquet")


def test_an_explicit_file_is_taken_whatever_its_name(here: Path) -> None:
    touch(".hidden", "_x", "notes.txt")
    assert expand([".hidden", "_x", "notes.txt"]) == ((".hidden", "_x", "notes.txt"), ())


def test_a_path_that_exists_is_no_pattern(here: Path) -> None:
    touch("a[1].parquet", "a1.parquet")
    assert expand(["a[1].parquet"])[0] == ("a[1].parquet",)


def test_patterns(here: Path) -> None:
    touch("runs/step_10/r.parquet", "runs/step_9/r.parquet", "runs/step_9/r.txt", "runs/other/r.parquet")
    assert expand(["runs/step_*/r*"])[0] == ("runs/step_9/r.parquet", "runs/step_10/r.parquet")
    assert expand(["runs/step_*/r*"])[1][0].path == "runs/step_9/r.txt"
    assert len(expand(["runs/**/*.parquet"])[0]) == 3
    assert expand(["runs/step_*"])[0] == ("runs/step_9/r.parquet", "runs/step_10/r.parquet")
    assert expand(["runs/**"])[0] == (
        "runs/other/r.parquet",
        "runs/step_9/r.parquet",
        "runs/step_10/r.parquet",
    )
    assert expand(["runs/step_[0-9]/?.parquet"])[0] == ("runs/step_9/r.parquet",)


def test_hidden_files_of_a_pattern_are_skipped_and_listed(here: Path) -> None:
    touch("run/a.parquet", "run/.b.parquet", "run/_c.parquet", "run/.cache/d.parquet")
    files, skipped = expand(["run/**/*.parquet"])
    assert files == ("run/a.parquet",)
    assert {one.path for one in skipped} == {"run/.b.parquet", "run/_c.parquet", "run/.cache/d.parquet"}
    assert expand(["run/_*.parquet"])[0] == ("run/_c.parquet",)
    assert expand(["run/.cache/*.parquet"])[0] == ("run/.cache/d.parquet",)


def test_a_file_is_read_once(here: Path) -> None:
    touch("a.parquet", "d/b.parquet")
    Path("link.parquet").symlink_to("a.parquet")
    files, skipped = expand(
        ["a.parquet", "./a.parquet", "link.parquet", str(here / "a.parquet"), "d", "d/b.parquet"]
    )
    assert files == ("a.parquet", "d/b.parquet")
    assert [one.path for one in skipped] == [
        "./a.parquet",
        "link.parquet",
        str(here / "a.parquet"),
        "d/b.parquet",
    ]
    assert skipped[0].reason == "same file as 'a.parquet'"


def test_links_that_form_a_circle_end(here: Path) -> None:
    touch("d/a.parquet")
    Path("d/again").symlink_to("..", target_is_directory=True)
    assert expand(["d"])[0] == ("d/a.parquet",)


def test_broken_links_and_pipes_of_a_directory_are_skipped(here: Path) -> None:
    touch("d/a.parquet")
    Path("d/gone.parquet").symlink_to("nowhere")
    os.mkfifo("d/pipe.parquet")
    files, skipped = expand(["d"])
    assert files == ("d/a.parquet",)
    assert [one.reason for one in skipped] == ["broken link", "not a regular file"]


def test_missing_file_is_3_with_near_names(here: Path) -> None:
    touch("d/rollouts.parquet")
    with pytest.raises(InputError) as caught:
        expand(["d/rolouts.parquet"])
    assert caught.value.exit_code == 3
    assert caught.value.where == "d/rolouts.parquet"
    assert caught.value.hint == "did you mean 'd/rollouts.parquet'?"


def test_missing_folder_is_named(here: Path) -> None:
    with pytest.raises(InputError, match="folder 'nowhere' does not exist"):
        expand(["nowhere/a.parquet"])


def test_remote_paths_are_refused(here: Path) -> None:
    with pytest.raises(InputError, match="https:// is not read") as caught:
        expand(["https://me:secret@host/a.parquet?sig=secret"])
    assert "secret" not in str(caught.value)
    with pytest.raises(InputError, match="ftp:// is not read"):
        expand(["ftp://host/a.parquet"])


@pytest.mark.parametrize("path", ["*.parquet", "empty", "empty/**", "foreign", "foreign/*"])
def test_patterns_and_directories_without_a_file_are_5(here: Path, path: str) -> None:
    Path("empty").mkdir()
    touch("foreign/notes.txt")
    with pytest.raises(EmptyInput) as caught:
        expand([path])
    assert caught.value.exit_code == 5
    assert path in caught.value.message


def test_a_pattern_in_a_folder_that_does_not_exist(here: Path) -> None:
    with pytest.raises(EmptyInput, match="folder 'nowhere' does not exist"):
        expand(["nowhere/*.parquet"])


def test_a_directory_that_cannot_be_read(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> list[str]:
        raise PermissionError(13, "Permission denied", path)

    Path("d").mkdir()
    monkeypatch.setattr("os.listdir", refuse)
    with pytest.raises(InputError, match="Permission denied"):
        expand(["d"])


def test_a_missing_file_goes_before_an_empty_pattern(here: Path) -> None:
    with pytest.raises(InputError):
        expand(["*.parquet", "missing.parquet"])


def test_a_pattern_whose_files_were_given_before_is_not_empty(here: Path) -> None:
    touch("a.parquet")
    assert expand(["a.parquet", "*.parquet"])[0] == ("a.parquet",)


def test_content_decides_not_the_suffix(here: Path) -> None:
    table = pa.table({name: pa.array(values) for name, values in BYTES.items()})
    pq.write_table(table, "a.npz")
    with Path("b.parquet").open("wb") as file:
        np.savez(file, **{name: np.array(values) for name, values in BYTES.items()})
    assert open_input("a.npz", ReadOptions(), {}).report.format == "parquet"
    assert open_input("b.parquet", ReadOptions(), {}).report.format == "npz"


def test_zero_bytes(here: Path) -> None:
    Path("a.parquet").touch()
    assert "empty (0 bytes)" in refusal("a.parquet").message


def test_cut_parquet(here: Path) -> None:
    pq.write_table(pa.table({"log_probs": np.arange(1000.0)}), "whole.parquet")
    Path("cut.parquet").write_bytes(Path("whole.parquet").read_bytes()[:500])
    error = refusal("cut.parquet")
    assert "truncated" in error.message
    assert "no footer" in error.message
    assert "copy is incomplete" in str(error.hint)


def test_four_bytes_of_parquet(here: Path) -> None:
    Path("a.parquet").write_bytes(b"PAR1")
    assert "truncated" in refusal("a.parquet").message


def test_damaged_footer(here: Path) -> None:
    pq.write_table(pa.table({"log_probs": np.arange(1000.0)}), "a.parquet")
    data = bytearray(Path("a.parquet").read_bytes())
    data[-200:-8] = b"\xff" * 192
    Path("a.parquet").write_bytes(data)
    assert "footer cannot be read" in refusal("a.parquet").message


def test_cut_npz(here: Path) -> None:
    np.savez("whole.npz", log_probs=np.arange(1000.0))
    Path("cut.npz").write_bytes(Path("whole.npz").read_bytes()[:4000])
    error = refusal("cut.npz")
    assert "truncated" in error.message
    assert "not a zip" not in error.message.lower()


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"\x93NUMPY\x01\x00", "the NPY header cannot be read"),
        (b"ARROW1\x00\x00", "the Arrow file cannot be read"),
        (b"\xff\xff\xff\xff", "the Arrow stream cannot be read"),
        (b"[{}]", "a JSON array"),
        (b"FEA1", "a Feather file of version 1"),
        (b"\x89HDF\r\n", "HDF5"),
        (b"\x1f\x8b\x08", "gzip"),
        (b"log_probs,old", "begins with b'log_prob'"),
        (b'\x4a\0\0\0\0\0\0\0{"log_probs":{"dtype":"F32"', "a safetensors file"),
        (b"PARE....PARE", "encrypted"),
    ],
)
def test_other_formats_are_named(here: Path, head: bytes, words: str) -> None:
    Path("a.parquet").write_bytes(head + b"\0" * 100)
    assert words in refusal("a.parquet").message


def test_a_csv_file_is_told_by_its_name(here: Path) -> None:
    Path("a.csv").write_bytes(b"log_probs,old_log_probs,advantages\n-1,-1,1\n")
    error = refusal("a.csv")
    assert error.message == "a table of text, which is not read"
    assert "pyarrow.csv.read_csv" in str(error.hint)


def test_encrypted_parquet_with_plain_magic(here: Path) -> None:
    Path("a.parquet").write_bytes(b"PAR1" + b"\0" * 100 + b"PARE")
    assert "encrypted" in refusal("a.parquet").message


def test_torch_files_are_refused_by_name(here: Path) -> None:
    Path("old.pt").write_bytes(b"\x80\x02}q\x00.")
    with zipfile.ZipFile("new.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("archive/data/0", b"\0" * 16)
    for path in ("old.pt", "new.pt"):
        error = refusal(path)
        assert "torch" in error.message
        assert "README" in str(error.hint)


@pytest.mark.parametrize("name", ["cut.pt", "cut.pth", "cut.CKPT"])
def test_a_cut_torch_file_is_refused_by_its_name(here: Path, name: str) -> None:
    with zipfile.ZipFile(name, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00." * 20)
    Path(name).write_bytes(Path(name).read_bytes()[:60])
    assert "torch" in refusal(name).message


def test_zip_without_arrays(here: Path) -> None:
    with zipfile.ZipFile("a.npz", "w") as archive:
        archive.writestr("readme.txt", b"hello")
    assert "without arrays" in refusal("a.npz").message


def test_directory_missing_and_pipe(here: Path) -> None:
    Path("d").mkdir()
    os.mkfifo("pipe")
    assert "directory" in refusal("d").message
    assert "no such file" in refusal("gone.parquet").message
    assert "regular file" in refusal("pipe").message


def test_permission_denied_is_told_as_such(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch("a.parquet")

    def refuse(self: Path, *args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", refuse)
    assert "permission denied" in refusal("a.parquet").message


def test_pyarrow_is_imported_for_parquet_only(here: Path) -> None:
    np.savez("a.npz", **{name: np.array(values) for name, values in BYTES.items()})
    code = (
        "import sys; from ppocli.core.chunk import ReadOptions\n"
        "from ppocli.io.source import expand, open_input\n"
        "assert not {'numpy', 'pyarrow'} & set(sys.modules)\n"
        "open_input(expand(['a.npz'])[0][0], ReadOptions(), {}); print('pyarrow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_names_that_are_not_utf8(here: Path) -> None:
    name = os.fsdecode(b"\xff.parquet")
    table = pa.table({name: pa.array(values) for name, values in BYTES.items()})
    with Path(name).open("wb") as file:
        pq.write_table(table, file)
    reader = open_input(name, ReadOptions(), {})
    assert [chunk.n_rows for chunk in reader.chunks(("log_probs",), 10)] == [1]
    reader.close()
