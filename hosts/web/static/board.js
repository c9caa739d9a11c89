// The board: the task briefs of members, who has each, how far it is, and buttons to give it again or close it.

import { ApiError, call, get } from "./api.js";
import { badge, dialog, empty, h, notice, time } from "./dom.js";

const TONES = { open: "info", accepted: "info", blocked: "warn", late: "bad", failed: "bad", done: "good" };
const PAGE = 50;

export async function show(view) {
  const list = h("ul", { class: "rows" });
  const states = h("select", { "aria-label": "State", onchange: () => refresh() },
    h("option", { value: "" }, "all states"), Object.keys(TONES).map((each) => h("option", { value: each }, each)));
  const more = h("button", { type: "button", class: "quiet", onclick: () => add() }, "Older briefs");
  view.append(h("section", { class: "page" }, h("h1", {}, "Board"), h("div", { class: "row" }, states), list, more));
  let last = "";

  async function move(brief, given, said) {
    try { await call("POST", `briefs/${encodeURIComponent(brief.id)}/move`, given); }
    catch (error) {
      if (!(error instanceof ApiError)) throw error;
      notice(`${error.record.problem}. ${error.record.remedy}.`, "bad");
      return;
    }
    notice(said, "good");
    await refresh();
  }

  /** Ask for one text, and move the brief with it. */
  function ask(brief, title, label, given, said) {
    const text = h("input", { name: "text", required: true, maxlength: 200, "aria-label": label, placeholder: label });
    const send = async (event) => {
      event.preventDefault();
      asked.close();
      await move(brief, given(text.value), said);
    };
    const asked = dialog(title, h("form", { onsubmit: send }, text, h("button", { class: "primary" }, title)));
  }

  function row(brief) {
    const open = brief.state !== "done";
    return h("li", { class: "card" },
      h("div", { class: "row" }, badge(brief.state, TONES[brief.state]), h("strong", {}, brief.member), h("span", { class: "hint" }, `from ${brief.giver}`), time(brief.given)),
      h("p", {}, brief.objective),
      brief.deadline ? h("p", { class: "hint" }, "until ", time(brief.deadline)) : null,
      brief.unmet ? h("p", { class: "hint" }, `waits for ${brief.unmet} of: ${brief.after.join(", ")}`) : null,
      brief.returned ? h("p", { class: "hint" }, "It went back, and waits to be reassigned.") : null,
      brief.note ? h("p", {}, brief.note) : null,
      h("div", { class: "row" },
        open && !brief.returned ? h("button", { type: "button", onclick: () => move(brief, { move: "retry" }, "It is given again.") }, "Retry") : null,
        open ? h("button", { type: "button", onclick: () => ask(brief, "Reassign", "the id of the member", (to) => ({ move: "reassign", to }), "Reassigned.") }, "Reassign") : null,
        open && brief.state !== "failed" ? h("button", { type: "button", class: "danger", onclick: () => ask(brief, "Close", "why", (reason) => ({ move: "close", reason }), "Closed.") }, "Close") : null,
        h("a", { href: `#/cases/${encodeURIComponent(brief.case)}`, "aria-label": `case of ${brief.id}` }, "case")));
  }

  async function add() {
    const { briefs } = await get("briefs", { limit: PAGE, ...(states.value ? { state: states.value } : {}), ...(last ? { after: last } : {}) });
    list.append(...briefs.map(row));
    last = briefs.at(-1)?.id ?? last;
    more.hidden = briefs.length < PAGE;
  }

  async function refresh() {
    last = "";
    list.replaceChildren();
    try { await add(); }
    catch (error) {
      if (!(error instanceof ApiError)) throw error;
      list.append(h("li", {}, empty(`${error.record.problem}. ${error.record.remedy}.`)));
      more.hidden = true;
      return;
    }
    if (!list.children.length) list.append(h("li", {}, empty("There are no briefs.")));
  }

  await refresh();
  return { refresh };
}
