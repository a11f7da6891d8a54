from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
import reports

from ppocli.cli import failures
from ppocli.cli.output import write_whole


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names_here() -> list[str]:
    return [path.name for path in Path().iterdir()]


def test_output_goes_to_the_file_and_not_to_the_screen(run: Any) -> None:
    assert run("eval", "x", "-f", "json", "-o", "out.txt") == (0, "", "")
    assert json.loads(Path("out.txt").read_text())["metrics"]["policy_loss"] == -0.0124817
    assert names_here() == ["out.txt"]


def test_exports_are_written_beside_the_screen_each_in_the_format_of_its_suffix(
    engine: Any, run: Any
) -> None:
    engine.answer = reports.several()
    names = ["a.json", "a.jsonl", "a.csv", "a.tsv", "A.MD"]
    code, out, err = run("eval", "x", *(word for name in names for word in ("--export", name)))
    assert (code, err) == (0, "")
    assert out.startswith("3 files  3 rows")
    assert len(engine.calls) == 1
    texts = {name: Path(name).read_text() for name in names}
    assert json.loads(texts["a.json"])["metrics"]["n_tokens"] == 7
    assert [json.loads(line)["kind"] for line in texts["a.jsonl"].splitlines()] == ["file"] * 3 + ["total"]
    assert texts["a.csv"].startswith("kind,file,")
    assert texts["a.tsv"].startswith("kind\tfile\t")
    assert "| file | tokens |" in texts["A.MD"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "there.json"], "'there.json' exists"),
        (["--export", "there.json"], "'there.json' exists"),
        (["-o", "no/out.json"], "cannot write 'no/out.json': there is no folder 'no'"),
        (["-o", "sub"], "cannot write 'sub': it is a folder"),
        (["--export", "out.txt"], "--export 'out.txt': the suffix does not name a format"),
        (["--export", "out"], "--export 'out': the suffix does not name a format"),
        (["-o", "x.json", "--export", "./x.json"], "'x.json' is already in use as 'x.json'"),
        (["-o", "there.parquet", "--force"], "'there.parquet' is already in use as 'there.parquet'"),
        (["-o", "link.parquet", "--force"], "'link.parquet' is already in use as 'there.parquet'"),
    ],
)
def test_targets_are_checked_before_anything_is_read(
    engine: Any, run: Any, arguments: list[str], message: str
) -> None:
    Path("there.json").write_text("old")
    Path("there.parquet").write_text("data")
    Path("link.parquet").symlink_to("there.parquet")
    Path("sub").mkdir()
    code, out, err = run("eval", "there.parquet", *arguments)
    assert (code, out) == (2, "")
    assert err.splitlines()[0] == f"error: {message}"
    assert engine.calls == []
    assert (Path("there.json").read_text(), Path("there.parquet").read_text()) == ("old", "data")


def test_force_overwrites(run: Any) -> None:
    Path("there.json").write_text("old")
    assert run("eval", "x", "-f", "json", "-o", "there.json", "--force")[0] == 0
    assert json.loads(Path("there.json").read_text())["tool"] == "ppocli"


def test_nothing_is_written_when_the_run_fails(engine: Any, run: Any) -> None:
    engine.answer = KeyError("x")
    Path("there.json").write_text("old")
    assert run("eval", "x", "-o", "there.json", "--export", "new.csv", "--force")[0] == 4
    assert Path("there.json").read_text() == "old"
    assert names_here() == ["there.json"]


def test_a_failed_write_leaves_the_old_file_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("out.json").write_text("old")

    def refuse(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="No space"):
        write_whole(Path("out.json"), "new", force=True)
    assert Path("out.json").read_text() == "old"
    assert names_here() == ["out.json"]


def test_a_full_disk_is_an_error_with_the_name_of_the_file(run: Any) -> None:
    code, out, err = run("eval", "x", "-o", "/dev/full")
    assert (code, out) == (3, "")
    assert err.splitlines()[0] == "error: cannot write '/dev/full': No space left on device"


def test_a_file_that_came_into_being_meanwhile_is_not_overwritten() -> None:
    Path("out.json").write_text("someone else's")
    with pytest.raises(FileExistsError):
        write_whole(Path("out.json"), "new", force=False)
    assert Path("out.json").read_text() == "someone else's"


def test_devices_are_written_and_stay(run: Any) -> None:
    assert run("eval", "x", "-o", os.devnull) == (0, "", "")
    assert not Path(os.devnull).is_file()


def test_links_are_followed_and_modes_are_usual() -> None:
    Path("sub").mkdir()
    Path("sub/real.json").write_text("old")
    Path("link.json").symlink_to("sub/real.json")
    write_whole(Path("link.json"), "ü\n", force=True)
    assert Path("link.json").is_symlink()
    assert Path("sub/real.json").read_bytes() == b"\xc3\xbc\n"
    Path("usual").write_text("")
    write_whole(Path("new.json"), "x", force=False)
    assert Path("new.json").stat().st_mode == Path("usual").stat().st_mode


def test_very_quiet_still_writes_files(run: Any) -> None:
    assert run("eval", "x", "-qq", "--export", "a.csv") == (0, "", "")
    assert Path("a.csv").exists()


def test_files_have_no_color_and_whole_paths(engine: Any, run: Any) -> None:
    path = "runs/" + "x" * 100 + ".parquet"
    engine.answer = reports.several(path, "b")
    assert run("eval", "x", "--color", "always", "-o", "out.txt")[0] == 0
    text = Path("out.txt").read_text(encoding="utf-8")
    assert path in text
    assert "\x1b" not in text
    assert run("eval", "x", "--ascii", "-o", "ascii.txt")[0] == 0
    assert Path("ascii.txt").read_bytes().isascii()


def test_a_dash_is_standard_output(run: Any) -> None:
    expected = run("eval", "x", "-f", "json")
    assert expected[1].startswith("{")
    assert run("eval", "x", "-f", "json", "-o", "-") == expected
    assert names_here() == []
    assert run("eval", "x", "-f", "json", "-o", "./-")[:2] == (0, "")
    assert names_here() == ["-"]


def test_an_export_that_fails_costs_no_other_result(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = run("eval", "x", "-f", "json")[1]

    def refuse_csv(self: Path, target: Path) -> None:
        if target.suffix in (".csv", ".tsv"):
            raise OSError(28, "No space left on device")
        os.rename(self, target)  # noqa: PTH104 - `replace` is what stands here

    monkeypatch.setattr(Path, "replace", refuse_csv)
    exports = [word for name in ("a.csv", "b.json", "c.tsv") for word in ("--export", name)]
    code, out, err = run("eval", "x", "-f", "json", *exports)
    assert (code, out) == (3, shown)
    assert err.splitlines() == [
        f"error: cannot write '{name}': No space left on device" for name in ("a.csv", "c.tsv")
    ]
    assert names_here() == ["b.json"]


class Interrupted(io.RawIOBase):
    """A pipe whose writes end early beyond 4,096 bytes, as after a stop and a go-on."""

    def __init__(self) -> None:
        self.taken = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.taken += bytes(data[:4096])
        return min(len(data), 4096)


def test_a_long_result_is_whole_on_an_unbuffered_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = Interrupted()
    # What PYTHONUNBUFFERED makes of standard output: text straight on a file without a buffer.
    stream = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)  # type: ignore[arg-type]
    monkeypatch.setattr("sys.stdout", stream)
    text = "".join(f"{number} \U0001d6fc ─\n" for number in range(20_000))
    failures.emit(text)
    assert raw.taken.decode() == text
