// What every page has: the theme switch without a reload, the keyboard map, dialogs, copy buttons.

const root = document.documentElement;

for (const form of document.querySelectorAll("form.theme")) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const theme = event.submitter.value;
    root.dataset.theme = theme;
    for (const button of form.querySelectorAll("button")) button.setAttribute("aria-pressed", button.value === theme);
    fetch(form.action, { method: "POST", body: new URLSearchParams({ theme }), redirect: "manual" });
  });
}

export function say(message) {
  document.getElementById("said").textContent = message;
}

async function copy(button) {
  try {
    const text = button.dataset.copyFrom ? await (await fetch(button.dataset.copyFrom)).text() : button.dataset.copy;
    await navigator.clipboard.writeText(text);
    const label = button.textContent;
    button.textContent = "Copied";
    say("Copied");
    setTimeout(() => (button.textContent = label), 1500);
  } catch {
    say("Copying is not allowed here");
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy], [data-copy-from], [data-dialog]");
  if (!button) return;
  event.preventDefault();
  if (button.dataset.dialog) document.getElementById(button.dataset.dialog).showModal();
  else copy(button);
});

// Keys. Entries are elements with `data-entry`; the first link in one, or the entry itself, is what Enter and o open.

const entries = () => [...document.querySelectorAll("[data-entry]")].filter((element) => element.checkVisibility());
const isTyping = (element) => element.matches("input:not([type=checkbox]), textarea, select, [contenteditable]");
let afterG = 0;

function move(step) {
  const all = entries();
  if (!all.length) return;
  const at = all.indexOf(document.activeElement?.closest("[data-entry]"));
  const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.max(0, Math.min(all.length - 1, at + step))];
  next.tabIndex = -1;
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

function openEntry() {
  const entry = document.activeElement?.closest("[data-entry]");
  const target = entry && (entry.matches("a, summary") ? entry : entry.querySelector("a[href], summary"));
  target?.click();
  return Boolean(target);
}

function goTo(key) {
  const link = document.querySelector(`nav a[data-key="${CSS.escape(key)}"]`);
  if (link) location.href = link.href;
}

function press(event) {
  if (afterG && event.timeStamp - afterG < 1500) {
    afterG = 0;
    return goTo(event.key), true;
  }
  switch (event.key) {
    case "/": {
      const field = document.querySelector("[data-search]");
      if (field) field.focus(), field.select();
      else location.href = "/";
      return true;
    }
    case "j": return move(1), true;
    case "k": return move(-1), true;
    case "o": return openEntry();
    case "Enter": return document.activeElement?.matches("[data-entry]:not(a, summary)") && openEntry();
    case "g": return (afterG = event.timeStamp), true;
    case "?": return document.getElementById("keys").showModal(), true;
  }
  return false;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (document.querySelector("dialog[open]")) return;
  if (isTyping(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (press(event)) event.preventDefault();
});
