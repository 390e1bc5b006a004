// Only the site uses this. A page that was opened from a folder (file:) may not start a Worker, and the site's search needs
// one: there, a hidden frame runs the same script.
if (location.protocol === "file:") window.Worker = class extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    frame.title = "Search";
    this.ready = new Promise((resolve) => frame.addEventListener("load", () => {
      const inside = frame.contentWindow, script = frame.contentDocument.createElement("script");
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", {data}));
      script.addEventListener("load", () => resolve(inside));
      script.src = url;
      frame.contentDocument.head.append(script);
    }, {once: true}));
    document.body.append(frame);
  }
  postMessage(data) {
    this.ready.then((inside) => inside.dispatchEvent(new MessageEvent("message", {data})));
  }
};
