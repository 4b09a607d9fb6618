// What finds neighbors on a server: it has all rows, the page a sample of them for the map.

const AGAIN = 400;  // ms until a server that is not ready is asked again
const REST = 120;  // ms after which a slider is at rest; until then the server should answer for all modules only

async function askServer(remote, path, body) {
  const answer = await fetch(path, { method: "POST", body: JSON.stringify(body),
    headers: { "Content-Type": "application/json", Authorization: `Bearer ${remote.token}` } });
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(found.error ?? `the server answered ${answer.status}`);
  return found;
}

function remoteFinder(meta, data, book, tell) {
  const cache = { stop: -1, views: null };
  async function ask(request) {
    const { query, stop, off, pixels, each } = request, weights = Array.from(request.weights);
    const image = pixels ? btoa(String.fromCharCode(...pixels)) : null;
    const found = await askServer(meta.remote, "neighbors", { row: query, image, stop, off, each, weights });
    if ("mapped" in found) {  // not yet; the map can be used already
      tell(`The server maps all ${meta.n.toLocaleString("en")} rows: ${Math.floor(100 * found.mapped)} % are done. Neighbors appear when it is finished.`);
      await new Promise((resolve) => { setTimeout(resolve, AGAIN); });
      return ask(request);
    }
    book.add(found.rows);
    return found;
  }
  const together = latest(ask), modules = latest(ask);
  let turn = 0;
  return {
    together: async (weights, request) => {
      const found = await together({ ...request, weights, each: false });
      return found && { together: found.together, distances: found.distances, center: found.center };
    },
    modules: async (request) => {
      const mine = ++turn;
      if (request.moving) await new Promise((resolve) => { setTimeout(resolve, REST); });
      if (mine !== turn) return null;
      const found = await modules({ ...request, each: true });
      return found && { together: found.together, distances: found.distances, modules: found.modules, center: found.center };
    },
    module: (stop, m) => moduleRows(data, cache, stop, m),
    stop: () => {},
  };
}
