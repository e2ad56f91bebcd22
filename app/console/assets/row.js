// The slider over the moments of a row: what it stands on is the link of the same place in the list. The parts of the
// page that differ from moment to moment have data-moment; the slider stays, and keeps the focus.
(() => {
  "use strict";
  const slider = document.getElementById("when");
  const links = [...document.querySelectorAll("#stops a")];
  if (!slider || links.length < 2) return;
  let asked = 0;
  slider.hidden = false;
  const show = async () => {
    const link = links[Number(slider.value)];
    const turn = ++asked;
    slider.setAttribute("aria-valuetext", link.textContent);
    links.forEach((one) => one.removeAttribute("aria-current"));
    link.setAttribute("aria-current", "true");
    const answer = await fetch(link.href);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (turn !== asked) return; // it moved on meanwhile
    const parts = [...document.querySelectorAll("[data-moment]")].map((part) => [part, page.getElementById(part.id)]);
    if (!answer.ok || !parts.every(([, then]) => then)) { location.assign(link.href); return; }
    parts.forEach(([part, then]) => part.replaceWith(then));
    document.title = page.title;
    history.replaceState(null, "", link.href);
  };
  slider.addEventListener("input", show);
})();
