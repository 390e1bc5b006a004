"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const bytes = [[2 ** 40, " TiB"], [2 ** 30, " GiB"], [2 ** 20, " MiB"], [2 ** 10, " KiB"], [1, " B"]];
const seconds = [[1, " s"], [1e-3, " ms"], [1e-6, " us"], [1e-9, " ns"]];
function figure(value, unit) {
  if (value === null || value === undefined) return "-";
  const round = (x) => String(Number(x.toPrecision(4)));
  const table = unit === "B" ? bytes : unit === "s" && value !== 0 ? seconds : null;
  if (!table) return round(value) + (unit === "s" ? " s" : "");
  const [size, name] = table.find(([size]) => Math.abs(value) >= size) || table[table.length - 1];
  return round(value / size) + name;
}
// {repeat: [figure, times, ...]} is a series in which figures are repeated.
for (const run of data.runs) for (const [name, {repeat}] of Object.entries(run.series).filter(([, series]) => series?.repeat)) {
  run.series[name] = [];
  for (let i = 0; i < repeat.length; i += 2) for (let n = 0; n < repeat[i + 1]; ++n) run.series[name].push(repeat[i]);
}
// A series that has one figure in all steps is that figure.
const at = (series, i) => Array.isArray(series) ? series[i] : series;
function nearest(steps, x) {
  let low = 0, high = steps.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (steps[middle] < x) low = middle; else high = middle;
  }
  return Math.abs(steps[low] - x) <= Math.abs(steps[high] - x) ? low : high;
}

// The step under the pointer, or the one that arrow keys choose.
for (const plot of document.querySelectorAll(".plot[data-lines]")) {
  const svg = plot.querySelector("svg"), output = plot.parentElement.querySelector("output");
  const lines = JSON.parse(plot.dataset.lines), unit = plot.dataset.unit;
  const x0 = Number(svg.dataset.x0), x1 = Number(svg.dataset.x1), left = Number(svg.dataset.left), width = Number(svg.dataset.width);
  const cursor = document.createElement("div");
  cursor.className = "cursor";
  cursor.hidden = true;
  plot.append(cursor);
  let step = x1;
  const show = (x) => {
    step = Math.min(x1, Math.max(x0, x));
    const texts = [];
    let shown = null;
    for (const [number, name, label] of lines) {
      const run = data.runs[number];
      if (name === "val_loss") {
        const before = run.validations.filter(([s]) => s <= step + 0.5).pop();
        if (before) texts.push(`${label} ${figure(before[1], unit)} (step ${before[0]})`);
        continue;
      }
      if (!run.steps.length) continue;
      const i = nearest(run.steps, step);
      shown = shown ?? run.steps[i];
      texts.push(`${label} ${figure(at(run.series[name], i), unit)}`);
    }
    step = shown ?? step;
    output.textContent = `step ${Math.round(step)}: ${texts.join(", ")}`;
    cursor.hidden = false;
    cursor.style.left = `${100 * (left + width * (step - x0) / (x1 - x0)) / 720}%`;
  };
  plot.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    show(x0 + (x1 - x0) * ((event.clientX - box.left) / box.width * 720 - left) / width);
  });
  plot.addEventListener("keydown", (event) => {
    const far = Math.max(1, Math.round((x1 - x0) / 20));
    const to = {ArrowLeft: step - 1, ArrowRight: step + 1, PageUp: step - far, PageDown: step + far, Home: x0, End: x1}[event.key];
    if (to === undefined) return;
    event.preventDefault();
    show(to);
  });
  plot.addEventListener("focus", () => show(step));
}

// A timeline of lanes that can be enlarged.
for (const box of document.querySelectorAll(".timeline")) {
  const timeline = data.runs[Number(box.dataset.run)].timeline, svg = box.querySelector("svg"), marks = svg.querySelector(".marks");
  const output = box.querySelector("output"), left = 110, width = 600, row = 26;
  const end = timeline.spans.reduce((most, span) => Math.max(most, span[2] + span[3]), 1);
  let from = 0, to = end;
  const colours = timeline.labels.map((_, i) => `var(--c${i % 8})`);
  const draw = () => {
    const scale = width / (to - from), parts = [];
    let last = null;
    for (const [lane, label, begin, long] of timeline.spans) {
      const a = Math.max(0, (begin - from) * scale), b = Math.min(width, (begin + long - from) * scale);
      if (b <= 0 || a >= width) continue;
      if (last && last.lane === lane && last.label === label && a - last.b < 0.4) { last.b = Math.max(last.b, b); continue; }
      last = {lane, label, a, b};
      parts.push(last);
    }
    marks.innerHTML = parts.map((p) =>
      `<rect x="${(left + p.a).toFixed(2)}" y="${p.lane * row + 2}" width="${Math.max(0.4, p.b - p.a).toFixed(2)}" height="${row - 6}" fill="${colours[p.label]}"/>`).join("");
    output.textContent = `${figure(from * 1e-6, "s")} to ${figure(to * 1e-6, "s")} of ${figure(end * 1e-6, "s")}`;
  };
  const zoom = (factor, middle = (from + to) / 2) => {
    const half = Math.min(end, Math.max(1, (to - from) * factor)) / 2;
    from = Math.max(0, Math.min(end - 2 * half, middle - half));
    to = from + 2 * half;
    draw();
  };
  const move = (share) => zoom(1, (from + to) / 2 + share * (to - from));
  const acts = {in: () => zoom(0.5), out: () => zoom(2), back: () => move(-0.25), on: () => move(0.25), all: () => zoom(1e9)};
  for (const button of box.querySelectorAll("button")) button.addEventListener("click", acts[button.dataset.act]);
  const plot = box.querySelector(".plot");
  plot.addEventListener("keydown", (event) => {
    const act = {"+": "in", "=": "in", "-": "out", ArrowLeft: "back", ArrowRight: "on", "0": "all"}[event.key];
    if (!act) return;
    event.preventDefault();
    acts[act]();
  });
  plot.addEventListener("pointermove", (event) => {
    const rect = svg.getBoundingClientRect(), time = from + (to - from) * ((event.clientX - rect.left) / rect.width * 720 - left) / width;
    const lane = Math.floor((event.clientY - rect.top) / rect.height * Number(svg.dataset.height) / row);
    const span = timeline.spans.find(([l, , begin, long]) => l === lane && begin <= time && time <= begin + long);
    if (span) output.textContent = `${timeline.lanes[lane]}: ${timeline.labels[span[1]]}, ${figure(span[3] * 1e-6, "s")} from ${figure(span[2] * 1e-6, "s")}`;
  });
  plot.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? 0.8 : 1.25);
  }, {passive: false});
  draw();
}

// Plays the moves of a traced step on the map of chunks.
for (const box of document.querySelectorAll(".playback")) {
  const {us, rows, changes} = data.runs[Number(box.dataset.run)].playback, cells = box.closest("figure").querySelector(".cells");
  const button = box.querySelector("button"), slider = box.querySelector("input"), output = box.querySelector("output");
  const left = 110, width = 600, row = 26, seconds_to_play = 12;
  const tiers = {d: ["device", 0], p: ["pinned RAM", 1], n: ["NVMe", 2]}, moves = {r: "np", w: "pn", u: "pd", e: "dp"};
  const chunks = Math.max(...rows.map(([, letters]) => letters.length), ...changes.map(([, , chunk]) => chunk + 1));
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  let now = [], next = 0, time = 0, frame = 0;
  const rect = (x, n, y, height, tier) =>
    `<rect x="${(left + width * x / chunks).toFixed(2)}" y="${y}" width="${(width * n / chunks).toFixed(2)}" height="${height}" fill="var(--c${tiers[tier][1]})"/>`;
  const draw = () => {
    const parts = [];
    now.forEach((letters, r) => {
      for (let begin = 0, end = 0; begin < chunks; begin = end) {
        while (end < chunks && letters[end] === letters[begin]) ++end;
        const letter = letters[begin], y = r * row + 2, n = end - begin;
        if (tiers[letter]) parts.push(rect(begin, n, y, row - 6, letter));
        if (moves[letter]) parts.push(rect(begin, n, y, (row - 6) / 2, moves[letter][1]), rect(begin, n, y + (row - 6) / 2, (row - 6) / 2, moves[letter][0]));
      }
    });
    cells.innerHTML = parts.join("");
  };
  const tell = () => {
    const moving = [];
    now.forEach((letters, r) => letters.forEach((letter, chunk) => {
      if (moves[letter]) moving.push(`${rows[r][0]} of chunk ${chunk} from ${tiers[moves[letter][0]][0]} to ${tiers[moves[letter][1]][0]}`);
    }));
    const more = moving.length > 3 ? ` and ${moving.length - 3} more` : "";
    const text = `${figure(time * 1e-6, "s")} of ${figure(us * 1e-6, "s")}: ${moving.length ? moving.slice(0, 3).join(", ") + more : "nothing moves"}`;
    output.textContent = text;
    slider.setAttribute("aria-valuetext", text);
  };
  const show = (to) => {
    if (to < time || !now.length) {
      now = rows.map(([, letters]) => [...letters.padEnd(chunks, "-")]);
      next = 0;
    }
    time = to;
    for (; next < changes.length && changes[next][0] <= time; ++next) now[changes[next][1]][changes[next][2]] = changes[next][3];
    slider.value = String(Math.round(1000 * time / us));
    draw();
    tell();
  };
  const name = () => { button.textContent = calm.matches ? "Next change" : frame ? "Pause" : "Play"; };
  const pause = () => {
    cancelAnimationFrame(frame);
    frame = 0;
    name();
  };
  const play = () => {
    const begin = time < us ? time : 0;
    let first = null;
    const go = (ms) => {
      first = first ?? ms;
      show(Math.min(us, begin + us * (ms - first) / (1000 * seconds_to_play)));
      if (time >= us) pause(); else frame = requestAnimationFrame(go);
    };
    frame = requestAnimationFrame(go);
    name();
  };
  button.addEventListener("click", () => {
    if (calm.matches) return show(next < changes.length ? changes[next][0] : 0);
    if (frame) pause(); else play();
  });
  slider.addEventListener("input", () => {
    pause();
    show(us * Number(slider.value) / 1000);
  });
  calm.addEventListener("change", pause);
  box.hidden = false;
  name();
  slider.setAttribute("aria-valuetext", "not played yet: the map shows where payloads live");
}

// The keys of the configuration that contain a word.
const filter = document.getElementById("filter");
if (filter) filter.addEventListener("input", () => {
  for (const row of document.querySelectorAll("#settings tbody tr")) row.hidden = !row.textContent.includes(filter.value);
});
