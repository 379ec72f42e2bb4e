// The sessions that are being written, and the tail of one: read again every second while the page is seen.

import { say } from "./app.js";

const cards = document.getElementById("live-sessions");
const follow = document.getElementById("follow");
const tail = document.getElementById("tail");
const events = tail?.querySelector("ol");
const news = document.getElementById("news");
const state = document.getElementById("live-state");
const session = follow ? `session=${encodeURIComponent(follow.dataset.session)}&` : "";
const EVERY = 1000;
let last = "";
let waiting = 0;

async function part(name) {
  const answer = await fetch(`/live?${session}part=${name}`);
  if (!answer.ok) throw new Error(answer.statusText);
  return answer.text();
}

function atEnd() {
  return tail.scrollHeight - tail.scrollTop - tail.clientHeight < 40;
}

function toEnd() {
  tail.scrollTop = tail.scrollHeight;
  waiting = 0;
  news.hidden = true;
}

// New events go to the end; what is read stays where it is unless the end was in sight.
function grow(html) {
  const fresh = document.createElement("ol");
  fresh.innerHTML = html;
  const known = new Set([...events.children].map((entry) => entry.dataset.event));
  const added = [...fresh.children].filter((entry) => !known.has(entry.dataset.event));
  if (!added.length) return;
  const follows = atEnd();
  events.append(...added);
  if (follows) return toEnd();
  waiting += added.length;
  news.textContent = waiting === 1 ? "1 new event ↓" : `${waiting} new events ↓`;
  news.hidden = false;
}

function show(html) {
  if (html === last) return;
  const focused = document.activeElement?.closest("[data-session]")?.dataset.session;
  cards.innerHTML = last = html;
  const again = focused && cards.querySelector(`[data-session="${CSS.escape(focused)}"]`);
  if (again) (again.tabIndex = -1), again.focus({ preventScroll: true });
  const status = follow && cards.querySelector(`[data-session="${CSS.escape(follow.dataset.session)}"] .status`);
  if (status) document.getElementById("follow-status").replaceChildren(status.cloneNode(true));
}

async function refresh() {
  if (!document.hidden) {
    try {
      show(await part("sessions"));
      if (tail) grow(await part("tail"));
      state.classList.remove("problem");
    } catch {
      if (!state.classList.contains("problem")) say("The server does not answer");
      state.classList.add("problem");
    }
  }
  setTimeout(refresh, EVERY);
}

if (tail) {
  toEnd();
  news.addEventListener("click", toEnd);
  tail.addEventListener("scroll", () => atEnd() && waiting && toEnd());
}
setTimeout(refresh, EVERY);
