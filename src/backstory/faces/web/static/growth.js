// A session that is being written grows at its end while it is read. What is on the screen stays where it is.

import { say } from "./app.js";
import { follow } from "./session.js";

const link = document.getElementById("growth");
const live = document.getElementById("live-badge");
const turns = document.getElementById("turns");
const rail = document.querySelector(".rail ol");
const { session } = link.dataset;
const state = `/live.json?part=state&session=${encodeURIComponent(session)}`;
const SOON = 1500;
const LATER = 15_000;
let known = Number(link.dataset.events);
let unseen = [];
let unread = 0; // events of parts that are still to be loaded

const later = () => turns.querySelector(":scope > .later");

async function read() {
  const answer = await fetch(state);
  return answer.ok ? (await answer.json()).followed : null;
}

// The part of the last turn on the page, from its address: `turn-3` or, far within a turn, `turn-3-41`.
async function readEnd() {
  const last = [...turns.querySelectorAll(":scope > .turn")].at(-1);
  return fetchPart("turns", last ? last.id.replace("turn-", "").replace("-", ".") : "1");
}

async function fetchPart(name, place) {
  const answer = await fetch(`/s/${encodeURIComponent(session)}?part=${name}&from=${place}`);
  if (!answer.ok) throw new Error(answer.statusText);
  const holder = document.createElement("template");
  holder.innerHTML = await answer.text();
  return holder.content;
}

// The rail may have turns of parts that are not on the page yet: from its last one on it is read again.
async function growRail() {
  const last = rail.lastElementChild;
  // Where a later part of the rail is still to be loaded, it has what is new.
  if (last?.matches(".later")) return;
  const content = await fetchPart("rail", last?.querySelector("a").dataset.to ?? 1);
  content.querySelector(".earlier")?.remove();
  const current = last?.querySelector("a").hasAttribute("aria-current");
  last?.remove();
  rail.append(content);
  const again = current && rail.querySelector(`a[data-to="${last.querySelector("a").dataset.to}"]`);
  if (again) again.setAttribute("aria-current", "true");
}

// A call that was shown without its output gets it; what was opened stays open.
function renew(old, fresh) {
  if (!old.matches(".tool") || old.querySelectorAll("pre").length >= fresh.querySelectorAll("pre").length) return;
  const wasOpen = old.querySelector("details")?.open;
  old.replaceWith(fresh);
  if (wasOpen) fresh.querySelector("details").open = true;
}

function append(content) {
  const added = [];
  for (const turn of content.querySelectorAll(".turn")) {
    const parts = [...turns.querySelectorAll(`:scope > .turn[data-turn="${turn.dataset.turn}"]`)];
    const shown = parts.at(-1);
    if (!shown) {
      turns.append(turn);
      added.push(turn);
      continue;
    }
    for (const event of turn.querySelectorAll(":scope > .event")) {
      const old = document.getElementById(event.id);
      if (old) renew(old, event);
      else shown.append(event), added.push(event);
    }
  }
  const rest = content.querySelector(".later");
  if (rest) turns.append(rest);
  return added;
}

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) seen.unobserve(entry.target), forget(entry.target);
});

function forget(element) {
  unseen = unseen.filter((each) => each !== element);
  show();
}

function show() {
  if (!later()) unread = 0;
  const count = unseen.length || unread;
  link.hidden = !count;
  link.textContent = `${count} new ↓`;
}

async function grow(now) {
  // Where a later part is still to be loaded, it has what is new.
  if (later()) {
    unread += now.events - known;
    link.href = `/s/${session}?at=${now.turns}#turn-${now.turns}`;
    return show();
  }
  const added = append(await readEnd());
  follow();
  unseen.push(...added);
  for (const element of added) seen.observe(element);
  show();
  if (added.length) say(`${added.length} new in this session`);
}

link.addEventListener("click", (event) => {
  if (!unseen.length) return;
  event.preventDefault();
  unseen[0].scrollIntoView({ block: "center" });
});

async function watch() {
  let wait = LATER;
  if (!document.hidden) {
    try {
      const now = await read();
      live.hidden = !now?.is_active;
      if (now?.is_active) wait = SOON;
      if (now && now.events > known) {
        await Promise.all([grow(now), growRail()]);
        known = now.events;
      } else {
        show();
      }
    } catch {
      wait = LATER; // the server may be back by then
    }
  }
  setTimeout(watch, wait);
}

watch();
