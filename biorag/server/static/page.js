"use strict";
const RECENT = "biorag.recent", MOST = 8;

// Enter asks, and Shift with Enter begins a line.
document.addEventListener("keydown", (event) => {
  if (event.target.id === "question" && event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    event.target.form.requestSubmit();
  }
});

// A source that a citation names gets the focus, so that the keyboard goes on from there.
document.addEventListener("click", (event) => {
  const link = event.target.closest && event.target.closest("a.citation");
  const source = link && document.getElementById(link.hash.slice(1));
  if (source) {
    source.closest("details").open = true;
    source.focus();
  }
  if (event.target.id === "copy") copy(event.target);
});

// A citation that is pointed at lights its source.
for (const [kind, lit] of [["mouseover", true], ["mouseout", false], ["focusin", true], ["focusout", false]]) {
  document.addEventListener(kind, (event) => {
    const link = event.target.closest && event.target.closest("a.citation");
    const source = link && document.getElementById(link.hash.slice(1));
    if (source) source.classList.toggle("lit", lit);
  });
}

// Fields without a value do not belong into the address.
document.addEventListener("htmx:configRequest", (event) => {
  const fields = event.detail.formData;
  for (const [name, value] of [...fields]) if (!value) fields.delete(name);
});

document.addEventListener("htmx:afterSettle", answered);
document.addEventListener("DOMContentLoaded", answered);

async function copy(button) {
  const lines = [...document.querySelectorAll("#answer h2, #answer .verdict, #answer .text")].map((part) => part.innerText);
  const sources = [...document.querySelectorAll("#answer .cited")].map((part) => part.querySelector("h4").innerText);
  await navigator.clipboard.writeText([...lines, ...sources].join("\n"));
  button.textContent = "Copied";
}

function answered() {
  const button = document.getElementById("copy");
  if (button) button.hidden = !navigator.clipboard;
  const asked = document.querySelector("#answer h2"), recent = document.getElementById("recent");
  if (!recent) return;
  let questions = kept();
  if (asked) {
    document.title = asked.innerText;
    const url = location.pathname + location.search;
    if (url.startsWith("/ask?")) {
      questions = [{ text: asked.innerText, url }, ...questions.filter((each) => each.url !== url)].slice(0, MOST);
      localStorage.setItem(RECENT, JSON.stringify(questions));
    }
  }
  recent.hidden = Boolean(asked) || questions.length === 0;
  const examples = document.getElementById("examples");
  if (examples) examples.hidden = Boolean(asked);
  recent.querySelector("ul").replaceChildren(...questions.map(({ text, url }) => {
    const item = document.createElement("li"), link = document.createElement("a");
    link.href = url;
    link.textContent = text;
    item.append(link);
    return item;
  }));
  recent.querySelector("button").onclick = () => {
    localStorage.removeItem(RECENT);
    recent.hidden = true;
  };
}

function kept() {
  try {
    const questions = JSON.parse(localStorage.getItem(RECENT)) || [];
    return questions.filter((each) => typeof each.text === "string" && String(each.url).startsWith("/ask?"));
  } catch {
    return [];
  }
}
