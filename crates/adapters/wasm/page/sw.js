// All files of this version are kept, and served without the network. Nothing else is asked for.
const VERSION = "@VERSION@";
const FILES = [
  "./", "style.css", "app.js", "format.js", "zip.js", "worker.js", "ext4.js", "devices.js", "ext4.wasm",
  "icon.svg", "manifest.webmanifest",
];

self.addEventListener("install", (event) => {
  // The page has just loaded most of them: they are asked for anew, not transferred anew.
  const fresh = FILES.map((file) => new Request(file, { cache: "no-cache" }));
  event.waitUntil(caches.open(VERSION).then((cache) => cache.addAll(fresh)));
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
