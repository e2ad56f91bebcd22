// A file that is dropped, and how much of it is sent; without this the browser sends the form by itself.
(() => {
  "use strict";
  const form = document.getElementById("upload");
  if (!form) return;
  const shown = document.getElementById("progress");
  const [bar, progress, stop] = ["progress", "output", "button"].map((name) => shown.querySelector(name));
  const button = form.querySelector("button.primary");
  const mebibytes = (size) => `${(size / 2 ** 20).toFixed(1)} MiB`;
  const idle = (words) => { shown.hidden = !words; progress.textContent = words; bar.hidden = true; stop.hidden = true; button.disabled = false; };

  const marked = (is) => form.classList.toggle("dropping", is);
  form.querySelector(".droppable").hidden = false;
  form.addEventListener("dragover", (event) => { event.preventDefault(); marked(true); });
  form.addEventListener("dragleave", (event) => { if (!form.contains(event.relatedTarget)) marked(false); });
  form.addEventListener("drop", (event) => {
    event.preventDefault();
    marked(false);
    if (event.dataTransfer.files.length) form.elements.file.files = event.dataTransfer.files;
  });

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const request = new XMLHttpRequest();
    shown.hidden = bar.hidden = stop.hidden = false;
    button.disabled = true;
    bar.value = 0;
    progress.textContent = "0 %";
    stop.onclick = () => request.abort();
    request.upload.onprogress = ({ loaded, total }) => {
      bar.value = (100 * loaded) / total;
      progress.textContent = `${Math.floor((100 * loaded) / total)} %, ${mebibytes(loaded)} of ${mebibytes(total)}`;
    };
    request.upload.onload = () => { bar.removeAttribute("value"); progress.textContent = "sent; its records are read"; };
    request.onabort = () => idle("stopped; nothing was stored");
    request.onerror = () => idle("the connection broke; retry: the same file counts once");
    request.onload = () => {
      if (request.responseURL !== form.action) { location.assign(request.responseURL); return; } // it is staged
      const page = new DOMParser().parseFromString(request.responseText, "text/html");
      const answer = page.getElementById("uploaded") || page.querySelector("main section");
      idle("");
      const place = document.getElementById("uploaded");
      place.replaceChildren(...(answer ? answer.id === "uploaded" ? answer.childNodes : [answer] : [document.createTextNode(`The service answered ${request.status}.`)]));
      place.tabIndex = -1;
      place.focus();
    };
    request.open("POST", form.action);
    request.send(new FormData(form));
  });
})();
