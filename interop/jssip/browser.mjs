// A headless Chromium with one page a phone, and the small web server the pages come from.
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import puppeteer from "puppeteer-core";

const here = dirname(fileURLToPath(import.meta.url));

/** Starts Chromium with its profile in `folder`; `entry` is the script of its pages. */
export async function open(folder, entry) {
  const script = await build({
    entryPoints: [join(here, entry)], bundle: true, write: false, platform: "browser", logLevel: "silent",
  });
  const html = await readFile(join(here, "page.html"));
  // Loopback counts as a secure place, so that the browser lends its microphone.
  const web = createServer((request, response) => {
    const isScript = request.url === "/page.js";
    response.setHeader("content-type", isScript ? "text/javascript" : "text/html");
    response.end(isScript ? script.outputFiles[0].contents : html);
  });
  await new Promise((done) => web.listen(0, "127.0.0.1", done));
  const browser = await puppeteer.launch({
    executablePath: "/usr/bin/chromium",
    headless: true,
    userDataDir: join(folder, "profile"),
    args: [
      "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
      "--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream",
      "--autoplay-policy=no-user-gesture-required", "--ignore-certificate-errors",
      "--disable-background-networking", "--disable-component-update", "--disable-sync",
      "--disable-features=WebRtcHideLocalIpsWithMdns", "--allow-loopback-in-peer-connection",
    ],
  });
  return {
    /** A new page that has loaded its script; what it logs goes to standard error after `name`. */
    async page(name) {
      const tab = await browser.newPage();
      tab.on("console", (message) => console.error(`${name}: ${message.text().replace(/%c| color: \S+/g, "")}`));
      await tab.goto(`http://127.0.0.1:${web.address().port}/`);
      return tab;
    },
    /** Ends the browser and the web server. */
    async close() {
      await browser.close();
      web.close();
    },
  };
}
