// The page of the console: the notes of the account, and a field for another one.

import { call } from "../api.js";
import { empty, h } from "../dom.js";

export const title = "Notes";

export async function show(view) {
  const list = h("ul", { class: "rows" });
  const text = h("input", { id: "note", required: true, maxlength: "1000", "aria-label": "A note" });
  const form = h("form", {}, text, h("button", { class: "primary" }, "Write"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    shown((await call("POST", "operations/notes_add", { text: text.value })).notes);
    form.reset();
  });

  function shown(notes) {
    list.replaceChildren(...notes.map((each) => h("li", { class: "card" }, each)));
    if (!notes.length) list.append(h("li", {}, empty("There are no notes yet.")));
  }

  view.append(h("section", { class: "page" }, h("h1", {}, title), form, list));
  shown((await call("POST", "operations/notes_list")).notes);
  return {};
}
