// The live stream: server-sent events. A broken connection is reopened with backoff; listeners then get `again`, to reload
// what they may have missed.

import { api, loginNeeded, session } from "./api.js";

const FIRST_WAIT = 500;
const LONGEST_WAIT = 10_000;

export class Live {
  constructor(path, kinds) {
    this.path = path;
    this.kinds = kinds;
    this.ears = new Map();
    this.wait = FIRST_WAIT;
    this.state = "connecting";
    this.broke = false;
  }

  /** Adds a listener until the signal. Kinds: those of the stream ("more": reload), and "status", "again". */
  on(kind, ear, signal) {
    if (!this.ears.has(kind)) this.ears.set(kind, new Set());
    this.ears.get(kind).add(ear);
    signal?.addEventListener("abort", () => this.ears.get(kind).delete(ear));
  }

  tell(kind, what) {
    for (const ear of this.ears.get(kind) ?? []) ear(what);
  }

  is(state) {
    if (this.state === state) return;
    this.state = state;
    this.tell("status", state);
  }

  open() {
    this.close();
    const stream = new EventSource(this.path);
    this.stream = stream;
    stream.addEventListener("open", () => {
      this.wait = FIRST_WAIT;
      this.is("live");
      if (this.broke) this.tell("again");
      this.broke = false;
    });
    stream.addEventListener("error", () => this.retry());
    stream.addEventListener("missed", () => this.catchUp());
    for (const kind of this.kinds) {
      stream.addEventListener(kind, (message) => {
        let data;
        try {
          data = JSON.parse(message.data);
        } catch {
          return;
        }
        this.tell(kind, data);
      });
    }
    return this;
  }

  /** The stream fell behind: reconnect, and reload what is shown. */
  catchUp() {
    this.close();
    this.broke = true;
    this.timer = setTimeout(() => this.open(), FIRST_WAIT);
  }

  retry() {
    this.close();
    this.broke = true;
    this.is("reconnecting");
    const wait = this.wait * (0.75 + Math.random() / 2);
    this.wait = Math.min(LONGEST_WAIT, this.wait * 2);
    this.timer = setTimeout(async () => {
      // The stream does not report why it was refused; the session does.
      try {
        await api.session();
        if (session.needs_login && !session.may) {
          loginNeeded();
          return;
        }
      } catch {
        this.retry();
        return;
      }
      this.open();
    }, wait);
  }

  close() {
    clearTimeout(this.timer);
    this.stream?.close();
    this.stream = null;
  }
}

/** The stream of the whole page; output of commands has its own stream on the event's page. */
export const live = new Live("/api/live?output=0&few=1", ["state", "delivery", "more"]);

/** Calls at most once in this time, and once more at its end if it was called meanwhile. */
export function atMost(every, then, signal) {
  let timer = null;
  let again = false;
  signal?.addEventListener("abort", () => clearTimeout(timer));
  const call = () => {
    if (signal?.aborted) return;
    if (timer) {
      again = true;
      return;
    }
    then();
    timer = setTimeout(() => {
      timer = null;
      if (again) {
        again = false;
        call();
      }
    }, every);
  };
  return call;
}
