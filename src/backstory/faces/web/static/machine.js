// The progress of a sync, read again until it is done; then the whole page, which has other numbers.

const block = document.getElementById("sync");
const isReading = () => Boolean(block.textContent.trim());

async function showAnew() {
  const answer = await fetch("/doctor?anew");
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  document.getElementById("main").replaceChildren(...page.getElementById("main").childNodes);
}

async function refresh() {
  if (!document.hidden) {
    try {
      const answer = await fetch("/doctor?part=sync");
      if (answer.ok) block.innerHTML = await answer.text();
    } catch {
      // The server may be back by the next time.
    }
    if (!isReading()) return showAnew();
  }
  setTimeout(refresh, 1000);
}

if (isReading()) setTimeout(refresh, 1000);
