// Teach: a tray of photos and a name; then what came of the lesson.

import { api } from "./api.js";
import { $, count, el } from "./dom.js";
import { fileTile, named, portions, remember } from "./photos.js";
import { note, problemNotes, toast, wrongPhotos } from "./say.js";
import { change } from "./state.js";

let tray = []; // files that wait for a name

/** Puts photos into the tray; a folder suggests its name. */
export function hold(found) {
  tray.push(...found.map(({ file }) => file));
  const folder = found.find(({ folder }) => folder)?.folder;
  if (folder && !$("name").value) $("name").value = folder.replaceAll("_", " ");
  $("teach-notes").replaceChildren();
  show();
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
export async function teach(name, files) {
  const { parts, wrong } = portions(named(files));
  const notes = wrongPhotos(wrong);
  const lessons = [];
  working(true);
  try {
    await change(async () => {
      for (const [turn, part] of parts.entries()) {
        if (parts.length > 1) $("teach-progress").value = turn / parts.length;
        lessons.push(recall(part, await api.teach(name, part)));
      }
    });
  } catch (problem) {
    notes.push(...problemNotes(problem));
  }
  working(false);
  $("teach-notes").replaceChildren(...lessons.slice(-1).flatMap(outcome), ...lessons.flatMap(unread), ...notes);
  const counted = lessons.filter(({ taught }) => taught);
  if (counted.length) toast(`taught ${lessons[0].class} from ${photos(counted)}`, counted.at(-1).revision, counted.length);
  return lessons.length === parts.length && parts.length > 0;
}

const photos = (lessons) => count(lessons.reduce((sum, { taught }) => sum + taught, 0), "photo");
const unread = ({ unreadable }) => wrongPhotos(unreadable);

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
