// The page of episodes (eval_tasks/viewer.py): finds what is asked for in the embedded data and draws it.
// Invariant: whatever a model or a task says is set as text, never read as markup.
"use strict";

const TURN = ["stage", "remaining", "look", "offer", "chosen", "before", "output", "verdict", "error", "canonical",
  "made", "table", "verified", "prompt", "promptTokens", "outputTokens", "differs", "logprobs",
  "action", "feedback", "score", "reference"]; // the last four of ScienceWorld's calls alone
const LONG = 3000; // characters of a text that are shown at first
const PAUSES = { oracle_prefix: "decision", choice: "decision", free_run: "call", matched_error: "call" };
const FILTERS = {
  all: "all",
  failed: "failed",
  rejected: "with a rejection",
  differing: "with another outcome beside",
};

let data; // as collected by viewer.py
const at = { cell: 0, run: 0, turn: 0, beside: -1, filter: "all" };

// -- what the data say

async function load() {
  const script = document.getElementById("data");
  if (!script.dataset.packed) return JSON.parse(script.textContent);
  const bytes = Uint8Array.from(atob(script.textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const text = (number) => data.texts[number];
const taskOf = (run) => {
  const [id, family, horizon, budget, goal, fingerprint] = data.tasks[run.task];
  return { id, family, horizon, budget, goal, fingerprint };
};
const turnOf = (run, index) => Object.fromEntries(TURN.map((name, place) => [name, run.turns[index]?.[place]]));
const unit = (cell) => PAUSES[cell.kind];
const isDecisions = (cell) => unit(cell) === "decision";
const succeeded = (run) => run.success ?? run.right === run.turns.length;
const simulated = (turn) => turn.action !== undefined; // a call of ScienceWorld: no tables, no recipes
const accepted = (turn) => (simulated(turn) ? text(turn.verdict) !== "rejected" : text(turn.verdict) === "accepted");
const tied = (cell, turn) => cell.kind === "choice" && turn.chosen < 0;

function mark(turn) {
  if (!accepted(turn)) return "✗";
  return turn.canonical ? "✓" : "≠";
}

/** Index of the first call that was rejected or, among decisions, that is not the reference action; or -1. */
function firstTrouble(cell, run) {
  return run.turns.findIndex((_, index) => {
    const turn = turnOf(run, index);
    return isDecisions(cell) ? !turn.canonical : !accepted(turn);
  });
}

function rejections(run) {
  return run.turns.filter((_, index) => !accepted(turnOf(run, index))).length;
}

function outcome(cell, run) {
  const { horizon } = taskOf(run);
  if (isDecisions(cell)) return `${run.right} of ${count(run.turns.length, "decision")} right`;
  const calls = `${count(run.turns.length, "call")}, ${none(rejections(run))} rejected`;
  if (run.score !== undefined) return `${run.success ? "success" : `failed: score ${run.score}`} in ${calls}`;
  return run.success ? `success in ${calls}` : `failed: ${run.verified} of ${horizon} operations verified in ${calls}`;
}

const none = (number) => (number ? number.toLocaleString("en") : "none");
const count = (number, word) => `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
const twin = (cell, run) => cell?.runs.find((other) => other.task === run.task);
const short = (name) => name.replace(/^[^/ ]+\//, "");

/** Runs of the cell that the filter lets through, as indexes. */
function listed() {
  const cell = data.cells[at.cell];
  const beside = data.cells[at.beside];
  return [...cell.runs.keys()].filter((index) => {
    const run = cell.runs[index];
    if (at.filter === "failed") return !succeeded(run);
    if (at.filter === "rejected") return rejections(run) > 0;
    if (at.filter === "differing") {
      const other = twin(beside, run);
      return other && (succeeded(other) !== succeeded(run) || other.right !== run.right);
    }
    return true;
  });
}

// -- the address

function readAddress() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const find = (id) => {
    const kind = asked.get("kind");
    const same = (cell) => cell.id === id && (!kind || cell.kind === kind);
    return data.cells.findIndex(same);
  };
  let told = "";
  at.cell = asked.has("cell") ? find(asked.get("cell")) : 0;
  if (at.cell < 0) {
    told = `This page has no cell ${asked.get("cell")}; the first one is shown.`;
    at.cell = 0;
  }
  const cell = data.cells[at.cell];
  const others = data.cells.filter((other) => other.id === cell.id && other.kind !== cell.kind);
  if (asked.has("cell") && !asked.get("kind") && others.length) {
    told ||= `Of this cell there is also: ${others.map((other) => other.evaluation).join("; ")}.`;
  }
  const task = asked.get("task");
  at.run = task ? cell.runs.findIndex((run) => taskOf(run).id === task) : 0;
  if (at.run < 0) {
    told ||= `This cell has no task ${task}; its first one is shown.`;
    at.run = 0;
  }
  at.beside = asked.has("beside") ? find(asked.get("beside")) : -1;
  at.filter = "all";
  const run = cell.runs[at.run];
  const wanted = Number(asked.get("turn") ?? NaN);
  const staged = run.turns.findIndex((turn) => turn[0] === wanted);
  at.turn = isDecisions(cell) && staged >= 0 ? staged : clamp(Math.trunc(wanted || 1) - 1, 0, run.turns.length - 1);
  notice(told);
}

function writeAddress() {
  const cell = data.cells[at.cell];
  const run = cell.runs[at.run];
  const parts = { cell: cell.id, kind: cell.kind, task: taskOf(run).id, turn: number(cell, run, at.turn) };
  if (at.beside >= 0) parts.beside = data.cells[at.beside].id;
  const words = Object.entries(parts).map(([key, value]) => `${key}=${encodeURIComponent(value).replaceAll("%2F", "/")}`);
  history.replaceState(null, "", `#${words.join("&")}`);
}

/** What a call is called: its place in the run or, among decisions, its stage. */
const number = (cell, run, index) => (isDecisions(cell) ? (run.turns[index]?.[0] ?? index + 1) : index + 1);
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

// -- drawing

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") node.addEventListener("click", value);
    else if (value !== false && value !== undefined && value !== null) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child || child === 0));
  return node;
}

function notice(words) {
  const node = document.getElementById("notice");
  node.textContent = words;
  node.hidden = !words;
}

/** Letters that can't be seen or that turn the text around, alone or repeated, stand as their code points. */
const ODD = /([\0-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufff9-\uffff]|\p{Cs})\1*/gu;

function plain(words) {
  const parts = [];
  let from = 0;
  for (const match of words.matchAll(ODD)) {
    parts.push(words.slice(from, match.index));
    const code = match[1].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    const times = match[0].length / match[1].length;
    parts.push(el("span", { class: "odd" }, `U+${code}${times > 1 ? ` × ${times.toLocaleString("en")}` : ""}`));
    from = match.index + match[0].length;
  }
  return [...parts, words.slice(from)].filter((part) => part !== "");
}

/** A text of the model, word for word; a long one in part. */
function verbatim(words, name) {
  const node = el("pre", { class: name, dir: "ltr" }, words ? plain(words.slice(0, LONG)) : el("i", {}, "nothing"));
  if (words.length <= LONG) return node;
  const all = el("button", { type: "button", class: "all", onclick: () => {
    node.replaceChildren(...plain(words));
    all.remove();
  } }, `Show all ${words.length.toLocaleString("en")} characters`);
  return el("div", {}, node, all);
}

function table(index) {
  const [columns, rows] = data.tables[index];
  return el("table", {},
    el("thead", {}, el("tr", {}, columns.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((value) => el("td", {}, String(value)))))));
}

function tile([name, contents, flags, inert]) {
  const [shown, cue, read, wrong] = [1, 2, 4, 8].map((bit) => flags & bit);
  const kind = shown ? "shown" : inert < 0 ? "hidden" : "text";
  return el("figure", { class: `tile ${kind}${read ? " read" : ""}` },
    el("figcaption", {},
      el("b", {}, text(name)),
      kind === "hidden" && el("span", { class: "tag" }, "hidden"),
      inert >= 0 && el("span", { class: "tag" }, "text"),
      cue ? el("span", { class: "tag cue" }, "★ cue") : "",
      read ? el("span", { class: "tag input" }, "read by the target") : "",
      wrong ? el("span", { class: "tag wrong" }, "✗ not the required one") : ""),
    inert < 0 ? table(contents) : el("p", { class: "mono" }, plain(text(inert))));
}

function option(index, turn) {
  const [words, printed, kind, reason, makes] = data.offers[turn.offer][index];
  const target = text(kind) === "target";
  const chosen = turn.chosen === index;
  return el("article", { class: `option${target ? " target" : ""}${chosen ? " chosen" : ""}` },
    el("h4", {},
      el("span", {}, `${index + 1}. ${text(words)}`),
      el("span", { class: "verdict" }, target ? "✓ target" : `✗ ${text(kind)}`),
      chosen && el("span", { class: "tag reply-mark" }, "▶ the reply")),
    el("p", {}, text(reason)),
    el("p", {}, el("code", {}, text(printed))),
    turn.logprobs && el("p", { class: "soft" }, `log-likelihood ${turn.logprobs[index]}`),
    makes >= 0 && !(chosen && accepted(turn)) && target &&
      el("details", {}, el("summary", {}, "what it would make"), table(makes)));
}

/** What became of a call of ScienceWorld. */
function simulatorSays(turn) {
  const special = {
    rejected: "Rejected by the parser.",
    ambiguous: "The simulator asks which one is meant.",
    cancelled: "That answers no question of the simulator's: the action is cancelled.",
  }[text(turn.verdict)];
  if (special) return special;
  if (!text(turn.reference)) return "Taken. Official test variations have no reference action.";
  return turn.canonical ? "The reference action." : `Not the reference action, which is: ${text(turn.reference)}`;
}

function verdict(cell, turn) {
  if (simulated(turn)) return simulatorSays(turn);
  if (tied(cell, turn)) return "No choice: no candidate is likelier than all others, which counts as wrong.";
  if (!accepted(turn)) return `Rejected, ${text(turn.error) || text(turn.verdict)}`;
  return turn.canonical ? "Accepted: the reference action." : "Accepted, but the reference action is another.";
}

function reply(cell, run, turn) {
  const { horizon } = taskOf(run);
  const good = accepted(turn) && turn.canonical;
  const tokens = turn.outputTokens === null ? "" : count(turn.outputTokens, "token");
  return el("section", {},
    el("h3", {}, cell.kind === "choice" ? "The likeliest reply" : "The reply, word for word"),
    verbatim(text(turn.output), `reply${good ? "" : " off"}`),
    el("p", { class: "under" }, [
      turn.chosen >= 0 ? `Recipe ${turn.chosen + 1}` : "None of the recipes on offer",
      tokens && `, in ${tokens}`, "."].join("")),
    el("h3", {}, "What became of it"),
    el("p", { class: `outcome${good ? " good" : ""}` }, el("b", {}, `${mark(turn)} `), plain(verdict(cell, turn))),
    turn.differs ? el("p", { class: "notice" }, `Today's environment judges it otherwise: ${text(turn.differs)}`) : "",
    turn.table >= 0 && el("figure", { class: "tile made" },
      el("figcaption", {}, el("b", {}, text(turn.made)), el("span", { class: "tag" }, "made")), table(turn.table)),
    !isDecisions(cell) && el("p", { class: "soft" }, `${turn.verified} of ${horizon} operations verified after it.`));
}

function action(cell, turn) {
  const good = accepted(turn) && turn.canonical;
  return el("section", {},
    el("h3", {}, "The reply, word for word"),
    verbatim(text(turn.output), `reply${good ? "" : " off"}`),
    turn.outputTokens !== null && el("p", { class: "under" }, `${count(turn.outputTokens, "token")}.`),
    el("h3", {}, isDecisions(cell) ? "The action in it, sent to no simulator" : "The action in it, as sent"),
    verbatim(text(turn.action), "reply"),
    el("h3", {}, "What became of it"),
    el("p", { class: `outcome${good ? " good" : ""}` }, el("b", {}, `${mark(turn)} `), plain(verdict(cell, turn))),
    !isDecisions(cell) && verbatim(text(turn.feedback), "reply"),
    el("p", { class: "soft" }, `Score ${turn.score} ${isDecisions(cell) ? "before" : "after"} it.`));
}

function facts(cell, run, turn, index) {
  const { horizon, budget } = taskOf(run);
  const tables = simulated(turn) ? {} : {
    ...(isDecisions(cell) ? {} : { "Next step": `${turn.stage} of ${horizon}` }),
    "Contents shown": shownWords(data.looks[turn.look]),
    ...(isDecisions(cell) || text(turn.before) ? {} : { "Previous error": "none" }),
  };
  const pairs = {
    [isDecisions(cell) ? "Stage" : "Call"]: isDecisions(cell)
      ? `${turn.stage} of ${horizon}` : `${index + 1} of ${run.turns.length}`,
    "Calls left": `${turn.remaining} of ${budget}`,
    ...tables,
    ...(turn.promptTokens === null ? {} : { Prompt: count(turn.promptTokens, "token") }),
  };
  return el("dl", { class: "facts" }, Object.entries(pairs).map(([name, value]) =>
    el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function shownWords([moved, ...artifacts]) {
  const shown = artifacts.filter(([, , flags]) => flags & 1).length;
  return `${shown} of ${artifacts.length}${moved ? ", in another order" : ""}`;
}

function previous(turn) {
  const error = text(turn.before);
  return error && el("p", { class: "before" }, el("b", {}, "Previous error"), plain(error));
}

function prompt(turn, open = false) {
  const spans = data.prompts[turn.prompt];
  const lines = [];
  for (let place = 0; place < spans.length; place += 2) {
    lines.push(...data.lines.slice(spans[place], spans[place] + spans[place + 1]));
  }
  const words = lines.join("\n");
  const node = el("details", { class: "prompt" }, el("summary", {}, `The prompt, ${count(words.length, "character")}, word for word`));
  node.addEventListener("toggle", () => {
    if (node.open && !node.querySelector("pre")) node.append(el("pre", { dir: "ltr" }, plain(words)));
  });
  node.open = open;
  return node;
}

function about(cell) {
  const said = Object.entries(cell.facts).filter(([, value]) => value !== "");
  return el("details", {}, el("summary", {}, "What was evaluated"),
    el("dl", { class: "about" }, said.flatMap(([name, value]) => [
      el("dt", {}, name.replaceAll("_", " ")), el("dd", {}, String(value))])));
}

function timeline(cell, run, side) {
  const trouble = firstTrouble(cell, run);
  const detour = run.turns.findIndex((_, index) => mark(turnOf(run, index)) === "≠");
  const what = isDecisions(cell) ? "wrong decision" : "rejection";
  return el("nav", { class: "timeline", "aria-label": `${isDecisions(cell) ? "Decisions" : "Calls"} of ${short(cell.model)}, ${cell.view}` },
    el("ol", {}, run.turns.map((_, index) => {
      const turn = turnOf(run, index);
      const name = number(cell, run, index);
      const good = accepted(turn) && turn.canonical;
      return el("li", {}, el("button", {
        type: "button",
        class: `chip${good ? " good" : ""}${accepted(turn) ? "" : " rejected"}`,
        "aria-current": index === at.turn ? "step" : false,
        "aria-label": `${capital(unit(cell))} ${name}: ${verdict(cell, turn)}`,
        title: verdict(cell, turn),
        "data-key": `chip-${side}-${index}`,
        onclick: () => move({ turn: index }),
      }, el("span", { class: "n" }, String(name)), el("b", {}, mark(turn))));
    })),
    el("button", {
      type: "button", class: "jump", disabled: trouble < 0, "data-key": `trouble-${side}`,
      onclick: () => move({ turn: trouble }),
    }, trouble < 0 ? `No ${what}` : `First ${what}: ${number(cell, run, trouble)}`),
    !isDecisions(cell) && detour >= 0 && el("button", {
      type: "button", class: "jump", "data-key": `detour-${side}`, onclick: () => move({ turn: detour }),
    }, `First other action: ${number(cell, run, detour)}`));
}

const capital = (word) => word[0].toUpperCase() + word.slice(1);

function column(cell, run, side) {
  const head = el("header", {},
    el("h2", {}, short(cell.model), " ", el("span", { class: "soft" }, `${cell.view} view`)),
    el("p", { class: `outcome${run && succeeded(run) ? " good" : ""}` },
      run ? [el("b", { class: "seal" }, succeeded(run) ? "✓" : "✗"), ` ${capital(outcome(cell, run))}`] : "was not asked this task"));
  if (!run) return el("section", { class: "run" }, head, about(cell));
  const injected = run.injected?.length ? el("p", { class: "under" },
    `Before its first call, ${count(run.injected.length - 1, "right call")} and one that is rejected were made for it.`) : "";
  const nodes = [head, timeline(cell, run, side), injected];
  if (at.turn >= run.turns.length) {
    nodes.push(el("p", { class: "over" }, `This run was over after call ${run.turns.length}.`));
  } else {
    const turn = turnOf(run, at.turn);
    nodes.push(facts(cell, run, turn, at.turn));
    if (simulated(turn)) nodes.push(el("div", { class: "turn" }, prompt(turn, true), action(cell, turn)));
    else nodes.push(
      previous(turn),
      el("div", { class: "turn" },
        el("section", {},
          el("h3", {}, "The state, as shown"),
          data.looks[turn.look].slice(1).some(([, , flags, inert]) => !(flags & 1) && inert < 0) &&
            el("p", { class: "under" }, "Dashed, greyed tables exist, but the prompt hides their contents."),
          el("div", { class: "state" }, data.looks[turn.look].slice(1).map(tile))),
        el("section", {},
          el("h3", {}, data.offers[turn.offer].length === 1 ? "The recipe on offer" : "The recipes on offer"),
          data.offers[turn.offer].map((_, index) => option(index, turn))),
        reply(cell, run, turn)),
      prompt(turn));
  }
  return el("section", { class: "run", "aria-label": `${short(cell.model)}, ${cell.view} view` }, nodes, about(cell));
}

function drawStage() {
  const cell = data.cells[at.cell];
  const run = cell.runs[at.run];
  const beside = data.cells[at.beside];
  const task = taskOf(run);
  const stage = document.getElementById("stage");
  const columns = [column(cell, run, 0)];
  if (beside) columns.push(column(beside, twin(beside, run), 1));
  const split = beside ? firstDifference(run, twin(beside, run)) : -1;
  stage.replaceChildren(
    el("div", { class: "task" },
      el("p", {}, el("b", { class: "mono" }, task.id), beside && el("button", {
        type: "button", class: "jump", disabled: split < 0, "data-key": "difference", onclick: () => move({ turn: split }),
      }, split < 0 ? "Same replies" : `First different reply: ${number(cell, run, split)}`)),
      task.goal && el("p", { class: "goal" }, el("b", {}, "Goal, as the prompt says it"), task.goal)),
    el("div", { class: `columns${beside ? " two" : ""}` }, columns));
}

function firstDifference(run, other) {
  if (!other) return -1;
  const output = TURN.indexOf("output");
  const most = Math.max(run.turns.length, other.turns.length);
  return [...Array(most).keys()].findIndex((index) => run.turns[index]?.[output] !== other.turns[index]?.[output]);
}

function drawStrip() {
  const cell = data.cells[at.cell];
  const beside = data.cells[at.beside];
  document.getElementById("strip").replaceChildren(...listed().map((index) => {
    const run = cell.runs[index];
    const other = twin(beside, run);
    const seals = [run, ...(other ? [other] : [])].map((one) =>
      el("span", { class: succeeded(one) ? "good" : "" }, succeeded(one) ? "✓" : "✗"));
    // The list of tasks says the same to those who can't see or point.
    return el("button", {
      type: "button", tabindex: "-1", "aria-hidden": "true", title: `${taskOf(run).id}: ${outcome(cell, run)}`,
      class: index === at.run ? "here" : false, onclick: () => move({ run: index, turn: 0 }),
    }, seals);
  }));
}

// -- controls

const pick = (id) => document.getElementById(id);

function fill(id, choices, chosen) {
  pick(id).replaceChildren(...choices.map(([value, words]) => {
    const node = el("option", { value }, words);
    node.selected = value === String(chosen);
    return node;
  }));
}

function drawControls() {
  const cell = data.cells[at.cell];
  const peers = data.cells.filter((other) => other.evaluation === cell.evaluation);
  const unique = (name, cells) => [...new Set(cells.map((other) => other[name]))];
  const score = (found) => (found ? `${found.k}/${found.n}` : "–");
  fill("evaluation", unique("evaluation", data.cells).map((name) => [name, name]), cell.evaluation);
  fill("model", unique("model", peers).map((name) => [
    name, `${short(name)} · ${score(peers.find((other) => other.model === name && other.view === cell.view))}`]), cell.model);
  fill("view", unique("view", peers).map((name) => [
    name, `${name} · ${score(peers.find((other) => other.view === name && other.model === cell.model))}`]), cell.view);
  fill("beside", [["-1", "nothing"], ...[...data.cells.entries()]
    .filter(([index, other]) => index !== at.cell && other.kind === cell.kind && twin(other, cell.runs[at.run]))
    .map(([index, other]) => [String(index), `${short(other.model)}, ${other.view} · ${score(other)}`])], at.beside);
  fill("filter", Object.entries(FILTERS).filter(([name]) => name !== "differing" || at.beside >= 0), at.filter);
  const indexes = listed();
  fill("task", indexes.map((index) => {
    const run = cell.runs[index];
    return [String(index), `${succeeded(run) ? "✓" : "✗"} ${taskOf(run).id} · ${outcome(cell, run)}`];
  }), at.run);
  const place = indexes.indexOf(at.run);
  pick("back").disabled = place <= 0;
  pick("on").disabled = place >= indexes.length - 1;
}

/** Goes to another cell that is as near as can be to the present one, with `name` (model, view, ...) changed. */
function change(name, value) {
  const now = data.cells[at.cell];
  const nearness = (cell) => 2 * (cell.model === now.model) + (cell.view === now.view);
  const found = [...data.cells.keys()]
    .filter((index) => data.cells[index][name] === value && (name === "evaluation" || data.cells[index].evaluation === now.evaluation))
    .sort((one, other) => nearness(data.cells[other]) - nearness(data.cells[one]) || one - other)[0];
  const same = data.cells[found].runs.findIndex((run) => run.task === now.runs[at.run].task);
  const beside = data.cells[at.beside]?.kind === data.cells[found].kind && at.beside !== found ? at.beside : -1;
  move({ cell: found, run: Math.max(same, 0), turn: same < 0 || name === "evaluation" ? 0 : at.turn, beside });
}

function step(by) {
  const cell = data.cells[at.cell];
  const most = Math.max(cell.runs[at.run].turns.length, twin(data.cells[at.beside], cell.runs[at.run])?.turns.length ?? 0);
  move({ turn: clamp(at.turn + by, 0, most - 1) });
}

function stepTask(by) {
  const indexes = listed();
  const next = indexes[indexes.indexOf(at.run) + by];
  if (next !== undefined) move({ run: next, turn: 0 });
}

/** Changes what is looked at, and draws it. */
function move(changes) {
  const before = { ...at };
  Object.assign(at, changes);
  if (at.filter === "differing" && at.beside < 0) at.filter = "all";
  const indexes = listed();
  if (!indexes.length) {
    notice(`No task is ${FILTERS[at.filter]}; all are shown.`);
    at.filter = "all";
  } else {
    if (!("run" in changes && "turn" in changes) || changes.filter) notice("");
    if (!indexes.includes(at.run)) Object.assign(at, { run: indexes[0], turn: 0 });
  }
  const cell = data.cells[at.cell];
  const run = cell.runs[at.run];
  const other = twin(data.cells[at.beside], run);
  at.turn = clamp(at.turn, 0, Math.max(run.turns.length, other?.turns.length ?? 0) - 1);
  draw(Object.keys(at).every((key) => key === "turn" || before[key] === at[key]) && !("filter" in changes));
  writeAddress();
  const turn = run.turns[at.turn] && turnOf(run, at.turn);
  pick("said").textContent = `${taskOf(run).id}, ${unit(cell)} ${number(cell, run, at.turn)}: ${turn ? verdict(cell, turn) : "over"}`;
}

function draw(sameRun = false) {
  const focused = document.activeElement?.dataset?.key;
  if (!sameRun) {
    drawControls();
    drawStrip();
  }
  drawStage();
  document.title = `${taskOf(data.cells[at.cell].runs[at.run]).id} · Episodes`;
  if (focused) document.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

function listen() {
  for (const name of ["evaluation", "model", "view"]) pick(name).addEventListener("change", () => change(name, pick(name).value));
  pick("beside").addEventListener("change", () => move({ beside: Number(pick("beside").value) }));
  pick("filter").addEventListener("change", () => move({ filter: pick("filter").value }));
  pick("task").addEventListener("change", () => move({ run: Number(pick("task").value), turn: 0 }));
  pick("back").addEventListener("click", () => stepTask(-1));
  pick("on").addEventListener("click", () => stepTask(1));
  pick("pick").addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || event.altKey || event.ctrlKey || event.metaKey || event.target.closest("select, pre, .tile")) return;
    event.preventDefault();
    if (event.shiftKey) stepTask(by);
    else step(by);
  });
  window.addEventListener("hashchange", () => {
    readAddress();
    draw();
  });
}

load().then((found) => {
  data = found;
  if (!data.cells.length) return notice("There are no episodes on this page.");
  readAddress();
  listen();
  for (const id of ["pick", "hints"]) pick(id).hidden = false;
  draw();
  document.body.dataset.ready = "yes";
}, (error) => notice(`The page's data can't be read by this browser: ${error.message}`));
