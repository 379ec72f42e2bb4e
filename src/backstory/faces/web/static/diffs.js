// Diffs side by side. The server's diff is unified; the other form is made of it when it is opened, on wide screens.

const KEY = "backstory.diffs";
const wide = matchMedia("(min-width: 60rem)");
let chosen = localStorage.getItem(KEY) === "sides";

function cell(line) {
  const found = document.createElement("td");
  if (!line) return found;
  found.className = line.className;
  found.textContent = line.lastChild === line.firstElementChild ? "" : line.lastChild.textContent;
  return found;
}

// Removed lines stand beside the added ones that follow them.
function makeSides(diff) {
  const table = document.createElement("table");
  table.className = "diff sides";
  let removed = [];
  let added = [];
  const pair = (left, right) => table.insertRow().append(cell(left), cell(right));
  const flush = () => {
    for (let at = 0; at < Math.max(removed.length, added.length); at++) pair(removed[at], added[at]);
    removed = [];
    added = [];
  };
  for (const line of diff.children) {
    if (line.className === "removed") {
      if (added.length) flush();
      removed.push(line);
    } else if (line.className === "added") {
      added.push(line);
    } else {
      flush();
      pair(line, line);
    }
  }
  flush();
  return table;
}

function layOut(figure) {
  const button = figure.querySelector("[data-sides]");
  if (!button) return;
  const diff = figure.querySelector("pre.diff");
  const sides = chosen && wide.matches;
  let table = figure.querySelector("table.sides");
  if (sides && !table) diff.after((table = makeSides(diff)));
  if (table) table.hidden = !sides;
  diff.hidden = sides;
  button.textContent = sides ? "Unified" : "Side by side";
}

function layOutAll() {
  for (const figure of document.querySelectorAll("figure.file-change")) if (!figure.closest("details:not([open])")) layOut(figure);
}

document.addEventListener("toggle", (event) => {
  if (event.target.open) for (const figure of event.target.querySelectorAll("figure.file-change")) layOut(figure);
}, true);

document.addEventListener("click", (event) => {
  if (!event.target.closest("[data-sides]")) return;
  chosen = !chosen;
  localStorage.setItem(KEY, chosen ? "sides" : "unified");
  layOutAll();
});

wide.addEventListener("change", layOutAll);
layOutAll();
