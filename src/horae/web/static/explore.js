/* The explorer as somebody types: the page is asked for what is typed, and the part with the answer swapped in. */

const { tick } = await import(`./app.js${new URL(import.meta.url).search}`);

const PAUSE = 250;
const $ = (id) => document.getElementById(id);
const form = $("explore-form");
const text = $("text");
let timer = null;
let asked = null;

function grow() {
  text.rows = Math.min(8, Math.max(1, text.value.split("\n").length, Math.ceil(text.value.length / Math.max(20, text.clientWidth / 12))));
}
function address() {
  const given = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (value.trim() || name === "text") given.set(name, value);
  return `/explore?${given}`;
}
/** Fetches what `url` shows; only the latest question counts. */
async function show(url, keep = true) {
  asked?.abort();
  asked = new AbortController();
  form.setAttribute("aria-busy", "true");
  let page;
  try {
    const answer = await fetch(url, { headers: { "X-Fragment": "explored" }, credentials: "same-origin", signal: asked.signal });
    if (answer.status === 401) return void location.reload();
    if (!answer.ok) throw new Error(String(answer.status));
    page = new DOMParser().parseFromString(await answer.text(), "text/html");
  } catch (error) {
    if (error.name === "AbortError") return;
    form.removeAttribute("aria-busy");
    return;
  }
  form.removeAttribute("aria-busy");
  const fresh = page.getElementById("explored");
  if (!fresh) return;
  $("explored").replaceWith(document.importNode(fresh, true));
  for (const id of ["text", "timezone"]) {
    for (const name of ["aria-invalid", "aria-describedby"]) {
      const told = page.getElementById(id)?.getAttribute(name);
      if (told) $(id).setAttribute(name, told); else $(id).removeAttribute(name);
    }
  }
  tick($("explored"));
  whole();
  if (keep) history.replaceState(null, "", url);
}
/** The address to copy is a whole one. */
function whole() {
  const share = $("share-url");
  if (share) share.textContent = new URL(share.textContent, location.href).href;
}
function soon() {
  clearTimeout(timer);
  grow();
  timer = setTimeout(() => show(address()), PAUSE);
}
form.addEventListener("input", soon);
form.addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(timer); show(address()); });
text.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); form.requestSubmit(); }
});
document.addEventListener("click", (event) => {
  const link = event.target.closest('#explored a[href^="/explore?"], .examples a[href^="/explore?"]');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const url = new URL(link.href);
  for (const field of form.elements) if (field.name) field.value = url.searchParams.get(field.name) ?? "";
  grow();
  show(url.pathname + url.search).then(() => {
    const place = url.hash && document.querySelector(url.hash);
    if (place) place.scrollIntoView({ block: "nearest" });
  });
});
$("explore-go").classList.add("visually-hidden");
grow();
whole();
