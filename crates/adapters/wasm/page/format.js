// Texts of numbers, times and bytes.

const UNITS = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function size(bytes) {
  let [unit, number] = [0, bytes];
  for (; number >= 1024 && unit < UNITS.length - 1; unit += 1) number /= 1024;
  const digits = unit === 0 || number >= 100 ? 0 : number >= 10 ? 1 : 2;
  return `${number.toFixed(digits)} ${bytes === 1 ? "byte" : UNITS[unit]}`;
}

export function exact(bytes) {
  return `${bytes.toLocaleString("en")} bytes`;
}

/** Local time of seconds since 1970. */
export function time(seconds, none = "never") {
  if (!seconds) return none;
  const date = new Date(seconds * 1000);
  if (Number.isNaN(date.getTime())) return `${seconds} s`;
  const two = (number) => String(number).padStart(2, "0");
  const day = [date.getFullYear(), two(date.getMonth() + 1), two(date.getDate())].join("-");
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}`;
}

/** A name as it is shown: what is no UTF-8, and what moves the cursor, is replaced. */
export function name(text) {
  // eslint-disable-next-line no-control-regex
  return text.replace(/[\udc80-\udcff]|[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "�");
}

export function hex(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = [...bytes.subarray(at, at + 16)];
    const codes = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const letters = row.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${codes}  ${letters}`);
  }
  return lines.join("\n");
}

const PICTURES = [
  [[0x89, 0x50, 0x4e, 0x47], "image/png"],
  [[0xff, 0xd8, 0xff], "image/jpeg"],
  [[0x47, 0x49, 0x46, 0x38], "image/gif"],
  [[0x42, 0x4d], "image/bmp"],
];

/** Type of a picture by its first bytes; undefined of all else. */
export function picture(bytes, fileName) {
  const begins = (mark, at = 0) => mark.every((byte, n) => bytes[at + n] === byte);
  const known = PICTURES.find(([mark]) => begins(mark));
  if (known) return known[1];
  const ascii = (from, to) => String.fromCharCode(...bytes.subarray(from, to));
  if (ascii(0, 4) === "RIFF" && ascii(8, 12) === "WEBP") return "image/webp";
  if (ascii(4, 12) === "ftypavif") return "image/avif";
  return fileName.toLowerCase().endsWith(".svg") ? "image/svg+xml" : undefined;
}

/** Text of bytes; undefined if they are none. */
export function text(bytes) {
  if (bytes.subarray(0, 4096).includes(0)) return undefined;
  // The last character may be cut.
  for (let cut = 0; cut < 4; cut += 1) {
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(bytes.subarray(0, bytes.length - cut));
    } catch {
      // One byte less.
    }
  }
  return undefined;
}
