"use strict";
// A source that a citation names gets the focus, so that the keyboard goes on from there.
document.addEventListener("click", (event) => {
  const link = event.target.closest && event.target.closest("a.citation");
  const source = link && document.getElementById(link.hash.slice(1));
  if (source) source.focus();
});
