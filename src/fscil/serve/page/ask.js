// Ask: what photos show, what they are most like, and what they really are.

import { api } from "./api.js";
import { answerView, verdict } from "./answer.js";
import { $, el } from "./dom.js";
import { fileTile, named, portions, remember } from "./photos.js";
import { noticed, state, when } from "./state.js";
import { note, problemNotes, wrongPhotos } from "./say.js";

let entries = []; // {photo: {name, file}, told}
let current = 0;
let answered = null; // the revision that the answers are of
let newest = 0; // question; what comes of an earlier one is dropped
let asking = false; // about photos that are not on the page yet

/** Asks about photos and shows the answers. */
export async function ask(files) {
  const [mine, before] = [(newest += 1), state.revision];
  asking = true;
  const panel = $("ask");
  const { parts, wrong } = portions(named(files));
  panel.classList.add("busy");
  $("ask-notes").replaceChildren(note(files.length === 1 ? "looking at the photo" : `looking at ${files.length} photos`));
  const notes = wrongPhotos(wrong);
  const answers = [];
  let revision = null;
  try {
    for (const part of parts) {
      const answer = await predict(part);
      if (mine !== newest) return;
      answers.push(...matched(part, answer.answers));
      revision ??= answer.revision;
      notes.push(...wrongPhotos(answer.unreadable));
    }
  } catch (problem) {
    if (mine !== newest) return;
    notes.push(...problemNotes(noticed(problem)));
  }
  asking = false;
  panel.classList.remove("busy");
  $("ask-notes").replaceChildren(...notes);
  if (answers.length) {
    show(answers, 0, revision);
    if ($("answer").getBoundingClientRect().top > 0.6 * innerHeight) $("answer").scrollIntoView();
  }
  if (state.revision !== before) follow();
}

/** The answers to a portion; one of which nothing can be read must not stop those after it. */
async function predict(part) {
  try {
    return await api.predict(part);
  } catch (problem) {
    if (!problem.photos?.length) throw problem;
    return { answers: [], unreadable: problem.photos, revision: null };
  }
}

/** Answers with their photos; their places tell nothing where the service left photos out. */
function matched(photos, answers) {
  const byName = new Map(photos.map((photo) => [photo.name, photo]));
  const byPlace = answers.length === photos.length ? photos : [];
  return answers.map((told, place) => ({ photo: byName.get(told.photo) ?? byPlace[place], told })).filter(({ photo }) => photo);
}

function show(answers, position, revision) {
  entries = answers;
  answered = revision;
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

/** Asks about the current photos once more, if the model is another one by now. */
async function follow() {
  if (!entries.length || asking || answered === state.revision) return;
  const mine = (newest += 1);
  try {
    const answers = [];
    let revision = null;
    for (const part of portions(entries.map(({ photo }) => photo)).parts) {
      const answer = await api.predict(part);
      if (mine !== newest) return;
      answers.push(...matched(part, answer.answers));
      revision ??= answer.revision;
    }
    const [{ value }, inside] = [$("answer").querySelector("input"), $("answer").contains(document.activeElement)];
    show(answers, current, revision);
    $("answer").querySelector("input").value = value;
    if (inside) (value ? $("answer").querySelector("input") : $("answer")).focus();
  } catch (problem) {
    if (mine !== newest) return;
    if (problem.status === 409) $("answer").hidden = true;
    else $("ask-notes").replaceChildren(...problemNotes(noticed(problem)));
  }
}

/** Answers on the page follow the model. */
export function start() {
  when("state", follow);
}
