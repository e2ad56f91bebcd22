// The slider over the moments of a row: what it stands on is the link of the same place in the list.
(() => {
  "use strict";
  const slider = document.getElementById("when");
  const links = [...document.querySelectorAll("#stops a")];
  if (!slider || links.length < 2) return;
  const where = document.getElementById("where");
  let asked = 0;
  slider.hidden = false;
  const show = async () => {
    const link = links[Number(slider.value)];
    const turn = ++asked;
    where.textContent = link.textContent;
    slider.setAttribute("aria-valuetext", link.textContent);
    links.forEach((one) => one.removeAttribute("aria-current"));
    link.setAttribute("aria-current", "true");
    const answer = await fetch(link.href);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const row = page.getElementById("row");
    if (turn !== asked) return; // it moved on meanwhile
    if (!answer.ok || !row) { location.assign(link.href); return; }
    document.getElementById("row").replaceWith(row);
    document.title = page.title;
    history.replaceState(null, "", link.href);
  };
  slider.addEventListener("input", show);
})();
