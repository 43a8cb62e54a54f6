// Before the first paint: the theme the reader chose here, if any. Everything else follows the system.
"use strict";
try {
  const chosen = localStorage.getItem("hookonce-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* no storage: the system decides */ }
