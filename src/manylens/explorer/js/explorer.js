// The entry in anywidget's format. The files here are joined to one module, in the order of page_hosts.py.

let instances = 0;

function render({ model, el }) {
  const draw = model.get("meta").view === "comparison" ? renderComparison : renderModules;
  return draw({ model, el, unique: `mlx${++instances}-` });
}

export default { render };
