// Results as one types. The server renders them; this puts the block into the page and keeps the address in step.

import { say } from "./app.js";

const form = document.getElementById("search");
const field = form.elements.q;
const found = document.getElementById("found");
const WAIT_MS = 30;
const LATE_MS = 250;
const REST_MS = 200;
let waiting = 0;
let asking = null;
let shown = Promise.resolve();
let resting = 0;
let unsettled = null;

function addressOf(query) {
  const url = new URL(location.href);
  if (query) url.searchParams.set("q", query);
  else url.searchParams.delete("q");
  url.searchParams.delete("n");
  url.hash = "";
  return url;
}

async function show(url) {
  clearTimeout(waiting);
  clearTimeout(resting);
  asking?.abort();
  const own = (asking = new AbortController());
  const part = new URL(url);
  part.searchParams.set("part", "found");
  // Not before it is late: to fade results takes the browser more work than to show new ones.
  const late = setTimeout(() => found.setAttribute("aria-busy", "true"), LATE_MS);
  try {
    const response = await fetch(part, { signal: own.signal });
    const text = await response.text();
    if (!response.ok) return location.assign(url);
    found.innerHTML = text;
    found.removeAttribute("aria-busy");
    syncFilters(url);
    foldFilters();
    resting = setTimeout(settle, REST_MS, url);
  } catch (error) {
    if (error.name !== "AbortError") location.assign(url);
  } finally {
    clearTimeout(late);
    if (asking === own) asking = null;
  }
}

// The address and the title follow when typing rests: each change of them takes the browser longer than the results.
function settle(url) {
  settleAddress();
  const query = url.searchParams.get("q");
  document.title = query ? `${query} · Backstory` : "Backstory";
  say(document.getElementById("count")?.textContent ?? "");
}

let typed = false;

function settleAddress() {
  if (!unsettled) return;
  // One entry of the history for a search, not one for each letter.
  history[typed ? "replaceState" : "pushState"](null, "", unsettled);
  typed = true;
  unsettled = null;
}

// The form carries the filters of the address, for Enter.
function syncFilters(url) {
  for (const input of form.querySelectorAll("input[type=hidden]")) input.remove();
  for (const [name, value] of url.searchParams) {
    if (name === "q" || name === "n") continue;
    const input = Object.assign(document.createElement("input"), { type: "hidden", name, value });
    form.append(input);
  }
}

// On a narrow screen the filters are folded. Until this has run the stylesheet hides them, so that nothing moves.
const narrow = matchMedia("(max-width: 60rem)");

function foldFilters() {
  const filters = found.querySelector(".filters");
  filters.open = !narrow.matches;
  filters.dataset.ready = "";
}

narrow.addEventListener("change", foldFilters);

function ask() {
  unsettled = addressOf(field.value.trim());
  shown = show(unsettled);
}

field.addEventListener("input", () => {
  clearTimeout(waiting);
  // The first key is answered at once; while an answer is on its way, the next question waits for more keys.
  if (asking) waiting = setTimeout(ask, WAIT_MS);
  else ask();
});

// Whoever leaves the field may leave the page, and comes back to this search.
field.addEventListener("blur", () => {
  settleAddress();
  typed = false;
});

function focusOn(element) {
  if (element.matches("[data-entry]")) element.tabIndex = -1;
  element.focus();
}

function focusFirst() {
  const first = found.querySelector("[data-entry]");
  if (first) focusOn(first);
  return Boolean(first);
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (addressOf(field.value.trim()).href !== (unsettled ?? location).href) ask();
  settleAddress();
  typed = false;
  await shown;
  focusFirst();
});

field.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown" && focusFirst()) event.preventDefault();
});

found.addEventListener("click", async (event) => {
  const link = event.target.closest("a[data-filter]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const before = found.querySelectorAll("[data-entry]").length;
  await go(new URL(link.href));
  // The keyboard goes on at the same filter, behind the last result, or at the box.
  const again = link.matches(".continue")
    ? found.querySelectorAll("[data-entry]")[before]
    : [...found.querySelectorAll(".facets [data-filter]")].find((each) => each.dataset.filter === link.dataset.filter);
  if (document.activeElement === document.body) focusOn(again ?? field);
});

found.addEventListener("submit", async (event) => {
  event.preventDefault();
  const url = new URL(event.target.action);
  for (const [name, value] of new FormData(event.target)) if (value) url.searchParams.set(name, value);
  await go(url);
  focusOn(found.querySelector(".dates button"));
});

function go(url) {
  history.pushState(null, "", url);
  return show(url);
}

addEventListener("popstate", () => {
  const url = new URL(location.href);
  field.value = url.searchParams.get("q") ?? "";
  typed = false;
  unsettled = null;
  show(url);
});

foldFilters();
