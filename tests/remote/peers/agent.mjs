// An agent on the JavaScript SDK of A2A: agent.mjs FOLDER PORT. It prints its address, and writes each message of the
// wire, and each task that it begins, to FOLDER.
import { appendFileSync, existsSync } from "node:fs";
import express from "express";
import { AGENT_CARD_PATH, Role, TaskState } from "@a2a-js/sdk";
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } from "@a2a-js/sdk/server";
import { UserBuilder, agentCardHandler, jsonRpcHandler } from "@a2a-js/sdk/server/express";

const [folder, port] = process.argv.slice(2);
const url = `http://127.0.0.1:${port}`;
const note = (file, value) => appendFileSync(`${folder}/${file}`, `${JSON.stringify(value)}\n`);
const part = (text) => ({ content: { $case: "text", value: text }, metadata: undefined, filename: "", mediaType: "" });
const said = (id, context, task, text) => ({
  messageId: id, contextId: context, taskId: task, role: Role.ROLE_AGENT, parts: [part(text)],
  metadata: undefined, extensions: [], referenceTaskIds: [],
});

class Executor {
  cancelled = new Set();

  async cancelTask(id, bus) {
    note("cancelled", id);
    this.cancelled.add(id);
    bus.publish(AgentEvent.statusUpdate(this.status(id, this.contexts.get(id), TaskState.TASK_STATE_CANCELED)));
    bus.finished();
  }

  contexts = new Map();

  status(taskId, contextId, state, text = "") {
    const message = text ? said(crypto.randomUUID(), contextId, taskId, text) : undefined;
    return { taskId, contextId, status: { state, message, timestamp: new Date().toISOString() }, metadata: undefined };
  }

  async execute(request, bus) {
    const { taskId, contextId, userMessage, task } = request;
    const text = userMessage.parts.map((each) => each.content.value).join("\n");
    this.contexts.set(taskId, contextId);
    note("effects", `${text.split(" ")[0]} ${userMessage.messageId}`);
    const state = (value, more) => bus.publish(AgentEvent.statusUpdate(this.status(taskId, contextId, value, more)));
    bus.publish(AgentEvent.task(task ?? {
      id: taskId, contextId, status: { state: TaskState.TASK_STATE_SUBMITTED, message: undefined, timestamp: undefined },
      artifacts: [], history: [userMessage], metadata: undefined,
    }));
    state(TaskState.TASK_STATE_WORKING);
    while (text.startsWith("slow") && !existsSync(`${folder}/go`) && !this.cancelled.has(taskId)) {
      await new Promise((done) => setTimeout(done, 50));
    }
    if (this.cancelled.has(taskId)) return;
    if (text.startsWith("ask")) state(TaskState.TASK_STATE_INPUT_REQUIRED, "Which colour?");
    else if (text.startsWith("login")) state(TaskState.TASK_STATE_AUTH_REQUIRED, "Log in.");
    else if (text.startsWith("fail")) state(TaskState.TASK_STATE_FAILED, "It broke.");
    else {
      const artifact = {
        artifactId: "answer", name: "", description: "", metadata: undefined, extensions: [],
        parts: [part(`js: ${text}`), { ...part(""), content: { $case: "data", value: { colour: "red" } } },
          { ...part(""), content: { $case: "url", value: "https://files.example/a.png" } }],
      };
      bus.publish(AgentEvent.artifactUpdate({
        taskId, contextId, artifact, append: false, lastChunk: true, metadata: undefined,
      }));
      state(TaskState.TASK_STATE_COMPLETED);
    }
    bus.finished();
  }
}

const card = {
  name: "Painter", description: "Paints.", version: "1.0.0", provider: undefined, documentationUrl: undefined,
  supportedInterfaces: [{ url: `${url}/rpc`, protocolBinding: "JSONRPC", tenant: "", protocolVersion: "1.0" }],
  capabilities: { streaming: true, pushNotifications: false, extensions: [], extendedAgentCard: false },
  securitySchemes: {}, securityRequirements: [], signatures: [], iconUrl: undefined,
  defaultInputModes: ["text/plain"], defaultOutputModes: ["text/plain"],
  skills: [{ id: "paint", name: "Paint", description: "Paints walls.", tags: ["walls"], examples: ["Paint it red."],
    inputModes: [], outputModes: [], securityRequirements: [] }],
};
const handler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new Executor());
const app = express();
app.use(express.json({ limit: "10mb" }));
app.use((request, response, next) => {
  if (request.headers.authorization !== "Bearer secret-token") return response.status(401).end();
  const write = response.end.bind(response);
  response.end = (body, ...more) => {
    const read = JSON.parse(body.toString());
    note("wire", request.method === "POST" ? { request: request.body, response: read } : { card: read });
    return write(body, ...more);
  };
  next();
});
app.use(`/${AGENT_CARD_PATH}`, agentCardHandler({ agentCardProvider: handler }));
app.use("/rpc", jsonRpcHandler({ requestHandler: handler, userBuilder: UserBuilder.noAuthentication }));
app.listen(Number(port), "127.0.0.1", () => console.log(url));
