"""Parses pages with html5lib and examines them with axe-core in Chromium, for the claim report_page. Prints a list of
one object for each page: parse errors, and violations in every width and colour scheme.

    report_page_checks.py CHROMIUM '[[WIDTH, ...], [SCHEME, ...]]' PAGE ..."""
import json
import pathlib
import sys

import html5lib
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright


def parse_errors(page):
    parser = html5lib.HTMLParser()
    parser.parse(pathlib.Path(page).read_text())
    return [f"line {position[0]}: {code} {data}" for position, code, data in parser.errors]


def violations(browser, page, width, scheme):
    """["rule at 390 light: element", ...], and errors of the page's own script."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    tab, found = context.new_page(), []
    tab.on("pageerror", lambda error: found.append(f"script at {width} {scheme}: {error}"))
    tab.on("request", lambda request: request.url.startswith("file:") or found.append(f"request: {request.url}"))
    tab.goto(pathlib.Path(page).resolve().as_uri())
    result = Axe().run(tab).response
    for violation in result["violations"]:
        for node in violation["nodes"]:
            found.append(f"{violation['id']} at {width} {scheme}: {' '.join(map(str, node['target']))}: {node.get('failureSummary', '')}")
    wide = tab.evaluate("document.documentElement.scrollWidth")
    if wide > width:
        found.append(f"overflow at {width} {scheme}: the page is {wide} pixels wide")
    context.close()
    return found, len(result["passes"])


def main():
    chromium, (widths, schemes) = sys.argv[1], json.loads(sys.argv[2])
    results = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for page in sys.argv[3:]:
            found, passed = [], 0
            for width in widths:
                for scheme in schemes:
                    more, rules = violations(browser, page, width, scheme)
                    found += more
                    passed += rules
            results.append({"parse_errors": parse_errors(page), "violations": found, "rules_passed": passed})
        browser.close()
    print(json.dumps(results))


main()
