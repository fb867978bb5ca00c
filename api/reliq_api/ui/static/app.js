// Keeps the parts marked with data-live up to date: fetches the same page again and morphs them in place, so that
// focus, selection and scrolling stay. Without it every page is complete, only still.
"use strict";
(() => {
  const toggle = document.getElementById("live-toggle");
  const label = toggle.querySelector(".live-text");
  let wanted = true;
  let timer = 0;
  let read = Date.now(); // when the numbers of this page were read

  const parts = () => [...document.querySelectorAll("[data-live]")];

  function say(state, text) {
    toggle.dataset.state = state;
    label.textContent = text;
  }

  // What is old is grey, and says how old it is.
  function age() {
    const seconds = Math.round((Date.now() - read) / 1000);
    return seconds < 120 ? `${seconds} s` : seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
  }

  function schedule() {
    clearTimeout(timer);
    const periods = parts().map((part) => Number(part.dataset.live));
    toggle.hidden = periods.length === 0;
    if (periods.length && wanted && !document.hidden) timer = setTimeout(refresh, Math.min(...periods));
  }

  async function refresh() {
    try {
      const response = await fetch(location.href, { redirect: "error", signal: AbortSignal.timeout(10000) });
      if (!response.ok) throw new Error(String(response.status));
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      for (const part of wanted ? parts() : []) { // an answer that was under way when the page was to be still
        const next = page.getElementById(part.id);
        part.classList.remove("stale");
        if (next) Idiomorph.morph(part, next, { ignoreActiveValue: true });
      }
      read = Date.now();
      if (wanted) say("live", "Live");
    } catch {
      for (const part of wanted ? parts() : []) part.classList.add("stale");
      if (wanted) say("lost", `No answer, ${age()} old`);
    }
    schedule();
  }

  toggle.addEventListener("click", () => {
    wanted = !wanted;
    toggle.setAttribute("aria-pressed", String(wanted));
    say(wanted ? "live" : "still", wanted ? "Live" : "Still");
    if (wanted) refresh();
    else clearTimeout(timer);
  });
  document.addEventListener("visibilitychange", () => (document.hidden || !wanted ? clearTimeout(timer) : refresh()));

  // A box above a column chooses all below it. Without this script there is no such box.
  for (const box of document.querySelectorAll("[data-chooses]")) {
    box.hidden = false;
    box.addEventListener("change", () => {
      for (const one of box.form.elements) if (one.name === box.dataset.chooses && one.type === "checkbox") one.checked = box.checked;
    });
  }

  // What was done is said once: a reload does not say it again.
  const address = new URL(location.href);
  if (address.searchParams.has("notice")) {
    address.searchParams.delete("notice");
    address.searchParams.delete("count");
    history.replaceState(null, "", address);
  }
  schedule();
})();
