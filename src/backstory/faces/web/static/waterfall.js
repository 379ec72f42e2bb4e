// The spans of a trace as a grid of rows of which only those in sight exist: ten thousand scroll as ten do.

const spans = document.getElementById("spans");
const panel = document.getElementById("span-panel");
const controls = document.getElementById("trace-controls");
const trace = spans.dataset.trace;
const isTree = spans.dataset.view === "tree";
const length = Number(spans.dataset.length);
const ROW = 28;
const AROUND = 10;
const SVG = "http://www.w3.org/2000/svg";

let rows = [];
let shown = []; // numbers of the rows that no collapsed row hides
const collapsed = new Set();
const labels = new Map();
const asked = new Set();
let from = 0;
let to = length;
let selected = -1;
let critical = false;

// Texts

function took(ms) {
  if (ms < 1000) return `${ms} ms`;
  if (ms < 60_000) return `${Number((ms / 1000).toFixed(1))} s`;
  const seconds = Math.round(ms / 1000);
  const units = [[86_400, 1e9, "d"], [3600, 24, "h"], [60, 60, "min"], [1, 60, "s"]];
  const parts = units.map(([size, most, unit]) => [Math.floor(seconds / size) % most, unit]);
  const largest = parts.findIndex(([count]) => count);
  return parts.slice(largest, largest + 2).filter(([count]) => count).map((part) => part.join(" ")).join(" ");
}

function short(count) {
  for (const [limit, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (count >= limit) return Number((count / limit).toPrecision(3)) + unit;
  }
  return String(count);
}

const money = (cost) => (cost > 0 && cost < 0.005 ? "<$0.01" : `$${cost.toFixed(2)}`);

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

// The grid

const grid = element("div", "span-grid");
const layer = element("div", "span-layer");
grid.setAttribute("role", "treegrid");
grid.setAttribute("aria-label", "Spans");
grid.tabIndex = 0;
const ticks = element("div", "span-ticks");
ticks.setAttribute("aria-hidden", "true");
grid.append(ticks, layer);

function cell(className, content) {
  const made = element("span", className);
  made.setAttribute("role", "gridcell");
  made.append(content);
  return made;
}

function bar(row) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 1000 10");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  svg.classList.add("span-bar");
  const scale = 1000 / (to - from);
  const left = Math.max((row.start - from) * scale, -10);
  const right = Math.min(((row.end ?? length) - from) * scale, 1010);
  if (right >= 0 && left <= 1000) {
    const rect = document.createElementNS(SVG, "rect");
    rect.setAttribute("x", left);
    rect.setAttribute("y", 1);
    rect.setAttribute("height", 8);
    rect.setAttribute("width", Math.max(right - left, 2));
    svg.append(rect);
  }
  return svg;
}

function name(row, number) {
  const made = element("span", "span-name");
  made.setAttribute("role", "gridcell");
  made.style.paddingInlineStart = `${Math.min(row.depth, 12) * 14}px`;
  const twisty = element("span", "twisty", row.inside ? (collapsed.has(number) ? "▸" : "▾") : "");
  twisty.setAttribute("aria-hidden", "true");
  made.append(twisty, element("b", "", row.name));
  if (collapsed.has(number)) made.append(element("span", "tag", String(row.inside)));
  addLabel(made, row);
  return made;
}

function addLabel(cell, row) {
  if (labels.has(row.id)) cell.append(" ", element("span", "label", labels.get(row.id)));
}

function draw(place) {
  const number = shown[place];
  const row = rows[number];
  const made = element("div", `span-row ${row.type.toLowerCase()} ${row.status}`);
  if (row.critical) made.classList.add("critical");
  made.id = `row-${number}`;
  made.setAttribute("role", "row");
  made.setAttribute("aria-rowindex", place + 1);
  made.setAttribute("aria-level", row.depth + 1);
  made.setAttribute("aria-selected", number === selected);
  if (row.inside) made.setAttribute("aria-expanded", !collapsed.has(number));
  made.dataset.number = number;
  made.style.top = `${place * ROW}px`;
  made.append(name(row, number));
  if (isTree) {
    made.append(
      cell("number", row.model ?? ""),
      cell("number", row.tokens === null ? "" : short(row.tokens)),
      cell("number", row.cost === null ? "" : money(row.cost)),
    );
  } else {
    made.append(cell("", bar(row)));
  }
  const time = row.type === "EVENT" ? "" : row.end === null ? "pending" : took(row.end - row.start);
  const last = cell("number", time);
  if (row.status === "error") last.prepend(element("span", "problem", "error "));
  made.append(last);
  return made;
}

let frame = 0;
let pressed = false;

function render() {
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    // A row that is replaced while the pointer is down on it gets no click.
    if (pressed) return;
    const first = Math.max(0, Math.floor(grid.scrollTop / ROW) - AROUND);
    const end = Math.min(shown.length, Math.ceil((grid.scrollTop + grid.clientHeight) / ROW) + AROUND);
    const drawn = [];
    for (let place = first; place < end; place++) drawn.push(draw(place));
    layer.replaceChildren(...drawn);
    if (selected >= 0 && document.getElementById(`row-${selected}`)) {
      grid.setAttribute("aria-activedescendant", `row-${selected}`);
    } else {
      grid.removeAttribute("aria-activedescendant");
    }
    clearTimeout(labelling);
    labelling = setTimeout(() => readLabels(shown.slice(first, end)), 120);
  });
}

function arrange() {
  shown = [];
  for (let number = 0; number < rows.length; number++) {
    shown.push(number);
    if (collapsed.has(number)) number += rows[number].inside;
  }
  layer.style.height = ticks.style.height = `${shown.length * ROW}px`;
  grid.setAttribute("aria-rowcount", shown.length);
  render();
}

// The most telling arguments of tool calls in sight

let labelling;

async function readLabels(numbers) {
  const missing = numbers.map((number) => rows[number]).filter((row) => row.type === "SPAN" && !asked.has(row.id));
  if (!missing.length) return;
  for (const row of missing) asked.add(row.id);
  const answer = await fetch(`${trace}.json?labels=${missing.map((row) => row.id).join(",")}`);
  if (!answer.ok) return;
  const answered = (await answer.json()).labels;
  for (const [id, label] of Object.entries(answered)) labels.set(id, label);
  for (const drawn of layer.children) {
    const row = rows[drawn.dataset.number];
    if (row.id in answered) addLabel(drawn.firstChild, row);
  }
}

// Zoom

const axis = spans.querySelector(".axis");
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5,
  36e5, 72e5, 108e5, 216e5, 432e5, 864e5, 1728e5, 432e6, 864e6];

function drawAxis() {
  if (!axis) return;
  const size = to - from;
  const svg = axis.querySelector(".axis-ticks");
  const most = Math.max(2, svg.clientWidth / 75);
  const step = STEPS.find((each) => size <= each * most) ?? size;
  const names = axis.querySelector(".axis-names");
  svg.replaceChildren();
  names.replaceChildren();
  for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) {
    const at = ((tick - from) / size) * 1000;
    const line = document.createElementNS(SVG, "path");
    line.setAttribute("d", `M${at} 0V10`);
    line.setAttribute("class", "tick");
    line.setAttribute("vector-effect", "non-scaling-stroke");
    svg.append(line);
    if (at > 900) continue;
    const text = document.createElementNS(SVG, "text");
    for (const [key, value] of Object.entries({ x: `${at / 10}%`, y: "1.15em", dx: 4 })) text.setAttribute(key, value);
    text.textContent = tick ? took(tick) : "0";
    names.append(text);
  }
  ticks.replaceChildren(svg.cloneNode(true));
}

function zoom(start, end) {
  const size = Math.min(Math.max(end - start, 5), length);
  from = Math.max(0, Math.min(start, length - size));
  to = from + size;
  drawAxis();
  render();
}

// The time that is looked at: of the selected span if its row is in sight, else of the rows in sight.
function lookedAt() {
  const first = Math.floor(grid.scrollTop / ROW);
  const inSight = shown.slice(first, Math.floor((grid.scrollTop + grid.clientHeight) / ROW));
  const looked = inSight.includes(selected) ? [selected] : inSight.filter((number) => !rows[number].inside);
  if (!looked.length) return [from, to];
  const starts = looked.map((number) => rows[number].start);
  const ends = looked.map((number) => rows[number].end ?? length);
  return [Math.min(...starts), Math.max(...ends)];
}

// By buttons and keys: what is looked at comes to the middle.
function zoomStep(factor) {
  const size = (to - from) * factor;
  const [start, end] = lookedAt();
  const first = (start + end - size) / 2;
  zoom(first, first + size);
}

function zoomBy(factor, at) {
  const middle = from + (to - from) * at;
  const size = (to - from) * factor;
  zoom(middle - size * at, middle + size * (1 - at));
}

function place(event) {
  const box = axis.querySelector(".axis-ticks").getBoundingClientRect();
  return Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
}

if (axis) {
  let start = null;
  axis.addEventListener("pointerdown", (event) => {
    start = place(event);
    axis.setPointerCapture(event.pointerId);
  });
  axis.addEventListener("pointerup", (event) => {
    const end = place(event);
    if (start !== null && Math.abs(end - start) > 0.01) {
      const size = to - from;
      zoom(from + size * Math.min(start, end), from + size * Math.max(start, end));
    }
    start = null;
  });
  axis.addEventListener("dblclick", () => zoom(0, length));
  grid.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoomBy(event.deltaY > 0 ? 1.25 : 0.8, place(event));
  }, { passive: false });
}

// Selecting and collapsing

async function select(number, { quiet = false } = {}) {
  selected = number;
  for (let above = number - 1, depth = rows[number].depth; above >= 0 && depth > 0; above--) {
    if (rows[above].depth < depth) {
      depth = rows[above].depth;
      collapsed.delete(above);
    }
  }
  arrange();
  const top = shown.indexOf(number) * ROW;
  if (top < grid.scrollTop) grid.scrollTop = top;
  else if (top + ROW > grid.scrollTop + grid.clientHeight) grid.scrollTop = top + ROW - grid.clientHeight;
  const { id } = rows[number];
  history.replaceState(null, "", `#${id}`);
  if (quiet) return;
  const answer = await fetch(`${trace}/${id}?part=span`);
  if (selected !== number) return;
  panel.innerHTML = answer.ok ? await answer.text() : "<p class=\"note\">This span cannot be read now.</p>";
  panel.hidden = false;
  panel.scrollTop = 0;
  render();
  // On a narrow screen the panel is below the spans: with these at the top, its beginning is on the screen.
  if (panel.offsetTop > spans.offsetTop) spans.scrollIntoView({ block: "start" });
}

let reading;

function move(step) {
  const at = shown.indexOf(selected);
  const next = shown[at < 0 ? 0 : Math.min(Math.max(at + step, 0), shown.length - 1)];
  // Keys that are held down pass many spans; the one they stop at is read.
  clearTimeout(reading);
  select(next, { quiet: true });
  reading = setTimeout(() => select(next), 120);
}

function fold(number, closed) {
  if (!rows[number]?.inside) return;
  if (closed) collapsed.add(number);
  else collapsed.delete(number);
  arrange();
}

function foldAll(closed) {
  collapsed.clear();
  if (closed) rows.forEach((row, number) => row.inside && row.depth > 0 && collapsed.add(number));
  if (closed && !collapsed.size) rows.forEach((row, number) => row.inside && collapsed.add(number));
  arrange();
}

function nextError() {
  const errors = rows.flatMap((row, number) => (row.status === "error" ? [number] : []));
  const next = errors.find((number) => number > selected) ?? errors[0];
  if (next !== undefined) select(next);
}

function toggleCritical(button) {
  critical = !critical;
  grid.classList.toggle("only-critical", critical);
  button.setAttribute("aria-pressed", critical);
}

layer.addEventListener("pointerdown", () => (pressed = true));
for (const end of ["pointerup", "pointercancel"]) {
  addEventListener(end, () => {
    if (pressed) setTimeout(render); // After the click.
    pressed = false;
  });
}
layer.addEventListener("click", (event) => {
  const row = event.target.closest("[data-number]");
  if (!row) return;
  const number = Number(row.dataset.number);
  if (event.target.closest(".twisty") && rows[number].inside) fold(number, !collapsed.has(number));
  else select(number);
});

controls.addEventListener("click", (event) => {
  const button = event.target.closest("[data-do]");
  if (!button) return;
  const actions = {
    in: () => zoomStep(0.5), out: () => zoomStep(2), all: () => zoom(0, length),
    fold: () => foldAll(true), unfold: () => foldAll(false),
    critical: () => toggleCritical(button), error: nextError,
  };
  actions[button.dataset.do]();
});

function press(key) {
  switch (key) {
    case "ArrowDown": case "j": return move(1), true;
    case "ArrowUp": case "k": return move(-1), true;
    case "PageDown": return move(Math.floor(grid.clientHeight / ROW)), true;
    case "PageUp": return move(-Math.floor(grid.clientHeight / ROW)), true;
    case "Home": return move(-rows.length), true;
    case "End": return move(rows.length), true;
    case "ArrowLeft": return fold(selected, true), true;
    case "ArrowRight": return fold(selected, false), true;
    case "+": case "=": return zoomStep(0.5), true;
    case "-": return zoomStep(2), true;
    case "0": return zoom(0, length), true;
    case "e": return nextError(), true;
  }
  return false;
}

grid.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !rows.length) return;
  if (press(event.key)) event.preventDefault(), event.stopPropagation();
});
grid.addEventListener("scroll", render, { passive: true });
new ResizeObserver(() => (drawAxis(), render())).observe(grid);

async function start() {
  const answer = await fetch(`${trace}.json`);
  if (!answer.ok) return;
  const data = await answer.json();
  rows = data.rows.map((values) => Object.fromEntries(data.columns.map((column, at) => [column, values[at]])));
  for (const [id, label] of Object.entries(data.labels)) labels.set(id, label), asked.add(id);
  spans.querySelector(".span-rows").replaceWith(grid);
  spans.querySelector(".pages")?.remove();
  arrange();
  const wanted = rows.findIndex((row) => row.id === location.hash.slice(1));
  if (wanted >= 0) select(wanted);
}

start();
