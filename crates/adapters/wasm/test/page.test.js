// The page in headless Chromium: each action, damaged images, large images. The images are made by
// mke2fs, and judged by e2fsck.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import crypto from "node:crypto";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { serve, start } from "./chromium.js";

process.env.PATH += ":/usr/sbin:/sbin";

const root = fileURLToPath(new URL("../../../../", import.meta.url));
const PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEElEQVR4nGP4z8AARAwQCgAf7gP9i18U1AAAAABJRU5ErkJggg==";
const run = (program, ...args) =>
  execFileSync(program, args, { encoding: "latin1", stdio: ["ignore", "pipe", "pipe"] });
const noise = (length) => {
  const key = Buffer.alloc(32, 9);
  return crypto.createCipheriv("aes-256-ctr", key, Buffer.alloc(16)).update(Buffer.alloc(length));
};
const sha256 = (bytes) => crypto.createHash("sha256").update(bytes).digest("hex");

let dir, downloads, server, page, image;
const asked = [];
const at = (name) => path.join(dir, name);

before(async () => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), "ext4-images-"));
  downloads = at("downloads");
  fs.mkdirSync(path.join(dir, "tree/d/deep"), { recursive: true });
  fs.mkdirSync(downloads);
  fs.writeFileSync(at("tree/d/noise"), noise(9_000_001));
  const holes = fs.openSync(at("tree/d/holes"), "w");
  for (const place of [100_000, 3_000_000]) fs.writeSync(holes, noise(5000), 0, 5000, place);
  fs.ftruncateSync(holes, 5_555_555);
  fs.closeSync(holes);
  fs.writeFileSync(at("tree/text"), "grüße\n".repeat(20_000));
  fs.writeFileSync(at("tree/dot.png"), Buffer.from(PICTURE, "base64"));
  fs.writeFileSync(at("tree/<b>&amp;"), "not markup");
  fs.symlinkSync("d/noise", at("tree/link"));
  fs.symlinkSync("d", at("tree/way"));
  image = at("card.img");
  run("mke2fs", "-q", "-t", "ext4", "-L", "card", "-d", at("tree"), image, "48M");
  server = await serve(path.join(root, "target/web"), (name) => asked.push(name));
  page = start();
  await page.open(server.url, downloads);
});

after(async () => {
  await page?.close();
  server?.close();
  fs.rmSync(dir, { recursive: true });
});

const rows = () => page.value("[...document.querySelectorAll('#rows tr')].map((row) => row.cells[0].textContent)");
const alerted = () => page.until("document.querySelector('#alert span')?.textContent");
const idle = () => page.until("document.body.ariaBusy !== 'true'");

/** Opens an image and waits for its files. */
async function open(file) {
  await page.value("document.querySelector('#rows').replaceChildren()");
  await page.files("#file", file);
  await page.until("!document.querySelector('#work').hidden && document.querySelector('#rows').children.length");
  await idle();
}

/** Taps the row whose name begins so. */
const tap = (name) =>
  page.value(
    `[...document.querySelectorAll('#rows tr')].find((row) => row.cells[0].textContent.startsWith(${JSON.stringify(name)})).click()`,
  );

async function show(name) {
  await page.value("document.querySelector('#view').hidden = true");
  await tap(name);
  await page.until("!document.querySelector('#view').hidden");
  await idle();
}

/** The file that the page downloads. */
async function downloaded(name) {
  const file = path.join(downloads, name);
  // Chromium first takes the name with an empty file, and then renames the whole one to it.
  for (let n = 0; !fs.statSync(file, { throwIfNoEntry: false })?.size; n += 1) {
    assert.ok(n < 200, `${name} was not downloaded; there are ${fs.readdirSync(downloads)}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const bytes = fs.readFileSync(file);
  fs.rmSync(file);
  return bytes;
}

async function answer(value) {
  await page.until("document.querySelector('#ask').open");
  if (value !== undefined) await page.value(`document.querySelector('#ask-input').value = ${JSON.stringify(value)}`);
  await page.click("#ask-yes");
  await page.until("!document.querySelector('#ask').open");
}

test("a list, previews, attributes", async () => {
  await open(image);
  assert.deepEqual(await rows(), [
    "d, directory", "lost+found, directory", "<b>&amp;", "dot.png", "link, symlink → d/noise", "text",
    "way, symlink → d",
  ]);
  await show("text");
  const text = await page.value("document.querySelector('#preview pre').textContent");
  assert.equal(text, "grüße\n".repeat(20_000).slice(0, text.length));
  assert.ok(text.length > 40_000);
  await show("dot.png");
  assert.equal(await page.value("document.querySelector('#preview img').naturalWidth"), 2);
  await show("<b>");
  assert.match(await page.value("document.querySelector('#view').innerText"), /not markup/);
  await show("link");
  assert.match(await page.value("document.querySelector('#attributes').innerText"), /Leads to\s+d\/noise/);
  await show("way");
  await page.click("#follow");
  await page.until("document.querySelectorAll('#path li').length === 2");
  assert.deepEqual(await rows(), ["deep, directory", "holes", "noise"]);
  await page.key("Backspace", 8);
  await page.until("document.querySelectorAll('#path li').length === 1");
  await idle();
  await page.click("#tab-info");
  await page.until("document.querySelectorAll('#facts tr').length > 5");
  assert.match(await page.value("document.querySelector('#facts').innerText"), /Label\s+card/);
  await page.click("#sum-disk");
  const sum = await page.until("document.querySelector('#disk-digest').textContent");
  assert.equal(sum, `SHA-256 ${sha256(fs.readFileSync(image))}`);
  await page.click("#find-largest");
  await page.until("!document.querySelector('#largest').hidden");
  assert.deepEqual(
    await page.value("[...document.querySelectorAll('#largest-rows td')].slice(0, 3).map((cell) => cell.textContent)"),
    ["/d/", "/d/noise", "/text"],
  );
  await page.click("#tab-check");
  await page.click("#run-check");
  assert.match(await page.until("document.querySelector('#verdict').textContent"), /^Clean: 4 directories, 7 other/);
  await page.click("#tab-files");
});

test("downloads are the bytes", async () => {
  await tap("d,");
  await page.until("document.querySelectorAll('#path li').length === 2");
  await show("noise");
  assert.match(await page.value("document.querySelector('#preview pre.hex').textContent"), /^000000 {2}/);
  await page.click("#get");
  assert.deepEqual(await downloaded("noise"), noise(9_000_001));
  await page.click("#sum");
  const digest = await page.until("document.querySelector('#digest').textContent");
  assert.equal(digest, `SHA-256 ${sha256(noise(9_000_001))}`);
  await show("holes");
  await page.click("#get");
  assert.deepEqual(await downloaded("holes"), fs.readFileSync(at("tree/d/holes")));
  await page.click("#get-tar");
  fs.writeFileSync(at("d.tar"), await downloaded("d.tar"));
  assert.deepEqual(run("tar", "-tf", at("d.tar")).trim().split("\n"), ["./", "./deep/", "./holes", "./noise"]);
  await page.click("#path button");
  await page.until("document.querySelectorAll('#path li').length === 1");
  await idle();
  await page.click("#get-zip");
  fs.writeFileSync(at("card.zip"), await downloaded("card.zip"));
  const read = `
import hashlib, sys, zipfile
z = zipfile.ZipFile(sys.argv[1])
print(z.testzip())
for i in sorted(z.infolist(), key=lambda i: i.filename):
    print(i.filename, oct(i.external_attr >> 16), hashlib.sha256(z.read(i)).hexdigest()[:8])`;
  const sum = (name) => sha256(fs.readFileSync(at(name))).slice(0, 8);
  const none = sha256("").slice(0, 8);
  assert.deepEqual(run("python3", "-c", read, at("card.zip")).trim().split("\n"), [
    "None", `<b>&amp; 0o100644 ${sum("tree/<b>&amp;")}`, `d/ 0o40755 ${none}`, `d/deep/ 0o40755 ${none}`,
    `d/holes 0o100644 ${sum("tree/d/holes")}`, `d/noise 0o100644 ${sum("tree/d/noise")}`,
    `dot.png 0o100644 ${sum("tree/dot.png")}`, `link 0o120777 ${sha256("d/noise").slice(0, 8)}`,
    `lost+found/ 0o40700 ${none}`, `text 0o100644 ${sum("tree/text")}`, `way 0o120777 ${sha256("d").slice(0, 8)}`,
  ]);
});

test("the keyboard leads everywhere", async () => {
  await open(image);
  const focused = () => page.value("document.activeElement.cells?.[0].textContent.split(',')[0]");
  await page.until("document.activeElement.getAttribute('role') === 'row'");
  assert.equal(await focused(), "d");
  await page.key("Enter", 13);
  await page.until("document.querySelectorAll('#path li').length === 2 && document.activeElement.textContent.startsWith('deep')");
  await page.key("Backspace", 8);
  await page.until("document.querySelectorAll('#path li').length === 1 && document.activeElement.textContent.startsWith('d,')");
  for (const _ of [1, 2, 3]) await page.key("ArrowDown", 40);
  assert.equal(await focused(), "dot.png");
  await page.key("t");
  assert.equal(await focused(), "text");
  await page.key("Home", 36);
  assert.equal(await focused(), "d");
  const unnamed = await page.value(
    `[...document.querySelectorAll('button, input, select, table, meter, progress')]
      .filter((one) => one.checkVisibility())
      .filter((one) => !(one.innerText || one.ariaLabel || one.labels?.length || one.caption)).map((one) => one.outerHTML)`,
  );
  assert.deepEqual(unnamed, []);
});

test("nothing overlaps or is cut, wide and narrow", async () => {
  await show("text");
  for (const [width, height] of [[1280, 860], [768, 900], [390, 800]]) {
    const metrics = { width, height, deviceScaleFactor: 1, mobile: false };
    await page.send("Emulation.setDeviceMetricsOverride", metrics);
    const outside = await page.value(
      `[...document.querySelectorAll('main *')].filter((one) => one.checkVisibility() && !one.closest('pre, .unseen'))
        .filter((one) => one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML.slice(0, 80))`,
    );
    assert.deepEqual(outside, [], `${width} pixels`);
    assert.equal(await page.value("document.documentElement.scrollWidth <= innerWidth"), true);
  }
  await page.send("Emulation.clearDeviceMetricsOverride");
});

test("damaged images end in a message, and the next image opens", async () => {
  const bytes = fs.readFileSync(image);
  fs.writeFileSync(at("random.img"), noise(1 << 20));
  fs.writeFileSync(at("empty.img"), "");
  fs.writeFileSync(at("cut.img"), bytes.subarray(0, 3_000_000));
  for (const name of ["random.img", "empty.img", "cut.img"]) {
    await page.value("document.querySelector('#alert').replaceChildren()");
    await page.files("#file", at(name));
    assert.ok((await alerted()).length > 20, name);
    await idle();
    // What is no ext4 is not opened, what is a damaged one can be checked.
    const isOpen = await page.value("!document.querySelector('#work').hidden");
    assert.equal(isOpen, name === "cut.img", name);
  }
  // A worker that dies, as by a trap: the page says so and takes the next image.
  await page.value("document.querySelector('#alert').replaceChildren()");
  await page.value(
    `{ const post = Worker.prototype.postMessage;
       Worker.prototype.postMessage = function (message) {
         Worker.prototype.postMessage = post;
         this.dispatchEvent(new ErrorEvent("error", { message: "out of memory", cancelable: true }));
       } }`,
  );
  await page.files("#file", image);
  assert.match(await alerted(), /stopped its reader.*Out of memory/);
  await open(image);
  assert.equal((await rows()).length, 7);
});

test("a copy has the changes, and the image is as it was", async () => {
  const seen = sha256(fs.readFileSync(image));
  await open(image);
  await page.click("#mkdir");
  await answer("new ä");
  await page.until("document.activeElement.textContent.startsWith('new ä')");
  fs.writeFileSync(at("added"), noise(5_000_000));
  await page.files("#add-files", at("added"));
  await page.until("document.querySelector('#rows').innerText.includes('added')");
  await idle();
  await show("text");
  await page.click("#rename");
  await answer("renamed");
  await page.until("document.querySelector('#rows').innerText.includes('renamed')");
  await idle();
  await show("dot.png");
  await page.click("#delete");
  await answer();
  await page.until("!document.querySelector('#rows').innerText.includes('dot.png')");
  await idle();
  // Changed files are read through the volume.
  await show("added");
  await page.click("#get");
  assert.deepEqual(await downloaded("added"), noise(5_000_000));
  await page.click("#save-copy");
  fs.writeFileSync(at("copy.img"), await downloaded("card.img"));
  run("e2fsck", "-fn", at("copy.img"));
  run("debugfs", "-R", `dump /added ${at("out")}`, at("copy.img"));
  assert.deepEqual(fs.readFileSync(at("out")), noise(5_000_000));
  const listed = run("debugfs", "-R", "ls -p /", at("copy.img"));
  assert.match(listed, /\/renamed\//);
  assert.doesNotMatch(listed, /\/text\/|dot\.png|\.tmp/);
  assert.equal(sha256(fs.readFileSync(image)), seen);
});

test("changes are saved into the file, and a repair, too", async () => {
  // A file of the browser in place of one of the user: its handle has the same functions.
  const broken = at("broken.img");
  run("mke2fs", "-q", "-t", "ext4", "-d", at("tree/d/deep"), broken, "8M");
  run("debugfs", "-w", "-R", "set_bg 0 free_inodes_count 3", broken);
  const input = fs.readFileSync(broken).toString("base64");
  await page.value(
    `(async () => {
       const bytes = Uint8Array.from(atob("${input}"), (c) => c.charCodeAt(0));
       const root = await navigator.storage.getDirectory();
       const handle = await root.getFileHandle("mine.img", { create: true });
       const out = await handle.createWritable();
       await out.write(bytes);
       await out.close();
       globalThis.showOpenFilePicker = async () => [handle];
     })()`,
  );
  await page.value("document.querySelector('#rows').replaceChildren()");
  await page.click("#other");
  await answer();
  await page.until("document.querySelector('#name').textContent === 'mine.img' && document.querySelector('#rows').children.length");
  // It is read past its damage, and not changed.
  assert.match(await alerted(), /^It is damaged: .* shown past its damage/);
  await idle();
  assert.deepEqual(await rows(), ["lost+found, directory"]);
  assert.equal(await page.value("document.querySelector('#mkdir').hidden"), true);
  await page.click("#tab-check");
  await page.click("#run-check");
  assert.match(await page.until("document.querySelector('#verdict').textContent"), /error/);
  await page.click("#run-repair");
  await answer();
  assert.ok((await downloaded("mine.img.undo")).length > 100);
  await page.until("document.querySelector('#verdict').textContent.startsWith('Clean')");
  await idle();
  await page.click("#tab-files");
  await page.click("#mkdir");
  await answer("kept");
  await page.until("document.querySelector('#rows').innerText.includes('kept')");
  await idle();
  await page.click("#save");
  await page.until("document.querySelector('#said').textContent.startsWith('Saved')");
  await page.until("document.querySelector('#save').hidden && document.querySelector('#rows').innerText.includes('kept')");
  const output = await page.value(
    `(async () => {
       const [handle] = await showOpenFilePicker();
       const bytes = new Uint8Array(await (await handle.getFile()).arrayBuffer());
       let text = "";
       for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768));
       return btoa(text);
     })()`,
  );
  fs.writeFileSync(at("saved.img"), Buffer.from(output, "base64"));
  run("e2fsck", "-fn", at("saved.img"));
  assert.match(run("debugfs", "-R", "ls -p /", at("saved.img")), /\/kept\//);
});

test("whole disks and compressed images", async () => {
  const bytes = fs.readFileSync(image);
  const start = 1 << 20;
  const disk = Buffer.alloc(start + 2 * bytes.length);
  [start, start + bytes.length].forEach((from, nr) => {
    disk[446 + 16 * nr + 4] = 0x83;
    disk.writeUInt32LE(from / 512, 446 + 16 * nr + 8);
    disk.writeUInt32LE(bytes.length / 512, 446 + 16 * nr + 12);
    bytes.copy(disk, from);
  });
  disk.writeUInt16LE(0xaa55, 510);
  fs.writeFileSync(at("disk.img"), disk);
  await open(at("disk.img"));
  assert.equal(await page.value("document.querySelector('#part').options.length"), 2);
  await page.value("document.querySelector('#part').value = '2'; document.querySelector('#part').dispatchEvent(new Event('change'))");
  await idle();
  assert.equal((await rows()).length, 7);
  run("gzip", "-1", "-k", image);
  await open(`${image}.gz`);
  assert.match(await page.value("document.querySelector('#what').textContent"), /unpacked, only read/);
  assert.equal(await page.value("document.querySelector('#mkdir').hidden"), true);
});

test("images of 8 and 100 GB are listed at once, in little memory", async () => {
  for (const size of ["8G", "100G"]) {
    const name = at(`${size}.img`);
    run("mke2fs", "-q", "-t", "ext4", "-d", at("tree"), name, size);
    await open(name);
    assert.equal((await rows()).length, 7);
    await page.click("#tab-info");
    const said = await page.until("document.querySelector('#facts tr:last-child td')?.textContent");
    const [read, memory] = said.match(/[\d,]+(?= bytes)/g).map((digits) => Number(digits.replaceAll(",", "")));
    assert.ok(read < 256 << 10 && memory < 64 << 20, `${size}: ${said}`);
    console.log(`# ${size}: ${said}`);
    await page.click("#tab-files");
    fs.rmSync(name);
  }
});

test("without a network the page opens again", async () => {
  await page.value("navigator.serviceWorker.ready.then(() => true)");
  server.close();
  const before = asked.length;
  const offline = { offline: true, latency: 0, downloadThroughput: 0, uploadThroughput: 0 };
  await page.send("Network.emulateNetworkConditions", offline);
  await page.go(server.url);
  await open(image);
  assert.equal((await rows()).length, 7);
  assert.equal(asked.length, before);
  const lists = fs.readFileSync(path.join(root, "target/web/sw.js"), "utf8").matchAll(/(FILES|LAB) = \[([^\]]*)\]/g);
  // A page that was built without clang has no laboratory.
  const hasLab = fs.existsSync(path.join(root, "target/web/lab.wasm"));
  const kept = [...lists].map(([, name, names]) => (name === "FILES" || hasLab ? names : "")).join(" ");
  assert.deepEqual(
    kept.match(/[^"\s,]+/g).map((name) => name.replace("./", "index.html")).concat("sw.js").sort(),
    fs.readdirSync(path.join(root, "target/web")).sort(),
    "the service worker keeps all files",
  );
  const own = new Set(fs.readdirSync(path.join(root, "target/web")).map((name) => `/${name}`).concat("/"));
  assert.deepEqual(asked.filter((name) => !own.has(name)), [], "the page asks for its own files only");
  assert.deepEqual(page.console.filter(({ level }) => level !== "warning"), []);
});
