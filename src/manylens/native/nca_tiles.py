"""Four rows against a tile of 32 columns: the step that every loop of NCA is made of.

Points stand in tiles of 32 of one class (`metric.layout`). A tile is d + 1 vectors that lie side by side: the
coordinates, one vector for each dimension, and minus the squared norms. So a tile is read as one stretch of
memory, and -|z_i - z_j|² = 2 z_i·z_j - |z_i|² - |z_j|² is d multiply-adds.
"""

# mypy cannot see through numba's intrinsics.
# mypy: ignore-errors

from numba import njit

from manylens.native.nca_lanes import LANES, add, exp2, fma, load, maximum, mul, splat, with_lane

ROWS = 4  # rows held in registers against one tile of columns
GROUPS = LANES // ROWS
HALF = LANES // 2
MOST_WORKERS = 16
BLOCK_BYTES = 2**18  # one worker's block of columns, coordinates and sums: should stay in cache
FAR = -1e30  # minus the squared norm of an empty slot: no kernel reaches it


@njit(forceinline=True)
def load_row(points, d, slot, rows, t):
    """Twice the coordinates of the point in `slot`, then minus its squared norm, into place t of `rows`."""
    place = (slot // LANES) * (d + 1) * LANES + slot % LANES
    for k in range(d):
        rows[k * ROWS + t] = points[place + k * LANES] * 2
    rows[d * ROWS + t] = points[place + d * LANES]


@njit(forceinline=True)
def minus_distances(points, d, rows, tile):
    """-|z_i - z_j|² of the four rows against a tile."""
    place = tile * (d + 1) * LANES
    norms = load(points, place + d * LANES)
    e0 = add(splat(rows[d * ROWS]), norms)
    e1 = add(splat(rows[d * ROWS + 1]), norms)
    e2 = add(splat(rows[d * ROWS + 2]), norms)
    e3 = add(splat(rows[d * ROWS + 3]), norms)
    q = 0
    for _ in range(d):
        z = load(points, place)
        e0 = fma(splat(rows[q]), z, e0)
        e1 = fma(splat(rows[q + 1]), z, e1)
        e2 = fma(splat(rows[q + 2]), z, e2)
        e3 = fma(splat(rows[q + 3]), z, e3)
        place += LANES
        q += ROWS
    return e0, e1, e2, e3


@njit(forceinline=True)
def within_reach(e, zero, one):
    """max(1 - D, 0) at e = -D."""
    return maximum(add(e, splat(one)), splat(zero))


@njit(forceinline=True)
def kernel(e, zero, one, compact):
    """k(D) at e = -D: 2**-D, or (1 - D)**2 within reach."""
    if compact:
        inside = within_reach(e, zero, one)
        return mul(inside, inside)
    return exp2(e)


@njit(forceinline=True)
def slope(e, zero, one, compact):
    """-k'(D) at e = -D, up to the ln 2 that the caller's units absorb: 2**-D, or 2 (1 - D) within reach."""
    if compact:
        inside = within_reach(e, zero, one)
        return add(inside, inside)
    return exp2(e)


@njit(forceinline=True)
def without_self(e0, e1, e2, e3, lane, zero):
    """The four vectors of a tile against itself, the pair of each point with itself set to `zero`."""
    return (
        with_lane(e0, lane, zero),
        with_lane(e1, lane + 1, zero),
        with_lane(e2, lane + 2, zero),
        with_lane(e3, lane + 3, zero),
    )


def workers_and_block(n_tiles, d, n_sums, itemsize):
    """Number of workers, and tiles of columns in a block: both depend on the data alone."""
    n_workers = max(1, min(MOST_WORKERS, n_tiles // 8))
    block = max(8, BLOCK_BYTES // ((d + 1 + n_sums) * LANES * itemsize))
    return n_workers, min(block, n_tiles)


@njit(forceinline=True)
def partners_within(tile, begin, end, starts, partners, cursor):
    """First and last + 1 of the partners of `tile` among the tiles begin..end; a list's cursor moves on."""
    if starts.shape[0] == 0:
        return max(begin, tile + 1), end
    first = last = cursor[tile]
    while last < starts[tile + 1] and partners[last] < end:
        last += 1
    cursor[tile] = last
    return first, last
