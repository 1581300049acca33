// Which screen is shown, when it is filled again, and who is signed in.
import { about, ask, Refusal, signedIn, signIn, signOut } from "./api.js"
import { ago, copyable, h, short } from "./ui.js"
import { screens } from "./views.js"
import { tail } from "./tail.js"

const $ = id => document.getElementById(id)
const every = 2000 // ms between two looks
const main = $("main"), login = $("login")
let turn = 0, leave, paused = false, timer

function say(text, bad) {
  if ($("status").textContent !== text) $("status").textContent = text
  $("status").className = bad ? "bad" : ""
}

const menu = [...Object.entries(screens).filter(([, v]) => !v.under), ["tail", { title: "Live tail" }]]
for (const [name, v] of menu) $("nav").append(h("a", { href: "#" + name, id: "to-" + name }, v.title))

async function open() {
  const mine = ++turn
  clearTimeout(timer)
  leave?.()
  leave = undefined
  const [path, query = ""] = location.hash.slice(1).split("?")
  const [name, rest] = (path || "topics").split("/")
  const screen = screens[name], of = decodeURIComponent(rest || "")
  for (const [n] of menu) $("to-" + n).toggleAttribute("aria-current", false)
  $("to-" + (screen?.under || name))?.setAttribute("aria-current", "page")
  main.replaceChildren()
  login.hidden = true
  if (!screen && name !== "tail") { main.append(h("h1", {}, "There is no such screen")); return }
  const title = (screen?.title || "Live tail") + (of ? " " + of : "")
  document.title = title + " – Herald console"
  main.append(h("h1", {}, title))
  if (name === "tail") {
    try { await who() } catch (e) { refused(e); return }
    if (mine === turn) leave = tail(main, query, say)
    return
  }
  main.append(copyable(screen.command(of)))
  const body = h("div", {})
  main.append(body)
  let fill
  const look = async () => {
    if (mine !== turn) return
    if (!paused && !document.hidden) {
      try {
        await who()
        await (fill ||= screen.make(body, of || undefined))()
        if (mine === turn) say("as of " + new Date().toLocaleTimeString())
      } catch (e) {
        if (mine !== turn) return
        if (refused(e)) return
      }
    }
    if (mine === turn) timer = setTimeout(look, every)
  }
  await look()
}

// refused says what went wrong, and tells whether asking again is of no use.
function refused(e) {
  if (!(e instanceof Refusal)) console.error(e)
  if (e.status === 401) {
    say(signedIn() ? "The broker knows no user with these credentials" : "", signedIn())
    main.replaceChildren()
    login.hidden = false
    login.user.focus()
    return true
  }
  say(e.message, true)
  return false
}

let known = ""

// who shows as whom the page asks, once.
async function who() {
  if (known) return
  let a = {}
  try {
    a = await ask("$SYS.REQ.USER.INFO")
  } catch (e) {
    if (e.status === 401 || e.status === 0) throw e
    known = "a user who may not ask who it is" // and may ask other things
  }
  if (!known) known = (a.data?.user ? a.data.user + " in " : "") + "account " + (a.data?.account_name || a.data?.account || "?")
  $("who").textContent = known
  $("out").hidden = !signedIn()
}

async function head() {
  try {
    const a = await about()
    $("server").replaceChildren(short(a.server), a.cluster ? " of " + a.cluster : "")
    $("facts").textContent = `version ${a.version}, started ${ago(a.started)}. ` + (a.durable ? "Durable messages are acknowledged " + a.acknowledged + ". " : "Durable topics are off. ") + "This page only reads."
  } catch (e) { say(e.message, true) }
}

login.addEventListener("submit", e => {
  e.preventDefault()
  const f = new FormData(login)
  signIn(f.get("user"), f.get("pass"), f.get("token"))
  login.reset()
  known = ""
  open()
})
$("out").addEventListener("click", () => { signOut(); known = ""; $("who").textContent = ""; $("out").hidden = true; open() })
$("pause").addEventListener("click", () => {
  paused = !paused
  $("pause").setAttribute("aria-pressed", paused)
  if (paused) say("paused: the figures stand still")
})
$("theme").addEventListener("click", () => {
  const next = { "": "dark", dark: "light", light: "" }[document.documentElement.dataset.theme || ""]
  theme(next)
  try { localStorage.setItem("herald-theme", next) } catch { /* not kept, then */ }
})

function theme(t) {
  if (t) document.documentElement.dataset.theme = t
  else delete document.documentElement.dataset.theme
  $("theme").textContent = { dark: "Dark", light: "Light" }[t] || "Theme"
}

try { theme(localStorage.getItem("herald-theme") || "") } catch { /* as the system has it */ }
window.addEventListener("hashchange", () => { open().then(() => main.focus({ preventScroll: true })) })
window.addEventListener("refused", e => refused(e.detail))
head()
open()
