// One answer: the photo, bars, the nearest taught photos, a look inside, and a correction on the spot.

import { api, NONE } from "./api.js";
import { el, percent } from "./dom.js";
import { photoTile, remember } from "./photos.js";
import { note, problemNotes, toast } from "./say.js";
import { change, noticed, state } from "./state.js";

/** The answer in a word or two, and how sure it is. */
export function verdict(told) {
  if (told.taught_as && told.taught_as !== NONE) return { title: told.taught_as, detail: "This very photo was taught." };
  if (told.taught_as === NONE) return { title: "None of these", detail: "You said so about this photo." };
  if (told.like_none) return { title: "None of these", detail: "It is most like a photo that shows none of the classes." };
  const [best] = told.best;
  if (!told.known) return { title: "Not sure", detail: `If it has to be one of these: ${best.class}.` };
  return { title: best.class, detail: `${percent(best.probability)} sure` };
}

export function answerView(entry) {
  const { title, detail } = verdict(entry.told);
  const notes = el("div", { class: "notes", role: "status" });
  return el(
    "div",
    {},
    el(
      "div",
      { class: "answer" },
      shown(entry, notes),
      el(
        "div",
        { class: "words" },
        el("div", {}, el("p", { class: "verdict" }, title), el("p", { class: "quiet" }, detail)),
        bars(entry.told),
        nearest(entry.told.nearest),
      ),
    ),
    el("div", { class: "fix stack" }, correction(entry, notes), notes),
  );
}

function shown({ photo, told }, notes) {
  const address = URL.createObjectURL(photo.file);
  const picture = el("img", { class: "seen", src: address, alt: photo.name, error: () => picture.replaceWith(photo.name) });
  const why = el("button", { class: "plain", "aria-pressed": "false", click: () => explain(photo, picture, address, why, notes) }, "Show why");
  return el("figure", {}, picture, state.model.explain ? why : null);
}

async function explain(photo, picture, address, why, notes) {
  const hide = why.getAttribute("aria-pressed") === "true";
  if (!hide) {
    why.disabled = true;
    try {
      picture.src = URL.createObjectURL(await api.explain(photo));
    } catch (problem) {
      notes.replaceChildren(...problemNotes(noticed(problem)));
      return;
    } finally {
      why.disabled = false;
    }
  } else picture.src = address;
  picture.alt = hide ? photo.name : `${photo.name}: warm colours mark what the answer comes from`;
  why.setAttribute("aria-pressed", String(!hide));
  why.closest(".answer").classList.toggle("why", !hide);
  why.textContent = hide ? "Show why" : "Show the photo";
  notes.replaceChildren(...(hide ? [] : [note("warm colours mark what the answer comes from")]));
}

function bars({ best, known, like_none }) {
  const rows = best.map(({ class: name, probability }, position) => {
    const fill = el("span");
    fill.style.width = `${100 * probability}%`;
    return el(
      "li",
      { class: position === 0 && known && !like_none ? "sure" : "" },
      el("span", {}, name),
      el("span", { class: "number quiet" }, percent(probability)),
      el("span", { class: "bar", "aria-hidden": "true" }, fill),
    );
  });
  return el("ol", { class: "bars", "aria-label": "Most probable classes" }, rows);
}

function nearest(photos) {
  if (!photos.length) return null;
  const rows = photos.map(({ digest, class: name, likeness }) =>
    el("li", {}, photoTile(digest, ""), el("span", { class: "short", title: name }, name), el("span", { class: "quiet number" }, `${likeness.toFixed(2)} alike`)),
  );
  return el("div", {}, el("h3", {}, "Most like these taught photos"), el("ul", { class: "near" }, rows));
}

function correction(entry, notes) {
  const input = el("input", { list: "names", required: true, maxlength: 100, autocapitalize: "off", autocomplete: "off" });
  const really = el("label", { class: "grow" }, "It is really", input);
  const send = (event) => {
    event.preventDefault();
    correct(entry, input.value.trim(), input, notes);
  };
  return el(
    "form",
    { class: "row", submit: send },
    really,
    el("button", { class: "main" }, "Correct"),
    el("button", { type: "button", click: () => correct(entry, NONE, input, notes) }, "None of these"),
  );
}

async function correct({ photo, told }, name, input, notes) {
  if (!name) return;
  const typed = input.value;
  if (name === told.taught_as) {
    notes.replaceChildren(note(`this photo was taught as ${name} already`));
    return;
  }
  try {
    input.value = "";
    remember(told.digest, photo.file);
    const done = await change(() => api.correct(name, photo));
    const lost = done.gone.length ? `; ${done.gone.join(", ")} lost its last photo and is forgotten` : "";
    toast(name === NONE ? `kept as none of these${lost}` : `learned: this is ${name}${lost}`, done.revision);
  } catch (problem) {
    input.value = typed;
    notes.replaceChildren(...problemNotes(problem));
  }
}
