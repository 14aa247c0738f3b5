// The page's texts, in the language of the reader.

const STRINGS = JSON.parse(document.getElementById('strings').textContent);
const LANGUAGES = Object.keys(STRINGS);
const LANGUAGE_STORAGE_KEY = 'board-language';

/** What the browser remembers; some browsers refuse to for files. */
function remembered(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function remember(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // The language is then chosen again at the next visit.
  }
}

function preferredLanguage() {
  const wanted = [remembered(LANGUAGE_STORAGE_KEY), ...navigator.languages];
  const known = wanted.map((one) => one?.split('-')[0]).find((one) => LANGUAGES.includes(one));
  return known ?? LANGUAGES[0];
}

let language = preferredLanguage();

/** The text of that key, with `{name}` replaced by the value of that name. */
function t(key, values = {}) {
  const text = STRINGS[language][key] ?? key;
  return text.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? '');
}

/**
 * The text of that key as nodes. What the laboratory says stands in the place of `{detail}`: it has
 * a language of its own.
 */
function textNodes(key, values) {
  const pieces = STRINGS[language][key].split('{detail}');
  return pieces.flatMap((piece, at) => {
    const text = piece.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? '');
    return at ? [saidNode(values.detail), text] : [text];
  });
}

/**
 * What the laboratory says: English, or `{ en, zh }` with its Chinese in parts. What is English in
 * any language is named so.
 */
function saidNode(said) {
  const node = document.createElement('span');
  node.className = 'detail';
  if (language === 'en' || !said.zh) {
    [node.lang, node.textContent] = ['en', said.en ?? said];
    return node;
  }
  node.append(...said.zh.map((part) => (part.en === undefined ? part : saidNode(part))));
  return node;
}

/** The same as a text. */
function saidText(said) {
  if (language === 'en' || !said.zh) return said.en ?? said;
  return said.zh.map((part) => (part.en === undefined ? part : saidText(part))).join('');
}

/** Whether there is a text of that key. */
function hasText(key) {
  return Object.hasOwn(STRINGS[language], key);
}

function applyWords(root = document) {
  root.querySelectorAll('[data-t]').forEach((it) => { it.textContent = t(it.dataset.t); });
  root.querySelectorAll('[data-t-label]').forEach((it) => {
    it.setAttribute('aria-label', t(it.dataset.tLabel));
  });
  document.documentElement.lang = language;
  document.title = t('title');
}

function switchLanguage() {
  language = LANGUAGES[(LANGUAGES.indexOf(language) + 1) % LANGUAGES.length];
  remember(LANGUAGE_STORAGE_KEY, language);
}

/** Microseconds as seconds to the millisecond. */
function seconds(micros) {
  return `${(micros / 1e6).toFixed(3)} s`;
}
