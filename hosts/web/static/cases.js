// A case: all that followed from one event, one message of a person or one turn, as one trail.

import { get } from "./api.js";
import { badge, h, money, status, time } from "./dom.js";

/** Where a step is shown whole: the trace of its turn. */
const place = (step) => (step.turn_id ? h("a", { href: `#/traces/${encodeURIComponent(step.turn_id)}` }, step.what) : step.what);

const row = (step) => h("tr", {},
  h("td", {}, time(step.at)), h("th", { scope: "row" }, badge(step.kind, "info"), " ", step.who), h("td", {}, place(step)),
  h("td", {}, step.result ? status(step.result) : ""), h("td", {}, step.authority, step.why ? h("div", { class: "hint" }, step.why) : ""),
  h("td", { class: "number" }, money(step.usage?.cost)));

export async function show(view, [id]) {
  const page = h("section", { class: "page wide" });
  view.append(page);

  async function refresh() {
    const { case: found } = await get(`cases/${encodeURIComponent(id)}`);
    const head = ["when", "who", "what", "outcome", "allowed by, and why", "cost"].map((title) => h("th", { scope: "col" }, title));
    page.replaceChildren(
      h("p", {}, h("a", { href: "#/society" }, "‹ the society")), h("h1", {}, "Case"),
      h("div", { class: "row" }, badge(found.open ? "open" : "over", found.open ? "warn" : "good"), h("code", {}, found.id)),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "What happened" },
        h("table", { class: "trace" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, found.steps.map(row)))),
      h("ul", {}, found.costs.map((each) => h("li", {}, `${each.who}: ${each.calls} calls of models `, money(each.cost)))),
      found.cut ? h("p", { class: "hint" }, "It has more messages than are shown.") : "");
  }

  await refresh();
  return { refresh };
}
