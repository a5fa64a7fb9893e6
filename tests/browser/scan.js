/* What is wrong with the page as it stands: see scanning.py. Leaves its functions in window.scan. */
(() => {
const all = (selector) => [...document.querySelectorAll(selector)];
const told = (element) => {
  const text = (element.textContent || "").trim().replace(/\s+/g, " ").slice(0, 40);
  const id = element.id ? `#${element.id}` : "";
  return `<${element.tagName.toLowerCase()}${id} class="${element.getAttribute("class") || ""}"> ${text}`;
};
const hidden = (element) => element.closest('[aria-hidden="true"]') !== null;
const visible = (element) => element.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && element.getClientRects().length > 0;

/* ---- names, order, places ---------------------------------------------------------------------------------------- */
const byId = (ids) => ids.split(/\s+/).filter(Boolean).map((id) => document.getElementById(id));
function said(element) {
  const by = element.getAttribute("aria-labelledby");
  if (by) return byId(by).map((each) => each?.textContent.trim() ?? "").join(" ").trim();
  const label = (element.getAttribute("aria-label") || "").trim();
  if (label) return label;
  const copy = element.cloneNode(true);
  for (const each of copy.querySelectorAll('[aria-hidden="true"]')) each.remove();
  const drawn = [...copy.querySelectorAll("[aria-label]")].map((each) => each.getAttribute("aria-label")).join(" ");
  return copy.textContent.trim() || drawn.trim() || (element.getAttribute("title") || "").trim();
}
function faults() {
  const found = [];
  const fault = (what, element) => found.push(element ? `${what}: ${told(element)}` : what);
  if (!document.documentElement.lang) fault("the page has no language");
  if (!document.title.trim()) fault("the page has no title");
  if (all("main").length !== 1) fault(`there are ${all("main").length} mains`);
  const ids = all("[id]").map((each) => each.id);
  for (const id of new Set(ids)) if (ids.filter((each) => each === id).length > 1) fault(`the id ${id} is there twice`);
  for (const name of ["aria-labelledby", "aria-describedby", "aria-controls", "for", "list"]) {
    for (const each of all(`[${name}]`)) if (byId(each.getAttribute(name)).includes(null)) fault(`${name} leads nowhere`, each);
  }
  for (const each of all("input:not([type=hidden]), select, textarea")) {
    const by = [...each.labels].map((label) => label.textContent.trim()).join("") || each.getAttribute("aria-label");
    if (!by && !each.getAttribute("aria-labelledby")) fault("a field has no label", each);
  }
  for (const each of all("button, a[href], summary, [role=button], [role=tab]")) {
    if (!hidden(each) && !said(each)) fault("something to press has no name", each);
  }
  for (const each of all("svg")) {
    if (hidden(each) || each.parentElement.closest("svg")) continue;
    const role = each.getAttribute("role");
    if (role === "presentation" || role === "none") continue;
    if (!["img", "group"].includes(role)) fault("a picture is neither named nor hidden", each);
    else if (!(each.getAttribute("aria-label") || "").trim()) fault("a picture has no name", each);
  }
  for (const each of all("img")) if (!each.hasAttribute("alt")) fault("an image has no alternative", each);
  for (const each of all("dialog[open], [role=region], [role=img], [role=group], nav")) {
    if (!hidden(each) && !said(each)) fault("a part has no name", each);
  }
  for (const each of all("[tabindex]")) if (each.tabIndex > 0) fault("the order of focus is forced", each);
  for (const each of all("th")) if (!said(each)) fault("a column has no name", each);
  const reached = "a[href], button, input, select, textarea";
  for (const each of all('[aria-hidden="true"]')) {
    if (each.matches(reached) || each.querySelector(reached)) fault("what is hidden can have the focus", each);
  }
  let level = 0;
  const headings = all("h1, h2, h3, h4, h5, h6").filter(visible);
  for (const each of headings) {
    const own = Number(each.tagName[1]);
    if (own > level + 1) fault(`a heading of level ${own} follows one of ${level}`, each);
    level = own;
  }
  const first = headings.filter((each) => each.tagName === "H1").length;
  if (first !== 1) fault(`there are ${first} headings of the first level`);
  return found;
}

/* ---- contrast ---------------------------------------------------------------------------------------------------- */
function parsed(text) {
  const numbers = (text.match(/-?[\d.]+(e-?\d+)?%?/g) || []).map(Number);
  if (text.startsWith("color(srgb")) return [numbers[0] * 255, numbers[1] * 255, numbers[2] * 255, numbers[3] ?? 1];
  if (text.startsWith("rgb")) return [numbers[0], numbers[1], numbers[2], numbers[3] ?? 1];
  throw new Error(`a colour that is not understood: ${text}`);
}
const over = (top, below) => top.slice(0, 3).map((each, at) => each * top[3] + below[at] * (1 - top[3])).concat(1);
function light(colour) {
  const [red, green, blue] = colour.slice(0, 3).map((each) => {
    const part = each / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
/* What is behind an element; null where that is a picture. */
function ground(element) {
  const layers = [];
  for (let each = element; each; each = each.parentElement) {
    const style = getComputedStyle(each);
    if (style.backgroundImage !== "none") return null;
    const colour = parsed(style.backgroundColor);
    if (colour[3] > 0) layers.push(colour);
    if (colour[3] === 1) break;
  }
  return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
}
const UNJUDGED = ".visually-hidden, [disabled], [aria-busy=true], option, noscript, .skip-link";
function pale() {
  const found = [];
  const seen = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !visible(element) || element.closest(UNJUDGED)) continue;
    const style = getComputedStyle(element);
    const below = style.clipPath === "none" ? ground(element) : null;
    if (!below) continue;
    let opacity = 1;
    for (let each = element; each; each = each.parentElement) opacity *= Number(getComputedStyle(each).opacity);
    const ink = parsed(element.closest("svg text") ? style.fill : style.color);
    ink[3] *= opacity;
    const [high, low] = [light(over(ink, below)), light(below)].sort((one, other) => other - one);
    const ratio = (high + 0.05) / (low + 0.05);
    const size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    const key = `${element.className}|${style.color}|${below}`;
    if (ratio >= least || seen.has(key)) continue;
    seen.add(key);
    found.push(`${ratio.toFixed(2)} of ${least}, ${style.color} on ${below.map(Math.round)}: ${told(element)}`);
  }
  return found;
}

/* ---- width ------------------------------------------------------------------------------------------------------- */
function wide() {
  const room = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= room) return [];
  const out = all("body *").filter((each) => {
    const box = each.getBoundingClientRect();
    return box.width && box.right > room + 1 && !each.closest("dialog");
  });
  return [`${document.documentElement.scrollWidth} of ${room}`, ...out.slice(0, 8).map(told)];
}

/* ---- focus ------------------------------------------------------------------------------------------------------- */
const focused = new Set();
const unseen = [];
const within = () => document.querySelector("dialog[open]") ?? document;
const reachable = () => [...within().querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex="0"]')]
  .filter((each) => !each.disabled && each.tabIndex >= 0 && visible(each));
function listen() {
  document.addEventListener("focusin", (event) => {
    const element = event.target;
    focused.add(element);
    const style = getComputedStyle(element);
    const inner = element.closest("svg") && element.querySelector("rect, circle, use");
    const drawn = inner && parseFloat(getComputedStyle(inner).strokeWidth) >= 2;
    const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
    if (element.matches(":focus-visible") && !outlined && !drawn && !element.matches("main")) unseen.push(told(element));
  });
  document.activeElement?.blur();
  // A field for a date has parts, each of which is a stop of its own.
  return reachable().reduce((sum, each) => sum + (each.type === "datetime-local" ? 8 : each.type === "date" ? 5 : 1), 0);
}
const left = () => reachable().filter((each) => !focused.has(each)).map(told);

window.scan = { faults, pale, wide, listen, left, unseen: () => unseen };
})()
