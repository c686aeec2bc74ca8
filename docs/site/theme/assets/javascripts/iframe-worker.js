// Browsers start no worker from a file. Where the site is read from a folder, the search runs in a hidden frame instead.
// The search itself looks for the name IFrameWorker in the page above it, to find its own files.
window.IFrameWorker = class extends EventTarget {
  constructor(address) {
    super();
    const frame = document.body.appendChild(Object.assign(document.createElement("iframe"), { hidden: true }));
    this.inner = frame.contentWindow;
    this.inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    this.inner.importScripts = (...scripts) => scripts.reduce((done, src) => done.then(() => this.load(src)), Promise.resolve());
    this.loaded = this.load(address);
  }

  load(src) {
    return new Promise((resolve, reject) => {
      const script = Object.assign(this.inner.document.createElement("script"), { src, onload: resolve, onerror: reject });
      this.inner.document.body.append(script);
    });
  }

  postMessage(data) {
    this.loaded.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) })));
  }
};
if (location.protocol === "file:") window.Worker = window.IFrameWorker;
