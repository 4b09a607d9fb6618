// The explorer's page as an ES module in anywidget's format: `export default { render }`.
// Everything from the user (labels, ids, texts) reaches the page as text nodes and attributes, never as HTML.

// --- Weights for any diversity: the same water-filling as manylens/modules/solver.py -----------------------

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

function range(first, last) {
  return Array.from({ length: Math.max(0, last - first) }, (_, i) => first + i);
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

// --- Neighbors ----------------------------------------------------------------------------------------------

// Squared distances of all rows (n, k) to row `query`, with one weight per column.
export function weightedDistances(rows, n, k, weights, query, out = new Float64Array(n)) {
  const used = range(0, k).filter((i) => weights[i] > 0);
  const w = Float64Array.from(used, (i) => weights[i]), center = used.map((i) => rows[query * k + i]);
  const all = used.length === k, width = used.length;
  for (let j = 0, start = 0; j < n; j++, start += k) {
    let sum = 0;
    for (let i = 0; i < width; i++) {
      const d = rows[start + (all ? i : used[i])] - center[i];
      sum += w[i] * d * d;
    }
    out[j] = sum;
  }
  return out;
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

// --- The page -----------------------------------------------------------------------------------------------

const PALETTE = ["#3f90da", "#e76300", "#832db6", "#ffa90e", "#bd1f01", "#3ba9ae", "#a96b59", "#9b8d45", "#d96bb3", "#717581"];
const SCALE = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [243, 205, 37]];
const SVG = "http://www.w3.org/2000/svg";

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

function drawn(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

function numbers(view) {  // a DataView of little-endian float32 at any offset
  const copy = view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength);
  return new Float32Array(copy);
}

function rounded(value) {
  return value === 0 ? "0" : Math.abs(value) >= 1e-3 && Math.abs(value) < 1e5 ? value.toPrecision(4) : value.toExponential(2);
}

function csvCell(value) {
  const text = String(value ?? "");
  const safe = /^([=+@\t\r]|-[^\d.])/.test(text) ? "'" + text : text;  // spreadsheets would run it as a formula
  return /[",\n\r']/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

// Let the browser handle events and draw; unlike setTimeout, messages are not delayed by 4 ms each.
function otherEvents() {
  const { port1, port2 } = new MessageChannel();
  return new Promise((resolve) => {
    port1.onmessage = () => { port1.close(); resolve(); };
    port2.postMessage(null);
  });
}

let instances = 0;

function render({ model, el }) {
  const meta = model.get("meta"), { n, k, stops, widths, classes, codes, values } = meta;
  const rows = numbers(model.get("coordinates")), matrices = numbers(model.get("modules"));
  const M = widths.length, diverse = stops.length > 0, count = meta.n_neighbors, unique = `mlx${++instances}-`;
  const starts = widths.map((_, m) => widths.slice(0, m).reduce((a, b) => a + b, 0));
  const state = { selected: 0, diversity: 1, off: new Set(), view: -1, hovered: -1 };
  const cache = { stop: -1, views: new Map() };
  let shown = { together: [], distances: null, modules: [], agreement: [], solution: null, weights: null };
  let job = 0;

  // State: read from the model, checked, because links and Python can hold anything.
  function readState() {
    const row = model.get("selected"), diversity = model.get("diversity");
    state.selected = Number.isInteger(row) && row >= 0 && row < n ? row : 0;
    state.diversity = diversity >= 0 && diversity <= 1 ? diversity : meta.diversity ?? 1;
    const off = (model.get("switched_off") ?? []).filter((m) => Number.isInteger(m) && m >= 0 && m < M);
    state.off = new Set(off.length < M ? off : []);
  }
  function save(name, value) {
    model.set(name, value);
    model.save_changes();
  }
  function select(row) {
    if (row >= 0 && row < n) save("selected", row);
  }
  const nameOf = (i) => meta.ids?.[i] ?? `row ${i}`;
  const labelOf = (i) => (codes ? classes[codes[i]] : values ? (values[i] === null ? "?" : rounded(values[i])) : null);
  const differs = (i) => codes !== null && codes[i] !== codes[state.selected];
  const activeModules = () => range(0, M).filter((m) => !state.off.has(m));

  // Elements that are made once; everything else is redrawn into them.
  const slider = element("input", { id: unique + "slider", type: "range", min: 0, max: 1, step: "any", class: "mlx-slider",
    list: unique + "stops", oninput: () => save("diversity", Math.round(1000 * slider.value) / 1000) });
  const number = element("input", { id: unique + "number", type: "number", min: 0, max: 1, step: 0.01, "aria-label": "Diversity, as a number",
    onchange: () => save("diversity", Math.min(1, Math.max(0, Number(number.value)))) });
  const ticks = element("datalist", { id: unique + "stops" }, ...stops.map((s) => element("option", { value: s.diversity })));
  const finder = element("input", { id: unique + "row", type: "search", autocomplete: "off", placeholder: `0 to ${n - 1}${meta.ids ? " or name" : ""}`,
    onchange: () => find(finder.value) });
  const status = element("p", { class: "mlx-status", role: "status", "aria-live": "polite" });
  const chooser = element("select", { id: unique + "view", onchange: () => { state.view = Number(chooser.value); drawMap(); } },
    element("option", { value: -1 }, "all modules"), ...range(0, M).map((m) => element("option", { value: m }, `module ${m + 1}`)));
  const points = element("canvas", { "aria-hidden": "true" });
  const marks = element("canvas", { class: "mlx-marks", tabindex: 0, role: "application", "aria-roledescription": "map of rows",
    "aria-describedby": unique + "keys" });
  const tip = element("div", { class: "mlx-tip", hidden: true });
  const mapBox = element("div", { class: "mlx-map" }, points, marks, tip);
  const legend = element("ul", { class: "mlx-legend", "aria-label": "Colors of the labels" });
  const query = element("div", { class: "mlx-query" });
  const together = element("ol", { class: "mlx-cards", "aria-label": "Neighbors by all modules together" });
  const perModule = element("div", { class: "mlx-modules" });
  const note = element("p", { class: "mlx-note" });
  const coverage = element("div", { class: "mlx-chart" });
  const certificate = element("dl", { class: "mlx-facts" });
  const verdict = element("p", { class: "mlx-note" });
  const precision = element("div", { class: "mlx-chart" }), vote = element("div", { class: "mlx-chart" });
  const section = (title, ...children) => element("section", { class: "mlx-panel", "aria-label": title }, element("h2", {}, title), ...children);
  const download = element("button", { type: "button", class: "mlx-plain", onclick: saveTable }, "Download as CSV");
  const root = element("div", { class: "mlx" },
    element("header", { class: "mlx-head" }, element("h1", {}, meta.title),
      element("p", { class: "mlx-note" }, `${n.toLocaleString("en")} rows, ${M} ${M === 1 ? "module" : "modules"}, ${meta.kind}`)),
    element("div", { class: "mlx-controls" },
      diverse ? element("div", { class: "mlx-control mlx-wide" }, element("label", { for: slider.id }, "Diversity"), slider, ticks, number) : null,
      element("div", { class: "mlx-control" }, element("label", { for: finder.id }, "Row"), finder)),
    status,
    element("div", { class: "mlx-grid" },
      element("div", { class: "mlx-column" },
        section("Map of the rows",
          element("div", { class: "mlx-control" }, element("label", { for: chooser.id }, "Two leading dimensions of"), chooser),
          mapBox, legend,
          element("p", { class: "mlx-note", id: unique + "keys" }, "Click a row, or move from row to row with the arrow keys."))),
      element("div", { class: "mlx-column" },
        section("Neighbors by all modules together", query, together, download),
        section("Neighbors by each module", note, perModule)),
      element("div", { class: "mlx-column mlx-charts" },
        diverse ? section("Coverage of the spectrum", coverage) : null,
        diverse ? section("Certificate", certificate, verdict) : null,
        section("Retrieval precision", precision), codes ? section("Accuracy of the vote", vote) : null)));
  el.append(root);

  // Rows as pictures, text or numbers
  const pixels = new Uint8Array(model.get("images").buffer, model.get("images").byteOffset, model.get("images").byteLength);
  function picture(i) {
    if (!meta.image_shape) return null;
    const [height, width, channels] = meta.image_shape, size = height * width;
    const canvas = element("canvas", { width, height, class: size < 4096 ? "mlx-picture mlx-pixels" : "mlx-picture", "aria-hidden": "true" });
    const data = new ImageData(width, height), out = data.data, first = i * size * channels;
    for (let p = 0; p < size; p++) {
      const from = first + p * channels;
      for (let c = 0; c < 3; c++) out[4 * p + c] = pixels[from + (channels === 1 ? 0 : c)];
      out[4 * p + 3] = channels === 4 ? pixels[from + 3] : 255;
    }
    canvas.getContext("2d").putImageData(data, 0, 0);
    return canvas;
  }
  function colorOf(i) {
    if (codes) return classColor(codes[i]);
    return values ? scaleColor(values[i]) : PALETTE[0];
  }
  function classColor(code) {
    return classes.length <= PALETTE.length ? PALETTE[code] : `hsl(${Math.round(code * 137.508) % 360} 60% ${[45, 60, 35][code % 3]}%)`;
  }
  const known = values ? values.filter((v) => v !== null) : [];
  const low = known.reduce((a, b) => Math.min(a, b), Infinity), high = known.reduce((a, b) => Math.max(a, b), -Infinity);
  function scaleColor(value) {
    if (value === null) return "#717581";
    const x = Math.round(24 * (high > low ? (value - low) / (high - low) : 0)) / 24 * (SCALE.length - 1);
    const i = Math.min(SCALE.length - 2, Math.floor(x));
    return `rgb(${SCALE[i].map((a, c) => Math.round(a + (x - i) * (SCALE[i + 1][c] - a))).join(" ")})`;
  }
  const colors = range(0, n).map(colorOf);
  function swatch(i) {
    return labelOf(i) === null ? null : element("span", { class: "mlx-swatch", style: `background:${colors[i]}`, "aria-hidden": "true" });
  }
  function find(text) {
    const wanted = text.trim();
    if (wanted === "") return;
    const byName = meta.ids ? meta.ids.indexOf(wanted) : -1;
    const row = byName >= 0 ? byName : /^\d+$/.test(wanted) ? Number(wanted) : -1;
    finder.setAttribute("aria-invalid", String(!(row >= 0 && row < n)));
    if (row >= 0 && row < n) select(row);
    else status.textContent = `There is no row “${wanted}”: give a number from 0 to ${n - 1}${meta.ids ? " or a name" : ""}.`;
  }

  // Modules and distances
  function nearestStop() {
    let best = 0;
    stops.forEach((stop, s) => { if (Math.abs(stop.diversity - state.diversity) < Math.abs(stops[best].diversity - state.diversity)) best = s; });
    return best;
  }
  function moduleRows(m) {
    const stop = diverse ? nearestStop() : 0;
    if (cache.stop !== stop) { cache.stop = stop; cache.views.clear(); }
    if (!cache.views.has(m)) {
      const H = widths[m];
      if (diverse) {
        const start = (stop * M + m) * H * k;
        cache.views.set(m, project(rows, n, k, matrices.subarray(start, start + H * k), H));
      } else {
        const view = new Float32Array(n * H);
        for (let j = 0; j < n; j++) view.set(rows.subarray(j * k + starts[m], j * k + starts[m] + H), j * H);
        cache.views.set(m, view);
      }
    }
    return cache.views.get(m);
  }
  function togetherFromWeights() {  // exact at any diversity, if all modules answer
    shown.solution = diverse ? solve(meta.spectrum, ...meta.shape, state.diversity, meta.energy) : null;
    shown.weights = diverse ? distanceWeights(meta.spectrum, shown.solution, meta.weighting) : new Float64Array(k).fill(1 / M);
    if (state.off.size) return;
    shown.distances = weightedDistances(rows, n, k, shown.weights, state.selected, shown.distances ?? undefined);
    shown.together = nearest(shown.distances, count, state.selected);
  }

  // One update: what follows from the weights at once, then the modules one by one between other events.
  async function update() {
    const mine = ++job;
    readState();
    slider.value = state.diversity;
    slider.setAttribute("aria-valuetext", `diversity ${state.diversity}`);
    if (document.activeElement !== number) number.value = state.diversity;
    togetherFromWeights();
    shown.agreement = null;
    if (!state.off.size) drawTogether();
    drawMap();
    drawCoverage();
    drawCertificate();
    drawCurves();
    perModule.setAttribute("aria-busy", "true");
    const lists = [], active = activeModules();
    const sum = state.off.size ? new Float64Array(n) : null;
    for (let m = 0; m < M; m++) {
      await otherEvents();
      if (mine !== job) return;
      const distances = weightedDistances(moduleRows(m), n, widths[m], new Float64Array(widths[m]).fill(1), state.selected);
      lists.push(nearest(distances, count, state.selected));
      if (sum && !state.off.has(m)) for (let j = 0; j < n; j++) sum[j] += distances[j] / active.length;
    }
    if (sum) {
      shown.distances = sum;
      shown.together = nearest(sum, count, state.selected);
    }
    shown.modules = lists;
    shown.agreement = shown.together.map((j) => active.filter((m) => lists[m].includes(j)).length);
    drawTogether();
    drawModules();
    drawMarks();
    announce();
    perModule.setAttribute("aria-busy", "false");
  }
  function announce() {
    const same = codes ? `, ${shown.together.filter((j) => !differs(j)).length} of ${shown.together.length} neighbors with the same label` : "";
    const label = labelOf(state.selected);
    const mean = shown.agreement.reduce((a, b) => a + b, 0) / Math.max(1, shown.agreement.length);
    status.textContent = `${nameOf(state.selected)}${label === null ? "" : `, label ${label}`}${same}; a neighbor is found by ${mean.toFixed(1)} of ${M - state.off.size} modules on average.`;
  }

  // Lists. Buttons are reused, so that the focus stays where it is.
  function fit(parent, length, make) {
    while (parent.children.length > length) parent.lastChild.remove();
    while (parent.children.length < length) parent.append(make());
    return [...parent.children];
  }
  function rowButton(kind) {
    const button = element("button", { type: "button", class: kind, onclick: () => select(Number(button.dataset.row)) });
    return element("li", {}, button);
  }
  function describe(i) {
    const label = labelOf(i), text = meta.text?.[i];
    return nameOf(i) + (label === null ? "" : `, label ${label}`) + (text ? `, ${text.slice(0, 200)}` : "");
  }
  function drawTogether() {
    const i = state.selected, label = labelOf(i);
    query.replaceChildren(...[picture(i), element("div", { class: "mlx-words" }, element("strong", {}, nameOf(i)),
      label === null ? "" : element("span", { class: "mlx-label" }, swatch(i), label),
      meta.text ? element("p", { class: "mlx-text" }, meta.text[i]) : "")].filter(Boolean));
    const active = M - state.off.size;
    fit(together, shown.together.length, () => rowButton("mlx-card")).forEach((item, place) => {
      const j = shown.together[place], button = item.firstChild, votes = shown.agreement?.[place];
      const name = labelOf(j);
      button.dataset.row = j;
      button.classList.toggle("mlx-differs", differs(j));
      button.setAttribute("aria-label", `${describe(j)}${differs(j) ? ", another label" : ""}${votes === undefined ? "" : `, found by ${votes} of ${active} modules`}`);
      const meter = element("span", { class: "mlx-meter" }, element("span", { style: `width:${votes === undefined ? 0 : (100 * votes) / active}%` }));
      button.replaceChildren(...[picture(j), element("span", { class: "mlx-words" },
        element("span", { class: "mlx-name" }, nameOf(j)),
        name === null ? "" : element("span", { class: "mlx-label" }, swatch(j), differs(j) ? `≠ ${name}` : name),
        meta.text ? element("span", { class: "mlx-text" }, meta.text[j]) : "",
        element("span", { class: "mlx-small" }, `distance ${rounded(Math.sqrt(shown.distances[j]))}`),
        meter, element("span", { class: "mlx-small" }, votes === undefined ? "…" : `${votes} of ${active} modules`))].filter(Boolean));
    });
  }
  function drawModules() {
    const stop = diverse ? stops[nearestStop()].diversity : null, exact = stop === state.diversity;
    note.textContent = (diverse && !exact ? `Modules learned at diversity ${stop}, the nearest to ${state.diversity}. ` : "")
      + "Framed: also among the neighbors by all modules together. Untick a module to switch it off.";
    const all = new Set(shown.together);
    const lines = fit(perModule, M, () => {
      const m = perModule.children.length;
      const box = element("input", { type: "checkbox", onchange: () => toggle(m, box.checked) });
      return element("div", { class: "mlx-module" }, element("label", {}, box, `module ${m + 1}`, element("span", { class: "mlx-small" })),
        element("ol", { class: "mlx-strip", "aria-label": `Neighbors by module ${m + 1}` }));
    });
    lines.forEach((line, m) => {
      const list = shown.modules[m], on = !state.off.has(m), box = line.querySelector("input");
      box.checked = on;
      box.disabled = on && state.off.size === M - 1;  // one module must answer
      line.classList.toggle("mlx-off", !on);
      line.querySelector(".mlx-small").textContent = ` ${list.filter((j) => all.has(j)).length} of ${list.length} agree`;
      fit(line.lastChild, list.length, () => rowButton("mlx-chip")).forEach((item, place) => {
        const j = list[place], button = item.firstChild, label = labelOf(j);
        button.dataset.row = j;
        button.classList.toggle("mlx-both", all.has(j));
        button.classList.toggle("mlx-differs", differs(j));
        button.setAttribute("aria-label", describe(j) + (differs(j) ? ", another label" : "") + (all.has(j) ? ", also by all modules together" : ""));
        button.title = describe(j);
        const caption = meta.image_shape ? (differs(j) ? `≠ ${label}` : null) : (differs(j) ? "≠ " : "") + (label === null || meta.ids ? nameOf(j) : `${label} · ${j}`);
        button.replaceChildren(...[picture(j), caption === null ? null : element("span", {}, meta.image_shape ? null : swatch(j), caption)].filter(Boolean));
      });
    });
  }
  function toggle(m, on) {
    const off = new Set(state.off);
    if (on) off.delete(m); else off.add(m);
    save("switched_off", [...off].sort((a, b) => a - b));
  }
  function saveTable() {
    const active = activeModules();
    const lines = [["rank", "row", "name", "label", "distance", "found_by"], ...shown.together.map((j, place) => [
      place + 1, j, nameOf(j), labelOf(j), Math.sqrt(shown.distances[j]), active.filter((m) => shown.modules[m]?.includes(j)).map((m) => m + 1).join(" ")])];
    const url = URL.createObjectURL(new Blob([lines.map((line) => line.map(csvCell).join(",")).join("\r\n")], { type: "text/csv" }));
    element("a", { href: url, download: `neighbors-of-${state.selected}.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  // The map
  const measured = new Map();  // asking for a width after a change makes the browser lay out the page
  function widthOf(node) {
    if (!measured.get(node)) measured.set(node, node.clientWidth);
    return measured.get(node);
  }
  const place = { x: new Float32Array(n), y: new Float32Array(n), size: 0, ratio: 1 };
  function layout() {
    const size = widthOf(mapBox), ratio = window.devicePixelRatio || 1;
    if (!size) return false;
    if (place.size !== size || place.ratio !== ratio) {
      for (const canvas of [points, marks]) canvas.width = canvas.height = Math.round(size * ratio);
      Object.assign(place, { size, ratio });
    }
    return true;
  }
  const tones = new Map();
  function tone(color) {
    if (!tones.has(color)) {
      const pen = element("canvas", { width: 1, height: 1 }).getContext("2d");
      pen.fillStyle = color;
      pen.fillRect(0, 0, 1, 1);
      tones.set(color, pen.getImageData(0, 0, 1, 1).data.slice(0, 3));
    }
    return tones.get(color);
  }
  const rgb = colors.map(tone);
  function locate() {
    let source, width, a = 0, b = 1, sa = 1, sb = 1;
    if (state.view < 0) {
      [source, width] = [rows, k];
      [a, b] = widest();
      [sa, sb] = [Math.sqrt(shown.weights[a]), b < k ? Math.sqrt(shown.weights[b]) : 0];
    } else [source, width] = [moduleRows(state.view), widths[state.view]];
    let [left, right, top, bottom] = [Infinity, -Infinity, Infinity, -Infinity];
    for (let j = 0; j < n; j++) {
      const x = sa * source[j * width + a], y = b < width ? -sb * source[j * width + b] : 0;
      place.x[j] = x; place.y[j] = y;
      left = Math.min(left, x); right = Math.max(right, x); top = Math.min(top, y); bottom = Math.max(bottom, y);
    }
    const margin = 14, room = place.size - 2 * margin, span = Math.max(right - left, bottom - top) || 1;
    const dx = margin + (room - (room * (right - left)) / span) / 2, dy = margin + (room - (room * (bottom - top)) / span) / 2;
    for (let j = 0; j < n; j++) {
      place.x[j] = dx + (room * (place.x[j] - left)) / span;
      place.y[j] = dy + (room * (place.y[j] - top)) / span;
    }
  }
  let variances = null;
  function widest() {  // the two columns in which rows differ most
    if (diverse) return [0, 1];
    if (!variances) {
      const mean = new Float64Array(k);
      variances = new Float64Array(k);
      for (let p = 0; p < n * k; p++) mean[p % k] += rows[p] / n;
      for (let p = 0; p < n * k; p++) variances[p % k] += (rows[p] - mean[p % k]) ** 2;
    }
    const order = range(0, k).sort((i, j) => variances[j] - variances[i]);
    return [order[0], order[1] ?? k];
  }
  // Discs are blended into the pixels by hand: 10,000 calls of drawImage would take 50 ms.
  function disc(radius) {  // offsets and opacities of a disc with a soft edge
    const reach = Math.ceil(radius + 0.5), cells = [];
    for (let y = -reach; y <= reach; y++) {
      for (let x = -reach; x <= reach; x++) {
        const inside = Math.min(1, Math.max(0, radius + 0.5 - Math.hypot(x, y)));
        if (inside > 0) cells.push([x, y, 0.8 * inside]);
      }
    }
    return { reach, cells };
  }
  function drawMap() {
    if (!layout()) return;
    locate();
    const pen = points.getContext("2d"), side = points.width, r = place.ratio;
    const image = pen.createImageData(side, side), out = image.data, paper = tone(getComputedStyle(root).getPropertyValue("--mlx-card").trim());
    new Uint32Array(out.buffer).fill(new Uint32Array(Uint8Array.of(...paper, 255).buffer)[0]);
    const { reach, cells } = disc(Math.max(1.2, Math.min(4.5, (0.11 * place.size) / Math.sqrt(n) + 1.4)) * r);
    const shifts = Int32Array.from(cells, ([x, y]) => 4 * (y * side + x)), opacities = Float32Array.from(cells, (cell) => cell[2]);
    for (let j = 0; j < n; j++) {
      const x = Math.round(place.x[j] * r), y = Math.round(place.y[j] * r), [red, green, blue] = rgb[j];
      if (x < reach || y < reach || x >= side - reach || y >= side - reach) continue;  // the margin is wider
      const center = 4 * (y * side + x);
      for (let c = 0; c < shifts.length; c++) {
        const p = center + shifts[c], a = opacities[c];
        out[p] += a * (red - out[p]);
        out[p + 1] += a * (green - out[p + 1]);
        out[p + 2] += a * (blue - out[p + 2]);
      }
    }
    pen.putImageData(image, 0, 0);
    drawMarks();
  }
  function drawMarks() {
    if (!place.size) return;
    const pen = marks.getContext("2d"), style = getComputedStyle(root), q = state.selected;
    pen.setTransform(place.ratio, 0, 0, place.ratio, 0, 0);
    pen.clearRect(0, 0, place.size, place.size);
    const ring = (j, radius, width) => {
      for (const [color, extra] of [[style.getPropertyValue("--mlx-card"), 2.5], [style.getPropertyValue("--mlx-ink"), 0]]) {
        pen.beginPath();
        pen.arc(place.x[j], place.y[j], radius, 0, 2 * Math.PI);
        pen.strokeStyle = color; pen.lineWidth = width + extra;
        pen.stroke();
      }
    };
    pen.strokeStyle = style.getPropertyValue("--mlx-ink"); pen.globalAlpha = 0.45; pen.lineWidth = 1;
    for (const j of shown.together) { pen.beginPath(); pen.moveTo(place.x[q], place.y[q]); pen.lineTo(place.x[j], place.y[j]); pen.stroke(); }
    pen.globalAlpha = 1;
    for (const j of shown.together) ring(j, 5, 1.5);
    ring(q, 8, 3);
    marks.setAttribute("aria-label", `Map of ${n} rows. Selected: ${describe(q)}`);
  }
  function rowAt(event) {
    const box = marks.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    let best = -1, least = 24 ** 2;
    for (let j = 0; j < n; j++) {
      const d = (place.x[j] - x) ** 2 + (place.y[j] - y) ** 2;
      if (d < least) [best, least] = [j, d];
    }
    return best;
  }
  marks.addEventListener("click", (event) => select(rowAt(event)));
  marks.addEventListener("pointermove", (event) => {
    const j = rowAt(event);
    tip.hidden = j < 0;
    if (j < 0 || j === state.hovered) { state.hovered = j; return; }
    state.hovered = j;
    tip.replaceChildren(...[picture(j), element("span", {}, describe(j))].filter(Boolean));
    tip.style.left = `${Math.min(place.x[j] + 12, Math.max(0, place.size - 170))}px`;
    tip.style.top = `${place.y[j] > place.size - 90 ? place.y[j] - 80 : place.y[j] + 12}px`;
  });
  marks.addEventListener("pointerleave", () => { tip.hidden = true; state.hovered = -1; });
  marks.addEventListener("keydown", (event) => {
    const direction = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!direction) return;
    event.preventDefault();
    const [ux, uy] = direction, q = state.selected;
    let best = -1, least = Infinity;
    for (let j = 0; j < n; j++) {
      const dx = place.x[j] - place.x[q], dy = place.y[j] - place.y[q], along = dx * ux + dy * uy, beside = Math.abs(dx * uy) + Math.abs(dy * ux);
      if (along > 0 && beside <= along && along + 2 * beside < least) [best, least] = [j, along + 2 * beside];
    }
    select(best);
  });

  // Charts
  function chart(parent, label, names, top = 1, base = 0) {
    const width = Math.max(220, widthOf(parent)), height = 150, left = 38, right = width - 10, bottom = height - 32, up = 10;
    const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
    const x = (v) => left + v * (right - left), y = (v) => bottom - ((v - base) / (top - base)) * (bottom - up);
    for (const v of [base, (1 + base) / 2, 1]) {
      svg.append(drawn("line", { x1: left, x2: right, y1: y(v), y2: y(v), class: "mlx-rule" }),
        drawn("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, `${Number((100 * v).toFixed(1))}%`));
    }
    svg.append(drawn("text", { x: left, y: height - 17, "text-anchor": "middle" }, names[0]), drawn("text", { x: right, y: height - 17, "text-anchor": "end" }, names[1]),
      drawn("text", { x: (left + right) / 2, y: height - 3, "text-anchor": "middle" }, names[2]));
    parent.replaceChildren(svg);
    return { svg, x, y };
  }
  function drawCoverage() {
    if (!diverse) return;
    const share = meta.spectrum.map((q, i) => shown.solution.coverage[i] / q), top = share.reduce((a, b) => Math.max(a, b), 1);
    const kept = share.filter((s) => s > 1e-6).length;
    const { svg, x, y } = chart(coverage, `All modules together keep something of ${kept} of ${k} components.`, ["1", String(k), "component"], top);
    const steps = (s) => `M${x(0)} ${y(0)}` + s.map((v, i) => `L${x(i / k)} ${y(Math.min(v, top))}L${x((i + 1) / k)} ${y(Math.min(v, top))}`).join("") + `L${x(1)} ${y(0)}Z`;
    svg.append(drawn("path", { d: steps(share), class: "mlx-area" }));
    if (state.off.size) {
      const own = stops[nearestStop()].shares, active = activeModules();
      svg.append(drawn("path", { d: steps(range(0, k).map((i) => active.reduce((sum, m) => sum + own[m][i], 0) / M)), class: "mlx-area mlx-left" }));
    }
    coverage.append(element("p", { class: "mlx-note" }, state.off.size
      ? `Dark: what the ${M - state.off.size} modules that answer keep (learned at diversity ${stops[nearestStop()].diversity}).`
      : `Share of each component that all modules together keep: something of ${kept} of ${k}.`));
  }
  function drawCertificate() {
    if (!diverse) return;
    const stop = stops[nearestStop()], known = stop.diversity === state.diversity;
    const { loss, bound } = known ? stop : shown.solution;
    const excess = Math.max(0, loss - bound), tight = excess <= 1e-9 * meta.energy;
    const gap = excess / (bound > 1e-9 * meta.energy ? bound : meta.energy);
    const facts = [["loss", rounded(loss)], ["lower bound", rounded(bound)], ["gap", tight ? "0" : `${(100 * gap).toPrecision(2)} %`]];
    certificate.replaceChildren(...facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
    verdict.textContent = (state.off.size ? "With all modules switched on, " : "Proven: ") + (tight ? "no modules of this shape have a smaller loss." : `no modules of this shape have a loss more than ${(100 * excess / loss).toPrecision(2)} % smaller.`);
  }
  function drawCurves() {
    const curves = meta.curves;
    for (const [parent, name, what] of [[precision, "precision", "of the nearest rows in the input space are found"], [vote, "vote", "of the votes elect the row's own label"]]) {
      if (!curves[name]) continue;
      const all = curves[name], one = curves[`module_${name}`], percent = (v) => `${(100 * v).toFixed(1)} %`;
      const here = diverse ? interpolated(all) : all[0], alone = diverse ? interpolated(one) : one[0];
      const words = `${percent(here)} ${what} by all modules together, ${percent(alone)} by one module (${curves.n_queries} rows${state.off.size ? ", all modules switched on" : ""}).`;
      parent.replaceChildren();
      if (diverse) {
        const base = Math.max(0, Math.floor(10 * Math.min(...all, ...one) - 1e-9) / 10);
        const { svg, x, y } = chart(parent, words, ["0", "1", "diversity"], 1, base);
        const line = (v) => v.map((value, s) => `${s ? "L" : "M"}${x(stops[s].diversity)} ${y(value)}`).join("");
        svg.append(drawn("path", { d: line(one), class: "mlx-line mlx-one" }), drawn("path", { d: line(all), class: "mlx-line" }),
          drawn("line", { x1: x(state.diversity), x2: x(state.diversity), y1: y(base), y2: y(1), class: "mlx-here" }),
          drawn("circle", { cx: x(state.diversity), cy: y(here), r: 5, class: "mlx-dot" }));
      }
      parent.append(element("p", { class: "mlx-note" }, words + (diverse ? " Dashed: one module." : "")));
    }
  }
  function interpolated(curve) {
    const after = stops.findIndex((stop) => stop.diversity >= state.diversity);
    if (after === 0) return curve[0];
    if (after < 0) return curve.at(-1);
    const [a, b] = [stops[after - 1].diversity, stops[after].diversity];
    return curve[after - 1] + ((curve[after] - curve[after - 1]) * (state.diversity - a)) / (b - a);
  }

  if (codes) legend.append(...classes.slice(0, 40).map((name, code) => element("li", {}, element("span", { class: "mlx-swatch", style: `background:${classColor(code)}` }), name)));
  if (codes && classes.length > 40) legend.append(element("li", {}, `and ${classes.length - 40} more`));
  if (values) legend.append(...[0, 0.5, 1].map((v) => element("li", {}, element("span", { class: "mlx-swatch", style: `background:${scaleColor(low + v * (high - low))}` }), rounded(low + v * (high - low)))));

  const names = ["change:selected", "change:diversity", "change:switched_off"];
  for (const name of names) model.on(name, update);
  const theme = matchMedia("(prefers-color-scheme: dark)");
  theme.addEventListener("change", drawMap);
  let width = 0;
  const watcher = new ResizeObserver(() => {
    if (root.clientWidth === width) return;
    width = root.clientWidth;
    measured.clear();
    drawMap(); drawCoverage(); drawCurves();
  });
  update();
  watcher.observe(root);
  return () => {  // the notebook removes the cell
    job++;
    watcher.disconnect();
    theme.removeEventListener("change", drawMap);
    for (const name of names) model.off(name, update);
  };
}

export default { render };
