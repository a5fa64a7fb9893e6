/* What verifying the trail found. */

const { lengthText } = await import(`./app.js${new URL(import.meta.url).search}`);
const form = document.getElementById("verify-form");
const place = document.getElementById("verify-result");
let began = 0;

function line(text, strong = false) {
  const made = document.createElement("p");
  if (strong) made.append(Object.assign(document.createElement("strong"), { textContent: text }));
  else made.textContent = text;
  return made;
}
form?.addEventListener("submit", () => { began = Date.now(); });
form?.addEventListener("horae:done", (event) => {
  const found = event.detail;
  place.hidden = false;
  place.className = `notice tone-${found.ok ? "ok" : "bad"}`;
  const body = document.createElement("div");
  body.append(line(found.ok ? "The trail is whole." : `The trail was tampered with: ${found.findings.length} findings.`, true));
  body.append(line(`${found.rows.toLocaleString("en")} rows under ${found.seals.toLocaleString("en")} seals, ${found.unsealed.toLocaleString("en")} not sealed yet. Read in ${lengthText((Date.now() - began) / 1000)}.`));
  for (const each of found.findings.slice(0, 20)) body.append(line(`${each.kind}: ${each.message}`));
  if (found.head) {
    const head = document.createElement("p");
    head.append("Head ", Object.assign(document.createElement("code"), { textContent: found.head }), ": kept elsewhere, it proves later that nothing before it was cut off.");
    body.append(head);
  }
  place.replaceChildren(body);
  place.tabIndex = -1;
  place.focus();
});
