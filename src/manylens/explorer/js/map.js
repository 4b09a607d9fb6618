// A map of points: drawn by hand into pixels, with rings around the selected one and its neighbors.

const FEWER = 20_000;  // points that are drawn while something moves
const OPACITY = 0.9;  // of a point: less would take its contrast

function pointMap({ root, colors, unique, describe, tip: tipNodes, onpick, widthOf, title }) {
  const n = colors.length, x = new Float32Array(n), y = new Float32Array(n), rgb = new Uint8Array(3 * n);
  const points = element("canvas", { "aria-hidden": "true" });
  const marks = element("canvas", { class: "mlx-marks", tabindex: 0, role: "application", "aria-roledescription": "map of rows", "aria-describedby": unique + "keys" });
  const tip = element("div", { class: "mlx-tip", hidden: true });
  const probe = element("span", { hidden: true });  // the browser computes colors of the theme for it
  const box = element("div", { class: "mlx-map" }, points, marks, tip, probe);
  const place = { size: 0, ratio: 1, fit: null }, tones = new Map();
  let shown = { selected: -1, neighbors: [], cross: null }, hovered = -1, later = 0, image = null, stale = true;

  function tone(color) {
    if (!tones.has(color)) {
      const pen = element("canvas", { width: 1, height: 1 }).getContext("2d");
      probe.style.color = color;
      pen.fillStyle = getComputedStyle(probe).color;
      pen.fillRect(0, 0, 1, 1);
      tones.set(color, pen.getImageData(0, 0, 1, 1).data.slice(0, 3));
    }
    return tones.get(color);
  }
  function recolor(next) {
    if (colors !== next) stale = true;  // the theme is known when the map is painted
    colors = next;
  }
  const theme = new Map();  // asking for a color after a change makes the browser compute all styles
  function property(name) {
    if (!theme.has(name)) theme.set(name, getComputedStyle(root).getPropertyValue(name).trim());
    return theme.get(name);
  }

  function layout() {
    const size = widthOf(box), ratio = window.devicePixelRatio || 1;
    if (!size) return false;
    if (place.size !== size || place.ratio !== ratio) {
      for (const canvas of [points, marks]) canvas.width = canvas.height = Math.round(size * ratio);
      Object.assign(place, { size, ratio });
      image = null;
    }
    return true;
  }
  // Place the points: columns a and b of `source` (n, width), times sa and sb.
  function locate({ source, width, a, b, sa = 1, sb = 1 }) {
    let [left, right, top, bottom] = [Infinity, -Infinity, Infinity, -Infinity];
    for (let j = 0, p = 0; j < n; j++, p += width) {
      const u = sa * source[p + a], v = b < width ? -sb * source[p + b] : 0;
      x[j] = u; y[j] = v;
      if (u < left) left = u;
      if (u > right) right = u;
      if (v < top) top = v;
      if (v > bottom) bottom = v;
    }
    const margin = 14, room = place.size - 2 * margin, span = Math.max(right - left, bottom - top) || 1, scale = room / span;
    const dx = margin + (room - scale * (right - left)) / 2 - scale * left, dy = margin + (room - scale * (bottom - top)) / 2 - scale * top;
    for (let j = 0; j < n; j++) { x[j] = dx + scale * x[j]; y[j] = dy + scale * y[j]; }
    place.fit = (u, v) => [dx + scale * sa * u, dy - scale * sb * v];
  }
  // Discs are blended into the pixels: 10,000 calls of drawImage would take 50 ms.
  function disc(radius) {  // offsets and opacities of a disc with a soft edge
    const reach = Math.ceil(radius + 0.5), cells = [];
    for (let v = -reach; v <= reach; v++) {
      for (let u = -reach; u <= reach; u++) {
        const inside = Math.min(1, Math.max(0, radius + 0.5 - Math.hypot(u, v)));
        if (inside > 0) cells.push([u, v, OPACITY * inside]);
      }
    }
    return { reach, cells };
  }
  const radiusOf = (count) => Math.max(1.1, Math.min(4.5, (0.11 * place.size) / Math.sqrt(count) + 1.4));
  function paint(step) {
    if (stale) colors.forEach((color, j) => rgb.set(tone(color), 3 * j));
    stale = false;
    const pen = points.getContext("2d"), side = points.width, r = place.ratio;
    image ??= pen.createImageData(side, side);
    const out = new Uint8Array(image.data.buffer), paper = tone(property("--mlx-card"));
    new Uint32Array(out.buffer).fill(new Uint32Array(Uint8Array.of(...paper, 255).buffer)[0]);
    const { reach, cells } = disc(radiusOf(n) * r), count = cells.length;
    const shifts = Int32Array.from(cells, ([u, v]) => 4 * (v * side + u)), opacities = Int32Array.from(cells, (cell) => Math.round(256 * cell[2]));
    for (let j = 0; j < n; j += step) {
      const u = Math.round(x[j] * r), v = Math.round(y[j] * r), red = rgb[3 * j], green = rgb[3 * j + 1], blue = rgb[3 * j + 2];
      if (u < reach || v < reach || u >= side - reach || v >= side - reach) continue;  // the margin is wider
      const center = 4 * (v * side + u);
      for (let c = 0; c < count; c++) {
        const p = center + shifts[c], opacity = opacities[c];
        out[p] += (opacity * (red - out[p])) >> 8;
        out[p + 1] += (opacity * (green - out[p + 1])) >> 8;
        out[p + 2] += (opacity * (blue - out[p + 2])) >> 8;
      }
    }
    pen.putImageData(image, 0, 0);
  }
  // Draw all points, or a part of many of them now and all of them when nothing has moved for a moment.
  function draw(where, moving = false) {
    if (!layout()) return;
    if (where) locate(where);
    if (!place.fit) return;
    clearTimeout(later);
    if (moving && n > FEWER) {
      paint(Math.ceil(n / FEWER));
      later = setTimeout(() => paint(1), 200);
    } else paint(1);
    mark();
  }
  function mark(next = shown) {  // { selected: point or -1, neighbors: points, cross: [u, v] or null, label }
    shown = next;
    if (!place.size || !place.fit) return;
    const pen = marks.getContext("2d"), q = shown.selected, ink = property("--mlx-ink"), card = property("--mlx-card");
    pen.setTransform(place.ratio, 0, 0, place.ratio, 0, 0);
    pen.clearRect(0, 0, place.size, place.size);
    const from = shown.cross ? place.fit(...shown.cross) : q >= 0 ? [x[q], y[q]] : null;
    const ring = (u, v, radius, width) => {
      for (const [color, extra] of [[card, 2.5], [ink, 0]]) {
        pen.beginPath();
        pen.arc(u, v, radius, 0, 2 * Math.PI);
        pen.strokeStyle = color; pen.lineWidth = width + extra;
        pen.stroke();
      }
    };
    pen.strokeStyle = ink; pen.globalAlpha = 0.45; pen.lineWidth = 1;
    if (from) for (const j of shown.neighbors) { pen.beginPath(); pen.moveTo(...from); pen.lineTo(x[j], y[j]); pen.stroke(); }
    pen.globalAlpha = 1;
    for (const j of shown.neighbors) ring(x[j], y[j], 5, 1.5);
    if (from) ring(...from, 8, 3);
    if (hovered >= 0) ring(x[hovered], y[hovered], 6, 2);
    marks.setAttribute("aria-label", `${title} of ${n} rows.${shown.label ? ` Selected: ${shown.label}` : ""}`);
  }
  function pointAt(event) {
    const edge = marks.getBoundingClientRect(), u = event.clientX - edge.left, v = event.clientY - edge.top;
    let best = -1, least = 24 ** 2;
    for (let j = 0; j < n; j++) {
      const d = (x[j] - u) ** 2 + (y[j] - v) ** 2;
      if (d < least) [best, least] = [j, d];
    }
    return best;
  }
  function hover(j) {
    if (j === hovered) return;
    hovered = j;
    tip.hidden = j < 0;
    mark();
    if (j < 0) return;
    tip.replaceChildren(...tipNodes(j));
    tip.style.left = `${Math.min(x[j] + 12, Math.max(0, place.size - 170))}px`;
    tip.style.top = `${y[j] > place.size - 90 ? y[j] - 80 : y[j] + 12}px`;
  }
  const api = { box, draw, mark, hover, recolor, retheme: () => { theme.clear(); tones.clear(); stale = true; }, onhover: null };
  const hovers = (j) => { hover(j); api.onhover?.(j); };
  marks.addEventListener("click", (event) => { const j = pointAt(event); if (j >= 0) onpick(j); });
  marks.addEventListener("pointermove", (event) => hovers(pointAt(event)));
  marks.addEventListener("pointerleave", () => hovers(-1));
  marks.addEventListener("keydown", (event) => {
    const direction = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!direction) return;
    event.preventDefault();
    const [ux, uy] = direction, [u, v] = shown.selected >= 0 ? [x[shown.selected], y[shown.selected]] : [place.size / 2, place.size / 2];
    let best = -1, least = Infinity;
    for (let j = 0; j < n; j++) {
      const dx = x[j] - u, dy = y[j] - v, along = dx * ux + dy * uy, beside = Math.abs(dx * uy) + Math.abs(dy * ux);
      if (along > 0 && beside <= along && along + 2 * beside < least) [best, least] = [j, along + 2 * beside];
    }
    if (best >= 0) onpick(best);
  });
  api.stop = () => clearTimeout(later);
  api.figure = {
    png() {
      const canvas = element("canvas", { width: points.width, height: points.height }), pen = canvas.getContext("2d");
      pen.drawImage(points, 0, 0);
      pen.drawImage(marks, 0, 0);
      return canvas;
    },
    svg() {
      const size = place.size, ink = property("--mlx-ink"), q = shown.selected, r = radiusOf(n).toFixed(2);
      const from = shown.cross ? place.fit(...shown.cross) : q >= 0 ? [x[q], y[q]] : null, two = (v) => v.toFixed(2);
      const circle = (u, v, rest) => `<circle cx="${two(u)}" cy="${two(v)}" ${rest}/>`;
      const css = (color) => `#${[...tone(color)].map((c) => c.toString(16).padStart(2, "0")).join("")}`;
      return [`<svg xmlns="${SVG}" viewBox="0 0 ${size} ${size}" width="${size}" height="${size}"><rect width="${size}" height="${size}" fill="${css(property("--mlx-card"))}"/><g fill-opacity="${OPACITY}">`,
        ...colors.map((color, j) => circle(x[j], y[j], `r="${r}" fill="${css(color)}"`)), `</g><g fill="none" stroke="${css(ink)}">`,
        ...shown.neighbors.map((j) => circle(x[j], y[j], 'r="5" stroke-width="1.5"')),
        ...(from ? [...shown.neighbors.map((j) => `<path opacity="0.45" d="M${from.map(two).join(" ")}L${two(x[j])} ${two(y[j])}"/>`), circle(...from, 'r="8" stroke-width="3"')] : []), "</g></svg>"].join("");
    },
  };
  return api;
}
