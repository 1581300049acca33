// Drives a broker with nats.js, over TCP or over websocket:
//   node check.mjs tcp nats://127.0.0.1:4222
//   node check.mjs ws ws://127.0.0.1:8080
// Prints one line a check and exits with 1 at the first that fails.
import assert from "node:assert/strict";
import { connect } from "@nats-io/transport-node";
import { headers, wsconnect } from "@nats-io/nats-core";
import { AckPolicy, DeliverPolicy, jetstream, jetstreamManager, RetentionPolicy } from "@nats-io/jetstream";
import { Kvm } from "@nats-io/kv";
import WebSocket from "ws";

globalThis.WebSocket ??= WebSocket;

const [kind, url] = process.argv.slice(2);
const open = () => (kind === "ws" ? wsconnect({ servers: url }) : connect({ servers: url }));
const tag = kind.toUpperCase();

const checks = {
  async "publish, subscribe, headers"() {
    const nc = await open();
    const sub = nc.subscribe("greet.*", { max: 2 });
    const h = headers();
    h.append("Lang", "en");
    h.append("Lang", "de");
    nc.publish("greet.joe", "hello");
    nc.publish("greet.sue", "hallo", { headers: h });
    const got = [];
    for await (const m of sub) got.push(m);
    assert.deepEqual(got.map((m) => m.string()), ["hello", "hallo"]);
    assert.deepEqual(got[1].headers.values("Lang"), ["en", "de"]);
    await nc.close();
  },
  async "request, reply, no responders"() {
    const nc = await open();
    nc.subscribe("double", { callback: (_, m) => m.respond(String(2 * Number(m.string()))) });
    assert.equal((await nc.request("double", "21")).string(), "42");
    await assert.rejects(nc.request("nobody.home", ""), /no responders/i);
    await nc.close();
  },
  async "queue group shares"() {
    const nc = await open();
    const counts = [0, 0];
    for (const i of [0, 1]) nc.subscribe("work", { queue: "q", callback: () => counts[i]++ });
    for (let i = 0; i < 200; i++) nc.publish("work", "x");
    await nc.flush();
    await nc.flush();
    assert.equal(counts[0] + counts[1], 200);
    assert.ok(counts[0] > 40 && counts[1] > 40, `lopsided: ${counts}`);
    await nc.close();
  },
  async "stream, pull consumer, acks"() {
    const nc = await open();
    const jsm = await jetstreamManager(nc);
    const js = jetstream(nc);
    const name = `JOBS_${tag}`;
    await jsm.streams.add({ name, subjects: [`jobs.${tag}.>`], retention: RetentionPolicy.Workqueue });
    for (let i = 1; i <= 20; i++) {
      const ack = await js.publish(`jobs.${tag}.new`, `job ${i}`, { msgID: `id-${i}` });
      assert.equal(ack.seq, i);
    }
    assert.equal((await js.publish(`jobs.${tag}.new`, "again", { msgID: "id-7" })).duplicate, true);
    await jsm.consumers.add(name, { durable_name: "w", ack_policy: AckPolicy.Explicit });
    const c = await js.consumers.get(name, "w");
    const seen = [];
    for await (const m of await c.consume({ max_messages: 10 })) {
      seen.push(m.seq);
      await m.ackAck();
      if (seen.length === 20) break;
    }
    assert.deepEqual(seen, Array.from({ length: 20 }, (_, i) => i + 1));
    assert.equal((await jsm.streams.info(name)).state.messages, 0);
    await jsm.streams.delete(name);
    await nc.close();
  },
  async "ordered consumer from the beginning"() {
    const nc = await open();
    const jsm = await jetstreamManager(nc);
    const js = jetstream(nc);
    const name = `LOG_${tag}`;
    await jsm.streams.add({ name, subjects: [`log.${tag}`] });
    await Promise.all(Array.from({ length: 500 }, (_, i) => js.publish(`log.${tag}`, `line ${i}`)));
    const c = await js.consumers.get(name, { deliver_policy: DeliverPolicy.All });
    let n = 0;
    for await (const m of await c.consume()) {
      n++;
      assert.equal(m.seq, n);
      if (m.info.pending === 0) break;
    }
    assert.equal(n, 500);
    await jsm.streams.delete(name);
    await nc.close();
  },
  async "key-value bucket"() {
    const nc = await open();
    const kv = await new Kvm(nc).create(`B_${tag}`, { history: 3 });
    await kv.put("a", "1");
    const rev = await kv.put("a", "2");
    await assert.rejects(kv.create("a", "x"));
    await kv.update("a", "3", rev);
    await assert.rejects(kv.update("a", "4", rev));
    assert.equal((await kv.get("a")).string(), "3");
    await kv.put("b", "x");
    await kv.delete("b");
    const keys = [];
    for await (const k of await kv.keys()) keys.push(k);
    assert.deepEqual(keys, ["a"]);
    const history = [];
    for await (const e of await kv.history({ key: "a" })) history.push(e.string());
    assert.deepEqual(history, ["1", "2", "3"]);
    const watch = await kv.watch();
    const first = [];
    for await (const e of watch) {
      first.push(e.key);
      if (e.delta === 0) break;
    }
    assert.deepEqual(first.sort(), ["a", "b"]);
    await kv.destroy();
    await nc.close();
  },
};

for (const [name, check] of Object.entries(checks)) {
  const timer = setTimeout(() => {
    console.log(`not ok ${kind} ${name}: still running after 20 s`);
    process.exit(1);
  }, 20_000);
  try {
    await check();
    console.log(`ok ${kind} ${name}`);
  } catch (err) {
    console.log(`not ok ${kind} ${name}: ${err.stack}`);
    process.exit(1);
  } finally {
    clearTimeout(timer);
  }
}
process.exit(0);
