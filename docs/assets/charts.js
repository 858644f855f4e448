/* Figures that a reader can explore: the figure stays, a button shows the same data with values under the
   pointer (or the arrow keys), lines that can be hidden, and a logarithmic axis. Without JavaScript: the figure. */
const SVG = "http://www.w3.org/2000/svg";
const BOX = { height: 340, left: 70, right: 22, top: 12, bottom: 44 };

function enhance(holder) {
  const data = JSON.parse(holder.querySelector("script").textContent);
  let figure = holder.previousElementSibling;
  while (figure && !figure.matches("figure.ls-plot")) figure = figure.previousElementSibling;
  if (!figure) return;
  const state = { panel: data.panels[0], log: false, hidden: new Set(), at: null };
  const swap = make("button", { type: "button", className: "ls-explore", textContent: "Explore the values" });
  swap.setAttribute("aria-expanded", "false");
  figure.after(swap);
  swap.addEventListener("click", () => {
    if (!holder.querySelector("svg")) build(holder, data, state);
    holder.hidden = !holder.hidden;
    figure.hidden = !holder.hidden;
    swap.setAttribute("aria-expanded", String(!holder.hidden));
    swap.textContent = holder.hidden ? "Explore the values" : "Show the figure";
  });
}

function build(holder, data, state) {
  const bar = make("div", { className: "ls-chart-bar" });
  const lines = make("div", { className: "ls-chart-bar" });
  const svg = draw("svg", { height: BOX.height, tabindex: 0, role: "group" });
  svg.setAttribute("aria-label", `${data.y} over ${data.x}; left and right arrows read the values`);
  const values = make("output", { className: "ls-chart-values" });
  values.setAttribute("aria-live", "polite");
  const show = () => render(svg, values, data, state);
  const pick = (label, input) => { const box = make("label", {}); box.append(input, ` ${label}`); return box; };
  if (data.panels.length > 1) {
    const select = make("select", {});
    data.panels.forEach((panel, k) => select.append(new Option(panel.name, k)));
    select.addEventListener("change", () => { state.panel = data.panels[select.value]; state.at = null; list(); show(); });
    bar.append(make("label", { textContent: "Show " }));
    bar.lastChild.append(select);
  }
  const log = make("input", { type: "checkbox", checked: state.log });
  log.addEventListener("change", () => { state.log = log.checked; show(); });
  bar.append(pick("logarithmic axis", log));
  const list = () => lines.replaceChildren(...state.panel.series.map((line, k) => {
    const box = make("input", { type: "checkbox", checked: !state.hidden.has(line.name) });
    box.addEventListener("change", () => { state.hidden[box.checked ? "delete" : "add"](line.name); show(); });
    const label = pick(line.name, box);
    const mark = draw("svg", { viewBox: "0 0 24 8", class: "ls-swatch", "aria-hidden": "true" });
    mark.append(draw("line", { x1: 0, x2: 24, y1: 4, y2: 4, class: `line c${k % 8} d${Math.floor(k / 4) % 3}` }));
    box.after(mark);
    return label;
  }));
  list();
  const move = (at) => { state.at = at; show(); };
  svg.addEventListener("pointermove", (event) => move(nearest(svg, event, state)));
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const all = places(state), now = all.indexOf(state.at);
    move(all[Math.max(0, Math.min(all.length - 1, now < 0 ? 0 : now + step))]);
  });
  holder.append(bar, svg, lines, values);
  new ResizeObserver(show).observe(svg);
}

const shown = (state) => state.panel.series.map((line, k) => ({ ...line, k })).filter((line) => !state.hidden.has(line.name));
const places = (state) => [...new Set(shown(state).flatMap((line) => line.x))].sort((a, b) => a - b);

function nearest(svg, event, state) {
  const px = event.clientX - svg.getBoundingClientRect().left;
  const all = places(state);
  const to = scale(all, BOX.left, svg.clientWidth - BOX.right, false);
  return all.reduce((best, x) => (Math.abs(to(x) - px) < Math.abs(to(best) - px) ? x : best), all[0]);
}

/* From values to pixels. What a logarithmic axis cannot hold, such as 0 or an infinity, lies at its ends. */
function scale(values, from, to, log) {
  const known = values.map(Number).filter((v) => Number.isFinite(v) && (!log || v > 0));
  const f = log ? Math.log10 : Number;
  let [low, high] = [Math.min(...known.map(f)), Math.max(...known.map(f))];
  if (!(high > low)) [low, high] = [low - 1, low + 1];
  const place = (value) => {
    const v = f(Number(value));
    return from + (Math.max(0, Math.min(1, Number.isNaN(v) ? 0 : (v - low) / (high - low)))) * (to - from);
  };
  place.ticks = ticks(low, high, log ? 1 : 0).map((v) => (log ? 10 ** v : v));
  return place;
}

/* Round numbers: 1, 2 or 5 of a power of ten apart, and at least `least`. */
function ticks(low, high, least) {
  const raw = Math.max((high - low) / 5, least), power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * power).find((size) => size >= raw);
  const first = Math.ceil(low / step), last = Math.floor(high / step);
  return last > first ? Array.from({ length: last - first + 1 }, (_, k) => (first + k) * step) : [low, high];
}

function render(svg, values, data, state) {
  const series = shown(state), end = BOX.height - BOX.bottom, right = svg.clientWidth - BOX.right;
  const ys = series.flatMap((line) => [...line.y, ...(line.low ?? []), ...(line.high ?? [])]).filter((v) => v !== null);
  const x = scale(places(state), BOX.left, right, false);
  const y = scale(ys.length ? ys : [0, 1], end, BOX.top, state.log);
  svg.replaceChildren();
  for (const tick of y.ticks) {
    svg.append(draw("line", { x1: BOX.left, x2: right, y1: y(tick), y2: y(tick), class: "grid" }));
    svg.append(text(plain(tick, 3), BOX.left - 6, y(tick) + 4, "end"));
  }
  for (const tick of x.ticks) svg.append(text(plain(tick, 3), x(tick), end + 16, "middle"));
  svg.append(text(data.x, (BOX.left + right) / 2, BOX.height - 6, "middle"));
  svg.append(text(data.y, 0, 0, "middle"));
  svg.lastChild.setAttribute("transform", `translate(13 ${(BOX.top + end) / 2}) rotate(-90)`);
  for (const line of series) {
    const path = (ends) => ends.map((v, i) => (v === null ? "" : `${x(line.x[i])},${y(v)}`)).filter(Boolean);
    if (line.low) {
      const band = [...path(line.high), ...path(line.low).reverse()].join(" ");
      svg.append(draw("polygon", { points: band, class: `band c${line.k % 8}` }));
    }
    svg.append(draw("polyline", { points: path(line.y).join(" "), class: `line c${line.k % 8} d${Math.floor(line.k / 4) % 3}` }));
  }
  if (state.at === null) { values.textContent = "Move over the lines, or use the arrow keys, to read values."; return; }
  svg.append(draw("line", { x1: x(state.at), x2: x(state.at), y1: BOX.top, y2: end, class: "cursor" }));
  const read = series.map((line) => [line, line.x.findLastIndex((v) => v <= state.at)]).filter(([, i]) => i >= 0);
  const band = (line, i) => (line.low ? ` [${plain(line.low[i])}, ${plain(line.high[i])}]` : "");
  const items = read.map(([line, i]) => make("li", { textContent: `${line.name}: ${plain(line.y[i])}${band(line, i)}` }));
  values.replaceChildren(make("strong", { textContent: `${data.x}: ${plain(state.at)}` }), make("ul", {}));
  values.lastChild.append(...items);
}

function plain(value, digits = 4) {
  if (value === null) return "no value";
  const number = Number(value);
  return Number.isFinite(number) ? String(Number(number.toPrecision(digits))) : number > 0 ? "∞" : "−∞";
}

const make = (tag, properties) => Object.assign(document.createElement(tag), properties);

function draw(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function text(content, x, y, anchor) {
  return Object.assign(draw("text", { x, y, "text-anchor": anchor }), { textContent: content });
}

for (const holder of document.querySelectorAll(".ls-chart")) enhance(holder);
