/**
 * A chat over `worldagent serve --http`, as described in docs/reference/sidecar.md, on the public MCP SDK.
 *
 * `node chat.ts http://127.0.0.1:8200/mcp`, with the bearer token in WORLDAGENT_SIDECAR_TOKEN. A line that is typed is
 * a message, or answers what is asked. `/cancel` ends the turn that runs, and `/say TEXT` says something to it.
 */

import { randomUUID } from "node:crypto";
import { on } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import {
  Client,
  ProtocolError,
  SdkError,
  SdkErrorCode,
  StreamableHTTPClientTransport,
} from "@modelcontextprotocol/client";
import type { JSONRPCMessage, Progress, TransportSendOptions } from "@modelcontextprotocol/client";

interface Pause {
  id: string;
  kind: "approval" | "question" | "uncertain" | "reply";
  function: string;
  arguments: object;
  hash: string;
  question: string | null;
}

interface Step {
  tool: string;
  arguments: Record<string, unknown>;
}

interface Answer {
  turn?: { status: string; pauses: Pause[] };
  next?: Step[]; // the call that continues the turn
  error?: { code: string; problem: string; remedy: string; retryable: boolean };
}

const [url] = process.argv.slice(2);
const token = process.env.WORLDAGENT_SIDECAR_TOKEN;
if (!url || !token) throw new Error("name the address of the sidecar, and set WORLDAGENT_SIDECAR_TOKEN");

const account = "ana";
const place = { account, thread: "typescript" };
const show = (text: string) => process.stdout.write(text);

const SAY = "/say ";
const UNREACHED = "the sidecar cannot be reached";

let turnId = ""; // empty until the first event
let seq = 0; // of the last event
let shown = ""; // the answer so far
let tries = 0; // failed ones in a row

interface Event {
  turn_id: string;
  seq: number;
  type: string;
  status?: string;
  text?: string;
  author?: string;
  interim?: boolean;
}

/** What the turn tells while it runs. New types of event may come, so others are passed over. */
function onprogress({ message }: Progress): void {
  const event = JSON.parse(message ?? "{}") as Event;
  [turnId, seq, tries] = [event.turn_id, event.seq, 0];
  const text = event.text ?? "";
  if (event.type === "text_delta") {
    show(text);
    shown += text;
  } else if (event.type === "text_replaced" || isOther(event)) {
    show(`${shown && "\n"}${text}`);
    shown = text;
  } else if (event.type === "message_taken") {
    show(`\n[it reads what ${event.author} said meanwhile: ${text}]\n`);
  } else if (event.interim && shown) {
    // The text before calls is not the answer.
    show("\n");
    shown = "";
  }
}

/** Whether a turn ended with another text than the one that we show: that one counts. */
const isOther = ({ type, status, text }: Event) => type === "turn_ended" && status === "done" && text !== shown;

// --- the sidecar ---------------------------------------------------------------------------------

// This revision of MCP has no sessions, so a lost connection or a killed sidecar loses nothing.
const client = new Client(
  { name: "sidecar-typescript", version: "1.0.0" },
  { versionNegotiation: { mode: { pin: "2026-07-28" } } },
);

const GONE = -32000;

/** If an answer breaks off, the SDK waits until its timeout. This transport gives it an error instead. */
class Transport extends StreamableHTTPClientTransport {
  override async send(message: JSONRPCMessage, options?: TransportSendOptions): Promise<void> {
    const onRequestStreamEnd = () => {
      const error = { code: GONE, message: "the connection broke" };
      if ("id" in message) this.onmessage?.({ jsonrpc: "2.0", id: message.id, error });
    };
    await super.send(message, { ...options, onRequestStreamEnd });
  }
}

/** Calls a tool. Undefined: the connection broke, or nothing came for a minute. */
async function call(step: Step): Promise<Answer | undefined> {
  try {
    const options = { onprogress, timeout: 60_000, resetTimeoutOnProgress: true };
    const result = await client.callTool({ name: step.tool, arguments: step.arguments }, options);
    return result.structuredContent as Answer;
  } catch (error) {
    const broken = error instanceof ProtocolError && error.code === GONE;
    const silent = error instanceof SdkError && error.code === SdkErrorCode.RequestTimeout;
    if (broken || silent || error instanceof TypeError) return undefined; // `fetch` raises TypeError if nothing listens
    throw error;
  }
}

/** Runs a turn from a message to its end, even if the connection breaks or the sidecar is killed. */
async function turn(text: string): Promise<void> {
  [turnId, seq, shown, tries] = ["", 0, "", 0];
  let waits = false; // for the reply of a member
  // With the same key, a repeated call is the same turn. It continues without its client.
  let step: Step = { tool: "converse", arguments: { ...place, text, key: randomUUID(), detach: true } };
  while (tries < 60) {
    const answer = await call({ tool: step.tool, arguments: { ...step.arguments, after: seq } });
    const passing = answer === undefined ? UNREACHED : answer.error?.retryable && answer.error.problem;
    if (passing) {
      if (tries === 0) show(`\n[${passing}; trying again]\n`);
      tries += 1;
      await sleep(500);
    }

    const [next] = answer?.next ?? [];
    if (answer?.turn?.status === "paused" && !next) {
      // Only replies of members are missing. The sidecar continues the turn once they are there.
      if (!waits) show("\n[it waits for the reply of a member]\n");
      waits = true;
      await sleep(500);
      step = { tool: "events", arguments: { account, turn_id: turnId } };
      continue;
    }
    if (answer === undefined && turnId) step = { tool: "events", arguments: { account, turn_id: turnId } };
    else if (next) step = next;
    else if (!passing) return end(answer);
    if (answer?.turn?.status === "paused") {
      step.arguments.answers = await ask(answer.turn.pauses);
      if (step.arguments.answers === undefined) return; // the turn waits, and can be answered another day
    }
  }
  throw new Error(UNREACHED);
}

/** Shows how the turn ended, or why it was refused. */
function end(answer: Answer | undefined): void {
  const { turn, error } = answer ?? {};
  show(turn?.status === "done" ? "\n" : `\n[${turn?.status ?? `${error?.problem}; ${error?.remedy}`}]\n`);
}

// --- the person ----------------------------------------------------------------------------------

const keyboard = createInterface({ input: process.stdin });
const lines = on(keyboard, "line", { close: ["close"] });
keyboard.on("line", (line) => {
  if (line === "/cancel" && turnId) void client.callTool({ name: "cancel", arguments: place });
  if (line.startsWith(SAY)) void say(line.slice(SAY.length));
});

/** Says something to the turn that runs or waits, which reads it before its next step. */
async function say(text: string): Promise<void> {
  const answer = await call({ tool: "thread_steer", arguments: { ...place, text } });
  show(`\n[${answer?.error?.problem ?? (answer ? "said" : UNREACHED)}]\n`);
}

/** The next line that is typed. Undefined: there is none. */
async function nextLine(): Promise<string | undefined> {
  const { value, done } = await lines.next();
  return done ? undefined : value[0].startsWith("/") ? nextLine() : value[0];
}

/** Asks the person what the turn waits for. Undefined: nothing more will be typed. */
async function ask(pauses: Pause[]): Promise<Record<string, object> | undefined> {
  const answers: Record<string, object> = {};
  for (const pause of pauses) {
    if (pause.kind === "reply") continue; // no person can answer it
    const call = `${pause.function} with ${JSON.stringify(pause.arguments)}`;
    if (pause.kind === "question") show(`\n[${pause.question}]\n`);
    else if (pause.kind === "approval") show(`\n[may it call ${call}? y or n]\n`);
    else show(`\n[${call} was cut off: did it happen? y or n]\n`);
    const line = await nextLine();
    if (line === undefined) return undefined;
    const yes = /^(y|yes)$/i.test(line.trim());
    if (pause.kind === "question") answers[pause.id] = { answer: line };
    else if (pause.kind === "uncertain") answers[pause.id] = yes ? { happened: {} } : { not_happened: {} };
    else answers[pause.id] = yes ? { approve: { hash: pause.hash } } : { reject: {} };
  }
  return answers;
}

const authProvider = { token: async () => token };
await client.connect(new Transport(new URL(url), { authProvider }));
for (let text = await nextLine(); text !== undefined; text = await nextLine()) await turn(text);
await client.close();
