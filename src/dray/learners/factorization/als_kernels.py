"""The inner loops of training on implicit feedback, float32: alternating least squares."""

from __future__ import annotations

from typing import Any

import numpy as np

from dray.learners.factorization.compiling import plain, vectors


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
    """Improve out[first:last] by some steps of the conjugate gradient, starting from their values.

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
