// The playground's script moves lines of its records about; the service folds them. What there is, is in the address.
(() => {
  "use strict";
  const form = document.getElementById("playground");
  if (!form) return;
  const { schema, records, posted } = form.elements;
  let shown = 0; // the steps that are shown
  let asked = 0;

  const batches = () => records.value.split(/\n\s*\n/).map((part) => part.split("\n").filter((line) => line.trim())).filter((part) => part.length);
  const text = (parts) => parts.filter((part) => part.length).map((part) => part.join("\n")).join("\n\n");

  const fold = async (focus) => {
    const turn = ++asked;
    const state = { schema: schema.value, records: records.value, posted: posted.value };
    history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(state))}`);
    const answer = await fetch(form.action, { method: "POST", headers: { "HX-Request": "true" }, body: new URLSearchParams(new FormData(form)) });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (turn !== asked) return; // something else was asked for meanwhile
    const played = page.getElementById("played");
    if (!played) { location.reload(); return; }
    document.getElementById("played").replaceWith(played);
    prepare();
    if (focus) document.querySelector(focus)?.focus();
  };

  // Records are numbered through all batches; a record that is moved goes into the batch of the place that it comes to.
  const move = (from, to, name) => {
    const parts = batches();
    const sizes = parts.map((part) => part.length);
    const lines = parts.flat();
    if (to < 0 || to >= lines.length || from === to) return;
    lines.splice(to, 0, ...lines.splice(from, 1));
    records.value = text(sizes.map((size) => lines.splice(0, size)));
    fold(name && `tr[data-record="${to}"] button[name="${name}"]`);
  };
  // A batch ends before the record, or no more.
  const cut = (at) => {
    let before = 0;
    const parts = [];
    for (const part of batches()) {
      if (before === at && parts.length) parts[parts.length - 1].push(...part);
      else if (at > before && at < before + part.length) parts.push(part.slice(0, at - before), part.slice(at - before));
      else parts.push([...part]);
      before += part.length;
    }
    records.value = text(parts);
    fold(`tr[data-record="${at}"] button[name="cut"]`);
  };

  const button = (name, words, label, does) => {
    const made = document.createElement("button");
    Object.assign(made, { type: "button", name, textContent: words, className: "quiet", onclick: does });
    made.setAttribute("aria-label", label);
    return made;
  };
  const rows = () => [...document.querySelectorAll("#played tr[data-record]")];
  const step = (to) => {
    const all = rows();
    shown = Math.min(Math.max(to, 0), all.length);
    all.forEach((row, number) => {
      row.hidden = number >= shown;
      if (number === shown - 1) row.setAttribute("aria-current", "step"); else row.removeAttribute("aria-current");
      row.querySelector("details").open = shown < all.length && number === shown - 1;
    });
    document.querySelector(".stepper output").textContent = shown === all.length ? `all ${shown}` : `${shown} of ${all.length}`;
  };
  const prepare = () => {
    const all = rows();
    all.forEach((row, number) => {
      const moves = row.querySelector(".moves");
      moves.append(button("up", "↑", `Move record ${number + 1} up`, () => move(number, number - 1, "up")));
      moves.append(button("down", "↓", `Move record ${number + 1} down`, () => move(number, number + 1, "down")));
      if (number) moves.append(button("cut", "✂", `Begin or join a batch at record ${number + 1}`, () => cut(number)));
      row.draggable = true;
      row.addEventListener("dragstart", (event) => event.dataTransfer.setData("text/plain", String(number)));
      row.addEventListener("dragover", (event) => event.preventDefault());
      row.addEventListener("drop", (event) => { event.preventDefault(); move(Number(event.dataTransfer.getData("text/plain")), number); });
    });
    const stepper = document.querySelector(".stepper");
    if (!stepper) return;
    stepper.hidden = false;
    stepper.querySelectorAll("button").forEach((one) => { one.onclick = () => step(shown + Number(one.dataset.step)); });
    shown = all.length;
  };

  form.addEventListener("submit", (event) => { event.preventDefault(); posted.value = records.value; fold(); });
  const copy = form.querySelector(".copy-address");
  if (navigator.clipboard) {
    copy.hidden = false;
    copy.onclick = async () => { await navigator.clipboard.writeText(location.href); copy.textContent = "Copied"; };
  }
  // Whether the address has a state of ours; folds it then.
  const open = () => {
    try {
      const state = JSON.parse(decodeURIComponent(location.hash.slice(1)));
      schema.value = String(state.schema); records.value = String(state.records); posted.value = String(state.posted);
    } catch { return false; }
    fold();
    return true;
  };
  window.addEventListener("hashchange", open); // another address is opened where the page is open already
  if (!open()) prepare();
})();
