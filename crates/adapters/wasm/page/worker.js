// One image in a worker. A damaged image may end this worker; the page makes a new one.

import { BlobDevice, encode, Ext4Error, HandleDevice, Image, MemoryDevice, OverlayDevice } from "./ext4.js";
import { name as shown } from "./format.js";
import { crc32, Zip } from "./zip.js";

/** Bytes of a file that are read at once, into the same memory. */
const PART = 1 << 20;
const part = new Uint8Array(PART);
/** Memory for changes and unpacked images, where the browser gives no files. */
const MEMORY = 512 << 20;
const PROGRESS_MS = 100;
/** Parts and zeros of a file up to which it is a blob of slices of the image. */
const SLICES = 10_000;
/** Names of a directory that are shown. */
const NAMES = 100_000;
/** Files and folders in the list of the largest, and inodes that are looked at for it. */
const LARGEST = 20;
const LOOKED_AT = 2_000_000;
const ZEROS = 4 << 30;

let file;
let image;
let overlay;
let bytesRead;
let scratch;

/** The lock of the page, and the start of the names of the files of this worker. */
const PAGE = location.hash.slice(1);
const SELF = `${PAGE}.${crypto.randomUUID()}`;
let temporaries = 0;

/** A file of the browser that no other page sees. It fails in some private windows. */
async function temporary() {
  const root = await navigator.storage.getDirectory();
  temporaries += 1;
  const name = `${SELF}.${temporaries}`;
  const file = await root.getFileHandle(name, { create: true });
  return { root, name, file, handle: await file.createSyncAccessHandle() };
}

/** Removes the files of pages that were closed. */
async function sweep() {
  if (!navigator.locks || !navigator.storage?.getDirectory) return;
  const root = await navigator.storage.getDirectory();
  const living = new Set((await navigator.locks.query()).held.map((lock) => lock.name));
  for await (const name of root.keys()) {
    const ours = name.startsWith("syncline-");
    if (ours && !living.has(name.split(".")[0])) await root.removeEntry(name).catch(() => {});
  }
}

/** A device that grows: a file of the browser, or memory. */
async function room() {
  try {
    scratch = await temporary();
    return new HandleDevice(scratch.handle);
  } catch {
    return new MemoryDevice(0, MEMORY);
  }
}

async function leave() {
  image = overlay = undefined;
  if (!scratch) return;
  scratch.handle.close();
  await scratch.root.removeEntry(scratch.name).catch(() => {});
  scratch = undefined;
}

/** Type of what a link leads to. */
function leads(path) {
  try {
    return image.stat(path).type;
  } catch {
    return undefined;
  }
}

/** Counts what is read. */
function counted(device) {
  bytesRead = 0;
  return {
    size: device.size,
    readInto(offset, into) {
      bytesRead += into.length;
      device.readInto(offset, into);
    },
  };
}

let breathed = 0;

/** Lets the browser collect its garbage, not too often. */
async function breath() {
  if (performance.now() < breathed + PROGRESS_MS / 2) return;
  await new Promise((resolve) => setTimeout(resolve));
  breathed = performance.now();
}

/** Reports progress, not too often. */
function progress(what) {
  let next = 0;
  return (stage, done, total) => {
    const now = performance.now();
    if (now < next || !total) return;
    next = now + PROGRESS_MS;
    postMessage({ progress: { what: stage && what ? `${what}: ${stage}` : what || stage, done, total } });
  };
}

/** Mounts to read, or says why not. */
function tried() {
  try {
    return { mounted: image.mount() };
  } catch (error) {
    if (error.code === "ETRAP") throw error;
    // Without any superblock there is nothing to check, or to repair.
    const isNone = !image.partition && !image.disk.ext4;
    if (isNone && image.check(progress("looking for backups")).blocksUsed === 0) throw error;
    const failed = error.message;
    try {
      return { failed, mounted: image.mount({ rescue: true }) };
    } catch (second) {
      if (second.code === "ETRAP") throw second;
      return { failed };
    }
  }
}

/** Mounts for changes, at the first of them. */
function edited() {
  if (!image.writable) {
    image.unmount();
    image.mount({ writable: true });
  }
  return image;
}

/** With another type, or none, a browser may give a file another name. */
const BYTES = { type: "application/octet-stream" };

/** Keeps bytes on their way out: in a file of the browser, or in blobs. */
async function keeper() {
  try {
    const { file, handle } = await temporary();
    const device = new HandleDevice(handle);
    let at = 0;
    return {
      keep(bytes) {
        device.write(at, bytes);
        at += bytes.length;
      },
      async done() {
        handle.close();
        return file.getFile();
      },
    };
  } catch {
    const blobs = [];
    return { keep: (bytes) => void blobs.push(new Blob([bytes])), done: () => new Blob(blobs) };
  }
}

/** Makes a blob of bytes, which do not stay in memory, and of slices of the image. */
async function collector() {
  const out = await keeper();
  const waiting = new Uint8Array(PART);
  const slices = [];
  let [filled, length] = [0, 0];
  return {
    add(bytes) {
      for (let at = 0; at < bytes.length; ) {
        const some = bytes.subarray(at, at + PART - filled);
        waiting.set(some, filled);
        [filled, at] = [filled + some.length, at + some.length];
        if (filled < PART) break;
        out.keep(waiting);
        filled = 0;
      }
      length += bytes.length;
    },
    /** Bytes that were added. */
    get length() {
      return length;
    },
    /** A blob comes here, or before bytes that were added since the last blob. */
    slice: (blob, at = length) => void slices.push([at, blob]),
    async done() {
      out.keep(waiting.subarray(0, filled));
      const read = await out.done();
      const parts = [];
      let end = 0;
      for (const [at, slice] of slices) {
        if (at > end) parts.push(read.slice(end, at));
        parts.push(slice);
        end = at;
      }
      return new Blob([...parts, read.slice(end)], BYTES);
    },
  };
}

/** What holes are made of, once there is one. */
let zeros;

/** A file as slices of the image, which are not read here; undefined if it is not stored so. */
function sliced(path, size) {
  if (!overlay) return undefined;
  const extents = image.extents(path);
  if (!extents || extents.length > SLICES) return undefined;
  if (extents.some(([, offset, length]) => overlay.isChanged(offset, length))) return undefined;
  const stored = extents.reduce((sum, [, , length]) => sum + length, 0);
  if (size - stored > ZEROS) return undefined;
  const parts = [];
  let end = 0;
  const hole = (length) => {
    if (length > 0) zeros ??= new Blob([new Uint8Array(1 << 20)]);
    for (; length > 0; length -= zeros.size) parts.push(length < zeros.size ? zeros.slice(0, length) : zeros);
  };
  for (const [from, offset, length] of extents) {
    if (from < end) return undefined;
    hole(from - end);
    parts.push(file.slice(offset, offset + length));
    end = from + length;
  }
  hole(size - end);
  return new Blob(parts, BYTES);
}

/** Gives the bytes of a file in parts, each for the time of the call. */
async function contents(path, size, each) {
  for (let at = 0; at < size; ) {
    const read = image.readInto(path, at, part.subarray(0, Math.min(PART, size - at)));
    if (read === 0) throw new Ext4Error("EUCLEAN", "the file is shorter than its size");
    each(part.subarray(0, read));
    at += read;
    await breath();
  }
}

/** What was changed is in the overlay then, and not in the module only. */
function synced() {
  if (image.writable) image.sync();
}

const calls = {
  leave,

  async open({ blob }) {
    await leave();
    file = blob;
    const base = counted(new BlobDevice(blob));
    const place = await room();
    const options = { scratch: place, progress: progress("unpacking") };
    image = await Image.scan(base, options);
    if (!image.disk.compressed) {
      overlay = new OverlayDevice(base, place);
      image = await Image.scan(overlay, { writable: true });
    }
    return image.disk;
  },

  /** Takes a partition and mounts it to be read. What cannot be mounted can still be checked. */
  use({ partition }) {
    image.unmount();
    image.choose(partition);
    return tried();
  },

  info: () => ({ ...image.info(), bytesRead, memory: image.memory }),

  /** Sends the entries in parts; returns whether there are more than are sent. */
  list({ path }) {
    let sent = 0;
    for (const entries of image.listParts(path)) {
      if (sent >= NAMES) return true;
      postMessage({ entries });
      sent += entries.length;
    }
    return false;
  },

  describe({ path, bytes }) {
    const stat = image.lstat(path);
    const xattrs = [...image.xattrs(path)];
    const start = stat.type === "file" ? image.read(path, 0, Math.min(bytes, stat.size)) : undefined;
    return { stat, xattrs, start, leads: stat.type === "symlink" ? leads(path) : undefined };
  },

  /** What takes the most space: files, and folders with all that is in them. */
  async largest() {
    const found = [];
    const seen = new Set();
    const { inodes, freeInodes } = image.info();
    const tell = progress("reading");
    const add = (path, type, bytes) => {
      found.push({ path, type, bytes });
      if (found.length > 1000) found.sort((a, b) => b.bytes - a.bytes).splice(LARGEST);
    };
    // A folder is left when all that is in it was added: depth is the choice of the image.
    const levels = [{ path: "", bytes: 0, left: image.list("/") }];
    while (levels.length > 0) {
      const level = levels.at(-1);
      const entry = level.left.pop();
      if (!entry) {
        levels.pop();
        if (level.path) add(level.path, "directory", level.bytes);
        if (levels.length > 0) levels.at(-1).bytes += level.bytes;
        continue;
      }
      // A file with several names takes its space once.
      if (entry.error || seen.has(entry.inode)) continue;
      if (seen.size === LOOKED_AT) throw new Ext4Error("EFBIG", "the image has too many files for this");
      seen.add(entry.inode);
      const path = `${level.path}/${entry.name}`;
      const bytes = entry.blocks * 512;
      if (entry.type === "directory") levels.push({ path, bytes, left: image.list(path) });
      else {
        level.bytes += bytes;
        add(path, entry.type, bytes);
      }
      tell("", seen.size, inodes - freeInodes);
      await breath();
    }
    return found.sort((a, b) => b.bytes - a.bytes).slice(0, LARGEST);
  },

  read({ path, length }) {
    return image.read(path, 0, length);
  },

  async file({ path }) {
    const { size } = image.stat(path);
    synced();
    const slices = sliced(path, size);
    if (slices) return slices;
    const out = await collector();
    const tell = progress("reading");
    await contents(path, size, (bytes) => {
      out.add(bytes);
      tell("", out.length, size);
    });
    return out.done();
  },

  /** Large files leave the image as slices of it, all else as bytes. */
  async tar({ path }) {
    const out = await collector();
    let length = 0;
    const tell = progress("");
    const { size, free } = image.info();
    const add = (bytes) => {
      out.add(bytes);
      length += bytes.length;
      tell("reading", length, Math.max(size - free, length));
    };
    synced();
    const slice = (offset, bytes) => {
      if (overlay.isChanged(offset, bytes)) return false;
      out.slice(file.slice(offset, offset + bytes));
      return true;
    };
    const remarks = image.tar(path, add, overlay ? slice : undefined);
    return { blob: await out.done(), remarks };
  },

  /** Contents, permissions and links; all else that a tar archive has is not in it. */
  async zip({ path }) {
    const out = await collector();
    synced();
    const zip = new Zip();
    const remarks = [];
    const tell = progress("reading");
    const { size, free } = image.info();
    let done = 0;
    const entered = new Set();
    const left = [[path, ""]];
    while (left.length > 0) {
      const [dir, prefix] = left.pop();
      for (const entry of image.list(dir)) {
        const from = `${dir === "/" ? "" : dir}/${entry.name}`;
        const name = prefix + shown(entry.name);
        const mode = entry.mode | { directory: 0o40000, symlink: 0o120000, file: 0o100000 }[entry.type];
        if (entry.error) remarks.push(`${name}: ${entry.error}`);
        else if (entry.type === "directory") {
          if (entered.has(entry.inode)) throw new Ext4Error("EUCLEAN", "a directory with two names");
          entered.add(entry.inode);
          out.add(zip.add(`${name}/`, { ...entry, mode }, 0, 0));
          left.push([from, `${name}/`]);
        } else if (entry.type === "symlink") {
          const target = encode(entry.target);
          out.add(zip.add(name, { ...entry, mode }, target.length, crc32(target)));
          out.add(target);
        } else if (entry.type === "file") {
          const slices = sliced(from, entry.size);
          // One part of a file waits for its sum.
          const isKept = !slices && entry.size > PART;
          const start = out.length;
          let crc = 0;
          await contents(from, entry.size, (bytes) => {
            crc = crc32(bytes, crc);
            if (isKept) out.add(bytes);
            done += bytes.length;
            tell("", done, Math.max(size - free, done));
          });
          const head = zip.add(name, { ...entry, mode }, entry.size, crc);
          // The head, which has the sum, comes before the contents.
          if (isKept) out.slice(new Blob([head]), start);
          else out.add(head);
          if (slices) out.slice(slices);
          else if (!isKept) out.add(part.subarray(0, entry.size));
        } else remarks.push(`${name}: left out, it is no file`);
      }
    }
    zip.end().forEach(out.add);
    return { blob: await out.done(), remarks };
  },

  /** In steps: the browser collects its garbage between them. */
  async sha256({ path }) {
    const steps = image.sha256Steps(path);
    const tell = progress("reading");
    for (;;) {
      const { value, done } = steps.next();
      if (done) return value;
      tell("", ...value);
      await breath();
    }
  },

  check() {
    return image.check(progress("checking"));
  },

  planRepair() {
    // The journal is replayed first, as e2fsck does.
    if (image.info().needsRecovery) edited();
    return image.planRepair(progress("checking"));
  },

  repair({ go }) {
    const undo = go ? image.repair() : undefined;
    return { undo, changed: changed(), ...tried() };
  },

  mkdir({ path }) {
    edited().mkdir(path);
    return changed();
  },

  rename({ from, to }) {
    edited().rename(from, to, { keep: true });
    return changed();
  },

  remove({ path }) {
    edited().remove(path, { recursive: true });
    return changed();
  },

  async add({ path, blob }) {
    const from = new BlobDevice(blob);
    const tell = progress(`adding ${blob.name ?? ""}`);
    const writer = edited().writer(path);
    try {
      for (let at = 0; at < blob.size; at += PART) {
        const bytes = part.subarray(0, Math.min(PART, blob.size - at));
        from.readInto(at, bytes);
        writer.write(bytes);
        tell("", at + bytes.length, blob.size);
        await breath();
      }
    } catch (error) {
      writer.abort();
      throw error;
    }
    writer.close();
    return changed();
  },

  /** Writes the changes into a file of the user: as a whole, or not at all. */
  async save({ handle }) {
    settle();
    const now = await handle.getFile();
    if (now.size !== file.size || now.lastModified !== file.lastModified) {
      throw new Ext4Error("ESTALE", "another program has changed the file; save a copy instead");
    }
    const tell = progress("saving");
    const out = await handle.createWritable({ keepExistingData: true });
    try {
      let done = 0;
      for (const [position, data] of overlay.changes()) {
        await out.write({ type: "write", position, data });
        done += data.length;
        tell("", done, overlay.changedBytes);
      }
    } catch (error) {
      await out.abort();
      throw error;
    }
    await out.close();
  },

  /** The changed image as a blob of parts of the old one and the changes. */
  copy() {
    settle();
    const parts = [];
    let end = 0;
    for (const [offset, bytes] of overlay.changes()) {
      parts.push(file.slice(end, offset), new Blob([bytes]));
      end = offset + bytes.length;
    }
    parts.push(file.slice(end));
    return new Blob(parts, BYTES);
  },
};

/** Makes the changed image a clean one. */
function settle() {
  image.unmount();
  image.mount();
}

const changed = () => overlay?.changedBytes ?? 0;

sweep().catch(() => {});

// Calls run one after the other.
let last = Promise.resolve();
addEventListener("message", ({ data: { id, call, given } }) => {
  last = last.then(async () => {
    try {
      postMessage({ id, result: await calls[call](given ?? {}) });
    } catch (error) {
      const { code = "EIO", message, cause } = error;
      postMessage({ id, error: { code, message, cause: cause?.message } });
    }
  });
});
