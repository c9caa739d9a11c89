// Conversations: the list, one thread with its answer as it is written, and how the next message is to be gone about.

import { call, fresh, get, own, same, stream, thread } from "./api.js";
import { tasks } from "./background.js";
import { unseen } from "./bell.js";
import { badge, dialog, empty, h, notice, onceAFrame, status, time } from "./dom.js";
import { markdown } from "./markdown.js";
import { answer, card } from "./pauses.js";
import { choice, say, tray } from "./waiting.js";

export async function show(view, rest) {
  const search = h("input", { type: "search", placeholder: "Search", "aria-label": "Search conversations" });
  const archived = h("input", { type: "checkbox", id: "archived" });
  const list = h("ul", { class: "list" });
  const pane = h("section", { class: "pane", "aria-label": "Conversation" });
  const side = h("aside", { class: "side" },
    h("div", { class: "row" }, search, h("a", { class: "button primary", href: "#/threads/new" }, "New")),
    h("label", { class: "check", for: "archived" }, archived, "archived"), list);
  const frame = h("div", { class: "split" }, side, pane);
  view.append(frame);
  let current = null;

  async function titles() {
    const { threads } = await get("threads", { limit: 100, query: search.value.trim() || null, archived: archived.checked });
    const focused = document.activeElement?.dataset?.thread;
    list.replaceChildren(...threads.map((each) => h("li", {},
      h("a", { href: `#/threads/${encodeURIComponent(each.thread)}`, "data-thread": each.thread, "aria-current": current?.is(each.thread) ? "true" : null },
        h("span", { class: "title" }, each.title ?? each.thread),
        h("span", { class: "row" }, status(each.status), time(each.since), unseen(each.thread).length ? badge("report", "info") : null)))));
    if (!threads.length) list.append(h("li", {}, empty(search.value ? "Nothing is found." : "No conversation yet.")));
    current?.name(threads.find((each) => current.is(each.thread))?.title);
    if (focused) list.querySelector(`[data-thread="${CSS.escape(focused)}"]`)?.focus();
  }

  async function move([id, ...of]) {
    current?.leave();
    frame.classList.toggle("open", Boolean(id));
    if (!id) {
      current = null;
      pane.replaceChildren(empty("Choose a conversation, or begin a new one."));
    } else {
      current = one(pane, id === "new" ? own.prefix + fresh() : id, id === "new", titles, ...of);
      await current.load();
    }
    await titles();
  }

  let waiting = 0;
  search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(titles, 200); });
  archived.addEventListener("change", titles);
  await move(rest);
  return { move, refresh: async () => { await titles(); await current?.refresh(); }, leave: () => current?.leave() };
}

/** What an answer says, and how much of it was withheld. */
function answered(text, withheld) {
  const line = `${withheld?.toLocaleString("en")} characters were withheld, because they disclosed a role.`;
  return [...markdown(text), ...(withheld ? [h("p", { class: "hint withheld" }, line)] : [])];
}

/** One conversation in a pane; `changed` is called after each of its turns. A background task has a name, and is `of` another one. */
function one(pane, id, isNew, changed, of, name) {
  const ends = new AbortController();
  const log = h("div", { class: "log", role: "log", "aria-label": "Messages", tabindex: "0" });
  const tiers = h("div", { class: "tiers" });
  const field = h("textarea", { rows: 2, placeholder: "Write a message", "aria-label": "Message", required: true });
  const role = h("textarea", { rows: 2, id: "role", placeholder: "such as: be terse" });
  const send = h("button", { class: "primary" }, "Send");
  const stop = h("button", { type: "button", class: "danger", hidden: true, onclick: () => call("POST", thread(id, "/cancel")) }, "Stop");
  const withRole = h("details", {}, h("summary", {}, "Role of this message"), h("label", { for: "role", class: "hint" }, "How to go about it. It is stored nowhere."), role);
  const ways = choice(fitRole), waiting = tray(id), work = tasks(id, ends.signal);
  const form = h("form", { class: "composer" }, waiting.element, withRole, ways.element, h("div", { class: "row" }, field, send, stop));
  const title = h("h1", {}, isNew ? "New conversation" : name ?? id);
  const tools = h("div", { class: "row tools" });
  const back = of ? h("a", { class: "back of", href: `#/threads/${encodeURIComponent(of)}`, "aria-label": "Back to its conversation" }, "‹")
    : h("a", { class: "back", href: "#/threads", "aria-label": "Back to the list" }, "‹");
  pane.replaceChildren(h("header", { class: "head" }, back, title, tools), tiers, log, work.element, form);
  let turn = null, busy = false, open = false, seen = "", loads = 0, loaded = Promise.resolve(), begins = Promise.resolve();

  function atEnd() { log.scrollTop = log.scrollHeight; }

  /** Whether a turn runs or waits, so that a message is said beside it. To a background task nothing else can be said. */
  function opened(now) {
    open = now;
    form.hidden = Boolean(of) && !open;
    ways.element.hidden = Boolean(of) || !open;
    fitRole();
  }

  /** A message that steers has the role of its turn. */
  function fitRole() {
    withRole.hidden = open && ways.way() === "steer";
  }

  function bubble(kind, name, ...content) {
    const made = h("article", { class: `message ${kind}` }, h("header", {}, name), h("div", { class: "body" }, content));
    log.append(made);
    return made;
  }

  function message(record) {
    const said = record.body.text ?? "";
    if (record.kind === "role") {
      log.append(h("p", { class: "step" }, "the roles in force changed"));
      return;
    }
    if (record.kind === "word") {
      word(record.id, record.body.name, record.author, said).append(time(record.at));
      return;
    }
    const plain = { task: record.body.params?.request, result: record.body.result?.text }[record.kind];
    if (typeof plain === "string") {
      const made = record.kind === "task" ? bubble("mine", "to do", h("p", {}, plain)) : bubble("answer", "result", markdown(plain));
      made.firstChild.append(time(record.at));
      return;
    }
    if (record.kind !== "message" && record.kind !== "answer") {
      const calls = (record.body.calls ?? []).map((each) => each.tool ?? each.name).filter(Boolean);
      const label = calls.length ? `calls ${calls.join(", ")}` : record.kind;
      log.append(h("details", { class: "step" }, h("summary", {}, label), h("pre", { tabindex: "0" }, JSON.stringify(record.body, null, 2))));
      return;
    }
    const mine = record.kind === "message";
    const made = bubble(!mine ? "answer" : record.author.startsWith("worker:") ? "report" : "mine", mine ? record.body.name ?? (record.author === "user" ? "you" : record.author) : record.author, mine ? h("p", {}, said) : answered(said, record.body.withheld?.characters));
    const trace = !mine && record.turn_id ? [h("a", { href: `#/traces/${encodeURIComponent(record.turn_id)}` }, "trace")] : [];
    made.firstChild.append(time(record.at), ...trace, h("button", { type: "button", class: "quiet", onclick: () => fork(record.id) }, "fork"));
    if (!mine && record.turn_id) made.append(rating(record.turn_id));
    if (record.body.given_back_by) made.append(h("p", { class: "hint" }, `${record.body.given_back_by} has left. The agent answers again.`));
  }

  /** What was said to a turn while it worked, at the place where it was read; returns its header. */
  function word(messageId, name, author, text) {
    const known = log.querySelector(`[data-message="${CSS.escape(messageId)}"]`);
    const made = known ?? bubble("mine word", name ?? (author === "user" ? "you" : author), h("p", {}, text));
    if (!known) made.firstChild.append(badge("while it worked"));
    made.dataset.message = messageId;
    return made.firstChild;
  }

  /** Two buttons that say what a person thinks of a turn. What was said before this page loaded is not shown. */
  function rating(turnId) {
    const buttons = ["good", "bad"].map((feedback) => h("button", { type: "button", class: "quiet", "aria-pressed": "false", onclick: async (event) => {
      await call("PUT", `turns/${encodeURIComponent(turnId)}/feedback`, { feedback });
      for (const each of buttons) each.setAttribute("aria-pressed", String(each === event.target));
    } }, feedback));
    return h("div", { class: "rating", role: "group", "aria-label": "Your opinion of this answer" }, buttons);
  }

  async function fork(at) {
    const made = await call("POST", thread(id, "/fork"), { at });
    notice("Forked: this is a conversation of its own now.", "good");
    location.hash = `#/threads/${encodeURIComponent(made.thread)}`;
  }

  async function waits(pauses) {
    for (const pause of pauses.filter((each) => !each.answered)) {
      if (log.querySelector(`[data-pause="${CSS.escape(pause.id)}"]`)) continue;
      log.append(card(pause, async (asked, given) => {
        const shown = log.querySelector(`[data-pause="${CSS.escape(asked.id)}"]`);
        await follow((heard) => answer(id, asked, given, heard));
        shown?.remove();
        await load();
      }));
    }
    atEnd();
  }

  /** Show a turn as it runs. `run` begins or follows it, and calls its argument with each event. */
  async function follow(run) {
    let heardOf;
    begins = new Promise((resolve) => { heardOf = resolve; });
    loads += 1; // what is being loaded is from before this turn
    busy = true;
    stop.hidden = false;
    opened(true);
    let body = null, steps = new Map(), withheld = 0, speaker = "agent";
    const draw = onceAFrame(() => {
      if (body === null) body = bubble("answer", speaker).lastChild;
      body.replaceChildren(...answered([...steps.values()].join("\n\n"), withheld));
      atEnd();
    });
    const heard = (event) => {
      turn = event.turn_id;
      heardOf();
      if (event.type === "turn_started" && event.on_behalf_of !== "root") speaker = event.on_behalf_of;
      else if (event.type === "text_delta") { steps.set(event.step, (steps.get(event.step) ?? "") + event.text); draw(); }
      else if (event.type === "text_replaced") {
        if (event.step === null || event.step === undefined) steps = new Map([[0, event.text]]);
        else steps.set(event.step, event.text);
        draw();
      } else if (event.type === "role_withheld") {
        withheld += event.characters;
        if (steps.size) draw();
      } else if (event.type === "call_started") {
        draw.now();
        body = null;
        steps = new Map();
        log.append(h("p", { class: "step" }, "calls ", h("code", {}, event.function ?? event.name ?? "a function")));
        atEnd();
      } else if (event.type === "message_taken") {
        draw.now();
        body = null;
        steps = new Map();
        word(event.message_id, event.name, event.author, event.text);
        atEnd();
        waiting.look();
      }
    };
    try {
      return await run(heard);
    } finally {
      draw.now();
      heardOf();
      busy = false;
      stop.hidden = true;
      opened(false);
    }
  }

  async function explain() {
    const found = await call("POST", thread(id, "/role/explain"), role.value.trim() ? { role: { content: role.value } } : {});
    const active = found.tiers.filter((tier) => tier.state === "active");
    const others = found.tiers.filter((tier) => !["active", "absent"].includes(tier.state));
    tiers.replaceChildren(h("span", { class: "hint" }, active.length ? "roles in force:" : "no role in force"),
      ...active.map((tier) => badge(`${tier.tier}: ${tier.name} (${tier.length})`, "info")),
      ...others.map((tier) => badge(`${tier.tier}: ${tier.name ?? ""} ${tier.state.replace("_", " ")}`)));
  }

  function load() {
    loaded = fill();
    return loaded;
  }

  async function fill() {
    const mine = (loads += 1);
    const [{ messages }, state] = await Promise.all([get(thread(id, "/messages"), { limit: 200 }), get(thread(id, "/pauses"))]);
    if (mine !== loads || ends.signal.aborted) return;
    seen = JSON.stringify([messages.length, state.turn_id, state.status, state.pauses.map((each) => [each.id, each.answered])]);
    log.replaceChildren();
    const follows = state.status === "running" && !busy;
    // What a running turn has done so far comes again with its events, in order.
    const again = messages.filter((each) => follows && each.turn_id === state.turn_id && ["plan", "result", "word"].includes(each.kind));
    messages.filter((each) => !again.includes(each)).forEach(message);
    if (!messages.length) log.append(empty("Nothing was said here yet."));
    turn = state.turn_id;
    opened(["running", "paused", "stopped"].includes(state.status));
    waiting.look();
    work.look();
    tools.replaceChildren(state.status ? status(state.status) : "", h("button", { type: "button", class: "quiet", onclick: rename }, "rename"),
      h("button", { type: "button", class: "quiet", onclick: archive }, "archive"));
    await waits(state.pauses);
    explain();
    if (["cut_off", "stopped"].includes(state.status)) {
      log.append(h("p", { class: "step" }, "The turn was interrupted. ", h("button", { type: "button", onclick: async () => { await follow((heard) => stream("POST", thread(id, "/resume"), {}, heard)); await load(); } }, "Resume")));
    }
    if (follows) {
      follow((heard) => stream("GET", `turns/${encodeURIComponent(state.turn_id)}/events`, {}, heard, ends.signal))
        .then(load, () => { again.forEach(message); opened(true); }); // it keeps no events, or the person has left
    }
    atEnd();
  }

  async function refresh() {
    if (isNew || ends.signal.aborted) return;
    waiting.look();
    work.look();
    if (busy) return;
    const [{ messages }, state] = await Promise.all([get(thread(id, "/messages"), { limit: 200 }), get(thread(id, "/pauses"))]);
    const now = JSON.stringify([messages.length, state.turn_id, state.status, state.pauses.map((each) => [each.id, each.answered])]);
    if (!busy && now !== seen && !log.contains(document.activeElement?.closest("textarea, input"))) await load();
  }

  async function rename() {
    const input = h("input", { id: "title", value: title.textContent, maxlength: 120 });
    const made = h("form", {}, h("label", { for: "title" }, "Title"), input, h("button", { class: "primary" }, "Rename"));
    const shown = dialog("Rename", made);
    made.addEventListener("submit", async (event) => {
      event.preventDefault();
      await call("PUT", thread(id, "/title"), { title: input.value.trim() || null });
      title.textContent = input.value;
      shown.close();
    });
  }

  async function archive() {
    await call("PUT", thread(id, "/archived"), { archived: true });
    notice("Archived. It comes back with its next turn.");
    location.hash = "#/threads";
  }

  /** The conversation exists from its first event on, so from then on the address names it, if this page is still shown. */
  function begun() {
    if (!isNew) return;
    isNew = false;
    if (location.hash === "#/threads/new") history.replaceState(null, "", `#/threads/${encodeURIComponent(id)}`);
  }

  function problem(error, said) {
    log.append(h("p", { class: "problem", role: "alert" }, error.message));
    atEnd();
    if (!field.value) field.value = said;
  }

  /** Say something beside the turn that runs or waits. */
  async function beside(said, way) {
    try {
      await begins;
      await say(id, way, said, role.value.trim(), !of);
      if (!busy) await load(); // the turn ended meanwhile, and it begins the next one
    } catch (error) {
      problem(error, said);
    }
    await waiting.look();
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const said = field.value.trim();
    if (!said) return;
    field.value = "";
    await loaded.catch(() => {}); // whoever is quicker than the page does not know yet whether a turn runs
    if (open) {
      await beside(said, ways.way());
      return;
    }
    log.querySelector(".empty")?.remove();
    bubble("mine", "you", h("p", {}, said));
    atEnd();
    const given = { text: said, key: fresh() };
    if (role.value.trim()) given.role = { content: role.value };
    try {
      await follow((heard) => stream("POST", thread(id, "/messages"), given, (event) => { begun(); heard(event); }));
      await load();
      await changed();
    } catch (error) {
      problem(error, said);
    }
    if ([document.body, send].includes(document.activeElement)) field.focus(); // never taken from where a person types
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); form.requestSubmit(); }
  });
  role.addEventListener("change", explain);

  return {
    refresh, leave: () => ends.abort(),
    is: (other) => same(other, id),
    name: (stored) => { if (stored) title.textContent = stored; },
    load: async () => { if (isNew) { log.append(empty("Say something to begin.")); field.focus(); } else await load(); },
  };
}
