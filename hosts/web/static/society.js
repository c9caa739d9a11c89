// The society: who knows whom and by whose introduction, each member with its goals and trust, and what happened.

import { ApiError, call, get } from "./api.js";
import { badge, empty, h, notice, status, svg, time } from "./dom.js";

const SIZE = 640;

/** Members on a circle, the World Agent in the middle; a line for each that knows another, with who introduced them. */
function picture(members, contacts, choose) {
  const middle = SIZE / 2, around = members.filter((member) => member.id !== "root");
  const at = new Map([["root", [middle, middle]]]);
  around.forEach((member, index) => {
    const angle = (2 * Math.PI * index) / around.length - Math.PI / 2;
    at.set(member.id, [middle + Math.cos(angle) * (middle - 80), middle + Math.sin(angle) * (middle - 60)]);
  });
  const made = svg("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, class: "graph", role: "img", "aria-label": "Who knows whom. The table below says the same." });
  for (const one of contacts.filter((each) => at.has(each.owner) && at.has(each.id))) {
    const [[x1, y1], [x2, y2]] = [at.get(one.owner), at.get(one.id)];
    const line = svg("line", { x1, y1, x2, y2, class: ["birth", "person"].includes(one.introduced_by) ? one.introduced_by : "introduced" });
    const title = svg("title");
    title.textContent = `${one.owner} knows ${one.id}, by ${one.introduced_by}`;
    line.append(title);
    made.append(line);
  }
  for (const member of members.filter((each) => at.has(each.id))) {
    const [x, y] = at.get(member.id);
    const label = svg("text", { x, y: y + 34, "text-anchor": "middle" });
    label.textContent = member.id;
    const node = svg("g", { class: `member ${member.status}` }, svg("circle", { cx: x, cy: y, r: member.id === "root" ? 20 : 15 }), label);
    node.addEventListener("click", () => choose(member.id));
    made.append(node);
  }
  return made;
}

export async function show(view) {
  const graph = h("div", { class: "picture" });
  const members = h("ul", { class: "list" });
  const about = h("div", { class: "about", "aria-live": "polite" }, empty("Choose a member to see its goals, its trust and whom it knows."));
  const spawns = h("div", { class: "cards" });
  const events = h("ul", { class: "rows" });
  view.append(h("section", { class: "page wide" }, h("h1", {}, "Society"), spawns,
    h("div", { class: "columns" }, graph, h("div", {}, h("h2", {}, "Members"), members, about)), h("h2", {}, "Events"), events));
  let known = [];

  async function choose(id) {
    const [{ member }, { outcomes, trust }] = await Promise.all([get(`members/${encodeURIComponent(id)}`), get(`members/${encodeURIComponent(id)}/outcomes`)]);
    const scores = Object.entries(trust.scores);
    const meter = (name, value) => h("li", { class: "row" }, h("span", { class: "name" }, name), h("meter", { min: 0, max: 1, low: 0.3, high: 0.7, optimum: 1, value, "aria-label": `trust with ${name}` }), value.toFixed(2));
    about.replaceChildren(
      h("h3", {}, `${member.id}: ${member.role}`), h("p", { class: "hint" }, `soul ${member.soul_version}`, member.domains.length ? ` · ${member.domains.join(", ")}` : ""),
      h("h4", {}, "Goals"), member.goals.length ? h("ul", {}, member.goals.map((goal) => h("li", {}, goal.description, " ", badge(goal.status, goal.status === "at_risk" ? "warn" : "plain")))) : empty("None."),
      h("h4", {}, "Trust"), h("ul", { class: "plain" }, scores.map(([name, value]) => meter(name, value)), meter("anything else", trust.default)),
      h("h4", {}, "Budget"), member.budget ? h("p", {}, member.budget.text, member.budget.share >= 0.8 ? badge(member.budget.share >= 1 ? "reached" : "nearly reached", "warn") : "") : empty("No limits."),
      h("h4", {}, "Knows"), h("ul", {}, known.filter((each) => each.owner === id).map((each) => h("li", {}, each.id, h("span", { class: "hint" }, ` by ${each.introduced_by}`)))),
      h("h4", {}, "Did"), outcomes.length ? h("ul", {}, outcomes.slice(-20).reverse().map((each) => h("li", {}, badge(each.reason, each.feedback === "bad" || (!each.feedback && !each.succeeded) ? "bad" : "good"),
        ` ${each.capability}`, each.change ? ` ${each.change > 0 ? "+" : ""}${each.change.toFixed(2)}, trust ${each.trust.toFixed(2)} ` : " ", time(each.changed)))) : empty("Nothing yet."));
  }

  async function decide(id, way) {
    await call("POST", `members/${encodeURIComponent(id)}/${way}`);
    notice(way === "approve" ? "It begins." : "Rejected.", "good");
    await refresh();
  }

  async function refresh() {
    let found;
    try { found = await get("members/graph"); }
    catch (error) {
      if (!(error instanceof ApiError)) throw error;
      view.replaceChildren(h("section", { class: "page" }, h("h1", {}, "Society"), empty(`${error.record.problem}. ${error.record.remedy}.`)));
      return;
    }
    known = found.contacts;
    const people = ["root", ...new Set(known.flatMap((each) => [each.owner, each.id]))].filter((id) => !found.members.some((each) => each.id === id));
    const all = [...found.members, ...[...new Set(people)].map((id) => ({ id, status: "always" }))];
    graph.replaceChildren(picture(all, known, (id) => (found.members.some((each) => each.id === id) ? choose(id) : undefined)));
    members.replaceChildren(...found.members.map((member) => h("li", {}, h("button", { type: "button", class: "item", onclick: () => choose(member.id) },
      h("span", { class: "title" }, member.id), h("span", { class: "row" }, status(member.status), h("span", { class: "hint" }, member.role))))));
    const [waiting, happened] = await Promise.all([get("members/waiting"), get("events", { limit: 50 })]);
    spawns.replaceChildren(...waiting.spawns.map((each) => h("article", { class: "card" }, h("h3", {}, `${each.parent} wants to make ${each.id}`), h("p", {}, each.task),
      h("div", { class: "row" }, h("button", { type: "button", class: "primary", onclick: () => decide(each.id, "approve") }, "Approve"), h("button", { type: "button", class: "danger", onclick: () => decide(each.id, "reject") }, "Reject")))));
    events.replaceChildren(...happened.events.reverse().map((each) => h("li", { class: "card row" }, h("strong", {}, each.type), badge(each.domain, "info"), status(each.state),
      h("span", {}, each.member ? `${each.member}: ${each.decision?.action ?? ""}` : "no member"), h("span", { class: "hint" }, each.decision?.reason ?? ""), time(each.posted),
      h("a", { href: `#/cases/${encodeURIComponent(each.id)}`, "aria-label": `case: ${each.type} ${each.id}` }, "case"))));
    if (!happened.events.length) events.append(h("li", {}, empty("Nothing has happened yet.")));
  }

  await refresh();
  return { refresh };
}
