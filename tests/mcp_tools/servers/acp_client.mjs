// A client on the official SDK of the Agent Client Protocol, as editors have it: one turn with an approval.
//
// `node acp_client.mjs COMMAND...` starts the agent, prompts it, allows what it is asked, loads the session again, and
// writes what it saw as one JSON object.

import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const [command, ...words] = process.argv.slice(2);
const child = spawn(command, words, { stdio: ["pipe", "pipe", "inherit"] });
const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
const asked = [];
let updates = [];
const { agent, client } = acp.methods;

const app = acp
  .client({ name: "tests" })
  .onRequest(client.session.requestPermission, ({ params }) => {
    asked.push(params.options.map((option) => option.kind));
    return { outcome: { outcome: "selected", optionId: params.options[0].optionId } };
  })
  .onNotification(client.session.update, ({ params }) => {
    updates.push(params.update.sessionUpdate);
  });

await app.connectWith(stream, async (ctx) => {
  const cwd = process.cwd();
  const initialized = await ctx.request(agent.initialize, { protocolVersion: acp.PROTOCOL_VERSION });
  const { sessionId } = await ctx.request(agent.session.new, { cwd, mcpServers: [] });
  const prompt = [{ type: "text", text: "do=buy words=3" }];
  const done = await ctx.request(agent.session.prompt, { sessionId, prompt });
  const seen = updates;
  updates = [];
  await ctx.request(agent.session.load, { sessionId, cwd, mcpServers: [] });
  console.log(JSON.stringify({ initialized, done, asked, updates: seen, replayed: updates }));
});
child.stdin.end();
