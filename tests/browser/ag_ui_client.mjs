// Drives an agent as a page with AG-UI's own client would, and prints what the client came to hold.
// Usage: node ag_ui_client.mjs URL [subagents]

import { HttpAgent } from "@ag-ui/client";

const agent = new HttpAgent({ url: process.argv[2], headers: { "x-user": "ana" }, threadId: "main" });
agent.messages = [{ id: "m1", role: "user", content: "Buy a hat." }];

const customs = {}; // by name the texts of custom events, joined
const onCustomEvent = ({ event }) => { customs[event.name] = (customs[event.name] ?? "") + event.value.text; };
const forwardedProps = process.argv[3] === "subagents" ? { subagents: true } : {};
await agent.runAgent({ runId: "r1", forwardedProps }, { onCustomEvent });
const interrupts = agent.pendingInterrupts;
const resume = interrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload: { approved: true } }));
if (resume.length) await agent.runAgent({ runId: "r2", resume });

const said = agent.messages.map(({ role, content, toolCalls }) => ({ role, content, calls: toolCalls?.map((each) => each.function.name) }));
console.log(JSON.stringify({ interrupts: interrupts.length, status: agent.state.status, customs, said }));
