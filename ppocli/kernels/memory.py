"""Loading and storing the vectors of `ppocli.kernels.vector`.

Memory is named by the address of its first element and an index: Numba takes an array apart and puts it
together again around every access, and such code takes LLVM long to read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ppocli.kernels.layout import HISTOGRAM_COPIES, SPREAD_COPIES, WIDTH
from ppocli.kernels.vector import (
    BIT,
    FLAGS,
    FLOAT32,
    FLOAT64,
    FLOATS,
    INT8,
    INT32,
    INT64,
    Flags,
    Vector,
    Words,
    call,
    constant,
    eight,
    larger,
    smaller,
    spread,
    typed,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

INT16 = ir.IntType(16)


def _place(context: Any, builder: Any, base: Any, index: Any, kind: Any) -> Any:
    """Return where a vector starts, elements counted from an address on."""
    pointer = builder.inttoptr(base[1], kind.element.as_pointer())
    place = builder.gep(pointer, [context.cast(builder, index[1], index[0], types.intp)])
    return builder.bitcast(place, kind.as_pointer())


def _as_it_is(builder: Any, x: Any) -> Any:
    return x


def _widened(builder: Any, x: Any) -> Any:
    return builder.fpext(x, eight(FLOAT64))


def _set(builder: Any, x: Any) -> Any:
    return builder.icmp_unsigned("!=", x, constant(INT8, 0))


def _byte_place(context: Any, builder: Any, base: Any, index: Any) -> Any:
    """Return where a byte is, counted from an address on."""
    pointer = builder.inttoptr(base[1], INT8.as_pointer())
    return builder.gep(pointer, [context.cast(builder, index[1], index[0], types.intp)])


# ------------------------------------------------------------------------------------------- loads


def _load(element: Any, size: int, finish: Callable[..., Any], result: Any) -> Callable[..., Any]:
    """Load eight elements that follow each other, aligned as elements are."""

    def body(context: Any, builder: Any, base: Any, index: Any) -> Any:
        place = _place(context, builder, base, index, eight(element))
        return finish(builder, builder.load(place, align=size))

    return lambda context, base, index: typed(result, body, base, index)


def _row_address(context: Any, array: Any, row: Any) -> Any:
    def body(context: Any, builder: Any, array: Any, row: Any) -> Any:
        model = context.data_model_manager[array[0]]
        data = builder.ptrtoint(model.get(builder, array[1], "data"), INT64)
        stride = builder.extract_value(model.get(builder, array[1], "strides"), 0)
        return builder.add(data, builder.mul(stride, context.cast(builder, row[1], row[0], types.intp)))

    return typed(types.int64, body, array, row)


def _load_one(context: Any, base: Any, index: Any) -> Any:
    def body(context: Any, builder: Any, base: Any, index: Any) -> Any:
        place = _place(context, builder, base, index, eight(FLOAT64))
        return builder.load(builder.bitcast(place, FLOAT64.as_pointer()))

    return typed(types.float64, body, base, index)


def _load_bits(context: Any, base: Any, index: Any) -> Any:
    def body(context: Any, builder: Any, base: Any, index: Any) -> Any:
        return builder.bitcast(builder.load(_byte_place(context, builder, base, index)), eight(BIT))

    return typed(FLAGS, body, base, index)


def _prefetch(context: Any, address: Any) -> Any:
    def body(context: Any, builder: Any, address: Any) -> None:
        pointer = builder.inttoptr(address[1], INT8.as_pointer())
        how = INT32(0), INT32(3), INT32(1)  # for reading, into every cache, data
        call(builder, "llvm.prefetch.p0", ir.VoidType(), (pointer, *how))

    return typed(types.none, body, address)


load: Callable[[int, int], Vector] = intrinsic(_load(FLOAT64, 8, _as_it_is, FLOATS))
"""Eight float64."""

load_float32: Callable[[int, int], Vector] = intrinsic(_load(FLOAT32, 4, _widened, FLOATS))
"""Eight float32, widened."""

load_flags: Callable[[int, int], Flags] = intrinsic(_load(INT8, 1, _set, FLAGS))
"""Which of eight bytes are not 0."""

load_bits: Callable[[int, int], Flags] = intrinsic(_load_bits)
"""The flags that `store_bits` put into a byte: an instruction less than comparing eight numbers again."""

row_address: Callable[[NDArray[Any], int], int] = intrinsic(_row_address)
"""Where row (or element) number so many of an array starts."""

load_one: Callable[[int, int], float] = intrinsic(_load_one)
"""One float64."""

prefetch: Callable[[int], None] = intrinsic(_prefetch)
"""Ask for the cache line at an address; one that cannot be read does no harm."""


# ------------------------------------------------------------------------------------------- stores


def _store(context: Any, base: Any, index: Any, x: Any) -> Any:
    def body(context: Any, builder: Any, base: Any, index: Any, x: Any) -> None:
        value = spread(context, builder, x[1], x[0], types.float64)
        builder.store(value, _place(context, builder, base, index, value.type), align=8)

    return typed(types.none, body, base, index, x)


def _store_low16(context: Any, base: Any, index: Any, words: Any) -> Any:
    def body(context: Any, builder: Any, base: Any, index: Any, words: Any) -> None:
        kind = eight(INT16)
        builder.store(builder.trunc(words[1], kind), _place(context, builder, base, index, kind), align=2)

    return typed(types.none, body, base, index, words)


def _store_bits(context: Any, base: Any, index: Any, flags: Any) -> Any:
    def body(context: Any, builder: Any, base: Any, index: Any, flags: Any) -> None:
        builder.store(builder.bitcast(flags[1], INT8), _byte_place(context, builder, base, index))

    return typed(types.none, body, base, index, flags)


def _combine(emit: Callable[..., Any]) -> Callable[..., Any]:
    """Replace eight float64 by what comes of a vector and them."""

    def body(context: Any, builder: Any, base: Any, index: Any, x: Any) -> None:
        place = _place(context, builder, base, index, eight(FLOAT64))
        builder.store(emit(builder, x[1], builder.load(place, align=8)), place, align=8)

    return lambda context, base, index, x: typed(types.none, body, base, index, x)


def _store_one(context: Any, base: Any, index: Any, x: Any) -> Any:
    def body(context: Any, builder: Any, base: Any, index: Any, x: Any) -> None:
        place = _place(context, builder, base, index, eight(FLOAT64))
        value = context.cast(builder, x[1], x[0], types.float64)
        builder.store(value, builder.bitcast(place, FLOAT64.as_pointer()))

    return typed(types.none, body, base, index, x)


def _count_to(context: Any, base: Any, index: Any, n: Any) -> Any:
    def body(context: Any, builder: Any, base: Any, index: Any, n: Any) -> None:
        place = _place(context, builder, base, index, eight(FLOAT64))
        number = builder.bitcast(place, FLOAT64.as_pointer())
        builder.store(
            builder.fadd(builder.load(number), context.cast(builder, n[1], n[0], types.float64)), number
        )

    return typed(types.none, body, base, index, n)


def _count_places(copies: int) -> Callable[..., Any]:
    """Count eight places; bins have so many copies, and the j-th place goes to copy j modulo that."""

    def body(context: Any, builder: Any, bins: Any, places: Any, index: Any) -> None:
        start = builder.bitcast(_place(context, builder, places, index, eight(INT16)), INT64.as_pointer())
        words = [builder.load(builder.gep(start, [INT64(k)]), align=2) for k in range(2)]
        data = builder.inttoptr(bins[1], INT64.as_pointer())
        for j in range(WIDTH):
            shifted = builder.lshr(words[j // 4], INT64(16 * (j % 4)))
            first = builder.mul(builder.and_(shifted, INT64(0xFFFF)), INT64(copies))
            copy = builder.gep(data, [builder.add(first, INT64(j % copies))])
            builder.store(builder.add(builder.load(copy), INT64(1)), copy)

    return lambda context, bins, places, index: typed(types.none, body, bins, places, index)


store: Callable[[int, int, Vector], None] = intrinsic(_store)

store_bits: Callable[[int, int, Flags], None] = intrinsic(_store_bits)
"""Store eight flags in one byte."""

store_one: Callable[[int, int, float], None] = intrinsic(_store_one)

store_low16: Callable[[int, int, Words], None] = intrinsic(_store_low16)
"""Store the lowest 16 bits of each word."""

add_to: Callable[[int, int, Vector], None] = intrinsic(_combine(lambda b, x, y: b.fadd(y, x)))
"""Add to eight numbers."""

lower_to: Callable[[int, int, Vector], None] = intrinsic(_combine(smaller))
"""Lower those of eight numbers that are larger."""

raise_to: Callable[[int, int, Vector], None] = intrinsic(_combine(larger))
"""Raise those of eight numbers that are smaller."""

count_to: Callable[[int, int, int], None] = intrinsic(_count_to)
"""Add a whole number to a float64."""

count_places: Callable[[int, int, int], None] = intrinsic(_count_places(HISTOGRAM_COPIES))
"""Add 1 to the bins at eight places, to copy j of it for the j-th."""

count_spread_places: Callable[[int, int, int], None] = intrinsic(_count_places(SPREAD_COPIES))
"""The same for bins of which many are in use, and that so have few copies."""
