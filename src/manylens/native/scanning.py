"""Hot loops of neighbor search: scan all rows by a few coordinates for those of smallest score.

A scan forms the scores |b|² - 2 q.b of some queries against a tile of rows by one matrix product (BLAS,
called from compiled code), and reads them once while they are still in cache. Products are small and take the
tile turned, one line a coordinate: BLAS then multiplies without copying its operands first, which for some
tens of coordinates would cost more than the product.
"""

import numpy as np
from numba import njit

TILE = 128  # rows in a product
LANES = 64  # queries in a product: its 32 KB of scores stay in the first-level cache, or nearly
FEW = 32  # candidates up to which heaps are the quickest
STRIDE = 8  # one tile in so many is a sample of the rows


@njit(cache=True, nogil=True)
def scan(queries, base, keys, rows):  # pragma: no cover
    """The m rows of smallest score for each query of a block.

    Parameters
    ----------
    queries : ndarray, shape (n_queries, d + 1)
        [q, 1].
    base : ndarray, shape (n, d + 1)
        [-2 b, |b|²], so that a product is a score.
    keys : ndarray, shape (n_queries, m)
        Scores, in no order, filled in place; infinity where there are fewer rows.
    rows : ndarray of int64, shape (n_queries, m)
        Rows that the keys belong to, filled in place; -1 where there are fewer.
    """
    m = keys.shape[1]
    # Heaps are cheap for few candidates; of many, a guess of where the last will lie saves most of the work.
    left = (
        scan_below_guess(queries, base, keys, rows)
        if m >= FEW and len(base) >= 64 * m
        else np.arange(len(queries))
    )
    if len(left) == len(queries):
        scan_by_heap(queries, base, keys, rows)
    elif len(left):
        some_keys, some_rows = keys[left], rows[left]
        scan_by_heap(queries[left], base, some_keys, some_rows)
        keys[left], rows[left] = some_keys, some_rows


@njit(cache=True, nogil=True)
def scan_by_heap(queries, base, keys, rows):  # pragma: no cover
    """The m rows of smallest score, each query holding the best so far in a heap.

    Parameters
    ----------
    queries : ndarray, shape (n_queries, d + 1)
        [q, 1].
    base : ndarray, shape (n, d + 1)
        [-2 b, |b|²], so that a product is a score.
    keys : ndarray, shape (n_queries, m)
        Max-heaps of scores, changed in place.
    rows : ndarray of int64, shape (n_queries, m)
        Rows that the keys belong to, changed in place.
    """
    keys[:] = np.inf
    rows[:] = -1
    columns, buffer = np.empty(base.shape[1] * TILE, base.dtype), np.empty(LANES * TILE, base.dtype)
    for first in range(0, len(base), TILE):
        tile = turned(base[first : first + TILE], columns)
        for start in range(0, len(queries), LANES):
            part = slice(start, start + LANES)
            keep_smallest(product(queries[part], tile, buffer), first, keys[part], rows[part])


@njit(cache=True, nogil=True)
def scan_below_guess(queries, base, keys, rows):  # pragma: no cover
    """The m rows of smallest score, by a guess from a sample of the rows; says where the guess was too low.

    Every STRIDE-th tile is a sample. Its s smallest scores give a limit below which some s STRIDE rows are to
    be expected, surely more than m; the rows below it are noted down, and the m smallest picked in the end.
    Where fewer than m lie below the limit the answer is not known.

    Parameters
    ----------
    queries : ndarray, shape (n_queries, d + 1)
        [q, 1].
    base : ndarray, shape (n, d + 1)
        [-2 b, |b|²], so that a product is a score.
    keys : ndarray, shape (n_queries, m)
        Scores, filled in place.
    rows : ndarray of int64, shape (n_queries, m)
        Rows that the keys belong to, filled in place.

    Returns
    -------
    ndarray of int64
        Queries that are left without an answer.
    """
    n_queries, m = keys.shape
    # s - 2.5 sqrt(s) rows of the sample stand for m: such a guess is too low for about one query in 160.
    s = int(np.ceil(((2.5 + np.sqrt(6.25 + 4 * m / STRIDE)) / 2) ** 2))
    room = max(2 * m, 2 * s * STRIDE)
    sample_keys, sample_rows = np.full((n_queries, s), np.inf, keys.dtype), np.full((n_queries, s), -1)
    pool_keys, pool_rows = np.empty((n_queries, room), keys.dtype), np.empty((n_queries, room), np.int64)
    columns, buffer = np.empty(base.shape[1] * TILE, base.dtype), np.empty(LANES * TILE, base.dtype)
    for first in range(0, len(base), TILE * STRIDE):
        tile = turned(base[first : first + TILE], columns)
        for start in range(0, n_queries, LANES):
            part = slice(start, start + LANES)
            scores = product(queries[part], tile, buffer)
            keep_smallest(scores, first, sample_keys[part], sample_rows[part])
    guess = sample_keys[:, 0].copy()
    limit, held = guess.copy(), np.full(n_queries, s)
    pool_keys[:, :s], pool_rows[:, :s] = sample_keys, sample_rows
    for number in range((len(base) + TILE - 1) // TILE):
        if number % STRIDE == 0:
            continue
        tile = turned(base[number * TILE : (number + 1) * TILE], columns)
        for start in range(0, n_queries, LANES):
            part = slice(start, start + LANES)
            scores = product(queries[part], tile, buffer)
            note_below(scores, number * TILE, m, limit[part], held[part], pool_keys[part], pool_rows[part])
    left = np.empty(n_queries, np.int64)
    n_left = 0
    for i in range(n_queries):
        smallest_first(pool_keys[i], pool_rows[i], held[i], m)
        # Of rows that score just the guess, some of the sample may be missing: only below it all are known.
        if held[i] >= m and pool_keys[i, m - 1] < guess[i]:
            keys[i], rows[i] = pool_keys[i, :m], pool_rows[i, :m]
        else:
            left[n_left] = i
            n_left += 1
    return left[:n_left]


@njit(cache=True, nogil=True)
def note_below(scores, first_row, m, limit, held, keys, rows):  # pragma: no cover
    """Append the scores of a tile not above each query's limit; a full list is cut to the m smallest.

    Parameters
    ----------
    scores : ndarray, shape (n_queries, tile)
        Score of each row of the tile.
    first_row : int
        Row that the tile begins with.
    m : int
        How many are wanted in the end.
    limit : ndarray, shape (n_queries,)
        Changed in place where a list is cut.
    held : ndarray of int64, shape (n_queries,)
        Lengths of the lists, changed in place.
    keys, rows : ndarray, shape (n_queries, room)
        The lists, changed in place.
    """
    n_queries, width = scores.shape
    for i in range(n_queries):
        score, largest = scores[i], limit[i]
        hits = 0
        for column in range(width):
            hits += score[column] <= largest
        if hits == 0:
            continue
        key, row, size = keys[i], rows[i], held[i]
        for column in range(width):
            if score[column] <= largest:
                key[size], row[size] = score[column], first_row + column
                size += 1
                if size == len(key):
                    smallest_first(key, row, size, m)
                    size, largest = m, key[m - 1]
        held[i], limit[i] = size, largest


@njit(cache=True, nogil=True)
def smallest_first(key, row, size, m):  # pragma: no cover
    """Bring the m smallest of a list to its front, the largest of them to place m - 1 (Hoare's selection).

    Parameters
    ----------
    key : ndarray
        Scores, changed in place.
    row : ndarray of int64
        Rows, which decide between equal scores, changed in place.
    size : int
        How many of the list count; where it is not more than m nothing is done.
    m : int
        How many are wanted.
    """
    low, high = 0, size - 1
    while low < high and m <= size:
        pivot_key, pivot_row = key[(low + high) // 2], row[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while key[i] < pivot_key or (key[i] == pivot_key and row[i] < pivot_row):
                i += 1
            while key[j] > pivot_key or (key[j] == pivot_key and row[j] > pivot_row):
                j -= 1
            if i <= j:
                key[i], key[j] = key[j], key[i]
                row[i], row[j] = row[j], row[i]
                i += 1
                j -= 1
        if m - 1 <= j:
            high = j
        elif m - 1 >= i:
            low = i
        else:
            return


@njit(cache=True, nogil=True)
def turned(tile, buffer):  # pragma: no cover
    """A tile of rows with one line a coordinate.

    Parameters
    ----------
    tile : ndarray, shape (n, d)
        Rows.
    buffer : ndarray, shape (at least n d,)
        Where the result is put.

    Returns
    -------
    ndarray, shape (d, n)
        Contiguous.
    """
    n, d = tile.shape
    lines = buffer[: n * d].reshape(d, n)
    for i in range(n):
        for k in range(d):
            lines[k, i] = tile[i, k]
    return lines


@njit(cache=True, nogil=True)
def product(queries, tile, buffer):  # pragma: no cover
    """Scores of queries against a turned tile.

    Parameters
    ----------
    queries : ndarray, shape (n_queries, d)
        Rows.
    tile : ndarray, shape (d, n)
        From `turned`.
    buffer : ndarray, shape (at least n_queries n,)
        Where the result is put.

    Returns
    -------
    ndarray, shape (n_queries, n)
        Contiguous.
    """
    scores = buffer[: len(queries) * tile.shape[1]].reshape(len(queries), tile.shape[1])
    np.dot(queries, tile, scores)
    return scores


@njit(cache=True, nogil=True)
def keep_smallest(scores, first_row, keys, rows):  # pragma: no cover
    """Offer a tile to each query's heap of the m smallest scores so far.

    Rows are offered in ascending order and replace only strictly larger keys, so that of equal scores the
    lowest rows stay.

    Parameters
    ----------
    scores : ndarray, shape (n_queries, tile)
        Score of each row of the tile.
    first_row : int
        Row that the tile begins with.
    keys : ndarray, shape (n_queries, m)
        Max-heaps of scores, changed in place; infinity where nothing is held.
    rows : ndarray of int64, shape (n_queries, m)
        Rows that the keys belong to, changed in place.
    """
    n_queries, width = scores.shape
    for i in range(n_queries):
        score, key, row = scores[i], keys[i], rows[i]
        largest = key[0]
        # Counted without a branch, which compiles to vectors: of most tiles nothing is small enough.
        hits = 0
        for column in range(width):
            hits += score[column] < largest
        if hits == 0:
            continue
        j = 0
        # Eight at a time by a tree of minima: one branch for eight comparisons, and it is rarely taken.
        while j + 8 <= width:
            left = min(min(score[j], score[j + 1]), min(score[j + 2], score[j + 3]))
            right = min(min(score[j + 4], score[j + 5]), min(score[j + 6], score[j + 7]))
            if left < largest or right < largest:
                for column in range(j, j + 8):
                    if score[column] < largest:
                        replace_largest(key, row, score[column], first_row + column)
                        largest = key[0]
            j += 8
        for column in range(j, width):
            if score[column] < largest:
                replace_largest(key, row, score[column], first_row + column)
                largest = key[0]


@njit(cache=True, nogil=True)
def replace_largest(key, row, new_key, new_row):  # pragma: no cover
    """Put a smaller key in the place of a heap's root and let it sink.

    Parameters
    ----------
    key, row : ndarray, shape (m,)
        The heap.
    new_key, new_row : float, int
        What comes in.
    """
    size, place = len(key), 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and key[child + 1] > key[child]:
            child += 1
        if key[child] <= new_key:
            break
        key[place], row[place] = key[child], row[child]
        place = child
    key[place], row[place] = new_key, new_row
