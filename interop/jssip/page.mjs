// What runs in the browser: one JsSIP user agent, driven by call.mjs through `window.phone`.
import JsSIP from "jssip";

JsSIP.debug.enable("JsSIP:*");

window.phone = {
  /** Registers; resolves once the registrar has said 200. */
  register({ server, user, password, domain }) {
    this.agent = new JsSIP.UA({
      sockets: [new JsSIP.WebSocketInterface(server)],
      uri: `sip:${user}@${domain}`,
      password,
      register_expires: 120,
      session_timers: false,
    });
    this.agent.on("newRTCSession", ({ originator, session }) => {
      this.watch(session);
      if (originator === "remote") session.answer({ mediaConstraints: { audio: true, video: false } });
    });
    return new Promise((done, failed) => {
      this.agent.on("registered", () => done(true));
      this.agent.on("disconnected", (e) => failed(new Error(`no WebSocket: ${e.reason || e.code}`)));
      this.agent.on("registrationFailed", (e) => failed(new Error(`registration failed: ${e.cause}`)));
      this.agent.start();
    });
  },

  /** Keeps what happens to a session, in order. */
  watch(session) {
    this.session = session;
    this.events = [];
    // Audio that nothing plays is not decoded, and its energy not counted.
    const play = (connection) => connection.addEventListener("track", ({ streams, track }) => {
      this.speaker = new Audio();
      this.speaker.srcObject = streams[0] ?? new MediaStream([track]);
      this.speaker.play();
    });
    if (session.connection) play(session.connection);
    else session.on("peerconnection", ({ peerconnection }) => play(peerconnection));
    for (const name of ["progress", "accepted", "confirmed", "ended", "failed"]) {
      session.on(name, (e) => this.events.push(e?.cause ? `${name}: ${e.cause}` : name));
    }
  },

  call(uri) {
    this.agent.call(uri, { mediaConstraints: { audio: true, video: false }, pcConfig: { iceServers: [] } });
  },

  hangUp() {
    this.session.terminate();
  },

  /** What the browser itself counted of the audio it received. */
  async received() {
    const found = { bytes: 0, packets: 0, energy: 0 };
    const connection = this.session?.connection;
    if (!connection) return found;
    for (const report of (await connection.getStats()).values()) {
      if (report.type !== "inbound-rtp" || report.kind !== "audio") continue;
      found.bytes += report.bytesReceived ?? 0;
      found.packets += report.packetsReceived ?? 0;
      found.energy += report.totalAudioEnergy ?? 0;
    }
    return found;
  },

  /** Removes the registration and closes the WebSocket. */
  stop() {
    return new Promise((done) => {
      this.agent.on("unregistered", () => done(true));
      this.agent.on("disconnected", () => done(true));
      this.agent.stop();
    });
  },
};
