// A scheduler loop in Node: queue and devices → match → start → observe → explain.
//
//     npm ci && INTERFERE_TOKEN=... node loop.js [ADDRESS]
//
// The cluster is simulated. In a scheduler of your own, replace the first section.
"use strict";

const path = require("node:path");
const { promisify } = require("node:util");
const { setTimeout: sleep } = require("node:timers/promises");
const grpc = require("@grpc/grpc-js");
const { loadSync } = require("@grpc/proto-loader");

const PROTO = process.env.INTERFERE_PROTO ?? path.join(__dirname, "../../serving/proto/interfere/v1/policy.proto");
const ADDRESS = process.argv[2] ?? "127.0.0.1:50051";
const ROUND_S = 60; // one round of the simulated clock
const PAUSES_MS = [200, 400, 0]; // after each of three attempts
const MAY_PASS = [grpc.status.UNAVAILABLE, grpc.status.DEADLINE_EXCEEDED, grpc.status.RESOURCE_EXHAUSTED];
const STARTS = ["ACTION_KIND_START_ALONE", "ACTION_KIND_START_SHARED"];

// --- The simulated cluster ------------------------------------------------------------------------------------------

const STEP_S = { gemm: 0.005, "request-server": 0.003, "gpt-decode": 0.003, stream: 0.02, "rl-rollout": 0.02 }; // alone
let queue = Object.keys(STEP_S).map((workload, k) => ({ id: `j${k + 1}`, workload }));
const devices = ["d0", "d1"].map((id) => ({ id, type: "cpu-core", residents: [] }));

/** Starts a job on a device. */
function startJob(jobId, deviceId) {
  const job = queue.find(({ id }) => id === jobId);
  queue = queue.filter((each) => each !== job);
  devices.find(({ id }) => id === deviceId).residents.push(job);
}

/** Returns the steps that a job did in this round: beside others it is slowed 1.2 times. */
function countSteps(job, device) {
  return ROUND_S / STEP_S[job.workload] / (device.residents.length === 1 ? 1 : 1.2);
}

/** Jobs of the simulation end after every second round. */
function endJobs(number) {
  for (const device of number % 2 === 0 ? devices : []) device.residents = [];
}

// --- The loop -------------------------------------------------------------------------------------------------------

const { PolicyService } = grpc.loadPackageDefinition(loadSync(PROTO, { enums: String })).interfere.v1;
const client = new PolicyService(ADDRESS, grpc.credentials.createInsecure());
const token = grpc.Metadata.fromHttp2Headers({ authorization: `Bearer ${process.env.INTERFERE_TOKEN ?? ""}` });
const run = `node-${Date.now()}`;
let unsent = []; // windows that no server has yet

/** Calls a method, with a deadline of ten seconds. */
function call(method, request) {
  return promisify(client[method].bind(client))(request, token, { deadline: Date.now() + 10_000 });
}

/** Asks for a plan: three attempts, then the first jobs start alone. The snapshot id makes a repetition safe. */
async function match(number) {
  for (const pauseMs of PAUSES_MS) {
    try {
      return await call("Match", { snapshotId: `${run}-${number}`, pending: queue, devices });
    } catch (error) {
      if (!MAY_PASS.includes(error.code)) throw error;
      console.log("failed:", grpc.status[error.code]);
      await sleep(pauseMs);
    }
  }
  const idle = devices.filter(({ residents }) => residents.length === 0).slice(0, queue.length);
  const start = { kind: "ACTION_KIND_START_ALONE", reason: "the server is away" };
  return { decisionId: "", actions: idle.map(({ id }, k) => ({ ...start, jobId: queue[k].id, deviceId: id })) };
}

/** Prints the best alternative to what was decided for a job. A failure is no reason to stop the loop. */
async function explain(decisionId, jobId) {
  try {
    const { alternatives } = await call("Explain", { decisionId, jobId });
    const other = alternatives.find(({ chosen }) => !chosen);
    console.log(`  ${jobId} else: ${other ? `${other.kind} ${other.partnerId ?? ""}` : "nothing"}`);
  } catch (error) {
    console.log(`  ${jobId}: no explanation: ${error.details}`);
  }
}

/** Reports the windows. Those that are not delivered are kept; their ids make sending them again safe. */
async function observe(number) {
  const [startS, endS] = [(number - 1) * ROUND_S, number * ROUND_S];
  for (const device of devices) {
    for (const job of device.residents) {
      const company = device.residents.filter((other) => other !== job).map(({ workload }) => workload);
      const steps = countSteps(job, device);
      const progress = { jobId: job.id, workload: job.workload, deviceType: device.type, startS, endS, company, steps };
      unsent.push({ observationId: `${run}-${number}-${job.id}`, progress });
    }
  }
  try {
    const { answers } = await call("ReportObservations", { observations: unsent });
    unsent = [];
    console.log("observed:", answers.map(({ result }) => result).join(" "));
  } catch (error) {
    if (!MAY_PASS.includes(error.code)) throw error;
    console.log(`kept ${unsent.length} windows: ${grpc.status[error.code]}`);
  }
}

/** Runs rounds until the queue is empty. */
async function main() {
  for (let number = 1; queue.length > 0; number++) {
    const { decisionId, actions } = await match(number);
    for (const action of actions) {
      console.log(number, action.jobId, action.kind, action.deviceId || "-", action.reason);
      if (STARTS.includes(action.kind)) startJob(action.jobId, action.deviceId);
      if (decisionId) await explain(decisionId, action.jobId); // empty: the server is away
    }
    await observe(number);
    endJobs(number);
  }
  client.close();
}

main();
