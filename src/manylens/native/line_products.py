"""Inner products of a few long lines with each other."""

from __future__ import annotations

from manylens.native.compiling import compiled
from manylens.typing import FloatArray

STEP = 1024  # entries whose products are summed in the dtype of the lines


@compiled(fastmath={"nsz", "contract", "reassoc"})
def add_line_products(F: FloatArray, products: FloatArray) -> None:
    """Add F Fᵀ to products (p, p) on and below the diagonal, for lines F (p, m).

    BLAS packs lines before it multiplies them, which takes longer than the products of 20 lines. Here two
    lines are multiplied by four others at a time, so that eight sums stay in registers. Entries of `products`
    above the diagonal are meaningless afterwards.
    """
    p, m = F.shape
    zero = F.dtype.type(0)
    for start in range(0, m, STEP):
        stop = min(start + STEP, m)
        for i in range(0, p, 2):
            a, b = F[i, start:stop], F[min(i + 1, p - 1), start:stop]
            for j in range(0, i + 2, 4):
                w, x = F[min(j, p - 1), start:stop], F[min(j + 1, p - 1), start:stop]
                y, z = F[min(j + 2, p - 1), start:stop], F[min(j + 3, p - 1), start:stop]
                aw, ax, ay, az, bw, bx, by, bz = zero, zero, zero, zero, zero, zero, zero, zero
                for k in range(stop - start):
                    aw += a[k] * w[k]
                    ax += a[k] * x[k]
                    ay += a[k] * y[k]
                    az += a[k] * z[k]
                    bw += b[k] * w[k]
                    bx += b[k] * x[k]
                    by += b[k] * y[k]
                    bz += b[k] * z[k]
                sums = (aw, ax, ay, az), (bw, bx, by, bz)
                for row in range(min(2, p - i)):
                    for column in range(min(4, p - j)):
                        products[i + row, j + column] += sums[row][column]
