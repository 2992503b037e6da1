// Ask: what photos show, what they are most like, and what they really are.

import { api } from "./api.js";
import { answerView, verdict } from "./answer.js";
import { $, el } from "./dom.js";
import { fileTile, named, portions, remember } from "./photos.js";
import { noticed, when } from "./state.js";
import { note, problemNotes, wrongPhotos } from "./say.js";

let entries = []; // {photo: {name, file}, told}
let current = 0;

/** Asks about photos and shows the answers. */
export async function ask(files) {
  const panel = $("ask");
  const { parts, wrong } = portions(named(files));
  panel.classList.add("busy");
  $("ask-notes").replaceChildren(note(files.length === 1 ? "looking at the photo" : `looking at ${files.length} photos`));
  const notes = wrongPhotos(wrong);
  const answers = [];
  try {
    for (const part of parts) {
      const answer = await api.predict(part);
      answers.push(...matched(part, answer.answers));
      notes.push(...wrongPhotos(answer.unreadable));
    }
  } catch (problem) {
    notes.push(...problemNotes(noticed(problem)));
  }
  panel.classList.remove("busy");
  $("ask-notes").replaceChildren(...notes);
  if (!answers.length) return;
  show(answers, 0);
  if ($("answer").getBoundingClientRect().top > 0.6 * innerHeight) $("answer").scrollIntoView();
}

function matched(photos, answers) {
  const byName = new Map(photos.map((photo) => [photo.name, photo]));
  return answers.map((told, position) => ({ photo: byName.get(told.photo) ?? photos[position], told }));
}

function show(answers, position) {
  entries = answers;
  for (const { photo, told } of entries) if (told.taught_as) remember(told.digest, photo.file);
  choose(position);
}

function choose(position) {
  current = position;
  $("ask-strip").hidden = entries.length < 2;
  $("ask-strip").replaceChildren(...entries.map(stripButton));
  $("answer").hidden = false;
  $("answer").replaceChildren(answerView(entries[position]));
  const { title, detail } = verdict(entries[position].told);
  $("spoken").textContent = `${title}. ${detail}`; // a screen reader hears changes only of what was there before
}

function stripButton({ photo, told }, position) {
  return el(
    "button",
    {
      "aria-pressed": String(position === current),
      click: () => {
        choose(position);
        $("ask-strip").children[position].focus();
      },
    },
    fileTile(photo.file),
    verdict(told).title,
  );
}

/** Asks about the current photos once more, after the model was changed. */
async function again() {
  const position = current;
  try {
    const answers = [];
    for (const part of portions(entries.map(({ photo }) => photo)).parts) {
      answers.push(...matched(part, (await api.predict(part)).answers));
    }
    const [{ value }, inside] = [$("answer").querySelector("input"), $("answer").contains(document.activeElement)];
    show(answers, position);
    $("answer").querySelector("input").value = value;
    if (inside) $("answer").focus();
  } catch (problem) {
    if (problem.status === 409) $("answer").hidden = true;
    else $("ask-notes").replaceChildren(...problemNotes(noticed(problem)));
  }
}

/** Answers on the page follow the model. */
export function start() {
  let asked = null;
  when("state", ({ revision }) => {
    if (entries.length && asked !== null && asked !== revision) again();
    asked = revision;
  });
}
