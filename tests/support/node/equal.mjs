// The openai SDK for Node must not notice the daemon: `node equal.mjs DIRECT-BASE-URL DAEMON-BASE-URL`.
// Each request goes to the server directly and through the daemon, at temperature 0; what the SDK made of both
// must be equal, each chunk of a stream too, but for names and times that the server gives.

import OpenAI, { APIError } from "openai";
import { isDeepStrictEqual } from "node:util";

const volatile = new Set(["id", "created", "created_at", "item_id", "call_id"]);

function stable(value) {
  if (Array.isArray(value)) return value.map(stable);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(
    Object.entries(value).filter(([key]) => !volatile.has(key)).map(([key, inner]) => [key, stable(inner)]),
  );
}

async function all(stream) {
  const chunks = [];
  for await (const chunk of await stream) chunks.push(chunk);
  if (chunks.length < 10) throw new Error(`only ${chunks.length} chunks`);
  return chunks;
}

const ask = { model: "m", temperature: 0, max_tokens: 40, messages: [{ role: "user", content: "What is a library?" }] };
const cases = {
  chat: (to) => to.chat.completions.create({ ...ask, logprobs: true, top_logprobs: 3 }),
  chatStream: (to) => all(to.chat.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } })),
  responses: (to) => to.responses.create({ model: "m", input: "How do bees make honey?", temperature: 0, max_output_tokens: 40 }),
  responsesStream: (to) =>
    all(to.responses.create({ model: "m", input: "How do bees make honey?", temperature: 0, max_output_tokens: 40, stream: true })),
  embeddings: (to) => to.embeddings.create({ model: "m", input: ["bees make honey", "taxes"] }),
  refused: async (to) => {
    try {
      await to.chat.completions.create({ model: "m", messages: [] });
    } catch (fault) {
      if (fault instanceof APIError) return { status: fault.status, error: fault.error };
      throw fault;
    }
    throw new Error("no message was accepted");
  },
};

const [direct, daemon] = process.argv
  .slice(2, 4)
  .map((base) => new OpenAI({ baseURL: `${base}/v1`, apiKey: "none", maxRetries: 0, timeout: 60_000 }));
let failed = false;
for (const [name, run] of Object.entries(cases)) {
  const [first, through] = [stable(await run(direct)), stable(await run(daemon))];
  const same = isDeepStrictEqual(first, through);
  console.log(`${same ? "EQUAL" : "DIFFERS"} ${name}`);
  if (!same) console.log(JSON.stringify(first), "\n", JSON.stringify(through));
  failed ||= !same;
}
process.exitCode = failed ? 1 : 0;
