// Neighbors by all modules and by each. These functions are also the source of a worker, so they use no others.

function range(first, last) {
  return Array.from({ length: Math.max(0, last - first) }, (_, i) => first + i);
}

// Squared distances of all rows (n, k) to `center` (k).
function squaredDistances(rows, n, k, center) {
  const out = new Float64Array(n);
  for (let j = 0, p = 0; j < n; j++) {
    let sum = 0;
    for (let i = 0; i < k; i++, p++) {
      const d = rows[p] - center[i];
      sum += d * d;
    }
    out[j] = sum;
  }
  return out;
}

// The rows with the smallest Σ w_i (row_i - center_i)², nearest first, without `query`; the first row wins among
// equals. A row is abandoned as soon as its leading columns are too far; the rows `likely`, if they are as many as
// are wanted, tell from the start how far that is.
export function weightedNearest(rows, n, k, weights, center, count, query, likely = []) {
  let width = k;
  while (width > 0 && !(weights[width - 1] > 0)) width--;
  const w = Float64Array.from(weights), c = Float64Array.from(center), found = [], distances = [];
  const distance = (start, limit) => {
    let sum = 0;
    for (let i = 0; i < width && sum <= limit;) {
      const end = Math.min(i + 8, width);
      for (; i < end; i++) {
        const d = rows[start + i] - c[i];
        sum += w[i] * d * d;
      }
    }
    return sum;
  };
  const near = likely.filter((j) => j !== query).map((j) => distance(j * k, Infinity)).sort((a, b) => a - b);
  let limit = near.length < count ? Infinity : near[count - 1];
  for (let j = 0, start = 0; j < n; j++, start += k) {
    const d = distance(start, limit);
    if (d > limit || j === query || (found.length === count && d === limit)) continue;
    let place = found.length;
    while (place > 0 && distances[place - 1] > d) place--;
    found.splice(place, 0, j);
    distances.splice(place, 0, d);
    if (found.length > count) { found.pop(); distances.pop(); }
    if (found.length === count) limit = distances[count - 1];
  }
  return { together: found, distances: distances.map(Math.sqrt) };
}

// The rows with the smallest distances, nearest first, without `query`; the first row wins among equals.
export function nearest(distances, count, query) {
  const found = [];
  let farthest = Infinity;
  for (let j = 0; j < distances.length; j++) {
    const d = distances[j];
    if (j === query || !(d < farthest)) continue;
    let place = found.length;
    while (place > 0 && distances[found[place - 1]] > d) place--;
    found.splice(place, 0, j);
    if (found.length > count) found.pop();
    if (found.length === count) farthest = distances[found[count - 1]];
  }
  return found;
}

// Rows (n, H) of one module: the products of rows (n, k) with a matrix (H, k).
function project(rows, n, k, matrix, H) {
  const used = range(0, k).filter((i) => range(0, H).some((h) => matrix[h * k + i] !== 0));
  const width = used.length, packed = new Float32Array(H * width), out = new Float32Array(n * H);
  const row = new Float32Array(width);
  for (let h = 0; h < H; h++) used.forEach((i, u) => { packed[h * width + u] = matrix[h * k + i]; });
  for (let j = 0; j < n; j++) {
    for (let u = 0; u < width; u++) row[u] = rows[j * k + used[u]];
    for (let h = 0, p = 0; h < H; h++) {
      let sum = 0;
      for (let u = 0; u < width; u++, p++) sum += packed[p] * row[u];
      out[j * H + h] = sum;
    }
  }
  return out;
}

// One module of `data` { rows, n, k, matrices, widths, diverse } at a stop; `cache` keeps those of one stop.
function moduleRows(data, cache, stop, m) {
  if (cache.stop !== stop) { cache.stop = stop; cache.views = new Map(); }
  if (!cache.views.has(m)) cache.views.set(m, moduleOf(data, stop, m, data.rows, data.n));
  return cache.views.get(m);
}

function moduleOf(data, stop, m, rows, n) {
  const { k, widths, matrices } = data, H = widths[m];
  if (data.diverse) {
    const start = (stop * widths.length + m) * H * k;
    return project(rows, n, k, matrices.subarray(start, start + H * k), H);
  }
  const view = new Float32Array(n * H), start = widths.slice(0, m).reduce((a, b) => a + b, 0);
  for (let j = 0; j < n; j++) view.set(rows.subarray(j * k + start, j * k + start + H), j * H);
  return view;
}

// Neighbors by each module and, if some are switched off, by the others together.
// request: { stop, query (row, or -1), center (k), off (list), count }
function moduleNeighbors(data, cache, request) {
  const { n, widths } = data, M = widths.length, off = new Set(request.off), modules = [];
  const sum = off.size ? new Float64Array(n) : null;
  for (let m = 0; m < M; m++) {
    const center = moduleOf(data, request.stop, m, request.center, 1);
    const distances = squaredDistances(moduleRows(data, cache, request.stop, m), n, widths[m], center);
    modules.push(nearest(distances, request.count, request.query));
    if (sum && !off.has(m)) for (let j = 0; j < n; j++) sum[j] += distances[j] / (M - off.size);
  }
  if (!sum) return { modules };
  const together = nearest(sum, request.count, request.query);
  return { modules, together, distances: together.map((j) => Math.sqrt(sum[j])) };
}

function workerMain() {
  let data = null;
  const cache = { stop: -1, views: null };
  self.onmessage = ({ data: message }) => {
    if (message.rows) data = message;
    else self.postMessage(moduleNeighbors(data, cache, message));
  };
}

// Let the browser handle events and draw; unlike setTimeout, messages are not delayed by 4 ms each.
function otherEvents() {
  const { port1, port2 } = new MessageChannel();
  return new Promise((resolve) => {
    port1.onmessage = () => { port1.close(); resolve(); };
    port2.postMessage(null);
  });
}

// Ask for one thing at a time: of the requests that come meanwhile only the last is sent; others give null.
function latest(ask) {
  let busy = false, waiting = null;
  async function run(request, resolve, reject) {
    busy = true;
    try { resolve(await ask(request)); } catch (error) { reject(error); }
    busy = false;
    if (waiting) { const next = waiting; waiting = null; run(...next); }
  }
  return (request) => new Promise((resolve, reject) => {
    if (!busy) { run(request, resolve, reject); return; }
    waiting?.[1](null);
    waiting = [request, resolve, reject];
  });
}

// What finds neighbors in the page itself: all modules together at once, each module in a worker.
function localFinder(data) {
  const cache = { stop: -1, views: null };
  let worker = null, answered = null, last = [];
  const here = async (request) => { await otherEvents(); return moduleNeighbors(data, cache, request); };
  try {
    const parts = [range, squaredDistances, nearest, project, moduleRows, moduleOf, moduleNeighbors, workerMain];
    const url = URL.createObjectURL(new Blob([parts.map(String).join("\n"), "\nworkerMain();"], { type: "text/javascript" }));
    worker = new Worker(url);
    worker.postMessage(data);
    worker.addEventListener("message", () => URL.revokeObjectURL(url), { once: true });
    worker.onmessage = (event) => answered?.resolve(event.data);
    worker.onerror = (event) => { event.preventDefault?.(); worker = null; answered?.resolve(here(answered.request)); };
  } catch { worker = null; }  // a host whose content security policy forbids workers
  const ask = (request) => worker
    ? new Promise((resolve) => { answered = { resolve, request }; worker.postMessage(request); })
    : here(request);
  return {
    together(weights, { query, center, count }) {
      const found = weightedNearest(data.rows, data.n, data.k, weights, center, count, query, last);
      last = found.together;
      return found;
    },
    modules: latest(ask),
    module: (stop, m) => moduleRows(data, cache, stop, m),
    stop: () => worker?.terminate(),
  };
}
