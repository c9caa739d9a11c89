// The frame around the pages: which one is shown, who speaks, light or dark, shortcuts, and what is new.

import { ApiError, call, get, live, own, who } from "./api.js";
import { dialog, empty, h, notice } from "./dom.js";
import * as bell from "./bell.js";
import * as board from "./board.js";
import * as cases from "./cases.js";
import * as conversations from "./conversations.js";
import * as memory from "./memory.js";
import * as pauses from "./pauses.js";
import * as schedules from "./schedules.js";
import * as skills from "./skills.js";
import * as society from "./society.js";
import * as trace from "./trace.js";
import * as workers from "./workers.js";

// Each page: its title, what makes it from the rest of the address, and which changes it wants to know.
const PAGES = {
  threads: { title: "Conversations", show: conversations.show, wants: "threads" },
  pauses: { title: "Waiting", show: pauses.show, wants: "threads" },
  society: { title: "Society", show: society.show, wants: "society" },
  memory: { title: "Memory", show: memory.show },
  schedules: { title: "Schedules", show: schedules.show },
  skills: { title: "Skills", show: skills.show },
  workers: { title: "Workers", show: workers.show },
  briefs: { title: "Board", show: board.show, wants: "society" },
  traces: { heading: "Trace", show: trace.show },
  cases: { heading: "Case", show: cases.show, wants: "society" },
};

const LOAD_MS = 3000; // for the pages of capabilities

const view = document.getElementById("view");
let page = null; // what is shown: {name, refresh, leave}
let source = null;

function place() {
  const [, name, ...rest] = location.hash.split("/");
  return { name: PAGES[name] ? name : "threads", rest: rest.map(decodeURIComponent) };
}

async function open() {
  const { name, rest } = place();
  ring();
  for (const link of document.querySelectorAll("#pages a")) {
    if (link.dataset.page === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (page?.name === name && page.move) return page.move(rest);
  page?.leave?.();
  view.replaceChildren();
  document.querySelectorAll("#notices .bad").forEach((each) => each.remove());
  const opening = page = { name };
  try {
    page = { name, ...(await PAGES[name].show(view, rest)) };
    if (opening.stale) page.refresh?.();
  } catch (error) {
    failed(error, PAGES[name].title || PAGES[name].heading);
  }
}

/** Show the page that is open as it is now. What changes while it opens may be missing in it. */
function refresh() {
  if (page.refresh) page.refresh();
  else page.stale = true;
}

/** Show an error where it is seen: in place of a page that cannot be shown, of which `title` is given, or in passing. */
export function failed(error, title = "") {
  if (!(error instanceof ApiError)) throw error;
  if (error.status === 401) return login(error);
  if (error.code === "invalid_argument" && error.record.problem.includes("workspace")) return choose();
  if (!title) return notice(error.message, "bad");
  view.replaceChildren(h("section", { class: "page" }, h("h1", {}, title), empty(sentences(error.record))));
}

const sentences = ({ problem, remedy }) => [problem, remedy].map((each) => `${each[0].toUpperCase()}${each.slice(1)}.`).join(" ");

window.addEventListener("unhandledrejection", (event) => {
  if (event.reason instanceof ApiError) { event.preventDefault(); failed(event.reason); }
  else if (event.reason?.name === "AbortError") event.preventDefault();
});

// --- who speaks ---------------------------------------------------------------------------------------------------------

function login(error) {
  page?.leave?.();
  page = null;
  if (!error.record.accepts_tokens) {
    view.replaceChildren(h("section", { class: "card narrow" }, h("h1", {}, "Log in"), h("p", {}, sentences(error.record))));
    return;
  }
  const token = h("input", { type: "password", id: "token", autocomplete: "current-password", required: true });
  const problem = h("p", { class: "problem", role: "alert" });
  const form = h("form", { class: "card narrow" },
    h("h1", {}, "Log in"), h("p", {}, "This server wants a token. It is exchanged for a cookie, and not kept here."),
    h("label", { for: "token" }, "Token"), token, problem, h("button", { class: "primary" }, "Log in"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try { await call("POST", "login", { token: token.value }); await begin(); }
    catch (error) { problem.textContent = error.message; }
  });
  view.replaceChildren(form);
  token.focus();
}

function choose() {
  const workspace = h("input", { id: "workspace", value: who.workspace ?? "" });
  const account = h("input", { id: "account", value: who.account ?? "" });
  const form = h("form", {},
    h("label", { for: "workspace" }, "Workspace"), workspace,
    h("label", { for: "account" }, "Account, as which you speak"), account,
    h("p", { class: "hint" }, "Left empty, they are what the server knows of you."),
    h("button", { class: "primary" }, "Use these"),
    own.session ? h("button", { type: "button", class: "danger", onclick: leave }, "Log out") : null);
  const shown = dialog("Who speaks", form);
  async function leave() {
    await call("POST", "logout");
    shown.close();
    await begin();
  }
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    who.workspace = workspace.value.trim() || null;
    who.account = account.value.trim() || null;
    localStorage.setItem("who", JSON.stringify(who));
    shown.close();
    await begin();
  });
}

async function begin() {
  source?.close();
  let me;
  try { me = await get("me"); } catch (error) { return failed(error); }
  Object.assign(own, { who: [me.workspace, me.account].filter(Boolean).join(" · "), prefix: me.thread_prefix, session: me.session });
  document.getElementById("who").textContent = own.who;
  bell.reset();
  source = live(({ changed, reports }) => {
    bell.heard(reports, looks());
    ring();
    if (changed.includes(PAGES[page?.name]?.wants)) refresh();
    count();
  });
  page?.leave?.();
  page = null;
  count();
  await open();
}

/** Show beside "Waiting" how many threads wait. */
async function count() {
  const { threads } = await get("threads", { status: "paused", limit: 100 });
  beside("pauses", threads.length);
}

/** Show a number beside a page, if it is not 0. */
function beside(name, number) {
  const shown = document.querySelector(`[data-page="${name}"] .count`);
  shown.textContent = number || "";
  shown.hidden = !number;
}

/** The conversation that a person looks at. */
function looks() {
  const { name, rest } = place();
  return name === "threads" && !document.hidden ? rest[0] : undefined;
}

/** Show how much work has reported that the person has not seen. */
function ring() {
  if (looks()) bell.see(looks());
  const number = bell.unseen().length;
  document.title = `${number ? `(${number}) ` : ""}${PAGES[place().name].title || PAGES[place().name].heading} · worldagent`;
  beside("threads", number);
}

// --- light and dark, keys -----------------------------------------------------------------------------------------------

function theme(next) {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  document.documentElement.dataset.theme = next ?? (now === "dark" ? "light" : "dark");
  if (!next) localStorage.setItem("theme", document.documentElement.dataset.theme);
}

const KEYS = [
  ["1 to 8", "the pages"], ["/", "search"], ["j, k", "the next or the one before in a list"], ["n", "a new conversation"],
  ["w", "what waits for you"], ["?", "this help"], ["Esc", "close, or leave a field"],
];

function help() {
  dialog("Keys", h("dl", { class: "keys" }, KEYS.map(([key, does]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, does)])));
}

document.addEventListener("keydown", (event) => {
  const inField = event.target.matches("input, textarea, select");
  if (event.key === "Escape" && inField) return event.target.blur();
  if (inField || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const names = Object.keys(PAGES).slice(0, 8);
  if (/^[1-8]$/.test(event.key)) location.hash = `#/${names[event.key - 1]}`;
  else if (event.key === "/") { event.preventDefault(); document.querySelector("input[type=search]")?.focus(); }
  else if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
  else if (event.key === "n") { event.preventDefault(); location.hash = "#/threads/new"; }
  else if (event.key === "w") location.hash = "#/pauses";
  else if (event.key === "?") help();
});

function step(by) {
  const items = [...document.querySelectorAll(".list a, .list button.item")];
  const at = items.indexOf(document.activeElement);
  items[Math.min(Math.max(at + by, 0), items.length - 1)]?.focus();
}

// The pages of capabilities of other packages, after ours. One that cannot be loaded in time is left out.
const names = await fetch("capabilities").then((answer) => answer.json(), () => []);
const loaded = await Promise.allSettled(names.map((name) => Promise.race([
  import(`./capabilities/${encodeURIComponent(name)}.js`),
  new Promise((_, fail) => setTimeout(() => fail(new Error(`It takes more than ${LOAD_MS} ms.`)), LOAD_MS)),
])));
loaded.forEach(({ value, reason }, at) => {
  if (value) PAGES[names[at]] ??= { title: value.title, show: value.show };
  else console.error(`The page of the capability ${names[at]} cannot be loaded.`, reason);
});

const chosen = localStorage.getItem("theme");
if (chosen === "dark" || chosen === "light") theme(chosen);
try { Object.assign(who, JSON.parse(localStorage.getItem("who") ?? "{}")); } catch { localStorage.removeItem("who"); }
document.getElementById("theme").addEventListener("click", () => theme());
document.getElementById("help").addEventListener("click", help);
document.getElementById("who").addEventListener("click", choose);
document.getElementById("pages").append(
  ...Object.entries(PAGES).filter(([, one]) => one.title).map(([name, one]) =>
    h("li", {}, h("a", { href: `#/${name}`, "data-page": name }, one.title, h("span", { class: "count", hidden: true })))),
);
window.addEventListener("hashchange", open);
// The person is back, or has seen something in another tab.
for (const [where, event] of [[document, "visibilitychange"], [window, "storage"]]) {
  where.addEventListener(event, () => { ring(); if (page?.name === "threads") refresh(); });
}
begin();
