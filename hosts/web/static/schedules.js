// Schedules: what starts when, its runs, and a switch to pause it.

import { call, get } from "./api.js";
import { badge, empty, h, notice, status, time } from "./dom.js";

const words = (when) => Object.entries(when).map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");

export async function show(view) {
  const list = h("ul", { class: "rows" });
  view.append(h("section", { class: "page" }, h("h1", {}, "Schedules"), list));

  async function runs(id, into) {
    const { runs: found } = await get(`schedules/${encodeURIComponent(id)}/runs`);
    into.replaceChildren(h("table", {},
      h("thead", {}, h("tr", {}, ["slot", "status", "turn", "note"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, found.map((run) => h("tr", {}, h("td", {}, time(run.slot)), h("td", {}, status(run.status)),
        h("td", {}, run.turn_id ? h("a", { href: `#/traces/${encodeURIComponent(run.turn_id)}` }, "trace") : ""), h("td", {}, run.note ?? ""))))));
    if (!found.length) into.replaceChildren(empty("It has not run yet."));
  }

  function row(schedule) {
    const path = `schedules/${encodeURIComponent(schedule.id)}`;
    const table = h("div", {});
    const change = async () => {
      await call("PUT", `${path}/paused`, { paused: !schedule.paused });
      notice(schedule.paused ? "It fires again." : "Paused.", "good");
      await refresh();
    };
    const fire = async () => { await call("POST", `${path}/run`); notice("Fired.", "good"); await runs(schedule.id, table); };
    return h("li", { class: "card" },
      h("div", { class: "row" }, h("h2", {}, schedule.id), schedule.paused ? badge("paused", "warn") : badge("on", "good"), schedule.account ? badge(schedule.account, "info") : null),
      h("p", {}, words(schedule.when), ` (${schedule.zone})`), h("p", { class: "hint" }, "starts ", words(schedule.starts)),
      h("p", { class: "hint" }, "next: ", schedule.paused ? "none while paused" : time(schedule.next_slot)),
      h("div", { class: "row" }, h("button", { type: "button", onclick: change }, schedule.paused ? "Resume" : "Pause"),
        h("button", { type: "button", onclick: fire }, "Fire now"),
        h("button", { type: "button", class: "quiet", onclick: () => runs(schedule.id, table) }, "Runs")), table);
  }

  async function refresh() {
    const { schedules } = await get("schedules");
    list.replaceChildren(...schedules.map(row));
    if (!schedules.length) list.append(h("li", {}, empty("There is no schedule. POST /schedules and the command `worldagent schedule add` add one, and `worldagent worker` starts what is due.")));
  }

  await refresh();
  return { refresh };
}
