/* The SQL console: statements are sent, and what they came to is laid out. Everything is put in as text. */

const { send, toast, Problem, stale } = await import(`./app.js${new URL(import.meta.url).search}`);
const { readable } = await import(`./letters.js${new URL(import.meta.url).search}`);

const MOST_ROWS = 500;
const MOST_KEPT = 50;
const KEY = "horae-sql-history";
const $ = (id) => document.getElementById(id);
const editor = $("statements");
const button = $("sql-run");
const results = $("sql-results");
const picker = $("sql-history");

/* ---- history ------------------------------------------------------------------------------------------------------ */
// A statement with a password or a secret in it is not for keeping.
const HIDING = /\b(password|secret)\b/i;
function kept() { try { return JSON.parse(localStorage.getItem(KEY) ?? "[]").filter((each) => typeof each === "string"); } catch { return []; } }
function keep(text) {
  if (!HIDING.test(text)) {
    const all = [text, ...kept().filter((each) => each !== text)].slice(0, MOST_KEPT);
    try { localStorage.setItem(KEY, JSON.stringify(all)); } catch { /* private windows keep nothing */ }
  }
  listHistory();
}
function listHistory() {
  const all = kept();
  picker.replaceChildren(new Option("History", ""), ...all.map((text) => new Option(text.replace(/\s+/g, " ").slice(0, 80), text)));
  if (all.length) picker.append(new Option("Forget all of it", "\0"));
  picker.disabled = !all.length;
}
picker.addEventListener("change", () => {
  if (picker.value === "\0") { try { localStorage.removeItem(KEY); } catch { /* as above */ } listHistory(); }
  else if (picker.value) put(picker.value);
  picker.value = "";
});
function put(text) { editor.value = text; editor.focus(); editor.setSelectionRange(text.length, text.length); }

/* ---- typing ------------------------------------------------------------------------------------------------------- */
let leaves = false;
editor.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); run(); return; }
  if (event.key === "Escape") { leaves = true; return; }
  if (event.key === "Tab" && !event.shiftKey && !leaves && !event.ctrlKey && !event.altKey) {
    event.preventDefault();
    editor.setRangeText("  ", editor.selectionStart, editor.selectionEnd, "end");
  }
  if (event.key !== "Shift") leaves = false;
});
document.addEventListener("click", (event) => {
  const whole = event.target.closest("[data-statement]");
  if (whole) put(whole.dataset.statement);
  const part = event.target.closest("[data-insert]");
  if (part) { editor.setRangeText(part.dataset.insert, editor.selectionStart, editor.selectionEnd, "end"); editor.focus(); }
});

/* ---- results ------------------------------------------------------------------------------------------------------ */
function made(tag, name = "", text = null) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== null) element.textContent = text;
  return element;
}
const shown = (value) => value === null || value === undefined ? "NULL" : readable(typeof value === "object" ? JSON.stringify(value) : String(value));
const quoted = (value) => { const text = value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value); return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text; };
const asCsv = (result) => [result.columns, ...result.rows].map((row) => row.map(quoted).join(",")).join("\r\n");
const asJson = (result) => JSON.stringify(result.rows.map((row) => Object.fromEntries(result.columns.map((name, at) => [name, row[at]]))), null, 2);
async function copy(text) {
  try { await navigator.clipboard.writeText(text); toast("Copied."); } catch { toast("The browser does not let this page copy.", "bad"); }
}
function copier(title, give) {
  const one = made("button", "button small ghost", title);
  one.type = "button";
  one.addEventListener("click", () => copy(give()));
  return one;
}
function table(result) {
  const wrap = made("div", "table-wrap result-table");
  wrap.tabIndex = 0;
  const grid = made("table", "table compact");
  const head = grid.createTHead().insertRow();
  const isNumber = result.columns.map((_, at) => result.rows.length > 0 && result.rows.every((row) => row[at] === null || typeof row[at] === "number"));
  for (const [at, name] of result.columns.entries()) { const cell = made("th", isNumber[at] ? "num" : "", name); cell.scope = "col"; head.append(cell); }
  const body = grid.createTBody();
  for (const row of result.rows.slice(0, MOST_ROWS)) {
    const line = body.insertRow();
    for (const value of row) {
      const cell = line.insertCell();
      cell.textContent = shown(value);
      cell.className = value === null ? "null" : isNumber[cell.cellIndex] ? "num mono" : "mono";
    }
  }
  wrap.append(grid);
  return wrap;
}
function resultCard(result, number) {
  const card = made("section", "card flush result");
  card.setAttribute("aria-label", `Result ${number}`);
  const head = made("div", "card-head");
  const title = made("h2", "card-title", result.message || result.statement);
  const note = made("span", "card-note", result.statement);
  if (result.message && result.statement) title.append(" ", note);
  head.append(title);
  card.append(head);
  if (result.columns && result.rows) {
    const tools = made("div", "button-row");
    tools.append(copier("Copy as CSV", () => asCsv(result)), copier("Copy as JSON", () => asJson(result)));
    head.append(tools);
    const body = made("div", "card-body");
    body.append(result.rows.length ? table(result) : made("p", "pad soft", "No rows."));
    const left = result.rows.length - MOST_ROWS;
    if (left > 0) body.append(made("p", "pad soft", `${left} more rows are not drawn; copying has them.`));
    if (result.cut) body.append(made("p", "pad soft", "There are more rows than a result may have: ask for fewer."));
    card.append(body);
  } else card.append(made("div", "card-body"));
  return card;
}
function faultCard(error) {
  const told = error.document ?? {};
  const box = made("div", "notice tone-bad fault");
  box.setAttribute("role", "alert");
  const body = made("div");
  // The message has its picture below it, with a caret where the fault is.
  const [first, ...picture] = readable(told.detail ?? error.message).split("\n");
  const reason = made("p");
  reason.append(made("strong", "", first));
  body.append(reason);
  if (picture.length) body.append(made("pre", "caret-picture", picture.join("\n")));
  if (told.hint) body.append(made("p", "", told.hint));
  const line = Number(told.details?.line);
  if (line) {
    const go = made("button", "button small", `Go to line ${line}, column ${told.details.column}`);
    go.type = "button";
    go.addEventListener("click", () => {
      const lines = editor.value.split("\n");
      const at = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0) + Number(told.details.column) - 1;
      editor.focus();
      editor.setSelectionRange(at, at + 1);
    });
    body.append(go);
  }
  box.append(body);
  return box;
}
async function run() {
  const picked = editor.value.slice(editor.selectionStart, editor.selectionEnd);
  const text = picked.trim() ? picked : editor.value;
  if (!text.trim() || button.getAttribute("aria-busy") === "true") return;
  button.setAttribute("aria-busy", "true");
  const began = performance.now();
  try {
    const answer = await send("POST", "/api/v1/sql", { text, each: $("sql-each").checked });
    const took = performance.now() - began;
    results.replaceChildren(...answer.results.map((each, at) => resultCard(each, at + 1)), made("p", "soft took", `Took ${took < 1000 ? `${Math.round(took)} ms` : `${(took / 1000).toFixed(1)} s`}.`));
    stale();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    results.replaceChildren(faultCard(error));
  } finally {
    button.removeAttribute("aria-busy");
    keep(text.trim());
  }
}
button.addEventListener("click", run);
listHistory();
if (!editor.value) editor.focus();
