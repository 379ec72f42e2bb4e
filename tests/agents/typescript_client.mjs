// A client on the TypeScript SDK 1.x. Reads one line of JSON from stdin: {command, args, env, calls: [[tool, arguments], ...]}.
// Prints {tools, answers}: what the server lists, and for each call what an agent would see of it: the result, or what was thrown.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const packages = createRequire(pathToFileURL(`${process.env.AGENT_PACKAGES}/`));
const load = (name) => import(pathToFileURL(packages.resolve(`@modelcontextprotocol/sdk/client/${name}.js`)));
const { Client } = await load("index");
const { StdioClientTransport } = await load("stdio");

const { command, args, env, calls } = JSON.parse(readFileSync(0, "utf8"));
const client = new Client({ name: "typescript", version: "1" });
await client.connect(new StdioClientTransport({ command, args, env }));
const { tools } = await client.listTools(); // also prepares the check of every answer against its output schema
const answers = [];
for (const [name, given] of calls) {
  try {
    answers.push({ result: await client.callTool({ name, arguments: given }) });
  } catch (error) {
    answers.push({ thrown: String(error) });
  }
}
await client.close();
console.log(JSON.stringify({ tools, answers }));
