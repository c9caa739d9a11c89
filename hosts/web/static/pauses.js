// What turns wait for: a card for each pause, with its arguments to change, and the answers that it takes.

import { ApiError, call, get, stream, thread } from "./api.js";
import { badge, empty, h, notice, time } from "./dom.js";

const text = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

/** A card that answers one pause. `answered` gets the answer, and returns once the turn has taken it. */
export function card(pause, answered) {
  const problem = h("p", { class: "problem", role: "alert" });
  const buttons = h("div", { class: "row" });
  const made = h("article", { class: "pause card", "aria-label": `${pause.kind}: ${pause.function}`, "data-pause": pause.id });

  async function send(answer) {
    problem.textContent = "";
    for (const each of made.querySelectorAll("button, textarea, input")) each.disabled = true;
    try {
      await answered(pause, answer);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (["already_answered", "nothing_to_resume"].includes(error.code)) {
        made.replaceChildren(h("p", {}, "Someone else has answered this."));
        return;
      }
      problem.textContent = error.message;
      for (const each of made.querySelectorAll("button, textarea, input")) each.disabled = false;
    }
  }

  const button = (label, kind, action) => h("button", { type: "button", class: kind, onclick: action }, label);
  const head = h("header", {}, h("h3", {}, pause.question ?? pause.function),
    (pause.risk ?? []).map((risk) => badge(risk.replace("_", " "), "warn")), pause.expired ? badge("expired", "bad") : null);
  const about = [pause.reason ? h("p", { class: "hint" }, pause.reason) : null, pause.caller ? h("p", { class: "hint" }, `asked by ${pause.caller}`) : null,
    ...Object.entries(pause.sources ?? {}).map(([path, words]) => h("p", { class: "hint" }, `${path}: ${words}`))];

  if (pause.answers.approve) {
    const given = JSON.stringify(pause.arguments ?? {}, null, 2);
    const id = `arguments-${pause.id}`;
    const field = h("textarea", { id, class: "code", rows: Math.min(given.split("\n").length, 14), readonly: true, spellcheck: "false", value: given });
    const reason = h("input", { "aria-label": "Why not", placeholder: "why not (optional)" });
    const edit = button("Edit", "quiet", () => { field.readOnly = false; field.focus(); edit.hidden = true; });
    const approve = () => {
      const body = { hash: pause.hash };
      if (field.value !== given) {
        try { body.arguments = JSON.parse(field.value); } catch { problem.textContent = "The arguments must be JSON."; field.focus(); return undefined; }
      }
      return send({ approve: body });
    };
    buttons.append(button("Approve", "primary", approve), button("Reject", "danger", () => send({ reject: { reason: reason.value } })), reason);
    made.append(head, ...about.filter(Boolean), h("div", { class: "labelled" }, h("label", { for: id }, "Arguments"), edit), field, problem, buttons);
    return made;
  }
  if ("answer" in pause.answers) {
    const options = pause.options ?? [];
    const field = h("textarea", { rows: 2, "aria-label": "Your answer" });
    if (pause.login) buttons.append(button("Log in", "primary", () => logIn(pause.login, problem)));
    if (options.length) buttons.append(...options.map((option) => button(text(option), "", () => send({ answer: option }))));
    else {
      const typed = () => {
        if (!pause.answer_schema || pause.answer_schema.type === "string") return field.value;
        try { return JSON.parse(field.value); } catch { return field.value; }
      };
      buttons.append(button("Answer", "primary", () => send({ answer: typed() })));
    }
    made.append(head, ...about.filter(Boolean), options.length ? "" : field, problem, buttons);
    return made;
  }
  const names = { happened: "It happened", not_happened: "It did not happen", run_again: "Run it again" };
  const rest = Object.entries(pause.answers).filter(([name]) => names[name]);
  buttons.append(...rest.map(([name, body]) => button(names[name], name === "run_again" ? "danger" : "", () => send({ [name]: body }))));
  const waits = rest.length ? null : empty(pause.expired ? "It accepts no answer any more." : "It waits for a reply of a member.");
  made.append(head, ...about.filter(Boolean), h("pre", { tabindex: "0" }, text(pause.arguments ?? {})), waits ?? "", problem, buttons);
  return made;
}

/** Open the page of an MCP server's login in a tab. The address is for one login only, and is made now. */
async function logIn(server, problem) {
  problem.textContent = "";
  const tab = window.open("", "_blank"); // now, since browsers block a tab that opens later
  try {
    const { login } = await call("POST", "oauth/start", { server });
    if (!tab) { location.assign(login.link); return; }
    tab.opener = null;
    tab.location = login.link;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    tab?.close();
    problem.textContent = error.message;
  }
}

/** Answer a pause and follow the turn to its end or its next pause. */
export const answer = (id, pause, given, heard = () => undefined, signal = undefined) =>
  stream("POST", thread(id, "/resume"), { answers: { [pause.id]: given } }, heard, signal);

export async function show(view) {
  const list = h("div", { class: "cards" });
  view.append(h("section", { class: "page" }, h("h1", {}, "Waiting for a person"), list));
  const shown = new Map(); // the cards by pause id, so that what a person types is kept

  async function refresh() {
    const { threads } = await get("threads", { status: "paused", limit: 100 });
    const seen = new Set();
    for (const state of threads) {
      const { pauses } = await get(thread(state.thread, "/pauses"));
      for (const pause of pauses.filter((each) => !each.answered)) {
        seen.add(pause.id);
        if (shown.has(pause.id)) continue;
        const link = h("p", { class: "hint" }, h("a", { href: `#/threads/${encodeURIComponent(state.thread)}` }, state.title ?? state.thread), " · ", time(state.since));
        const made = h("div", {}, link, card(pause, async (one, given) => {
          const last = await answer(state.thread, one, given);
          notice(last?.turn.status === "done" ? "Answered; the turn is done." : "Answered.", "good");
          made.remove();
          shown.delete(one.id);
          await refresh();
        }));
        shown.set(pause.id, made);
        list.append(made);
      }
    }
    for (const [id, made] of shown) {
      if (!seen.has(id) && !made.contains(document.activeElement)) { made.remove(); shown.delete(id); }
    }
    list.querySelector(":scope > .empty")?.remove();
    if (!shown.size) list.append(empty("Nothing waits for you."));
  }

  await refresh();
  return { refresh };
}
