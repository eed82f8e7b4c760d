// What runs in the browser: one SIP.js user agent, driven by register.mjs through `window.phone`.
import { Registerer, RegistererState, UserAgent } from "sip.js";

window.phone = {
  /** Registers; resolves once the registrar has answered 200. */
  async register({ server, user, password, domain }) {
    const agent = new UserAgent({
      uri: UserAgent.makeURI(`sip:${user}@${domain}`),
      transportOptions: { server },
      authorizationUsername: user,
      authorizationPassword: password,
      logBuiltinEnabled: true,
    });
    await agent.start();
    const registerer = new Registerer(agent, { expires: 120 });
    return new Promise((done, failed) => {
      registerer.stateChange.addListener((state) => state === RegistererState.Registered && done(true));
      registerer.register({
        requestDelegate: { onReject: ({ message }) => failed(new Error(`registration failed: ${message.statusCode}`)) },
      }).catch(failed);
    });
  },
};
