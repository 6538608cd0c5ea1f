(() => {
  "use strict";
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const root = document.documentElement;
  const views = new Map();
  const state = { hidden: new Set(), workload: "", concurrency: "", tensor_parallelism: "" };
  const filters = ["workload", "concurrency", "tensor_parallelism"];

  // Theme: the reader's system decides until the button is pressed.
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => root.dataset.theme === "dark";
  const setTheme = (dark) => { root.dataset.theme = dark ? "dark" : "light"; redraw(); };
  root.dataset.theme = system.matches ? "dark" : "light";
  system.addEventListener("change", (event) => setTheme(event.matches));
  document.getElementById("theme").addEventListener("click", () => setTheme(!isDark()));

  function themed(spec) {
    let text = JSON.stringify(spec);
    if (isDark()) for (const [light, dark] of Object.entries(charts.dark)) text = text.split(light).join(dark);
    const ink = isDark() ? "#c6ced7" : "#3a434e", grid = isDark() ? "#2a323c" : "#e8ebef";
    const themedSpec = JSON.parse(text);
    themedSpec.config = { ...themedSpec.config,
      axis: { labelColor: ink, titleColor: ink, domainColor: ink, tickColor: ink, gridColor: grid, titleFontWeight: 500,
              labelFontSize: 11, titleFontSize: 12 } };
    return themedSpec;
  }

  async function draw(node) {
    node.dataset.started = "yes";
    const result = await vegaEmbed(node, themed(charts.specs[node.dataset.chart]),
      { renderer: "svg", actions: { export: true, source: false, compiled: false, editor: false }, tooltip: { theme: isDark() ? "dark" : "light" } });
    views.set(node, result);
    node.dataset.drawn = "yes";
    apply(result.view);
    result.view.addEventListener("click", (event, item) => { if (item && item.datum && item.datum.key) showCells(item.datum); });
  }

  // A chart that cannot be drawn says so where it would stand.
  const attempt = (node) => draw(node).catch((error) => { node.textContent = "This chart could not be drawn: " + error.message; });

  function apply(view) {
    view.signal("hidden", [...state.hidden]);
    for (const name of filters) view.signal("only_" + name, state[name]);
    view.runAsync();
  }

  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) { seen.unobserve(entry.target); attempt(entry.target); }
  }, { rootMargin: "400px" });
  document.querySelectorAll("[data-chart]").forEach((node) => seen.observe(node));

  // What was not scrolled to is drawn when the page is idle, so that printing and searching find everything.
  addEventListener("load", () => {
    const waiting = [...document.querySelectorAll("[data-chart]")];
    const next = () => {
      const node = waiting.find((one) => !one.dataset.started);
      if (node) { seen.unobserve(node); attempt(node).then(() => setTimeout(next, 15)); }
    };
    setTimeout(next, 300);
  });

  function redraw() {
    for (const [node, result] of views) { result.finalize(); attempt(node); }
  }

  // One set of controls for charts and the table of cells.
  function refresh() {
    for (const { view } of views.values()) apply(view);
    document.querySelectorAll("[data-series]").forEach((chip) =>
      chip.setAttribute("aria-pressed", String(!state.hidden.has(chip.dataset.series))));
    for (const name of filters) { const select = document.getElementById("only-" + name); if (select) select.value = state[name]; }
    filterCells();
  }
  document.querySelectorAll("[data-series]").forEach((chip) => chip.addEventListener("click", () => {
    const key = chip.dataset.series;
    state.hidden.has(key) ? state.hidden.delete(key) : state.hidden.add(key);
    refresh();
  }));
  for (const name of filters) {
    const select = document.getElementById("only-" + name);
    if (select) select.addEventListener("change", () => { state[name] = select.value; refresh(); });
  }
  document.getElementById("reset").addEventListener("click", () => {
    state.hidden.clear();
    for (const name of filters) state[name] = "";
    search.value = "";
    refresh();
  });

  const search = document.getElementById("cell-search"), count = document.getElementById("cell-count");
  const rows = [...document.querySelectorAll("#cell-table tbody tr")];
  function filterCells() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const visible = !state.hidden.has(row.dataset.arm) && words.every((word) => text.includes(word)) &&
        filters.every((name) => state[name] === "" || row.dataset[name === "tensor_parallelism" ? "tp" : name] === state[name]);
      row.hidden = !visible;
      shown += visible;
    }
    count.textContent = shown + " of " + rows.length + " cells";
  }
  search.addEventListener("input", filterCells);

  function showCells(datum) {
    for (const name of filters) if (datum[name] !== null && datum[name] !== undefined) state[name] = String(datum[name]);
    refresh();
    document.getElementById("cells").scrollIntoView();
  }

  document.querySelectorAll("table.sortable").forEach((table) => {
    const body = table.tBodies[0];
    table.querySelectorAll("th button").forEach((button) => button.addEventListener("click", () => {
      const head = button.parentElement, place = head.cellIndex;
      const up = head.getAttribute("aria-sort") !== "ascending";
      table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const value = (row) => row.cells[place].dataset.sort ?? row.cells[place].textContent.trim();
      const numeric = head.classList.contains("num");
      const sorted = [...body.rows].sort((a, b) => {
        const x = value(a), y = value(b);
        if (x === "" || y === "") return (x === "") - (y === "");
        const order = numeric ? Number(x) - Number(y) : x.localeCompare(y, undefined, { numeric: true });
        return up ? order : -order;
      });
      body.append(...sorted);
    }));
  });
  filterCells();
})();
