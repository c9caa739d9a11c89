// Memory: search, read and forget entries. Skills are not here: they are files.

import { call, get } from "./api.js";
import { badge, empty, h, notice, time } from "./dom.js";

export async function show(view) {
  const search = h("input", { type: "search", placeholder: "Search what is remembered", "aria-label": "Search memory" });
  const list = h("ul", { class: "rows" });
  view.append(h("section", { class: "page" }, h("h1", {}, "Memory"), search, list));

  function row(entry) {
    const made = h("li", { class: "card" },
      h("p", {}, entry.text),
      h("div", { class: "row hint" }, badge(entry.kind), entry.account ? badge(entry.account, "info") : badge("workspace"),
        entry.tags.map((tag) => badge(tag)), entry.untrusted.length ? badge(`untrusted: ${entry.untrusted.join(", ")}`, "warn") : null,
        time(entry.changed), "score" in entry ? h("span", {}, `fits ${entry.score.toFixed(2)}`) : null,
        h("button", { type: "button", class: "danger", onclick: () => forget(entry, made) }, "Forget")));
    return made;
  }

  async function forget(entry, made) {
    const sure = h("button", { type: "button", class: "danger" }, "Forget it for good");
    const keep = h("button", { type: "button" }, "Keep it");
    const asked = h("div", { class: "row", role: "alertdialog", "aria-label": "Forget this entry?" }, sure, keep);
    made.append(asked);
    sure.focus();
    keep.addEventListener("click", () => asked.remove());
    sure.addEventListener("click", async () => {
      await call("POST", "memory/forget", { entries: [entry.id] });
      made.remove();
      notice("Forgotten.", "good");
    });
  }

  async function refresh() {
    const text = search.value.trim();
    const { entries } = text ? await get("memory/search", { text, limit: 50 }) : await get("memory", { limit: 100 });
    list.replaceChildren(...entries.map(row));
    if (!entries.length) list.append(h("li", {}, empty(text ? "Nothing fits." : "Nothing is remembered yet.")));
  }

  let waiting = 0;
  search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(refresh, 250); });
  await refresh();
  return { refresh };
}
