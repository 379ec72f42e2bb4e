// A session: later parts as one scrolls, subagents as one opens them, find as one types, links to any event.

import { say } from "./app.js";

const turns = document.getElementById("turns");
const rail = document.querySelector(".rail");
const page = new URL(location.href);

async function part(href, name) {
  const url = new URL(href, location.href);
  url.hash = "";
  url.searchParams.set("part", name);
  const response = await fetch(url);
  if (!response.ok) throw new Error(response.statusText);
  const holder = document.createElement("template");
  holder.innerHTML = await response.text();
  return holder.content;
}

// Later parts

const near = new IntersectionObserver((seen) => {
  for (const entry of seen) if (entry.isIntersecting) loadLater(entry.target);
}, { rootMargin: "800px" });

async function loadLater(link) {
  near.unobserve(link);
  link.setAttribute("aria-busy", "true");
  try {
    const content = await part(link.href, "turns");
    content.querySelector(".earlier")?.remove();
    link.replaceWith(content);
    follow();
  } catch {
    link.removeAttribute("aria-busy"); // it is still a link
  }
}

// The rest of the rail, in both directions

const nearRail = new IntersectionObserver((seen) => {
  for (const entry of seen) if (entry.isIntersecting) loadRail(entry.target);
}, { root: rail, rootMargin: "400px" });

async function loadRail(entry) {
  nearRail.unobserve(entry);
  const isEarlier = entry.matches(".earlier");
  try {
    const content = await part(entry.firstElementChild.href, "rail");
    content.querySelector(isEarlier ? ".later" : ".earlier")?.remove();
    const height = rail.scrollHeight;
    const top = rail.scrollTop;
    entry.replaceWith(content);
    if (isEarlier) rail.scrollTop = top + rail.scrollHeight - height;
    followRail();
  } catch {
    // It is still a link.
  }
}

function followRail() {
  for (const entry of rail.querySelectorAll(".earlier, .later")) nearRail.observe(entry);
}

// The turn that is read

const current = new IntersectionObserver((seen) => {
  for (const entry of seen) if (entry.isIntersecting) markCurrent(entry.target.dataset.turn);
}, { rootMargin: "-15% 0px -75% 0px" });

function markCurrent(ordinal) {
  const link = rail.querySelector(`a[data-to="${ordinal}"]`);
  if (!link || link.hasAttribute("aria-current")) return;
  rail.querySelector("[aria-current]")?.removeAttribute("aria-current");
  link.setAttribute("aria-current", "true");
  // Only the rail scrolls, not the page.
  rail.scrollTop += link.getBoundingClientRect().top - rail.getBoundingClientRect().top - rail.clientHeight / 2;
}

// Observes what has come to the page.
export function follow() {
  for (const link of turns.querySelectorAll(":scope > .later:not([aria-busy])")) near.observe(link);
  for (const turn of turns.querySelectorAll(":scope > .turn")) current.observe(turn);
}
follow();
markCurrent(turns.querySelector(".turn")?.dataset.turn);
followRail();

// Links to turns and events: those on the page are scrolled to, others are opened.

function reveal(id) {
  const element = id && document.getElementById(id);
  if (!element) return false;
  for (let outer = element.closest("details"); outer; outer = outer.parentElement.closest("details")) outer.open = true;
  element.querySelector(":scope > details.fold")?.setAttribute("open", "");
  element.scrollIntoView({ block: "start" });
  return true;
}

function openHash() {
  const id = decodeURIComponent(location.hash.slice(1));
  if (!id || reveal(id) || !id.startsWith("event:")) return;
  // The server knows its part; once, or a part without it would be asked for again and again.
  if (!page.searchParams.has("at")) location.replace(`/s/${id}`);
}
addEventListener("hashchange", openHash);
openHash();

document.addEventListener("click", (event) => {
  const link = event.target.closest(".rail a, #matches a, .turn-head a");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const url = new URL(link.href);
  const id = decodeURIComponent(url.hash.slice(1));
  const target = document.getElementById(id);
  // Of a text that is cut, the server shows the part that was found.
  if (!target || (link.closest("#matches") && target.closest("[data-cut]"))) return;
  event.preventDefault();
  history.pushState(null, "", url);
  // `:target` is set by a navigation only.
  location.replace(url.hash);
  reveal(id);
});

// An image whose record is gone, or that is damaged, says so in its place.

function noteMissing(image) {
  const note = Object.assign(document.createElement("span"), { className: "picture" });
  note.textContent = `${image.alt}: the transcript does not have it any more, or it cannot be shown`;
  image.closest("a").replaceWith(note);
}

turns.addEventListener("error", (event) => {
  if (event.target.matches(".pictures img")) noteMissing(event.target);
}, true);
// Some may have failed before this script was loaded.
for (const image of turns.querySelectorAll(".pictures img")) {
  if (image.complete && !image.naturalWidth) noteMissing(image);
}

// Subagents. Their turns have no ids on this page: it has turns of the same numbers.

async function childPart(href) {
  const content = await part(href, "turns");
  content.querySelector(".earlier")?.remove();
  for (const turn of content.querySelectorAll(".turn")) {
    turn.querySelector(".turn-head a").href = new URL(`#${turn.id}`, new URL(href, location.href)).href;
    turn.removeAttribute("id");
    turn.removeAttribute("aria-label");
    delete turn.dataset.turn;
  }
  const later = content.querySelector(".later");
  if (later) later.textContent = "Show more of this conversation";
  return content;
}

turns.addEventListener("click", async (event) => {
  const link = event.target.closest(".child .later");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  link.setAttribute("aria-busy", "true");
  try {
    link.replaceWith(await childPart(link.href));
  } catch {
    link.removeAttribute("aria-busy"); // it is still a link
  }
});

turns.addEventListener("toggle", async (event) => {
  const child = event.target;
  if (!child.open || !child.dataset.child) return;
  const url = child.dataset.child;
  delete child.dataset.child;
  const inside = child.querySelector(".inside");
  inside.setAttribute("aria-busy", "true");
  try {
    inside.querySelector(".beginning").replaceWith(await childPart(url));
  } catch {
    say("The conversation could not be loaded");
  }
  inside.removeAttribute("aria-busy");
}, true);

// Find in this session: the archive is asked, so that parts that are not on the page are found too.

const form = document.getElementById("find");
const field = form.elements.find;
const matches = document.getElementById("matches");
let waiting = 0;
let asked = 0;
let shown = Promise.resolve();

async function find() {
  const number = ++asked;
  const url = new URL(form.action);
  const query = field.value.trim();
  if (query) url.searchParams.set("find", query);
  const content = await part(url, "matches").catch(() => "The session could not be searched. Type or press Enter again.");
  if (number !== asked) return; // an answer to what was typed before
  matches.replaceChildren(content);
  say(typeof content === "string" ? content : `${matches.querySelectorAll("li").length} matches`);
  if (query) page.searchParams.set("find", query);
  else page.searchParams.delete("find");
  page.hash = location.hash;
  history.replaceState(null, "", page);
}

function startFind() {
  clearTimeout(waiting);
  waiting = 0;
  shown = find();
}

field.addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(startFind, 80);
});
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (waiting || !matches.querySelector("a")) startFind();
  await shown;
  matches.querySelector("a")?.focus();
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "f" || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea")) return;
  event.preventDefault();
  field.focus();
  field.select();
});
