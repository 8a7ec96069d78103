/* Search runs in a web worker, which browsers refuse to pages that are opened from the disk. There
   the worker's script runs in a hidden frame instead: same messages, same thread. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      this.inside = frame.contentWindow
      this.inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      const script = this.inside.document.createElement("script")
      script.src = url
      script.onload = () => {
        this.loaded = true
        this.waiting.forEach(data => this.deliver(data))
      }
      this.inside.document.body.appendChild(script)
    }

    deliver(data) {
      this.inside.dispatchEvent(new MessageEvent("message", { data }))
    }

    postMessage(data) {
      if (this.loaded) this.deliver(data)
      else this.waiting.push(data)
    }
  }
}
