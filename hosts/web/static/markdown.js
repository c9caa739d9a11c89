// A small part of Markdown, made into elements. What it does not know, such as HTML and images, stays text.

import { h } from "./dom.js";

const SAFE = ["http:", "https:", "mailto:"];
// Each part ends before the character that begins it, so a text is read once, however often it begins something.
const INLINE = /(`[^`\n]+`)|\*\*([^*\n]+)\*\*|\*([^*\n]+)\*|\[([^[\]\n]+)\]\(([^[)\s]+)\)|(https?:\/\/[^\s<>()]+[^\s<>().,;:!?])/g;

/** A link with its host behind its text, unless the text is the address: neither a user before the host nor letters of another alphabet hide it. */
function link(text, target) {
  let found;
  try { found = new URL(target); } catch { return `[${text}](${target})`; }
  if (!SAFE.includes(found.protocol)) return `[${text}](${target})`;
  const where = found.protocol === "mailto:" ? found.pathname : found.host;
  const itself = text === where || (text === target && `${text}/`.startsWith(`${found.protocol}//${where}/`));
  // Both are isolated, so that a mark of direction in the text does not turn the host around.
  return h("a", { href: found.href, rel: "noopener noreferrer nofollow", target: "_blank" }, h("bdi", {}, text), itself ? null : [" (", h("bdi", {}, where), ")"]);
}

function inline(text) {
  const found = [];
  let last = 0;
  for (const match of text.matchAll(INLINE)) {
    if (match.index > last) found.push(text.slice(last, match.index));
    const [whole, code, strong, soft, name, target, plain] = match;
    if (code) found.push(h("code", {}, code.slice(1, -1)));
    else if (strong) found.push(h("strong", {}, strong));
    else if (soft) found.push(h("em", {}, soft));
    else if (target) found.push(link(name, target));
    else found.push(link(plain, plain));
    last = match.index + whole.length;
  }
  if (last < text.length) found.push(text.slice(last));
  return found;
}

const BULLET = /^\s*(?:[-*+]|\d+[.)])\s+/;

/** Return the elements of a text. */
export function markdown(text) {
  const made = [];
  const lines = text.replaceAll("\r\n", "\n").split("\n");
  for (let at = 0; at < lines.length; ) {
    const line = lines[at];
    if (line.startsWith("```")) {
      const code = [];
      for (at += 1; at < lines.length && !lines[at].startsWith("```"); at += 1) code.push(lines[at]);
      at += 1;
      made.push(h("pre", { tabindex: "0" }, h("code", {}, code.join("\n"))));
    } else if (BULLET.test(line)) {
      const ordered = /^\s*\d/.test(line), items = [];
      for (; at < lines.length && BULLET.test(lines[at]); at += 1) items.push(h("li", {}, inline(lines[at].replace(BULLET, ""))));
      made.push(h(ordered ? "ol" : "ul", {}, items));
    } else if (/^#{1,6}\s/.test(line)) {
      made.push(h("p", { class: "heading" }, inline(line.replace(/^#+\s+/, ""))));
      at += 1;
    } else if (line.startsWith(">")) {
      const quoted = [];
      for (; at < lines.length && lines[at].startsWith(">"); at += 1) quoted.push(lines[at].replace(/^>\s?/, ""));
      made.push(h("blockquote", {}, inline(quoted.join("\n"))));
    } else if (line.trim() === "") {
      at += 1;
    } else {
      const paragraph = [];
      for (; at < lines.length && lines[at].trim() && !BULLET.test(lines[at]) && !/^(```|>|#{1,6}\s)/.test(lines[at]); at += 1) paragraph.push(lines[at]);
      made.push(h("p", {}, inline(paragraph.join("\n"))));
    }
  }
  return made;
}
