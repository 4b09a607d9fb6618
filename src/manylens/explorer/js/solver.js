// Coverage, loss and distance weights for any diversity: the same water-filling as manylens/modules/solver.py.

const NEGLIGIBLE = 1e-13;
const VANISHING = 1e-10;

function waterLevel(q, rank, diversity) {
  let sum = 0, best = -Infinity;
  q.forEach((value, i) => {
    sum += value;
    best = Math.max(best, sum / (diversity * rank + (1 - diversity) * (i + 1)));
  });
  return best;
}

function fill(q, rank, level, diversity) {
  if (diversity < VANISHING) return q.map((value, i) => (i < rank ? value : 0));
  const t = q.map((value) => Math.max(0, (value - (1 - diversity) * level) / diversity));
  const total = t.reduce((a, b) => a + b, 0);
  return total > 0 ? t.map((value) => value * (rank * level / total)) : t;
}

function block(q, where, rank, level, diversity) {
  return { where, rank, level, coverage: fill(where.map((i) => q[i]), rank, level, diversity) };
}

function pooledBlocks(q, M, H, diversity, pool) {
  const span = (first, last) => {
    const where = [...range(first, last), ...range(last + M * (H - last), first + M * (H - first))];
    return { first, last, where, level: waterLevel(where.map((i) => q[i]), last - first, diversity) };
  };
  const spans = [];
  for (let slot = 0; slot < H; slot++) {
    spans.push(span(slot, slot + 1));
    while (pool && spans.length > 1 && spans.at(-2).level < spans.at(-1).level) {
      const [left, right] = spans.splice(-2);
      spans.push(span(left.first, right.last));
    }
  }
  const positive = spans.filter((s) => s.level > 0);
  return positive.map((s) => block(q, s.where, s.last - s.first, s.level, diversity));
}

function attainableBlocks(blocks, q, M, diversity) {
  const waiting = [...blocks], done = [];
  while (waiting.length) {
    const b = waiting.shift();
    const used = b.coverage.filter((t) => t > NEGLIGIBLE * b.level).length;
    const shared = b.rank * M - used * (M - 1);
    if (used <= b.rank || shared <= 0) { done.push(b); continue; }
    for (const i of b.where.slice(0, shared)) done.push({ where: [i], rank: 1, level: q[i], coverage: [q[i]] });
    const rank = b.rank - shared, rest = b.where.slice(shared);
    if (rank > 0) {
      const level = waterLevel(rest.map((i) => q[i]), rank, diversity);
      if (level > 0) waiting.unshift(block(q, rest, rank, level, diversity));
    }
  }
  return done;
}

function blockLoss(blocks, q, diversity) {
  let loss = 0;
  for (const { where, rank, level, coverage } of blocks) {
    loss += (1 - diversity) * rank * level ** 2;
    coverage.forEach((t, j) => { loss += diversity * t * t - 2 * t * q[where[j]]; });
  }
  return loss;
}

// Coverage t (K,), water level g of each coordinate, loss and lower bound of M modules of H directions.
export function solve(spectrum, M, H, diversity, energy) {
  const K = M * H, scale = spectrum[0] > 0 ? spectrum[0] : 1;
  const q = range(0, K).map((i) => (i < spectrum.length ? spectrum[i] / scale : 0));
  const pooled = pooledBlocks(q, M, H, diversity, M !== 2);
  const blocks = M >= 3 ? attainableBlocks(pooled, q, M, diversity) : pooled;
  const coverage = new Float64Array(K), level = new Float64Array(K);
  for (const b of blocks) {
    b.coverage.forEach((t, j) => {
      if (t > NEGLIGIBLE * b.level) [coverage[b.where[j]], level[b.where[j]]] = [t * scale, b.level * scale];
    });
  }
  const loss = (bs) => Math.max(0, energy + scale ** 2 * blockLoss(bs, q, diversity));
  return { coverage, level, loss: loss(blocks), bound: loss(pooled) };
}

// Weights w (k,) of the mean squared distance over modules, Σ w_i (Δc_i)².
export function distanceWeights(spectrum, solution, weighting) {
  const { coverage, level } = solution;
  return Float64Array.from(spectrum, (q, i) =>
    weighting === "kernel" ? coverage[i] / q : (level[i] * coverage[i]) / q ** 2);
}
