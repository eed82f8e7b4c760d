// One page in headless Chromium that registers over a WebSocket and stays; prints "registered", or why not.
//
//   node register.mjs jssip|sipjs FOLDER DOMAIN SERVER-URL USER:PASSWORD
import { open } from "./browser.mjs";

const [library, folder, domain, server, account] = process.argv.slice(2);
const [user, password] = account.split(":");
const entry = { jssip: "page.mjs", sipjs: "sipjs.mjs" }[library];
const browser = await open(folder, entry);
try {
  const tab = await browser.page(user);
  await tab.evaluate((o) => window.phone.register(o), { server, user, password, domain });
  console.log("registered");
  await new Promise((done) => process.on("SIGTERM", done));
} catch (error) {
  console.log(error.message);
  process.exitCode = 1;
} finally {
  await browser.close();
}
