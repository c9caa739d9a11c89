// The trace of a turn: its steps as a tree, each with its place on a time line, its tokens and its cost, and where
// values went: to each argument of a call, and from each origin.

import { get } from "./api.js";
import { badge, duration, h, money, status, time } from "./dom.js";

/** Where values went: each origin, with what they reached from there. */
function drawn(ways) {
  const origins = [...new Set(ways.map(([origin]) => origin))];
  const from = (origin) => ways.filter((way) => way[0] === origin).map((way) => h("li", {}, way.slice(1).join(" → ")));
  return h("section", { class: "flows" }, h("h2", {}, "Where values went"),
    h("ul", {}, origins.map((origin) => h("li", {}, h("code", {}, origin), h("ul", {}, from(origin))))));
}

export async function show(view, [id]) {
  const { trace } = await get(`turns/${encodeURIComponent(id)}/trace`);
  const start = Date.parse(trace.start);
  const last = Math.max(...trace.nodes.map((node) => Date.parse(node.end ?? node.start)), start + 1);
  const share = (text) => (100 * (Date.parse(text) - start)) / (last - start);
  const tokens = [trace.input_tokens, trace.output_tokens].map((count) => count ?? "?").join(" + ");

  function bar(node) {
    const made = h("span", { class: `bar ${node.status === "failed" || node.code ? "bad" : node.kind}` });
    // Set by the object model, which the policy of the page allows, unlike a style attribute.
    made.style.left = `${Math.min(share(node.start), 99)}%`;
    made.style.width = `${Math.max(node.end ? share(node.end) - share(node.start) : 0, 0.6)}%`;
    return h("span", { class: "lane" }, made);
  }

  const row = (node) => {
    const name = h("span", { class: "name" }, h("span", { class: "kind" }, node.kind), " ", node.name ?? node.label ?? "", node.model && node.model !== node.name ? ` ${node.model}` : "");
    const flows = trace.flows.filter((flow) => flow.record === node.id);
    name.append(...flows.map((flow) => h("div", { class: "hint" }, `${flow.argument || "all arguments"}: ${flow.says}`)));
    name.style.paddingInlineStart = `${node.depth * 1.1}rem`;
    return h("tr", {},
      h("th", { scope: "row" }, name),
      h("td", {}, node.status ? status(node.status) : "", node.code ? badge(node.code, "bad") : "", node.withheld ? badge(`${node.withheld.toLocaleString("en")} characters withheld`, "warn") : "", (node.risk ?? []).map((risk) => badge(risk, "warn")), node.gate ? h("span", { class: "hint" }, ` ${node.gate}`) : ""),
      h("td", { class: "wide" }, bar(node)), h("td", { class: "number" }, duration(node.took)), h("td", { class: "number" }, node.tokens || ""), h("td", { class: "number" }, money(node.cost)));
  };

  view.append(h("section", { class: "page wide" },
    h("p", {}, h("a", { href: `#/threads/${encodeURIComponent(trace.thread)}` }, "‹ the conversation")),
    h("h1", {}, "Trace of a turn"),
    h("div", { class: "row" }, status(trace.status), time(trace.start),
      [trace.end ? duration((Date.parse(trace.end) - start) / 1000) : "", `${tokens} tokens`, money(trace.cost)].map((text) => h("span", {}, text)), h("code", {}, trace.id)),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Steps of the turn" },
      h("table", { class: "trace" },
        h("thead", {}, h("tr", {}, ["step", "outcome", "when", "took", "tokens", "cost"].map((title) => h("th", { scope: "col" }, title)))),
        h("tbody", {}, trace.nodes.map(row)))),
    trace.ways.length ? drawn(trace.ways) : null));
  return {};
}
