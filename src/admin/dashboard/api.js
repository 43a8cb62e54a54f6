// The client of the admin API. Errors become sentences.

/** The session: `may` is "all", "read", "forget" or null. */
export const session = { may: null, needs_login: false, header: "hookonce-page", node: "", version: "" };

/** Whether to show buttons that change something. */
export const mayAct = () => session.may === "all";

/** An error of the API, with the reason as a sentence. */
export class Refused extends Error {
  constructor(status, reason, body) {
    super(sentence(status, reason, body));
    this.status = status;
    this.reason = reason;
    this.body = body;
  }
}

function sentence(status, reason, body) {
  if (status === 0) return "The node does not respond. Is it running?";
  if (status === 401) return "A token is required.";
  if (reason === "bad_token") return "Wrong token.";
  if (reason === "not_allowed") return "This token has no permission for that.";
  if (reason === "unknown_event") return "There is no such event. It may have been forgotten.";
  if (reason === "unknown_register") return "There is no such register. It may have been cleared, or its event has no subject.";
  if (reason === "several_registers") return "Several registers begin like that.";
  if (reason === "several_events") return "Several events have that name.";
  if (reason === "awaited") return "Somebody waits for it with hookonce handshake.";
  if (reason === "changed") return "The matching events have changed. Nothing was replayed; reload the page.";
  if (reason === "host_or_origin") return "This page was opened under an unknown host name. Use localhost, or set a token (admin.token) to allow other names.";
  if (reason === "cross_site") return `Nothing was done: ${body?.hint ?? "it came from another page"}`;
  if (status === 503) return reason || "The store does not respond. Try again in a moment.";
  return reason ? `Nothing was done: ${reason}.` : `The node responded with ${status}.`;
}

let toLogin = () => {};
/** Called when a token is needed. */
export const onLoginNeeded = (then) => { toLogin = then; };
/** The session has ended. */
export const loginNeeded = () => toLogin();

async function call(method, path, { body, signal, text = false } = {}) {
  const headers = { accept: text ? "text/plain" : "application/json" };
  if (method !== "GET") headers[session.header] = "1";
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body), credentials: "same-origin", cache: "no-store", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0);
  }
  if (response.ok) return text ? response.text() : response.json();
  const said = await response.json().catch(() => ({}));
  if (response.status === 401 && path !== "/login") toLogin();
  throw new Refused(response.status, said.reason, said);
}

/** A query string without empty parameters. */
export function query(of) {
  const asked = new URLSearchParams();
  for (const [name, value] of of instanceof URLSearchParams ? of : Object.entries(of)) if (value !== "" && value !== null && value !== undefined) asked.append(name, value);
  const text = asked.toString();
  return text ? `?${text}` : "";
}

const event = (id, rest = "") => `/api/events/${encodeURIComponent(id)}${rest}`;
const register = (name) => `/api/registers/${encodeURIComponent(name)}`;

export const api = {
  session: async () => Object.assign(session, await call("GET", "/api/session")),
  login: async (token) => Object.assign(session, await call("POST", "/login", { body: { token } })),
  logout: () => call("POST", "/logout"),
  overview: (window, signal) => call("GET", `/api/overview${query({ window })}`, { signal }),
  events: (asked, signal) => call("GET", `/api/events${query(asked)}`, { signal }),
  event: (id, signal) => call("GET", event(id), { signal }),
  body: (id, signal) => call("GET", event(id, "/body"), { signal, text: true }),
  headers: (id, signal) => call("GET", event(id, "/headers"), { signal }),
  replay: (id) => call("POST", event(id, "/replay")),
  cancel: (id) => call("POST", event(id, "/cancel")),
  forget: (id) => call("DELETE", event(id)),
  countReplay: (asked) => call("POST", `/api/replay${query({ ...asked, dry: "1" })}`),
  replayAll: (asked, guard) => call("POST", `/api/replay${query({ ...asked, guard })}`),
  registers: (asked, signal) => call("GET", `/api/registers${query(asked)}`, { signal }),
  register: (name, signal) => call("GET", register(name), { signal }),
  setRegister: (name, events) => call("POST", `${register(name)}${query(events)}`),
  clearRegister: (name, asked) => call("DELETE", `${register(name)}${query(asked)}`),
  sources: (signal) => call("GET", "/api/sources", { signal }),
  polled: (signal) => call("GET", "/api/polled", { signal }),
  quarantine: (signal) => call("GET", "/api/quarantine", { signal }),
  deliveries: (asked, signal) => call("GET", `/api/deliveries${query(asked)}`, { signal }),
  handshakes: (signal) => call("GET", "/api/handshakes", { signal }),
  seeHandshake: (source) => call("POST", `/api/handshakes/${encodeURIComponent(source)}${query({ wait: "0" })}`),
  explain: (delivery) => call("POST", "/api/explain", { body: delivery }),
};
