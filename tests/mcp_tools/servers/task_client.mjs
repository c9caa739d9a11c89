// A client of tasks on the official packages of MCP: `@modelcontextprotocol/client` and its extension `ext-tasks`.
//
// `node task_client.mjs URL [TOKEN]` reads steps from its input, one JSON object a line, and writes what each came to:
// {"tool": ..., "arguments": ...} begins a task and gives its {"reference": ...}, which another process can use;
// {"reference": ..., "answer": ...} follows a task to its end and fills in each form with the answer;
// {"reference": ..., "cancel": true} cancels it first.

import { createInterface } from "node:readline";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { createTaskSessionFromClient } from "@modelcontextprotocol/ext-tasks/client";

const [url, token] = process.argv.slice(2);
const protocolVersion = "2026-07-28";
const clientInfo = { name: "tests", version: "1.0.0" };
const clientCapabilities = { elicitation: {} };
const authorization = token ? { Authorization: `Bearer ${token}` } : {};

const client = new Client(clientInfo, { versionNegotiation: { mode: { pin: protocolVersion } } });
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: authorization } }));

let id = 0;

/** The SDK does not know what a task is, so requests about tasks go past it. */
async function rawDispatch(request) {
  const { method, params } = request;
  id += 1;
  const reply = await fetch(url, {
    method: "POST",
    headers: {
      ...authorization,
      Accept: "application/json, text/event-stream",
      "Content-Type": "application/json",
      "MCP-Protocol-Version": protocolVersion,
      "Mcp-Method": method,
      "Mcp-Name": params.taskId ?? params.name,
    },
    body: JSON.stringify({ jsonrpc: "2.0", id, method, params }),
  });
  const text = await reply.text();
  const data = text.startsWith("{") ? [text] : text.split(/\r?\n/).filter((line) => line.startsWith("data: "));
  const { result, error } = JSON.parse(data.at(-1).replace(/^data: /, ""));
  return error === undefined ? { kind: "result", result } : { kind: "error", error };
}

let content;
const asked = [];
const session = createTaskSessionFromClient(client, {
  endpointId: "sidecar",
  rawDispatch,
  v2RequestFraming: { protocolVersion, clientInfo, clientCapabilities },
  onInputRequest: async (request) => {
    asked.push(request.params.message);
    return { action: "accept", content };
  },
});

async function step({ tool, arguments: given, reference, answer, cancel }) {
  if (tool !== undefined) {
    const execution = await session.callTool(tool, given);
    if (execution.kind !== "task") return { immediate: await execution.result() };
    let found;
    await execution.handoff((made) => (found = made));
    return { reference: found };
  }
  if (cancel) await session.task(reference.taskId).cancel();
  content = answer;
  const execution = await session.resumeTask(reference);
  const { outcome, lastTask } = await execution.settle();
  return { status: outcome.status, result: outcome.result, asked: asked.splice(0), task: lastTask?.raw };
}

for await (const line of createInterface({ input: process.stdin })) {
  let said;
  try {
    said = await step(JSON.parse(line));
  } catch (error) {
    said = { thrown: { code: error.code, message: error.message } };
  }
  process.stdout.write(`${JSON.stringify(said)}\n`);
}
await session.close();
await client.close();
