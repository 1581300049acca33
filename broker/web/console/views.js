// The screens. Each has a title, the command that shows the same, and a function that
// makes its tables once and returns one that fills them.
import { ask, each, pages, Refusal } from "./api.js"
import { ago, bytes, count, graph, h, rate, short, span, spark, Table } from "./ui.js"

const link = (to, text) => h("a", { href: to }, text)
const majority = n => Math.floor(n / 2) + 1
const ratesOf = new Map()

// perSecond is how fast a count has grown since it was looked at before. One that is
// smaller than before began anew.
function perSecond(name, n, now = performance.now()) {
  const was = ratesOf.get(name)
  ratesOf.set(name, { n, now })
  return was && now > was.now ? Math.max(0, n - was.n) * 1000 / (now - was.now) : undefined
}

const topicList = () => pages("$JS.API.STREAM.LIST", "streams").catch(e => {
  if (e.status === 503) throw new Refusal(503, "durable topics are off for this account, or nobody leads them now: " + e.message)
  throw e
})

const replicasOf = c => [c?.leader && { name: c.leader, leader: true, current: true }, ...(c?.replicas || [])].filter(Boolean)
const behind = c => Math.max(0, ...(c?.replicas || []).map(r => r.lag || 0))

function topics(main) {
  const table = new Table("topics", "Topics", [
    { key: "name", title: "Topic", show: v => link("#topic/" + encodeURIComponent(v), v) },
    { key: "messages", title: "Messages", num: true },
    { key: "bytes", title: "Size", num: true, show: bytes },
    { key: "in", title: "Stored/s", num: true, show: rate },
    { key: "acked", title: "Acknowledged by" },
    { key: "line", title: "2 minutes", show: (_, r) => spark("topic " + r.name, r.in) },
    { key: "consumers", title: "Consumers", num: true, show: (v, r) => v ? link("#consumers/" + encodeURIComponent(r.name), count(v)) : "0" },
    { key: "last", title: "Last message", show: v => v ? ago(v) : "–", sort: r => Date.parse(r.last) || 0 },
    { key: "subjects", title: "Subjects", long: true },
    { key: "leader", title: "Leader", show: short },
    { key: "behind", title: "Behind", num: true, tone: v => v > 0 ? "warn" : "" },
  ])
  main.append(table.node)
  return async () => {
    const all = await topicList()
    table.show(all.map(t => ({
      key: t.config.name, name: t.config.name, messages: t.state.messages, bytes: t.state.bytes,
      in: perSecond("topic " + t.config.name, t.state.last_seq), consumers: t.state.consumer_count,
      last: t.state.messages ? t.state.last_ts : "", subjects: (t.config.subjects || []).join(" ") || (t.config.mirror ? "mirror of " + t.config.mirror.name : ""),
      leader: t.cluster?.leader, acked: `${majority(t.config.num_replicas)} of ${t.config.num_replicas} on disk`, behind: behind(t.cluster),
    })), all.total)
  }
}

function topic(main, name) {
  const facts = h("dl", { id: "facts-of-topic" }), tail = h("p", {}, link("#tail?topic=" + encodeURIComponent(name) + "&from=1h", "Its messages of the last hour"))
  const nodes = new Table("replicas", "Replicas", [
    { key: "name", title: "Node", show: short }, { key: "role", title: "Role" }, { key: "current", title: "Up to date", show: v => v ? "yes" : "no", tone: v => v ? "good" : "warn" },
    { key: "lag", title: "Behind", num: true }, { key: "active", title: "Heard" },
  ])
  main.append(facts, tail, nodes.node)
  return async () => {
    const t = await ask("$JS.API.STREAM.INFO." + name), c = t.config, st = t.state
    const of = {
      Subjects: (c.subjects || []).join(" "), Messages: count(st.messages), Size: bytes(st.bytes), "First and last sequence": st.first_seq + " – " + st.last_seq,
      Subjects_in_use: count(st.num_subjects || 0), Kept: c.retention + (c.max_age ? ", at most " + span(c.max_age / 1e9) : "") + (c.max_bytes > 0 ? ", at most " + bytes(c.max_bytes) : "") + (c.max_msgs > 0 ? ", at most " + count(c.max_msgs) + " messages" : ""),
      Acknowledged: `after fsync on ${majority(c.num_replicas)} of ${c.num_replicas} replicas`, Duplicates: "found by message id within " + span((c.duplicate_window || 0) / 1e9), Made: t.created,
    }
    facts.replaceChildren(...Object.entries(of).filter(([, v]) => v).map(([k, v]) => h("div", {}, h("dt", {}, k.replaceAll("_", " ")), h("dd", {}, v))))
    nodes.show(replicasOf(t.cluster).map(r => ({ key: r.name, name: r.name, role: r.leader ? "leader" : "follower", current: !!r.current && !r.offline, lag: r.lag || 0, active: r.active ? span(r.active / 1e9) + " ago" : "" })))
  }
}

function consumers(main, only) {
  const table = new Table("consumers", only ? "Consumers of " + only : "Consumers", [
    { key: "name", title: "Consumer" }, { key: "topic", title: "Topic", show: v => link("#topic/" + encodeURIComponent(v), v) },
    { key: "lag", title: "Lag", num: true, tone: v => v > 0 ? "warn" : "" },
    { key: "pending", title: "Unacknowledged", num: true }, { key: "redelivered", title: "Redelivered", num: true },
    { key: "out", title: "Delivered/s", num: true, show: rate }, { key: "acked", title: "Acked/s", num: true, show: rate },
    { key: "line", title: "Lag, 2 minutes", show: (_, r) => spark("consumer " + r.key, r.lag) },
    { key: "floor", title: "Acked up to", num: true }, { key: "waiting", title: "Waiting readers", num: true }, { key: "filter", title: "Subjects" }, { key: "leader", title: "Leader", show: short },
  ])
  main.append(table.node)
  return async () => {
    const names = only ? [only] : (await topicList()).filter(t => t.state.consumer_count).map(t => t.config.name)
    const lists = await each(names, t => pages("$JS.API.CONSUMER.LIST." + t, "consumers"))
    if (only && !lists.length) await ask("$JS.API.STREAM.INFO." + only) // says why
    table.show(lists.flat().map(c => {
      const key = c.stream_name + "/" + c.name
      return {
        key, name: c.name, topic: c.stream_name, lag: c.num_pending, pending: c.num_ack_pending, redelivered: c.num_redelivered,
        out: perSecond("out " + key, c.delivered.consumer_seq), acked: perSecond("ack " + key, c.ack_floor.consumer_seq), floor: c.ack_floor.stream_seq,
        waiting: c.num_waiting, filter: c.config.filter_subject || (c.config.filter_subjects || []).join(" ") || "all", leader: c.cluster?.leader,
      }
    }))
  }
}

function adverts(main) {
  const table = new Table("adverts", "Advertised", [
    { key: "name", title: "Name" }, { key: "subject", title: "Subject", show: v => link("#tail?subject=" + encodeURIComponent(v.replace(/\{[^}]*\}/g, "*")), v) },
    { key: "owner", title: "Owner" }, { key: "role", title: "Role" }, { key: "in", title: "Messages/s, 1 min", num: true, show: rate }, { key: "messages", title: "Messages, 1 h", num: true },
    { key: "last", title: "Last message", show: v => v ? ago(v) : "–" }, { key: "readers", title: "Readers", num: true },
    { key: "conform", title: "Conform, 1 h" }, { key: "enforce", title: "Enforced" }, { key: "topic", title: "Topic" }, { key: "stage", title: "Stage", tone: v => v === "deprecated" ? "warn" : "" }, { key: "summary", title: "Summary", long: true },
  ])
  const other = new Table("undeclared", "Published, and advertised by nobody", [
    { key: "pattern", title: "Subjects" }, { key: "in", title: "Messages/s, 1 min", num: true, show: rate }, { key: "messages", title: "Messages, 1 h", num: true }, { key: "last", title: "Last message", show: v => v ? ago(v) : "–" },
  ])
  main.append(table.node, h("h2", {}, "Not advertised"), other.node)
  const seen = o => ({ in: (o?.msgs_1m || 0) / 60, messages: o?.msgs_1h || 0, last: o?.last })
  return async () => {
    const all = await pages("$HERALD.ADV.LIST", "advertisements", { observed: true })
    table.show(all.map((a, i) => {
      const o = (all.observed || [])[i] || {}
      return {
        key: a.id || a.name + i, name: a.name, subject: a.subject, owner: [a.owner?.team, a.owner?.service].filter(Boolean).join(" / "), role: a.role, ...seen(o),
        readers: (o.subscribers || 0) + (o.consumers || 0) + (o.operators || 0),
        conform: o.checked_1h ? Math.floor(1000 * (1 - o.failed_1h / o.checked_1h)) / 10 + " %" : "", enforce: a.enforce || "off", topic: a.durable?.topic, stage: a.lifecycle?.stage, summary: a.summary,
      }
    }), all.total)
    const u = await ask("$HERALD.ADV.LIST", { undeclared: true })
    other.show((u.undeclared || []).map(o => ({ key: o.pattern, pattern: o.pattern, ...seen(o) })))
  }
}

const operatorInfo = name => ask("$HERALD.OP.INFO", { name })
const sum = (list, f) => list.reduce((n, x) => n + (f(x) || 0), 0)

function operatorRow(i) {
  const o = i.operator, lead = i.replicas.filter(r => r.leads), key = o.name
  const busy = perSecond("busy " + key, sum(lead, r => r.stats.busy_ns))
  return {
    key, name: key, state: o.error ? o.state + ": " + o.error : o.state, primary: lead.map(r => r.node).join(" "),
    in: perSecond("op in " + key, sum(lead, r => r.stats.in)), out: perSecond("op out " + key, sum(lead, r => r.stats.out)), records: sum(lead, r => r.stats.in), results: sum(lead, r => r.stats.out),
    lag: sum(lead, r => r.lag_records), late: Math.max(0, ...lead.map(r => r.lag_seconds || 0)), busy: busy === undefined ? undefined : busy / 1e7,
    keys: sum(lead, r => r.state_keys), bytes: sum(lead, r => r.state_bytes), standby: i.replicas.length - lead.length, behind: Math.max(0, ...i.replicas.map(r => r.behind || 0)),
  }
}

const percent = v => v === undefined ? "–" : v.toFixed(1) + " %"

function operators(main) {
  const table = new Table("operators", "Operators", [
    { key: "name", title: "Operator", show: v => link("#operator/" + encodeURIComponent(v), v) },
    { key: "state", title: "State", tone: v => v === "running" ? "good" : v.startsWith("failed") ? "bad" : "warn" },
    { key: "in", title: "In/s", num: true, show: rate }, { key: "out", title: "Out/s", num: true, show: rate }, { key: "records", title: "In", num: true }, { key: "results", title: "Out", num: true },
    { key: "lag", title: "Lag", num: true, tone: v => v > 0 ? "warn" : "" }, { key: "late", title: "Lag in time", num: true, show: span }, { key: "busy", title: "Busy", num: true, show: percent },
    { key: "keys", title: "Keys", num: true }, { key: "bytes", title: "State", num: true, show: bytes }, { key: "standby", title: "Standbys", num: true },
    { key: "behind", title: "Standby behind", num: true }, { key: "primary", title: "Primary", show: short },
  ])
  main.append(table.node)
  return async () => {
    const all = await pages("$HERALD.OP.LIST", "operators")
    table.show((await each(all, o => operatorInfo(o.name))).map(operatorRow), all.length)
  }
}

function operator(main, name) {
  const drawing = h("div", {}), log = h("pre", { id: "log", tabindex: 0 })
  const steps = new Table("steps", "Steps", [
    { key: "name", title: "Step" }, { key: "kind", title: "Kind" }, { key: "to", title: "Leads to" }, { key: "share", title: "Share of the time", num: true, show: percent },
    { key: "each", title: "A run takes", num: true, show: v => v === undefined ? "–" : v.toFixed(1) + " µs" }, { key: "counts", title: "Counted", long: true }, { key: "config", title: "Does", long: true },
  ])
  const replicas = new Table("op-replicas", "Primary and standbys", [
    { key: "node", title: "Node", show: short }, { key: "role", title: "Role" }, { key: "seq", title: "Step of the log", num: true }, { key: "behind", title: "Behind", num: true, tone: v => v > 0 ? "warn" : "" },
    { key: "lag", title: "Lag", num: true }, { key: "late", title: "Lag in time", num: true, show: span }, { key: "mark", title: "Event time up to" }, { key: "blocked", title: "Waits for", long: true, tone: () => "warn" },
  ])
  main.append(drawing, h("h2", {}, "Steps"), steps.node, h("h2", {}, "Where it runs"), replicas.node, h("h2", {}, "Log"), log)
  let drawn = ""
  return async () => {
    const [g, i] = await Promise.all([ask("$HERALD.OP.GRAPH", { name }), operatorInfo(name)])
    const loads = new Map(), counts = new Map()
    for (const r of i.replicas.filter(r => r.leads)) {
      for (const l of r.loads || []) { const t = loads.get(l.step) || { calls: 0, busy: 0 }; loads.set(l.step, { calls: t.calls + l.calls, busy: t.busy + l.busy_ns }) }
      for (const c of r.counts || []) { const k = c.Step ?? c.step; counts.set(k, [...(counts.get(k) || []), `${c.Name ?? c.name} ${count(c.N ?? c.n)}`]) }
    }
    const all = sum([...loads.values()], l => l.busy), most = Math.max(0, ...[...loads.values()].map(l => l.busy))
    const share = n => loads.has(n.name) && all ? 100 * loads.get(n.name).busy / all : undefined
    const picture = JSON.stringify([g.nodes, [...loads]])
    if (picture !== drawn) {
      drawn = picture
      drawing.replaceChildren(graph(g.nodes, `Steps of ${name}; the table below says the same`, n => ({ text: share(n) === undefined ? "" : Math.round(share(n)) + " %", hot: loads.size > 1 && loads.get(n.name)?.busy === most && most > 0 })))
    }
    steps.show(g.nodes.map(n => ({
      key: n.name, name: n.name, kind: n.kind, to: (n.to || []).join(", "), share: share(n), each: loads.get(n.name)?.calls ? loads.get(n.name).busy / loads.get(n.name).calls / 1000 : undefined, counts: (counts.get(n.name) || []).join(", "), config: n.config,
    })))
    replicas.show(i.replicas.map(r => ({
      key: r.node + "/" + (r.instance || 0), node: r.node + (r.instance ? " #" + r.instance : ""), role: r.leads ? "primary" : r.quarantined ? "quarantined" : "standby", seq: r.seq, behind: r.behind, lag: r.lag_records, late: r.lag_seconds, mark: r.watermark, blocked: r.blocked || (r.outbox || []).map(b => `${b.topic}: ${b.parcels} parcels ${b.blocked || ""}`).join(", "),
    })))
    const lines = i.replicas.flatMap(r => r.log || []).sort((a, b) => Date.parse(a.time) - Date.parse(b.time)).slice(-50)
    log.textContent = lines.map(l => `${l.time.slice(0, 23)} ${l.level} ${l.node.length > 28 ? l.node.slice(0, 10) + "…" : l.node} ${l.text}`).join("\n") || "nothing yet"
  }
}

function cluster(main) {
  const health = h("p", { id: "health" }), advice = h("ul", { id: "advice" })
  const nodes = new Table("nodes", "Nodes", [
    { key: "name", title: "Node", show: short }, { key: "state", title: "State", tone: v => v === "active" ? "good" : "warn" }, { key: "online", title: "Online", show: v => v === undefined ? "–" : v ? "yes" : "no", tone: v => v === false ? "bad" : "" },
    { key: "ready", title: "Ready", long: true }, { key: "leads", title: "Leads", num: true }, { key: "groups", title: "Replicas", num: true }, { key: "connections", title: "Connections", num: true }, { key: "rtt", title: "Round trip", num: true, show: v => v ? span(v / 1e9) : "–" }, { key: "version", title: "Version" }, { key: "started", title: "Up", show: v => v ? ago(v).replace(" ago", "") : "–" },
  ])
  const groups = new Table("groups", "Raft groups", [
    { key: "id", title: "Group", show: (v) => v === 0 ? "0, the catalogue" : v }, { key: "leader", title: "Leader", show: v => v ? short(v) : "none", tone: v => v ? "" : "bad" }, { key: "topics", title: "Topics", num: true }, { key: "term", title: "Term", num: true },
    { key: "committed", title: "Committed", num: true }, { key: "lag", title: "Most behind", num: true, tone: v => v > 0 ? "warn" : "" }, { key: "members", title: "Members and their lag", long: true },
  ])
  main.append(health, advice, nodes.node, h("h2", {}, "Groups"), groups.node)
  const seen = async () => (await ask("$SYS.REQ.ACCOUNT.PING.CONNZ", { limit: 1 }).catch(() => [])).filter(n => n.server && n.data)
  return async () => {
    const reached = await seen(), at = new Map(reached.map(n => [n.server.name, n.data.num_connections]))
    let st
    try {
      st = await ask("$HERALD.CLUSTER.STATUS")
    } catch (e) {
      if (e.status === 401 || e.status === 0) throw e
      health.textContent = reached.length > 1 ? "Groups, leaders and lag of the whole cluster are told to users of the system account. What topics of this account have is on their own screens."
        : "One node, or a user who may not ask about the cluster (one of the system account may)."
      health.className = "quiet"
      nodes.show(reached.map(n => ({ key: n.server.name, name: n.server.name, state: "answers", online: true, connections: n.data.num_connections, version: n.server.ver, ready: "" })))
      return
    }
    health.textContent = st.healthy ? "Healthy" : "Not healthy"
    health.className = st.healthy ? "good" : "bad"
    advice.replaceChildren(...[...(st.advice || []), ...(st.damage || []).map(d => `${d.node}, group ${d.group}: ${d.what}; ${d.action}`)].map(t => h("li", {}, t)))
    nodes.show(st.nodes.map(n => ({ key: n.name, name: n.name, state: n.state, online: n.online, ready: n.ready ? "yes" : (n.reasons || []).join("; ") || "no", leads: n.leads, groups: n.groups, connections: at.get(n.name), rtt: n.rtt_ns, version: n.version, started: n.started })))
    groups.show((st.groups || []).map(g => ({
      key: g.id, id: g.id, leader: g.leader, topics: g.topics, term: g.term, committed: g.committed, lag: Math.max(0, ...(g.members || []).map(m => m.lag || 0)),
      members: (g.members || []).map(m => m.node + (m.node === g.leader ? " leads" : m.online ? " " + count(m.lag || 0) : " is away") + (m.voter ? "" : ", no vote yet")).join(" · "),
    })))
  }
}

function connections(main) {
  const table = new Table("connections", "Connections of this account", [
    { key: "name", title: "Name" }, { key: "cid", title: "Id", num: true }, { key: "node", title: "Node", show: short }, { key: "user", title: "User" }, { key: "address", title: "Address" }, { key: "subs", title: "Subscriptions", num: true }, { key: "pending", title: "Waiting to be read", num: true, show: bytes, tone: v => v > 1 << 20 ? "warn" : "" },
    { key: "in", title: "In/s", num: true, show: rate }, { key: "out", title: "Out/s", num: true, show: rate }, { key: "received", title: "Published", num: true }, { key: "sent", title: "Delivered", num: true }, { key: "up", title: "Up" }, { key: "idle", title: "Idle" }, { key: "client", title: "Client" },
  ])
  main.append(table.node)
  return async () => {
    const nodes = await ask("$SYS.REQ.ACCOUNT.PING.CONNZ", { limit: 1024, auth: true })
    const total = sum(nodes, n => n.data?.total)
    table.show(nodes.flatMap(n => (n.data?.connections || []).map(c => {
      const key = n.server.name + "/" + c.cid
      return { key, name: c.name || "–", cid: c.cid, node: n.server.name, user: c.authorized_user, address: c.ip + ":" + c.port, subs: c.subscriptions, pending: c.pending_bytes, in: perSecond("cin " + key, c.in_msgs), out: perSecond("cout " + key, c.out_msgs), received: c.in_msgs, sent: c.out_msgs, up: c.uptime, idle: c.idle, client: [c.lang, c.version].filter(Boolean).join(" ") }
    })), total)
  }
}

const screen = (title, command, make) => ({ title, command, make })
const word = t => /^[\w.-]+$/.test(t) ? t : "'" + t.replaceAll("'", `'\\''`) + "'"

export const screens = {
  topics: screen("Topics", () => "pubsub top topics", topics),
  consumers: screen("Consumers", t => t ? "pubsub consumer ls " + word(t) : "pubsub top consumers", consumers),
  adverts: screen("Advertised", () => "pubsub discover --observed", adverts),
  operators: screen("Operators", () => "pubsub top operators", operators),
  cluster: screen("Cluster", () => "pubsub cluster status", cluster),
  connections: screen("Connections", () => "pubsub top connections", connections),
  topic: { ...screen("Topic", t => "pubsub topic info " + word(t), topic), under: "topics" },
  operator: { ...screen("Operator", t => "pubsub operator info " + word(t), operator), under: "operators" },
}

export { word }
