// A client on the JavaScript SDK of A2A: client.mjs URL TOKEN. It reads a JSON object a line, {call, params}, and prints
// what came of each call, and each body of the wire, as a JSON object a line.
import { createInterface } from "node:readline";
import { SendMessageRequest, GetTaskRequest, CancelTaskRequest, ListTasksRequest, StreamResponse, Task } from "@a2a-js/sdk";
import { ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver, JsonRpcTransportFactory } from "@a2a-js/sdk/client";

const [url, token] = process.argv.slice(2);
const print = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

async function fetchImpl(input, init = {}) {
  const headers = new Headers(init.headers);
  headers.set("Authorization", `Bearer ${token}`);
  const response = await fetch(input, { ...init, headers });
  const copy = response.clone();
  const asked = init.body ? JSON.parse(init.body) : null;
  const kind = response.headers.get("content-type") ?? "";
  const read = async () => {
    if (!asked) print({ wire: { card: await copy.json() } });
    else if (!kind.startsWith("text/event-stream")) print({ wire: { request: asked, response: await copy.json() } });
    else {
      for (const line of (await copy.text()).split(/\r?\n/)) {
        if (line.startsWith("data:")) print({ wire: { request: asked, response: JSON.parse(line.slice(5)) } });
      }
    }
  };
  if (response.ok) reads.push(read());
  return response;
}

let reads = [];
const factory = new ClientFactory(ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
  transports: [new JsonRpcTransportFactory({ fetchImpl })],
  cardResolver: new DefaultAgentCardResolver({ fetchImpl }),
}));
const calls = {
  send: async (client, params) => (await client.sendMessage(SendMessageRequest.fromJSON(params))),
  get: async (client, params) => client.getTask(GetTaskRequest.fromJSON(params)),
  cancel: async (client, params) => client.cancelTask(CancelTaskRequest.fromJSON(params)),
  list: async (client, params) => client.listTasks(ListTasksRequest.fromJSON(params)),
};

let client;
for await (const line of createInterface({ input: process.stdin })) {
  const { call, params } = JSON.parse(line);
  try {
    client ??= await factory.createFromUrl(`${url}/.well-known/agent-card.json`, "");
    if (call === "stream") {
      for await (const event of client.sendMessageStream(SendMessageRequest.fromJSON(params))) {
        print({ event: StreamResponse.toJSON(event) });
      }
      await Promise.all(reads);
      print({ done: true });
    } else {
      const answer = await calls[call](client, params);
      await Promise.all(reads);
      print({ done: call === "list" ? answer : Task.toJSON(answer) });
    }
  } catch (error) {
    await Promise.all(reads);
    print({ failed: error.constructor.name, message: error.message, cause: String(error.cause ?? "") });
  }
  reads = [];
}
