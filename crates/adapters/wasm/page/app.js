// The page: what it shows, and what it asks the worker.

import * as format from "./format.js";

const $ = (id) => document.getElementById(id);
/** Rows that are shown before "more" is asked for. */
const ROWS = 2000;
/** Bytes of a file that a preview reads, and of a picture. */
const PREVIEW = 64 << 10;
const PICTURE = 32 << 20;

/** A call failed. */
class CallError extends Error {
  constructor({ code, message, cause }) {
    super(cause ? `${message} (${cause})` : message);
    this.code = code;
  }
}

/** Name of the lock that this page holds while it lives, and start of the names of its files in the browser. */
const SELF = `syncline-${crypto.randomUUID()}`;
const locked = new Promise((resolve) => {
  navigator.locks?.request(SELF, () => {
    resolve();
    return new Promise(() => {});
  }) ?? resolve();
});

let worker;
/** Whether the worker has opened an image. */
let isUsed;
let calls = new Map();
let number = 0;
let onEntries;

function newWorker() {
  worker?.terminate();
  for (const { reject } of calls.values()) reject(new CallError({ code: "ECANCELED", message: "stopped" }));
  calls = new Map();
  worker = new Worker(`worker.js#${SELF}`, { type: "module" });
  isUsed = false;
  worker.addEventListener("message", ({ data }) => {
    if (data.progress) return showProgress(data.progress);
    if (data.entries) return onEntries?.(data.entries);
    const call = calls.get(data.id);
    calls.delete(data.id);
    if (data.error) call.reject(new CallError(data.error));
    else call.resolve(data.result);
  });
  worker.addEventListener("error", (event) => {
    event.preventDefault();
    for (const { reject } of calls.values()) {
      reject(new CallError({ code: "ETRAP", message: event.message || "the reader ended" }));
    }
    calls.clear();
  });
}

function call(name, given) {
  number += 1;
  const id = number;
  return new Promise((resolve, reject) => {
    calls.set(id, { resolve, reject });
    worker.postMessage({ id, call: name, given });
  });
}

/** What is open. */
let open;

let running = 0;

/** Runs work: shows that it runs, and what failed. Returns undefined after a failure. */
async function working(text, work) {
  if (!$("busy").hidden) return undefined;
  $("alert").replaceChildren();
  running += 1;
  document.body.ariaBusy = "true";
  // Short work needs no bar, which would flicker.
  const late = setTimeout(() => showBusy(text), 250);
  try {
    return await work();
  } catch (error) {
    failed(error);
    return undefined;
  } finally {
    clearTimeout(late);
    running -= 1;
    document.body.ariaBusy = String(running > 0);
    $("busy").hidden = true;
    $("busy-text").textContent = "";
  }
}

function showBusy(text) {
  $("busy-text").textContent = text;
  $("bar-of-work").removeAttribute("value");
  $("stop").disabled = Boolean(open?.changed);
  $("stop").title = open?.changed ? "Save first: stopping would lose the changes" : "";
  $("busy").hidden = false;
}

function showProgress({ what, done, total }) {
  if ($("busy").hidden) return;
  if (what) $("busy-text").textContent = `${what[0].toUpperCase()}${what.slice(1)}…`;
  $("bar-of-work").max = total;
  $("bar-of-work").value = done;
}

function failed(error) {
  if (error.code === "ECANCELED") return say("Stopped.");
  let text = `${error.message[0].toUpperCase()}${error.message.slice(1)}.`;
  if (error.code === "ETRAP") {
    // Nothing of this image is left in the next worker.
    newWorker();
    close();
    text = `This image stopped its reader, which was ended. Other images open as before. ${text}`;
  }
  const message = document.createElement("span");
  message.textContent = text;
  const hide = button("Hide", () => $("alert").replaceChildren());
  $("alert").replaceChildren(message, hide);
  return undefined;
}

function say(text) {
  $("said").textContent = text;
}

function button(text, does) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.addEventListener("click", does);
  return made;
}

function close() {
  open = undefined;
  $("work").hidden = true;
  $("start").hidden = false;
  $("view").hidden = true;
  document.title = "Syncline: ext4 images in the browser";
}

/** Opens a file; `handle` may be written to later. */
async function openFile(blob, handle, then) {
  if (open?.changed && !(await ask("Leave the changes?", "They are not saved yet.", "Leave"))) return;
  close();
  await working(`Opening ${blob.name}…`, async () => {
    await locked;
    if (isUsed) {
      // The memory of WebAssembly is given back with its worker only.
      await call("leave");
      newWorker();
    }
    isUsed = true;
    const disk = await call("open", { blob });
    open = { blob, handle, disk, path: "/", changed: 0 };
    const parts = disk.partitions.filter((one) => one.ext4);
    if (!disk.ext4 && disk.partitions.length > 0 && parts.length === 0) {
      const kinds = disk.partitions.map((one) => `${one.number} (${one.label || "no name"})`);
      close();
      throw new CallError({ message: `no partition has an ext4; there are ${kinds.join(", ")}` });
    }
    if (disk.tableError && !disk.ext4) {
      close();
      throw new CallError({ message: disk.tableError });
    }
    $("name").textContent = blob.name;
    document.title = `${blob.name}: Syncline`;
    showParts(disk, parts);
    const first = disk.ext4 ? undefined : parts[0]?.number;
    await use(then?.partition ?? first, then?.path);
  });
}

function showParts({ partitions, ext4 }) {
  $("part-label").hidden = ext4 || partitions.length === 0;
  $("part").replaceChildren(
    ...partitions.map((one) => {
      const option = document.createElement("option");
      option.value = one.number;
      const kind = one.ext4 ? "" : ", no ext4";
      option.textContent = `${one.number}: ${one.label || "no name"}, ${format.size(one.size)}${kind}`;
      option.disabled = !one.ext4;
      return option;
    }),
  );
}

async function use(partition, path = "/") {
  open.partition = partition;
  if (partition !== undefined) $("part").value = partition;
  let used;
  try {
    used = await call("use", { partition });
  } catch (error) {
    close();
    throw error;
  }
  const { disk } = open;
  const kind = disk.compressed ? "unpacked" : disk.raw ? "raw" : "container";
  const only = disk.writable ? "" : ", only read";
  $("what").textContent = `${format.size(disk.size)}, ${kind}${only}`;
  $("start").hidden = true;
  $("work").hidden = false;
  showChanged(open.changed);
  for (const id of ["finding-rows", "verdict", "facts"]) $(id).replaceChildren();
  $("findings").hidden = $("run-repair").hidden = $("disk-digest").hidden = $("usage").hidden = true;
  $("largest").hidden = true;
  showMounted(used);
  if (used.failed && !used.mounted) {
    showTab("check");
    const next = "A check says what is wrong with it";
    throw new CallError({ message: `it cannot be mounted: ${used.failed}. ${next}` });
  }
  if (used.failed) {
    // Without the advice of the program: here the next step is another one.
    const [why] = used.failed.split("; ");
    const next = "It is shown past its damage, and files may lack parts. Check offers a repair";
    failed(new CallError({ message: `it is damaged: ${why}. ${next}` }));
  } else if (used.mounted.replayedInMemory) {
    say("The journal was replayed in memory. The file is as it was.");
  }
  showTab("files");
  await go(path);
  $("rows").firstElementChild?.focus();
}

/** Files are there only of what is mounted; what is damaged is not changed, but repaired. */
function showMounted({ failed: why, mounted }) {
  open.failed = why;
  $("tab-files").disabled = !mounted;
  $("tab-info").disabled = Boolean(why);
  for (const one of document.querySelectorAll(".edit")) one.hidden = !open.disk.writable || Boolean(why);
}

function showChanged(bytes) {
  open.changed = bytes;
  $("save").hidden = !bytes || !open.handle;
  $("save-copy").hidden = !bytes;
}

// Tabs.

const TABS = ["files", "info", "check"];

/** Shows the panel of one tab of a list. */
function select(tabs, name) {
  for (const tab of tabs) {
    const button = $(`tab-${tab}`);
    $(button.getAttribute("aria-controls")).hidden = tab !== name;
    button.setAttribute("aria-selected", tab === name);
    button.tabIndex = tab === name ? 0 : -1;
  }
}

/** Makes the buttons of a list of tabs work. */
function tabList(tabs, show) {
  for (const tab of tabs) {
    $(`tab-${tab}`).addEventListener("click", () => show(tab));
    $(`tab-${tab}`).addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length];
      if ($(`tab-${next}`).disabled) return;
      show(next);
      $(`tab-${next}`).focus();
    });
  }
}

function showTab(name) {
  select(TABS, name);
  say("");
  if (name === "info" && open && !open.failed) showInfo();
}

tabList(TABS, showTab);

// The demo and the traces, on a page that has them: nothing of theirs is loaded before it is used.

const PARTS = ["image", "demo", "trace"];
const lab = () => import("./lab.js");

function showPart(name) {
  select(PARTS, name);
  say("");
  if (name !== "image") lab().catch(failed);
}

if ($("parts")) tabList(PARTS, showPart);

// Files.

let entries = [];
let shown = ROWS;
let order = { by: "name", down: false };

const join = (dir, name) => (dir === "/" ? `/${name}` : `${dir}/${name}`);
const parent = (path) => path.slice(0, path.lastIndexOf("/")) || "/";
const base = (path) => path.slice(path.lastIndexOf("/") + 1);

/** Shows a directory; `chosen` is the name that gets the focus. */
async function go(path, chosen) {
  entries = [];
  onEntries = (more) => entries.push(...more);
  const isCut = await call("list", { path });
  onEntries = undefined;
  open.path = path;
  shown = ROWS;
  $("view").hidden = true;
  showPath(path);
  showRows(chosen);
  const count = `${entries.length.toLocaleString("en")} ${entries.length === 1 ? "entry" : "entries"}`;
  say(`${isCut ? "The first " : ""}${count} in ${format.name(path)}`);
}

const goTo = (path, chosen) =>
  working("Listing…", async () => {
    await go(path, chosen);
    const { activeElement } = document;
    const isLost = activeElement === document.body || $("view").contains(activeElement);
    if (isLost) $("rows").firstElementChild?.focus();
  });

function showPath(path) {
  const parts = path.split("/").filter(Boolean);
  const items = [["(root)", "/"], ...parts.map((part, n) => [part, `/${parts.slice(0, n + 1).join("/")}`])];
  $("path").replaceChildren(
    ...items.map(([text, to], n) => {
      const item = document.createElement("li");
      const link = button(format.name(text), () => goTo(to));
      if (n === items.length - 1) link.setAttribute("aria-current", "page");
      item.append(link);
      return item;
    }),
  );
}

function compare(a, b) {
  const dirs = (b.type === "directory") - (a.type === "directory");
  if (dirs) return dirs;
  const sign = order.down ? -1 : 1;
  const by = order.by === "name" ? 0 : a[order.by] - b[order.by];
  return sign * (by || names.compare(a.name, b.name));
}

const names = new Intl.Collator(undefined, { numeric: true });
const SVG = "http://www.w3.org/2000/svg";

function icon(type) {
  const made = document.createElementNS(SVG, "svg");
  made.setAttribute("class", "icon");
  made.ariaHidden = "true";
  const use = made.appendChild(document.createElementNS(SVG, "use"));
  use.setAttribute("href", ["directory", "file", "symlink"].includes(type) ? `#i-${type}` : "#i-other");
  return made;
}

function showRows(chosen) {
  entries.sort(compare);
  const rows = entries.slice(0, shown).map(row);
  $("rows").replaceChildren(...rows);
  $("grid").setAttribute("aria-rowcount", entries.length + 1);
  $("grid").setAttribute("aria-label", `Files in ${format.name(open.path)}`);
  $("empty").hidden = entries.length > 0;
  const left = entries.length - rows.length;
  $("more").hidden = left <= 0;
  $("more").textContent = `Show ${Math.min(left, ROWS)} more of ${left}`;
  const found = rows[entries.findIndex((entry) => entry.name === chosen)];
  (found ?? rows[0])?.setAttribute("tabindex", "0");
  found?.focus();
}

function row(entry, nr) {
  const made = document.createElement("tr");
  made.setAttribute("role", "row");
  made.setAttribute("aria-rowindex", nr + 2);
  made.setAttribute("aria-selected", "false");
  made.tabIndex = -1;
  const cell = (...content) => {
    const td = document.createElement("td");
    td.setAttribute("role", "gridcell");
    td.append(...content);
    made.append(td);
    return td;
  };
  const kind = document.createElement("span");
  kind.className = "unseen";
  kind.textContent = entry.type === "file" ? "" : `, ${entry.type}`;
  const first = cell(icon(entry.type), format.name(entry.name), kind);
  if (entry.type === "directory") first.className = "dir";
  if (entry.target !== undefined || entry.error) {
    const more = document.createElement("span");
    more.className = entry.error ? "bad" : "target";
    more.textContent = entry.error ? ` damaged: ${entry.error}` : ` → ${format.name(entry.target)}`;
    first.append(more);
  }
  const known = !entry.error;
  const size = cell(entry.type === "file" && known ? format.size(entry.size) : "");
  if (entry.type === "file" && known) size.title = format.exact(entry.size);
  cell(known ? format.time(entry.mtime, "") : "");
  cell(known ? entry.modeText : "");
  made.addEventListener("click", () => choose(made, entry, true));
  made.addEventListener("dblclick", () => enter(entry));
  made.addEventListener("keydown", (event) => keys(event, made, entry));
  return made;
}

/** Makes a row the current one. A directory is opened by a tap, a file is shown. */
function choose(made, entry, tapped) {
  for (const one of $("rows").querySelectorAll("[tabindex='0']")) one.tabIndex = -1;
  for (const one of $("rows").querySelectorAll("[aria-selected=true]")) one.setAttribute("aria-selected", "false");
  made.tabIndex = 0;
  made.focus();
  if (!tapped) return;
  made.setAttribute("aria-selected", "true");
  if (entry.type === "directory" && !entry.error) enter(entry);
  else show(entry);
}

function enter(entry) {
  if (entry.type === "directory") return goTo(join(open.path, entry.name));
  return show(entry, true);
}

function keys(event, made, entry) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const all = [...$("rows").children];
  const at = all.indexOf(made);
  const move = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1, PageDown: at + 20, PageUp: at - 20 }[event.key];
  const edits = open.disk.writable && !open.failed;
  if (move !== undefined) {
    const to = Math.max(0, Math.min(all.length - 1, move));
    choose(all[to], entries[to], false);
  } else if (event.key === "Enter") enter(entry);
  else if (event.key === " ") choose(made, entry, true);
  else if (event.key === "Backspace" && open.path !== "/") goTo(parent(open.path), base(open.path));
  else if (event.key === "F2" && edits) rename(entry);
  else if (event.key === "Delete" && edits) remove(entry);
  else if (event.key.length === 1) {
    // The next name that begins so.
    const letter = event.key.toLowerCase();
    const turned = [...entries.keys()].map((n) => (n + at + 1) % entries.length).filter((n) => n < all.length);
    const to = turned.find((n) => entries[n].name.toLowerCase().startsWith(letter));
    if (to !== undefined) choose(all[to], entries[to], false);
  } else return;
  event.preventDefault();
}

for (const head of document.querySelectorAll("[data-sort]")) {
  head.addEventListener("click", () => {
    order = { by: head.dataset.sort, down: order.by === head.dataset.sort && !order.down };
    for (const other of document.querySelectorAll("[data-sort]")) {
      const is = other === head;
      other.parentElement.setAttribute("aria-sort", is ? (order.down ? "descending" : "ascending") : "none");
    }
    showRows();
  });
}

$("more").addEventListener("click", () => {
  const from = shown;
  shown += ROWS;
  showRows();
  $("rows").children[from]?.focus();
});

// A file.

let viewed;
let pictureUrl;

async function show(entry, focus = false) {
  viewed = entry;
  const path = join(open.path, entry.name);
  await working("Reading…", async () => {
    const seen = await call("describe", { path, bytes: PREVIEW });
    if (viewed !== entry) return;
    $("view").hidden = false;
    $("view-name").textContent = format.name(entry.name);
    $("digest").hidden = true;
    $("get").hidden = (seen.leads ?? seen.stat.type) !== "file";
    $("follow").hidden = seen.leads !== "directory";
    $("sum").hidden = seen.stat.type !== "file";
    showFacts($("attributes"), attributes(seen));
    await showPreview(seen, entry, path);
    if (focus || matchMedia("(max-width: 60rem)").matches) $("view-name").focus();
  });
}

function attributes({ stat, xattrs }) {
  const value = (bytes) => format.text(bytes)?.replace(/\0$/, "") ?? `${bytes.length} bytes`;
  return [
    ["Type", stat.type],
    ["Size", `${format.exact(stat.size)}, ${format.size(stat.blocks * 512)} on disk`],
    ["Permissions", `${stat.modeText} (${stat.mode.toString(8).padStart(4, "0")})`],
    ["Owner, group", `${stat.uid}, ${stat.gid}`],
    ["Changed", format.time(stat.mtime)],
    ["Read", format.time(stat.atime)],
    ["Made", format.time(stat.crtime, "not known")],
    ["Inode, links", `${stat.inode}, ${stat.links}`],
    ...(stat.target === undefined ? [] : [["Leads to", format.name(stat.target)]]),
    ...xattrs.map(([name, bytes]) => [format.name(name), format.name(value(bytes))]),
  ];
}

async function showPreview({ stat, start }, entry, path) {
  if (pictureUrl) URL.revokeObjectURL(pictureUrl);
  pictureUrl = undefined;
  $("preview").replaceChildren();
  if (!start?.length) return;
  const type = format.picture(start, entry.name);
  if (type && stat.size <= PICTURE) {
    const bytes = await call("read", { path, length: stat.size });
    pictureUrl = URL.createObjectURL(new Blob([bytes], { type }));
    const image = document.createElement("img");
    image.alt = `Picture ${format.name(entry.name)}`;
    image.src = pictureUrl;
    // What is no picture is shown as bytes.
    const good = await image.decode().then(() => true, () => false);
    if (viewed !== entry) return;
    if (good) return $("preview").replaceChildren(image);
  }
  const block = document.createElement("pre");
  block.tabIndex = 0;
  block.setAttribute("aria-label", "Start of the file");
  const text = format.text(start);
  block.className = text === undefined ? "hex" : "";
  block.textContent = text ?? format.hex(start.subarray(0, 1024));
  const cut = text === undefined ? 1024 : start.length;
  const note = document.createElement("p");
  note.textContent = stat.size > cut ? `The first ${format.size(cut)}.` : "";
  $("preview").replaceChildren(block, note);
}

function showFacts(body, facts) {
  body.replaceChildren(
    ...facts.map(([name, value]) => {
      const made = document.createElement("tr");
      const [head, data] = [document.createElement("th"), document.createElement("td")];
      head.scope = "row";
      head.textContent = name;
      data.textContent = value;
      made.append(head, data);
      return made;
    }),
  );
}

$("follow").addEventListener("click", () => goTo(join(open.path, viewed.name)));

$("view-close").addEventListener("click", () => {
  $("view").hidden = true;
  const at = entries.indexOf(viewed);
  $("rows").children[at]?.focus();
});

// Out of the image.

function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  // The browser has begun to read it by then.
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

const clear = (name) => format.name(name).replaceAll("�", "_") || "root";

$("get").addEventListener("click", () =>
  working(`Reading ${viewed.name}…`, async () => {
    const blob = await call("file", { path: join(open.path, viewed.name) });
    download(blob, clear(viewed.name));
    say(`${viewed.name}: ${format.size(blob.size)} read.`);
  }),
);

for (const kind of ["tar", "zip"]) {
  $(`get-${kind}`).addEventListener("click", () =>
    working("Reading…", async () => {
      const { blob, remarks } = await call(kind, { path: open.path });
      const name = open.path === "/" ? open.blob.name.replace(/\.[^.]*$/, "") : base(open.path);
      download(blob, `${clear(name)}.${kind}`);
      const [first] = remarks;
      const left = first ? ` ${remarks.length} remarks, the first: ${format.name(first)}.` : "";
      say(`${format.size(blob.size)} read into a ${kind} archive.${left}`);
    }),
  );
}

$("sum").addEventListener("click", () =>
  working("Reading…", async () => {
    $("digest").textContent = `SHA-256 ${await call("sha256", { path: join(open.path, viewed.name) })}`;
    $("digest").hidden = false;
  }),
);

$("sum-disk").addEventListener("click", () =>
  working("Reading…", async () => {
    $("disk-digest").textContent = `SHA-256 ${await call("sha256", {})}`;
    $("disk-digest").hidden = false;
  }),
);

$("find-largest").addEventListener("click", () =>
  working("Reading…", async () => {
    const found = await call("largest");
    showFacts(
      $("largest-rows"),
      found.map(({ path, type, bytes }) => [format.size(bytes), `${format.name(path)}${type === "directory" ? "/" : ""}`]),
    );
    $("largest").hidden = false;
  }),
);

// Changes.

async function edit(text, name, given, chosen) {
  const done = await working(text, () => call(name, given));
  if (done === undefined) return false;
  showChanged(done);
  await goTo(open.path, chosen);
  return true;
}

/** A question; resolves to the answer, "" without a field, undefined if it was cancelled. */
function ask(title, text, yes, field, value = "") {
  $("ask-title").textContent = title;
  $("ask-text").textContent = text;
  $("ask-text").hidden = !text;
  $("ask-yes").textContent = yes;
  $("ask-label").hidden = !field;
  $("ask-what").textContent = field ?? "";
  $("ask-input").required = Boolean(field);
  $("ask-input").value = value;
  $("ask").returnValue = "no";
  $("ask").showModal();
  if (field) $("ask-input").select();
  return new Promise((resolve) => {
    const end = () => resolve($("ask").returnValue === "yes" ? (field ? $("ask-input").value : true) : undefined);
    $("ask").addEventListener("close", end, { once: true });
  });
}

function isName(name) {
  if (name && !name.includes("/") && name !== "." && name !== "..") return true;
  failed(new CallError({ message: "a name has no slash, and is not . or .." }));
  return false;
}

async function rename(entry) {
  const to = await ask("Rename", "", "Rename", "New name", entry.name);
  if (to === undefined || to === entry.name || !isName(to)) return;
  await edit("Renaming…", "rename", { from: join(open.path, entry.name), to: join(open.path, to) }, to);
}

async function remove(entry) {
  const what = entry.type === "directory" ? " and everything in it" : "";
  if (!(await ask("Delete", `${format.name(entry.name)}${what}?`, "Delete"))) return;
  await edit("Deleting…", "remove", { path: join(open.path, entry.name) });
  if (document.activeElement === document.body) $("rows").firstElementChild?.focus();
}

async function add(files) {
  const taken = new Set(entries.map((entry) => entry.name));
  const old = files.filter((file) => taken.has(file.name)).map((file) => file.name);
  if (old.length && !(await ask("Replace", `${old.map(format.name).join(", ")}?`, "Replace"))) return;
  for (const blob of files) {
    const path = join(open.path, blob.name);
    if (!(await edit(`Adding ${blob.name}…`, "add", { path, blob }, blob.name))) return;
  }
  say(`${files.length} ${files.length === 1 ? "file" : "files"} added. Save to keep them.`);
}

$("rename").addEventListener("click", () => rename(viewed));
$("delete").addEventListener("click", () => remove(viewed));
$("mkdir").addEventListener("click", async () => {
  const name = await ask("New folder", "", "Make", "Name");
  if (name !== undefined && isName(name)) {
    await edit("Making…", "mkdir", { path: join(open.path, name) }, name);
  }
});
$("add").addEventListener("click", () => $("add-files").click());
$("add-files").addEventListener("change", () => {
  const files = [...$("add-files").files];
  $("add-files").value = "";
  if (files.length) add(files);
});

$("save").addEventListener("click", async () => {
  const { handle, partition, path } = open;
  // Asked here, while the browser knows that the user wants it.
  const may = await handle.requestPermission?.({ mode: "readwrite" });
  if (may && may !== "granted") return failed(new CallError({ message: "the browser may not write this file" }));
  const done = await working("Saving…", () => call("save", { handle }).then(() => true));
  if (!done) return undefined;
  open.changed = 0;
  await openFile(await handle.getFile(), handle, { partition, path });
  return say("Saved. The image is clean.");
});

$("save-copy").addEventListener("click", () =>
  working("Saving…", async () => {
    download(await call("copy"), open.blob.name);
    say("The copy has all changes. The image that is open is as it was.");
  }),
);

// Info and check.

const showInfo = () =>
  working("Reading…", async () => {
    const info = await call("info");
    const used = info.size - info.free;
    $("usage").hidden = false;
    $("meter").value = used / info.size;
    const text = `${format.size(used)} of ${format.size(info.size)} in use, ${format.size(info.free)} free`;
    $("meter").textContent = $("usage-text").textContent = text;
    showFacts($("facts"), [
      ["Label", format.name(info.label) || "none"],
      ["UUID", info.uuid],
      ["State", info.state],
      ["Size", format.exact(info.size)],
      ["Available to users", format.size(info.available)],
      ["Block size", format.exact(info.blockSize)],
      ["Inodes", `${info.inodes.toLocaleString("en")}, ${info.freeInodes.toLocaleString("en")} free`],
      ["Journal", info.journalSize === undefined ? "none" : format.size(info.journalSize)],
      ["Made", format.time(info.made)],
      ["Last mount", format.time(info.lastMount)],
      ["Last write", format.time(info.lastWrite)],
      ["Last check", format.time(info.lastCheck)],
      ["Errors seen", String(info.errorsSeen)],
      ["Features", info.features.join(" ")],
      ["Read so far", `${format.exact(info.bytesRead)} of the file, with ${format.exact(info.memory)} of memory`],
    ]);
  });

function showReport(report) {
  const { errors, directories, files } = report;
  const verdict = report.stopped ? "stopped" : errors === 0 ? "clean" : `${errors} ${errors === 1 ? "error" : "errors"}`;
  const counts = `${directories.toLocaleString("en")} directories, ${files.toLocaleString("en")} other files`;
  $("verdict").textContent = `${verdict[0].toUpperCase()}${verdict.slice(1)}: ${counts}.`;
  $("verdict").className = errors ? "bad" : "good";
  $("findings").hidden = report.findings.length === 0;
  $("finding-rows").replaceChildren(
    ...report.findings.map((found) => {
      const made = document.createElement("tr");
      const at = ["inode", "group", "block"].filter((key) => found[key] !== undefined);
      const place = at.map((key) => `${key} ${found[key]}`).join(", ");
      for (const text of [place || "superblock", found.text, found.repair]) {
        const cell = document.createElement("td");
        cell.textContent = text;
        made.append(cell);
      }
      return made;
    }),
  );
  $("run-repair").hidden = errors === 0 || !open.disk.writable;
}

$("run-check").addEventListener("click", () =>
  working("Checking…", async () => showReport(await call("check"))),
);

$("run-repair").addEventListener("click", async () => {
  const plan = await working("Checking…", () => call("planRepair"));
  if (!plan) return;
  const mended = plan.before.errors - plan.after.errors;
  const left = plan.after.errors ? ` ${plan.after.errors} errors stay: e2fsck mends more.` : "";
  const text = plan.changes
    ? `${mended} of ${plan.before.errors} errors can be mended.${left} An undo file is downloaded first.`
    : `None of ${plan.before.errors} errors can be mended here; e2fsck mends more.`;
  const yes = (await ask("Repair", text, plan.changes ? "Repair" : "Close")) && plan.changes > 0;
  await working("Repairing…", async () => {
    const { undo, changed, ...mounted } = await call("repair", { go: yes });
    showChanged(changed);
    showMounted(mounted);
    if (!yes) return;
    download(new Blob([undo]), `${open.blob.name}.undo`);
    showReport(plan.after);
    if (mounted.mounted) await go(open.path);
    say("Repaired. Save to keep it.");
  });
});

// Into the page.

async function pick() {
  if (!globalThis.showOpenFilePicker) return $("file").click();
  try {
    const [handle] = await showOpenFilePicker();
    await openFile(await handle.getFile(), handle);
  } catch (error) {
    if (error.name !== "AbortError") failed(error);
  }
  return undefined;
}

$("open").addEventListener("click", pick);
$("other").addEventListener("click", pick);
$("file").addEventListener("change", () => {
  const [blob] = $("file").files;
  $("file").value = "";
  if (blob) openFile(blob);
});
$("part").addEventListener("change", () => {
  const partition = Number($("part").value);
  working("Mounting…", () => use(partition));
});

addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("over");
});
addEventListener("dragleave", (event) => event.relatedTarget || document.body.classList.remove("over"));
addEventListener("drop", async (event) => {
  event.preventDefault();
  document.body.classList.remove("over");
  const files = [...event.dataTransfer.files];
  if (files.length === 0) return;
  if ($("image").hidden) {
    showPart("trace");
    (await lab()).openTrace(files[0]);
    return;
  }
  if (open?.disk.writable && !open.failed && $("list").contains(event.target)) {
    await add(files);
    return;
  }
  const handle = await event.dataTransfer.items[0].getAsFileSystemHandle?.();
  await openFile(files[0], handle);
});

addEventListener("beforeunload", (event) => {
  if (open?.changed) event.preventDefault();
});

$("stop").addEventListener("click", async () => {
  const again = open;
  newWorker();
  if (!again) return;
  // The image is as it was: work that can be stopped changes nothing.
  setTimeout(() => openFile(again.blob, again.handle, again));
});

newWorker();
navigator.serviceWorker?.register("sw.js").catch(() => {});
