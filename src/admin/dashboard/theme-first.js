// Applies the chosen theme before the first paint; without one, the system's applies.
"use strict";
try {
  const chosen = localStorage.getItem("hookonce-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* no storage: the system decides */ }
