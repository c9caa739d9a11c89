// Reads lines of [prefix, piece, suffix] as JSON. Prints how many were read, and the first one of which 32,000
// characters cost the Markdown of the console more than eight times the CPU of 8,000: four times is what they should,
// and sixteen is the square. Below 2 ms a clock says little. The elements that it makes are empty here.

import { readFileSync } from "node:fs";

globalThis.document = { createElement: () => ({ setAttribute() {}, append() {} }) };
const { markdown } = await import(process.argv[2]);

function cost(text) {
  const before = process.cpuUsage();
  markdown(text);
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}

let read = 0;
for (const line of readFileSync(0, "utf8").trim().split("\n")) {
  const [prefix, piece, suffix] = JSON.parse(line);
  const long = (characters) => prefix + piece.repeat(characters / piece.length) + suffix;
  const [short, more] = [long(8_000), long(32_000)];
  read += 1;
  let costs = [];
  const isMore = () => (costs = [cost(short), cost(more)])[1] > 8 * Math.max(costs[0], 2);
  if (isMore() && isMore() && isMore()) { // three times, since the memory of what was made before is freed at times
    console.log(`${line} cost ${costs.join(" and ")} ms`);
    break;
  }
}
console.log(`${read} read`);
