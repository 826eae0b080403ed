// A picture of the page for the documents: node picture.js FILE.png

import { execFileSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

import { serve, start } from "./chromium.js";

process.env.PATH += ":/usr/sbin:/sbin";

const FILES = {
  "etc/fstab": "PARTUUID=5e3da3da-02 / ext4 defaults,noatime 0 1\n",
  "etc/hostname": "raspberrypi\n",
  "etc/os-release":
    'PRETTY_NAME="Raspbian GNU/Linux 12 (bookworm)"\nNAME="Raspbian GNU/Linux"\nVERSION_ID="12"\nID=raspbian\n',
  "etc/passwd": "root:x:0:0:root:/root:/bin/bash\npi:x:1000:1000::/home/pi:/bin/bash\n",
  "etc/shadow": "root:*:19500:0:99999:7:::\n",
};
const FOLDERS = ["apt", "cron.d", "dhcp", "ssh", "systemd", "wpa_supplicant"];

const dir = fs.mkdtempSync(path.join(os.tmpdir(), "ext4-picture-"));
const date = new Date("2026-05-04T12:00:00Z");
for (const folder of FOLDERS) fs.mkdirSync(path.join(dir, "tree/etc", folder), { recursive: true });
for (const [name, text] of Object.entries(FILES)) fs.writeFileSync(path.join(dir, "tree", name), text);
for (const name of fs.readdirSync(path.join(dir, "tree/etc"))) {
  fs.utimesSync(path.join(dir, "tree/etc", name), date, date);
}
const image = path.join(dir, "raspberry-pi.img");
execFileSync("mke2fs", ["-q", "-t", "ext4", "-L", "rootfs", "-d", path.join(dir, "tree"), image, "128M"]);

const web = fileURLToPath(new URL("../../../../target/web", import.meta.url));
const server = await serve(web, () => {});
const page = start();
await page.open(server.url, dir);
const row = (name) =>
  `[...document.querySelectorAll('#rows tr')].find((row) => row.cells[0].textContent.startsWith('${name}'))`;
await page.files("#file", image);
for (const name of ["etc", "os-release"]) {
  await page.until(`${row(name)} && document.body.ariaBusy !== 'true'`);
  await page.value(`${row(name)}.click()`);
}
await page.until("!document.querySelector('#view').hidden && document.body.ariaBusy !== 'true'");
await page.value("document.activeElement.blur(); scrollTo(0, 0)");
await page.picture(process.argv[2], 1280, 640, false, false);
await page.close();
server.close();
fs.rmSync(dir, { recursive: true });
