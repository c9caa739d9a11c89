// Calls the paths of the web app. Their addresses are relative, so the app can be mounted anywhere.

export const base = new URL("../", document.baseURI);

/** Who calls: sent with each request if the login leaves it open. */
export const who = { workspace: null, account: null };

export class ApiError extends Error {
  constructor(status, record) {
    super(`${record.problem}; ${record.remedy}`);
    this.status = status;
    this.code = record.code;
    this.record = record;
  }
}

function address(path, query = {}) {
  const found = new URL(path, base);
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") found.searchParams.append(name, value);
  }
  return found;
}

const named = () => Object.fromEntries(Object.entries(who).filter(([, value]) => value));

async function request(method, path, given, headers, signal) {
  const inBody = method !== "GET" && method !== "DELETE";
  const target = address(path, inBody ? {} : { ...named(), ...given });
  const body = inBody ? JSON.stringify({ ...named(), ...given }) : undefined;
  const response = await fetch(target, {
    method, body, signal, headers: inBody ? { "Content-Type": "application/json", ...headers } : headers,
  });
  if (response.ok) return response;
  let record = { code: "http", problem: `the server answered with ${response.status}`, remedy: "try again" };
  try { record = (await response.json()).error; } catch { /* not ours, such as a proxy's */ }
  throw new ApiError(response.status, record);
}

export async function call(method, path, given = {}, signal = undefined) {
  return (await request(method, path, given, { Accept: "application/json" }, signal)).json();
}

export const get = (path, given, signal) => call("GET", path, given, signal);

/** Run or follow a turn: `heard` gets each event. Returns the last one, of the type `turn`. */
export async function stream(method, path, given, heard, signal) {
  const response = await request(method, path, given, { Accept: "text/event-stream" }, signal);
  let rest = "", last = null;
  for await (const piece of pieces(response.body.pipeThrough(new TextDecoderStream()))) {
    const blocks = (rest + piece).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const line = block.split("\n").find((each) => each.startsWith("data: "));
      if (!line) continue;
      const event = JSON.parse(line.slice(6));
      if (event.type === "error") throw new ApiError(200, event.error);
      if (event.type === "turn") last = event;
      else heard(event);
    }
  }
  return last;
}

async function* pieces(readable) {
  const reader = readable.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}

/** Call `heard({changed, reports})` when something of the pages named has changed on the server, and once at each connection. */
export function live(heard) {
  const source = new EventSource(address("live", named()));
  source.onmessage = (message) => heard(JSON.parse(message.data));
  return source;
}

export const thread = (id, rest = "") => `threads/${encodeURIComponent(id)}${rest}`;

/** Of the person who is logged in: what they are called, what the ids of new threads begin with, and whether a token was exchanged for a session. */
export const own = { who: "", prefix: "", session: false };

/** Whether an id that the server stores is that of an address, which can be without the prefix. */
export const same = (stored, id) => stored === id || stored === own.prefix + id;

/** An id that no one guesses. */
export function fresh() {
  return [...crypto.getRandomValues(new Uint8Array(8))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
