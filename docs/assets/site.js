// What is wider than a phone scrolls: tables and code can be reached by keyboard.
document$.subscribe(() => {
  for (const wide of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code")) wide.tabIndex = 0;
});
