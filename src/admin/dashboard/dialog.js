// Confirmation dialogs, toasts and error notices.

import { h, fill } from "./dom.js";

/** Asks for confirmation; true if confirmed. The browser's own dialog: focus stays inside, Escape cancels. */
export function confirm({ title, text, yes, danger = false, extra = null }) {
  return new Promise((settle) => {
    const ok = h("button", { class: danger ? "danger" : "primary", value: "yes", type: "submit" }, yes);
    const form = h("form", { method: "dialog" },
      h("h2", { id: "ask-title" }, title),
      typeof text === "string" ? h("p", {}, text) : text,
      extra,
      h("div", { class: "actions end" }, h("button", { value: "no", type: "submit", autofocus: danger }, "No"), ok));
    const dialog = h("dialog", { class: "ask", "aria-labelledby": "ask-title" }, form);
    dialog.addEventListener("close", () => {
      dialog.remove();
      settle(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
    if (!danger) ok.focus();
  });
}

/** A dialog with information only. */
export function sheet(title, ...content) {
  const dialog = h("dialog", { class: "ask", "aria-label": title },
    h("form", { method: "dialog" }, h("h2", {}, title), content, h("div", { class: "actions end" }, h("button", { class: "primary", value: "close" }, "Close"))));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

const shelf = h("div", { class: "toasts", role: "status", "aria-live": "polite" });

/** Shows a short message at the edge of the page. */
export function toast(text, { bad = false } = {}) {
  if (!shelf.isConnected) document.body.append(shelf);
  const note = h("div", { class: bad ? "toast bad" : "toast" }, text);
  shelf.append(note);
  setTimeout(() => note.remove(), bad ? 9000 : 4000);
}

/** An error notice in place of the content. */
export function trouble(node, error, again) {
  fill(node, h("div", { class: "notice bad", role: "alert" },
    h("p", {}, error?.message ?? String(error)),
    again ? h("button", { type: "button", onclick: again }, "Try again") : null));
}
