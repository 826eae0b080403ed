// All files of this version are kept, and served without the network. Nothing else is asked for.
const VERSION = "@VERSION@";
const FILES = [
  "./", "style.css", "app.js", "format.js", "zip.js", "worker.js", "ext4.js", "devices.js", "ext4.wasm",
  "icon.svg", "manifest.webmanifest",
];
// Those of the demo and the traces, from their first use on.
const LAB = ["lab.js", "bars.js", "lab-worker.js", "lab.wasm"];

async function keep(files) {
  const cache = await caches.open(VERSION);
  // The page has just loaded most of them: they are asked for anew, not transferred anew.
  await cache.addAll(files.map((file) => new Request(file, { cache: "no-cache" })));
}

self.addEventListener("install", (event) => {
  const used = caches.match("lab.wasm");
  event.waitUntil(used.then((one) => keep(one ? [...FILES, ...LAB] : FILES)));
});

self.addEventListener("message", (event) => {
  const known = caches.open(VERSION).then((cache) => cache.match("lab.wasm"));
  if (event.data === "lab") event.waitUntil(known.then((one) => one ?? keep(LAB)));
});

// A new version waits until the last page of the old one is closed: its files belong together.
self.addEventListener("activate", (event) => {
  const old = (keys) => Promise.all(keys.filter((key) => key !== VERSION).map((key) => caches.delete(key)));
  event.waitUntil(caches.keys().then(old));
});

self.addEventListener("fetch", (event) => {
  const kept = async () => {
    const cache = await caches.open(VERSION);
    return (await cache.match(event.request, { ignoreSearch: true })) ?? fetch(event.request);
  };
  event.respondWith(kept());
});
