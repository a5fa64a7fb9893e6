/* A run's output as it is printed: asked for when the run changes, and now and then while an attempt runs. It is kept at
   its end until somebody scrolls up. */

const { Pieces } = await import(`./letters.js${new URL(import.meta.url).search}`);
const { refresh } = await import(`./live.js${new URL(import.meta.url).search}`);
const { send } = await import(`./app.js${new URL(import.meta.url).search}`);

const MOST = 400_000;
const EVERY = 1500;
const $ = (id) => document.getElementById(id);
const box = $("output");
const card = $("output-card");
const pick = $("output-attempt");
const follow = $("output-follow");
const down = $("output-down");
let pieces = new Pieces();
let next = Number(box.dataset.next);
let attempt = box.dataset.attempt;
let state = box.dataset.state;
let chosen = new URLSearchParams(location.search).has("attempt");
let asking = false;
let again = false;

const atEnd = () => box.scrollHeight - box.scrollTop - box.clientHeight < 24;
const toEnd = () => { box.scrollTop = box.scrollHeight; down.hidden = true; };
function append(text) {
  if (!text) return;
  const stick = follow.checked && atEnd();
  box.append(text);
  // A page that is open for days must not grow for ever.
  if (box.textContent.length > MOST) box.textContent = box.textContent.slice(-MOST / 2);
  $("output-empty").hidden = true;
  if (stick) toEnd(); else down.hidden = atEnd();
}

async function ask() {
  if (!attempt) return;
  if (asking) { again = true; return; }
  asking = true;
  const of = attempt;
  try {
    const answer = await send("GET", `/api/v1/attempts/${encodeURIComponent(of)}/output?after=${next}`);
    if (of !== attempt) return;
    next = answer.next;
    append(pieces.add(answer.text, state !== "RUNNING"));
  } catch { /* the next change asks again */ } finally {
    asking = false;
    if (again) { again = false; ask(); }
  }
}

/** Shows another attempt from its beginning. */
function show(id) {
  const option = [...pick.options].find((each) => each.value === id);
  if (!option) return;
  pick.value = id;
  [attempt, next, state, pieces] = [id, 0, option.dataset.state, new Pieces()];
  box.textContent = "";
  box.dataset.attempt = id;
  $("output-note").textContent = option.textContent.split(" · ")[0];
  $("output-more").hidden = true;
  $("output-empty").hidden = false;
  down.hidden = true;
  ask();
}

/** The attempts as they are now; a new one that runs is shown, unless somebody has chosen another. */
async function lookAgain() {
  if (!("active" in box.dataset)) return;
  let answer;
  try { answer = await send("GET", `/api/v1/runs/${encodeURIComponent(box.dataset.run)}`); } catch { return; }
  const known = new Map([...pick.options].map((each) => [each.value, each]));
  let running = null;
  for (const task of answer.report.tasks) {
    for (const each of task.attempts) {
      let option = known.get(each.attempt_id);
      if (!option) { option = new Option("", each.attempt_id); pick.append(option); }
      option.dataset.state = each.state;
      option.textContent = `${task.name}, attempt ${each.number} · ${each.state.toLowerCase()}`;
      if (each.attempt_id === attempt) state = each.state;
      if (each.state === "RUNNING") running = each.attempt_id;
    }
  }
  if (pick.options.length) {
    $("output-tools").hidden = $("output-box").hidden = false;
    $("output-empty").textContent = answer.is_active ? "Nothing printed yet." : "Nothing printed.";
  }
  if (!answer.is_active) delete box.dataset.active;
  const first = attempt ? null : pick.options[0]?.value;
  if (running && running !== attempt && !chosen && state !== "RUNNING") show(running);
  else if (first) show(first);
  else ask();
}

card.addEventListener("horae:change", lookAgain);
// Bars grow while nothing changes.
setInterval(() => { if (!document.hidden && "active" in box.dataset) refresh($("run-head")); }, 5000);
setInterval(() => { if (!document.hidden && state === "RUNNING") ask(); }, EVERY);
pick.addEventListener("change", () => { chosen = true; show(pick.value); });
down.addEventListener("click", () => { follow.checked = true; toEnd(); box.focus(); });
box.addEventListener("scroll", () => { if (atEnd()) down.hidden = true; }, { passive: true });
follow.addEventListener("change", () => { if (follow.checked) toEnd(); });
$("output-wrap").addEventListener("change", (event) => box.classList.toggle("wrap", event.target.checked));
$("output-more").addEventListener("click", () => show(attempt));
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-attempt]");
  if (!link) return;
  event.preventDefault();
  chosen = true;
  show(link.dataset.attempt);
  card.scrollIntoView({ block: "start" });
  box.focus({ preventScroll: true });
});
toEnd();
if (state === "RUNNING") ask();
