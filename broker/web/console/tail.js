// Live messages of a subject, and those of a topic from some time on.
import { Refusal, subscribe } from "./api.js"
import { copyable, h } from "./ui.js"
import { word } from "./views.js"

const most = 200 // messages that are kept in the page

// bodyOf cuts the payload out of a frame as it is: numbers of more than 15 digits would
// not survive being read and written.
function bodyOf(frame) {
  let depth = 0, inText = false, from = -1
  for (let i = 0; i < frame.length; i++) {
    const c = frame[i]
    if (inText) {
      if (c === "\\") i++
      else if (c === '"') inText = false
    } else if (c === '"') {
      if (depth === 1 && from < 0 && frame.startsWith('"data":', i)) { from = i + 7; i += 6 } else inText = true
    } else if (c === "{" || c === "[") depth++
    else if (c === "}" || c === "]") depth--
    if (from >= 0 && (depth === 0 || depth === 1 && c === "," && i >= from)) return frame.slice(from, i)
  }
  return ""
}

export function tail(main, query, status) {
  const asked = new URLSearchParams(query)
  const field = (name, title, hint, small) => h("label", { class: small && "small" }, title, h("input", { name, placeholder: hint, value: asked.get(name) || "", autocapitalize: "none", spellcheck: "false", autocomplete: "off" }))
  const button = h("button", { type: "submit" }, "Listen"), stop = h("button", { type: "button", disabled: true }, "Stop")
  const form = h("form", { class: "ask" }, field("subject", "Subject", "orders.>"), field("where", "Where", "amount > 100"),
    field("from", "From", "nothing: live; 5m, first", true), field("topic", "Topic", "of the subject", true), button, stop)
  const command = h("div", {}), list = h("ol", { id: "tail", "aria-label": "Messages, the newest first" })
  main.append(form, command, list)
  let control, last = "", n = 0

  const item = text => {
    const m = JSON.parse(text)
    const body = m.data !== undefined ? bodyOf(text) : m.text ?? (m.base64 ? "base64 " + m.base64 : "")
    const at = (m.time || new Date().toISOString()).replace("T", " ").slice(0, 23)
    const heads = Object.entries(m.headers || {}).map(([k, v]) => `${k}: ${v.join(", ")}`).join("  ")
    return h("li", { "data-subject": m.subject }, h("span", { class: "at" }, at + (m.seq ? "  " + m.seq : "") + "  "), h("span", { class: "subject" }, m.subject), heads && h("span", { class: "quiet" }, "  " + heads), h("pre", {}, body))
  }

  async function listen() {
    control?.abort()
    const mine = control = new AbortController(), f = new FormData(form), params = new URLSearchParams()
    for (const k of ["subject", "where", "from", "topic"]) if (f.get(k).trim()) params.set(k, f.get(k).trim())
    if (!params.get("subject")) params.set("subject", ">")
    if (params.get("topic") && !params.get("from")) params.set("from", "new")
    history.replaceState(null, "", "#tail?" + params)
    command.replaceChildren(copyable("pubsub sub " + word(params.get("subject")) + (params.get("where") ? " --where " + word(params.get("where")) : "") + (params.get("topic") ? " --topic " + word(params.get("topic")) : "") + fromFlag(params.get("from"))))
    list.replaceChildren()
    last = ""; n = 0
    stop.disabled = false
    while (mine === control && !mine.signal.aborted) {
      try {
        status("connecting")
        let end
        await subscribe(params, params.get("from") || params.get("topic") ? last : "", mine.signal, (name, data, id) => {
          if (name === "open") { const o = JSON.parse(data); status("listening to " + o.subject + (o.topic ? " of topic " + o.topic : ", live") + (o.where ? " where " + o.where : "")) }
          if (name === "end") end = JSON.parse(data)
          if (name !== "message") return
          if (id) last = id
          n++
          list.prepend(item(data))
          if (list.children.length > most) list.lastChild.remove()
        })
        if (end && end.code < 500 && end.code !== 408) throw new Refusal(end.code, end.reason)
        status("the connection ended" + (end ? ": " + end.reason : "") + "; connecting again")
      } catch (e) {
        if (e.name === "AbortError") return
        if (e.status === 401) { halt(); throw e }
        if (e.status && e.status < 500) { halt(); status("refused: " + e.message, true); return }
        status(e.message + "; trying again", true)
      }
      await new Promise(done => setTimeout(done, 2000))
    }
  }

  function halt() { control?.abort(); control = undefined; stop.disabled = true }

  const start = () => listen().catch(e => window.dispatchEvent(new CustomEvent("refused", { detail: e })))
  form.addEventListener("submit", e => { e.preventDefault(); start() })
  stop.addEventListener("click", () => { halt(); status("stopped after " + n + " messages") })
  if (asked.get("subject") || asked.get("topic")) start()
  else { status("nothing is listened to yet"); command.replaceChildren(copyable("pubsub sub '>'")) }
  return halt
}

function fromFlag(from) {
  if (!from) return ""
  if (from === "first") return " --all"
  if (from === "last_per_subject") return " --last-per-subject"
  return " --from " + word(/^[0-9.]+(ms|s|m|h)/.test(from) ? "@" + from : from)
}
