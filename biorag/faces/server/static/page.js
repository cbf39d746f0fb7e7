"use strict";
const RECENT = "biorag.recent", TURNS = "biorag.turns", MOST = 8, LONG = 320; // pixels
let before = ""; // the address of the answer that a follow-up is asked below

// Enter asks, and Shift with Enter begins a line.
document.addEventListener("keydown", (event) => {
  if (event.target.matches("#question, #claim") && event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    event.target.form.requestSubmit();
  }
  const menu = event.key === "Escape" && document.querySelector(".menu[open]");
  if (menu) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});

document.addEventListener("click", (event) => {
  // A source that a citation names gets the focus, so that the keyboard goes on from there.
  const link = event.target.closest("a.citation"), source = link && document.querySelector(link.hash);
  if (source) {
    source.closest("details").open = true;
    source.focus();
  }
  const menu = document.querySelector(".menu[open]");
  if (menu && !menu.contains(event.target)) menu.open = false;
  if (event.target.id === "copy") copy(event.target);
  if (event.target.matches("th .sort")) sort(event.target.closest("th"));
});

// Sort a table by a column, again in the other order; studies that lack a value stay last.
function sort(head) {
  const table = head.closest("table"), order = head.ariaSort === "ascending" ? "descending" : "ascending";
  const value = (body) => body.rows[1].cells[head.cellIndex].dataset.sort;
  const compared = (one, other) => value(one).localeCompare(value(other), "en", { numeric: true });
  const known = [...table.tBodies].filter(value), unknown = [...table.tBodies].filter((body) => !value(body));
  known.sort((one, other) => order === "ascending" ? compared(one, other) : compared(other, one));
  table.append(...known, ...unknown);
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", order);
}

// A citation that is pointed at, or has the focus, lights its sentence, its source and the quote; a quote its sentence.
for (const [kind, lit] of [["mouseover", true], ["mouseout", false], ["focusin", true], ["focusout", false]]) {
  document.addEventListener(kind, (event) => {
    const from = event.target.closest && event.target.closest("[data-lights]");
    if (from) for (const part of document.querySelectorAll(from.dataset.lights)) {
      part.classList.toggle("lit", lit);
      if (lit) reveal(part);
    }
  });
}

// Files beyond the limit are not sent.
document.addEventListener("change", ({ target }) => {
  if (!target.dataset.most) return;
  const bytes = [...target.files].reduce((sum, file) => sum + file.size, 0), most = Number(target.dataset.most);
  target.setCustomValidity(bytes > most ? `Together more than ${most >> 20} MB: send fewer at a time` : "");
  target.reportValidity();
});

// Fields without a value do not belong into the address.
document.addEventListener("htmx:configRequest", (event) => {
  const fields = event.detail.formData;
  for (const [name, value] of [...fields]) if (!value) fields.delete(name);
  if (!event.target.closest(".studied")) before = event.target.id === "follow" ? address() : "";
});

document.addEventListener("toggle", shorten, true);
document.addEventListener("htmx:afterSettle", (event) => event.target.closest(".studied") || answered());
document.addEventListener("DOMContentLoaded", answered);

// Of a long text the part with its first quote is shown, whenever its lines change: an answer goes beside its sources after it is in the page.
const widths = new ResizeObserver((entries) => entries.forEach(({ target }) => reveal(target.querySelector("mark"))));
function shorten() {
  for (const passage of document.querySelectorAll(".passage:not(.long, .whole)")) {
    if (passage.scrollHeight < LONG) continue;
    const all = Object.assign(document.createElement("button"), { type: "button", className: "quiet", textContent: "Show all" });
    all.onclick = () => {
      passage.classList.replace("long", "whole");
      all.remove();
    };
    passage.classList.add("long");
    passage.after(all);
    widths.observe(passage);
  }
}

function reveal(quote) {
  const passage = quote && quote.closest(".long");
  if (!passage) return;
  const line = parseFloat(getComputedStyle(passage).lineHeight); // no line is cut at the top
  passage.scrollTop = Math.floor((quote.offsetTop - line) / line) * line;
}

const address = () => location.pathname + location.search;
const plain = (part) => part.textContent.trim().replace(/\s+/g, " ");

// The earlier questions of a conversation and their answers, above a follow-up: each answer of this tab is kept by its address.
function converse() {
  const turns = read(sessionStorage, TURNS, {}), said = [...document.querySelectorAll(".said > .text")].map(plain).join(" ");
  turns[address()] = { asked: plain(document.querySelector(".said > h1")), said, before: before || (turns[address()] || {}).before };
  sessionStorage.setItem(TURNS, JSON.stringify(Object.fromEntries(Object.entries(turns).slice(-50))));
  const earlier = [], place = document.getElementById("turns");
  for (let at = turns[address()].before; at in turns && !earlier.includes(at); at = turns[at].before) earlier.unshift(at);
  if (place && earlier.length) place.replaceChildren(...earlier.map((url) => {
    const turn = document.createElement("details"), link = document.createElement("a");
    turn.append(...["summary", "p"].map((name) => document.createElement(name)), link);
    turn.children[0].textContent = turns[url].asked;
    turn.children[1].textContent = turns[url].said;
    turn.open = url === earlier.at(-1);
    return Object.assign(link, { href: url, textContent: "To this answer" }), turn;
  }));
}

async function copy(button) {
  const text = (selector, from = document) => [...from.querySelectorAll(selector)].map(plain);
  const said = text(".said > h1, .said > .verdict, .said > .text");
  const sources = [...document.querySelectorAll(".cited")].map((hit) => `[${hit.id.slice(4)}] ${text(".reference", hit)}`);
  await navigator.clipboard.writeText([...said, ...sources, location.href].join("\n"));
  button.textContent = "Copied";
}

function answered() {
  const button = document.getElementById("copy"), asked = document.querySelector(".said > h1"), recent = document.getElementById("recent");
  if (button) button.hidden = !navigator.clipboard;
  const fault = document.querySelector("#answer > .fault");
  if (fault) fault.scrollIntoView({ block: "center" });
  let questions = read(localStorage, RECENT, []).filter((each) => typeof each.text === "string" && String(each.url).startsWith("/ask?"));
  if (asked) {
    document.title = asked.textContent;
    document.getElementById("main").className = "answered";
    document.querySelector("#ask details").open = false;
    if (asked.className !== "unseen") document.getElementById("question").value = ""; // a follow-up has its own words
    const url = address();
    converse();
    if (url.startsWith("/ask?")) {
      questions = [{ text: asked.textContent, url }, ...questions.filter((each) => each.url !== url)].slice(0, MOST);
      localStorage.setItem(RECENT, JSON.stringify(questions));
    }
  }
  shorten();
  if (!recent) return;
  recent.hidden = questions.length === 0;
  recent.querySelector("ul").replaceChildren(...questions.map(({ text, url }) => {
    const item = document.createElement("li"), link = document.createElement("a"), index = new URLSearchParams(url.slice(5)).get("index");
    link.href = url;
    link.textContent = text;
    if (index) link.append(Object.assign(document.createElement("span"), { textContent: ` in ${index}` }));
    item.append(link);
    return item;
  }));
  recent.querySelector("button").onclick = () => {
    localStorage.removeItem(RECENT);
    recent.hidden = true;
  };
}

function read(storage, name, otherwise) {
  try {
    return JSON.parse(storage.getItem(name)) || otherwise;
  } catch {
    return otherwise;
  }
}
