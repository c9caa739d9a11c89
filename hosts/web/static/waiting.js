// Messages beside a turn: how the next one is meant while a turn runs, and the list of those that wait.

import { call, fresh, get, thread } from "./api.js";
import { badge, h } from "./dom.js";

// How a message is meant while a turn runs or waits, and what that means.
const WAYS = {
  steer: ["Steer", "The turn reads it before its next step; one that waits for an answer, once it goes on."],
  queue: ["Queue", "It begins a turn of its own, after this one."],
  interrupt: ["Interrupt", "The turn is cancelled, and this begins the next one."],
};

/** The choice of how a message is meant. `chosen` is called when it changes. */
export function choice(chosen) {
  const hint = h("span", { class: "hint", id: "way-hint" });
  const made = h("fieldset", { class: "ways", hidden: true, "aria-describedby": "way-hint" }, h("legend", {}, "While the agent works"),
    Object.entries(WAYS).map(([way, [label]]) => h("label", { class: "check" },
      h("input", { type: "radio", name: "way", value: way, checked: way === "steer" }), label)), hint);
  const way = () => made.querySelector(":checked").value;
  const shown = () => { hint.textContent = WAYS[way()][1]; };
  made.addEventListener("change", () => { shown(); chosen(); });
  shown();
  return { element: made, way };
}

/** Say something beside the turn of a thread. `role` goes with a message that begins a turn, which one that steers does if it `begins`. */
export async function say(id, way, text, role, begins) {
  const given = { text, key: fresh() };
  if (way === "steer") {
    try {
      return await call("POST", thread(id, "/steer"), given);
    } catch (error) {
      if (error.code !== "nothing_to_steer" || !begins) throw error;
      return call("POST", thread(id, "/steer"), { ...given, begin: true }); // the turn has ended meanwhile
    }
  }
  return call("POST", thread(id, "/queue"), { ...given, interrupt: way === "interrupt", ...(role ? { role: { content: role } } : {}) });
}

const STATES = { role: ["waits for its role", "warn"], error: ["could not begin", "bad"] };

/** The list of what waits on a thread. `look` reads it again. */
export function tray(id) {
  const list = h("ol", { class: "rows" });
  const made = h("section", { class: "waiting", "aria-label": "Messages that wait", hidden: true }, h("h2", {}, "Waiting"), list);
  let looks = 0;

  async function look() {
    const mine = (looks += 1);
    const { messages } = await get(thread(id, "/queue"));
    if (mine === looks) draw(messages);
  }

  async function act(method, path, given) {
    looks += 1; // what was asked for before says how it was before
    try { await call(method, thread(id, path), given); } finally { await look(); }
  }

  function draw(messages) {
    const at = document.activeElement?.closest(".waiting li")?.dataset.message, does = document.activeElement?.dataset?.does;
    const queued = messages.filter((each) => each.kind === "queue").map((each) => each.id);
    list.replaceChildren(...messages.map((each) => item(each, queued)));
    made.hidden = !messages.length;
    if (!at) return;
    const row = list.querySelector(`[data-message="${CSS.escape(at)}"]`) ?? list.querySelector("li");
    (row?.querySelector(`[data-does="${does}"]:not(:disabled)`) ?? row?.querySelector("button:not(:disabled)"))?.focus();
  }

  function item(message, queued) {
    const place = queued.indexOf(message.id), said = message.text || "a task", path = `/queue/${encodeURIComponent(message.id)}`;
    const button = (does, label, shown, disabled, run) =>
      h("button", { type: "button", class: "quiet", "data-does": does, "aria-label": `${label}: ${said}`, title: label, disabled, onclick: run }, shown);
    const move = (by) => {
      const order = queued.filter((each) => each !== message.id);
      order.splice(place + by, 0, message.id);
      return act("PUT", "/queue", { messages: order });
    };
    const [state, kind] = STATES[message.waits_for] ?? [message.kind === "queue" ? "queued" : message.kind === "steer" ? "steers" : "report", "info"];
    return h("li", { "data-message": message.id }, badge(state, kind), h("span", { class: "text" }, said), h("span", { class: "row" },
      place < 0 ? null : [button("up", "Move up", "↑", place === 0, () => move(-1)), button("down", "Move down", "↓", place === queued.length - 1, () => move(1))],
      STATES[message.waits_for] ? button("release", message.waits_for === "role" ? "Begin without its role" : "Try again", "▶", false, () => act("POST", `${path}/release`)) : null,
      message.kind === "report" ? null : button("withdraw", "Withdraw", "×", false, () => act("DELETE", path))));
  }

  return { element: made, look };
}
