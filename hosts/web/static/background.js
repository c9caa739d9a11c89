// Work in the background of a conversation: how far each task is, what it asks, and what a person tells it.

import { ApiError, call, fresh, get, thread } from "./api.js";
import { badge, elapsed, h, money, notice, status, time } from "./dom.js";
import { answer, card } from "./pauses.js";

const LOOK_MS = 2000; // between two looks at tasks that work
const WORKS = ["queued", "running"];

/** The tray of a conversation, until `signal` tells that its page is left. `look` reads it again. */
export function tasks(id, signal) {
  const going = h("ul", { class: "rows" }), over = h("ul", { class: "rows" }), summary = h("summary");
  const finished = h("details", {}, summary, over);
  const made = h("section", { class: "background", "aria-label": "Background tasks", hidden: true }, h("h2", {}, "In the background"), going, finished);
  const rows = new Map(); // by the id of the task, so that what a person types is kept
  let looks = 0, looked = 0;

  async function look() {
    const mine = (looks += 1);
    looked = Date.now();
    const { tasks: found } = await get(thread(id, "/background"), {}, signal);
    if (mine !== looks) return;
    const held = document.activeElement?.closest(".background li");
    for (const task of found) {
      if (!rows.has(task.id)) rows.set(task.id, row(id, task, look));
      const { element, draw, goes } = rows.get(task.id);
      draw(task);
      if (element.parentElement === (goes() ? going : over)) continue;
      if (goes()) going.append(element);
      else over.prepend(element); // the newest one first
    }
    for (const [each, { element }] of rows) {
      if (!found.some((task) => task.id === each)) { element.remove(); rows.delete(each); }
    }
    made.hidden = !found.length;
    finished.hidden = !over.children.length;
    summary.textContent = `Finished: ${over.children.length}`;
    if (held && !held.contains(document.activeElement)) (going.querySelector("a") ?? summary).focus();
  }

  const ticks = setInterval(() => {
    const working = [...rows.values()].filter((each) => each.works());
    if (document.hidden || !working.length) return;
    working.forEach((each) => each.tick());
    if (Date.now() - looked >= LOOK_MS) look().catch(() => undefined); // it is read again soon
  }, 1000);
  signal.addEventListener("abort", () => clearInterval(ticks));
  return { element: made, look };
}

/** One task of the conversation `id`. `changed` is called after what a person did. */
function row(id, task, changed) {
  const name = `${task.name} ${task.id}`, path = `/background/${encodeURIComponent(task.id)}`;
  const state = h("span"), doing = h("span", { class: "text" }), facts = h("span", { class: "hint" });
  const problem = h("p", { class: "problem", role: "alert" }), cards = h("div", { class: "cards" });
  const field = h("input", { "aria-label": `Say to ${name}`, placeholder: "It reads this at its next step", required: true });
  const form = h("form", { class: "row", hidden: true }, field, h("button", { class: "primary" }, "Send"));
  const button = (label, kind, run) => h("button", { type: "button", class: `quiet ${kind}`, "aria-label": `${label}: ${name}`, onclick: run }, label);
  const say = button("Say", "", () => { unfold(form.hidden); (form.hidden ? say : field).focus(); });
  const cancel = button("Cancel", "danger", () => act("DELETE", path));
  const open = h("a", { href: `#/threads/${[task.thread, id, task.name].map(encodeURIComponent).join("/")}`, "aria-label": `Open: ${name}` }, "Open");
  const element = h("li", { "data-task": task.id },
    h("div", { class: "row" }, state, h("strong", {}, task.name), h("code", { class: "hint" }, task.id), doing, facts, h("span", { class: "row" }, open, say, cancel)),
    form, problem, cards);
  unfold(false);
  const works = () => WORKS.includes(task.status), goes = () => works() || ["paused", "stopped"].includes(task.status);

  function unfold(shown) {
    form.hidden = !shown;
    say.setAttribute("aria-expanded", String(shown));
  }

  async function act(method, rest, given) {
    problem.textContent = "";
    try {
      await call(method, thread(id, rest), given);
      return true;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      problem.textContent = error.message;
      return false;
    } finally {
      await changed();
    }
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const text = field.value.trim();
    if (!text || !(await act("POST", `${path}/steer`, { text, key: fresh() }))) return;
    field.value = "";
    unfold(false);
    say.focus();
    notice(`${task.name} reads it at its next step.`, "good");
  });

  /** Answer on the task's own thread. Its turn goes on without this page. */
  async function answered(pause, given) {
    const follows = new AbortController();
    try {
      await answer(task.thread, pause, given, () => follows.abort(), follows.signal);
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    }
    cards.querySelector(`[data-pause="${CSS.escape(pause.id)}"]`)?.remove();
    if (document.activeElement === document.body) open.focus();
    await changed();
  }

  async function ask() {
    const { pauses } = await get(thread(task.thread, "/pauses"));
    const waits = pauses.filter((each) => !each.answered), known = [...cards.children].map((each) => each.dataset.pause);
    [...cards.children].filter((each) => !waits.some((pause) => pause.id === each.dataset.pause)).forEach((each) => each.remove());
    cards.append(...waits.filter((pause) => !known.includes(pause.id)).map((pause) => card(pause, answered)));
  }

  function tick() {
    const end = works() ? Date.now() : Date.parse(task.since ?? task.dispatched), tokens = (task.input_tokens ?? 0) + (task.output_tokens ?? 0);
    const parts = [elapsed((end - Date.parse(task.began ?? task.dispatched)) / 1000), tokens ? `${tokens.toLocaleString("en")} tokens` : "", money(task.cost || null)];
    facts.textContent = parts.filter(Boolean).join(" · ");
  }

  function draw(found) {
    task = found;
    state.replaceChildren(status(task.status), task.code ? badge(task.code, "bad") : "");
    doing.replaceChildren(...(task.status === "paused" ? ["waits since ", time(task.since)] : [task.doing ?? ""]));
    say.hidden = cancel.hidden = !goes();
    if (!goes()) unfold(false);
    tick();
    if (task.pauses || cards.children.length) ask();
  }

  return { element, draw, tick, works, goes };
}
