// Devices: what an image is read from and written to. All calls are synchronous.

/** Bytes of a blob that are read at once. */
const PIECE = 1 << 20;

/** Bytes of garbage after which a browser is made to collect it, and those of the buffer that does so. */
const GARBAGE = 2 << 20;
const UNTOUCHED = 64 << 20;

/** A File or Blob of a browser, read by ranges. Works in a worker. */
export class BlobDevice {
  constructor(blob) {
    this.blob = blob;
    this.size = blob.size;
    this.reader = new FileReaderSync();
    this.garbage = 0;
    /** Bytes that were read ahead, and their place. */
    this.ahead = new Uint8Array();
    this.place = 0;
    this.end = -1;
  }

  readInto(offset, into) {
    for (let at = 0; at < into.length; ) {
      const part = into.subarray(at, at + PIECE);
      this.#piece(offset + at, part);
      at += part.length;
    }
  }

  #piece(offset, into) {
    const isNext = offset === this.end;
    const end = offset + into.length;
    this.end = end;
    if (offset < this.place || end > this.place + this.ahead.length) {
      // Small reads that follow each other, as of the clusters of a qcow2, become large ones.
      const length = isNext ? Math.max(Math.min(PIECE, this.size - offset), into.length) : into.length;
      const bytes = new Uint8Array(this.reader.readAsArrayBuffer(this.blob.slice(offset, offset + length)));
      this.#left(bytes.length);
      if (length === into.length) return into.set(bytes);
      [this.ahead, this.place] = [bytes, offset];
    }
    const from = offset - this.place;
    return into.set(this.ahead.subarray(from, from + into.length));
  }

  /**
   * What was read is garbage, which browsers collect after some 64 MiB. A buffer that is not touched
   * takes no memory, and counts: it makes them collect earlier.
   */
  #left(bytes) {
    this.garbage += bytes;
    if (this.garbage < GARBAGE) return;
    this.garbage = 0;
    try {
      new ArrayBuffer(UNTOUCHED);
    } catch {
      // So large a buffer is not to be had: then they collect, too.
    }
  }
}

/** A FileSystemSyncAccessHandle of a browser's private files. */
export class HandleDevice {
  constructor(handle) {
    this.handle = handle;
  }

  get size() {
    return this.handle.getSize();
  }

  readInto(offset, into) {
    const read = this.handle.read(into, { at: offset });
    into.fill(0, read);
  }

  write(offset, bytes) {
    if (this.handle.write(bytes, { at: offset }) !== bytes.length) {
      throw new Error("the browser has no room for more bytes");
    }
  }

  flush() {
    this.handle.flush();
  }
}

const CHUNK = 64 << 10;

/** Bytes in memory; those that were never written are zeros and take no room. */
export class MemoryDevice {
  /** `limit`: bytes of memory that it takes at most. */
  constructor(size = 0, limit = 256 << 20) {
    this.size = size;
    this.limit = limit;
    this.chunks = new Map();
  }

  readInto(offset, into) {
    pieces(offset, into.length, CHUNK, (chunk, within, at, length) => {
      const bytes = this.chunks.get(chunk);
      const part = into.subarray(at, at + length);
      if (bytes) part.set(bytes.subarray(within, within + length));
      else part.fill(0);
    });
  }

  write(offset, from) {
    pieces(offset, from.length, CHUNK, (chunk, within, at, length) => {
      let bytes = this.chunks.get(chunk);
      if (!bytes) {
        if ((this.chunks.size + 1) * CHUNK > this.limit) {
          throw new Error(`more than ${this.limit} bytes of memory would be needed`);
        }
        bytes = new Uint8Array(CHUNK);
        this.chunks.set(chunk, bytes);
      }
      bytes.set(from.subarray(at, at + length), within);
    });
    this.size = Math.max(this.size, offset + from.length);
  }

  flush() {}
}

/**
 * Changes to a device that is only read. The changed pieces are in `scratch`, a device that grows.
 */
export class OverlayDevice {
  static PIECE = 16 << 10;

  constructor(base, scratch) {
    this.base = base;
    this.scratch = scratch;
    this.size = base.size;
    /** Number of a piece of the base: its number in the scratch. */
    this.slots = new Map();
  }

  readInto(offset, into) {
    const runs = this.#runs(offset, into.length);
    for (const { at, length, scratch } of runs) {
      const part = into.subarray(at - offset, at - offset + length);
      if (scratch === undefined) this.base.readInto(at, part);
      else this.scratch.readInto(scratch, part);
    }
  }

  /** Parts of a range, each in one device. */
  #runs(offset, length) {
    const runs = [];
    pieces(offset, length, OverlayDevice.PIECE, (piece, within, at, len) => {
      const slot = this.slots.get(piece);
      const scratch = slot === undefined ? undefined : slot * OverlayDevice.PIECE + within;
      const last = runs.at(-1);
      const follows =
        last && (scratch === undefined
          ? last.scratch === undefined
          : last.scratch !== undefined && last.scratch + last.length === scratch);
      if (follows) last.length += len;
      else runs.push({ at: offset + at, length: len, scratch });
    });
    return runs;
  }

  write(offset, from) {
    const size = OverlayDevice.PIECE;
    pieces(offset, from.length, size, (piece, within, at, length) => {
      let slot = this.slots.get(piece);
      if (slot === undefined) {
        slot = this.slots.size;
        const start = piece * size;
        const whole = Math.min(size, this.size - start);
        if (length < whole) {
          const old = new Uint8Array(whole);
          this.base.readInto(start, old);
          this.scratch.write(slot * size, old);
        }
        this.slots.set(piece, slot);
      }
      this.scratch.write(slot * size + within, from.subarray(at, at + length));
    });
  }

  flush() {}

  /** Whether a range has changes. */
  isChanged(offset, length) {
    const size = OverlayDevice.PIECE;
    const [first, end] = [Math.floor(offset / size), Math.ceil((offset + length) / size)];
    // The shorter of both ways.
    if (this.slots.size < end - first) {
      for (const piece of this.slots.keys()) if (piece >= first && piece < end) return true;
      return false;
    }
    for (let piece = first; piece < end; piece += 1) if (this.slots.has(piece)) return true;
    return false;
  }

  get changedBytes() {
    return this.slots.size * OverlayDevice.PIECE;
  }

  /** The changes in order: `[offset, bytes]`, at most 1 MiB at once. */
  *changes() {
    const size = OverlayDevice.PIECE;
    const numbers = [...this.slots.keys()].sort((a, b) => a - b);
    for (let i = 0; i < numbers.length; ) {
      let end = i + 1;
      while (end < numbers.length && numbers[end] === numbers[end - 1] + 1 && end - i < 64) end += 1;
      const offset = numbers[i] * size;
      const bytes = new Uint8Array(Math.min((end - i) * size, this.size - offset));
      this.readInto(offset, bytes);
      yield [offset, bytes];
      i = end;
    }
  }
}

/** Calls `each(number, within, at, length)` for the parts of a range in pieces of `size` bytes. */
function pieces(offset, length, size, each) {
  for (let at = 0; at < length; ) {
    const number = Math.floor((offset + at) / size);
    const within = offset + at - number * size;
    const part = Math.min(size - within, length - at);
    each(number, within, at, part);
    at += part;
  }
}
