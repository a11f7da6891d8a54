from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from ppocli.core.chunk import Chunk, ReadOptions
from ppocli.core.roles import ROLES
from ppocli.errors import InputError
from ppocli.io import json_lines
from ppocli.io.jsonl import JsonlReader

ALL = tuple(ROLES)


def main(log_probs: Any, **more: Any) -> dict[str, Any]:
    return {"log_probs": log_probs, "old_log_probs": log_probs, "advantages": 1.5, **more}


def write(path: Path, *records: Any, end: str = "\n") -> str:
    texts = [one if isinstance(one, str) else json.dumps(one) for one in records]
    path.write_text("\n".join(texts) + end, encoding="utf-8")
    return str(path)


def reader(path: str, **more: Any) -> JsonlReader:
    return JsonlReader(path, more.pop("options", ReadOptions()), {}, **more)


def read(path: str, tokens: int = 1 << 18, **more: Any) -> list[Chunk]:
    return list(reader(path, **more).chunks(ALL, tokens))


def refusal(path: str, **more: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        read(path, **more)
    assert str(caught.value.where).startswith(path)
    return caught.value


def values(chunks: list[Chunk], role: str = "log_probs") -> list[float]:
    return [one for chunk in chunks for one in chunk.columns[role].values.tolist()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "r.jsonl"


@pytest.mark.parametrize("tokens", [1, 2, 1 << 18])
def test_lists_and_scalars(path: Path, tokens: int) -> None:
    write(
        path,
        main([-1.0, -2.5], mask=[1, 0], group_id="a", text="no role"),
        "",
        main([-3], mask=[True], group_id="b", text=None),
        main([], mask=[], group_id=None),
    )
    one = reader(str(path))
    assert (one.report.format, one.report.layout) == ("jsonl", "list")
    assert one.report.columns["log_probs"].dtype == "float64"
    chunks = list(one.chunks(ALL, tokens))
    assert values(chunks) == [-1.0, -2.5, -3.0]
    assert values(chunks, "advantages") == [1.5] * 3
    assert [m for chunk in chunks for m in chunk.mask.tolist()] == [1, 0, 1]  # type: ignore[union-attr]
    assert one.report.rows == 3
    assert one.per_row == {"advantages", "group_id"}


def test_flat_records(path: Path) -> None:
    write(path, *[main(-float(i), step=i // 2) for i in range(5)])
    (chunk,) = read(str(path))
    assert chunk.offsets is None
    assert values([chunk]) == [-0.0, -1.0, -2.0, -3.0, -4.0]
    assert chunk.step is not None
    assert chunk.step.codes.tolist() == [0, 0, 1, 1, 2]


def test_rows_are_an_estimate_until_they_are_read(path: Path) -> None:
    write(path, *[main([-1.0] * (i % 7)) for i in range(3000)])
    one = reader(str(path))
    assert 2000 < one.report.rows < 4000
    list(one.chunks(("log_probs",), 100))
    assert one.report.rows == 3000


def test_what_python_writes_for_numbers_that_json_does_not_know(path: Path) -> None:
    write(path, main([math.nan, math.inf, -math.inf, None, 1e-320]))
    (chunk,) = read(str(path))
    got = chunk.columns["log_probs"]
    assert math.isnan(got.values[0])
    assert got.values[1:3].tolist() == [math.inf, -math.inf]
    assert got.values[4] == 1e-320
    assert got.present is not None
    assert got.present.tolist() == [1, 1, 1, 0, 1]


def test_every_double_comes_back(path: Path) -> None:
    numbers = [0.1, -1 / 3, 5e-324, 1.7976931348623157e308, -2.2250738585072014e-308, 123456789.123456789]
    write(path, main(numbers))
    assert values(read(str(path))) == numbers


def test_a_missing_key_is_null(path: Path) -> None:
    record = main([-1.0], values=[2.0])
    write(path, record, {key: record[key] for key in record if key != "values"})
    (chunk,) = read(str(path))
    present = chunk.columns["values"].present
    assert present is not None
    assert present.tolist() == [1, 0]


def test_a_column_that_begins_late_is_refused(path: Path) -> None:
    write(path, *[main([-1.0])] * 100, main([-1.0], mask=[0], comment="x"))
    error = refusal(str(path))
    assert error.message == "line 101 has 'mask', and none of the first 100 records has"
    write(path, *[main([-1.0])] * 100, main([-1.0], comment="x"))
    assert len(values(read(str(path)))) == 101


def test_a_mask_per_sequence_multiplies_the_mask_of_the_tokens(path: Path) -> None:
    write(
        path,
        main([-1.0, -2.0], loss_mask=[1, 0], sample_mask=1.0),
        main([-3.0, -4.0], loss_mask=[1, 1], sample_mask=0.0),
    )
    one = reader(str(path))
    (chunk,) = one.chunks(ALL, 100)
    assert chunk.mask is not None
    assert chunk.mask.tolist() == [1, 0, 0, 0]
    assert "mask: 'loss_mask' and 'sample_mask', a token counts where both are 1" in one.report.notes
    write(path, main([-1.0, -2.0], sample_mask=1.0), main([-3.0], sample_mask=0.0))
    (chunk,) = read(str(path))
    assert chunk.mask is not None
    assert chunk.mask.tolist() == [1, 1, 0]
    write(path, main([-1.0, -2.0], loss_mask=[1, 0], sample_mask=0.5))
    assert "mask column 'sample_mask' holds 0.5" in refusal(str(path)).message


def nemo(prev: list[float], generation: list[float], mask: list[int], sample: float) -> dict[str, Any]:
    """One line as NeMo-RL 7ea279abf writes it (grpo.py): every value in a list of one."""
    return {
        "content": ["text"],
        "rewards": [0.5],
        "input_lengths": [len(prev)],
        "token_ids": [list(range(len(prev)))],
        "token_loss_mask": [mask],
        "sample_loss_mask": [sample],
        "advantages": [[0.25] * len(prev)],
        "generation_logprobs": [generation],
        "prev_logprobs": [prev],
        "idx": 0,
    }


def test_nemo_rl(path: Path) -> None:
    write(
        path,
        nemo([0.0, -1.0, -2.0], [0.0, -1.1, -2.1], [1, 0, 1], 1.0),
        nemo([0.0, -3.0], [0.0, -3.1], [0, 1], 0.0),
        nemo([9.0, -4.0], [9.0, -4.1], [0, 1], 1.0),
    )
    with pytest.raises(InputError, match="the loss needs the current policy's log-probs") as caught:
        reader(str(path))
    assert f"ppocli drift {path}" in str(caught.value.hint)
    options = ReadOptions({"log_probs": "prev_logprobs", "old_log_probs": "generation_logprobs"})
    one = reader(str(path), options=options)
    (chunk,) = one.chunks(ALL, 100)
    assert values([chunk]) == [0.0, -1.0, -2.0, 0.0, -3.0, 9.0, -4.0]
    assert values([chunk], "rewards") == [0.5] * 7
    assert chunk.mask is not None
    # Position 0 never counts, and the second sequence is masked as a whole.
    assert chunk.mask.tolist() == [0, 0, 1, 0, 0, 0, 1]
    assert "position 0 of every row counts as masked, as in NeMo-RL's loss" in one.report.notes
    assert (one.report.layout, one.report.rows) == ("list<list>", 3)


def test_prime_rl(path: Path) -> None:
    record = {
        "schema_version": 1,
        "step": 4,
        "micro_sequence_idx": 0,
        "export_sequence_idx": 0,
        "token_ids": [5, 6, 7],
        "loss_mask": [False, True, True],
        "advantages": [1.0, 1.0, 1.0],
        "inference_logprobs": [-11.0, -1.0, -2.0],
        "trainer_logprobs": [-11.9, None, -2.1],
        "entropy": [0.1, 0.2, 0.3],
        "rl_weights": None,
    }
    write(path, record)
    with pytest.raises(InputError) as caught:
        reader(str(path))
    assert "--col log_probs=trainer_logprobs --col old_log_probs=inference_logprobs" in str(caught.value.hint)
    one = reader(str(path), options=ReadOptions({"old_log_probs": "inference_logprobs"}))
    (chunk,) = one.chunks(ALL, 100)
    got = chunk.columns["log_probs"].present
    assert got is not None
    assert got.tolist() == [1, 0, 1]
    assert chunk.mask is not None
    assert chunk.mask.tolist() == [0, 1, 1]
    assert "a null of prime-rl's token exports is a number that was not finite" in one.report.notes


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"log_probs": [1.0,}', "line 2: not a whole JSON object"),
        ("[1, 2]", "line 2: a list, not an object"),
        ("17", "line 2: a number, not an object"),
        ('"x"', "line 2: text, not an object"),
        ("null", "line 2: a value, not an object"),
        ("{} {}", "line 2: not a whole JSON object"),
        ('{"a": 1, "a": 2}', "line 2: the key 'a' stands there twice"),
        ('{"x": {"b": 1, "b": 2}}', "line 2: the key 'b' stands there twice"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "line 2: nested too deep"),
        ('{"a": ' + '{"a":' * 100_000 + "}" * 100_000 + "}", "line 2: nested too deep"),
        ('{"a": ' + "1" * 5000 + "}", "line 2: a number that is too long"),
        (json.dumps(main("x")), "line 2: 'log_probs' is not of type list<float64>: "),
        (json.dumps(main(["x"])), "line 2: 'log_probs' is not of type list<float64>: "),
        (json.dumps(main([[1.0]])), "line 2: 'log_probs' is not of type list<float64>: "),
        (json.dumps(main(1.0)), "line 2: 'log_probs' is not of type list<float64>: "),
        (json.dumps(main([2**60 + 1])), "line 2: 'log_probs' is not of type list<float64>: "),
        (json.dumps(main([-1.0], group_id=1.5)), "column 'group_id' (group_id) is float64: ids are integers"),
        (json.dumps(main([-1.0], group_id="a")), "line 2: 'group_id' is not of type int64: "),
        (json.dumps(main([-1.0], group_id=2**70)), "line 2: 'group_id' is not of type int64: "),
        (json.dumps(main([-1.0], mask=["\ud800"])), "line 2: 'mask' is not of type list<float64>: "),
        (json.dumps(main([-1.0], group_id="\ud800")), "line 2: 'group_id' is not of type int64: "),
        (json.dumps(main([-1.0], mask=[0.5])), "mask column 'mask' holds 0.5"),
        (json.dumps(main([-1.0], mask=[2])), "mask column 'mask' holds 2"),
        (json.dumps(main([-1.0], mask=[1, 1])), "'log_probs' has 1 values and 'mask' has 2 in row 1"),
    ],
)
def test_bad_lines_are_named(path: Path, line: str, words: str) -> None:
    good = main([-1.0, -2.0], group_id=3, mask=[1, 0])
    write(path, good, line, good)
    error = refusal(str(path))
    assert error.message.startswith(words) or words in error.message
    assert len(error.message) < 300


def test_bytes_that_are_not_utf8(path: Path) -> None:
    path.write_bytes(json.dumps(main([-1.0])).encode() + b'\n{"\xff": 1}\n')
    assert refusal(str(path)).message == "line 2: not UTF-8"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(main([-1.0])).encode())
    assert values(read(str(path))) == [-1.0]


def test_a_file_that_ends_inside_a_line(path: Path) -> None:
    write(path, main([-1.0]), main([-2.0]), json.dumps(main([-3.0]))[:-5], end="")
    error = refusal(str(path))
    assert error.message.startswith("line 3: the file ends inside it (not a whole JSON object")
    assert f"ppocli convert --recover {path} -o" in str(error.hint)
    write(path, main([-1.0]), main([-2.0]), '{"log_pro', end="")
    assert "Unterminated string starting at column 2)" in refusal(str(path)).message
    one = reader(str(path), recover=True)
    assert values(list(one.chunks(ALL, 100))) == [-1.0, -2.0]
    assert one.report.notes[-1] == "the last line is cut: 9 bytes not read"
    write(path, main([-1.0]), main([-2.0]), end="")
    assert values(read(str(path))) == [-1.0, -2.0]


def test_one_object_over_many_lines_is_refused_with_what_to_do(path: Path) -> None:
    path.write_text(json.dumps(main([-1.0]), indent=1))
    error = refusal(str(path))
    assert error.message.startswith("line 1: not a whole JSON object")
    assert "jq -c" in str(error.hint)


def test_a_line_without_end_is_not_read_into_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "LONGEST_LINE", 1000)
    write(path, main([-1.0]), "{" + " " * 5000 + "}")
    assert refusal(str(path)).message == "line 2: longer than 1,000 bytes"


def test_blank_lines_only(path: Path) -> None:
    path.write_text("\n\n  \n")
    assert refusal(str(path)).message == "no JSON object in the file"


def test_objects_are_no_columns(path: Path) -> None:
    write(path, main([-1.0], info={"mask": [1]}, messages=[{"role": "user"}]))
    assert "mask" not in reader(str(path)).report.columns
    error = refusal(str(path), options=ReadOptions({"mask": "info"}))
    assert "'info' (mask) is struct" in error.message


def test_a_record_per_token_is_named(path: Path) -> None:
    write(path, {"step": 1, "tokens": [{"trainer_logprob": -1.0, "advantage": 1.0}] * 2})
    error = refusal(str(path))
    assert str(error.where).splitlines()[1] == "columns: step int64, tokens list<struct<>>"
    assert str(error.hint).splitlines()[1] == (
        "'tokens' holds lists of records, which are not read: write a list for each field"
    )


def test_a_float_among_later_ids(path: Path) -> None:
    write(path, *[main([-1.0], group_id=1)] * 100, main([-1.0], group_id=1.5))
    assert "line 101: 'group_id' is not of type int64: found float64" in refusal(str(path)).message


@pytest.mark.parametrize("key", ["values", "mask", "ref_logprobs", "sample_mask"])
@pytest.mark.parametrize("late", [[1], [None, 0], 1, [[1]]])
def test_a_role_that_is_null_everywhere_at_first(path: Path, key: str, late: Any) -> None:
    nothing = [None, [], [None], None]
    early = [{**main([-1.0], mask=[1]), key: nothing[k % 4]} for k in range(100)]
    write(path, *early, early[1])
    assert key not in reader(str(path)).report.columns
    assert len(values(read(str(path)))) == 101
    write(path, *early, {**early[0], key: late})
    error = refusal(str(path))
    assert error.message == f"line 101 has values in '{key}', and the first 100 records only nulls"


def test_a_named_role_that_is_null_everywhere_at_first(path: Path) -> None:
    write(path, *[main([-1.0], values=None)] * 100, main([-1.0], values=[1.0]))
    error = refusal(str(path), options=ReadOptions({"values": "values"}))
    assert error.message.startswith("line 101: 'values' is not of type null")
