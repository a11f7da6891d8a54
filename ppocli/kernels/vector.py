"""Vectors of eight float64 as values in compiled code.

LLVM turns a plain loop into packed instructions only while it can prove that no store meets a load and that
no addition changes its order; a dozen sums at once are beyond it. Here the order is in the program: a sum is
a vector in a register, whose lane j takes the tokens j, j + 8, j + 16, ... A processor with shorter registers
takes two or four for one vector, and every processor gives the same bits.

Arithmetic, comparisons, `abs`, `&` and `|` work lane by lane; a number beside a vector stands in every lane.
`fma`, `where`, `least`, `greatest`, `bits` and `from_bits` take single numbers as well, so that a formula is
written once. Hence the names for the type checker: a vector is a float, flags (eight truth values) are a
bool, and words (the bits of a vector) a uint64. All of it exists in compiled code only; `memory` loads and
stores vectors.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

from ppocli.kernels.layout import WIDTH

Vector: TypeAlias = float
Flags: TypeAlias = bool
Words: TypeAlias = np.uint64

BIT, INT8, INT32, INT64 = (ir.IntType(width) for width in (1, 8, 32, 64))
FLOAT32, FLOAT64 = ir.FloatType(), ir.DoubleType()
_ELEMENTS = {types.float64: FLOAT64, types.uint64: INT64, types.boolean: BIT}


class Lanes(types.Type):  # type: ignore[misc]
    """The type of a vector in Numba's eyes."""

    def __init__(self, element: Any) -> None:
        self.element = element
        super().__init__(name=f"Lanes({element})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    """A vector is an LLVM vector, in registers and in memory."""

    def __init__(self, manager: Any, lanes: Lanes) -> None:
        super().__init__(manager, lanes, eight(_ELEMENTS[lanes.element]))


FLOATS, WORDS, FLAGS = (Lanes(element) for element in _ELEMENTS)


def eight(element: Any) -> Any:
    """Return LLVM's type of a vector."""
    return ir.VectorType(element, WIDTH)


def constant(element: Any, number: float) -> Any:
    """Return the vector with this number in every lane."""
    return ir.Constant(eight(element), [number] * WIDTH)


def spread(context: Any, builder: Any, value: Any, given: Any, element: Any) -> Any:
    """Return a vector as it is, a number in every lane."""
    if isinstance(given, Lanes):
        return value
    number = context.cast(builder, value, given, element)
    undefined = ir.Constant(eight(number.type), ir.Undefined)
    first = builder.insert_element(undefined, number, INT32(0))
    return builder.shuffle_vector(first, undefined, constant(INT32, 0))


def call(builder: Any, name: str, result: Any, arguments: Sequence[Any]) -> Any:
    """Call one of LLVM's own functions."""
    function_type = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, function_type, name), arguments)


def _call_f64(builder: Any, name: str, *arguments: Any) -> Any:
    """Call one of LLVM's functions of float64, for numbers or for vectors."""
    kind = arguments[0].type
    suffix = "v8f64" if isinstance(kind, ir.VectorType) else "f64"
    return call(builder, f"llvm.{name}.{suffix}", kind, arguments)


# ------------------------------------------------------------------------------------------- operators

_Meanings: TypeAlias = dict[Lanes, tuple[Lanes, Callable[..., Any]]]


def _define(function: Any, arity: int, meanings: _Meanings) -> None:
    """Give an operator a meaning: for each type of operand, its result and what it emits."""

    def result_of(*given: Any) -> Any:
        vectors = {one for one in given if isinstance(one, Lanes)}
        if len(vectors) != 1 or not all(isinstance(one, (Lanes, types.Number)) for one in given):
            return None
        return meanings.get(vectors.pop(), (None,))[0]

    def typer(context: Any) -> Callable[..., Any]:
        return (lambda x: result_of(x)) if arity == 1 else (lambda x, y: result_of(x, y))

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        operand = next(one for one in signature.args if isinstance(one, Lanes))
        pairs = zip(arguments, signature.args, strict=True)
        vectors = [spread(context, builder, value, given, operand.element) for value, given in pairs]
        return meanings[operand][1](builder, *vectors)

    type_callable(function)(typer)
    number = types.Number
    for shape in [(Lanes,)] if arity == 1 else [(Lanes, Lanes), (Lanes, number), (number, Lanes)]:
        lower_builtin(function, *shape)(lower)


def _comparison(sign: str) -> _Meanings:
    return {FLOATS: (FLAGS, lambda b, x, y: b.fcmp_ordered(sign, x, y))}


_ADDITION: _Meanings = {
    FLOATS: (FLOATS, lambda b, x, y: b.fadd(x, y)),
    WORDS: (WORDS, lambda b, x, y: b.add(x, y)),
}
_SUBTRACTION: _Meanings = {
    FLOATS: (FLOATS, lambda b, x, y: b.fsub(x, y)),
    WORDS: (WORDS, lambda b, x, y: b.sub(x, y)),
}
_define(operator.add, 2, _ADDITION)
_define(operator.iadd, 2, _ADDITION)
_define(operator.sub, 2, _SUBTRACTION)
_define(operator.mul, 2, {FLOATS: (FLOATS, lambda b, x, y: b.fmul(x, y))})
_define(operator.truediv, 2, {FLOATS: (FLOATS, lambda b, x, y: b.fdiv(x, y))})
_define(operator.neg, 1, {FLOATS: (FLOATS, lambda b, x: b.fneg(x))})
_define(abs, 1, {FLOATS: (FLOATS, lambda b, x: _call_f64(b, "fabs", x))})
_define(operator.lt, 2, _comparison("<"))
_define(operator.gt, 2, _comparison(">"))
_define(operator.eq, 2, _comparison("=="))
_define(operator.and_, 2, {kind: (kind, lambda b, x, y: b.and_(x, y)) for kind in (FLAGS, WORDS)})
_define(operator.or_, 2, {kind: (kind, lambda b, x, y: b.or_(x, y)) for kind in (FLAGS, WORDS)})
_define(operator.lshift, 2, {WORDS: (WORDS, lambda b, x, y: b.shl(x, y))})
_define(operator.rshift, 2, {WORDS: (WORDS, lambda b, x, y: b.lshr(x, y))})


# ------------------------------------------------------------------------------------------- functions


def typed(result: Any, body: Callable[..., Any], *given: Any) -> Any:
    """Type a function whose body gets a pair (type, value) for each argument."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = body(context, builder, *zip(signature.args, arguments, strict=True))
        return context.get_dummy_value() if result is types.none else value

    return result(*given), generate


def _on_floats(emit: Callable[..., Any], *given: Any) -> Any:
    """Type a function that takes vectors, or numbers only; flags, if any, come first."""
    result = FLOATS if any(isinstance(one, Lanes) for one in given) else types.float64

    def wide(context: Any, builder: Any, one: Any, value: Any) -> Any:
        if one in (FLAGS, types.boolean):
            return value
        if result is FLOATS:
            return spread(context, builder, value, one, types.float64)
        return context.cast(builder, value, one, types.float64)

    def body(context: Any, builder: Any, *arguments: Any) -> Any:
        return emit(builder, *(wide(context, builder, *pair) for pair in arguments))

    return typed(result, body, *given)


def smaller(builder: Any, x: Any, y: Any) -> Any:
    """Emit x where x < y, else y: one instruction on x86."""
    return builder.select(builder.fcmp_ordered("<", x, y), x, y)


def larger(builder: Any, x: Any, y: Any) -> Any:
    """Emit x where x > y, else y."""
    return builder.select(builder.fcmp_ordered(">", x, y), x, y)


def _fma(context: Any, x: Any, y: Any, z: Any) -> Any:
    return _on_floats(lambda b, *values: _call_f64(b, "fma", *values), x, y, z)


def _where(context: Any, flags: Any, x: Any, y: Any) -> Any:
    return _on_floats(lambda b, *values: b.select(*values), flags, x, y)


def _least(context: Any, x: Any, y: Any) -> Any:
    return _on_floats(smaller, x, y)


def _greatest(context: Any, x: Any, y: Any) -> Any:
    return _on_floats(larger, x, y)


def _narrowed(context: Any, x: Any) -> Any:
    def emit(builder: Any, x: Any) -> Any:
        narrow = eight(FLOAT32) if isinstance(x.type, ir.VectorType) else FLOAT32
        return builder.fpext(builder.fptrunc(x, narrow), x.type)

    return _on_floats(emit, x)


def _broadcast(context: Any, x: Any) -> Any:
    return typed(FLOATS, lambda context, b, x: spread(context, b, x[1], x[0], types.float64), x)


def _bits(context: Any, x: Any) -> Any:
    result, kind = (WORDS, eight(INT64)) if x is FLOATS else (types.uint64, INT64)
    return typed(result, lambda context, b, x: b.bitcast(x[1], kind), x)


def _from_bits(context: Any, word: Any) -> Any:
    result, kind = (FLOATS, eight(FLOAT64)) if word is WORDS else (types.float64, FLOAT64)
    return typed(result, lambda context, b, word: b.bitcast(word[1], kind), word)


def _fold(emit: Callable[..., Any]) -> Callable[..., Any]:
    """Combine lanes 0 to 3 with 4 to 7, of the result 0 and 1 with 2 and 3, and 0 with 1."""

    def body(context: Any, builder: Any, x: Any) -> Any:
        value = x[1]
        for half in (4, 2, 1):
            parts = [
                ir.Constant(ir.VectorType(INT32, half), list(range(start, start + half)))
                for start in (0, half)
            ]
            value = emit(builder, *(builder.shuffle_vector(value, value, part) for part in parts))
        return builder.extract_element(value, INT32(0))

    return lambda context, x: typed(types.float64, body, x)


def _byte(builder: Any, flags: Any) -> Any:
    return builder.bitcast(flags[1], INT8)


def _any_of(context: Any, flags: Any) -> Any:
    return typed(types.boolean, lambda _, b, flags: b.icmp_unsigned("!=", _byte(b, flags), INT8(0)), flags)


def _all_of(context: Any, flags: Any) -> Any:
    return typed(types.boolean, lambda _, b, flags: b.icmp_unsigned("==", _byte(b, flags), INT8(0xFF)), flags)


def _number_of(context: Any, flags: Any) -> Any:
    def body(context: Any, builder: Any, flags: Any) -> Any:
        return builder.zext(call(builder, "llvm.ctpop.i8", INT8, [_byte(builder, flags)]), INT64)

    return typed(types.int64, body, flags)


def _without(context: Any, flags: Any, others: Any) -> Any:
    return typed(FLAGS, lambda _, b, flags, others: b.and_(flags[1], b.not_(others[1])), flags, others)


def _first_of(context: Any, n: Any) -> Any:
    def body(context: Any, builder: Any, n: Any) -> Any:
        bound = spread(context, builder, n[1], n[0], types.int64)
        return builder.icmp_signed("<", ir.Constant(bound.type, list(range(WIDTH))), bound)

    return typed(FLAGS, body, n)


fma: Callable[[Vector, Vector, Vector], Vector] = intrinsic(_fma)
"""x * y + z with one rounding."""

where: Callable[[Flags, Vector, Vector], Vector] = intrinsic(_where)
"""x where the flag is set, else y: a selection, whatever stands in the other."""

least: Callable[[Vector, Vector], Vector] = intrinsic(_least)
"""x where x < y, else y: y too where one of them is NaN."""

greatest: Callable[[Vector, Vector], Vector] = intrinsic(_greatest)
"""x where x > y, else y: y too where one of them is NaN."""

narrowed: Callable[[Vector], Vector] = intrinsic(_narrowed)
"""The nearest float32, ties to even, widened again."""

bits: Callable[[Vector], Words] = intrinsic(_bits)
"""The 64 bits of a float64."""

from_bits: Callable[[Words], Vector] = intrinsic(_from_bits)
"""The float64 with these 64 bits."""

broadcast: Callable[[float], Vector] = intrinsic(_broadcast)
"""The vector with this number in every lane."""

total: Callable[[Vector], float] = intrinsic(_fold(lambda b, x, y: b.fadd(x, y)))
"""The sum of the lanes, three additions deep."""

lowest: Callable[[Vector], float] = intrinsic(_fold(smaller))
highest: Callable[[Vector], float] = intrinsic(_fold(larger))

any_of: Callable[[Flags], bool] = intrinsic(_any_of)
all_of: Callable[[Flags], bool] = intrinsic(_all_of)
number_of: Callable[[Flags], int] = intrinsic(_number_of)
"""How many flags are set."""

without: Callable[[Flags, Flags], Flags] = intrinsic(_without)
"""The flags that are set while the others are not."""

first_of: Callable[[int], Flags] = intrinsic(_first_of)
"""Flags of which the first n are set."""
