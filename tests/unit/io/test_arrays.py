from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest

from ppocli.core.chunk import Chunk, IdCoder, ReadOptions
from ppocli.core.roles import ROLES
from ppocli.errors import InputError, UsageProblem
from ppocli.io.arrays import ArrayReader

ALL = tuple(ROLES)


def main(log_probs: Any, old: Any = None, advantages: Any = None, **more: Any) -> dict[str, Any]:
    old = log_probs if old is None else old
    return {
        "log_probs": log_probs,
        "old_log_probs": old,
        "advantages": old if advantages is None else advantages,
        **more,
    }


def read(arrays: dict[str, Any], tokens: int = 1 << 18, **options: Any) -> list[Chunk]:
    return list(ArrayReader(arrays, ReadOptions(**options)).chunks(ALL, tokens))


def only(arrays: dict[str, Any], **options: Any) -> Chunk:
    (chunk,) = read(arrays, **options)
    return chunk


def refusal(arrays: dict[str, Any], **options: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        read(arrays, **options)
    assert str(caught.value.where).startswith("<arrays>")
    return caught.value


def values(chunk: Chunk, role: str) -> list[Any]:
    return chunk.columns[role].values.tolist()


def test_flat_arrays_are_not_copied() -> None:
    log_probs = np.array([-1.0, -2.0, -3.0], np.float32)
    reader = ArrayReader(
        main(log_probs, [-1.0, -2.0, -3.0], [1, 2, 3], mask=[True, False, True]), ReadOptions()
    )
    report = reader.report
    assert (report.path, report.format, report.layout, report.rows) == ("<arrays>", "arrays", "flat", 3)
    assert report.bytes == 12 + 24 + 24 + 3
    assert report.columns["advantages"].dtype == "int64"
    (chunk,) = reader.chunks(ALL, 10)
    assert np.shares_memory(chunk.columns["log_probs"].values, log_probs)
    assert not chunk.columns["log_probs"].values.flags.writeable
    assert log_probs.flags.writeable
    assert chunk.mask.tolist() == [1, 0, 1]  # type: ignore[union-attr]
    assert values(chunk, "advantages") == [1.0, 2.0, 3.0]
    reader.close()


def test_any_strides_and_byte_order() -> None:
    numbers = np.arange(12.0).reshape(3, 4)
    chunk = only(main(numbers[::2, 1::2], numbers[::2, 1::2].astype(">f4")))
    assert values(chunk, "log_probs") == values(chunk, "old_log_probs") == [1.0, 3.0, 9.0, 11.0]
    assert chunk.columns["old_log_probs"].values.dtype == np.dtype("=f4")
    assert values(only(main(np.asfortranarray(numbers))), "log_probs") == numbers.reshape(-1).tolist()


def test_time_first_and_dimensions() -> None:
    chunk = only(main(np.arange(6.0).reshape(3, 2)), layout="time")
    assert values(chunk, "log_probs") == [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]
    assert chunk.offsets.tolist() == [0, 3, 6]  # type: ignore[union-attr]
    chunk = only(main([[-1.0, -2.0], [-3.0, -4.0]], advantages=[1.0, 2.0]), sum_dims=True)
    assert values(chunk, "log_probs") == [-3.0, -7.0]


def test_bfloat16_by_name_and_as_raw_bytes() -> None:
    numbers = np.array([-1.0, -0.5], ml_dtypes.bfloat16)
    reader = ArrayReader(main(numbers, numbers.view("V2"), [1.0, 2.0]), ReadOptions())
    assert reader.report.columns["log_probs"].dtype == "bfloat16"
    (chunk,) = reader.chunks(ALL, 10)
    for role in ("log_probs", "old_log_probs"):
        assert chunk.columns[role].values.dtype == np.uint16
        assert values(chunk, role) == [0xBF80, 0xBF00]


def test_bits_only_by_option() -> None:
    bits = np.array([0xBF80], np.uint16)
    assert "uint16" in refusal(main(bits, advantages=[1.0])).message
    roles = frozenset({"log_probs", "old_log_probs"})
    assert values(only(main(bits, advantages=[1.0]), bits=roles), "log_probs") == [0xBF80]


def test_lists_of_sequences() -> None:
    log_probs = [np.array([-1.0, -2.0]), np.array([]), np.array([-3.0])]
    mask = [[1, 0], [], [1]]
    arrays = main(log_probs, advantages=[5.0, 6.0, 7.0], mask=mask, values=9.0, group_id=[1, 2, 2])
    reader = ArrayReader(arrays, ReadOptions())
    assert (reader.report.layout, reader.report.rows) == ("list", 3)
    assert "advantages: one value per row, repeated over its tokens" in reader.report.notes
    assert "values: one value, repeated over all tokens" in reader.report.notes
    (chunk,) = reader.chunks(ALL, 10)
    assert chunk.offsets.tolist() == [0, 2, 2, 3]  # type: ignore[union-attr]
    assert values(chunk, "log_probs") == [-1.0, -2.0, -3.0]
    assert values(chunk, "advantages") == [5.0, 5.0, 7.0]
    assert values(chunk, "values") == [9.0, 9.0, 9.0]
    assert chunk.mask.tolist() == [1, 0, 1]  # type: ignore[union-attr]
    for tokens in (1, 2):
        chunks = list(reader.chunks(ALL, tokens))
        assert [one for chunk in chunks for one in values(chunk, "log_probs")] == [-1.0, -2.0, -3.0]
        assert sum(chunk.n_rows for chunk in chunks) == 3


def test_integer_ids_of_ragged_lists_stay_integers() -> None:
    big = 2**53 + 1
    arrays = main([[-1.0], [], [-2.0, -3.0]], sequence_id=[[big], [], [big - 1, big]])
    assert ArrayReader(arrays, ReadOptions()).report.layout == "packed"
    assert only(arrays).sequence_id.codes.tolist() == [big, big - 1, big]  # type: ignore[union-attr]


def test_lists_beside_a_padded_array() -> None:
    arrays = main(
        [[-1.0, -2.0], [-3.0, -4.0]], mask=np.array([[1, 0], [1, 1]]), values=np.array([[7.0], [8.0]])
    )
    chunk = only(arrays)
    assert chunk.mask.tolist() == [1, 0, 1, 1]  # type: ignore[union-attr]
    assert values(chunk, "values") == [7.0, 7.0, 8.0, 8.0]


def test_ragged_lengths_that_differ_are_located() -> None:
    error = refusal(main([[-1.0], [-1.0, -2.0]], [[-1.0], [-1.0]], [1.0, 2.0]))
    assert error.message == "'log_probs' has 2 values and 'old_log_probs' has 1 in row 1"
    assert error.where == "<arrays>, row 1"
    assert (
        "has 2 rows and 'old_log_probs' has 1"
        in refusal(main([[-1.0], [-2.0]], [[-1.0]], [1.0, 2.0])).message
    )


def test_whole_arrays_that_do_not_fit_lists() -> None:
    assert "shape (3,)" in refusal(main([[-1.0], [-2.0]], advantages=np.zeros(3))).message
    assert "shape (2,)" in refusal(main([[-1.0], [-2.0]], old=np.zeros(2), advantages=[1.0, 2.0])).message
    assert "in row 0" in refusal(main([np.zeros((2, 2))], advantages=[1.0])).message


def test_shapes_that_do_not_fit() -> None:
    error = refusal(main(np.zeros(3), advantages=np.zeros(2)))
    assert error.message == "'log_probs' has 3 values and 'advantages' has 2"
    assert "(3, 3)" in refusal(main(np.zeros(3), advantages=np.zeros((3, 3)))).message
    assert (
        "different lengths"
        in refusal(main([[-1.0], [-1.0, -2.0]], advantages=[1.0, 2.0]), sum_dims=True).message
    )


def test_missing_and_unknown_roles() -> None:
    with pytest.raises(UsageProblem, match="no array for old_log_probs, advantages"):
        ArrayReader({"log_probs": [1.0], "mask": None}, ReadOptions())
    with pytest.raises(UsageProblem, match="did you mean 'old_log_probs'"):
        ArrayReader({"old_logprobs": [1.0]}, ReadOptions())
    reader = ArrayReader({"old_log_probs": [-1.0]}, ReadOptions(), required=())
    assert reader.report.rows == 1


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.array([-1, -2]), "int64"),
        (np.array([-1.0, None], object), "object"),
        ([-1.0, None], "object"),
        (["a", "b"], "string"),
        (np.ma.masked_array([-1.0, -2.0], [True, False]), "MaskedArray"),
        (pa.array([-1.0, None]), "DoubleArray"),
        (np.array([1j, 2j]), "complex128"),
    ],
)
def test_values_that_log_probs_do_not_take(value: Any, words: str) -> None:
    assert words in refusal(main(value, [-1.0, -2.0])).message


def test_bad_mask_values_are_located() -> None:
    error = refusal(main(np.zeros((2, 2)), mask=np.array([[1, 1], [1, 5]])))
    assert error.where == "<arrays>, row 1, position 1"


def test_text_ids_by_the_shared_coder() -> None:
    coder = IdCoder()
    reader = ArrayReader(main([-1.0, -2.0], group_id=["b", "a"]), ReadOptions(), {"group_id": coder})
    (chunk,) = reader.chunks(ALL, 10)
    assert chunk.group_id.codes.tolist() == [coder.code("b"), coder.code("a")]  # type: ignore[union-attr]


class FakeTensor:
    """What ArrayReader uses of a torch tensor."""

    def __init__(
        self, array: np.ndarray, dtype: str, requires_grad: bool = True, device: str = "cuda"
    ) -> None:
        self.array, self.dtype, self.requires_grad, self.device = array, dtype, requires_grad, device
        self.ndim = array.ndim

    def detach(self) -> FakeTensor:
        return FakeTensor(self.array, self.dtype, False, self.device)

    def cpu(self) -> FakeTensor:
        return FakeTensor(self.array, self.dtype, self.requires_grad, "cpu")

    def contiguous(self) -> FakeTensor:
        return FakeTensor(np.ascontiguousarray(self.array), self.dtype, self.requires_grad, self.device)

    def view(self, dtype: str) -> FakeTensor:
        return FakeTensor(self.array.view(np.int16), dtype, self.requires_grad, self.device)

    def numpy(self) -> np.ndarray:
        assert not self.requires_grad
        assert self.device == "cpu"
        assert self.dtype != "bfloat16"
        return self.array


def test_torch_tensors_are_detached_and_bfloat16_goes_through_its_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = SimpleNamespace(Tensor=FakeTensor, bfloat16="bfloat16", int16="int16")
    monkeypatch.setitem(sys.modules, "torch", fake)
    plain = FakeTensor(np.array([-1.0, -2.0], np.float32), "float32")
    half = FakeTensor(np.array([0xBF80, 0xBF00], np.uint16), "bfloat16")
    chunk = only(main(half, plain, plain))
    assert values(chunk, "log_probs") == [0xBF80, 0xBF00]
    assert values(chunk, "old_log_probs") == [-1.0, -2.0]
    chunk = only(main([half, half], [plain, plain], [1.0, 2.0]))
    assert values(chunk, "log_probs") == [0xBF80, 0xBF00] * 2
    assert chunk.offsets.tolist() == [0, 2, 4]  # type: ignore[union-attr]


def test_a_list_of_torch_numbers_is_one_value_per_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = SimpleNamespace(Tensor=FakeTensor, bfloat16="bfloat16", int16="int16")
    monkeypatch.setitem(sys.modules, "torch", fake)
    rows = [np.array([-1.0, -2.0], np.float32), np.array([-3.0], np.float32)]
    numbers = [FakeTensor(np.array(one, np.float32), "float32") for one in (0.5, -0.25)]
    chunk = only(main(rows, rows, numbers))
    assert values(chunk, "advantages") == [0.5, 0.5, -0.25]
    halves = [FakeTensor(np.array(one, np.uint16), "bfloat16") for one in (0x3F00, 0xBE80)]
    chunk = only(main(rows, rows, halves))
    assert values(chunk, "advantages") == [0x3F00, 0x3F00, 0xBE80]


def test_what_cannot_be_made_an_array() -> None:
    class Refusing:
        def __array__(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.\nMore.")

    assert refusal(main(Refusing())).message.endswith(
        "cannot be made a NumPy array: Can't call numpy() on Tensor that requires grad."
    )
    assert "cannot be made" in refusal(main([-1.0], advantages=[Refusing()])).message


def test_torch_is_never_imported() -> None:
    only(main([-1.0]))
    assert "torch" not in sys.modules
