// Photos as people bring them: dropped, chosen, pasted, in folders; and small pictures of them.

import { api } from "./api.js";
import { el } from "./dom.js";
import { state } from "./state.js";

const SMALL = 240; // pixels of a small picture
const LIGHT = 8 * 1048576; // bytes of a request that a slow line carries before the service stops waiting
const AROUND = 2048; // bytes of a form for one photo beside its own: headers, its name, its label
const MODEST = { photos: 16, body_bytes: 16777216 }; // limits, while those of the service are not known
const REMEMBERED = 2000; // small pictures of taught photos

/** Dropped files with the name of the folder they lie in, or null: [{file, folder}]. */
export async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return chosen(transfer.files);
  return (await Promise.all(entries.map((entry) => inside(entry, null)))).flat();
}

async function inside(entry, folder) {
  if (entry.name.startsWith(".") || entry.name === "Thumbs.db") return [];
  if (entry.isFile) return [{ file: await new Promise((done, fail) => entry.file(done, fail)), folder }];
  const reader = entry.createReader();
  const found = [];
  for (;;) {
    const some = await new Promise((done, fail) => reader.readEntries(done, fail));
    if (!some.length) break;
    found.push(...some);
  }
  found.sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));
  return (await Promise.all(found.map((one) => inside(one, entry.name)))).flat();
}

/** Chosen files with the name of the folder they lie in, or null. */
export function chosen(files) {
  return [...files]
    .filter((file) => !file.name.startsWith(".") && file.name !== "Thumbs.db")
    .map((file) => ({ file, folder: file.webkitRelativePath.split("/").at(-2) ?? null }));
}

/** Gives each file a name that no other has, as the service will call it: [{name, file}]. */
export function named(files) {
  const [taken, times] = [new Set(), new Map()];
  return files.map((file) => {
    // What a form or the service would write in another way; cut first: half a character would change too.
    const plain = file.name.slice(-120).replace(/[\p{C}\p{Zl}\p{Zp}/\\"]/gu, "_") || "photo";
    let name = plain;
    let time = times.get(plain) ?? 1;
    for (; taken.has(name); name = plain.replace(/(\.[^.]*)?$/, ` (${time})$1`)) time += 1;
    times.set(plain, time);
    taken.add(name);
    return { file, name };
  });
}

/** Photos of one request, at least one; what is left for others, and what is too large alone. `beside`: bytes of texts. */
export function portion(photos, beside = 0) {
  const { photos: most, body_bytes } = state.model?.limits ?? MODEST;
  const room = body_bytes - beside;
  const [part, wrong] = [[], []];
  let [bytes, position] = [0, 0];
  for (; position < photos.length && part.length < most; position += 1) {
    const photo = photos[position];
    const size = photo.file.size + AROUND;
    if (size > room) {
      wrong.push({ photo: photo.name, problem: `is too large: ${Math.round(photo.file.size / 1048576)} MB` });
      continue;
    }
    if (part.length && bytes + size > Math.min(room, LIGHT)) break;
    part.push(photo);
    bytes += size;
  }
  return { part, wrong, rest: photos.slice(position) };
}

/** Splits photos into requests that the service accepts; what is too large alone is named. */
export function portions(photos) {
  const [parts, wrong] = [[], []];
  for (let rest = photos; rest.length; ) {
    const next = portion(rest);
    if (next.part.length) parts.push(next.part);
    wrong.push(...next.wrong);
    rest = next.rest;
  }
  return { parts, wrong };
}

const previews = new WeakMap();

/** The address of a small picture of a file, or null if the browser cannot show it. */
export function preview(file) {
  if (!previews.has(file)) previews.set(file, shrink(file).catch(() => null));
  return previews.get(file);
}

async function shrink(file) {
  const bitmap = await createImageBitmap(file, { resizeWidth: SMALL, resizeQuality: "medium" });
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  canvas.getContext("2d").drawImage(bitmap, 0, 0);
  bitmap.close();
  return URL.createObjectURL(await canvas.convertToBlob({ type: "image/webp", quality: 0.85 }));
}

const pictures = new Map(); // digest -> promise of an address or null

/** Keeps a small picture of a photo whose digest is known, for as long as the page is open. */
export function remember(digest, file) {
  if (pictures.size > REMEMBERED) pictures.delete(pictures.keys().next().value);
  pictures.set(digest, preview(file));
}

function stored(digest) {
  if (!pictures.has(digest) && state.model?.thumbnails) {
    const address = api.thumbnail(digest).then(URL.createObjectURL, () => null);
    pictures.set(digest, address);
  }
  return pictures.get(digest) ?? Promise.resolve(null);
}

/** A square with a small picture, or with some text where there is none. */
function tile(address, text, otherwise) {
  const node = el("span", { class: "tile" }, otherwise);
  address.then((src) => src && node.replaceChildren(el("img", { src, alt: text, loading: "lazy" })));
  return node;
}

export const fileTile = (file) => tile(preview(file), "", file.name);
export const photoTile = (digest, text) => tile(stored(digest), text, digest.slice(0, 6));

/** Small pictures of those of some photos that have one. */
export function knownTiles(digests) {
  const row = el("div", { class: "tiles", "aria-hidden": "true" });
  const tiles = digests.map((digest) => stored(digest).then((src) => src && el("span", { class: "tile" }, el("img", { src, alt: "" }))));
  Promise.all(tiles).then((some) => row.append(...some.filter(Boolean)));
  return row;
}
