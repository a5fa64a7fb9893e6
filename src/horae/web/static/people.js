/* People: a token's secret is shown once, a grant is put into words, a secret's name goes into its address. */

const { present, toast } = await import(`./app.js${new URL(import.meta.url).search}`);
const $ = (id) => document.getElementById(id);

$("token-form")?.addEventListener("horae:done", (event) => {
  $("token-secret").textContent = event.detail.secret;
  present($("secret-once-dialog"));
  $("token-form").reset();
});
$("secret-once-dialog")?.addEventListener("close", () => {
  $("token-secret").textContent = "";
  // The first token closes a server that was open: whoever made it has to sign in from now on.
  location.reload();
});
document.addEventListener("horae:done", (event) => {
  const told = (event.detail.results ?? []).map((each) => each.message).filter(Boolean);
  if (told.length) toast(told.join(", "));
});

for (const form of document.querySelectorAll("dialog form[data-action]")) {
  // Passwords and secrets do not wait in the page for the next one to open the dialog.
  form.addEventListener("horae:done", () => form.reset());
}

document.addEventListener("horae:swapped", () => {
  for (const offered of document.querySelectorAll("template[data-offered]")) {
    const list = $(offered.dataset.offered);
    const chosen = list.value;
    list.replaceChildren(document.importNode(offered.content, true));
    if ([...list.options].some((option) => option.value === chosen)) list.value = chosen;
  }
});

/* ---- grants ------------------------------------------------------------------------------------------------------- */
const plain = (name) => /^[a-z_][a-z0-9_]*$/.test(name);
const quoted = (name) => (plain(name) ? name : `"${name.replaceAll('"', '""')}"`);
const what = $("grant-what");
function grant() {
  const option = what.selectedOptions[0];
  if (!option) return;
  const kind = option.dataset.kind ?? "";
  $("grant-on-box").hidden = !kind;
  const on = kind && $("grant-on").value.trim();
  const words = "role" in option.dataset ? quoted(option.value) : option.value;
  // A table may be in a schema of its own: public.visits is two names.
  const name = kind === "TABLE" ? on.split(".").map(quoted).join(".") : on && quoted(on);
  const whom = $("grant-whom").value;
  const text = `GRANT ${words}${on ? ` ON ${kind} ${name}` : ""} TO ${quoted(whom)}`;
  $("grant-text").value = whom ? text : "";
  $("grant-statement").textContent = whom ? text : "There is nobody to grant it to: create a user or a role first.";
  $("grant-go").disabled = !whom || (kind === "TABLE" && !on);
}
if (what) {
  for (const id of ["grant-what", "grant-on", "grant-whom"]) $(id).addEventListener("input", grant);
  $("grant-dialog").addEventListener("horae:open", (event) => {
    const whom = event.detail.dataset.whom;
    if (whom) $("grant-whom").value = whom;
    grant();
  });
  grant();
}

/* ---- secrets ------------------------------------------------------------------------------------------------------ */
$("secret-name")?.addEventListener("input", (event) => {
  $("secret-form").dataset.action = `PUT /api/v1/secrets/${encodeURIComponent(event.target.value.trim())}`;
});
