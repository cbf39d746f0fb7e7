// Lights the words of a snippet that matched the word of the question under the pointer or the focus.
"use strict";
function light(event, lit) {
  const word = event.target.closest && event.target.closest(".word[data-target]");
  if (!word) return;
  const map = word.closest(".heat-map");
  for (const matched of map.querySelectorAll(`[data-number="${Number(word.dataset.target)}"]`)) {
    matched.classList.toggle("lit", lit);
  }
}
for (const [name, lit] of [["mouseover", true], ["focusin", true], ["mouseout", false], ["focusout", false]]) {
  document.addEventListener(name, (event) => light(event, lit));
}
// A source that a citation names gets the focus, so that the keyboard goes on from there.
document.addEventListener("click", (event) => {
  const link = event.target.closest && event.target.closest("a.citation");
  const source = link && document.getElementById(link.hash.slice(1));
  if (source) source.focus();
});
