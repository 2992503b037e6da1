// Teach: a tray of photos and a name; then what came of the lesson.

import { api } from "./api.js";
import { $, count, el } from "./dom.js";
import { fileTile, named, portions, remember } from "./photos.js";
import { note, problemNotes, toast, wrongPhotos } from "./say.js";
import { change } from "./state.js";

let tray = []; // files that wait for a name
let lesson = Promise.resolve(); // the one that is being sent; the next one waits for it

/** Puts photos into the tray; a folder suggests its name, several folders are several classes. */
export function hold(found) {
  const folders = Map.groupBy(found, ({ folder }) => folder);
  if (folders.size > 1 && !folders.has(null)) {
    offer([...folders].map(([folder, some]) => [spaced(folder), some.map(({ file }) => file)]));
    return;
  }
  tray.push(...found.map(({ file }) => file));
  const [folder] = folders.keys();
  if (folder && !$("name").value) $("name").value = spaced(folder);
  $("teach-notes").replaceChildren();
  $("teach-offer").replaceChildren();
  show();
}

const spaced = (folder) => folder.replaceAll("_", " ");

/** Folders of photos, each to be taught as a class. */
function offer(groups) {
  const accept = async () => {
    go.disabled = true;
    if (await teachAll(groups)) offered.forEach((part) => part.remove());
    go.disabled = false;
  };
  const go = el("button", { class: "main", click: accept }, `Teach ${count(groups.length, "class")}`);
  const names = groups.map(([name, files]) => `${name} (${files.length})`).join(", ");
  const offered = [note(`each folder is a class: ${names}`), el("p", { class: "row" }, go)];
  $("teach-offer").replaceChildren(...offered);
  go.focus();
}

/** Prepares a lesson for a class that is known. */
export function prepare(name) {
  $("name").value = name;
  $("teach").scrollIntoView({ block: "nearest" });
  document.querySelector('[data-choose="teach"]').focus();
}

function show() {
  $("tray").replaceChildren(...tray.map(held));
  $("teach-go").textContent = tray.length ? `Teach ${count(tray.length, "photo")}` : "Teach";
}

function held(file, position) {
  const drop = () => {
    tray.splice(position, 1);
    show();
    ($("tray").children[Math.min(position, tray.length - 1)]?.querySelector("button") ?? $("name")).focus();
  };
  const remove = el("button", { type: "button", class: "round", "aria-label": `Leave out ${file.name}`, click: drop }, "×");
  return el("div", { class: "held", role: "listitem", title: file.name }, fileTile(file), remove);
}

async function send(event) {
  event.preventDefault();
  const name = $("name").value.trim();
  if (!tray.length) {
    $("teach-notes").replaceChildren(note("there are no photos yet: drop some above, or choose them", "wrong"));
    document.querySelector('[data-choose="teach"]').focus();
    return;
  }
  if (!name) return;
  const sent = new Set(tray);
  if (await teach(name, [...sent])) {
    tray = tray.filter((file) => !sent.has(file)); // more may have come meanwhile, and another name
    if ($("name").value.trim() === name) $("name").value = "";
    show();
  }
}

/** Teaches a class; true if all photos were sent. */
export const teach = (name, files) => teachAll([[name, files]]);

function teachAll(groups) {
  const next = () => sendAll(groups);
  lesson = lesson.then(next, next);
  return lesson;
}

async function sendAll(groups) {
  const lessons = [];
  const notes = [];
  let complete = false;
  const requests = groups.flatMap(([name, files]) => {
    const { parts, wrong } = portions(named(files));
    notes.push(...wrongPhotos(wrong));
    return parts.map((part) => ({ name, part }));
  });
  working(true);
  try {
    await change(async () => {
      for (const [turn, { name, part }] of requests.entries()) {
        if (requests.length > 1) $("teach-progress").value = turn / requests.length;
        try {
          lessons.push(recall(part, await sendNext(name, part, lessons.at(-1))));
        } catch (problem) {
          if (!problem.photos?.length) throw problem;
          notes.push(...problemNotes(problem)); // nothing in this portion can be read; the others may be fine
        }
      }
    });
    complete = lessons.length > 0;
  } catch (problem) {
    notes.push(...problemNotes(problem));
  }
  working(false);
  const latest = new Map(lessons.map((one) => [one.class, one]));
  $("teach-notes").replaceChildren(...[...latest.values()].flatMap(outcome), ...lessons.flatMap(unread), ...notes);
  tell(lessons);
  return complete;
}

/** Sends a portion right after the one before it; `alone` in the answer: somebody else came in between. */
async function sendNext(name, part, before) {
  if (!before) return api.teach(name, part);
  try {
    return await api.teach(name, part, before.revision);
  } catch (problem) {
    if (problem.status !== 412) throw problem;
    return { ...(await api.teach(name, part)), alone: true };
  }
}

const unread = ({ unreadable }) => wrongPhotos(unreadable);
const photosOf = (lessons) => count(lessons.reduce((sum, { taught }) => sum + taught, 0), "photo");

/** Says what was taught; the way back ends where somebody else came in between. */
function tell(lessons) {
  const useful = lessons.filter(({ taught }) => taught); // the others left no step
  if (!useful.length) return;
  const names = new Set(useful.map((one) => one.class));
  const what = names.size === 1 ? useful[0].class : count(names.size, "class");
  const last = lessons.slice(Math.max(0, lessons.findLastIndex(({ alone }) => alone))).filter(({ taught }) => taught);
  const meanwhile = "; somebody else changed the model meanwhile";
  const limit = last.length ? `${meanwhile}, so Undo takes back the last ${photosOf(last)} only` : meanwhile;
  const text = `taught ${what} from ${photosOf(useful)}${last.length < useful.length ? limit : ""}`;
  toast(text, last.length ? lessons.at(-1).revision : null, last.length);
}

/** Small pictures of what was taught, where it is certain which photo is which. */
function recall(part, lesson) {
  const wrong = new Set(lesson.unreadable.map(({ photo }) => photo));
  const read = part.filter(({ name }) => !wrong.has(name));
  if (read.length === lesson.digests.length) lesson.digests.forEach((digest, i) => remember(digest, read[i].file));
  return lesson;
}

function outcome({ review, advice }) {
  const good = review && review.recognised === review.photos;
  return [...(review ? [note(review.text, good ? "good" : "")] : []), ...advice.map((text) => note(text))];
}

function working(on) {
  $("teach").classList.toggle("busy", on);
  $("teach-go").disabled = on;
  $("teach-progress").hidden = !on;
  $("teach-progress").removeAttribute("value");
}

export function start() {
  $("lesson").addEventListener("submit", send);
}
