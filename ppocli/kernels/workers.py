"""The one parallel loop: it runs a compiled kernel once for each worker.

The kernel is called by its address. One that Numba knows it would put into the module of the loop and into
two more that it makes of a parallel loop, and optimise in each: 7 seconds more for the largest kernel, where
the address costs 0.4.
"""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ppocli.kernels import _jit


@intrinsic  # type: ignore[untyped-decorator]
def _call(context: Any, address: Any, worker: Any, n_workers: Any, arguments: Any) -> Any:
    """Call the C function at an address with these arguments."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds = (types.int64, types.int64, *arguments.types)
        function_type = ir.FunctionType(
            context.get_value_type(types.none), [context.get_value_type(kind) for kind in kinds]
        )
        numbers = [context.cast(builder, values[k], signature.args[k], types.int64) for k in (1, 2)]
        others = [builder.extract_value(values[3], k) for k in range(len(arguments.types))]
        function = builder.inttoptr(values[0], function_type.as_pointer())
        builder.call(function, [*numbers, *others])
        return context.get_dummy_value()

    return types.none(address, worker, n_workers, arguments), generate


def _run_workers(address: int, n_workers: int, arguments: tuple[Any, ...]) -> None:
    """Run the kernel at an address for every worker."""
    for worker in numba.prange(n_workers):
        _call(address, worker, n_workers, arguments)


run_workers = _jit.compiled(_run_workers, threads=True)
