// Checks the text of a capsule while it is typed: the server's block replaces the list of checks.

const form = document.getElementById("capsule-form");
const shown = document.getElementById("lint");
let timer;
let asking;

async function check() {
  asking?.abort();
  asking = new AbortController();
  try {
    const answer = await fetch(form.dataset.lint, {
      method: "POST",
      body: new URLSearchParams(new FormData(form)),
      signal: asking.signal,
    });
    // The server was started anew; what was typed is not lost.
    if (answer.status === 403) return renewToken();
    const html = await answer.text();
    if (answer.ok && html !== shown.innerHTML) shown.innerHTML = html;
  } catch (error) {
    if (error.name !== "AbortError") throw error;
  }
}

async function renewToken() {
  const answer = await fetch(`${location.pathname}.json`);
  if (answer.ok) form.elements.form_token.value = (await answer.json()).form_token;
}

form.elements.text.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(check, 150);
});

// A half-written capsule is not lost by a wrong click.
let changed = false;
form.addEventListener("input", () => (changed = true));
form.addEventListener("submit", () => (changed = false));
window.addEventListener("beforeunload", (event) => changed && event.preventDefault());
