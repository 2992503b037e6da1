// Teach: a tray of photos and a name; then what came of the lesson.

import { api } from "./api.js";
import { $, count, el } from "./dom.js";
import { fileTile, named, portions, remember } from "./photos.js";
import { note, problemNotes, toast, wrongPhotos } from "./say.js";
import { change } from "./state.js";

let tray = []; // files that wait for a name

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
  show();
}

const spaced = (folder) => folder.replaceAll("_", " ");

/** Folders of photos, each to be taught as a class. */
function offer(groups) {
  const go = el("button", { class: "main", click: () => teachAll(groups) }, `Teach ${count(groups.length, "class")}`);
  const names = groups.map(([name, files]) => `${name} (${files.length})`).join(", ");
  $("teach-notes").replaceChildren(note(`each folder is a class: ${names}`), el("p", { class: "row" }, go));
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
  if (await teach(name, tray)) {
    tray = [];
    $("name").value = "";
    show();
  }
}

/** Teaches a class; true if all photos were sent. */
export const teach = (name, files) => teachAll([[name, files]]);

async function teachAll(groups) {
  const lessons = [];
  const notes = [];
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
        lessons.push(recall(part, await api.teach(name, part)));
      }
    });
  } catch (problem) {
    notes.push(...problemNotes(problem));
  }
  working(false);
  const latest = new Map(lessons.map((lesson) => [lesson.class, lesson]));
  $("teach-notes").replaceChildren(...[...latest.values()].flatMap(outcome), ...lessons.flatMap(unread), ...notes);
  tell(lessons.filter(({ taught }) => taught));
  return requests.length > 0 && lessons.length === requests.length;
}

const unread = ({ unreadable }) => wrongPhotos(unreadable);

function tell(lessons) {
  if (!lessons.length) return;
  const names = new Set(lessons.map((lesson) => lesson.class));
  const what = names.size === 1 ? lessons[0].class : count(names.size, "class");
  const photos = lessons.reduce((sum, { taught }) => sum + taught, 0);
  toast(`taught ${what} from ${count(photos, "photo")}`, lessons.at(-1).revision, lessons.length);
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
