// Two JsSIP pages in headless Chromium: both register over a (secure) WebSocket, one calls the other,
// audio must flow both ways, one hangs up, both unregister. Prints what it saw as one line of JSON;
// the status is 0 only when all of it happened.
//
//   node call.mjs FOLDER DOMAIN SERVER-URL CALLER:PASSWORD CALLEE:PASSWORD
import { open } from "./browser.mjs";

const STEP_MS = 20_000;
const [folder, domain, server, ...accounts] = process.argv.slice(2);

/** Tries until `probe` gives something true. */
async function until(what, probe) {
  const deadline = Date.now() + STEP_MS;
  for (;;) {
    const value = await probe();
    if (value) return value;
    if (Date.now() > deadline) throw new Error(`no ${what} within ${STEP_MS} ms`);
    await new Promise((done) => setTimeout(done, 100));
  }
}

const browser = await open(folder, "page.mjs");
const seen = {};
try {
  const phones = [];
  for (const account of accounts) {
    const [user, password] = account.split(":");
    const tab = await browser.page(user);
    await tab.evaluate((o) => window.phone.register(o), { server, user, password, domain });
    phones.push({ user, tab, events: () => tab.evaluate(() => window.phone.events ?? []),
                  received: () => tab.evaluate(() => window.phone.received()) });
  }
  seen.registered = phones.length;
  const [caller, callee] = phones;
  await caller.tab.evaluate((uri) => window.phone.call(uri), `sip:${callee.user}@${domain}`);
  for (const phone of phones) {
    await until(`call confirmed at ${phone.user}`, async () => {
      const events = await phone.events();
      const failed = events.find((e) => e.startsWith("failed"));
      if (failed) throw new Error(`${phone.user}: ${failed}`);
      return events.includes("confirmed");
    });
  }
  seen.confirmed = true;
  for (const phone of phones) {
    seen[phone.user] = await until(`audio at ${phone.user}`, async () => {
      const got = await phone.received();
      seen[`${phone.user} so far`] = got;
      return got.packets > 50 && got.energy > 0 ? got : null;
    });
  }
  await caller.tab.evaluate(() => window.phone.hangUp());
  for (const phone of phones) {
    await until(`end of the call at ${phone.user}`, async () => (await phone.events()).some((e) => e.startsWith("ended")));
  }
  seen.ended = true;
  for (const phone of phones) await phone.tab.evaluate(() => window.phone.stop());
  seen.unregistered = true;
} catch (error) {
  seen.error = error.message;
} finally {
  await browser.close();
}
console.log(JSON.stringify(seen));
process.exit(seen.unregistered ? 0 : 1);
