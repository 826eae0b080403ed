// The package against mke2fs, e2fsck, debugfs and tar.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import crypto from "node:crypto";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import zlib from "node:zlib";

import * as ext4 from "../node.js";

process.env.PATH += ":/usr/sbin:/sbin";

const run = (program, ...args) =>
  execFileSync(program, args, { encoding: "latin1", stdio: ["ignore", "pipe", "pipe"] });
const has = (program) => {
  try {
    run(program, "--help");
    return true;
  } catch (error) {
    return error.code !== "ENOENT";
  }
};
const sha256 = (bytes) => crypto.createHash("sha256").update(bytes).digest("hex");
/** Bytes that no compression makes small, the same in each run. */
const noise = (length) => {
  const key = Buffer.alloc(32, 7);
  return crypto.createCipheriv("aes-256-ctr", key, Buffer.alloc(16)).update(Buffer.alloc(length));
};
const clean = (image) => run("e2fsck", "-fn", image);

let dir;
const at = (name) => path.join(dir, name);
/** A tree of every kind, as an image of mke2fs. */
let image;

before(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), "ext4-npm-"));
  const tree = at("tree");
  fs.mkdirSync(path.join(tree, "d/many"), { recursive: true });
  fs.writeFileSync(path.join(tree, "hello.txt"), "hello\n");
  fs.writeFileSync(path.join(tree, "d/noise"), noise(1_200_001));
  fs.writeFileSync(Buffer.concat([Buffer.from(`${tree}/d/`), Buffer.from([0x66, 0xff, 0x22])]), "x");
  fs.writeFileSync(path.join(tree, "d/ä €"), "");
  fs.symlinkSync("../hello.txt", path.join(tree, "d/link"));
  for (let n = 0; n < 2500; n += 1) fs.writeFileSync(path.join(tree, `d/many/${n}`), "");
  image = at("tree.img");
  run("mke2fs", "-q", "-t", "ext4", "-d", tree, image, "16M");
});

after(() => fs.rmSync(dir, { recursive: true }));

/** A copy of the image. */
const copy = (name) => {
  fs.copyFileSync(image, at(name));
  return at(name);
};

test("lists, reads and describes what mke2fs has made", async () => {
  const seen = sha256(fs.readFileSync(image));
  const card = await ext4.openFile(image);
  const names = card.list("/").map((entry) => entry.name).sort();
  assert.deepEqual(names, ["d", "hello.txt", "lost+found"]);
  const d = new Map(card.list("/d").map((entry) => [entry.name, entry]));
  assert.deepEqual([...d.keys()].sort(), ["f\udcff\"", "link", "many", "noise", "ä €"].sort());
  assert.equal(d.get("link").target, "../hello.txt");
  assert.equal(d.get("many").modeText, "drwxr-xr-x");
  assert.equal(Buffer.from(card.readFile("/d/f\udcff\"")).toString(), "x");
  assert.equal(Buffer.from(card.readFile("/d/link")).toString(), "hello\n");
  assert.equal(card.readlink("/d/link"), "../hello.txt");
  assert.equal(card.list("/d/many").length, 2500);
  assert.equal([...card.listParts("/d/many")].length, 3);
  const bytes = noise(1_200_001);
  assert.deepEqual(Buffer.from(card.readFile("/d/noise")), bytes);
  assert.deepEqual(Buffer.from(card.read("/d/noise", 1_199_999, 99)), bytes.subarray(1_199_999));
  const into = Buffer.alloc(100);
  assert.equal(card.readInto("/d/noise", 1_199_950, into), 51);
  assert.deepEqual(into.subarray(0, 51), bytes.subarray(1_199_950));
  assert.equal(card.sha256("/d/noise"), sha256(bytes));
  assert.equal(card.sha256(), seen);
  assert.equal(card.stat("/d/noise").size, bytes.length);
  const raw = fs.readFileSync(image);
  const parts = card.extents("/d/noise").map(([, offset, length]) => raw.subarray(offset, offset + length));
  assert.deepEqual(Buffer.concat(parts), bytes);
  assert.equal(card.info().size, 16 << 20);
  assert.ok(card.info().features.includes("extent"));
  const report = card.check();
  assert.ok(report.clean, JSON.stringify(report.findings));
  assert.ok(report.files >= 2504);
  card.close();
  assert.equal(sha256(fs.readFileSync(image)), seen, "a reader writes nothing");
});

test("errors have codes", async () => {
  const card = await ext4.openFile(image);
  const code = (call, wanted) => assert.throws(call, { name: "Ext4Error", code: wanted });
  code(() => card.list("/no"), "ENOENT");
  code(() => card.list("/hello.txt"), "ENOTDIR");
  code(() => card.readFile("/d"), "EISDIR");
  code(() => card.mkdir("/x"), "EROFS");
  code(() => card.readlink("/d"), "EINVAL");
  code(() => card.read("/d/noise/x", 0, 1), "ENOTDIR");
  assert.throws(() => card.read("/hello.txt", -1, 1), RangeError);
  assert.throws(() => card.readInto("/hello.txt", 0.5, new Uint8Array(1)), RangeError);
  code(() => card.readInto("/d", 0, new Uint8Array(1)), "EISDIR");
  code(() => card.check(() => { card.list("/"); }), "EBUSY");
  assert.equal(card.check(() => false).stopped, true);
  code(() => card.sha256("/d/noise", () => false), "ECANCELED");
  code(() => card.tar("/", () => false), "ECANCELED");
  card.close();
  await assert.rejects(
    ext4.open({ size: 1 << 20, read: () => new Uint8Array(9) }),
    (error) => error.code === "EIO" && error.cause.message === "the device returned too few bytes",
  );
  const reader = { size: 1 << 20, read: (_, length) => new Uint8Array(length) };
  await assert.rejects(ext4.open(reader, { writable: true }), { code: "EROFS" });
});

test("changes go through the journal, and e2fsck finds a clean image", async () => {
  const name = copy("written.img");
  const card = await ext4.openFile(name, { writable: true });
  const bytes = noise(3_000_000);
  card.writeFile("/big", [bytes.subarray(0, 1234567), bytes.subarray(1234567)], { mode: 0o600 });
  card.mkdir("/a/b/c", { parents: true });
  card.writeFile("/a/b/c/f", "text");
  card.rename("/a/b/c/f", "/a/\udcfe");
  card.symlink("b/c", "/a/s");
  card.link("/a/\udcfe", "/a/second");
  card.chmod("/a/second", 0o4711);
  card.chown("/a/second", 1000, 70000);
  card.utimes("/a/second", 1234567890.5);
  card.setXattr("/big", "user.colour", Buffer.from("blue\0"));
  card.remove("/d", { recursive: true });
  card.truncate("/hello.txt", 3);
  assert.throws(() => card.rename("/big", "/hello.txt", { keep: true }), { code: "EEXIST" });
  assert.throws(() => card.remove("/a"), { code: "ENOTEMPTY" });
  assert.throws(() => card.mkdir("/a"), { code: "EEXIST" });
  assert.throws(() => card.remove("/no", { recursive: true }), { code: "ENOENT" });
  card.sync();
  assert.ok(card.check().clean);
  card.close();
  clean(name);
  const out = at("out");
  run("debugfs", "-R", `dump /big ${out}`, name);
  assert.deepEqual(fs.readFileSync(out), bytes);
  assert.match(run("debugfs", "-R", "cat /hello.txt", name), /^hel$/);
  const stat = run("debugfs", "-R", "stat /a/second", name);
  assert.match(stat, /Mode: {2}04711[^]*User: {2}1000 {3}Group: 70000[^]*Links: 2/);
  const again = await ext4.openFile(name);
  assert.deepEqual(Buffer.from(again.xattrs("/big").get("user.colour")), Buffer.from("blue\0"));
  assert.equal(again.stat("/a/second").mtime, 1234567890.5);
  assert.deepEqual(again.list("/a").map((entry) => entry.name).sort(), ["b", "s", "second", "\udcfe"]);
  again.close();
});

test("a writer that is not closed leaves the old file, and nothing else", async () => {
  const name = copy("unfinished.img");
  const names = (card) => card.list("/").map((entry) => entry.name).sort();
  const card = await ext4.openFile(name, { writable: true });
  const before = names(card);
  for (const end of ["unmount", "planRepair", "close"]) {
    const writers = ["/hello.txt", "/new", "/removed"].map((path) => card.writer(path));
    for (const writer of writers) writer.write(noise(100_000));
    const temporary = names(card).filter((one) => !before.includes(one));
    assert.equal(temporary.length, 3);
    card.remove(`/${temporary[0]}`);
    card[end]();
    clean(name);
    if (end !== "close") card.mount({ writable: true });
    for (const writer of writers) {
      assert.throws(() => writer.write(noise(1)), { name: "Ext4Error", code: "EBADF", message: /^\/\w/ });
      assert.throws(() => writer.close(), { code: "EBADF" });
      writer.abort();
    }
  }
  const again = await ext4.openFile(name, { writable: true });
  assert.deepEqual(names(again), before);
  assert.equal(Buffer.from(again.readFile("/hello.txt")).toString(), "hello\n");
  // Within a call nothing is unmounted, and the writer goes on.
  const writer = again.writer("/new");
  again.check(() => assert.throws(() => again.close(), { code: "EBUSY" }));
  assert.throws(() => again.writeFile("/d", "a directory"), { code: "EISDIR" });
  const full = again.writer("/full");
  for (const call of [() => full.write(noise(20 << 20)), () => full.write(noise(1)), () => full.close()]) {
    assert.throws(call, { code: "ENOSPC" });
  }
  full.abort();
  // Names that a killed program has left are not taken.
  const [temporary, ...more] = names(again).filter((one) => !before.includes(one));
  assert.deepEqual(more, []);
  for (let n = 1; n < 9; n += 1) again.write(`/${temporary.replace(/\d+/, (of) => +of + n)}`, 0, noise(9));
  writer.write(Buffer.from("all"));
  writer.close();
  again.writeFile("/short", "s");
  assert.equal(Buffer.from(again.readFile("/new")).toString(), "all");
  assert.equal(Buffer.from(again.readFile("/short")).toString(), "s");
  assert.equal(names(again).length, before.length + 10);
  again.close();
  again.close();
  clean(name);
});

test("a journal that waits is replayed in memory by a reader, and by a writer for good", async () => {
  const name = copy("crashed.img");
  const lost = await ext4.openFile(name, { writable: true });
  lost.writeFile("/durable", "kept");
  lost.sync();
  // Not closed, as after a crash.
  const seen = sha256(fs.readFileSync(name));
  const reader = await ext4.openFile(name, { mount: false });
  reader.choose();
  assert.equal(reader.mount().replayedInMemory, true);
  assert.equal(Buffer.from(reader.readFile("/durable")).toString(), "kept");
  reader.close();
  assert.equal(sha256(fs.readFileSync(name)), seen);
  (await ext4.openFile(name, { writable: true })).close();
  clean(name);
});

test("a device whose writes fail latches the volume", async () => {
  const name = copy("failing.img");
  const file = new ext4.FileDevice(name, { writable: true });
  const failing = {
    size: file.size,
    readInto: (offset, into) => file.readInto(offset, into),
    write: (offset, bytes) => {
      if (failing.failed) throw new Error("pulled out");
      file.write(offset, bytes);
    },
  };
  const card = await ext4.open(failing, { writable: true });
  card.writeFile("/a", "1");
  card.sync();
  failing.failed = true;
  card.writeFile("/b", "2");
  assert.throws(() => card.sync(), (error) => error.code === "EIO" && error.cause?.message === "pulled out");
  assert.throws(() => card.sync(), { code: "EIO" });
  assert.equal(Buffer.from(card.readFile("/a")).toString(), "1");
  file.close();
});

test("changes over a device that is only read", async () => {
  const base = new ext4.FileDevice(image);
  const overlay = new ext4.OverlayDevice(base, new ext4.MemoryDevice());
  const card = await ext4.open(overlay, { writable: true });
  card.writeFile("/new", noise(1_000_000));
  card.remove("/d/many", { recursive: true });
  card.close();
  assert.ok(overlay.changedBytes < 8 << 20);
  const saved = copy("saved.img");
  const file = fs.openSync(saved, "r+");
  let last = -1;
  for (const [offset, bytes] of overlay.changes()) {
    assert.ok(offset > last);
    last = offset;
    fs.writeSync(file, bytes, 0, bytes.length, offset);
  }
  fs.closeSync(file);
  base.close();
  clean(saved);
  run("debugfs", "-R", `dump /new ${at("out")}`, saved);
  assert.deepEqual(fs.readFileSync(at("out")), noise(1_000_000));
});

test("new file systems", async () => {
  for (const [type, size, blockSize] of [["ext4", 256 << 20, 0], ["ext3", 64 << 20, 4096], ["ext2", 8 << 20, 0]]) {
    const name = at(`new.${type}.img`);
    await ext4.formatFile(name, size, { label: "müll", type, blockSize });
    clean(name);
    const card = await ext4.openFile(name, { writable: type !== "ext2" });
    assert.equal(card.info().label, "müll");
    assert.deepEqual(card.list("/").map((entry) => entry.name), ["lost+found"]);
    if (card.writable) card.writeFile("/a", "b");
    card.close();
    clean(name);
  }
  await assert.rejects(ext4.format(new ext4.MemoryDevice(1024)), { code: "EINVAL" });
  await assert.rejects(ext4.format(new ext4.MemoryDevice(8 << 20), { label: "x".repeat(17) }));
});

test("archives are as tar reads them", async () => {
  const card = await ext4.openFile(image);
  const parts = [];
  card.tar("/d", (bytes) => void parts.push(Buffer.from(bytes)));
  assert.throws(() => card.tar("/d", () => false, () => true), { code: "ECANCELED" });
  const raw = fs.readFileSync(image);
  const mixed = [];
  let slices = 0;
  card.tar("/d", (bytes) => void mixed.push(Buffer.from(bytes)), (offset, length) => {
    slices += 1;
    mixed.push(raw.subarray(offset, offset + length));
    return true;
  });
  card.close();
  assert.ok(slices > 0);
  assert.deepEqual(Buffer.concat(mixed), Buffer.concat(parts), "parts by their place are the same bytes");
  fs.writeFileSync(at("d.tar"), Buffer.concat(parts));
  const names = run("tar", "-tf", at("d.tar")).split("\n");
  assert.ok(names.includes("./many/2499") && names.includes("./link"), names.slice(0, 5).join());
  assert.deepEqual(
    execFileSync("tar", ["-xOf", at("d.tar"), "./noise"], { maxBuffer: 1 << 24 }),
    noise(1_200_001),
  );
});

test("a repair mends what check finds", async () => {
  const name = copy("broken.img");
  run("debugfs", "-w", "-R", "set_bg 0 free_blocks_count 3", name);
  run("debugfs", "-w", "-R", "set_inode_field /hello.txt links_count 7", name);
  assert.throws(() => clean(name));
  const before = sha256(fs.readFileSync(name));
  const card = await ext4.openFile(name, { writable: true, mount: false });
  card.choose();
  // Its group descriptor is damaged: it is read past that.
  assert.throws(() => card.mount(), { code: "EUCLEAN" });
  assert.throws(() => card.mount({ rescue: true, writable: true }), { code: "EINVAL" });
  assert.ok(card.mount({ rescue: true }).missing.length > 0);
  assert.equal(card.sha256("/d/noise"), sha256(noise(1_200_001)));
  card.unmount();
  const report = card.check();
  assert.ok(!report.clean && report.findings.every((found) => found.text && found.repair));
  const plan = card.planRepair();
  assert.ok(plan.changes > 0 && plan.before.errors > 0);
  assert.equal(sha256(fs.readFileSync(name)), before, "a plan writes nothing");
  if (!plan.after.clean) assert.ok(plan.after.errors < plan.before.errors);
  assert.ok(card.repair().length > 100);
  assert.throws(() => card.repair(), { code: "EINVAL" });
  assert.ok(plan.after.clean, JSON.stringify(plan.after.findings));
  card.mount();
  assert.ok(card.check().clean);
  card.close();
  clean(name);
});

/** The image as a partition of a disk with an MBR. */
const disk = (...kinds) => {
  const bytes = fs.readFileSync(image);
  const start = 1 << 20;
  const whole = Buffer.alloc(start + kinds.length * bytes.length);
  kinds.forEach((kind, nr) => {
    const entry = 446 + 16 * nr;
    whole[entry + 4] = kind;
    whole.writeUInt32LE((start + nr * bytes.length) / 512, entry + 8);
    whole.writeUInt32LE(bytes.length / 512, entry + 12);
    if (kind === 0x83) bytes.copy(whole, start + nr * bytes.length);
  });
  whole.writeUInt16LE(0xaa55, 510);
  return whole;
};

/** A device of bytes in memory. */
const of = (bytes) => ({
  size: bytes.length,
  read: (offset, length) => bytes.subarray(offset, offset + length),
});

test("partitions of a whole disk", async () => {
  const one = await ext4.open(of(disk(0x0c, 0x83)));
  assert.deepEqual(one.disk.partitions.map((part) => [part.number, part.ext4]), [[1, false], [2, true]]);
  assert.equal(one.partition.number, 2);
  assert.equal(one.list("/").length, 3);
  const two = of(disk(0x83, 0x83));
  await assert.rejects(ext4.open(two), { code: "EINVAL", message: /2 ext4 partitions; choose one of 1 / });
  assert.equal((await ext4.open(two, { partition: 1 })).list("/").length, 3);
  await assert.rejects(ext4.open(two, { partition: 9 }), { code: "EINVAL" });
});

/** Android's sparse format: data, four bytes again and again, nothing. */
const sparse = (bytes) => {
  const block = 4096;
  const runs = [];
  for (let at = 0; at < bytes.length; at += block) {
    const part = bytes.subarray(at, at + block);
    const kind = part.every((byte) => byte === 0) ? 0xcac3 : 0xcac1;
    const last = runs.at(-1);
    if (last?.kind === kind) last.parts.push(part);
    else runs.push({ kind, parts: [part] });
  }
  const header = Buffer.alloc(28);
  header.writeUInt32LE(0xed26ff3a, 0);
  header.writeUInt16LE(1, 4);
  header.writeUInt16LE(28, 8);
  header.writeUInt16LE(12, 10);
  header.writeUInt32LE(block, 12);
  header.writeUInt32LE(bytes.length / block, 16);
  header.writeUInt32LE(runs.length, 20);
  const chunks = runs.map(({ kind, parts }) => {
    const head = Buffer.alloc(12);
    const data = kind === 0xcac1 ? Buffer.concat(parts) : Buffer.alloc(0);
    head.writeUInt16LE(kind, 0);
    head.writeUInt32LE(parts.length, 4);
    head.writeUInt32LE(12 + data.length, 8);
    return Buffer.concat([head, data]);
  });
  return Buffer.concat([header, ...chunks]);
};

/** Frames of zstd without compression: runs of one byte, and bytes as they are; a skippable one. */
const zstd = (bytes) => {
  const skippable = Buffer.from([0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3]);
  const frames = [];
  const step = 1 << 17;
  for (let from = 0; from < bytes.length; from += 16 * step) {
    const part = bytes.subarray(from, from + 16 * step);
    frames.push(Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0, 0x58]));
    for (let at = 0; at < part.length; at += step) {
      const block = part.subarray(at, at + step);
      const head = Buffer.alloc(3);
      const isRun = block.every((byte) => byte === block[0]);
      const isLast = at + step >= part.length ? 1 : 0;
      head.writeUIntLE((block.length << 3) | (isRun ? 2 : 0) | isLast, 0, 3);
      frames.push(head, isRun ? block.subarray(0, 1) : block);
    }
    frames.push(skippable);
  }
  return Buffer.concat(frames);
};

test("formats of disks, and compressed images", async () => {
  const bytes = fs.readFileSync(image);
  const forms = { sparse: sparse(bytes), gzip: zlib.gzipSync(bytes, { level: 1 }), zstd: zstd(bytes) };
  forms["sparse in gzip"] = zlib.gzipSync(forms.sparse, { level: 1 });
  const programs = [
    ["qcow2", "qemu-img", ["convert", "-O", "qcow2"]],
    ["qcow2, compressed", "qemu-img", ["convert", "-c", "-O", "qcow2"]],
    ["qcow2, clusters of 512 bytes", "qemu-img", ["convert", "-O", "qcow2", "-o", "cluster_size=512"]],
    ["qcow2, version 2", "qemu-img", ["convert", "-O", "qcow2", "-o", "compat=0.10"]],
    ["vmdk", "qemu-img", ["convert", "-O", "vmdk"]],
    ["vhdx", "qemu-img", ["convert", "-O", "vhdx"]],
  ];
  for (const [name, program, args] of programs.filter(([, program]) => has(program))) {
    run(program, ...args, image, at("form"));
    forms[name] = fs.readFileSync(at("form"));
  }
  for (const [name, program] of [["zstd -3", "zstd"], ["xz", "xz"], ["bzip2", "bzip2"]]) {
    if (!has(program)) continue;
    const args = program === "zstd" ? ["-3", "-c"] : ["-1", "-c"];
    forms[name] = execFileSync(program, [...args, image], { maxBuffer: 1 << 28 });
  }
  const wanted = sha256(noise(1_200_001));
  for (const [name, form] of Object.entries(forms)) {
    const card = await ext4.open(of(form)).catch((error) => assert.fail(`${name}: ${error}`));
    assert.equal(card.sha256("/d/noise"), wanted, name);
    assert.ok(card.check().clean, name);
    assert.equal(card.disk.raw && !card.disk.compressed, false, name);
    await assert.rejects(ext4.open({ ...of(form), write() {} }, { writable: true }), name);
    // Cut short and torn: an error, wherever it is met.
    const torn = Buffer.from(form);
    torn[torn.length >> 1] ^= 0x55;
    for (const bad of [form.subarray(0, form.length * 0.6), torn]) {
      try {
        (await ext4.open(of(bad))).sha256("/d/noise");
      } catch (error) {
        assert.equal(error.name, "Ext4Error", `${name}: ${error.stack}`);
        assert.notEqual(error.code, "ETRAP", `${name}: ${error.message}`);
      }
    }
  }
  const little = { scratch: new ext4.MemoryDevice(0, 1 << 18) };
  await assert.rejects(ext4.open(of(forms.gzip), little), (error) => {
    assert.match(error.message, /no room for the unpacked image/);
    return /more than 262144 bytes/.test(error.cause.message);
  });
  await assert.rejects(ext4.open(of(Buffer.concat([Buffer.from("LUKS\xba\xbe", "latin1"), Buffer.alloc(1 << 20)]))), {
    code: "EOPNOTSUPP", message: /this is LUKS/,
  });
});

test("hostile images end in an error or a result, never a trap", async () => {
  // Without checksums, behind which most damage would end.
  const bare = at("bare.img");
  run("mke2fs", "-q", "-t", "ext4", "-O", "^metadata_csum", "-d", at("tree"), bare, "16M");
  const bytes = fs.readFileSync(bare);
  let random = 1;
  const next = (below) => {
    random = (Math.imul(random, 1103515245) + 12345) >>> 0;
    return Math.floor((random / 2 ** 32) * below);
  };
  const use = async (device) => {
    try {
      const card = await ext4.open(device);
      const entries = card.list("/").concat(card.list("/d"));
      card.sha256("/d/noise");
      card.tar("/d", () => true);
      card.check();
      return entries.length;
    } catch (error) {
      assert.equal(error.name, "Ext4Error", error.stack);
      assert.notEqual(error.code, "ETRAP", error.message);
      return error.code;
    }
  };
  assert.equal(await use(of(Buffer.alloc(0))), "EUCLEAN");
  assert.equal(await use(of(Buffer.alloc(100))), "EUCLEAN");
  assert.equal(await use(of(noise(1 << 20))), "EUCLEAN");
  for (const part of [0.9, 0.5, 0.1, 0.01, 0.001]) await use(of(bytes.subarray(0, bytes.length * part)));
  const seen = new Set();
  // Bytes of metadata that say something.
  const metadata = [...bytes.subarray(1024, 1 << 20).keys()].filter((n) => bytes[1024 + n] !== 0);
  for (let round = 0; round < 50; round += 1) {
    const hostile = Buffer.from(bytes);
    for (let n = 0; n <= next(4); n += 1) {
      const place = next(3) === 0 ? next(1024) : metadata[next(metadata.length)];
      hostile[1024 + place] = next(256);
    }
    seen.add(await use(of(hostile)));
  }
  assert.ok(seen.size > 1, [...seen].join());
});

test("images of 8 and 100 GB are opened with few bytes read", async () => {
  for (const [size, limit] of [["8G", 4 << 20], ["100G", 8 << 20]]) {
    const name = at(`large.${size}.img`);
    run("mke2fs", "-q", "-t", "ext4", "-d", at("tree"), name, size);
    const file = new ext4.FileDevice(name);
    let read = 0;
    const counted = {
      size: file.size,
      readInto(offset, into) {
        read += into.length;
        file.readInto(offset, into);
      },
    };
    const card = await ext4.open(counted);
    assert.equal(card.list("/").length, 3);
    assert.equal(card.list("/d/many").length, 2500);
    assert.ok(read < limit, `${size}: ${read} bytes`);
    assert.ok(card.memory < 64 << 20, `${size}: ${card.memory} bytes of memory`);
    console.log(`# ${size}: ${read} bytes read, ${card.memory} bytes of memory`);
    card.close();
    file.close();
    fs.rmSync(name);
  }
});

/** A stand-in for the worker of a browser: the image that was chosen, its ranges, and messages. */
const WORKER = `import fs from "node:fs";
class FileReaderSync {
  readAsArrayBuffer(bytes) {
    return Uint8Array.from(bytes).buffer;
  }
}
const file = Object.assign(fs.readFileSync("card.img"), { size: fs.statSync("card.img").size });
Object.assign(globalThis, { FileReaderSync, postMessage: (bytes) => process.stdout.write(bytes) });
`;

test("the examples of docs/WEB.md run where the package is installed", () => {
  const document = fs.readFileSync(new URL("../../../docs/WEB.md", import.meta.url), "utf8");
  const examples = [...document.matchAll(/^```js\n([^]*?)^```$/gm)].map(([, text]) => text);
  assert.equal(examples.length, 2);
  fs.mkdirSync(at("web/node_modules/@syncline"), { recursive: true });
  fs.symlinkSync(new URL("..", import.meta.url), at("web/node_modules/@syncline/ext4"));
  fs.mkdirSync(at("web/tree/etc"), { recursive: true });
  for (const name of ["hostname", "os-release"]) fs.writeFileSync(at(`web/tree/etc/${name}`), `old ${name}\n`);
  run("mke2fs", "-q", "-t", "ext4", "-d", at("web/tree"), at("web/card.img"), "16M");
  const options = { cwd: at("web"), encoding: "utf8" };
  const said = examples.map((text) => {
    const needs = text.includes("(file)") ? WORKER : "";
    return execFileSync(process.execPath, ["--input-type=module", "-e", needs + text], options);
  });
  assert.match(said[0], /^-rw-r--r-- 13 hostname$/m);
  assert.equal(said[1], "old os-release\n");
  assert.equal(run("debugfs", "-R", "cat /etc/hostname", at("web/card.img")), "pi\n");
  clean(at("web/card.img"));
});
