"""The observations of the clients of serve_clients.py, and whether the figures of the server's /metrics agree with it."""
import collections
import re
import threading
import time
import urllib.request

METRICS = "/metrics"


class Seen:
    """Used by all threads."""

    def __init__(self):
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.statuses = collections.Counter()
        self.problems = []

    def count(self, what, n=1):
        with self.lock:
            self.counts[what] += n

    def answered(self, status):
        with self.lock:
            self.statuses[int(status)] += 1

    def problem(self, text):
        with self.lock:
            self.counts["problems"] += 1
            if len(self.problems) < 20:
                self.problems.append(text[:500])

    def unknown(self):
        """Requests whose outcome no client has seen, since it left, was killed or got no answer."""
        return self.counts["left"] + self.counts["killed"] + self.counts["unanswered"]


class Figures:
    """The server's figures at one time."""

    def __init__(self, url):
        self.text = urllib.request.urlopen(url + METRICS, timeout=60).read().decode()

    def value(self, name):
        return int(re.search(rf"^strata_serve_{name} (\d+)$", self.text, re.M)[1])

    def requests(self):
        """Their numbers by endpoint and status, without those for figures."""
        found = re.findall(r'^strata_serve_requests_total\{endpoint="(.*)",status="(\d+)"\} (\d+)$', self.text, re.M)
        return collections.Counter({(endpoint, int(status)): int(n) for endpoint, status, n in found if endpoint != METRICS})

    def statuses(self):
        sums = collections.Counter()
        for (_, status), n in self.requests().items():
            sums[status] += n
        return sums


def agreement(seen, figures):
    """The requests that the server counted and no client saw, by status, and whether the clients that saw nothing explain it."""
    server = figures.statuses()
    excess = {status: server[status] - seen.statuses[status] for status in sorted(server.keys() | seen.statuses.keys())}
    holds = all(n >= 0 for n in excess.values()) and sum(excess.values()) <= seen.unknown()
    return {status: n for status, n in excess.items() if n != 0}, holds


def wait_until_idle(url, seen):
    """Returns the figures once no client that has left has a place any more, and the last answers have been counted."""
    until = time.monotonic() + 15
    while True:
        figures = Figures(url)
        idle = figures.value("queue_length") == 0 and figures.value("active_sequences") == 0
        excess, agrees = agreement(seen, figures)
        if idle and agrees:
            return figures
        if time.monotonic() > until:
            break
        time.sleep(0.1)
    if not idle:
        seen.problem(f"sequences of clients that have left are still there: {figures.text[-900:]}")
    if not agrees:
        seen.problem(f"/metrics has counted other requests than the clients: {excess} more by status, {seen.unknown()} unseen")
    return figures
