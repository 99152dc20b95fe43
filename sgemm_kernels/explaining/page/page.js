"use strict";

const RAMP = ["#2f7de1", "#7c6fe0", "#b75fc4", "#d65a86", "#d9633a", "#b07d14"];
const WARP = 32, WORD = 4, SECTOR = 32, LINE = 128;

// ---------------------------------------------------------------- elements and numbers

function h(name, attributes, ...children) {
  const made = document.createElement(name);
  fill(made, attributes, children);
  return made;
}

function svg(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  fill(made, attributes, children);
  return made;
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
}

const whole = (number) => Math.round(number).toLocaleString("en-US");
const digits = (number) => Number(number.toPrecision(3)).toLocaleString("en-US");
const percent = (share) => (share > 0 && share < 0.01 ? "< 1 %" : `${Math.round(100 * share)} %`);
const gainOf = (factor) => `× ${factor.toFixed(2)}`;
const mark = (measured) => (measured.unmet ? "*" : "");
const marked = (...measured) => measured.some((each) => each && each.unmet) &&
  h("p", { class: "note" }, "*: sampling ended before its criteria were met");

function large(number) {
  const steps = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const [by, unit] = steps.find(([by]) => number >= by) || [1, ""];
  return `${digits(number / by)}${unit && ` ${unit}`}`;
}

function seconds(time) {
  return time >= 1e-3 ? `${digits(1e3 * time)} ms` : `${digits(1e6 * time)} µs`;
}

function colourOf(lane) {
  const place = (lane / (WARP - 1)) * (RAMP.length - 1);
  const below = Math.min(Math.floor(place), RAMP.length - 2);
  const channels = (text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
  const [one, other] = [channels(RAMP[below]), channels(RAMP[below + 1])];
  return one.map((value, i) => Math.round(value + (other[i] - value) * (place - below)));
}

const css = (channels) => `rgb(${channels.join()})`;
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// ---------------------------------------------------------------- the thread that is shown

const shown = { thread: 0, watchers: new Set() };

function show(thread) {
  shown.thread = Math.min(Math.max(thread, 0), WARP - 1);
  for (const watch of shown.watchers) watch(shown.thread);
}

function watch(draw) {
  shown.watchers.add(draw);
  draw(shown.thread);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => show(shown.thread));

function stepper() {
  const range = h("input", {
    type: "range", min: 0, max: WARP - 1, "aria-label": "thread of the warp",
    oninput: () => show(Number(range.value)),
  });
  const output = h("output", {});
  watch((thread) => {
    range.value = thread;
    output.textContent = `thread ${thread}`;
  });
  const step = (by, text, label) =>
    h("button", { type: "button", "aria-label": label, onclick: () => show(shown.thread + by) }, text);
  return h("div", { class: "stepper" }, output, step(-1, "◂", "previous thread"), range,
    step(1, "▸", "next thread"));
}

// ---------------------------------------------------------------- a kernel's bottleneck

function bar(share, kind) {
  const word = kind === "measured" ? "measured" : "predicted";
  if (share == null) return h("div", { class: "bar note" }, "not measured");
  return h("div", { class: `bar ${kind}` }, h("span", {}, `${word} ${percent(share)}`),
    h("b", {}, h("i", { style: `width: ${Math.min(100, 100 * share)}%` })));
}

function limits(kernel) {
  const { units, predicted_s, measured_s, limiting } = kernel.limits;
  const { clock_mhz, power_w } = kernel.alone;
  const longest = Math.max(...units.map((unit) => unit.seconds));
  const several = predicted_s > 1.001 * longest; // kernels, one after the other
  const most = Math.max(...units.map((unit) => unit.measured_share ?? 0));
  const counted = units.some((unit) => unit.measured_share != null);
  const unseen = counted && units.some((unit) => unit.measured_share == null);
  const rows = units.map((unit) =>
    h("tr", { class: unit.unit === limiting && "limiting" },
      h("td", {}, unit.unit, unit.unit === limiting && h("div", { class: "note" }, "predicted bottleneck"),
        unit.measured_share === most && h("div", { class: "note" }, "measured: the busiest")),
      h("td", { class: "number", "data-of": "work" }, `${large(unit.asked)} ${unit.of}`),
      h("td", { class: "number", "data-of": "peak rate" }, unit.rate),
      h("td", { class: "number", "data-of": "time at peak rate" }, seconds(unit.seconds)),
      h("td", { class: "bars" }, bar(unit.share, "predicted"), bar(unit.measured_share, "measured"))));
  const at = `${kernel.size} × ${kernel.size} × ${kernel.size}`;
  return section("Bottleneck",
    h("p", {}, `Without any waiting, a product of ${at} takes as long as ${several ? "the busiest unit of each of its kernels" : "its busiest unit"}: `,
      h("b", {}, several ? `${seconds(predicted_s)}, including ${seconds(longest)} for the longest kernel, limited by the ${limiting}. `
        : `${seconds(predicted_s)}, limited by the ${limiting}. `),
      measured_s == null ? "It was not measured." :
        `Measured: ${seconds(measured_s)}${mark(kernel.limits)}, ${(measured_s / predicted_s).toFixed(2)} times the prediction.`),
    h("table", {},
      h("thead", {}, h("tr", {}, h("th", {}, "unit"), h("th", { class: "number" }, "work"),
        h("th", { class: "number" }, "peak rate"), h("th", { class: "number" }, "time at peak rate"),
        h("th", {}, "utilization"))),
      h("tbody", {}, rows)),
    h("p", { class: "note" },
      several && "Work and predictions are for the longest kernel, measurements for all kernels. For the tensor pipe, measured is the share of clock cycles in which it was busy. ",
      "Predicted: the work in the source, counted line by line, divided by the unit's peak rate at ",
      `${whole(kernel.clock_mhz)} MHz (for the L2 cache, an A100's rate), relative to the busiest unit. Measured: `,
      counted ? `the profiler's counts on ${kernel.device}, divided by the unit's peak rate at this clock and the measured time${unseen ? "; the profiler does not count tensor cores' reads of shared memory" : ""}.`
        : measured_s == null ? `no measurement on ${kernel.device}, the GPU of these peak rates.`
          : `no profiler counts for this kernel; its time was measured on ${kernel.device}.`,
      clock_mhz != null && power_w != null && ` Run back to back for seconds, it ran at ${whole(clock_mhz)} MHz and drew ${whole(power_w)} W${
        clock_mhz < 0.95 * kernel.clock_mhz ? `: it hits the power limit. At that clock, the predicted time is ${(kernel.clock_mhz / clock_mhz).toFixed(2)} times as long` : ""}.`),
    marked(kernel.limits));
}

function gains(kernel) {
  const { gain, before } = kernel;
  if (!gain) return null;
  const box = (sign, factor, text, kind) => factor != null &&
    h("div", { class: kind }, h("strong", {}, `${sign} ${factor.toFixed(2)}${kind === "measured" ? mark(gain) : ""}`), text);
  const waiting = gain.compiled == null ? "compiled code and waiting" : `${gain.waiting > 1 ? "less" : "more"} waiting`;
  return section(`Speedup over ${before}`,
    h("div", { class: "factors" },
      box("", gain.predicted, "predicted speedup as written, from the busiest units", "predicted"),
      box("×", gain.compiled, gain.compiled == null ? "" : `compiled code versus source: ${(gain.predicted * gain.compiled).toFixed(2)} predicted as compiled`),
      box("×", gain.waiting, waiting),
      box("=", gain.measured, "measured speedup", "measured")),
    h("p", {}, gain.cause), marked(gain));
}

function waits(kernel) {
  const { occupancy, stalls } = kernel;
  const rows = occupancy.rooms.map((room) =>
    h("tr", { class: room.blocks === occupancy.blocks && "limiting" }, h("td", {}, room.resource),
      h("td", { class: "number", "data-of": "per block" }, whole(room.each)),
      h("td", { class: "number", "data-of": "available" }, whole(room.there)),
      h("td", { class: "number", "data-of": "blocks that fit" }, room.blocks)));
  const measured = occupancy.measured_warps;
  const found = Object.entries(stalls).map(([what, warps]) => [h("dt", {}, what), h("dd", {}, warps.toFixed(2))]);
  const between = occupancy.registers_between;
  return section("Occupancy and stalls",
    h("p", {}, `At most ${occupancy.blocks} ${occupancy.blocks === 1 ? "block fits" : "blocks fit"} on a multiprocessor: ${occupancy.warps} of ${occupancy.warps_there} warps. `,
      measured == null ? "The actual number was not measured." : `Measured: ${digits(measured)} warps.`),
    h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "resource"), ...["per block", "available", "blocks that fit"].map(
      (text) => h("th", { class: "number" }, text)))), h("tbody", {}, rows)),
    h("p", { class: "note" }, `Registers: at least ${occupancy.registers_a_thread} per thread, for its results and the values of one step of k. `,
      between ? `Fewer warps were measured than fit. That number of blocks fits if the compiler uses ${between[0]} to ${between[1]} registers per thread.`
        : "Only the compiled kernel shows how many the compiler uses."),
    found.length > 0 && [h("p", {}, "Waiting warps per issued instruction, for the stalls that the profiler counted:"), h("dl", {}, found)]);
}

// ---------------------------------------------------------------- tiles

function cells(runs) {
  return runs.flatMap(([count, value]) => Array(count).fill(value));
}

function painted(rows, cols, paint) {
  const canvas = h("canvas", { width: cols, height: rows, role: "img" });
  return [canvas, () => {
    const context = canvas.getContext("2d");
    const image = context.createImageData(cols, rows);
    for (let i = 0; i < rows * cols; ++i) image.data.set([...paint(i), 255], 4 * i);
    context.putImageData(image, 0, 0);
  }];
}

const places = (word, numbers) => `${word}${new Set(numbers).size === 1 ? "" : "s"} ${ranges(numbers)}`;

function ranges(numbers) {
  const sorted = [...new Set(numbers)].sort((a, b) => a - b), found = [];
  for (const number of sorted) {
    const last = found.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else found.push([number, number]);
  }
  return found.map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`)).join(", ");
}

function tiles(kernel) {
  const { tile, size } = kernel, { rows, cols } = tile;
  const down = Math.ceil(size / rows), across = Math.ceil(size / cols);
  const warps = cells(tile.warps), lanes = cells(tile.lanes);
  const number = Math.ceil(tile.threads / WARP);
  const dark = () => matchMedia("(prefers-color-scheme: dark)").matches;
  const parse = (name) => [1, 3, 5].map((at) => parseInt(ink(name).slice(at, at + 2), 16));

  const pattern = [];
  for (let i = 1; i < down; ++i) pattern.push(`M0 ${(i * rows)}H${size}`);
  for (let j = 1; j < across; ++j) pattern.push(`M${j * cols} 0V${size}`);
  const grid = svg("svg", { viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": `C in ${down} by ${across} blocks` },
    svg("path", { d: pattern.join(""), stroke: "var(--faint)", "stroke-width": size / 700, fill: "none" }),
    svg("rect", { x: 0, y: 0, width: cols, height: rows, fill: RAMP[3], stroke: "var(--ink)", "stroke-width": size / 250 }));

  const [block, drawBlock] = painted(rows, cols, (i) => {
    if (warps[i] < 0) return parse("paper");
    if (warps[i] === tile.warp) return colourOf(lanes[i]);
    const grey = 40 + 24 * (warps[i] % 3);
    return dark() ? [grey, grey, grey + 8] : [255 - grey, 255 - grey, 263 - grey];
  });

  const own = lanes.flatMap((lane, i) => (lane >= 0 ? [i] : []));
  const of = (i) => [Math.floor(i / cols), i % cols];
  const extent = (axis) => [Math.min, Math.max].map((end) => end(...own.map((i) => of(i)[axis])));
  let [[top, bottom], [left, right]] = [extent(0), extent(1)];
  if (Math.max(bottom - top, right - left) > 4 * Math.min(bottom - top + 1, right - left + 1)) {
    [top, bottom, left, right] = [0, rows - 1, 0, cols - 1]; // show a narrow strip within its block
  }
  const [height, width] = [bottom - top + 1, right - left + 1];
  const [warp, drawWarp] = painted(height, width, (i) => {
    const lane = lanes[(top + Math.floor(i / width)) * cols + left + (i % width)];
    if (lane < 0) return parse("panel");
    if (lane === shown.thread) return parse("ink");
    return colourOf(lane).map((value, c) => Math.round(0.55 * value + 0.45 * parse("paper")[c]));
  });

  const whose = h("figcaption", { "aria-live": "polite" });
  watch((thread) => {
    drawBlock();
    drawWarp();
    const results = own.filter((i) => lanes[i] === thread);
    whose.textContent = `Warp ${tile.warp}'s ${whole(own.length)} results. Its thread ${thread}, in ${dark() ? "white" : "black"}, owns ${results.length}: ` +
      `${places("row", results.map((i) => of(i)[0]))}; ${places("column", results.map((i) => of(i)[1]))} of the block.`;
  });
  for (const [canvas, text] of [[block, "one block, one warp coloured by thread"], [warp, "one warp, one thread's results marked"]]) {
    canvas.setAttribute("aria-label", text);
  }
  return section("The tile",
    h("div", { class: "tiles" },
      h("figure", {}, grid, h("figcaption", {}, `C, ${size} × ${size}, in ${down} × ${across} blocks; the first is marked. The GPU's ${kernel.multiprocessors} multiprocessors share ${whole(down * across)} blocks.`)),
      h("figure", {}, block, h("figcaption", {}, `One block of ${rows} × ${cols} results and ${tile.threads} threads (${number} ${number === 1 ? "warp" : "warps"}). Warp ${tile.warp} is coloured by thread, 0 to 31 `, h("span", { class: "key ramp" }), `. The block steps through K by ${tile.block[2]}.`)),
      h("figure", {}, warp, whose)),
    stepper());
}

// ---------------------------------------------------------------- addresses that a warp accesses

function addressMap(access, size) {
  const words = new Map(); // number of the word, and the threads that touch it
  access.first_request.forEach((offset, thread) => {
    if (offset == null) return;
    for (let byte = 0; byte < access.bytes_per_thread; byte += WORD) {
      const word = Math.floor((offset + byte) / WORD);
      words.set(word, [...(words.get(word) || []), thread]);
    }
  });
  const perLine = LINE / WORD, perSector = SECTOR / WORD;
  const lines = [...new Set([...words.keys()].map((word) => Math.floor(word / perLine)))].sort((a, b) => a - b);
  const isGlobal = access.space === "global", cell = 16, gap = isGlobal ? 3 : 1;
  const drawing = svg("svg", {
    viewBox: `-2 -2 ${perLine * cell + 4} ${lines.length * (cell + gap) + 4}`, role: "img",
    "aria-label": `${access.kind} ${access.operand}: ${access.verdict}`,
  });
  const squares = [];
  lines.forEach((line, row) => {
    for (let column = 0; column < perLine; ++column) {
      const word = line * perLine + column, threads = words.get(word);
      const sector = Math.floor(word / perSector);
      const moved = isGlobal && [...Array(perSector).keys()].some((i) => words.has(sector * perSector + i));
      const square = svg("rect", {
        x: column * cell + 1, y: row * (cell + gap) + 1, width: cell - 2, height: cell - 2,
        fill: threads ? css(colourOf(threads[0])) : moved ? "var(--moved)" : "var(--panel)",
        onclick: threads && (() => show(threads[0])),
      }, threads && svg("title", {}, `thread ${ranges(threads)}`));
      if (threads) squares.push([square, threads]);
      drawing.append(square);
      if (moved && word % perSector === 0) {
        drawing.append(svg("rect", {
          x: column * cell, y: row * (cell + gap), width: perSector * cell, height: cell,
          fill: "none", stroke: "var(--ink)", "stroke-width": 1.2,
        }));
      }
    }
  });
  const said = h("p", { class: "note", "aria-live": "polite" });
  watch((thread) => {
    for (const [square, threads] of squares) {
      const mine = threads.includes(thread);
      square.setAttribute("stroke", mine ? "var(--ink)" : "none");
      square.setAttribute("stroke-width", mine ? 3 : 0);
    }
    said.textContent = spoken(access, thread, size);
  });
  return h("section", {}, h("h3", {}, `${access.kind} ${access.operand}: `,
    h("span", { class: wasteful(access) && "bad" }, access.verdict)), drawing, said);
}

function spoken(access, thread, size) {
  const offset = access.first_request[thread];
  if (offset == null) return `Thread ${thread} does not take part.`;
  const bytes = `${access.bytes_per_thread} bytes`;
  if (access.space === "shared") {
    const first = Math.floor(offset / WORD) % WARP, last = first + Math.max(access.bytes_per_thread / WORD, 1) - 1;
    return `Thread ${thread}: ${bytes} at byte ${whole(offset)} of ${access.operand}, ${first === last ? `bank ${first}` : `banks ${first}–${last}`}. Each row shows the 32 banks.`;
  }
  const row = Math.floor(offset / access.row_bytes), column = (offset % access.row_bytes) / WORD;
  const place = access.operand === "scratch" ? `at byte ${whole(offset)}` : `row ${row}, column ${column}`;
  return `Thread ${thread}: ${bytes} of ${access.operand}, ${place}. Each row shows a 128-byte line of memory; frames mark sectors.`;
}

const taken = (access) => access.sectors ?? access.wavefronts;
const wasteful = (access) => taken(access) > access.least;

// ---------------------------------------------------------------- the source, line by line

/* The lines of a text as elements, comments in grey. */
function codes(text) {
  let within = false; // a comment of several lines
  return text.split("\n").map((line) => {
    const parts = line.split(/(\/\/.*|\/\*|\*\/)/).filter(Boolean).map((part) => {
      const comment = within || part.startsWith("//") || part === "/*";
      if (part === "/*") within = true;
      if (part === "*/") within = false;
      return comment ? h("span", { class: "comment" }, part) : part;
    });
    return h("code", {}, parts);
  });
}

const COLUMNS = ["runs per warp", "requests", "bytes", "sectors", "bank conflicts"];

function figures(accesses) {
  const sum = (list, value) => list.reduce((total, access) => total + value(access), 0);
  const inMemory = accesses.filter((access) => access.space === "global");
  const shared = accesses.filter((access) => access.space === "shared");
  const sectors = sum(inMemory, (access) => access.sectors), fewest = sum(inMemory, (access) => access.least);
  const conflicts = sum(shared, (access) => access.wavefronts - access.least);
  const runs = Math.max(...accesses.map((access) => access.runs));
  const texts = [
    [runs < 1 ? digits(runs) : whole(runs)],
    [large(sum(accesses, (access) => access.requests))],
    [large(sum(accesses, (access) => access.lanes * access.bytes_per_thread))],
    inMemory.length ? [`${large(sectors)}, ${sectors === fewest ? "minimum" : `${digits(sectors / fewest)} × minimum`}`, sectors > fewest] : [""],
    shared.length ? [large(conflicts), conflicts > 0] : [""],
  ];
  return h("span", { class: "figures" }, texts.map(([text, bad], i) =>
    h("span", { class: `number ${bad ? "bad" : ""}`, "data-of": COLUMNS[i] }, text)));
}

function lineOf(kernel, number, code, accesses) {
  const parts = [h("span", { class: "no" }, number), code];
  if (accesses.length === 0) return h("div", { class: "row code" }, parts);
  const share = accesses.reduce((total, access) => total + access.share, 0);
  const details = h("details", {
    style: `--share: ${(100 * share).toFixed(1)}%`,
    ontoggle: () => {
      if (!details.open || details.children.length > 1) return;
      details.append(h("div", { class: "detail" },
        h("p", { class: "note" }, `${percent(share)} of all L1 and shared memory cycles. The map shows the first request of the first warp, which its 32 threads issue together.`),
        stepper(), h("div", { class: "maps" }, accesses.map((access) => addressMap(access, kernel.size)))));
    },
  }, h("summary", { class: "row code" }, parts, figures(accesses)));
  return details;
}

const AROUND = 12; // lines to show around an access in an included file

function rowsOf(kernel, file, own) {
  const accesses = kernel.accesses.filter((access) => access.file === file.name);
  const rows = [];
  let leftOut = 0;
  const tell = () => leftOut && rows.push(h("div", { class: "left-out code" }, `${leftOut} lines without accesses`));
  codes(file.text.trimEnd()).forEach((code, i) => {
    if (!own && !accesses.some((access) => Math.abs(access.line - i - 1) <= AROUND)) return ++leftOut;
    tell();
    leftOut = 0;
    return rows.push(lineOf(kernel, i + 1, code, accesses.filter((access) => access.line === i + 1)));
  });
  tell();
  return rows;
}

function source(kernel) {
  const files = kernel.files.map((file, place) => {
    const rows = rowsOf(kernel, file, place === 0);
    const heads = h("div", { class: "row code heads", "aria-hidden": "true" }, h("span", {}), h("span", {}, file.name), h("span", { class: "figures" }, COLUMNS.map((text) => h("span", { class: "number" }, text))));
    return [h("p", { class: "note" }, place === 0 ? h("b", {}, file.name) : ["Lines from ", h("b", {}, file.name)]), h("div", { class: "source" }, heads, rows)];
  });
  const whole = section("The source, line by line",
    h("p", {}, "Coloured lines access memory: the longer the colour, the larger their share of L1 and shared memory cycles. Select one with the mouse, or with Tab, arrow keys and Enter, to see which addresses a warp accesses. Counts are for one block."),
    h("p", { class: "note" }, h("span", { class: "key ramp" }), " word that a thread accesses, by thread 0 to 31 ",
      h("span", { class: "key", style: "background: var(--moved)" }), " transferred but not used"),
    files);
  const summaries = [...whole.querySelectorAll("summary")];
  whole.addEventListener("keydown", (event) => {
    const at = summaries.indexOf(document.activeElement);
    const next = at + { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (at >= 0 && summaries[next]) {
      event.preventDefault();
      summaries[next].focus();
    }
  });
  const costs = (details) => parseFloat(details.style.getPropertyValue("--share"));
  const lines = [...whole.querySelectorAll("details")];
  if (lines.length) lines.reduce((most, other) => (costs(other) > costs(most) ? other : most)).open = true;
  return whole;
}

// ---------------------------------------------------------------- changes from the rung before

function changes(kernel) {
  if (!kernel.before) return null;
  const rows = kernel.difference.map(([kind, oldNumber, old, newNumber, text]) => {
    if (kind === "left out") return h("div", { class: "left-out" }, old);
    const side = (number, line, colour, other) => [
      h("span", { class: `no ${other} ${number && colour}` }, number || ""),
      h("span", { class: `code ${other} ${number && colour}` }, line)];
    const same = kind === "same";
    return [side(oldNumber, old, same ? "" : "gone", same || !oldNumber ? "other" : ""),
      side(newNumber, text, same ? "" : "new", newNumber ? "" : "other")];
  });
  const title = (text, colour) => [h("span", { class: `title no ${colour} other` }), h("span", { class: `title code ${colour}` }, text)];
  return section(`Changes from ${kernel.before}`,
    h("div", { class: "diff code" }, title(kernel.before, "gone"), title(kernel.name, "new"), rows));
}

// ---------------------------------------------------------------- pages

function section(title, ...children) {
  return h("section", {}, h("h2", {}, title), children);
}

function links(names, current) {
  const link = (file, text, here) => h("a", { href: file, "aria-current": here && "page" }, text);
  return h("nav", { "aria-label": "the ladder" }, link("index.html", "The ladder", current === ""),
    names.map((name) => link(`${name}.html`, name, name === current)));
}

function article(kernel, names) {
  const head = Object.entries(kernel.head).map(([name, text]) => [h("dt", {}, name), h("dd", {}, text)]);
  return h("article", {},
    names && links(names, kernel.name),
    h("h1", {}, kernel.name), h("p", { class: "lead" }, kernel.summary),
    head.length > 0 && h("dl", {}, head),
    limits(kernel), gains(kernel), waits(kernel), tiles(kernel), source(kernel), changes(kernel),
    h("p", { class: "note" }, `Times: ${kernel.device}, ${kernel.date}, csrc ${kernel.csrc_hash}. `,
      kernel.counted && `Profiler: ${kernel.counted.date}, csrc ${kernel.counted.csrc}. `, `Predictions: this build, csrc ${kernel.build}.`));
}

function ladder(data) {
  const most = Math.max(...data.rungs.flatMap((rung) => [rung.teraflops || 0, rung.predicted_teraflops]));
  const tera = (kind, value, sign) => value == null ? h("div", { class: "bar note" }, "not measured") :
    h("div", { class: `bar ${kind}` }, h("span", {}, `${kind === "measured" ? "measured" : "predicted"} ${digits(value)}${sign}`),
      h("b", {}, h("i", { style: `width: ${(100 * value) / most}%` })));
  const rows = data.rungs.map((rung) => h("tr", {},
    h("td", {}, h("a", { href: `${rung.name}.html` }, h("b", {}, rung.name)), h("div", {}, rung.summary)),
    h("td", { class: "bars", "data-of": "TFLOP/s" }, tera("predicted", rung.predicted_teraflops, ""), tera("measured", rung.teraflops, mark(rung))),
    h("td", { "data-of": "predicted bottleneck" }, rung.unit),
    h("td", { class: "number", "data-of": "gain, as written" }, rung.gain ? gainOf(rung.gain.predicted) : ""),
    h("td", { class: "number", "data-of": "gain, measured" }, rung.gain && rung.gain.measured != null ? gainOf(rung.gain.measured) + mark(rung.gain) : "")));
  const devices = [...new Set(data.rungs.map((rung) => rung.device))].join(" and ");
  return h("article", {}, links(data.rungs.map((rung) => rung.name), ""),
    h("h1", {}, "The ladder, rung by rung"),
    h("p", { class: "lead" }, "Each rung works on the bottleneck of the one before; at this size, some gain nothing. A rung's page shows the memory accesses of each source line, the busiest unit, and the reason for the speedup."),
    h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "rung"), h("th", {}, "TFLOP/s"), h("th", {}, "predicted bottleneck"),
      h("th", { class: "number" }, "gain, as written"), h("th", { class: "number" }, "gain, measured"))), h("tbody", {}, rows)),
    h("p", { class: "note" }, `M = N = K = ${data.size}. Predicted as written: the busiest unit does the work in the source without waiting. Measured: kernel time on ${devices}; faster than predicted if the compiled kernel does less work than its source. Gains are relative to the rung before.`),
    marked(...data.rungs.flatMap((rung) => [rung, rung.gain])));
}

const data = JSON.parse(document.getElementById("data").textContent);
document.getElementById("main").replaceChildren(
  ...(data.rungs ? [ladder(data)] : data.kernels.map((kernel) => article(kernel, data.ladder))));
