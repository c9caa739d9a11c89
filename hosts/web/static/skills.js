// Skills: what the agent can run, and of each its package: its version, its files, and what it may call.

import { get } from "./api.js";
import { badge, empty, h } from "./dom.js";

const STARTERS = { people: "only people start it", models: "only the conversation starts it" };
const LEVELS = { given: "given in code", user: "of the user", project: "of a project", host: "of an MCP server" };

/** What a package says of itself. Its instructions come to operators only. */
function details(skill) {
  const facts = [
    ["may call", skill.allowed_tools.join(", ") || "whatever the agent can call"],
    ["may not call", skill.disallowed_tools.join(", ")],
    ["scripts", skill.scripts ? "can run, if the agent has a shell" : "never run"],
    ["needs", skill.compatibility], ["license", skill.license], ["files", skill.files.join(", ")], ["version", skill.version.slice(0, 12)],
    ...Object.entries(skill.metadata),
  ];
  const shown = [h("dl", { class: "facts" }, facts.filter(([, value]) => value).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]))];
  if (skill.instructions !== null) shown.push(h("h3", {}, "Instructions"), h("pre", { tabindex: "0" }, skill.instructions));
  return shown;
}

export async function show(view) {
  const list = h("ul", { class: "rows" });
  view.append(h("section", { class: "page" }, h("h1", {}, "Skills"), list));

  function row(skill) {
    const into = h("div", { class: "about", hidden: true });
    const button = h("button", { type: "button", class: "quiet", "aria-expanded": "false", "aria-label": `Details of ${skill.name}`, onclick: toggle }, "Details");
    async function toggle() {
      if (into.hidden) into.replaceChildren(...details((await get(`skills/${encodeURIComponent(skill.name)}`)).skill));
      into.hidden = !into.hidden;
      button.setAttribute("aria-expanded", String(!into.hidden));
    }
    return h("li", { class: "card" },
      h("div", { class: "row" }, h("h2", {}, skill.name), badge(LEVELS[skill.level] ?? skill.level),
        skill.started_by.length === 1 && badge(STARTERS[skill.started_by[0]]), button),
      h("p", {}, skill.description), skill.argument_hint && h("p", {}, `Asks for: ${skill.argument_hint}`), into);
  }

  const { skills } = await get("skills");
  list.replaceChildren(...skills.map(row));
  if (!skills.length) list.append(h("li", {}, empty("The agent has no skills.")));
  return {};
}
