/* What strangers printed, made fit to be looked at: the same rules as pictures/letters.py. */

const ESCAPES = /\x1b\[[0-?]*[ -\/]*[@-~]|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)|\x9b[0-?]*[ -\/]*[@-~]|\x1b[ -\/]*[0-~]?/g;
const INVISIBLE = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;
/* What may be the beginning of an escape, a line end or a letter whose rest has not come yet. */
const UNFINISHED = /(?:\x1b(?:\[[0-?]*[ -\/]*|[\]PX^_][^\x07\x1b\x9c]*\x1b?|[ -\/]*)?|\r|[\ud800-\udbff])$/;

function writtenOver(line) {
  let shown = "";
  for (const part of line.split("\r")) shown = part + shown.slice(part.length);
  return shown;
}
function picture(letter) {
  const number = letter.charCodeAt(0);
  if (number < 0x20) return String.fromCharCode(0x2400 + number);
  return number === 0x7f ? "\u2421" : `\u27e8U+${number.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
}
/** Text as it would stand on paper, with everything in it to be seen. */
export function readable(text) {
  const lines = text.replace(ESCAPES, "").replaceAll("\r\n", "\n").split("\n");
  return lines.map((line) => (line.includes("\r") ? writtenOver(line) : line)).join("\n").replace(INVISIBLE, picture);
}
/** Text that comes in pieces: `add` gives what can be shown of it so far, and holds back what is not whole. */
export class Pieces {
  held = "";
  add(piece, isLast = false) {
    const text = this.held + piece;
    const cut = isLast ? null : UNFINISHED.exec(text.slice(-512));
    const whole = cut ? text.length - cut[0].length : text.length;
    this.held = text.slice(whole);
    return readable(text.slice(0, whole));
  }
}
