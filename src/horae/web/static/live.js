/* What is live: one stream of changes, and the parts of the page that they concern, fetched again and swapped in.

   <section id="running" data-live="overview job:etl run:occ_… all" data-src="/…">   words say what concerns it, each
   percent-encoded; overview and all are touched by any change. data-src is this page where it is not given. The element
   of the same id in the answer takes its place, at most twice a second, or every data-live-every seconds; focus,
   scrolling and open details stay. One with data-live-eager is fetched as soon as the stream is there: it shows what may
   have changed since the page was made. A section with data-live-event is not swapped: it is told "horae:change". Data of
   `event: overview` comes as "horae:overview" to pages that have a data-live-overview somewhere. */

const { origins, setNow, toast } = await import(`./app.js${new URL(import.meta.url).search}`);

const PAUSE = 500;
const indicator = document.getElementById("live");
const WORDS = { live: "Live", away: "Not connected", connecting: "Connecting" };
const waiting = new Map();
const fetched = new Map();
const later = new Map();
const anew = new Set(); // what must not be an answer that somebody else got a moment ago
let latest = 0;
let told = ""; // when the last change was told: what is fetched then must not be from before it
let timer = null;

function show(state) {
  if (!indicator || indicator.dataset.state === state) return;
  indicator.dataset.state = state;
  indicator.querySelector("span").textContent = WORDS[state];
}

const sections = () => [...document.querySelectorAll("[data-live]")];
const sourceOf = (section) => section.dataset.src || location.pathname + location.search;

function concerns(section, change) {
  const words = section.dataset.live.split(/\s+/).map(decodeURIComponent);
  if (change.more || words.includes("all") || words.includes("overview")) return true;
  return (change.jobs ?? []).some((name) => words.includes(`job:${name}`)) || (change.runs ?? []).some((id) => words.includes(`run:${id}`));
}

/** Has the section fetched again: when its turn comes, or soon. */
export function refresh(section, soon = false) {
  if ("liveEvent" in section.dataset) {
    section.dispatchEvent(new CustomEvent("horae:change", { bubbles: true }));
    return;
  }
  const every = Number(section.dataset.liveEvery ?? 0) * 1000;
  const due = soon ? 0 : (fetched.get(section.id) ?? 0) + every;
  if (due > Date.now()) {
    if (!later.has(section.id)) {
      later.set(section.id, setTimeout(() => {
        later.delete(section.id);
        const again = document.getElementById(section.id);
        if (again) refresh(again);
      }, due - Date.now()));
    }
    return;
  }
  const source = sourceOf(section);
  if (!waiting.has(source)) waiting.set(source, new Set());
  waiting.get(source).add(section.id);
  if (soon) anew.add(source);
  timer ??= setTimeout(fetchAll, Math.max(0, latest + PAUSE - Date.now()));
}
/** Has everything that is live fetched again. */
export const refreshAll = () => sections().forEach((section) => refresh(section, true));

async function fetchAll() {
  timer = null;
  if (document.hidden || "leaving" in document.documentElement.dataset) return;
  latest = Date.now();
  const asked = [...waiting];
  waiting.clear();
  await Promise.all(asked.map(([source, ids]) => fetchOne(source, ids)));
}

async function fetchOne(source, ids) {
  for (const id of ids) fetched.set(id, Date.now());
  const cache = anew.delete(source) ? "reload" : "default";
  let answer;
  try {
    answer = await fetch(source, { headers: { "X-Fragment": [...ids].join(" "), "X-Told": told }, cache, credentials: "same-origin", redirect: "manual" });
  } catch { return; }
  if ("leaving" in document.documentElement.dataset) return;
  if (answer.type === "opaqueredirect" || [401, 404].includes(answer.status)) {
    // A secret that is shown once, a form half filled in: what is open is not taken away.
    if (!document.querySelector("dialog[open]")) {
      document.documentElement.dataset.leaving = "1";
      location.reload();
    }
    return;
  }
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const id of ids) {
    const [old, fresh] = [document.getElementById(id), page.getElementById(id)];
    if (old && fresh) swap(old, fresh);
  }
}

/* A button that is swapped between its press and its release never gets its click. */
let pressed = null;
// A release may never come: a menu of the browser takes that of the other buttons, another window that of any.
window.addEventListener("pointerdown", (event) => { if (event.button === 0) pressed = event.target; }, { capture: true });
for (const end of ["pointerup", "pointercancel", "blur"]) {
  window.addEventListener(end, () => setTimeout(() => {
    pressed = null;
    document.dispatchEvent(new CustomEvent("horae:released"));
  }), { capture: end !== "blur" }); // captured, it would be that of any element which the press takes the focus from
}

/** Puts `fresh` in the place of `old`: after a press there has been released, and not while somebody types or chooses there. */
export function swap(old, fresh) {
  if (old.contains(pressed)) {
    document.addEventListener("horae:released", () => { const section = document.getElementById(old.id); if (section) swap(section, fresh); }, { once: true });
    return;
  }
  const held = old.contains(document.activeElement) ? document.activeElement : null;
  if (held?.matches("input:not([type=checkbox], [type=hidden]), select, textarea") || old.querySelector("dialog[open], details.more[open]")) {
    setTimeout(() => { const section = document.getElementById(old.id); if (section) refresh(section); }, 3000);
    return;
  }
  const scrolled = [...old.querySelectorAll("[id]")].filter((each) => each.scrollTop || each.scrollLeft).map((each) => [each.id, each.scrollLeft, each.scrollTop]);
  const checked = new Set([...old.querySelectorAll("input[type=checkbox][data-keep-checked]:checked")].map((each) => each.value));
  const opened = [...old.querySelectorAll("details[id][open]")].map((each) => each.id);
  const tabs = [...old.querySelectorAll('[role="tab"][aria-selected="true"]')].map((each) => each.id);
  const held_path = held && pathTo(old, held);
  const given_back = [...document.querySelectorAll("dialog[open]")].map((dialog) => [dialog, origins.get(dialog)])
    .filter(([, origin]) => old.contains(origin)).map(([dialog, origin]) => [dialog, origin.id, pathTo(old, origin)]);
  const taken = document.importNode(fresh, true);
  old.replaceWith(taken);
  for (const [id, left, top] of scrolled) { const each = document.getElementById(id); if (each) [each.scrollLeft, each.scrollTop] = [left, top]; }
  for (const each of taken.querySelectorAll("input[type=checkbox][data-keep-checked]")) each.checked = checked.has(each.value);
  for (const id of opened) { const each = document.getElementById(id); if (each) each.open = true; }
  for (const id of tabs) { const each = document.getElementById(id); if (each?.getAttribute("aria-selected") === "false") each.click(); }
  const successor = (id, path) => (id && document.getElementById(id)) || follow(taken, path);
  for (const [dialog, id, path] of given_back) origins.set(dialog, successor(id, path));
  if (held) successor(held.id, held_path)?.focus({ preventScroll: true });
  taken.dispatchEvent(new CustomEvent("horae:swapped", { bubbles: true }));
}
function pathTo(from, element) {
  const path = [];
  for (let each = element; each !== from; each = each.parentElement) path.unshift([...each.parentElement.children].indexOf(each));
  return path;
}
function follow(from, path) {
  let each = from;
  for (const place of path) each = each?.children[place];
  return each;
}

document.addEventListener("horae:stale", refreshAll);
document.addEventListener("visibilitychange", () => { if (!document.hidden && waiting.size) fetchAll(); });

function connect() {
  const wants_overview = document.querySelector("[data-live-overview]");
  const stream = new EventSource(`/api/v1/events${wants_overview ? "?overview=1" : ""}`);
  let version = null;
  let lost = false;
  stream.addEventListener("hello", (event) => {
    show("live");
    const told = JSON.parse(event.data);
    if (version && told.version !== version) toast("The server was updated.", "run", ["Load the page again", location.href]);
    version = told.version ?? version;
    // What happened while nobody listened is not told again.
    if (lost) refreshAll();
    // Nor is what happened between the page and its stream: where that matters most, it is asked for once.
    else sections().filter((section) => "liveEager" in section.dataset).forEach((section) => refresh(section, true));
    lost = false;
  });
  stream.addEventListener("change", (event) => {
    const change = JSON.parse(event.data);
    if (change.at) { setNow(change.at); told = change.at; }
    for (const section of sections()) if (concerns(section, change)) refresh(section);
  });
  stream.addEventListener("overview", (event) => {
    document.dispatchEvent(new CustomEvent("horae:overview", { detail: JSON.parse(event.data) }));
  });
  stream.addEventListener("error", () => {
    lost = true;
    show(stream.readyState === EventSource.CLOSED ? "away" : "connecting");
    // A browser gives up on a stream that was refused; too many viewers, a server that starts: both pass.
    if (stream.readyState === EventSource.CLOSED) setTimeout(connect, 5000 + 5000 * Math.random());
  });
  addEventListener("pagehide", () => stream.close(), { once: true });
}
if (indicator) connect();
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
