// What is known of rows: names, labels, colors, pictures, texts, columns. A server sends it with its answers.

function rowBook(meta, imageView) {
  const { classes, codes, values, n } = meta, remote = meta.remote ?? false, named = Boolean(meta.ids ?? meta.named);
  const sent = new Map();  // rows that a server described
  const pixels = new Uint8Array(imageView.buffer, imageView.byteOffset, imageView.byteLength);
  const field = (name, i) => (remote ? sent.get(i)?.[name] : meta[name]?.[i]);
  const name = (i) => (remote ? sent.get(i)?.ids : meta.ids?.[i]) ?? `row ${i}`;
  const code = (i) => (classes ? field("codes", i) ?? null : null);
  const value = (i) => field("values", i) ?? null;
  function label(i) {
    if (classes) return classes[code(i)] ?? null;
    if (!values && !meta.scaled) return null;
    return value(i) === null ? "?" : rounded(value(i));
  }
  const known = (values ?? meta.sample_values ?? []).filter((v) => v !== null);
  const low = known.reduce((a, b) => Math.min(a, b), Infinity), high = known.reduce((a, b) => Math.max(a, b), -Infinity);
  const valueColor = (v) => (v === null ? UNKNOWN : scaleColor(high > low ? (v - low) / (high - low) : 0));
  const colorFor = (c, v) => (classes ? classColor(c, classes.length) : known.length ? valueColor(v) : classColor(0, 1));
  const color = (i) => colorFor(code(i), value(i));
  const pointColors = remote
    ? range(0, meta.sample.length).map((p) => colorFor(meta.sample_codes?.[p], meta.sample_values?.[p]))
    : range(0, n).map(color);
  function paint(source, first, className = "") {
    const [height, width, channels] = meta.image_shape, size = height * width;
    const canvas = element("canvas", { width, height, class: `mlx-picture ${size < 4096 ? "mlx-pixels" : ""} ${className}`, "aria-hidden": "true" });
    const data = new ImageData(width, height), out = data.data;
    for (let p = 0; p < size; p++) {
      const from = first + p * channels;
      for (let c = 0; c < 3; c++) out[4 * p + c] = source[from + (channels === 1 ? 0 : c)];
      out[4 * p + 3] = channels === 4 ? source[from + 3] : 255;
    }
    canvas.getContext("2d").putImageData(data, 0, 0);
    return canvas;
  }
  function picture(i) {
    if (!meta.image_shape) return null;
    if (remote) return sent.get(i)?.image ? paint(sent.get(i).image, 0) : null;
    return paint(pixels, i * meta.image_shape.reduce((a, b) => a * b, 1));
  }
  function swatch(i) {
    return label(i) === null ? null : element("span", { class: "mlx-swatch", style: `background:${color(i)}`, "aria-hidden": "true" });
  }
  function cells(i) {  // [column, text] of the table
    if (!meta.table) return [];
    const texts = remote ? sent.get(i)?.table ?? [] : meta.table.values.map((column) => column[i]);
    return meta.table.names.map((column, c) => [column, texts[c] ?? ""]);
  }
  function facts(i, most = Infinity) {
    const shown = cells(i).slice(0, most);
    return shown.length ? element("dl", { class: "mlx-cells" }, ...shown.flatMap(([column, text]) => [element("dt", {}, column), element("dd", {}, text || "–")])) : null;
  }
  const text = (i) => field("text", i) ?? null;
  function describe(i) {
    const t = text(i), l = label(i);
    return name(i) + (l === null ? "" : `, label ${l}`) + (t ? `, ${t.slice(0, 200)}` : "");
  }
  function sentence(i) {  // name and label for a sentence, isolated so that right-to-left text does not turn the rest around
    const apart = (value) => element("bdi", {}, value), l = label(i);
    return [apart(name(i)), ...(l === null ? [] : [", label ", apart(l)])];
  }
  function words(i, most = Infinity) {  // a row in words, for panels
    return [element("strong", {}, ...breakable(name(i))), label(i) === null ? null : element("span", { class: "mlx-label" }, swatch(i), label(i)),
      text(i) === null ? null : element("p", { class: "mlx-text" }, text(i)), facts(i, most)].filter(Boolean);
  }
  async function find(wanted) {  // the number of a row given by its name or number, or -1
    const byName = !named ? -1 : remote ? (await askServer(remote, "row", { name: wanted })).row : meta.ids.indexOf(wanted);
    const row = byName >= 0 ? byName : /^\d+$/.test(wanted) ? Number(wanted) : -1;
    return row < n ? row : -1;
  }
  function add(infos) {
    for (const info of infos) sent.set(info.row, { ...info, image: info.image ? Uint8Array.from(atob(info.image), (c) => c.charCodeAt(0)) : null });
  }
  function legend() {
    const entry = (css, text) => element("li", {}, element("span", { class: "mlx-swatch", style: `background:${css}` }), text);
    const items = classes ? classes.slice(0, 40).map((className, c) => entry(classColor(c, classes.length), className))
      : known.length ? [0, 0.5, 1].map((v) => entry(valueColor(low + v * (high - low)), rounded(low + v * (high - low)))) : [];
    if (classes?.length > 40) items.push(element("li", {}, `and ${classes.length - 40} more`));
    return element("ul", { class: "mlx-legend", "aria-label": "Colors of the labels" }, ...items);
  }
  const differs = (i, j) => Boolean(classes) && i >= 0 && code(i) !== code(j);
  return { n, named, name, label, text, picture, paint, swatch, color, pointColors, describe, sentence, words, facts, find, add, legend, differs };
}

// Lists of buttons, which are reused so that the focus stays where it is.
function fitChildren(parent, length, make) {
  while (parent.children.length > length) parent.lastChild.remove();
  while (parent.children.length < length) parent.append(make());
  return [...parent.children];
}

function rowButton(kind, select) {
  const button = element("button", { type: "button", class: kind, onclick: () => select(Number(button.dataset.row)) });
  return element("li", {}, button);
}

// Another row as a small button: its picture, or its name and label.
function fillChip(button, book, i, { selected, both, note }) {
  const shows = `${selected} ${i} ${both}`;
  if (button.shows === shows) return;
  button.shows = shows;
  const other = book.differs(selected, i), label = book.label(i);
  button.dataset.row = i;
  button.classList.toggle("mlx-both", both);
  button.classList.toggle("mlx-differs", other);
  button.setAttribute("aria-label", book.describe(i) + (other ? ", another label" : "") + (both ? `, ${note}` : ""));
  button.title = book.describe(i);
  const image = book.picture(i), named = book.name(i) !== `row ${i}`;
  const caption = image ? (other ? `≠ ${label}` : null) : (other ? "≠ " : "") + (label === null || named ? book.name(i) : `${label} · ${i}`);
  button.replaceChildren(...[image, caption === null ? null : element("span", {}, image ? null : book.swatch(i), caption)].filter(Boolean));
}

// A field to type a row's number or name into.
function rowFinder(book, id, select, status) {
  const hint = `0 to ${book.n - 1}${book.named ? " or name" : ""}`;
  const input = element("input", { id, type: "search", autocomplete: "off", placeholder: hint, onchange: async () => {
    const wanted = input.value.trim();
    if (wanted === "") return;
    const row = await book.find(wanted).catch((error) => { status.textContent = `The server does not answer: ${error.message}.`; });
    if (row === undefined || wanted !== input.value.trim()) return;
    input.setAttribute("aria-invalid", String(row < 0));
    if (row >= 0) select(row);
    else status.textContent = `There is no row “${wanted}”: give a number from 0 to ${book.n - 1}${book.named ? " or a name" : ""}.`;
  } });
  return element("div", { class: "mlx-control" }, element("label", { for: id }, "Row"), input);
}
