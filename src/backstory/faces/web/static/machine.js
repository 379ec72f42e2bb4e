// The progress of a sync, read again until it is done.

const block = document.getElementById("sync");

async function refresh() {
  if (!document.hidden) {
    const answer = await fetch("/doctor?part=sync");
    if (answer.ok) block.innerHTML = await answer.text();
    if (!block.textContent.trim()) return;
  }
  setTimeout(refresh, 1000);
}

if (block.textContent.trim()) setTimeout(refresh, 1000);
