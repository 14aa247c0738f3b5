// The language of the reader, and the page's texts in it (strings.json).

const STRINGS = await (await fetch('/strings.json', { cache: 'no-cache' })).json();
const LOCALES = { en: 'en-GB', zh: 'zh-CN' };
const LANGUAGE_STORAGE_KEY = 'seckill.language';

const listeners = new Set();
let language = preferred();

function preferred() {
  let chosen = null;
  try {
    chosen = localStorage.getItem(LANGUAGE_STORAGE_KEY);
  } catch {
    // The browser's languages decide.
  }
  const wanted = [chosen, ...navigator.languages].map((one) => one?.split('-')[0]);
  return wanted.find((one) => Object.hasOwn(STRINGS, one)) ?? 'en';
}

/** The text of that key, with `{name}` replaced by the value of that name. */
export function t(key, values = {}) {
  const text = STRINGS[language][key] ?? STRINGS.en[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? '');
}

/** Whether that key has a text in the reader's language. */
export function hasText(key) {
  return Object.hasOwn(STRINGS[language], key);
}

/** How the reader's language writes numbers and times, as `Intl` names it. */
export function locale() {
  return LOCALES[language];
}

/** Calls the listener after each change of the language. */
export function onLanguage(listener) {
  listeners.add(listener);
}

function other() {
  return language === 'en' ? 'zh' : 'en';
}

/** Takes the other language, and remembers it. */
export function switchLanguage() {
  language = other();
  try {
    localStorage.setItem(LANGUAGE_STORAGE_KEY, language);
  } catch {
    // The language lasts until the page is left.
  }
  applyTexts();
  for (const listener of listeners) listener();
}

/** Writes the texts of `index.html`, also into what templates make later. */
export function applyTexts() {
  document.documentElement.lang = locale();
  document.getElementById('language').lang = LOCALES[other()];
  document.querySelector('meta[name=description]').content = t('description');
  for (const root of [document, ...templates()]) {
    for (const node of root.querySelectorAll('[data-t]')) node.textContent = t(node.dataset.t);
    for (const node of root.querySelectorAll('[data-t-label]')) {
      node.setAttribute('aria-label', t(node.dataset.tLabel));
    }
  }
}

function templates() {
  return Array.from(document.querySelectorAll('template'), (one) => one.content);
}
