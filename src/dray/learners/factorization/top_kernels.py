"""The inner loops of scoring and ranking, compiled by numba: without the GIL, the same answer every time.

Imported only when something is scored, because numba takes a second to load.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dray.learners.factorization.compiling import plain

BLOCK = 64
"""Items whose codes lie together: a multiple of every vector width."""
LANES = 32
"""Scores that are compared with the worst of a heap at once."""
NO_ITEM = 2**31 - 1
"""What an empty place of a heap holds: behind every item of the same score."""


@plain
def exact_dot(left: Any, right: Any) -> Any:
    """The one definition of p.q: summed in float64 in a fixed order, so that equal vectors have equal scores."""
    k = left.shape[0]
    a = 0.0
    b = 0.0
    c = 0.0
    d = 0.0
    whole = k - k % 4
    for f in range(0, whole, 4):
        a += np.float64(left[f]) * np.float64(right[f])
        b += np.float64(left[f + 1]) * np.float64(right[f + 1])
        c += np.float64(left[f + 2]) * np.float64(right[f + 2])
        d += np.float64(left[f + 3]) * np.float64(right[f + 3])
    for f in range(whole, k):
        a += np.float64(left[f]) * np.float64(right[f])
    return (a + b) + (c + d)


@plain
def score_pairs(p: Any, q: Any, user_bias: Any, item_bias: Any, mean: Any, users: Any, items: Any, out: Any) -> None:
    """Fill `out` with the score of every pair; the index -1 is an unknown user or item: no bias, no factors."""
    for row in range(users.shape[0]):
        user = users[row]
        item = items[row]
        score = mean
        if user >= 0:
            score += np.float64(user_bias[user])
        if item >= 0:
            score += np.float64(item_bias[item])
        if user >= 0 and item >= 0:
            score += exact_dot(p[user], q[item])
        out[row] = score


@plain
def error_sums(scores: Any, values: Any, low: Any, high: Any) -> Any:
    """Return the sums of squared and of absolute errors of scores held within [low, high]."""
    squares = 0.0
    sizes = 0.0
    for row in range(scores.shape[0]):
        error = min(max(np.float64(scores[row]), low), high) - np.float64(values[row])
        squares += error * error
        sizes += abs(error)
    return squares, sizes


# Heaps: the best candidates so far, the worst at the root.


@plain
def _behind(score: Any, item: Any, other_score: Any, other_item: Any) -> Any:
    """Whether a candidate ranks behind another: a lower score, or an equal one and a higher index."""
    return score < other_score or (score == other_score and item > other_item)


@plain
def _sink(scores: Any, items: Any, place: Any, size: Any) -> None:
    """Let the entry at `place` sink to its position in the heap."""
    while True:
        child = 2 * place + 1
        if child >= size:
            return
        if child + 1 < size and _behind(scores[child + 1], items[child + 1], scores[child], items[child]):
            child += 1
        if not _behind(scores[child], items[child], scores[place], items[place]):
            return
        scores[place], scores[child] = scores[child], scores[place]
        items[place], items[child] = items[child], items[place]
        place = child


@plain
def _replace_worst(scores: Any, items: Any, score: Any, item: Any) -> None:
    scores[0] = score
    items[0] = item
    _sink(scores, items, 0, scores.shape[0])


@plain
def sort_best_first(scores: Any, items: Any) -> None:
    """Put candidates in any order into that of a list, the best first."""
    size = scores.shape[0]
    for place in range(size // 2 - 1, -1, -1):
        _sink(scores, items, place, size)
    while size > 1:
        size -= 1
        scores[0], scores[size] = scores[size], scores[0]
        items[0], items[size] = items[size], items[0]
        _sink(scores, items, 0, size)


@plain
def _within(values: Any, low: Any, high: Any, wanted: Any) -> Any:
    """Whether ascending values[low:high] hold one."""
    end = high
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low < end and values[low] == wanted


# All users: tiles of scores from a matrix product.


@plain
def keep_best(
    tile: Any, bias: Any, names: Any, begins: Any, ends: Any, seen: Any, limits: Any, scores: Any, items: Any
) -> None:
    """Offer a tile of products (users x items) to the heaps of its users, without the items they had.

    `limits` is the score from which on an item may matter at all: that of the heap's worst, held apart so that many
    scores are compared at once; nearly always none reaches it.
    """
    columns = tile.shape[1]
    for row in range(tile.shape[0]):
        line = tile[row]
        begin = begins[row]
        end = ends[row]
        heap = scores[row]
        held = items[row]
        limit = limits[row]
        column = 0
        while column + LANES <= columns:
            reached = 0
            for lane in range(LANES):
                reached += line[column + lane] + bias[column + lane] >= limit
            if reached:
                for place in range(column, column + LANES):
                    score = line[place] + bias[place]
                    if _behind(heap[0], held[0], score, names[place]) and not _within(seen, begin, end, names[place]):
                        _replace_worst(heap, held, score, names[place])
                limit = heap[0]
            column += LANES
        for place in range(column, columns):
            score = line[place] + bias[place]
            if _behind(heap[0], held[0], score, names[place]) and not _within(seen, begin, end, names[place]):
                _replace_worst(heap, held, score, names[place])
        limits[row] = heap[0]


@plain
def settle(p: Any, q: Any, item_bias: Any, scores: Any, items: Any) -> None:
    """Give the candidates of users p their exact scores, and put them in order, the best first."""
    for row in range(scores.shape[0]):
        for place in range(scores.shape[1]):
            item = items[row, place]
            if item != NO_ITEM:
                scores[row, place] = np.float64(item_bias[item]) + exact_dot(p[row], q[item])
        sort_best_first(scores[row], items[row])


# One user: codes of four bits tell which items need not be looked at.


@plain
def encode(q: Any, order: Any, codes: Any, scales: Any, slacks: Any, lengths: Any, begin: Any, end: Any) -> Any:
    """Fill the codes of blocks begin..end: of each its scale and longest vector, of each item the length of its error.

    Of some scales the one with the least error is taken. Returns the longest code, for the range of the sums.
    """
    k = q.shape[1]
    n = order.shape[0]
    longest_code = 0.0
    for block in range(begin, end):
        first = block * BLOCK
        count = min(BLOCK, n - first)
        top = 0.0
        for j in range(count):
            for f in range(k):
                top = max(top, abs(np.float64(q[order[first + j], f])))
        best = 1.0
        least = np.inf
        for tenths in range(4, 11):
            scale = top * tenths / 70.0
            if scale == 0.0:
                break
            inverse = 1.0 / scale
            total = 0.0
            for j in range(0, count, 8):  # some tell enough
                for f in range(k):
                    value = np.float64(q[order[first + j], f])
                    error = value - scale * min(max(np.rint(value * inverse), -7.0), 7.0)
                    total += error * error
            if total < least:
                least = total
                best = scale
        scales[block] = best
        length = 0.0
        for j in range(BLOCK):
            squared_error = 0.0
            squared = 0.0
            squared_code = 0.0
            for pair in range(codes.shape[1]):
                byte = np.int64(8)  # both codes are 0: the low one is kept as 1..15
                for half in range(2):
                    f = 2 * pair + half
                    if j < count and f < k:
                        value = np.float64(q[order[first + j], f])
                        code = min(max(np.rint(value / best), -7.0), 7.0)
                        error = value - best * code
                        squared_error += error * error
                        squared += value * value
                        squared_code += code * code
                        byte += np.int64(code) * (16 if half else 1)
                codes[block, pair, j] = byte
            slacks[first + j] = np.sqrt(squared_error)
            length = max(length, squared)
            longest_code = max(longest_code, squared_code)
        lengths[block] = np.sqrt(length)
    return np.sqrt(longest_code)


@plain
def scan(
    q: Any,
    item_bias: Any,
    order: Any,
    codes: Any,
    scales: Any,
    slacks: Any,
    lengths: Any,
    biases: Any,
    top_biases: Any,
    vector: Any,
    steps: Any,
    step: Any,
    vector_length: Any,
    steps_error: Any,
    skipped: Any,
    scores: Any,
    items: Any,
) -> None:
    """Offer the items of some blocks to a heap with exact scores, but none that cannot enter it.

    |p.q - p'.q'| <= |p| |q - q'| + |p - p'| |q'| (Cauchy-Schwarz) for the rounded p', q': an item whose score from the
    codes lies further below the worst of the heap than that is passed over, and so is a block whose longest vector is
    too short. A byte is 16 high + low: low x a + high x b is byte x a + high x (b - 16 a), which is what `steps` holds.
    The sums are 16 bits wide and may overflow on the way: what comes out is right, as it fits.
    """
    pairs = codes.shape[1]
    n = order.shape[0]
    sums = np.empty(BLOCK, np.int16)
    estimates = np.empty(BLOCK, np.float32)
    offset = np.int64(0)
    for pair in range(pairs):
        offset += 8 * np.int64(steps[2 * pair])
    start = np.int16(-offset)
    whole = pairs - pairs % 4
    for block in range(codes.shape[0]):
        reach = vector_length * lengths[block] * (1.0 + 1e-6)
        if top_biases[block] + reach < scores[0]:
            continue
        for j in range(BLOCK):
            sums[j] = start
        lines = codes[block]
        for pair in range(0, whole, 4):
            a0 = steps[2 * pair]
            a1 = steps[2 * pair + 1]
            b0 = steps[2 * pair + 2]
            b1 = steps[2 * pair + 3]
            c0 = steps[2 * pair + 4]
            c1 = steps[2 * pair + 5]
            d0 = steps[2 * pair + 6]
            d1 = steps[2 * pair + 7]
            for j in range(BLOCK):
                a = np.int16(lines[pair, j])
                b = np.int16(lines[pair + 1, j])
                c = np.int16(lines[pair + 2, j])
                d = np.int16(lines[pair + 3, j])
                low = a0 * a + b0 * b + c0 * c + d0 * d
                high = a1 * (a >> 4) + b1 * (b >> 4) + c1 * (c >> 4) + d1 * (d >> 4)
                sums[j] = np.int16(sums[j] + low + high)
        for pair in range(whole, pairs):
            a0 = steps[2 * pair]
            a1 = steps[2 * pair + 1]
            for j in range(BLOCK):
                a = np.int16(lines[pair, j])
                sums[j] = np.int16(sums[j] + a0 * a + a1 * (a >> 4))
        base = block * BLOCK
        factor = np.float32(scales[block] * step)
        # 1e-5: float32's own errors; |q'| <= 2 |q|, as a code is never further from its value than 0 is
        limit = np.float32(scores[0] - 2.0 * steps_error * lengths[block] - 1e-5 * (reach + abs(scores[0])))
        slack = np.float32(vector_length)
        reached = 0
        for j in range(BLOCK):
            estimates[j] = np.float32(sums[j]) * factor + biases[base + j] + slack * slacks[base + j]
            reached += estimates[j] >= limit
        if reached == 0:
            continue
        for j in range(min(BLOCK, n - base)):
            if estimates[j] >= limit:
                item = order[base + j]
                score = np.float64(item_bias[item]) + exact_dot(vector, q[item])
                if _behind(scores[0], items[0], score, item) and not _within(skipped, 0, skipped.shape[0], item):
                    _replace_worst(scores, items, score, item)
