// The page of two representations side by side: linked maps, who moved, neighbors in A against B, layers x layers.

// Share of the neighbors (n, count) of each row in `one` that are also in `other`.
export function overlaps(one, other, n, count) {
  const shares = new Float32Array(n);
  for (let i = 0; i < n; i++) {
    const start = i * count;
    let both = 0;
    for (let p = start; p < start + count; p++) for (let q = start; q < start + count; q++) if (one[p] === other[q]) { both++; break; }
    shares[i] = both / count;
  }
  return shares;
}

// The rotation, reflection and scaling (2 x 2) that brings centered points B (n, 2) closest to A.
export function aligned(A, B, n) {
  let h00 = 0, h01 = 0, h10 = 0, h11 = 0, size = 0;
  for (let i = 0; i < 2 * n; i += 2) {
    h00 += B[i] * A[i]; h01 += B[i] * A[i + 1]; h10 += B[i + 1] * A[i]; h11 += B[i + 1] * A[i + 1];
    size += B[i] ** 2 + B[i + 1] ** 2;
  }
  const turned = Math.hypot(h00 + h11, h01 - h10), mirrored = Math.hypot(h00 - h11, h01 + h10);
  const [c, s, sign, norm] = turned >= mirrored ? [h00 + h11, h01 - h10, 1, turned] : [h00 - h11, h01 + h10, -1, mirrored];
  const scale = norm > 0 && size > 0 ? norm / size : 1, [cos, sin] = norm > 0 ? [c / norm, s / norm] : [1, 0];
  const out = new Float32Array(2 * n);
  for (let i = 0; i < 2 * n; i += 2) {
    const [u, v] = [B[i], sign * B[i + 1]];
    out[i] = scale * (cos * u - sin * v);
    out[i + 1] = scale * (sin * u + cos * v);
  }
  return out;
}

function renderComparison({ model, el, unique }) {
  const meta = model.get("meta"), { n, n_neighbors: count, sides } = meta, book = rowBook(meta, model.get("images"));
  const maps = numbers(model.get("coordinates")), lists = numbers(model.get("modules"), Uint32Array);
  const { widthOf, forget } = widthCache(), first = [0, sides[0].layers.length], start = [...meta.start];
  const state = { selected: 0, layers: start, colored: 0, order: 0, most: 24 };
  let shares = new Float32Array(n), order = [], pair = "";

  const layerMap = (side) => maps.subarray((first[side] + state.layers[side]) * n * 2, (first[side] + state.layers[side] + 1) * n * 2);
  const layerLists = (side) => lists.subarray((first[side] + state.layers[side]) * n * count, (first[side] + state.layers[side] + 1) * n * count);
  const neighborsOf = (side, i) => [...layerLists(side).subarray(i * count, (i + 1) * count)];
  const named = (side) => (sides[side].layers.length > 1 ? `${sides[side].name}, ${sides[side].layers[state.layers[side]]}` : sides[side].name);

  function readState() {
    const row = model.get("selected"), view = model.get("view") ?? {};
    state.selected = Number.isInteger(row) && row >= 0 && row < n ? row : 0;
    state.layers = ["a", "b"].map((name, side) => (Number.isInteger(view[name]) && view[name] >= 0 && view[name] < sides[side].layers.length ? view[name] : start[side]));
  }
  function save(name, value) {
    model.set(name, value);
    model.save_changes();
  }
  const select = (row) => save("selected", row);
  const pick = (a, b) => save("view", { a, b });

  const root = element("div", { class: "mlx" }), status = element("p", { class: "mlx-status", role: "status", "aria-live": "polite" });
  const layerChoices = sides.map((side, s) => choice(side.name, unique + "layer" + s, side.layers, start[s], (value) => pick(...(s ? [state.layers[0], value] : [value, state.layers[1]]))));
  const colored = choice("Color by", unique + "color", ["label", "neighbors kept"], 0, (value) => { state.colored = value; draw(); });
  const tip = (i) => [book.picture(i), element("span", {}, `${book.describe(i)}, ${Math.round(count * shares[i])} of ${count} neighbors kept`)].filter(Boolean);
  const both = sides.map((side, s) => pointMap({ root, colors: book.pointColors, unique, widthOf, title: `Map by ${side.name}`, onpick: select, tip }));
  both.forEach((map, s) => { map.onhover = (i) => both[1 - s].hover(i); });
  const titles = sides.map((side) => element("h3", {}, side.name)), query = element("div", { class: "mlx-query" });
  const strips = sides.map((side) => element("ol", { class: "mlx-strip", "aria-label": `Neighbors by ${side.name}` }));
  const movers = element("ol", { class: "mlx-cards mlx-movers", "aria-label": "Rows by neighbors kept" });
  const more = element("button", { type: "button", class: "mlx-plain", onclick: () => { state.most += 48; drawMovers(); } }, "Show more");
  const sorted = choice("Order", unique + "order", ["moved most first", "moved least first"], 0, (value) => { state.order = value; sortRows(); drawMovers(); });
  const histogram = element("div", { class: "mlx-chart" }), heat = element("div", { class: "mlx-chart" }), heatNote = element("p", { class: "mlx-note" });
  const layered = sides.some((side) => side.layers.length > 1);
  const charted = (title, name, parent, ...rest) => panel(title, saveButtons(title, name, chartFigure(root, parent)), parent, ...rest);
  root.append(
    element("header", { class: "mlx-head" }, element("h1", {}, meta.title), element("p", { class: "mlx-note" }, `${n.toLocaleString("en")} rows, ${sides[0].name} against ${sides[1].name}`)),
    element("div", { class: "mlx-controls" }, ...(layered ? layerChoices.map((each) => each.node) : []), rowFinder(book, unique + "row", select, status), meta.classes || meta.values ? colored.node : ""),
    status,
    element("div", { class: "mlx-pair" }, ...both.map((map, s) => element("section", { class: "mlx-panel", "aria-label": `Map by ${sides[s].name}` },
      element("div", { class: "mlx-title" }, titles[s], saveButtons(`the map of ${sides[s].name}`, `map-${"ab"[s]}`, map.figure)), map.box))),
    element("div", { class: "mlx-panel mlx-bar" }, book.legend(), element("p", { class: "mlx-note", id: unique + "keys" },
      "Two leading principal components; the second map is turned and scaled to match the first. Click a row, or move with the arrow keys.")),
    element("div", { class: "mlx-grid mlx-below" },
      element("div", { class: "mlx-column" },
        panel("Neighbors in each", null, query, ...sides.map((side, s) => element("div", { class: "mlx-side" }, element("p", { class: "mlx-small" }), strips[s]))),
        charted("How many neighbors are kept", "neighbors-kept", histogram),
        charted("CKA of the layers", "cka", heat, heatNote)),
      element("div", { class: "mlx-column" },
        panel("Who moved", null, element("div", { class: "mlx-choices" }, sorted.node), movers,
          element("div", { class: "mlx-under" }, more, element("button", { type: "button", class: "mlx-plain", onclick: saveTable }, "Download as CSV"))))));
  el.append(root);

  function sortRows() {
    const sign = state.order ? -1 : 1, A = layerMap(0), B = aligned(A, layerMap(1), n);
    const path = range(0, n).map((i) => Math.hypot(A[2 * i] - B[2 * i], A[2 * i + 1] - B[2 * i + 1]));
    order = range(0, n).sort((i, j) => sign * (shares[i] - shares[j] || path[j] - path[i]) || i - j);  // among equals, by the way on the maps
  }
  function update() {
    readState();
    const now = state.layers.join(" ");
    if (now !== pair) {
      pair = now;
      shares = overlaps(layerLists(0), layerLists(1), n, count);
      sortRows();
      drawMovers(); drawHistogram(); drawHeat();
    } else markMovers();
    draw();
    const i = state.selected, kept = Math.round(count * shares[i]);
    status.replaceChildren(...book.sentence(i), `: ${kept} of ${count} neighbors are the same in both.`);
    query.replaceChildren(...[book.picture(i), element("div", { class: "mlx-words" }, ...book.words(i))].filter(Boolean));
    const [one, two] = [0, 1].map((side) => neighborsOf(side, i));
    [one, two].forEach((list, side) => {
      const others = new Set(side ? one : two);
      strips[side].previousSibling.textContent = `by ${named(side)}`;
      fitChildren(strips[side], count, () => rowButton("mlx-chip", select)).forEach((item, place) =>
        fillChip(item.firstChild, book, list[place], { selected: i, both: others.has(list[place]), note: "in both" }));
    });
  }
  function draw() {
    sides.forEach((side, s) => { titles[s].textContent = named(s); layerChoices[s].select.value = state.layers[s]; });
    const colors = state.colored ? Array.from(shares, scaleColor) : book.pointColors;
    const A = layerMap(0), B = aligned(A, layerMap(1), n);
    both.forEach((map, s) => {
      map.recolor(colors);
      map.draw({ source: s ? B : A, width: 2, a: 0, b: 1 });
      map.mark({ selected: state.selected, neighbors: neighborsOf(s, state.selected), cross: null, label: book.describe(state.selected) });
    });
  }
  function drawMovers() {
    const count_ = Math.min(state.most, n);
    more.hidden = count_ === n;
    fitChildren(movers, count_, () => rowButton("mlx-card", select)).forEach((item, place) => {
      const i = order[place], button = item.firstChild, kept = Math.round(count * shares[i]);
      button.dataset.row = i;
      button.setAttribute("aria-label", `${book.describe(i)}, ${kept} of ${count} neighbors kept`);
      button.replaceChildren(...[book.picture(i), element("span", { class: "mlx-words" }, element("span", { class: "mlx-name" }, ...breakable(book.name(i))),
        book.label(i) === null ? "" : element("span", { class: "mlx-label" }, book.swatch(i), book.label(i)),
        book.text(i) === null ? "" : element("span", { class: "mlx-text" }, book.text(i)), book.facts(i, 3) ?? "",
        element("span", { class: "mlx-meter" }, element("span", { style: `width:${100 * shares[i]}%` })),
        element("span", { class: "mlx-small" }, `${kept} of ${count} kept`))].filter(Boolean));
    });
    markMovers();
  }
  function markMovers() {
    for (const { firstChild: button } of movers.children) button.classList.toggle("mlx-both", Number(button.dataset.row) === state.selected);
  }
  function drawHistogram() {
    const bins = new Array(count + 1).fill(0);
    for (const share of shares) bins[Math.round(count * share)]++;
    const most = Math.max(...bins) / n, mean = shares.reduce((a, b) => a + b, 0) / n, top = Math.min(1, Math.max(0.1, Math.ceil(most * 10) / 10));
    const words = `${percent(mean)} of ${count} neighbors are kept on average; ${bins[0].toLocaleString("en")} rows keep none, ${bins[count].toLocaleString("en")} keep all.`;
    const width = Math.max(220, widthOf(histogram)), height = 120, each = (width - 12) / (count + 1), y = (v) => 96 - (84 * v) / (top * n);
    const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": words });
    bins.forEach((rows, b) => {
      const bar = drawn("rect", { x: 6 + b * each + 1, y: y(rows), width: Math.max(1, each - 2), height: 96 - y(rows), class: "mlx-left" });
      bar.append(drawn("title", {}, `${rows.toLocaleString("en")} rows keep ${b} of ${count}`));
      svg.append(bar);
      if (count <= 12 || b % 5 === 0) svg.append(drawn("text", { x: 6 + (b + 0.5) * each, y: 112, "text-anchor": "middle" }, String(b)));
    });
    histogram.replaceChildren(svg, element("p", { class: "mlx-note" }, words));
  }
  function drawHeat() {
    const [a, b] = state.layers, value = meta.cka[a][b];
    const words = `Unbiased linear CKA of ${named(0)} and ${named(1)}: ${value === null ? "one of them is constant" : value.toFixed(3)}${layered ? ". Click a cell to compare its layers." : "."}`;
    heatMap(heat, widthOf, { values: meta.cka, rows: sides[0].layers, columns: sides[1].layers, label: words, rowTitle: clipped(sides[0].name, 20), columnTitle: clipped(sides[1].name, 24), chosen: [a, b], onpick: layered ? pick : null });
    heatNote.textContent = words;
  }
  function saveTable() {
    const place = (side, i) => neighborsOf(side, i).join(" ");
    saveCsv([["row", "name", "label", "neighbors_kept", "neighbors_a", "neighbors_b"], ...order.map((i) => [i, book.name(i), book.label(i), shares[i].toFixed(4), place(0, i), place(1, i)])], "who-moved.csv");
  }

  const names = ["change:selected", "change:view"];
  for (const name of names) model.on(name, update);
  const leave = onResize(root, () => { forget(); draw(); drawHistogram(); drawHeat(); }, () => { for (const map of both) map.retheme(); draw(); });
  update();
  return () => {
    leave();
    for (const map of both) map.stop();
    for (const name of names) model.off(name, update);
  };
}
