// Runs one model on onnxruntime-web (WASM) under Node: a request in JSON in, its outputs as JSON out.
import fs from 'node:fs';
import { createRequire } from 'node:module';

const ort = createRequire(`${process.cwd()}/`)('onnxruntime-web');
ort.env.wasm.numThreads = 1;
const request = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
const session = await ort.InferenceSession.create(fs.readFileSync(request.model), { executionProviders: ['wasm'] });
const feeds = {};
for (const [name, { type, shape, data }] of Object.entries(request.feeds)) {
  const array = type === 'int64' ? BigInt64Array.from(data.map(BigInt)) : Float32Array.from(data);
  feeds[name] = new ort.Tensor(type, array, shape);
}
const results = await session.run(feeds);
const outputs = session.outputNames.map((name) => [name, Array.from(results[name].data, Number)]);
console.log(JSON.stringify(Object.fromEntries(outputs)));
