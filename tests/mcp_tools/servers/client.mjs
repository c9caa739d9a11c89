// A client on the official MCP SDK of the 1.x line: lists the tools first, as the Inspector does, then calls them.
//
// `node client.mjs URL [TOKEN]` reads calls from its input, one JSON object a line: {"tool": ..., "arguments": ...,
// "timeout": ...}. For each it writes {"result": ...}, or {"thrown": ...} where the SDK gave no answer.

import { createInterface } from "node:readline";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [url, token] = process.argv.slice(2);
const headers = token ? { Authorization: `Bearer ${token}` } : {};
const client = new Client({ name: "tests", version: "1.0.0" });
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
await client.listTools(); // from here on the SDK validates structured content

for await (const line of createInterface({ input: process.stdin })) {
  const { tool, arguments: given, ...options } = JSON.parse(line);
  const events = [];
  if (options.resetTimeoutOnProgress) options.onprogress = (progress) => events.push(progress);
  let said;
  try {
    said = { result: await client.callTool({ name: tool, arguments: given }, undefined, options), events };
  } catch (error) {
    said = { thrown: { code: error.code, message: error.message }, events };
  }
  process.stdout.write(`${JSON.stringify(said)}\n`);
}
await client.close();
