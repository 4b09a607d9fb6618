// A new image as a query: its pixels, and its coordinates by the map that Python sent.

// Pixels (height, width, channels) of a file, stretched to the size of the rows' images.
async function imagePixels(file, [height, width, channels]) {
  const bitmap = await createImageBitmap(file), canvas = element("canvas", { width, height });
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  pen.imageSmoothingQuality = "high";
  if (channels < 4) { pen.fillStyle = "#fff"; pen.fillRect(0, 0, width, height); }
  pen.drawImage(bitmap, 0, 0, width, height);
  bitmap.close();
  const data = pen.getImageData(0, 0, width, height).data, out = new Uint8Array(height * width * channels);
  for (let p = 0; p < height * width; p++) {
    if (channels === 1) out[p] = Math.round(0.299 * data[4 * p] + 0.587 * data[4 * p + 1] + 0.114 * data[4 * p + 2]);
    else for (let c = 0; c < channels; c++) out[channels * p + c] = data[4 * p + c];
  }
  return out;
}

// Coordinates (k) of pixels: k(x, landmarks) P - shift, or x P - shift.
export function imageCoordinates(map, buffer, pixels) {
  const k = map.steps.length, d = pixels.length, R = map.n_landmarks, rows = R || d;
  const P = new Int16Array(buffer, 0, rows * k), landmarks = new Uint8Array(buffer, 2 * rows * k);
  const features = new Float64Array(rows);
  for (let r = 0; r < rows; r++) {
    if (!R) { features[r] = map.scale * pixels[r] + map.offset; continue; }
    let sum = 0;
    for (let i = 0; i < d; i++) sum += (pixels[i] - landmarks[r * d + i]) ** 2;
    features[r] = Math.exp(-map.gamma * map.scale ** 2 * sum);
  }
  const out = new Float64Array(k);
  for (let r = 0; r < rows; r++) for (let i = 0; i < k; i++) out[i] += features[r] * P[r * k + i];
  return out.map((sum, i) => sum * map.steps[i] - map.shift[i]);
}

// A place to drop, paste or choose an image; `use` gets its pixels.
function imageDrop(root, unique, shape, use, status) {
  async function take(file) {
    try { use(await imagePixels(file, shape)); } catch { status.textContent = `${file.name || "This"} is not an image that the browser can read.`; }
  }
  const input = element("input", { id: unique + "image", type: "file", accept: "image/*", class: "mlx-file", onchange: () => { if (input.files[0]) take(input.files[0]); input.value = ""; } });
  const node = element("label", { class: "mlx-drop", for: input.id }, "Search by an image: drop it here, paste it, or ", element("u", {}, "choose a file"), input);
  const imageIn = (transfer) => [...(transfer?.files ?? [])].find((file) => file.type.startsWith("image/"));
  const on = (event) => { event.preventDefault(); root.classList.add("mlx-dropping"); };
  const off = () => root.classList.remove("mlx-dropping");
  root.addEventListener("dragover", on);
  root.addEventListener("dragleave", (event) => { if (!root.contains(event.relatedTarget)) off(); });
  root.addEventListener("drop", (event) => { event.preventDefault(); off(); const file = imageIn(event.dataTransfer); if (file) take(file); else status.textContent = "Only images can be dropped here."; });
  const paste = (event) => { const file = imageIn(event.clipboardData); if (file) { event.preventDefault(); take(file); } };
  root.addEventListener("paste", paste);
  if (root.ownerDocument.querySelector("#explorer")) document.addEventListener("paste", paste);  // a page of its own
  return { node, stop: () => document.removeEventListener("paste", paste) };
}
