"""The inner loops of training, compiled by numba: no GIL, float32, the same bits every time.

Imported only when something is trained, because numba takes a second to load.

`_REORDER` lets the compiler sum a product of two vectors lane by lane and fuse a multiplication with an addition;
without it the sum is one chain of additions and takes three times as long. It is no source of chance: what is compiled
for a processor has one order of additions. Processors with vectors of another width (AVX2, AVX-512, NEON) sum in
another order, so the last bits can differ between machines of different kinds. NaN and infinity keep their meaning
(a divergence must be seen), hence not all of fastmath.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

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

Function = TypeVar("Function", bound=Callable[..., Any])


def plain(function: Function) -> Function:
    """Compile with the additions in the order that is written."""
    return cast(Function, njit(nogil=True, cache=True)(function))


def vectors(function: Function) -> Function:
    """Compile with sums of vectors lane by lane."""
    return cast(Function, njit(nogil=True, cache=True, fastmath=_REORDER)(function))


# The grid: ratings into cells.


@plain
def _cell(user_piece: Any, item_piece: Any, slot: Any, blocks: Any, cells: Any) -> Any:
    """The place of a cell: block by block, row by row within; -1 if the block is not wanted here."""
    place = slot[user_piece // cells]
    if place < 0:
        return np.int64(-1)
    block = place * blocks + item_piece // cells
    return np.int64((block * cells + user_piece % cells) * cells + item_piece % cells)


@plain
def count_cells(
    users: Any, items: Any, user_piece: Any, item_piece: Any, slot: Any, blocks: Any, cells: Any, counts: Any
) -> None:
    """Add to counts[1 + cell] how many ratings there are, so that a running sum tells where cells begin."""
    for n in range(users.shape[0]):
        cell = _cell(user_piece[users[n]], item_piece[items[n]], slot, blocks, cells)
        if cell >= 0:
            counts[cell + 1] += 1


@plain
def place_in_cells(
    users: Any,
    items: Any,
    values: Any,
    user_piece: Any,
    item_piece: Any,
    user_row: Any,
    item_row: Any,
    slot: Any,
    blocks: Any,
    cells: Any,
    free: Any,
    out_users: Any,
    out_items: Any,
    out_values: Any,
) -> None:
    """Put every rating at its cell's next free place, with rows in place of indices."""
    for n in range(users.shape[0]):
        user = users[n]
        item = items[n]
        cell = _cell(user_piece[user], item_piece[item], slot, blocks, cells)
        if cell >= 0:
            at = free[cell]
            free[cell] = at + 1
            out_users[at] = user_row[user]
            out_items[at] = item_row[item]
            out_values[at] = values[n]


@plain
def _begins(keys: Any, begins: Any, most: Any) -> None:
    """Fill begins[key] with where a key's entries begin, once sorted."""
    begins[: most + 1] = 0
    for n in range(keys.shape[0]):
        begins[np.int64(keys[n]) + 1] += 1
    for key in range(most):
        begins[key + 1] += begins[key]


@plain
def sort_cells(offsets: Any, users: Any, items: Any, values: Any, most_users: Any, most_items: Any) -> Any:
    """Sort each cell by user, item and value; return how many ratings repeat the pair before them.

    By counting, the item first and then the user (each pass keeps the order of the one before): five times as fast as
    comparing. Repeated pairs are few, and put into order by insertion.
    """
    longest = 0
    for cell in range(offsets.shape[0] - 1):
        longest = max(longest, offsets[cell + 1] - offsets[cell])
    spare_users = np.empty(longest, users.dtype)
    spare_items = np.empty(longest, items.dtype)
    spare_values = np.empty(longest, values.dtype)
    user_begins = np.empty(most_users + 2, np.int64)
    item_begins = np.empty(most_items + 2, np.int64)
    duplicates = 0
    for cell in range(offsets.shape[0] - 1):
        first = offsets[cell]
        last = offsets[cell + 1]
        _begins(items[first:last], item_begins, most_items)
        for n in range(first, last):
            at = item_begins[items[n]]
            item_begins[items[n]] = at + 1
            spare_users[at] = users[n]
            spare_items[at] = items[n]
            spare_values[at] = values[n]
        _begins(users[first:last], user_begins, most_users)
        for n in range(last - first):
            at = user_begins[spare_users[n]]
            user_begins[spare_users[n]] = at + 1
            users[first + at] = spare_users[n]
            items[first + at] = spare_items[n]
            values[first + at] = spare_values[n]
        for n in range(first + 1, last):
            at = n
            if users[n] == users[n - 1] and items[n] == items[n - 1]:
                duplicates += 1
            value = values[n]
            while at > first and users[at - 1] == users[n] and items[at - 1] == items[n] and values[at - 1] > value:
                values[at] = values[at - 1]
                at -= 1
            values[at] = value
    return duplicates


# Explicit ratings: stochastic gradient descent.

_AHEAD = 8
"""Ratings from the request for rows of factors to their use: some 300 ns, what memory takes while others use it too.

Rows of users are used once or twice in a cell; waited for, they cost as much time again as all arithmetic.
"""
_LINE = 16
"""Numbers in a line of cache."""
_FOR_WRITING, _KEEP_IN_CACHE, _DATA = 1, 3, 1
"""What LLVM's prefetch asks for: the line will be written to, will be used again, and holds no code."""


@intrinsic  # type: ignore[untyped-decorator]
def _prefetch(_: Any, array: Any, row: Any, column: Any) -> Any:  # noqa: ARG001 -- numba reads their names
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


@vectors
def descend(
    users: Any,
    items: Any,
    values: Any,
    offsets: Any,
    user_edges: Any,
    item_edges: Any,
    p: Any,
    q: Any,
    user_bias: Any,
    item_bias: Any,
    mean: Any,
    keep: Any,
    factor_step: Any,
    bias_step: Any,
    diagonals: Any,
    rows: Any,
    squares: Any,
) -> None:
    """Run some diagonals of a block, and of each the cells of some rows: one update for each rating, in order.

    p' = keep p + step error q, q' = keep q + step error p, with keep = 1 - rate * regularization.
    squares[row, column] becomes a cell's sum of squared errors, each taken before its own update.
    """
    cells = user_edges.shape[0] - 1
    k = p.shape[1]
    for diagonal in range(diagonals[0], diagonals[1]):
        for row in range(rows[0], rows[1]):
            column = (row + diagonal) % cells
            first_user = user_edges[row]
            first_item = item_edges[column]
            total = 0.0
            last = offsets[row * cells + column + 1]
            for n in range(offsets[row * cells + column], last):
                u = first_user + users[n]
                i = first_item + items[n]
                soon = min(n + _AHEAD, last - 1)
                for f in range(0, k, _LINE):
                    _prefetch(p, first_user + users[soon], f)
                    _prefetch(q, first_item + items[soon], f)
                dot = np.float32(0)
                for f in range(k):
                    dot += p[u, f] * q[i, f]
                error = values[n] - (mean + user_bias[u] + item_bias[i] + dot)
                total += np.float64(error) * np.float64(error)
                user_bias[u] = keep * user_bias[u] + bias_step * error
                item_bias[i] = keep * item_bias[i] + bias_step * error
                step = factor_step * error
                for f in range(k):
                    x = p[u, f]
                    y = q[i, f]
                    p[u, f] = keep * x + step * y
                    q[i, f] = keep * y + step * x
            squares[row, column] = total


# Implicit feedback: alternating least squares.


@plain
def count_rows(rows: Any, first: Any, counts: Any) -> None:
    """Add to counts[1 + row - first] for each row of the range."""
    size = counts.shape[0] - 1
    for n in range(rows.shape[0]):
        row = np.int64(rows[n]) - first
        if 0 <= row < size:
            counts[row + 1] += 1


@plain
def place_in_rows(
    rows: Any, columns: Any, values: Any, first: Any, free: Any, out_columns: Any, out_values: Any
) -> None:
    size = free.shape[0]
    for n in range(rows.shape[0]):
        row = np.int64(rows[n]) - first
        if 0 <= row < size:
            at = free[row]
            free[row] = at + 1
            out_columns[at] = columns[n]
            out_values[at] = values[n]


@plain
def sort_rows(starts: Any, columns: Any, values: Any, first: Any, last: Any) -> Any:
    """Sort the entries of each row by column; return how many repeat the column before them."""
    duplicates = 0
    for row in range(first, last):
        begin = starts[row]
        end = starts[row + 1]
        rising = True
        for n in range(begin + 1, end):
            if columns[n] <= columns[n - 1]:
                rising = False
                break
        if rising:
            continue
        order = np.argsort(columns[begin:end])
        columns[begin:end] = columns[begin:end][order]
        values[begin:end] = values[begin:end][order]
        for n in range(begin + 1, end):
            duplicates += columns[n] == columns[n - 1]
    return duplicates


@plain
def transpose(starts: Any, columns: Any, values: Any, free: Any, out_rows: Any, out_values: Any) -> None:
    """Place the entries by column: rows rise within a column, as they are gone through in order."""
    for row in range(starts.shape[0] - 1):
        for n in range(starts[row], starts[row + 1]):
            at = free[columns[n]]
            free[columns[n]] = at + 1
            out_rows[at] = row
            out_values[at] = values[n]


@vectors
def gram(factors: Any, out: Any) -> None:
    """Fill `out` (float64) with the sum of y y' over the rows: float32 over 256 rows, float64 over those sums.

    Four rows at a time, so that a sum is read and written once for four products. Not by BLAS: how that divides the
    sum is its own affair and may change with the number of its threads.
    """
    n = factors.shape[0]
    k = factors.shape[1]
    part = np.zeros((k, k), np.float32)
    out[:] = 0.0
    for first in range(0, n, 256):
        last = min(n, first + 256)
        part[:] = np.float32(0)
        whole = last - (last - first) % 4
        for r in range(first, whole, 4):
            for a in range(k):
                w0 = factors[r, a]
                w1 = factors[r + 1, a]
                w2 = factors[r + 2, a]
                w3 = factors[r + 3, a]
                for b in range(a, k):
                    part[a, b] += (
                        w0 * factors[r, b] + w1 * factors[r + 1, b] + w2 * factors[r + 2, b] + w3 * factors[r + 3, b]
                    )
        for r in range(whole, last):
            for a in range(k):
                w0 = factors[r, a]
                for b in range(a, k):
                    part[a, b] += w0 * factors[r, b]
        for a in range(k):
            for b in range(a, k):
                out[a, b] += np.float64(part[a, b])
    for a in range(k):
        for b in range(a):
            out[a, b] = out[b, a]


@vectors
def _times(matrix: Any, shift: Any, x: Any, out: Any) -> None:
    """out = (matrix + shift * identity) x, the matrix being symmetric: row by row, four at a time."""
    k = x.shape[0]
    for b in range(k):
        out[b] = shift * x[b]
    whole = k - k % 4
    for a in range(0, whole, 4):
        x0 = x[a]
        x1 = x[a + 1]
        x2 = x[a + 2]
        x3 = x[a + 3]
        for b in range(k):
            out[b] += x0 * matrix[a, b] + x1 * matrix[a + 1, b] + x2 * matrix[a + 2, b] + x3 * matrix[a + 3, b]
    for a in range(whole, k):
        x0 = x[a]
        for b in range(k):
            out[b] += x0 * matrix[a, b]


@vectors
def _dot(x: Any, y: Any) -> Any:
    total = np.float32(0)
    for f in range(x.shape[0]):
        total += x[f] * y[f]
    return total


@plain
def _shift(starts: Any, weights: Any, row: Any, alpha: Any, regularization: Any, power: Any, others: Any) -> Any:
    """Return a row's regularization: lambda times (confidence of the row, over all others) to a power."""
    mass = np.float64(others)
    for n in range(starts[row], starts[row + 1]):
        mass += np.float64(alpha) * abs(np.float64(weights[n]))
    return np.float32(np.float64(regularization) * mass ** np.float64(power))


@vectors
def solve_by_gradients(
    starts: Any,
    columns: Any,
    weights: Any,
    others: Any,
    matrix: Any,
    alpha: Any,
    regularization: Any,
    power: Any,
    steps: Any,
    first: Any,
    last: Any,
    out: Any,
) -> None:
    """Improve out[first:last] by some steps of the conjugate gradient, from where they stand.

    The system of a row: (Y'Y + sum alpha |w| y y' + shift) x = sum of (1 + alpha w) y over the w > 0. It is never
    formed; a product with it takes k * k and 2 k for each entry of the row.
    """
    k = others.shape[1]
    residual = np.empty(k, np.float32)
    direction = np.empty(k, np.float32)
    product = np.empty(k, np.float32)
    one = np.float32(1)
    for row in range(first, last):
        x = out[row]
        begin = starts[row]
        end = starts[row + 1]
        if begin == end:
            x[:] = np.float32(0)
            continue
        shift = _shift(starts, weights, row, alpha, regularization, power, others.shape[0])
        _times(matrix, shift, x, residual)
        for f in range(k):
            residual[f] = -residual[f]
        for n in range(begin, end):
            c = columns[n]
            dot = np.float32(0)
            for f in range(k):
                dot += others[c, f] * x[f]
            confidence = alpha * abs(weights[n])
            pull = -confidence * dot
            if weights[n] > 0:
                pull += one + confidence
            for f in range(k):
                residual[f] += pull * others[c, f]
        direction[:] = residual
        error = _dot(residual, residual)
        for _ in range(steps):
            if error < np.float32(1e-20):
                break
            _times(matrix, shift, direction, product)
            for n in range(begin, end):
                c = columns[n]
                dot = np.float32(0)
                for f in range(k):
                    dot += others[c, f] * direction[f]
                pull = alpha * abs(weights[n]) * dot
                for f in range(k):
                    product[f] += pull * others[c, f]
            length = error / _dot(direction, product)
            for f in range(k):
                x[f] += length * direction[f]
                residual[f] -= length * product[f]
            next_error = _dot(residual, residual)
            turn = next_error / error
            for f in range(k):
                direction[f] = residual[f] + turn * direction[f]
            error = next_error


@vectors
def solve_exactly(
    starts: Any,
    columns: Any,
    weights: Any,
    others: Any,
    matrix: Any,
    alpha: Any,
    regularization: Any,
    power: Any,
    first: Any,
    last: Any,
    out: Any,
) -> Any:
    """Fill out[first:last] with the solutions, by Cholesky; return the first row whose system has none, or -1.

    The lower half of the system is kept as rows, so that every inner loop runs along memory.
    """
    k = others.shape[1]
    system = np.empty((k, k), np.float32)
    one = np.float32(1)
    for row in range(first, last):
        x = out[row]
        begin = starts[row]
        end = starts[row + 1]
        if begin == end:
            x[:] = np.float32(0)
            continue
        shift = _shift(starts, weights, row, alpha, regularization, power, others.shape[0])
        x[:] = np.float32(0)
        for a in range(k):
            for b in range(a, k):
                system[a, b] = matrix[a, b]
            system[a, a] += shift
        for n in range(begin, end):
            c = columns[n]
            confidence = alpha * abs(weights[n])
            if weights[n] > 0:
                for f in range(k):
                    x[f] += (one + confidence) * others[c, f]
        n = begin
        while n + 4 <= end:
            c0 = columns[n]
            c1 = columns[n + 1]
            c2 = columns[n + 2]
            c3 = columns[n + 3]
            s0 = alpha * abs(weights[n])
            s1 = alpha * abs(weights[n + 1])
            s2 = alpha * abs(weights[n + 2])
            s3 = alpha * abs(weights[n + 3])
            for a in range(k):
                w0 = s0 * others[c0, a]
                w1 = s1 * others[c1, a]
                w2 = s2 * others[c2, a]
                w3 = s3 * others[c3, a]
                for b in range(a, k):
                    system[a, b] += w0 * others[c0, b] + w1 * others[c1, b] + w2 * others[c2, b] + w3 * others[c3, b]
            n += 4
        while n < end:
            c0 = columns[n]
            s0 = alpha * abs(weights[n])
            for a in range(k):
                w0 = s0 * others[c0, a]
                for b in range(a, k):
                    system[a, b] += w0 * others[c0, b]
            n += 1
        # system = U' U, in place: row a of U, then what it takes from the rows below.
        for a in range(k):
            if not system[a, a] > 0:
                return row
            inverse = one / np.sqrt(system[a, a])
            for b in range(a, k):
                system[a, b] *= inverse
            for c in range(a + 1, k):
                factor = system[a, c]
                for b in range(c, k):
                    system[c, b] -= factor * system[a, b]
        for a in range(k):  # U' z = x
            x[a] /= system[a, a]
            factor = x[a]
            for b in range(a + 1, k):
                x[b] -= factor * system[a, b]
        for a in range(k - 1, -1, -1):  # U y = z
            total = np.float32(0)
            for b in range(a + 1, k):
                total += system[a, b] * x[b]
            x[a] = (x[a] - total) / system[a, a]
    return -1
