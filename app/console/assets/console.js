// What htmx leaves to the page. All of it is a convenience: every page works without.
(() => {
  "use strict";
  const TICK_MILLIS = 2000;
  const tick = () => {
    if (document.visibilityState === "visible") document.body.dispatchEvent(new Event("keyfold:tick"));
  };
  const showCopyButtons = (root) => {
    if (!navigator.clipboard) return;
    root.querySelectorAll("button.copy[hidden]").forEach((button) => { button.hidden = false; });
  };
  document.addEventListener("click", async (event) => {
    const button = event.target instanceof Element ? event.target.closest("button.copy") : null;
    if (!button) return;
    await navigator.clipboard.writeText(button.parentElement.querySelector("pre").textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  // On a phone the tabs are one line, which begins with the one before the current one.
  const before = document.querySelector(".tabs [aria-current]")?.previousElementSibling;
  if (before) before.parentElement.scrollLeft = before.offsetLeft - before.parentElement.firstElementChild.offsetLeft;
  // A slash goes to the search, but not where somebody writes.
  document.addEventListener("keydown", (event) => {
    const field = document.getElementById("find");
    const writes = event.target instanceof Element && event.target.closest("input, textarea, select, [contenteditable]");
    if (event.key !== "/" || !field || writes || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    field.select();
  });
  // A row leads where its key leads; who marks text in it, or takes a link, goes nowhere else.
  document.addEventListener("click", (event) => {
    const row = event.target instanceof Element ? event.target.closest("tr[data-row]") : null;
    if (!row || event.target.closest("a") || String(getSelection())) return;
    row.querySelector("a").click();
  });
  // A fragment that somebody reads or works in with the keyboard waits: it would take the focus away.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const target = event.detail.target;
    const live = target.matches("[data-live]");
    if (live && target.contains(document.activeElement)) event.detail.shouldSwap = false;
    // A form that is refused is shown with its faults.
    if ([400, 409].includes(event.detail.xhr.status)) { event.detail.shouldSwap = true; event.detail.isError = false; }
  });
  document.addEventListener("htmx:afterSettle", (event) => showCopyButtons(event.detail.elt));
  document.addEventListener("visibilitychange", tick);
  showCopyButtons(document);
  setInterval(tick, TICK_MILLIS);
})();
