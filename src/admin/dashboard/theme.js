// The theme: light, dark or the system's. The choice is stored in this browser.

import { h, icon, fill } from "./dom.js";

const NEXT = { system: "light", light: "dark", dark: "system" };
const ICON = { system: "system", light: "sun", dark: "moon" };

const chosen = () => document.documentElement.dataset.theme ?? "system";

function choose(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    if (theme === "system") localStorage.removeItem("hookonce-theme");
    else localStorage.setItem("hookonce-theme", theme);
  } catch { /* it applies until the page is closed */ }
}

export function themeSwitch() {
  const button = h("button", { class: "ghost", type: "button", id: "theme" });
  const draw = () => {
    const theme = chosen();
    fill(button, icon(ICON[theme]), h("span", {}, `Theme: ${theme}`));
    button.setAttribute("aria-label", `Theme: ${theme}. Change to ${NEXT[theme]}`);
  };
  button.addEventListener("click", () => {
    choose(NEXT[chosen()]);
    draw();
  });
  draw();
  return button;
}
