// The picture of the moment: both lanes as they are shown, with the texts of their verdicts.

const MARGIN = 16;
const LINE = 20;
/** Chinese may be parted after each sign, other text at spaces. */
const WORDS = /[\u3000-\u9fff\uff00-\uffef]|[^\s\u3000-\u9fff\uff00-\uffef]+|\s+/g;

/** The lines of a text that are no wider than that. */
function wrapped(context, text, width) {
  const lines = [''];
  for (const word of text.trim().match(WORDS) ?? []) {
    const last = lines.length - 1;
    const isTooWide = context.measureText(lines[last] + word).width > width;
    if (isTooWide && lines[last]) lines.push(word.trimStart());
    else lines[last] += word;
  }
  return lines;
}

/** What is written above the bars of a lane and below them: its text, whether it is bad. */
function textsOf(root) {
  const texts = (selector) => [...root.querySelectorAll(selector)].map((it) => ({
    text: it.textContent, isBad: it.matches('.bad, .broken b'),
  }));
  const counters = [...root.querySelectorAll('.counters > div')].map((box) => ({
    text: [...box.children].map((it) => it.textContent).join(t('colon')),
    isBad: box.matches('.bad'),
  }));
  const parts = ['h3', '.rung-outcome:not([hidden])', '.outcome', '.cost', '.broken b'];
  const verdict = parts.flatMap((part) => texts(`.verdict:not([hidden]) ${part}`));
  return { above: [...texts('h2, .cell'), ...counters], below: verdict };
}

/** Where each line of a lane is and where its bars are, and how high all of it is. */
function layOutLane(context, root, width) {
  const [{ above, below }, bars] = [textsOf(root), root.querySelector('canvas')];
  const lines = [];
  let y = 0;
  const write = ({ text, isBad }) => wrapped(context, text, width).forEach((line) => {
    lines.push({ text: line, y, isBad });
    y += LINE;
  });
  above.forEach(write);
  const barsAt = y;
  y += bars.clientHeight + LINE / 2;
  below.forEach(write);
  return { lines, bars, barsAt, height: y };
}

/** Draws these lanes one beside the other, on a canvas of its own. */
function drawMoment(roots, heading) {
  const canvas = element('canvas', '');
  const context = canvas.getContext('2d');
  const begin = () => {
    context.font = '14px system-ui, sans-serif';
    context.textBaseline = 'top';
  };
  begin();
  const width = Math.max(...roots.map((root) => root.querySelector('canvas').clientWidth));
  const lanes = roots.map((root) => layOutLane(context, root, width));
  const top = MARGIN + 1.5 * LINE;
  const size = [
    MARGIN + lanes.length * (width + MARGIN),
    top + Math.max(...lanes.map((lane) => lane.height)) + MARGIN,
  ];
  const scale = window.devicePixelRatio || 1;
  [canvas.width, canvas.height] = size.map((it) => Math.round(it * scale));
  context.setTransform(scale, 0, 0, scale, 0, 0);
  begin();
  context.fillStyle = palette.paper;
  context.fillRect(0, 0, ...size);
  context.fillStyle = palette.ink;
  context.fillText(heading, MARGIN, MARGIN);
  lanes.forEach(({ lines, bars, barsAt }, index) => {
    const left = MARGIN + index * (width + MARGIN);
    context.drawImage(bars, left, top + barsAt, bars.clientWidth, bars.clientHeight);
    for (const { text, y, isBad } of lines) {
      context.fillStyle = isBad ? palette.bad : palette.ink;
      context.fillText(text, left, top + y);
    }
  });
  return canvas;
}

/** Has the browser save the canvas as a PNG of that name. */
function savePicture(canvas, name) {
  canvas.toBlob((picture) => {
    const link = element('a', '');
    link.href = URL.createObjectURL(picture);
    link.download = name;
    link.click();
    // Some browsers read it only after the click.
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }, 'image/png');
}
