/* Loads the page again once in a scrape interval, unless nobody sees it or somebody fills in a form. */
"use strict";
const seconds = Number(document.currentScript.dataset.seconds);
setInterval(() => {
  const busy = document.hidden || document.activeElement.matches("input, select, textarea") || location.pathname === "/what-if";
  if (!busy) location.reload();
}, seconds * 1000);
