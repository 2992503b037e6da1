// One class in a dialog: its photos, a new name, and forgetting; each of these can be undone.

import { api, NONE } from "./api.js";
import { $, el } from "./dom.js";
import { photoTile } from "./photos.js";
import { note, problemNotes, toast } from "./say.js";
import { change, noticed, state, when } from "./state.js";
import { prepare } from "./teach.js";

let open = null; // the name of the class that is shown
let parts = null; // of the dialog that follow the model: {notes, photos}
let loads = 0;
let changing = false; // it may have another name in a moment

export async function openClass(name) {
  const dialog = $("class-dialog");
  build(name);
  await load();
  if (!dialog.open) dialog.showModal();
}

/** The dialog without what the service has to be asked for. */
function build(name) {
  open = name;
  const fixed = name === NONE;
  const notes = el("div", { class: "notes", role: "status" });
  const photos = el("ul", { class: "photos", "aria-label": "Photos", tabindex: "0" });
  parts = { notes, photos };
  $("class-body").replaceChildren(
    el("h2", { id: "class-title" }, fixed ? "None of these" : name),
    notes,
    photos,
    ...(fixed ? [el("p", { class: "quiet" }, "Photos that show none of the classes. The model says so when a photo is like them.")] : [renaming(name, notes)]),
    actions(name, notes),
  );
}

/** Shows the photos as they are now; a name that is being typed, and the keyboard, stay where they are. */
async function load() {
  const [name, mine, { notes, photos }] = [open, (loads += 1), parts];
  try {
    const told = await api.photosOf(name);
    if (mine !== loads) return; // a later call knows better
    const texts = [told.text, told.photos.length ? null : "the model keeps no list of the photos of this class"];
    notes.replaceChildren(...texts.filter(Boolean).map((text) => note(text)));
    const held = document.activeElement.closest(".taught")?.dataset.digest;
    photos.replaceChildren(...told.photos.map((photo) => taught(name, photo, notes)));
    if (held) (photos.querySelector(`[data-digest="${held}"] button`) ?? photos).focus();
  } catch (problem) {
    if (mine === loads) notes.replaceChildren(...problemNotes(noticed(problem)));
  }
}

function taught(name, { digest, without, recognised }, notes) {
  const short = digest.slice(0, 6);
  const remove = state.model.keeps_features || name === NONE // of which features are always kept
    ? el("button", { class: "round", "aria-label": `Remove photo ${short}`, click: () => unteach(name, digest, notes) }, "×")
    : null;
  const doubt = recognised === false ? el("span", {}, `alone: ${without}`) : null;
  return el("li", { class: "taught", "data-digest": digest }, photoTile(digest, `photo ${short}`), remove, doubt);
}

function renaming(name, notes) {
  const input = el("input", { value: name, required: true, maxlength: 100, autocapitalize: "off", autocomplete: "off" });
  const send = (event) => {
    event.preventDefault();
    const to = input.value.trim();
    if (to && to !== name) attempt(notes, (match) => api.rename(name, to, match), `${name} is now called ${to}`, to);
  };
  return el("form", { class: "row", submit: send }, el("label", { class: "grow" }, "Name", input), el("button", {}, "Rename"));
}

function actions(name, notes) {
  const more = () => {
    close();
    prepare(name);
  };
  const forget = () => attempt(notes, (match) => api.forget(name, match), `forgot ${name}`, null);
  return el(
    "div",
    { class: "row end" },
    name === NONE ? null : el("button", { click: forget }, "Forget this class"),
    name === NONE ? null : el("button", { click: more }, "Add photos"),
    el("button", { class: "main", click: close }, "Close"),
  );
}

function unteach(name, digest, notes) {
  const last = $("class-dialog").querySelectorAll(".taught").length === 1 && name !== NONE;
  const text = last ? `removed the last photo of ${name}, which is forgotten` : `removed a photo of ${name}`;
  return attempt(notes, (match) => api.unteach(name, digest, match), text, last ? null : name);
}

/** Makes a change, says so with a way back, and shows the class it leaves; null closes. */
async function attempt(notes, make, text, left) {
  changing = true;
  try {
    const done = await change(make);
    if (left === null) close();
    else if (open !== null) {
      if (left !== open) build(left);
      await load();
      $("class-dialog").querySelector(".main").focus();
    }
    toast(text, done.revision);
  } catch (problem) {
    if (problem.status === 412) await load();
    notes.replaceChildren(...problemNotes(problem));
  } finally {
    changing = false;
  }
}

function close() {
  const name = open;
  open = null;
  $("class-dialog").close();
  document.querySelector(`.card[data-class="${CSS.escape(name)}"] button`)?.focus();
}

export function start() {
  $("class-dialog").addEventListener("close", () => {
    open = null;
    document.body.append($("toasts"));
  });
  when("state", () => {
    if (!open || changing) return;
    if (open === NONE || state.classes.some(({ name }) => name === open)) load();
    else close();
  });
}
