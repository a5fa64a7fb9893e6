/* What every page does: theme, keyboard, dialogs, tabs, copying, times that keep going, and forms that act.

   data-action="POST /api/v1/…"   a form that is sent as JSON. Fields go by their names; empty ones are left out.
                                  data-type="json|value|number|boolean|moment|list" on a field says what its text means.
   data-confirm="…"               asked first; data-confirm-title is on the button
   data-next="/jobs"              where to go when it is done; {run_id} and the like are taken from the answer
   data-quiet                     no message when it is done
   data-open="ID", data-close     opens and closes dialogs. What else an opener says in data-… fills the dialog:
                                  data-action-template="POST /api/v1/jobs/{job}/pause" on its forms, data-href-template on
                                  links, data-fill="job" on texts, data-set-FIELD on fields; what has data-needs="alter" is
                                  there only where the opener's data-may says that word
   data-preview-of="ID"           says what the time in that field comes to
   data-submit                    a field that sends its form when it changes
   data-copy="ID"                 copies that element's text
   data-tabs                      a tablist
   data-tip="…"                   a hint where the pointer is
   Other modules take what is exported here by await import(`./app.js${new URL(import.meta.url).search}`): addresses of
   static files carry one digest, and a module under two addresses would run twice.
   A form tells "horae:done" (detail: the answer) when it is done, and the document tells "horae:stale" then. */

const root = document.documentElement;
const $ = (id) => document.getElementById(id);
const kept = {
  get(name) { try { return localStorage.getItem(name); } catch { return null; } },
  set(name, value) { try { value ? localStorage.setItem(name, value) : localStorage.removeItem(name); } catch { /* private windows keep nothing */ } },
};

/* ---- theme ------------------------------------------------------------------------------------------------------- */
const THEMES = ["", "light", "dark"];
function showTheme(theme) {
  if (theme) root.dataset.theme = theme; else delete root.dataset.theme;
  const button = $("theme");
  if (!button) return;
  const told = `Theme: ${theme || "automatic"}`;
  button.setAttribute("aria-label", told);
  button.title = told;
  button.querySelector("use").setAttribute("href", `#i-theme-${theme || "auto"}`);
}
function nextTheme() {
  const theme = THEMES[(THEMES.indexOf(kept.get("horae-theme") ?? "") + 1) % THEMES.length];
  kept.set("horae-theme", theme);
  // The server is told too, or each page would be painted in the other theme first.
  document.cookie = `horae_theme=${theme}; path=/; max-age=${theme ? 31536000 : 0}; samesite=lax`;
  showTheme(theme);
}
showTheme(THEMES.includes(kept.get("horae-theme")) ? kept.get("horae-theme") : "");
$("theme")?.addEventListener("click", nextTheme);

/* ---- times ------------------------------------------------------------------------------------------------------- */
const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
export function lengthText(seconds) {
  let rest = Math.max(0, Math.round(seconds));
  const parts = [];
  for (const [unit, size] of UNITS) {
    const count = Math.floor(rest / size);
    if (count || (unit === "s" && !parts.length)) parts.push(`${count} ${unit}`);
    else if (parts.length) break;
    rest -= count * size;
    if (parts.length === 2) break;
  }
  return parts.join(" ");
}
const two = (number) => String(number).padStart(2, "0");
const day = (at) => `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
const clock = (at, seconds = true) => `${two(at.getHours())}:${two(at.getMinutes())}${seconds ? `:${two(at.getSeconds())}` : ""}`;
export const momentText = (at) => `${day(at)} ${clock(at)}`;
let skew = 0;
/** Now, by the server's clock. */
export const now = () => Date.now() + skew;
export function setNow(text) { const at = Date.parse(text); if (at && Math.abs(at - Date.now()) > 2000) skew = at - Date.now(); }
function relative(at) {
  const ahead = (at - now()) / 1000;
  if (Math.abs(ahead) < 1) return "now";
  return ahead > 0 ? `in ${lengthText(ahead)}` : `${lengthText(-ahead)} ago`;
}
function told(element, at) {
  const mode = element.dataset.time;
  if (mode === "relative") return relative(at);
  if (mode === "clock") return clock(at, at.getSeconds() !== 0);
  if (mode === "absolute") return momentText(at);
  const when = day(at) === day(new Date(now())) ? `today ${clock(at)}` : momentText(at);
  return `${relative(at)} · ${when}`;
}
export function tick(within = document) {
  for (const element of within.querySelectorAll("time[data-time]")) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    const text = told(element, at);
    if (element.textContent !== text) element.textContent = text;
    if (!element.dataset.titled) {
      element.title = `${momentText(at)} here\n${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;
      element.dataset.titled = "1";
    }
  }
  for (const element of within.querySelectorAll("[data-since]")) {
    const text = lengthText((now() - Date.parse(element.dataset.since)) / 1000);
    if (element.textContent !== text) element.textContent = text;
  }
}
function moveDay() {
  const at = new Date(now()), minute = at.getHours() * 60 + at.getMinutes();
  $("dayrule")?.querySelector(".dayrule-now").setAttribute("x", minute - 1.5);
  $("dayrule")?.querySelector(".dayrule-past").setAttribute("width", minute);
}
for (const each of document.querySelectorAll("[data-zone]")) each.textContent = Intl.DateTimeFormat().resolvedOptions().timeZone || "local";
tick();
moveDay();
setInterval(() => { if (!document.hidden) { tick(); moveDay(); } }, 1000);
document.addEventListener("visibilitychange", () => { if (!document.hidden) tick(); });
document.addEventListener("horae:swapped", (event) => tick(event.target));

/* ---- messages ---------------------------------------------------------------------------------------------------- */
const SIGNS = { ok: "check", bad: "cross", warn: "warn", run: "info" };
function drawn(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
}
/** A message in a corner. `link`: [text, address]. */
export function toast(text, tone = "ok", link = null) {
  const box = document.createElement("div");
  box.className = `toast tone-${tone}`;
  if (tone === "bad") box.setAttribute("role", "alert");
  const body = document.createElement("div");
  body.textContent = text.replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ/g, (at) => momentText(new Date(at)));
  if (link) {
    const anchor = document.createElement("a");
    [anchor.textContent, anchor.href] = link;
    body.append(" ", anchor);
  }
  const close = document.createElement("button");
  close.type = "button";
  close.className = "tool";
  close.setAttribute("aria-label", "Dismiss");
  close.append(drawn("close"));
  close.addEventListener("click", () => box.remove());
  box.append(drawn(SIGNS[tone] ?? "info"), body, close);
  const region = $("toasts");
  // A dialog that is open covers the page: the message goes into it, and what was told before is old.
  const host = document.querySelector("dialog[open]") ?? document.body;
  if (host !== document.body) region.replaceChildren();
  host.append(region);
  region.append(box);
  while (region.children.length > 4) region.firstChild.remove();
  const leave = () => { if (box.matches(":hover, :focus-within")) setTimeout(leave, 2000); else box.remove(); };
  setTimeout(leave, tone === "bad" ? 15000 : 6000);
}

/* ---- asking the server ------------------------------------------------------------------------------------------- */
function key() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (each) => each.toString(16).padStart(2, "0")).join("");
}
export class Problem extends Error {
  constructor(document, status) {
    super([document.detail || document.title || `The server answered ${status}`, document.hint].filter(Boolean).join(" "));
    this.document = document;
    this.status = status;
  }
}
/** Sends JSON and gives the answer; raises a Problem, whose message is for people. */
export async function send(method, url, body = undefined) {
  const headers = { Accept: "application/json" };
  const csrf = document.querySelector('meta[name="csrf"]')?.content;
  if (csrf) headers["X-CSRF-Token"] = csrf;
  if (method !== "GET") headers["Idempotency-Key"] = key();
  const has_body = body !== undefined && method !== "GET" && method !== "DELETE";
  if (has_body) headers["Content-Type"] = "application/json";
  else if (body && Object.keys(body).length) url += `?${new URLSearchParams(body)}`;
  let answer;
  try {
    answer = await fetch(url, { method, headers, body: has_body ? JSON.stringify(body) : undefined, credentials: "same-origin" });
  } catch {
    throw new Problem({ title: "The server cannot be reached." }, 0);
  }
  const text = await answer.text();
  let value = {};
  try { value = text ? JSON.parse(text) : {}; } catch { value = { title: `The server answered ${answer.status}` }; }
  if (answer.status === 401) location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
  if (!answer.ok) throw new Problem(value, answer.status);
  return value;
}
function valueOf(field, text) {
  const type = field.dataset?.type;
  const name = field.labels?.[0]?.textContent || field.name;
  if (type === "json") {
    try { return JSON.parse(text); } catch (error) { throw new Problem({ detail: `${name} is not JSON: ${error.message}` }, 0); }
  }
  if (type === "value") {
    try { return JSON.parse(text); } catch { return text; }
  }
  if (type === "number") return Number(text);
  if (type === "boolean") return text === "true" || text === "on" || text === "1";
  if (type === "list") return text.split(",").map((each) => each.trim()).filter(Boolean);
  if (type === "moment") {
    const at = new Date(text);
    if (Number.isNaN(at.getTime())) throw new Problem({ detail: `${name} is no date and time.` }, 0);
    return at.toISOString().replace(/\.\d+Z$/, "Z");
  }
  return text;
}
/** A form's fields as one object. */
export function bodyOf(form) {
  const body = {};
  for (const field of form.elements) {
    if (!field.name || field.disabled || field.type === "submit") continue;
    if (field.type === "checkbox") {
      if (field.dataset.type === "boolean") body[field.name] = field.checked;
      else if (field.checked) (body[field.name] ??= []).push(field.value);
    } else if (field.type === "radio") {
      if (field.checked && field.value) body[field.name] = valueOf(field, field.value);
    } else if (field.value !== "" || "keep" in field.dataset) {
      body[field.name] = valueOf(field, field.value);
    }
  }
  return body;
}
export const origins = new WeakMap(); // dialog: what had the focus before it, or what has been swapped for that
/** Shows a dialog, which gives the focus back when it closes. */
export const present = (dialog, origin = document.activeElement) => { origins.set(dialog, origin); dialog.showModal(); };
/** Asks a question with yes and no. */
export function confirmed(text, title = "Yes", danger = false) {
  const dialog = $("confirm");
  $("confirm-text").textContent = text;
  const yes = $("confirm-yes");
  yes.textContent = title;
  yes.className = danger ? "button danger" : "button primary";
  dialog.returnValue = "no";
  present(dialog);
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}
/* A page that is about to be left asks for nothing more: what it shows may be gone, as a job that was dropped. */
const leaving = (is) => { if (is) root.dataset.leaving = "1"; else delete root.dataset.leaving; };
addEventListener("pageshow", () => leaving(false));
/** Everything that is live on this page may be out of date. */
export const stale = () => document.dispatchEvent(new CustomEvent("horae:stale"));
async function act(form, button) {
  const [method, url] = form.dataset.action.split(" ");
  fold(form);
  if (form.dataset.confirm && !(await confirmed(form.dataset.confirm, form.dataset.confirmTitle || button?.textContent.trim() || "Yes", button?.matches(".danger")))) return;
  if (button?.getAttribute("aria-busy") === "true") return;
  button?.setAttribute("aria-busy", "true");
  leaving("next" in form.dataset);
  try {
    const answer = await send(method, url, bodyOf(form));
    form.closest("dialog")?.close();
    form.dispatchEvent(new CustomEvent("horae:done", { bubbles: true, detail: answer }));
    const next = form.dataset.next?.replace(/{(\w+)}/g, (_, name) => encodeURIComponent(answer[name] ?? ""));
    if (next) return void location.assign(next);
    const link = answer.run_id && !location.pathname.endsWith(answer.run_id) ? ["Open the run", `/runs/${encodeURIComponent(answer.run_id)}`] : null;
    if (!("quiet" in form.dataset)) toast(answer.message || "Done.", "ok", link);
    stale();
  } catch (error) {
    leaving(false);
    if (!(error instanceof Problem)) throw error;
    form.dispatchEvent(new CustomEvent("horae:failed", { bubbles: true, detail: error }));
    toast(error.message, "bad");
  } finally {
    button?.removeAttribute("aria-busy");
  }
}
document.addEventListener("submit", (event) => {
  const form = event.target.closest("form[data-action]");
  if (!form) return;
  event.preventDefault();
  act(form, event.submitter ?? form.querySelector("button:not([type=button])"));
});

/* ---- dialogs, tabs, copying -------------------------------------------------------------------------------------- */
/** Folds up the menu that something was chosen in; the focus, which comes back when a dialog closes, goes to it. */
function fold(chosen) {
  const menu = chosen?.closest("details.more");
  if (!menu) return;
  menu.open = false;
  menu.querySelector("summary").focus();
}
const filled = (template, values) => template.replace(/{(\w+)}/g, (_, name) => encodeURIComponent(values[name] ?? ""));
/** Opens a dialog for what its opener's data-… say: they fill templates of addresses, texts and fields. */
function open(dialog, opener) {
  const around = opener.closest("dialog");
  const values = { ...("pass" in opener.dataset && around ? JSON.parse(around.dataset.values ?? "{}") : {}), ...opener.dataset };
  dialog.dataset.values = JSON.stringify(values);
  for (const form of dialog.querySelectorAll("form[data-action-template]")) form.dataset.action = filled(form.dataset.actionTemplate, values);
  for (const link of dialog.querySelectorAll("[data-href-template]")) link.setAttribute("href", filled(link.dataset.hrefTemplate, values));
  for (const element of dialog.querySelectorAll("[data-fill]")) element.textContent = values[element.dataset.fill] ?? element.textContent;
  for (const element of dialog.querySelectorAll("[data-needs]")) element.hidden = !(values.may ?? "").split(" ").includes(element.dataset.needs);
  for (const [name, value] of Object.entries(values)) {
    const field = name.startsWith("set") && dialog.querySelector(`[name="${name.slice(3).toLowerCase()}"]`);
    if (field) field.value = value;
  }
  for (const preview of dialog.querySelectorAll("[data-preview-of]")) {
    const field = $(preview.dataset.previewOf);
    const at = new Date(values.next ?? preview.dataset.nowAt ?? "");
    if (field.dataset.from === "next" && !Number.isNaN(at.getTime())) field.value = `${day(at)}T${clock(at)}`;
    previewMoment(field);
  }
  dialog.dispatchEvent(new CustomEvent("horae:open", { detail: opener }));
  around?.close();
  fold(opener);
  present(dialog, origins.get(around) ?? document.activeElement);
}
/** Says beside a field what its time comes to. */
function previewMoment(field) {
  const preview = document.querySelector(`[data-preview-of="${field.id}"]`);
  if (!preview) return;
  preview.dataset.told ??= preview.textContent;
  const at = new Date(field.value);
  preview.textContent = Number.isNaN(at.getTime()) ? preview.dataset.told : `${relative(at)} · ${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}
document.addEventListener("input", (event) => previewMoment(event.target));
document.addEventListener("change", (event) => { if (event.target.matches("[data-submit]")) event.target.form.requestSubmit(); });
document.addEventListener("click", async (event) => {
  const opener = event.target.closest("[data-open]");
  if (opener) open($(opener.dataset.open), opener);
  if (event.target.closest("[data-close]")) event.target.closest("dialog")?.close();
  // A click on a dialog itself is one beside its content.
  if (event.target.tagName === "DIALOG" && event.target.matches(".dialog") && event.detail) {
    const box = event.target.getBoundingClientRect();
    if (event.clientX < box.left || event.clientX > box.right || event.clientY < box.top || event.clientY > box.bottom) event.target.close();
  }
  const copier = event.target.closest("[data-copy]");
  if (copier) {
    try {
      await navigator.clipboard.writeText($(copier.dataset.copy).textContent);
      toast("Copied.");
    } catch {
      getSelection().selectAllChildren($(copier.dataset.copy));
      toast("Selected: copy it with the keyboard.", "warn");
    }
  }
  for (const menu of document.querySelectorAll("details.who[open], details.more[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});
document.addEventListener("close", (event) => {
  const [origin, focused] = [origins.get(event.target), document.activeElement];
  if (focused === document.body || event.target.contains(focused)) origin?.focus({ preventScroll: true });
  if (event.target.contains($("toasts"))) for (const box of $("toasts").querySelectorAll(".tone-bad")) box.remove();
  document.body.append($("toasts"));
}, true);
export function showTab(tab) {
  for (const each of tab.closest("[data-tabs]").querySelectorAll('[role="tab"]')) {
    const chosen = each === tab;
    each.setAttribute("aria-selected", chosen);
    each.tabIndex = chosen ? 0 : -1;
    const panel = $(each.getAttribute("aria-controls"));
    if (panel) panel.hidden = !chosen;
  }
}
document.addEventListener("click", (event) => { const tab = event.target.closest('[data-tabs] [role="tab"]'); if (tab) showTab(tab); });
document.addEventListener("keydown", (event) => {
  const tab = event.target.closest?.('[data-tabs] [role="tab"]');
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!tab || !step) return;
  const all = [...tab.closest("[data-tabs]").querySelectorAll('[role="tab"]')];
  const next = all[(all.indexOf(tab) + step + all.length) % all.length];
  showTab(next);
  next.focus();
});

/* ---- hints ------------------------------------------------------------------------------------------------------- */
let tip = null;
function showTip(event) {
  const element = event.target.closest?.("[data-tip]");
  if (!element) { tip?.remove(); tip = null; return; }
  tip ??= document.body.appendChild(Object.assign(document.createElement("div"), { className: "tip" }));
  tip.setAttribute("role", "tooltip");
  // Times in hints stand as {2026-…Z}: the reader's own clock is put there.
  tip.textContent = element.dataset.tip.replace(/{(\d{4}-[^}]+)}/g, (_, at) => momentText(new Date(at)));
  const box = element.getBoundingClientRect();
  const own = tip.getBoundingClientRect();
  const left = Math.min(Math.max(8, box.left + box.width / 2 - own.width / 2), innerWidth - own.width - 8);
  tip.style.left = `${left}px`;
  tip.style.top = `${box.top - own.height - 8 > 4 ? box.top - own.height - 8 : box.bottom + 8}px`;
}
document.addEventListener("pointerover", showTip);
document.addEventListener("focusin", showTip);
document.addEventListener("scroll", () => { tip?.remove(); tip = null; }, { passive: true, capture: true });

/* ---- keyboard ---------------------------------------------------------------------------------------------------- */
let after_g = 0;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") for (const menu of document.querySelectorAll("details.who[open], details.more[open]")) menu.open = false;
  if (event.target.closest("input, select, textarea, [contenteditable]") || document.querySelector("dialog[open]")) return;
  if (after_g && Date.now() - after_g < 1500) {
    after_g = 0;
    const link = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
    if (link) { event.preventDefault(); location.assign(link.href); }
    return;
  }
  if (event.key === "g") after_g = Date.now();
  else if (event.key === "/" && $("search")) { event.preventDefault(); $("search").focus(); }
  else if (event.key === "?" && $("help")) present($("help"));
  else if (event.key === "t") nextTheme();
});
