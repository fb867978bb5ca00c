// What is wider than a phone scrolls: tables and code can be reached by keyboard.
document$.subscribe(() => {
  for (const wide of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code")) wide.tabIndex = 0;
});

// A narrow page has its navigation in a drawer. Enter on the header's button opens it; Escape and leaving it close it.
const drawer = document.getElementById("__drawer");
const opener = document.querySelector(".md-header__button[for=__drawer]");
const navigation = document.querySelector(".md-sidebar--primary");
opener.tabIndex = 0;
opener.title = "Navigation";
drawer.addEventListener("change", () => {
  for (const label of navigation.querySelectorAll(".md-nav__title[for], [for=__toc]")) label.tabIndex = drawer.checked ? 0 : -1;
  const shown = [...navigation.querySelectorAll("a, label")].find(one => one.checkVisibility({ visibilityProperty: true }));
  if (drawer.checked) shown.focus({ preventScroll: true });
});
navigation.addEventListener("focusout", event => {
  if (drawer.checked && event.relatedTarget && !navigation.contains(event.relatedTarget)) drawer.click();
});
document.addEventListener("keydown", event => {
  if (event.key !== "Escape" || !drawer.checked) return;
  drawer.click();
  opener.focus();
});
