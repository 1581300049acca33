// How the page asks the broker: one request, one answer, as the user who signed in.

const place = "herald-console"
let identity = sessionStorage.getItem(place) || ""

export class Refusal extends Error {
  constructor(status, reason, code) { super(reason); this.status = status; this.code = code }
}

export const signedIn = () => identity !== ""

export function signIn(user, pass, token) {
  const bytes = new TextEncoder().encode(user + ":" + pass)
  identity = token ? "Bearer " + token : user || pass ? "Basic " + btoa(String.fromCharCode(...bytes)) : ""
  sessionStorage.setItem(place, identity)
}

export function signOut() { identity = ""; sessionStorage.removeItem(place) }

async function get(path, options = {}) {
  const headers = { ...options.headers, ...(identity && { Authorization: identity }) }
  let answer
  try {
    answer = await fetch(path, { ...options, headers, cache: "no-store" })
  } catch (e) {
    if (e.name === "AbortError") throw e
    throw new Refusal(0, "the broker can't be reached")
  }
  if (answer.ok) return answer
  const text = await answer.text()
  let reason = text.trim() || answer.statusText
  try { reason = JSON.parse(text).error.reason } catch { /* a plain text it is */ }
  throw new Refusal(answer.status, reason)
}

export const about = async () => (await get("about")).json()

// ask makes a request of the broker. What the answer calls an error is thrown.
export async function ask(subject, body) {
  const answer = await (await get("ask/" + encodeURIComponent(subject), { method: "POST", body: body ? JSON.stringify(body) : "" })).json()
  const e = !Array.isArray(answer) && answer.error
  if (e) throw new Refusal(e.code, e.description, e.err_code)
  return answer
}

// pages asks again until everything of a list is there, but not more than most.
export async function pages(subject, list, body = {}, most = 2000) {
  const all = []
  let total = 0
  do {
    const a = await ask(subject, { ...body, offset: all.length })
    total = a.total ?? (a[list] || []).length
    if (!(a[list] || []).length) break
    all.push(...a[list])
    if (a.observed) all.observed = (all.observed || []).concat(a.observed)
  } while (all.length < Math.min(total, most))
  all.total = Math.max(total, all.length)
  return all
}

// each calls f for all items, a few at a time, and leaves out what fails.
export async function each(items, f) {
  const out = new Array(items.length)
  let next = 0
  const work = async () => {
    while (next < items.length) {
      const i = next++
      try { out[i] = await f(items[i]) } catch (e) { if (e.status === 401 || e.status === 0) throw e }
    }
  }
  await Promise.all(Array.from({ length: 4 }, work))
  return out.filter(x => x !== undefined)
}

// subscribe calls on(name, data) for every event until it ends or signal stops it.
export async function subscribe(params, lastId, signal, on) {
  const headers = { Accept: "text/event-stream", ...(lastId && { "Last-Event-ID": lastId }) }
  const answer = await get("subscribe?" + params, { headers, signal })
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader()
  let rest = ""
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return
    const blocks = (rest + value).split("\n\n")
    rest = blocks.pop()
    for (const block of blocks) {
      const e = { name: "message", data: [], id: "" }
      for (const line of block.split("\n")) {
        if (line.startsWith("event: ")) e.name = line.slice(7)
        if (line.startsWith("id: ")) e.id = line.slice(4)
        if (line.startsWith("data: ")) e.data.push(line.slice(6))
      }
      if (e.data.length) on(e.name, e.data.join("\n"), e.id)
    }
  }
}
