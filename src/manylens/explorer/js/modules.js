// The page of one set of modules: map, neighbors by all modules and by each, slider, heat map, curves.

function renderModules({ model, el, unique }) {
  const meta = model.get("meta"), { n, k, stops, widths } = meta, M = widths.length, diverse = stops.length > 0;
  const rows = numbers(model.get("coordinates")), matrices = numbers(model.get("modules")), queryMap = numbers(model.get("query"), Uint8Array).buffer;
  const book = rowBook(meta, model.get("images")), points = meta.remote ? meta.sample : null;
  const data = { rows, n: rows.length / k, k, matrices, widths, diverse };
  const finder = meta.remote ? remoteFinder(meta, data, book, tell) : localFinder(data);
  const state = { selected: 0, diversity: 1, off: new Set(), view: {}, query: null };
  const { widthOf, forget } = widthCache();
  let shown = { together: [], distances: [], modules: [], agreement: null, solution: null, weights: null };
  let job = 0, measure = 0, moved = 0, asking = -2;

  // State: read from the model, checked, because links and Python can hold anything.
  function readState() {
    const row = model.get("selected"), diversity = model.get("diversity"), view = model.get("view") ?? {};
    state.selected = Number.isInteger(row) && row >= 0 && row < n ? row : 0;
    state.diversity = diversity >= 0 && diversity <= 1 ? diversity : meta.diversity ?? 1;
    const off = (model.get("switched_off") ?? []).filter((m) => Number.isInteger(m) && m >= 0 && m < M);
    state.off = new Set(off.length < M ? off : []);
    const module = Number.isInteger(view.module) && view.module >= 0 && view.module < M ? view.module : -1;
    const width = module < 0 ? k : widths[module], [x, y] = module < 0 ? widest() : [0, 1];
    const axis = (value, otherwise) => (Number.isInteger(value) && value >= 0 && value < width ? value : otherwise);
    state.view = { module, x: axis(view.x, x), y: axis(view.y, y) };
  }
  function save(name, value) {
    model.set(name, value);
    model.save_changes();
  }
  function select(row) {
    if (!(row >= 0 && row < n)) return;
    const again = state.query !== null && row === state.selected;
    state.query = null;
    save("selected", row);
    if (again) update();
  }
  function searchImage(pixels) {
    state.query = { pixels, center: meta.remote ? null : imageCoordinates(meta.query, queryMap, pixels) };
    update();
  }
  const counted = (number) => `${number} ${number === 1 ? "module" : "modules"}`;
  const selected = () => (state.query ? -1 : state.selected);
  const activeModules = () => range(0, M).filter((m) => !state.off.has(m));
  const pointOf = points ? new Map(points.map((row, p) => [row, p])) : null;
  const toPoint = (row) => (points ? pointOf.get(row) ?? -1 : row);

  // Elements that are made once; everything else is redrawn into them.
  const slider = element("input", { id: unique + "slider", type: "range", min: 0, max: 1, step: "any", class: "mlx-slider", list: unique + "stops",
    oninput: () => { moved = performance.now(); save("diversity", Math.round(1000 * slider.value) / 1000); } });
  const number = element("input", { id: unique + "number", type: "number", min: 0, max: 1, step: 0.01, "aria-label": "Diversity, as a number",
    onchange: () => save("diversity", Math.min(1, Math.max(0, Number(number.value)))) });
  const ticks = element("datalist", { id: unique + "stops" }, ...stops.map((s) => element("option", { value: s.diversity })));
  const status = element("p", { class: "mlx-status", role: "status", "aria-live": "polite" });
  function tell(text) {
    status.textContent = text;
    query.replaceChildren(element("p", { class: "mlx-note" }, text));
    asking = -2;
  }
  const setView = (change) => save("view", { ...state.view, ...change });
  const chooser = choice("Map of", unique + "view", ["all modules", ...range(0, M).map((m) => `module ${m + 1}`)], 0, (v) => save("view", { module: v - 1 }));
  const across = choice("across", unique + "across", [], 0, (x) => setView({ x })), up = choice("up", unique + "up", [], 0, (y) => setView({ y }));
  const query = element("div", { class: "mlx-query" });
  const together = element("ol", { class: "mlx-cards", "aria-label": "Neighbors by all modules together" });
  const perModule = element("div", { class: "mlx-modules" });
  const note = element("p", { class: "mlx-note" });
  const coverage = element("div", { class: "mlx-chart" }), heat = element("div", { class: "mlx-chart" }), heatNote = element("p", { class: "mlx-note" });
  const certificate = element("dl", { class: "mlx-facts" }), verdict = element("p", { class: "mlx-note" });
  const precision = element("div", { class: "mlx-chart" }), vote = element("div", { class: "mlx-chart" });
  const measures = Object.keys(meta.similarity ?? {});
  const measureChoice = choice("Measure", unique + "measure", measures, 0, (value) => { measure = value; drawHeat(); });
  const root = element("div", { class: "mlx" });
  const map = pointMap({ root, colors: book.pointColors, unique, widthOf, title: "Map", onpick: (p) => select(points ? points[p] : p),
    tip: (p) => { const i = points ? points[p] : p; return [book.picture(i), element("span", {}, book.describe(i))].filter(Boolean); } });
  const drop = meta.query ? imageDrop(root, unique, meta.image_shape, searchImage, status) : null;
  const sampled = points && points.length < n ? `; the map shows ${points.length.toLocaleString("en")} of them` : "";
  const charted = (title, name, parent, ...rest) => panel(title, saveButtons(title, name, chartFigure(root, parent)), parent, ...rest);
  const similarity = charted("Similarity of the modules", "similarity", heat, heatNote, measureChoice.node);
  similarity.classList.add("mlx-full");
  root.append(
    element("header", { class: "mlx-head" }, element("h1", {}, meta.title),
      element("p", { class: "mlx-note" }, `${n.toLocaleString("en")} rows, ${counted(M)}, ${meta.kind}${sampled}`)),
    element("div", { class: "mlx-controls" },
      ...(diverse ? [element("div", { class: "mlx-control mlx-wide" }, element("label", { for: slider.id }, "Diversity"), slider, ticks, number)] : []),
      rowFinder(book, unique + "row", select, status)),
    status,
    element("div", { class: "mlx-grid" },
      element("div", { class: "mlx-column" },
        panel("Map of the rows", saveButtons("the map", "map", map.figure),
          element("div", { class: "mlx-choices" }, chooser.node, across.node, up.node),
          map.box, book.legend(),
          element("p", { class: "mlx-note", id: unique + "keys" }, "Click a row, or move from row to row with the arrow keys."))),
      element("div", { class: "mlx-column" },
        panel("Neighbors by all modules together", null, query, together,
          element("div", { class: "mlx-under" }, element("button", { type: "button", class: "mlx-plain", onclick: saveTable }, "Download as CSV"), drop?.node ?? "")),
        panel("Neighbors by each module", null, note, perModule)),
      element("div", { class: "mlx-column mlx-charts" },
        diverse ? charted("Coverage of the spectrum", "coverage", coverage) : null,
        diverse ? panel("Certificate", null, certificate, verdict) : null,
        charted("Retrieval precision", "precision", precision), meta.curves.vote ? charted("Accuracy of the vote", "vote", vote) : null,
        measures.length && M > 1 ? similarity : null)));
  el.append(root);

  const moving = () => performance.now() - moved < 150;
  function nearestStop() {
    let best = 0;
    stops.forEach((stop, s) => { if (Math.abs(stop.diversity - state.diversity) < Math.abs(stops[best].diversity - state.diversity)) best = s; });
    return best;
  }
  function center() {
    if (state.query) return state.query.center;
    return meta.remote ? null : rows.slice(state.selected * k, (state.selected + 1) * k);  // a part would be sent to the worker with its whole buffer
  }

  // One update: what follows from the weights at once, then the modules, which a worker or a server searches.
  async function update() {
    const mine = ++job;
    readState();
    slider.value = state.diversity;
    slider.setAttribute("aria-valuetext", `diversity ${state.diversity}`);
    if (document.activeElement !== number) number.value = state.diversity;
    shown.solution = diverse ? solve(meta.spectrum, ...meta.shape, state.diversity, meta.energy) : null;
    shown.weights = diverse ? distanceWeights(meta.spectrum, shown.solution, meta.weighting) : new Float64Array(k).fill(1 / M);
    shown.agreement = null;
    perModule.setAttribute("aria-busy", "true");
    const request = { stop: diverse ? nearestStop() : 0, query: selected(), center: center(), off: [...state.off], count: meta.n_neighbors,
      weights: shown.weights, pixels: state.query?.pixels, moving: moving() };
    try {
      if (!state.off.size) {
        let found = finder.together(shown.weights, request);  // a promise only if a server answers
        if (found instanceof Promise) { drawAround(); found = await found; }
        if (!found || mine !== job) return;
        Object.assign(shown, found);
        drawTogether();
      }
      drawAround();
      const found = await finder.modules(request);
      if (!found || mine !== job) return;
      Object.assign(shown, found);
    } catch (error) {
      status.textContent = `No neighbors: ${error.message}.`;
      return;
    }
    const active = activeModules();
    shown.agreement = shown.together.map((j) => active.filter((m) => shown.modules[m].includes(j)).length);
    drawTogether();
    drawModules();
    drawMarks();
    announce();
    perModule.setAttribute("aria-busy", "false");
  }
  function drawAround() {
    drawMap(); drawCoverage(); drawCertificate(); drawCurves(); drawHeat();
  }
  function announce() {
    const q = selected();
    const same = meta.classes && q >= 0 ? `, ${shown.together.filter((j) => !book.differs(q, j)).length} of ${shown.together.length} neighbors with the same label` : "";
    const mean = shown.agreement.reduce((a, b) => a + b, 0) / Math.max(1, shown.agreement.length);
    status.replaceChildren(...(q < 0 ? ["your image"] : book.sentence(q)), `${same}; a neighbor is found by ${mean.toFixed(1)} of ${counted(M - state.off.size)} on average.`);
  }

  function drawTogether() {
    const q = selected();
    if (q >= 0 && q === asking) { /* shown already */ }
    else if (state.query) {
      const invert = element("button", { type: "button", class: "mlx-save", onclick: () => searchImage(state.query.pixels.map((v) => 255 - v)) }, "Invert");
      query.replaceChildren(book.paint(state.query.pixels, 0), element("div", { class: "mlx-words" }, element("strong", {}, "Your image"),
        element("span", { class: "mlx-small" }, `scaled to ${meta.image_shape[1]} x ${meta.image_shape[0]} pixels`), meta.image_shape[2] === 1 ? invert : ""));
    } else query.replaceChildren(...[book.picture(q), element("div", { class: "mlx-words" }, ...book.words(q))].filter(Boolean));
    asking = q;
    const active = M - state.off.size;
    fitChildren(together, shown.together.length, () => rowButton("mlx-card", select)).forEach((item, place) => {
      const j = shown.together[place], button = item.firstChild, votes = shown.agreement?.[place], other = book.differs(q, j);
      if (button.shows !== `${q} ${j}`) fillCard(button, q, j);
      button.shows = `${q} ${j}`;
      button.setAttribute("aria-label", `${book.describe(j)}${other ? ", another label" : ""}${votes === undefined ? "" : `, found by ${votes} of ${counted(active)}`}`);
      const { distance, bar, agree } = button.parts;
      distance.textContent = `distance ${rounded(shown.distances[place])}`;
      if (votes === undefined) return;  // what was counted last stays until the modules have answered
      bar.style.width = `${(100 * votes) / active}%`;
      agree.textContent = `${votes} of ${counted(active)}`;
    });
  }
  function fillCard(button, q, j) {
    const name = book.label(j), other = book.differs(q, j), small = () => element("span", { class: "mlx-small" });
    const parts = { distance: small(), bar: element("span"), agree: small() };
    parts.agree.textContent = "…";
    button.parts = parts;
    button.dataset.row = j;
    button.classList.toggle("mlx-differs", other);
    button.replaceChildren(...[book.picture(j), element("span", { class: "mlx-words" },
      element("span", { class: "mlx-name" }, ...breakable(book.name(j))),
      name === null ? "" : element("span", { class: "mlx-label" }, book.swatch(j), other ? `≠ ${name}` : name),
      book.text(j) === null ? "" : element("span", { class: "mlx-text" }, book.text(j)), book.facts(j, 4) ?? "",
      parts.distance, element("span", { class: "mlx-meter" }, parts.bar), parts.agree)].filter(Boolean));
  }
  function drawModules() {
    const stop = diverse ? stops[nearestStop()].diversity : null, exact = stop === state.diversity;
    note.textContent = (diverse && !exact ? `Modules learned at diversity ${stop}, the nearest to ${state.diversity}. ` : "")
      + (M > 1 ? "Framed: also among the neighbors by all modules together. Untick a module to switch it off." : "");
    const all = new Set(shown.together);
    const lines = fitChildren(perModule, M, () => {
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
      fitChildren(line.lastChild, list.length, () => rowButton("mlx-chip", select)).forEach((item, place) =>
        fillChip(item.firstChild, book, list[place], { selected: selected(), both: all.has(list[place]), note: "also by all modules together" }));
    });
  }
  function toggle(m, on) {
    const off = new Set(state.off);
    if (on) off.delete(m); else off.add(m);
    save("switched_off", [...off].sort((a, b) => a - b));
  }
  function saveTable() {
    const active = activeModules(), columns = meta.table?.names ?? [], cells = (j) => [...(book.facts(j)?.querySelectorAll("dd") ?? [])].map((cell) => cell.textContent);
    saveCsv([["rank", "row", "name", "label", "distance", "found_by", ...columns], ...shown.together.map((j, place) => [
      place + 1, j, book.name(j), book.label(j), shown.distances[place], active.filter((m) => shown.modules[m]?.includes(j)).map((m) => m + 1).join(" "), ...cells(j)])],
    `neighbors-of-${state.query ? "image" : state.selected}.csv`);
  }

  // The map
  let variances = null;
  function widest() {  // the two columns in which rows differ most
    if (diverse) return [0, Math.min(1, k - 1)];
    if (!variances) {
      const mean = new Float64Array(k), count = rows.length / k;
      variances = new Float64Array(k);
      for (let p = 0; p < rows.length; p++) mean[p % k] += rows[p] / count;
      for (let p = 0; p < rows.length; p++) variances[p % k] += (rows[p] - mean[p % k]) ** 2;
    }
    const order = range(0, k).sort((i, j) => variances[j] - variances[i]);
    return [order[0], order[1] ?? order[0]];
  }
  function shownView() {
    const { module, x, y } = state.view;
    if (module >= 0) return { source: finder.module(diverse ? nearestStop() : 0, module), width: widths[module], a: x, b: y };
    const scale = (i) => Math.sqrt(shown.weights[i]) || 0;
    return { source: rows, width: k, a: x, b: y, sa: scale(x), sb: scale(y) };
  }
  function drawMap() {
    const { module, x, y } = state.view, names = range(0, module < 0 ? k : widths[module]).map((i) => `${module < 0 && diverse ? "component" : "dimension"} ${i + 1}`);
    chooser.select.value = module + 1;
    if (across.select.children.length !== names.length || across.select.firstChild?.textContent !== names[0]) for (const { select: node } of [across, up]) rename(node, names, 0);
    [across.select.value, up.select.value] = [x, y];
    map.draw(shownView(), moving());
    drawMarks();
  }
  function drawMarks() {
    const q = selected(), { module, x, y } = state.view, outside = meta.remote && toPoint(q) < 0;
    const c = outside ? shown.center : state.query?.center;
    const inside = c && (module < 0 ? c : moduleOf(data, diverse ? nearestStop() : 0, module, Float32Array.from(c), 1));
    map.mark({ selected: toPoint(q), neighbors: shown.together.map(toPoint).filter((p) => p >= 0), cross: inside ? [inside[x], inside[y]] : null,
      label: state.query ? "your image" : book.describe(q) });
  }

  // Charts
  function drawCoverage() {
    if (!diverse) return;
    const share = meta.spectrum.map((q, i) => shown.solution.coverage[i] / q), top = share.reduce((a, b) => Math.max(a, b), 1);
    const kept = share.filter((s) => s > 1e-6).length;
    const { svg, x, y } = chart(coverage, widthOf, `All modules together keep ${kept} of ${k} components at least in part.`, ["1", String(k), "component"], top);
    const steps = (s) => `M${x(0)} ${y(0)}` + s.map((v, i) => `L${x(i / k)} ${y(Math.min(v, top))}L${x((i + 1) / k)} ${y(Math.min(v, top))}`).join("") + `L${x(1)} ${y(0)}Z`;
    svg.append(drawn("path", { d: steps(share), class: "mlx-area" }));
    if (state.off.size) {
      const own = stops[nearestStop()].shares, active = activeModules();
      svg.append(drawn("path", { d: steps(range(0, k).map((i) => active.reduce((sum, m) => sum + own[m][i], 0) / M)), class: "mlx-area mlx-left" }));
    }
    coverage.append(element("p", { class: "mlx-note" }, state.off.size
      ? `Filled: what the ${M - state.off.size} modules that answer keep (learned at diversity ${stops[nearestStop()].diversity}).`
      : `Share of each component that all modules together keep. ${kept} of ${k} are kept at least in part.`));
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
      const all = curves[name], one = curves[`module_${name}`];
      const here = diverse ? interpolated(all) : all[0], alone = diverse ? interpolated(one) : one[0];
      const words = `${percent(here)} ${what} by all modules together, ${percent(alone)} by one module (${curves.n_queries.toLocaleString("en")} rows${curves.n_rows ? ` among ${curves.n_rows.toLocaleString("en")}` : ""}${state.off.size ? ", all modules switched on" : ""}).`;
      const lowest = Math.min(...all, ...one), base = Math.max(0, Math.floor(10 * lowest - 1e-9) / 10);
      const { svg, x, y } = chart(parent, widthOf, words, diverse ? ["0", "1", "diversity"] : ["", "", ""], 1, base);
      const line = (v) => v.map((value, s) => `${s ? "L" : "M"}${x(stops[s].diversity)} ${y(value)}`).join("");
      const bar = (v, at, kind) => drawn("rect", { x: x(at), y: y(v), width: x(0.2) - x(0), height: y(base) - y(v), class: kind });
      if (diverse) {
        svg.append(drawn("path", { d: line(one), class: "mlx-line mlx-one" }), drawn("path", { d: line(all), class: "mlx-line" }),
          drawn("line", { x1: x(state.diversity), x2: x(state.diversity), y1: y(base), y2: y(1), class: "mlx-here" }),
          drawn("circle", { cx: x(state.diversity), cy: y(here), r: 5, class: "mlx-dot" }));
      } else svg.append(bar(here, 0.2, "mlx-left"), bar(alone, 0.6, "mlx-area"), ...[["all modules", 0.3], ["one module", 0.7]].map(([t, at]) => drawn("text", { x: x(at), y: y(base) + 14, "text-anchor": "middle" }, t)));
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
  let heatDrawn = null;
  function drawHeat(again = false) {
    if (!measures.length || M < 2) return;
    const stop = diverse ? nearestStop() : 0, now = `${measure} ${stop} ${widthOf(heat)}`;
    if (now === heatDrawn && !again) return;
    heatDrawn = now;
    const name = measures[measure], values = meta.similarity[name][stop], names = range(1, M + 1).map(String);
    const others = values.flatMap((line, i) => line.filter((v, j) => v !== null && i !== j)), mean = others.reduce((a, b) => a + b, 0) / Math.max(1, others.length);
    const words = `${name} of different modules: ${mean.toFixed(2)} on average${diverse ? ` at diversity ${stops[stop].diversity}` : ""}. 1 means the same up to rotation.`;
    heatMap(heat, widthOf, { values, rows: names, columns: names, label: words, columnTitle: "module" });
    heatNote.textContent = words;
  }

  const names = ["change:selected", "change:diversity", "change:switched_off"];
  const redraw = () => { readState(); drawMap(); };
  for (const name of names) model.on(name, update);
  model.on("change:view", redraw);
  const leave = onResize(root, () => { forget(); drawMap(); drawCoverage(); drawCurves(); drawHeat(true); }, () => { map.retheme(); drawMap(); });
  update();
  return () => {  // the notebook removes the cell
    job++;
    leave(); map.stop(); drop?.stop(); finder.stop();
    for (const name of names) model.off(name, update);
    model.off("change:view", redraw);
  };
}
