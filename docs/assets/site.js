// Tables that are wider than a phone scroll: they can be reached by keyboard.
document$.subscribe(() => {
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap")) table.tabIndex = 0;
});
