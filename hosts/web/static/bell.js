// The bell: what work in the background reported that a person has not seen yet, the same in all tabs of a browser.

import { own, same } from "./api.js";
import { h, notice } from "./dom.js";

const SAYS = { done: ["is done", "good"], paused: ["waits for a person", "warn"], failed: ["failed", "bad"], cancelled: ["was cancelled", "plain"] };

const rung = new Map(); // the last notice of each task
let reports = null; // the newest ones; null until the server has told them

const place = () => `seen:${own.who}`;
const seen = () => JSON.parse(localStorage.getItem(place()) ?? "[]");
const keep = (ids) => localStorage.setItem(place(), JSON.stringify(reports.map((each) => each.id).filter((id) => ids.includes(id)))); // not those of long ago

/** The reports that were not seen, of one conversation if it is named. */
export function unseen(id = null) {
  const ids = seen();
  return (reports ?? []).filter((each) => !ids.includes(each.id) && (id === null || same(each.thread, id)));
}

/** A person looks at a conversation. */
export function see(id) {
  const found = unseen(id).map((each) => each.id);
  if (found.length) keep([...seen(), ...found]);
}

/** Ring for those of the newest reports that came since the last time, while a person looks at the conversation `here`, if at any. */
export function heard(found, here) {
  const before = (reports ?? found).map((each) => each.id);
  reports = found;
  if (localStorage.getItem(place()) === null) keep(before); // they are of before this browser came
  for (const each of found.filter(({ id }) => !before.includes(id))) {
    const [says, tone] = SAYS[each.status] ?? [each.status, "plain"], is = here && same(each.thread, here);
    const link = h("a", { href: `#/threads/${encodeURIComponent(each.thread)}`, "aria-label": "Open its conversation" }, "Open");
    rung.get(each.task)?.remove(); // what it said before
    rung.set(each.task, notice([`${each.name} ${says}. `, is ? "" : link], tone, is ? 5000 : 15000));
  }
}

/** Somebody else is here. */
export function reset() {
  reports = null;
}
