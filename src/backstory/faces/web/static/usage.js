// The calls of tools are added up while the rest of the page is read.

const tools = document.getElementById("tools");

if (tools && !tools.querySelector("table")) {
  const answer = await fetch(`/usage?part=tools&${tools.dataset.query}`);
  const title = tools.querySelector("h2");
  if (answer.ok) {
    tools.innerHTML = await answer.text();
    tools.prepend(title);
  }
}
