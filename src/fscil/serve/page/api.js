// The routes of the service. What is refused becomes a Refusal; a service that does not answer becomes Gone.

export class Refusal extends Error {
  constructor(status, detail, photos) {
    super(detail);
    this.status = status;
    this.photos = photos ?? [];
  }
}

export class Gone extends Error {
  constructor() {
    super("the service does not answer; nothing was lost, try again");
  }
}

const TOKEN = "fscil token";
export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (word) => sessionStorage.setItem(TOKEN, word),
};

async function send(method, path, { body, match, signal } = {}) {
  const headers = new Headers();
  if (token.get()) headers.set("Authorization", `Bearer ${token.get()}`);
  if (match !== undefined) headers.set("If-Match", `"${match}"`);
  if (typeof body === "string") headers.set("Content-Type", "application/json");
  let answer;
  try {
    answer = await fetch(path, { method, headers, body, signal, cache: "no-store" });
  } catch (problem) {
    throw problem.name === "AbortError" ? problem : new Gone();
  }
  if (!answer.ok) throw await refusal(answer);
  return answer;
}

async function refusal(answer) {
  const document = await answer.json().catch(() => null);
  return new Refusal(answer.status, document?.detail ?? `the service answered ${answer.status}`, document?.photos);
}

async function json(...request) {
  return (await send(...request)).json();
}

/** Photos and texts as a form; each photo is called by the name it has in its pair. */
function form(photos, texts = {}) {
  const data = new FormData();
  for (const { name, file } of photos) data.append("photos", file, name);
  for (const [name, text] of Object.entries(texts)) data.append(name, text);
  return data;
}

const at = (name) => `v1/classes/${encodeURIComponent(name)}`;
const NONE = "none of these";
const place = (name) => (name === NONE ? "v1/none" : at(name));

export const api = {
  model: (signal) => json("GET", "v1/model", { signal }),
  classes: () => json("GET", "v1/classes"),
  history: () => json("GET", "v1/history"),
  map: () => json("GET", "v1/map"),
  photosOf: (name) => json("GET", name === NONE ? place(name) : `${place(name)}/photos`),
  predict: (photos) => json("POST", "v1/predict?top=5&nearest=4", { body: form(photos) }),
  evaluate: (photos, labels, earlier, signal) =>
    json("POST", "v1/evaluate", {
      body: form(photos, { labels: JSON.stringify(labels), earlier }),
      signal,
    }),
  explain: async (photo) => (await send("POST", "v1/explain", { body: form([photo]) })).blob(),
  thumbnail: async (digest) => (await send("GET", `v1/photos/${digest}`)).blob(),
  teach: (name, photos, match) => json("POST", `${at(name)}/photos`, { body: form(photos), match }),
  none: (photos) => json("POST", "v1/none", { body: form(photos) }),
  correct: (name, photo) => json("POST", "v1/correct", { body: form([photo], { class: name }) }),
  move: (name, digest) => json("POST", "v1/correct", { body: form([], { class: name, digest }) }),
  unteach: (name, digest, match) => json("DELETE", `${place(name)}/photos/${digest}`, { match }),
  rename: (name, to, match) => json("PATCH", at(name), { body: JSON.stringify({ name: to }), match }),
  forget: (name, match) => json("DELETE", at(name), { match }),
  undo: (match) => json("POST", "v1/undo", { match }),
};
export { NONE };
