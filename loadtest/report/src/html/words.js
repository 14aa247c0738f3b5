// The page's texts, in the language of the reader.
'use strict';

const STRINGS = JSON.parse(document.getElementById('strings').textContent);
// The Chinese of English that has no key.
const TRANSLATIONS = JSON.parse(document.getElementById('translations').textContent);
const LANGUAGES = Object.keys(STRINGS);
const LANGUAGE_STORAGE_KEY = 'report-language';

// What the browser remembers; some browsers refuse to for files.
function remembered() {
  try {
    return localStorage.getItem(LANGUAGE_STORAGE_KEY);
  } catch {
    return null;
  }
}

function remember() {
  try {
    localStorage.setItem(LANGUAGE_STORAGE_KEY, language);
  } catch {
    // The language is then chosen again at the next visit.
  }
}

function preferredLanguage() {
  const wanted = [remembered(), ...navigator.languages].map((one) => one?.split('-')[0]);
  return wanted.find((one) => LANGUAGES.includes(one)) ?? LANGUAGES[0];
}

let language = preferredLanguage();

function filled(template, values) {
  const pieces = template.split(/\{(\w+)\}/);
  return pieces.flatMap((piece, at) => (at % 2 ? partsOf(values[piece] ?? '') : [piece]));
}

// A text as strings, and objects `{ english }` where there is no translation. It is a string, a
// list of key and values, `{ join, all }`, or English as `{ en }` with its values in `of`.
function partsOf(text) {
  if (typeof text === 'string') return [text];
  if (Array.isArray(text)) return filled(STRINGS[language][text[0]] ?? text[0], text[1] ?? {});
  if (text.all) {
    return text.all.flatMap((one, at) => [...(at ? partsOf([text.join]) : []), ...partsOf(one)]);
  }
  if (language === 'en') return filled(text.en, text.of ?? {});
  const translated = TRANSLATIONS[text.en];
  return translated ? filled(translated, text.of ?? {}) : [{ english: text.en }];
}

function stringOf(text) {
  return partsOf(text).map((part) => part.english ?? part).join('');
}

/** The text of that key, with `{name}` replaced by the value of that name. */
function t(key, values = {}) {
  return stringOf([key, values]);
}

function nodeOf(part) {
  if (typeof part === 'string') return part;
  const node = document.createElement('span');
  node.lang = 'en';
  node.textContent = part.english;
  return node;
}

// In an attribute a text is a key, or JSON.
function parsed(data) {
  return /^[[{]/.test(data) ? JSON.parse(data) : [data];
}

function applyWords(root = document) {
  root.querySelectorAll('[data-t]').forEach((it) => {
    it.replaceChildren(...partsOf(parsed(it.dataset.t)).map(nodeOf));
  });
  root.querySelectorAll('[data-t-en]').forEach((it) => {
    it.dataset.tEn ||= it.textContent;
    it.replaceChildren(...partsOf({ en: it.dataset.tEn }).map(nodeOf));
  });
  root.querySelectorAll('[data-t-label]').forEach((it) => {
    it.setAttribute('aria-label', stringOf(parsed(it.dataset.tLabel)));
  });
  root.querySelectorAll('[data-t-title]').forEach((it) => {
    it.title = stringOf(parsed(it.dataset.tTitle));
  });
  document.documentElement.lang = language;
}

function otherLanguage() {
  return LANGUAGES[(LANGUAGES.indexOf(language) + 1) % LANGUAGES.length];
}

function switchLanguage() {
  language = otherLanguage();
  remember();
  applyWords();
}
