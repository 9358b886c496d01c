"""The inner loops of training on explicit ratings, float32: ratings into cells, and gradient descent on them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dray.learners.factorization.compiling import plain, prefetch, vectors

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
                    prefetch(p, first_user + users[soon], f)
                    prefetch(q, first_item + items[soon], f)
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
