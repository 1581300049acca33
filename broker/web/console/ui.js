// Pieces of the page. Text only ever enters it as text, never as markup.

export function h(tag, props, ...children) {
  const e = document.createElement(tag)
  for (const [k, v] of Object.entries(props || {})) {
    if (v === undefined || v === false || v === null) continue
    if (k.startsWith("on")) e.addEventListener(k.slice(2), v)
    else e.setAttribute(k, v === true ? "" : v)
  }
  e.append(...children.flat().filter(c => c !== undefined && c !== null))
  return e
}

export function s(tag, props, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag)
  for (const [k, v] of Object.entries(props || {})) e.setAttribute(k, v)
  e.append(...children)
  return e
}

export const count = n => Number(n).toLocaleString("en-US")

export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"]
  let i = 0
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++ }
  return (i ? n.toFixed(n < 10 ? 1 : 0) : n) + " " + units[i]
}

export const rate = n => n === undefined ? "–" : n >= 100 || n === 0 ? count(Math.round(n)) : n >= 1 ? n.toFixed(1) : n.toPrecision(2)

export function ago(time, now = Date.now()) {
  const t = Date.parse(time)
  if (!t || t < 0) return "–"
  return span((now - t) / 1000) + " ago"
}

export function span(seconds) {
  const v = Math.max(0, seconds)
  if (v < 1) return Math.round(v * 1000) + " ms"
  if (v < 90) return v.toFixed(0) + " s"
  if (v < 5400) return (v / 60).toFixed(0) + " min"
  return v < 172800 ? (v / 3600).toFixed(0) + " h" : (v / 86400).toFixed(0) + " d"
}

// short cuts the ids that nodes without a name have; the whole is in the title.
export const short = v => !v ? "–" : v.length > 28 && !v.includes(" ") ? h("span", { title: v }, v.slice(0, 10) + "…") : v

// A Table keeps its rows from one look to the next, so that what has the focus, or is
// selected, stays. A column is {key, title, num, show(value, row), sort(row)}.
export class Table {
  constructor(id, caption, columns) {
    this.columns = columns
    this.rows = new Map()
    this.by = undefined
    this.down = false
    this.body = h("tbody", {})
    this.caption = h("caption", {}, caption)
    this.text = caption
    this.heads = columns.map(c => h("th", { scope: "col", class: c.num && "num" },
      h("button", { type: "button", onclick: () => this.sort(c) }, c.title)))
    this.node = h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": caption },
      h("table", { id }, this.caption, h("thead", {}, h("tr", {}, this.heads)), this.body))
  }

  sort(c) {
    if (this.by === c) this.down = !this.down
    else { this.by = c; this.down = !!c.num }
    this.columns.forEach((k, i) => {
      if (k === c) this.heads[i].setAttribute("aria-sort", this.down ? "descending" : "ascending")
      else this.heads[i].removeAttribute("aria-sort")
    })
    this.show(this.last || [])
  }

  // show lists rows, each with a key of its own.
  show(rows, more) {
    this.last = rows
    this.caption.textContent = this.text + " (" + count(rows.length) + (more > rows.length ? " of " + count(more) : "") + ")"
    if (this.by) {
      const value = this.by.sort || (r => r[this.by.key])
      rows = [...rows].sort((a, b) => (this.down ? -1 : 1) * order(value(a), value(b)))
    }
    const seen = new Set()
    let at = this.body.firstChild
    for (const r of rows) {
      seen.add(r.key)
      let line = this.rows.get(r.key)
      if (!line) {
        line = h("tr", { "data-key": r.key }, this.columns.map((c, i) =>
          h(i ? "td" : "th", { "data-col": c.key, scope: i ? undefined : "row", class: [c.num && "num", c.long && "long"].filter(Boolean).join(" ") || undefined })))
        this.rows.set(r.key, line)
      }
      this.columns.forEach((c, i) => fill(line.children[i], c, r))
      if (line !== at) this.body.insertBefore(line, at)
      else at = at.nextSibling
    }
    for (const [key, line] of this.rows) if (!seen.has(key)) { line.remove(); this.rows.delete(key) }
    if (!rows.length && !this.body.firstChild) this.body.append(h("tr", { class: "none" }, h("td", { colspan: this.columns.length, class: "quiet" }, "none")))
    if (rows.length) this.body.querySelector(".none")?.remove()
    return this
  }
}

const order = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a ?? "").localeCompare(String(b ?? ""), "en", { numeric: true })

function fill(cell, c, r) {
  const v = r[c.key]
  const shown = c.show ? c.show(v, r) : v === undefined || v === "" ? "–" : typeof v === "number" ? count(v) : v
  cell.dataset.value = typeof v === "object" ? JSON.stringify(v) : String(v ?? "")
  if (shown instanceof Node) {
    if (cell.firstChild?.isEqualNode(shown)) return
    cell.replaceChildren(shown)
  } else if (cell.textContent !== String(shown)) cell.textContent = shown
  const tone = c.tone?.(v, r)
  for (const t of ["good", "bad", "warn"]) cell.classList.toggle(t, tone === t)
}

const lines = new Map()

// spark draws the last values of a name as a line. The numbers beside it say the same.
export function spark(name, value) {
  const all = lines.get(name) || []
  if (value !== undefined) all.push(value)
  if (all.length > 60) all.shift()
  lines.set(name, all)
  const top = Math.max(...all, 1e-9)
  if (all.length < 2) return s("svg", { class: "spark", viewBox: "0 0 90 20", "aria-hidden": "true" })
  const points = all.map((v, i) => (i * 90 / 59).toFixed(1) + "," + (19 - v / top * 18).toFixed(1)).join(" ")
  return s("svg", { class: "spark", viewBox: "0 0 90 20", "aria-hidden": "true" }, s("polyline", { points }))
}

// copyable is a command line that does in a terminal what the screen does.
export function copyable(text) {
  const code = h("code", {}, text)
  const button = h("button", {
    type: "button", onclick: async () => {
      try {
        await navigator.clipboard.writeText(text)
        button.textContent = "Copied"
      } catch { // not over plain HTTP: it is selected, to be copied by keyboard
        getSelection().selectAllChildren(code)
        button.textContent = "Selected"
      }
      setTimeout(() => { button.textContent = "Copy as command" }, 1500)
    },
  }, "Copy as command")
  return h("div", { class: "cli" }, code, button)
}

// graph draws the steps of an operator from left to right. It says nothing that the
// table of steps doesn't.
export function graph(nodes, label, note) {
  const depth = new Map(), w = 150, hh = 44, gapX = 50, gapY = 16
  const all = new Map(nodes.map(n => [n.name, n]))
  for (const n of nodes) for (const to of n.to || []) if (!all.has(to)) all.set(to, { name: to, kind: "output", to: [] })
  const walk = (name, d, way) => {
    if (way.has(name) || (depth.get(name) ?? -1) >= d) return
    depth.set(name, d)
    for (const to of all.get(name).to || []) walk(to, d + 1, new Set(way).add(name))
  }
  for (const n of nodes) if (n.kind === "input") walk(n.name, 0, new Set())
  const columns = [], at = new Map()
  for (const n of all.values()) {
    const d = depth.get(n.name) ?? 0
    columns[d] ||= []
    at.set(n.name, [d * (w + gapX) + 1, columns[d].push(n.name) * (hh + gapY) - hh])
  }
  const height = Math.max(...columns.map(c => (c || []).length)) * (hh + gapY) + gapY
  const g = s("svg", { class: "graph", role: "img", "aria-label": label, viewBox: `0 0 ${columns.length * (w + gapX) - gapX + 2} ${height}`, width: columns.length * (w + gapX) - gapX + 2, height })
  for (const n of all.values()) {
    const [x, y] = at.get(n.name)
    for (const to of n.to || []) {
      const [tx, ty] = at.get(to)
      g.append(s("path", { d: `M${x + w} ${y + hh / 2}C${x + w + gapX / 2} ${y + hh / 2} ${tx - gapX / 2} ${ty + hh / 2} ${tx} ${ty + hh / 2}` }))
    }
  }
  for (const n of all.values()) {
    const [x, y] = at.get(n.name), extra = note(n)
    const cut = t => t.length > 21 ? t.slice(0, 20) + "…" : t
    g.append(s("g", {}, s("title", {}, n.name + (n.config ? "\n" + n.config : "")),
      s("rect", { x, y, width: w, height: hh, rx: 5, class: extra.hot ? "hot" : "" }),
      s("text", { x: x + 8, y: y + 18 }, cut(n.name)),
      s("text", { x: x + 8, y: y + 34, class: "sub" }, cut(n.kind + (extra.text ? " · " + extra.text : "")))))
  }
  return h("div", { class: "wide" }, g)
}
