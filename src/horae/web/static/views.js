/* Pictures that answer when they are pointed at: strips of outcomes, the year of a job, the timeline; and the list of
   jobs, several of which can be acted on at once. */

const app = await import(`./app.js${new URL(import.meta.url).search}`);
const { momentText, lengthText, now, send, toast, stale, Problem } = app;

const two = (number) => String(number).padStart(2, "0");
const LETTERS = { C: "completed", E: "completed with errors", F: "failed", L: "failed, worker lost", X: "cancelled", S: "skipped", M: "missed", U: "unschedulable", P: "pending", Q: "queued", R: "running", O: "other", n: "to come" };
const words = (letter) => LETTERS[letter].charAt(0).toUpperCase() + LETTERS[letter].slice(1);

/* ---- strips ------------------------------------------------------------------------------------------------------ */
function markAt(strip, event) {
  const marks = strip.dataset.marks.split(";").map((each) => [each[0], ...each.slice(1).split(",")]);
  const box = strip.getBoundingClientRect();
  const places = Math.round(strip.viewBox.baseVal.width / 8);
  const place = Math.floor((event.clientX - box.left) / box.width * places) - (places - marks.length);
  return marks[place];
}
document.addEventListener("pointermove", (event) => {
  const strip = event.target.closest?.("svg[data-marks]");
  if (!strip) return;
  const mark = markAt(strip, event);
  strip.classList.toggle("points", Boolean(mark));
  if (!mark) return void delete strip.dataset.tip;
  const [state, at, took] = mark;
  strip.dataset.tip = `${words(state)}${took ? `, ${Number(took) < 1 ? `${Math.round(took * 1000)} ms` : lengthText(Number(took))}` : ""}\n${momentText(new Date(at * 1000))}`;
  event.target.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
});
document.addEventListener("click", (event) => {
  const strip = event.target.closest?.("svg[data-marks]");
  const mark = strip && markAt(strip, event);
  if (mark) location.assign(`${strip.dataset.runs}?slot=${mark[1]}`);
});

/* ---- the year ---------------------------------------------------------------------------------------------------- */
function dayAt(year, event) {
  const { left, top, step } = year.dataset;
  const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(year.getScreenCTM().inverse());
  const [week, weekday] = [Math.floor((place.x - left) / step), Math.floor((place.y - top) / step)];
  if (weekday < 0 || weekday > 6 || week < 0) return null;
  const first = new Date(Date.UTC(2000, 0, 1));
  first.setUTCFullYear(Number(year.dataset.year));
  const index = week * 7 + weekday - (first.getUTCDay() + 6) % 7;
  const told = year.dataset.days.split("|")[index];
  if (told === undefined) return null;
  first.setUTCDate(1 + index);
  return { date: `${String(first.getUTCFullYear()).padStart(4, "0")}-${two(first.getUTCMonth() + 1)}-${two(first.getUTCDate())}`, told };
}
document.addEventListener("pointermove", (event) => {
  const year = event.target.closest?.("svg[data-days]");
  if (!year) return;
  const day = dayAt(year, event);
  if (!day) return void delete year.dataset.tip;
  const parts = [...day.told.matchAll(/([A-Za-z])(\d+)/g)].map(([, letter, count]) => `${count} ${LETTERS[letter]}`);
  if (year.dataset.changes.split(" ").includes(day.date)) parts.push("the clocks change");
  year.classList.toggle("points", /[A-Z]/.test(day.told));
  year.dataset.tip = `${day.date}\n${parts.join(", ") || "nothing"}`;
  event.target.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
});
document.addEventListener("click", (event) => {
  const year = event.target.closest?.("svg[data-days]");
  const day = year && dayAt(year, event);
  if (day && /[A-Z]/.test(day.told)) location.assign(`${year.dataset.runs}?day=${day.date}#history`);
});

/** On a narrow screen the year is wider than its card: today is what one looks for. */
function showToday() {
  const [scroll, today] = [document.querySelector(".year-scroll"), document.querySelector(".day-today")];
  if (!scroll || !today || scroll.scrollLeft) return;
  scroll.scrollLeft = today.getBoundingClientRect().left - scroll.getBoundingClientRect().left - scroll.clientWidth / 2;
}
showToday();
document.addEventListener("horae:swapped", showToday);

/* ---- the clock and the timeline ---------------------------------------------------------------------------------- */
function clocks(within = document) {
  for (const element of within.querySelectorAll("[data-clock]")) {
    const at = new Date(element.dataset.clock);
    element.textContent = `${two(at.getHours())}:${two(at.getMinutes())}`;
  }
}
function move() {
  const at = new Date(now());
  const face = document.querySelector("[data-clockface]");
  if (face) {
    face.textContent = momentText(at).slice(11);
    document.querySelector("[data-dateline]").textContent = at.toLocaleDateString("en-GB", { weekday: "long", day: "numeric", month: "long", year: "numeric" });
  }
  for (const line of document.querySelectorAll(".timeline")) {
    const [begin, end] = [Date.parse(line.dataset.begin), Date.parse(line.dataset.end)];
    const place = `${Math.min(100, (at - begin) / (end - begin) * 100).toFixed(3)}%`;
    const mark = line.querySelector(".t-now");
    for (const name of ["x1", "x2"]) mark.querySelector("line").setAttribute(name, place);
    mark.querySelector("circle").setAttribute("cx", place);
    // What has passed fades; once a quarter of it has, the axis is drawn anew.
    if ((at - begin) / (end - begin) > 0.25 && !line.dataset.asked) { line.dataset.asked = "1"; stale(); }
  }
}
clocks();
move();
setInterval(() => { if (!document.hidden) move(); }, 1000);
document.addEventListener("horae:swapped", (event) => { clocks(event.target); move(); });
document.addEventListener("horae:overview", ({ detail }) => {
  const shown = { ...detail.totals, runs_pending: detail.totals.runs_pending + detail.totals.runs_queued, slots_taken: detail.slots_taken };
  for (const element of document.querySelectorAll("[data-total]")) {
    const value = shown[element.dataset.total];
    if (value !== undefined) element.textContent = String(value).replace(/\B(?=(\d{3})+$)/g, "\u202f");
  }
});

/* ---- several jobs at once ---------------------------------------------------------------------------------------- */
const boxes = () => [...document.querySelectorAll("input[data-keep-checked]")];
function counted() {
  const bulk = document.getElementById("bulk");
  if (!bulk) return;
  const chosen = boxes().filter((box) => box.checked);
  bulk.hidden = !chosen.length;
  document.getElementById("bulk-count").textContent = `${chosen.length} selected`;
  for (const button of bulk.querySelectorAll("[data-needs]")) button.hidden = !chosen.every((box) => box.dataset.may.split(" ").includes(button.dataset.needs));
  for (const box of boxes()) box.closest("tr").classList.toggle("is-selected", box.checked);
  const all = document.getElementById("select-all");
  all.checked = chosen.length > 0 && chosen.length === boxes().length;
  all.indeterminate = chosen.length > 0 && !all.checked;
}
document.addEventListener("change", (event) => {
  if (event.target.id === "select-all") for (const box of boxes()) box.checked = event.target.checked;
  if (event.target.matches("#select-all, input[data-keep-checked]")) counted();
});
document.addEventListener("horae:swapped", counted);
const DONE = { trigger: "started", pause: "paused", resume: "resumed" };
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-bulk]");
  if (!button) return;
  const names = boxes().filter((box) => box.checked).map((box) => box.value);
  for (const box of boxes()) box.checked = false;
  counted();
  const verb = button.dataset.bulk;
  if (!verb) return;
  const failed = [];
  for (const name of names) {
    try { await send("POST", `/api/v1/jobs/${encodeURIComponent(name)}/${verb}`, {}); } catch (error) {
      if (!(error instanceof Problem)) throw error;
      failed.push(`${name}: ${error.message}`);
    }
  }
  if (names.length > failed.length) toast(`${names.length - failed.length} ${DONE[verb]}.`);
  for (const text of failed.slice(0, 3)) toast(text, "bad");
  stale();
});
