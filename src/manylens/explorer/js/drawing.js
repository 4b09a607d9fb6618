// Elements, charts, heat maps and downloads. What users gave is only ever a text node or an attribute.

const SVG = "http://www.w3.org/2000/svg";
const KINDS = 10, STEPS = 24;  // colors of the style sheet for few classes, and steps of the scale of values

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

function numbers(view, Kind = Float32Array) {  // a DataView of little-endian numbers at any offset
  return new Kind(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
}

function rounded(value) {
  return value === 0 ? "0" : Math.abs(value) >= 1e-3 && Math.abs(value) < 1e5 ? value.toPrecision(4) : value.toExponential(2);
}

const percent = (value) => `${(100 * value).toFixed(1)} %`;

// Colors are CSS in terms of the theme, so that light and dark have contrast: one for each class, or for x in [0, 1].
function classColor(c, count) {
  return count <= KINDS ? `var(--mlx-kind${c})` : `oklch(var(--mlx-light${c % 3}) 0.13 ${Math.round(c * 137.508) % 360})`;
}
function scaleColor(x) {
  const at = (4 * Math.round(STEPS * Math.max(0, Math.min(1, x)))) / STEPS, i = Math.min(3, Math.floor(at));
  return `color-mix(in srgb, var(--mlx-scale${i + 1}) ${(100 * (at - i)).toFixed(1)}%, var(--mlx-scale${i}))`;
}
const UNKNOWN = "var(--mlx-kind9)";

function choice(label, id, names, value, onchange) {  // a select with its label
  const select = element("select", { id, onchange: () => onchange(Number(select.value)) },
    ...names.map((name, i) => element("option", { value: i }, name)));
  select.value = value;
  return { select, node: element("span", { class: "mlx-control" }, element("label", { for: id }, label), select) };
}

function rename(select, names, value) {  // other options in the same select
  select.replaceChildren(...names.map((name, i) => element("option", { value: i }, name)));
  select.value = value;
}

// --- Widths: asking for one after a change makes the browser lay out the page --------------------------------

function widthCache() {
  const measured = new Map();
  const widthOf = (node) => {
    if (!measured.get(node)) measured.set(node, node.clientWidth);
    return measured.get(node);
  };
  return { widthOf, forget: () => measured.clear() };
}

// --- Charts ----------------------------------------------------------------------------------------------------

function chart(parent, widthOf, label, names, top = 1, base = 0) {
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

// A heat map of values (rows x columns) in [0, 1] or null; a click gives the row and column.
function heatMap(parent, widthOf, { values, rows, columns, label, rowTitle, columnTitle, chosen, onpick }) {
  const longest = (names) => names.reduce((most, name) => Math.max(most, name.length), 0);
  const left = Math.min(110, 22 + 6.5 * longest(rows)), width = Math.max(220, Math.min(widthOf(parent), left + 46 * columns.length + 60));
  const across = (width - left - 6) / columns.length, turned = across < 7 * longest(columns) + 6;
  const down = Math.min(across, 46), top = 6, bottom = top + down * rows.length;
  const below = turned ? Math.min(90, 8 + 6 * longest(columns)) : 16, height = bottom + below + 18;
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  const skipped = (count, size) => Math.ceil(13 / size) || 1;
  values.forEach((line, i) => line.forEach((value, j) => {
    const cell = drawn("rect", { x: left + j * across, y: top + i * down, width: across, height: down, class: "mlx-cell",
      fill: value === null ? "none" : `color-mix(in oklab, var(--mlx-card), var(--mlx-ours) ${(100 * Math.max(0, Math.min(1, value))).toFixed(1)}%)` });
    cell.append(drawn("title", {}, `${rows[i]}, ${columns[j]}: ${value === null ? "constant" : value.toFixed(3)}`));
    if (onpick) { cell.style.cursor = "pointer"; cell.addEventListener("click", () => onpick(i, j)); }
    svg.append(cell);
    if (across >= 27 && down >= 15 && value !== null) {
      svg.append(drawn("text", { x: left + (j + 0.5) * across, y: top + (i + 0.5) * down + 4, "text-anchor": "middle", "pointer-events": "none",
        class: `mlx-value ${value > 0.85 ? "mlx-deep" : ""} ${value > 0.59 ? "mlx-bright" : ""}` }, value.toFixed(2).replace(/^0/, "")));
    }
  }));
  rows.forEach((name, i) => { if (i % skipped(rows.length, down) === 0) svg.append(drawn("text", { x: left - 5, y: top + (i + 0.5) * down + 4, "text-anchor": "end" }, clipped(name, 15))); });
  columns.forEach((name, j) => {
    if (j % skipped(columns.length, across)) return;
    const x = left + (j + 0.5) * across, y = bottom + 13;
    svg.append(turned ? drawn("text", { x: 0, y: 0, "text-anchor": "end", transform: `translate(${x + 3} ${y - 6}) rotate(-60)` }, clipped(name, 15))
      : drawn("text", { x, y, "text-anchor": "middle" }, name));
  });
  if (columnTitle) svg.append(drawn("text", { x: left + (width - left) / 2, y: height - 4, "text-anchor": "middle" }, columnTitle));
  if (rowTitle) svg.append(drawn("text", { x: 0, y: 0, "text-anchor": "middle", transform: `translate(10 ${(top + bottom) / 2}) rotate(-90)` }, rowTitle));
  if (chosen) svg.append(drawn("rect", { x: left + chosen[1] * across + 1, y: top + chosen[0] * down + 1, width: across - 2, height: down - 2, class: "mlx-chosen", "pointer-events": "none" }));
  parent.replaceChildren(svg);
  return svg;
}

function breakable(name) {  // a name that breaks after its slashes, dots and underscores before it breaks anywhere else
  return name.split(/(?<=[/\\._])/).flatMap((part, i) => (i ? [element("wbr"), part] : [part]));
}

const clipped = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);

// --- Downloads -------------------------------------------------------------------------------------------------

function saveBlob(blob, name) {
  const url = URL.createObjectURL(blob);
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

function csvCell(value) {
  const text = String(value ?? "");
  const safe = /^([=+@\t\r]|-[^\d.])/.test(text) ? "'" + text : text;  // spreadsheets would run it as a formula
  return /[",\n\r']/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function saveCsv(lines, name) {
  saveBlob(new Blob([lines.map((line) => line.map(csvCell).join(",")).join("\r\n")], { type: "text/csv" }), name);
}

const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family", "font-weight"];

function standalone(svg, background) {  // a copy that needs no style sheet
  const copy = svg.cloneNode(true), originals = [svg, ...svg.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((node, i) => {
    if (node.tagName === "title") return;
    const style = getComputedStyle(originals[i]);
    for (const name of STYLES) node.setAttribute(name, style.getPropertyValue(name));
    node.removeAttribute("class");
    node.removeAttribute("style");
  });
  copy.setAttribute("xmlns", SVG);
  const [, , width, height] = copy.getAttribute("viewBox").split(" ");
  copy.prepend(drawn("rect", { width, height, fill: background }));
  return new XMLSerializer().serializeToString(copy);
}

async function rasterized(text, width, height, scale = 2) {  // an SVG as a canvas
  const picture = new Image(), url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  try {
    picture.src = url;
    await picture.decode();
    const canvas = element("canvas", { width: Math.round(width * scale), height: Math.round(height * scale) });
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    return canvas;
  } finally { URL.revokeObjectURL(url); }
}

const savePng = (canvas, name) => canvas.toBlob((blob) => saveBlob(blob, name), "image/png");

// Buttons that save a figure. `figure` gives { svg: () => text, png: () => canvas or a promise of one }.
function saveButtons(title, name, figure) {
  const button = (kind, act) => element("button", { type: "button", class: "mlx-save", "aria-label": `Download ${title} as ${kind}`, onclick: act }, kind);
  return element("span", { class: "mlx-saves" },
    button("PNG", async () => savePng(await figure.png(), `${name}.png`)),
    button("SVG", () => saveBlob(new Blob([figure.svg()], { type: "image/svg+xml" }), `${name}.svg`)));
}

function chartFigure(root, parent) {  // the chart in `parent`, as it is shown
  const paper = () => getComputedStyle(root).getPropertyValue("--mlx-card").trim();
  const svg = () => standalone(parent.querySelector("svg"), paper());
  return { svg, png: () => { const { width, height } = parent.querySelector("svg").viewBox.baseVal; return rasterized(svg(), width, height); } };
}

function panel(title, saves, ...children) {
  return element("section", { class: "mlx-panel", "aria-label": title }, element("div", { class: "mlx-title" }, element("h2", {}, title), saves), ...children);
}

// --- Size and theme --------------------------------------------------------------------------------------------

const THEMES = ["class", "data-jp-theme-light", "data-vscode-theme-kind", "data-theme"];

// Whether the host is dark: JupyterLab, VS Code and marimo say so on the body or the root; else the system does.
export function isDark() {
  for (const node of [document.body, document.documentElement]) {
    const said = THEMES.map((name) => node.getAttribute(name) ?? "");
    if (said[1]) return said[1] === "false";
    const words = [said[0], said[2], said[3]].join(" ").split(/\s+/);
    if (words.some((word) => /^(dark|dark-theme|vscode-dark|vscode-high-contrast)$/.test(word))) return true;
    if (words.some((word) => /^(light|light-theme|vscode-light|vscode-high-contrast-light)$/.test(word))) return false;
  }
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

// Call `resized` when the width of a node changes, and `themed` when the colors do.
function onResize(root, resized, themed) {
  let width = 0;
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const paint = () => {
    if (root.classList.toggle("mlx-dark", isDark()) !== dark) { dark = !dark; themed(); }
  };
  let dark = root.classList.toggle("mlx-dark", isDark());
  scheme.addEventListener("change", paint);
  const themes = new MutationObserver(paint);
  for (const node of [document.documentElement, document.body]) themes.observe(node, { attributes: true, attributeFilter: THEMES });
  const watcher = new ResizeObserver(() => {
    if (root.clientWidth === width) return;
    width = root.clientWidth;
    resized();
  });
  watcher.observe(root);
  return () => { watcher.disconnect(); themes.disconnect(); scheme.removeEventListener("change", paint); };
}
