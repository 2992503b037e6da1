// What the model knows: one card for each class; a card opens its photos and what can be done to them.

import { NONE } from "./api.js";
import { openClass } from "./class.js";
import { $, count, el } from "./dom.js";
import { knownTiles } from "./photos.js";
import { state, when } from "./state.js";

const MANY = 12; // classes from which on a search field helps

function show() {
  const { classes, none, model } = state;
  $("file").textContent = model.file;
  $("counts").textContent = `${count(classes.length, "class")}, ${count(model.photos, "photo")}`;
  $("no-classes").hidden = classes.length > 0;
  $("filter-label").hidden = classes.length <= MANY;
  $("names").replaceChildren(...classes.map(({ name }) => el("option", { value: name })));
  showCards();
}

function showCards() {
  const wanted = $("filter-label").hidden ? "" : $("filter").value.trim().toLowerCase();
  const focused = document.activeElement?.closest?.(".card")?.dataset.class;
  const cards = [...state.classes].reverse().filter(({ name }) => name.toLowerCase().includes(wanted)).map(card);
  if (state.none && !wanted) cards.push(noneCard());
  $("cards").replaceChildren(...cards);
  if (focused) cards.find((one) => one.dataset.class === focused)?.querySelector("button").focus();
}

function card({ name, photos, learned, latest }) {
  return el(
    "li",
    { class: "card", "data-class": name, "data-drop": "class" },
    knownTiles(latest),
    el("button", { class: "open", title: name, click: () => openClass(name) }, name),
    el("p", { class: "quiet small" }, `${count(photos, "photo")}${learned === "base" ? ", learned first" : ""}`),
  );
}

function noneCard() {
  return el(
    "li",
    { class: "card", "data-class": NONE },
    el("button", { class: "open", click: () => openClass(NONE) }, "None of these"),
    el("p", { class: "quiet small" }, `${count(state.none, "photo")} without a class`),
  );
}

export function start() {
  when("state", show);
  $("filter").addEventListener("input", showCards);
}
