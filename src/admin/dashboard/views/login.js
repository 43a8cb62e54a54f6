// Sign-in with a token. The token is sent once; the session is a cookie that scripts cannot read.

import { h, fill } from "../dom.js";
import { api } from "../api.js";

/** The page to return to; only a page of this dashboard. */
function next() {
  if (location.pathname !== "/login") return location.pathname + location.search;
  const asked = URL.parse(new URLSearchParams(location.search).get("next") ?? "/", location.origin);
  return asked?.origin === location.origin && asked.pathname !== "/login" ? asked.pathname + asked.search : "/";
}

export function login(mark) {
  document.title = "Sign in · Hookonce";
  const token = h("input", { type: "password", name: "token", id: "token", required: true, autocomplete: "current-password", autofocus: true });
  const says = h("div", { "aria-live": "polite" });
  const button = h("button", { class: "primary", type: "submit" }, "Sign in");
  const form = h("form", { class: "card" },
    h("div", { class: "brand" }, mark(), "Hookonce"),
    h("p", { class: "soft" }, "This node requires a token: its config's ", h("code", {}, "admin.token"), ", or one of ", h("code", {}, "admin.tokens"), "."),
    h("label", {}, "Token", token), says, button);
  const refused = (why) => {
    fill(says, h("p", { class: "notice bad", role: "alert" }, why));
    button.disabled = false;
    token.select();
  };
  form.addEventListener("submit", async (submit) => {
    submit.preventDefault();
    button.disabled = true;
    try {
      const { may } = await api.login(token.value);
      if (may !== "forget") return void location.replace(next());
      await api.logout();
      refused("This token may only delete expired events. Use one that may read.");
    } catch (error) {
      refused(error.status === 401 ? "Wrong token." : error.message);
    }
  });
  document.body.replaceChildren(h("main", { class: "login" }, form));
  if (new URLSearchParams(location.search).get("failed") === "bad_link") refused("This link was used before, or is too old. Run hookonce open again, or enter a token.");
  token.focus();
}
