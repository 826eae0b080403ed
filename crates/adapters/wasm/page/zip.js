// Zip archives without compression (PKWARE's APPNOTE 6.3): names in UTF-8, permissions and links of
// Unix, and zip64 where 32 bits are too few.

const LIMIT = 0xffffffff;
const encoder = new TextEncoder();

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let sum = byte;
  for (let bit = 0; bit < 8; bit += 1) sum = sum & 1 ? (sum >>> 1) ^ 0xedb88320 : sum >>> 1;
  return sum;
});

/** CRC-32 of bytes; `sum` is that of the bytes before. */
export function crc32(bytes, sum = 0) {
  let state = ~sum;
  for (let at = 0; at < bytes.length; at += 1) state = TABLE[(state ^ bytes[at]) & 0xff] ^ (state >>> 8);
  return ~state >>> 0;
}

/** Numbers of so many bytes, one after the other, in little endian. */
function numbers(...pairs) {
  const bytes = new Uint8Array(pairs.reduce((sum, [length]) => sum + length, 0));
  let at = 0;
  for (const [length, number] of pairs) {
    let rest = number;
    for (let n = 0; n < length; n += 1) {
      bytes[at] = rest % 256;
      rest = Math.floor(rest / 256);
      at += 1;
    }
  }
  return bytes;
}

function joined(...parts) {
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

/** Time of a file in the form of MS-DOS: from 1980 to 2107, in steps of two seconds. */
function dosTime(seconds) {
  const date = new Date(Math.min(Math.max(seconds, 315619200), 4354819198) * 1000);
  const day = ((date.getFullYear() - 1980) << 9) | ((date.getMonth() + 1) << 5) | date.getDate();
  return [(date.getHours() << 11) | (date.getMinutes() << 5) | (date.getSeconds() >> 1), day >>> 0];
}

/** An archive under way. */
export class Zip {
  #directory = [];
  #length = 0;
  #count = 0;

  /** Adds a file, folder (its name ends with a slash) or link; returns the head of its `size` bytes. */
  add(name, { mode, mtime }, size, crc) {
    const bytes = encoder.encode(name);
    const start = this.#length;
    const isLarge = size >= LIMIT || start >= LIMIT;
    const [clock, day] = dosTime(mtime);
    const short = (number) => (isLarge ? LIMIT : number);
    // Version 4.5 knows zip64; bit 11: the name is UTF-8.
    const common = [[2, 45], [2, 0x800], [2, 0], [2, clock], [2, day], [4, crc], [4, short(size)], [4, short(size)]];
    const local = isLarge ? numbers([2, 1], [2, 16], [8, size], [8, size]) : new Uint8Array();
    const fixed = numbers([4, 0x04034b50], ...common, [2, bytes.length], [2, local.length]);
    const whole = joined(fixed, bytes, local);
    const extra = isLarge ? numbers([2, 1], [2, 24], [8, size], [8, size], [8, start]) : local;
    const rest = [[2, bytes.length], [2, extra.length], [2, 0], [2, 0], [2, 0]];
    // Made on Unix: the upper half of the attributes is the mode.
    const head = [[4, 0x02014b50], [2, 0x032d], ...common, ...rest, [4, mode * 65536], [4, short(start)]];
    this.#directory.push(joined(numbers(...head), bytes, extra));
    this.#count += 1;
    this.#length += whole.length + size;
    return whole;
  }

  /** The end of the archive, in parts. */
  end() {
    const parts = this.#directory;
    const start = this.#length;
    const size = parts.reduce((sum, part) => sum + part.length, 0);
    const end = start + size;
    const count = this.#count;
    if (start >= LIMIT || size >= LIMIT || count >= 0xffff) {
      const places = [[8, count], [8, count], [8, size], [8, start]];
      parts.push(numbers([4, 0x06064b50], [8, 44], [2, 45], [2, 45], [4, 0], [4, 0], ...places));
      parts.push(numbers([4, 0x07064b50], [4, 0], [8, end], [4, 1]));
    }
    const few = Math.min(count, 0xffff);
    const places = [[4, Math.min(size, LIMIT)], [4, Math.min(start, LIMIT)]];
    parts.push(numbers([4, 0x06054b50], [2, 0], [2, 0], [2, few], [2, few], ...places, [2, 0]));
    return parts;
  }
}
