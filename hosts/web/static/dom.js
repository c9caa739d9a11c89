// Makes elements. Every text goes in as a text node, so it is never read as HTML.

/** h("button", {class: "primary", onclick: save}, "Save"): attributes, listeners (on...) and children. */
export function h(name, given = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "value" || key === "checked") made[key] = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

/** The same for SVG. */
export function svg(name, given = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(given)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** `draw`, at most once for each picture that the screen shows, however often it is called. `now` draws what still waits. */
export function onceAFrame(draw) {
  let waiting = 0;
  const later = () => { waiting ||= requestAnimationFrame(later.now); };
  later.now = () => {
    if (!waiting) return;
    cancelAnimationFrame(waiting);
    waiting = 0;
    draw();
  };
  return later;
}

/** A moment as people read it; the whole time is its tooltip. */
export function time(text) {
  if (!text) return "";
  const at = new Date(text);
  const seconds = (Date.now() - at) / 1000;
  const today = new Date().toDateString() === at.toDateString();
  const hour = { hour: "2-digit", minute: "2-digit" };
  let shown = today ? at.toLocaleTimeString([], hour) : at.toLocaleDateString([], { month: "short", day: "numeric", ...hour });
  if (seconds >= 0 && seconds < 60) shown = "now";
  return h("time", { datetime: text, title: at.toLocaleString() }, shown);
}

export const duration = (seconds) =>
  seconds === null || seconds === undefined ? "" : seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`;

/** How long something takes, as a clock shows it. */
export function elapsed(seconds) {
  const whole = Math.max(0, Math.round(seconds)), parts = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return parts.slice(whole < 3600 ? 1 : 0).map((each, at) => String(each).padStart(at ? 2 : 1, "0")).join(":");
}

export const money = (dollars) => (dollars === null || dollars === undefined ? "" : `$${dollars.toFixed(dollars < 0.01 ? 5 : 2)}`);

/** A small label; its tone is one of good, warn, bad, plain. */
export const badge = (text, tone = "plain") => h("span", { class: `badge ${tone}` }, text);

const TONES = { done: "good", running: "info", paused: "warn", stopped: "warn", cut_off: "warn", failed: "bad", cancelled: "plain" };

export const status = (name) => badge((name || "new").replace("_", " "), TONES[name] || "plain");

/** Say something in passing, which stays while a person is at it. */
export function notice(content, tone = "plain", stays = tone === "bad" ? 15000 : 5000) {
  const shown = h("p", { class: `notice ${tone}` }, h("span", {}, content), h("button", { type: "button", "aria-label": "Dismiss", onclick: () => shown.remove() }, "×"));
  document.getElementById("notices").append(shown);
  const leave = () => (shown.matches(":hover, :focus-within") ? setTimeout(leave, stays) : shown.remove());
  setTimeout(leave, stays);
  return shown;
}

/** Show a dialog; it closes with Escape, and the focus goes back to where it was. */
export function dialog(title, ...content) {
  const before = document.activeElement;
  const close = () => made.close();
  const made = h(
    "dialog", { "aria-label": title },
    h("header", {}, h("h2", {}, title), h("button", { type: "button", class: "quiet", "aria-label": "Close", onclick: close }, "×")),
    content,
  );
  made.addEventListener("close", () => { made.remove(); before?.focus(); });
  document.body.append(made);
  made.showModal();
  made.querySelector("form :is(input, textarea, select, button)")?.focus();
  return made;
}

export const empty = (text) => h("p", { class: "empty" }, text);
