// ext4 images in JavaScript, for Node and browsers. The types are in ext4.d.ts.

import { MemoryDevice } from "./devices.js";

export * from "./devices.js";

/** An error with a code as of errno: ENOENT, EUCLEAN for a damaged image, EOPNOTSUPP, ... */
export class Ext4Error extends Error {
  constructor(code, message, cause) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "Ext4Error";
    this.code = code;
  }
}

let compiled;

/** Compiles the module once: the file beside this one, or what is given. */
export function load(source) {
  if (source) compiled = Promise.resolve(source).then(compile);
  compiled ??= fromFile();
  return compiled;
}

function compile(source) {
  return source instanceof WebAssembly.Module ? source : WebAssembly.compile(source);
}

async function fromFile() {
  const url = new URL("./ext4.wasm", import.meta.url);
  if (url.protocol === "file:") {
    const { readFile } = await import("node:fs/promises");
    return WebAssembly.compile(await readFile(url));
  }
  const answer = await fetch(url);
  if (!answer.ok) throw new Ext4Error("EIO", `${url.pathname}: ${answer.status}`);
  return WebAssembly.compile(await answer.arrayBuffer());
}

/** Bytes of a name or path: U+DC80 to U+DCFF alone stand for bytes that are no UTF-8. */
export function encode(text) {
  if (text.isWellFormed?.() ?? !/[\ud800-\udfff]/.test(text)) return encoder.encode(text);
  const bytes = [];
  for (const c of text) {
    const code = c.codePointAt(0);
    if (code >= 0xdc80 && code <= 0xdcff) bytes.push(code & 0xff);
    else bytes.push(...encoder.encode(c));
  }
  return Uint8Array.from(bytes);
}

/** Bytes that one call reads at most. */
const MOST = 1 << 30;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** An instance of the module. It serves one image, and nothing after it trapped. */
class Instance {
  static async create() {
    const module = await load();
    const self = new Instance();
    const { exports } = await WebAssembly.instantiate(module, { host: self.#host() });
    self.exports = exports;
    exports.start();
    return self;
  }

  devices = [];
  sink = undefined;
  part = undefined;
  follow = undefined;
  #failed = undefined;
  #thrown = undefined;
  #panic = undefined;
  #dead = undefined;
  #busy = false;

  add(device) {
    return this.devices.push(device) - 1;
  }

  #view(at, length) {
    return new Uint8Array(this.exports.memory.buffer, at, length);
  }

  /**
   * Functions of JavaScript never throw through the module, whose state would be half changed. An
   * error of a device is the cause of what the module says; one of a callback is thrown afterwards.
   */
  #tried(call) {
    try {
      call();
      return 1;
    } catch (error) {
      this.#failed ??= error;
      return 0;
    }
  }

  #asked(call) {
    try {
      return call() === false ? 0 : 1;
    } catch (error) {
      this.#thrown ??= error;
      return 0;
    }
  }

  #host() {
    return {
      read: (device, offset, at, length) =>
        this.#tried(() => {
          const from = this.devices[device];
          const into = this.#view(at, length);
          if (from.readInto) return from.readInto(offset, into);
          const bytes = from.read(offset, length);
          if (bytes.length !== length) throw new Error("the device returned too few bytes");
          into.set(bytes);
        }),
      write: (device, offset, at, length) =>
        this.#tried(() => this.devices[device].write(offset, this.#view(at, length))),
      flush: (device) => this.#tried(() => this.devices[device].flush?.()),
      emit: (at, length) => this.#asked(() => this.sink?.(this.#view(at, length))),
      emit_part: (at, length) =>
        this.#asked(() => this.part?.(at, length) ?? false),
      progress: (at, length, done, total) =>
        this.#asked(() => this.follow?.(decoder.decode(this.#view(at, length)), done, total)),
      now: () => Date.now(),
      panicked: (at, length) => {
        this.#panic = decoder.decode(this.#view(at, length));
      },
    };
  }

  /**
   * Calls a function; the result is a view that lasts until the next call. `input` is undefined, bytes,
   * or an array of bytes that follow each other.
   */
  bytes(name, input, ...args) {
    if (this.#dead) throw this.#dead;
    if (this.#busy) throw new Ext4Error("EBUSY", "the image is busy with another call");
    let length;
    this.#busy = true;
    this.#failed = this.#thrown = undefined;
    try {
      if (input) this.#give(Array.isArray(input) ? input : [input]);
      length = this.exports[name](...args);
    } catch (error) {
      // A trap: the module's own checks, no memory, too deep a stack. Its state is lost.
      const why = this.#panic ?? error.message;
      this.#dead = new Ext4Error("ETRAP", `this image stopped the module: ${why}`, error);
      throw this.#dead;
    } finally {
      this.#busy = false;
    }
    if (this.#thrown) throw this.#thrown;
    const result = this.#view(this.exports.output(), length < 0 ? -1 - length : length);
    if (length >= 0) return result;
    const { code, message } = JSON.parse(decoder.decode(result));
    throw new Ext4Error(code, message, this.#failed);
  }

  /** Copies the argument of a call into the module. */
  #give(parts) {
    const length = parts.reduce((sum, part) => sum + part.length, 0);
    const into = this.#view(this.exports.input(length), length);
    let at = 0;
    for (const part of parts) {
      into.set(part, at);
      at += part.length;
    }
  }

  json(name, input, ...args) {
    const result = this.bytes(name, input, ...args);
    return result.length ? JSON.parse(decoder.decode(result)) : undefined;
  }
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

/** Numbers of a call: BigInt would not be taken, and a fraction would be cut. */
function whole(number, what) {
  if (!Number.isSafeInteger(number) || number < 0) {
    throw new RangeError(`${what} must be a whole number from 0 on, not ${number}`);
  }
  return number;
}

/**
 * Opens an image: finds its format, unpacks it if it is compressed, and mounts its ext4.
 *
 * Of a whole disk it takes the partition that is given, or the only one with an ext4.
 */
export async function open(device, options = {}) {
  const image = await Image.scan(device, options);
  if (options.mount !== false) {
    image.choose(options.partition);
    image.mount(options);
  }
  return image;
}

/** Makes an ext4 on a device. */
export async function format(device, { label = "", type = "ext4", blockSize = 0 } = {}) {
  const instance = await Instance.create();
  const identity = crypto.getRandomValues(new Uint8Array(32));
  // Version 4 of RFC 9562, for both.
  for (const at of [0, 16]) {
    identity[at + 6] = (identity[at + 6] & 0x0f) | 0x40;
    identity[at + 8] = (identity[at + 8] & 0x3f) | 0x80;
  }
  const kind = { ext2: 2, ext3: 3, ext4: 4 }[type] ?? 0;
  const input = [identity, encode(label)];
  instance.bytes("mkfs", input, instance.add(device), device.size, kind, blockSize);
  device.flush?.();
}

/** An image, with its volume once it is mounted. */
export class Image {
  #instance;
  #writable = false;
  #replayed = false;
  /** Those that were neither closed nor aborted. */
  #writers = new Set();
  /** Format, size and partitions. */
  disk;
  /** The partition that was chosen; undefined is the whole. */
  partition;

  static async scan(device, { writable = false, scratch, progress } = {}) {
    const image = new Image();
    const instance = await Instance.create();
    image.#instance = instance;
    instance.follow = progress;
    const can = Boolean(writable && device.write);
    if (writable && !can) throw new Ext4Error("EROFS", "the device has no function `write`");
    const scan = (from, may) =>
      instance.json("scan", undefined, instance.add(from), whole(from.size, "size"), may ? 1 : 0);
    let disk = scan(device, can);
    const { compressed } = disk;
    if (compressed) {
      if (writable) throw new Ext4Error("EROFS", "a compressed image is only read; unpack it first");
      const to = scratch ?? new MemoryDevice();
      const { size } = instance.json("unpack", undefined, instance.add(to));
      disk = scan({ size, readInto: (at, into) => to.readInto(at, into) }, false);
      if (disk.compressed) throw new Ext4Error("EOPNOTSUPP", "the image is compressed twice");
    }
    instance.follow = undefined;
    image.disk = { ...disk, compressed };
    return image;
  }

  /** Takes a partition by its number; without one the whole, or the only one with an ext4. */
  choose(number) {
    const { partitions, ext4 } = this.disk;
    let part;
    if (number !== undefined) {
      part = partitions.find((one) => one.number === number);
      if (!part) throw new Ext4Error("EINVAL", `the image has no partition ${number}`);
    } else if (!ext4 && partitions.length > 0) {
      const found = partitions.filter((one) => one.ext4);
      if (found.length !== 1) {
        const names = partitions.map((one) => `${one.number} (${one.label || "no name"})`);
        const text = `a whole disk with ${found.length} ext4 partitions; choose one of`;
        throw new Ext4Error("EINVAL", `${text} ${names.join(", ")}`);
      }
      [part] = found;
    } else if (!ext4 && this.disk.other) {
      throw new Ext4Error("EOPNOTSUPP", this.disk.other);
    }
    this.#instance.bytes("choose", undefined, part?.offset ?? 0, part?.size ?? 0);
    this.partition = part;
  }

  mount({ writable = false, rescue = false } = {}) {
    if (writable && !this.disk.writable) {
      throw new Ext4Error("EROFS", "an image in this format, or this device, is only read");
    }
    const level = rescue === "undelete" ? 2 : rescue ? 1 : 0;
    if (writable && level) throw new Ext4Error("EINVAL", "what is read past its damage is not written");
    const done = this.#instance.json("mount", undefined, writable ? 1 : 0, level);
    this.#writable = done.writable;
    this.#replayed = done.replayedInMemory;
    return done;
  }

  get writable() {
    return this.#writable;
  }

  /** Bytes of memory of the module. */
  get memory() {
    return this.#instance.exports.memory.buffer.byteLength;
  }

  info() {
    return this.#instance.json("info");
  }

  /** Entries of a directory, in parts of at most 1000. */
  *listParts(path = "/") {
    for (let next = "0"; next; ) {
      const part = this.#instance.json("list", encode(path), BigInt(next));
      yield part.entries;
      next = part.next;
    }
  }

  list(path = "/") {
    return [...this.listParts(path)].flat();
  }

  stat(path) {
    return this.#instance.json("stat", encode(path), 1);
  }

  lstat(path) {
    return this.#instance.json("stat", encode(path), 0);
  }

  readlink(path) {
    const { target } = this.lstat(path);
    if (target === undefined) throw new Ext4Error("EINVAL", "not a symbolic link");
    return target;
  }

  xattrs(path) {
    const { xattrs } = this.#instance.json("xattrs", encode(path));
    const value = (hex) => Uint8Array.from(hex.match(/../g) ?? [], (byte) => parseInt(byte, 16));
    return new Map(xattrs.map((one) => [one.name, value(one.value)]));
  }

  /** Bytes of a file; fewer than asked for only at its end. */
  read(path, offset, length) {
    whole(offset, "offset");
    const most = Math.min(whole(length, "length"), MOST);
    return this.#instance.bytes("read_file", encode(path), offset, most).slice();
  }

  /** Fills bytes with those of a file; returns how many there are, fewer only at its end. */
  readInto(path, offset, into) {
    whole(offset, "offset");
    const most = Math.min(into.length, MOST);
    const bytes = this.#instance.bytes("read_file", encode(path), offset, most);
    into.set(bytes);
    return bytes.length;
  }

  /** The contents of a file in parts. */
  *readParts(path, length = 1 << 20) {
    for (let at = 0; ; ) {
      const part = this.read(path, at, length);
      if (part.length === 0) return;
      yield part;
      at += part.length;
      if (part.length < length) return;
    }
  }

  readFile(path) {
    return joined(...this.readParts(path));
  }

  /**
   * Where the contents of a file are in the image: `[from, offset, length]` for each part, all else
   * is zeros. Undefined if they have to be read: in an image that is not raw, and of small files.
   */
  extents(path) {
    const { plain, size, extents } = this.#instance.json("extents", encode(path));
    if (!plain || !this.disk.raw || this.disk.compressed || this.#replayed) return undefined;
    const start = this.partition?.offset ?? 0;
    const parts = [];
    for (let n = 0; n < extents.length; n += 3) {
      const [from, at, length] = extents.slice(n, n + 3);
      const inside = Math.min(length, size - from);
      if (start + at + inside > this.disk.size) return undefined;
      if (inside > 0) parts.push([from, start + at, inside]);
    }
    return parts;
  }

  /** SHA-256 of a file in hexadecimal; without a path, of the disk in the image. */
  sha256(path, progress) {
    const steps = this.sha256Steps(path);
    for (;;) {
      const { value, done } = steps.next();
      if (done) return value;
      if (progress?.("digest", ...value) === false) throw new Ext4Error("ECANCELED", "stopped");
    }
  }

  /** The same in steps of 1 MiB, between which a program may do something else. */
  *sha256Steps(path) {
    const name = path === undefined ? "digest_disk" : "digest_file";
    const input = path === undefined ? undefined : encode(path);
    const { size } = path === undefined ? this.disk : this.stat(path);
    this.#instance.bytes("digest_start");
    for (let at = 0; at < size; ) {
      const length = Math.min(1 << 20, size - at);
      this.#instance.bytes(name, input, at, length);
      at += length;
      yield [at, size];
    }
    return this.#instance.json("digest_end").sha256;
  }

  #followed(progress, call) {
    this.#instance.follow = progress;
    try {
      return call();
    } finally {
      this.#instance.follow = undefined;
    }
  }

  #emitted(sink, part, call) {
    this.#instance.sink = sink;
    this.#instance.part = part;
    try {
      return call();
    } finally {
      this.#instance.sink = this.#instance.part = undefined;
    }
  }

  /**
   * A tree as a tar archive: `sink` gets its bytes for the time of the call; false ends it. `part`
   * gets large parts of files by their place in the image instead, where they are stored so.
   */
  tar(path, sink, part) {
    const start = this.partition?.offset ?? 0;
    const isStored = this.disk.raw && !this.disk.compressed && !this.#replayed;
    const take = part && isStored ? (at, length) => part(start + at, length) : undefined;
    return this.#emitted(sink, take, () => this.#instance.json("tar", encode(path))).remarks;
  }

  check(progress) {
    return this.#followed(progress, () => this.#instance.json("check"));
  }

  /** What a repair would do. The volume is unmounted; `mount` mounts it again. */
  planRepair(progress) {
    this.unmount();
    return this.#followed(progress, () => this.#instance.json("plan_repair"));
  }

  /** Writes the repair that was planned. Returns an undo file as `syncline repair` takes it. */
  repair() {
    let undo;
    const keep = (bytes) => {
      undo = bytes.slice();
    };
    this.#emitted(keep, undefined, () => this.#instance.bytes("repair"));
    return undo;
  }

  write(path, offset, bytes, mode = 0o644) {
    const name = encode(path);
    whole(offset, "offset");
    this.#instance.bytes("write_file", [name, bytes], name.length, offset, mode);
  }

  truncate(path, size) {
    this.#instance.bytes("truncate", encode(path), whole(size, "size"));
  }

  /** A file with these contents, or none: it appears when all of them are there. */
  writeFile(path, contents, { mode = 0o644 } = {}) {
    const parts = typeof contents === "string" ? [encoder.encode(contents)] : contents;
    const writer = this.writer(path, { mode });
    try {
      for (const part of parts instanceof Uint8Array ? [parts] : parts) writer.write(part);
      writer.close();
    } catch (error) {
      writer.abort();
      throw error;
    }
  }

  /** A file that is written in parts under a temporary name. It gets its own at `close`, or none. */
  writer(path, { mode = 0o644 } = {}) {
    const slash = path.lastIndexOf("/") + 1;
    let temporary;
    // A killed program may have left a file of such a name, whose end would stay.
    do temporary = `${path.slice(0, slash)}.syncline-${temporaries++}.tmp`;
    while (this.#has(temporary));
    let at = 0;
    this.write(temporary, 0, new Uint8Array(), mode);
    let failed;
    const ended = () => {
      if (failed) throw failed;
      if (this.#writers.has(writer)) return;
      throw new Ext4Error("EBADF", `${path}: this writer was closed or aborted, or the image unmounted`);
    };
    const writer = {
      write: (bytes) => {
        ended();
        try {
          for (let from = 0; from < bytes.length; from += 1 << 20) {
            const part = bytes.subarray(from, from + (1 << 20));
            this.write(temporary, at, part, mode);
            at += part.length;
          }
        } catch (error) {
          failed = error;
          throw error;
        }
      },
      close: () => {
        ended();
        this.rename(temporary, path);
        this.#writers.delete(writer);
      },
      abort: () => {
        if (!this.#writers.has(writer)) return;
        if (this.#has(temporary)) this.remove(temporary);
        this.#writers.delete(writer);
      },
    };
    this.#writers.add(writer);
    return writer;
  }

  #has(path) {
    try {
      this.lstat(path);
      return true;
    } catch (error) {
      if (error.code === "ENOENT") return false;
      throw error;
    }
  }

  mkdir(path, { mode = 0o755, parents = false } = {}) {
    this.#instance.bytes("mkdir", encode(path), mode, parents ? 1 : 0);
  }

  rename(from, to, { keep = false } = {}) {
    const name = encode(from);
    this.#instance.bytes("rename", [name, encode(to)], name.length, keep ? 1 : 0);
  }

  remove(path, { recursive = false } = {}) {
    this.#instance.bytes("remove", encode(path), recursive ? 1 : 0);
  }

  symlink(target, path) {
    const name = encode(path);
    this.#instance.bytes("symlink", [name, encode(target)], name.length);
  }

  link(path, name) {
    const old = encode(path);
    this.#instance.bytes("link", [old, encode(name)], old.length);
  }

  #set(path, which, mode, uid, gid, mtime) {
    this.#instance.bytes("set", encode(path), which, mode, uid, gid, mtime);
  }

  chmod(path, mode) {
    this.#set(path, 1, mode, 0, 0, 0);
  }

  chown(path, uid, gid) {
    this.#set(path, 2, 0, uid, gid, 0);
  }

  /** Sets the time of the last change, in seconds since 1970. */
  utimes(path, mtime) {
    this.#set(path, 4, 0, 0, 0, mtime);
  }

  setXattr(path, name, value) {
    const [where, what] = [encode(path), encode(name)];
    const input = [where, what, value];
    this.#instance.bytes("set_xattr", input, where.length, what.length);
  }

  removeXattr(path, name) {
    const where = encode(path);
    this.#instance.bytes("remove_xattr", [where, encode(name)], where.length);
  }

  /** Returns when all changes are durable on the device. */
  sync() {
    this.#instance.bytes("sync");
  }

  /** Aborts the open writers and writes everything back; the image is clean then. */
  unmount() {
    const failed = [];
    for (const writer of this.#writers) {
      try {
        writer.abort();
      } catch (error) {
        failed.push(error);
      }
    }
    this.#instance.bytes("unmount");
    this.#writable = false;
    this.#writers.clear();
    if (failed.length > 0) throw failed[0];
  }

  close() {
    this.unmount();
  }
}

let temporaries = 1;
