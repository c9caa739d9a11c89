// Workers and functions: what the agent can call, what each does to the world, and whether a person is asked first.

import { get } from "./api.js";
import { badge, empty, h } from "./dom.js";

const GROUPS = [["Workers", ["worker"]], ["Functions", ["leaf", "flow"]], ["Kinds of work", ["shape"]]];
const RISKS = { read_only: "good", destructive: "bad" };
const DECISIONS = {
  approve: ["needs no approval", "good"], ask: ["asks for approval", "warn"],
  refuse: ["refused", "bad"], depends: ["depends on its arguments", "info"],
};

function row(one) {
  const [decision, tone] = DECISIONS[one.decision];
  return h("li", { class: "card" },
    h("div", { class: "row" }, h("h3", {}, h("code", {}, one.name)), one.title ? h("span", { class: "hint" }, one.title) : null),
    one.description ? h("p", {}, one.description) : null,
    h("div", { class: "row" }, one.risk.map((risk) => badge(risk.replace("_", " "), RISKS[risk] ?? "warn")), badge(decision, tone),
      one.untrusted ? badge("untrusted results", "warn") : null, one.offered ? null : badge("not for conversations"),
      one.capabilities.map((word) => badge(word))));
}

export async function show(view) {
  const search = h("input", { type: "search", placeholder: "Search by name and description", "aria-label": "Search workers and functions" });
  const groups = h("div", { class: "cards" });
  view.append(h("section", { class: "page" }, h("h1", {}, "Workers and functions"), search, groups));
  const { functions } = await get("functions");

  function draw() {
    const wanted = search.value.trim().toLowerCase();
    const fits = functions.filter((one) => [one.name, one.title, one.description].some((text) => text.toLowerCase().includes(wanted)));
    groups.replaceChildren(...GROUPS.flatMap(([title, kinds]) => {
      const found = fits.filter((one) => kinds.includes(one.kind));
      return found.length ? [h("h2", {}, title), h("ul", { class: "rows" }, found.map(row))] : [];
    }));
    if (!fits.length) groups.append(empty(wanted ? "Nothing is found." : "The agent can call nothing."));
  }

  search.addEventListener("input", draw);
  draw();
  return {};
}
