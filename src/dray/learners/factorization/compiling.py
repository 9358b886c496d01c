"""How kernels are compiled: the one place that imports numba. No GIL, kept on disk, the same bits every time.

Imported only when something is trained or ranked, because numba takes a second to load.

`_REORDER` lets the compiler sum a product of two vectors lane by lane and fuse a multiplication with an addition;
without it the sum is one chain of additions and takes three times as long. It is no source of chance: what is compiled
for a processor has one order of additions. Processors with vectors of another width (AVX2, AVX-512, NEON) sum in
another order, so the last bits can differ between machines of different kinds. NaN and infinity keep their meaning
(a divergence must be seen), hence not all of fastmath.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from dray.errors import ConfigError

try:
    from llvmlite import ir
    from numba import njit, types
    from numba.core import cgutils
    from numba.extending import intrinsic
except ImportError as error:
    raise ConfigError(
        f"Recommenders need numba, which is not installed ({error}).",
        fix="pip install 'dray[recommend]', on every machine that trains or recommends.",
    ) from error

_REORDER = {"reassoc", "contract"}
_FOR_WRITING, _KEEP_IN_CACHE, _DATA = 1, 3, 1
"""What LLVM's prefetch asks for: the line will be written to, will be used again, and holds no code."""

Function = TypeVar("Function", bound=Callable[..., Any])


def plain(function: Function) -> Function:
    """Compile with the additions in the order that is written."""
    return cast(Function, njit(nogil=True, cache=True)(function))


def vectors(function: Function) -> Function:
    """Compile with sums of vectors lane by lane."""
    return cast(Function, njit(nogil=True, cache=True, fastmath=_REORDER)(function))


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(_: Any, array: Any, row: Any, column: Any) -> Any:  # noqa: ARG001 -- numba reads their names
    """Bring the line of cache that holds array[row, column] near. A hint: it changes no result, and cannot fail."""
    signature = types.void(array, types.intp, types.intp)

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        numbers = context.make_array(signature.args[0])(context, builder, arguments[0])
        width = cgutils.unpack_tuple(builder, numbers.shape, 2)[1]
        at = builder.add(builder.mul(arguments[1], width), arguments[2])
        byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        hint = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        address = builder.bitcast(builder.gep(numbers.data, [at]), byte)
        builder.call(hint, [address, flag(_FOR_WRITING), flag(_KEEP_IN_CACHE), flag(_DATA)])
        return context.get_dummy_value()

    return signature, lower
