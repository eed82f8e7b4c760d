// Opens a page of `ringway lab view` from its file in headless Chromium, does with it what a reader does, and prints what
// it found as a line of JSON. The page's hook `window.ringway` is described in docs/lab-view.md.
//
//   node look.mjs FOLDER PAGE PLAN
//
// PLAN is JSON: `times` (seconds to look at), `lanes` (of which the pixels are counted), `plots` (whether all values are
// returned), `use` (whether controls are used), `measure` (a number of frames), `shots` (a folder for pictures).
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { join } from "node:path";

const puppeteer = createRequire(new URL("../jssip/package.json", import.meta.url))("puppeteer-core");
const [folder, page, text] = process.argv.slice(2);
const plan = JSON.parse(text);
const seen = { errors: [], requests: [] };

const browser = await puppeteer.launch({
  executablePath: "/usr/bin/chromium",
  headless: true,
  userDataDir: join(folder, "profile"),
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync"],
});

/** Runs a function of the page with an argument. */
const within = (tab, act, argument) => tab.evaluate(act, argument);

/** Counts the pixels of the animation, or of a part of it, that have a colour of the style sheet. */
const pixels = (tab, name, box) => within(tab, ({ name, box }) => {
  const canvas = document.getElementById("stage");
  const hex = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const wanted = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const ratio = canvas.width / canvas.clientWidth;
  const [x, y, w, h] = (box ?? [0, 0, canvas.clientWidth, canvas.clientHeight]).map((v) => Math.round(v * ratio));
  const { data } = canvas.getContext("2d").getImageData(x, y, w, h);
  let found = 0;
  for (let i = 0; i < data.length; i += 4) {
    if (wanted.every((value, k) => Math.abs(data[i + k] - value) <= 6) && data[i + 3] > 250) found++;
  }
  return found;
}, { name, box });

/** What is drawn at a time: the page's own counts, and pixels of colours, over all and around lanes. */
async function lookAt(tab, time) {
  const drawn = await within(tab, (time) => window.ringway.seek(time), time);
  const around = {};
  for (const name of plan.lanes ?? []) {
    const { entry, middle } = await within(tab, (name) => window.ringway.lane(name), name);
    around[name] = {
      entry: await pixels(tab, "c0", [entry[0] - 40, entry[1] - 40, 80, 80]),
      way: await pixels(tab, "c0", [middle[0] - 60, middle[1] - 8, 120, 16]),
    };
  }
  const status = await tab.$eval("#status", (element) => element.textContent);
  return { time, drawn, data: await pixels(tab, "c0"), loss: await pixels(tab, "loss"), around, status };
}

/** The middle of an element of the page. */
async function middle(tab, selector) {
  const element = await tab.$(selector);
  await element.scrollIntoView();
  const { x, y, width, height } = await element.boundingBox();
  return { x: x + width / 2, y: y + height / 2, width };
}

const clock = (tab) => within(tab, () => window.ringway.clock());
const view = (tab) => within(tab, () => window.ringway.view());
const camera = (tab) => within(tab, () => window.ringway.camera());
const drawnOnce = (tab) => within(tab, () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));

/** Plays, steps, seeks, zooms and moves by mouse and keyboard; returns what each did. */
async function use(tab) {
  const did = {};
  await within(tab, () => window.ringway.seek(0));
  await tab.click("#play");
  await tab.waitForFunction("window.ringway.clock().time > 0", { timeout: 20_000 });
  did.playing = (await clock(tab)).playing;
  await tab.evaluate(() => document.activeElement.blur());
  await tab.keyboard.press("Space");
  did.paused = !(await clock(tab)).playing;
  const before = (await clock(tab)).time;
  await tab.keyboard.press(".");
  did.stepped = (await clock(tab)).time - before;
  await tab.keyboard.press(",");
  did.back = (await clock(tab)).time - before;
  did.sought = await within(tab, () => {
    const seek = document.getElementById("seek");
    seek.value = String(window.ringway.run.seconds * 1e9 / 2);
    seek.dispatchEvent(new Event("input"));
    return window.ringway.clock().time / window.ringway.run.seconds;
  });

  const stage = await middle(tab, "#stage");
  await tab.mouse.move(stage.x + 50, stage.y);
  await tab.mouse.wheel({ deltaY: -100 });
  await tab.waitForFunction("window.ringway.camera().zoom !== 1", { timeout: 5_000 });
  did.zoomed = (await camera(tab)).zoom;
  const { x } = await camera(tab);
  await tab.mouse.down();
  await tab.mouse.move(stage.x + 110, stage.y + 10, { steps: 3 });
  await tab.mouse.up();
  did.moved = (await camera(tab)).x - x;
  await tab.mouse.click(stage.x, stage.y, { count: 2 });
  did.resetStage = (await camera(tab)).zoom;
  await tab.focus("#stage");
  await tab.keyboard.press("+");
  did.zoomedByKey = (await camera(tab)).zoom;
  await tab.keyboard.press("0");

  const whole = await view(tab);
  did.whole = whole;
  const plot = await middle(tab, ".plot:nth-of-type(1) canvas.over");
  await tab.mouse.move(plot.x, plot.y);
  await tab.mouse.wheel({ deltaY: -100 });
  await tab.waitForFunction((to) => window.ringway.view().to !== to, { timeout: 5_000 }, whole.to);
  did.plotZoomed = await view(tab);
  await tab.mouse.click(plot.x, plot.y, { count: 2 });
  did.plotReset = await view(tab);
  await tab.mouse.move(plot.x - plot.width / 5, plot.y);
  await tab.mouse.down();
  await tab.mouse.move(plot.x, plot.y, { steps: 4 });
  await tab.mouse.up();
  did.selected = await view(tab);
  await tab.focus(".plot:nth-of-type(1) canvas.over");
  await tab.keyboard.press("ArrowRight");
  did.panned = await view(tab);
  await tab.keyboard.press("0");
  await tab.mouse.click(plot.x, plot.y);
  did.clicked = (await clock(tab)).time;

  const bright = await tab.$eval("body", (body) => getComputedStyle(body).backgroundColor);
  await tab.click("#theme");
  await drawnOnce(tab);
  did.themes = [bright, await tab.$eval("body", (body) => getComputedStyle(body).backgroundColor)];
  await tab.click("#theme");
  did.labels = await tab.$$eval("canvas[role=img]", (all) => all.map((canvas) => canvas.getAttribute("aria-label")));
  return did;
}

/** Counts the pixels of each plot that are not transparent and that have the colour of its first series. */
const plotPixels = (tab) => tab.$$eval("canvas.under", (all) => all.map((canvas) => {
  const hex = getComputedStyle(document.documentElement).getPropertyValue("--c0").trim();
  const wanted = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let found = 0;
  for (let i = 0; i < data.length; i += 4) if (wanted.every((value, k) => Math.abs(data[i + k] - value) <= 12)) found++;
  return found;
}));

/** Pictures in light and dark, of two sizes. */
async function shoot(tab, shots) {
  for (const [width, height, scheme] of [[1280, 800, "light"], [1280, 800, "dark"], [800, 600, "light"]]) {
    await tab.setViewport({ width, height });
    await tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
    await drawnOnce(tab);
    await tab.screenshot({ path: join(shots, `${plan.name}-${width}-${scheme}.png`), fullPage: true });
  }
}

try {
  const tab = await browser.newPage();
  await tab.setViewport({ width: 1280, height: 800 });
  await tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "light" }]);
  tab.on("console", (message) => {
    // A hint for pages that read pixels often, which only this program does.
    if (!message.text().includes("willReadFrequently")) seen.errors.push(`${message.type()}: ${message.text()}`);
  });
  tab.on("pageerror", (error) => seen.errors.push(String(error.message)));
  tab.on("request", (request) => seen.requests.push(request.url().slice(0, 200)));
  const began = performance.now();
  await tab.goto(pathToFileURL(page).href);
  await tab.waitForFunction("window.ringway !== undefined", { timeout: 60_000 });
  seen.opened = performance.now() - began;
  await drawnOnce(tab);
  seen.run = await within(tab, () => window.ringway.run);
  seen.title = await tab.title();
  seen.heading = await tab.$eval("h1", (element) => element.textContent);
  seen.injected = await within(tab, () => [window.injected, document.images.length, document.scripts.length]);
  await tab.click("#labels");
  seen.at = [];
  for (const time of plan.times ?? []) seen.at.push(await lookAt(tab, time));
  seen.plotPixels = await plotPixels(tab);
  if (plan.plots) seen.plots = await within(tab, () => window.ringway.plots());
  if (plan.use) seen.use = await use(tab);
  if (plan.measure) {
    seen.frames = await within(tab, (count) => window.ringway.measure(count), plan.measure);
    seen.plotFrames = await within(tab, (count) => window.ringway.measurePlots(count), 20);
  }
  await tab.click("#labels");
  if (plan.shots) await shoot(tab, plan.shots);
  // Last, since the refusal is an error of the console: the page's policy allows no access to any network.
  seen.quiet = seen.errors.length;
  seen.fetched = await within(tab, () => fetch("http://127.0.0.1:9/").then(() => "came", (error) => error.name));
  seen.refused = seen.errors.slice(seen.quiet).some((line) => line.includes("Content Security Policy"));
  seen.errors.length = seen.quiet;
} catch (error) {
  seen.failed = String(error.stack);
}
await browser.close();
console.log(JSON.stringify(seen));
process.exit(seen.failed ? 1 : 0);
