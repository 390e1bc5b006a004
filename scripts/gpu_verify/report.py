"""gpu_verify.json: parts and their items. The whole file is rewritten after every item."""
import json
import os
import threading
import time

NO_TIME = "no time was left"


class Report:
    """All results so far, also those of earlier runs into the same file. An item replaces the one of the same
    name; a part that was recorded with another commit or GPU starts anew."""

    def __init__(self, path, commit, gpu, backend):
        self.path, self.commit, self.gpu = path, commit, gpu
        self.lock = threading.RLock()  # items come from several threads
        try:
            self.data = json.loads(path.read_text())
            if not isinstance(self.data.get("parts"), dict):
                raise ValueError
        except (OSError, ValueError, AttributeError):
            self.data = {"parts": {}}
        self.data = {"date": time.strftime("%Y-%m-%d"), "commit": commit, "gpu": gpu, "backend": backend,
                     "parts": self.data["parts"]}  # fmt: skip

    def begin(self, part):
        made_by = {"commit": self.commit, "gpu": self.gpu and self.gpu.get("name")}
        before = self.data["parts"].get(part, {})
        same = isinstance(before.get("items"), dict) and all(before.get(key) == made_by[key] for key in made_by)
        self.data["parts"][part] = {**made_by, "date": time.strftime("%Y-%m-%d"), "items": before["items"] if same else {}}

    def end(self, part, seconds, error=None):
        self.data["parts"][part]["seconds"] = round(seconds, 1)
        if error:
            self.data["parts"][part]["error"] = error
        self.write()

    def items(self, part):
        return self.data["parts"].get(part, {}).get("items", {})

    def record(self, part, item, result):
        with self.lock:
            self._record(self.data["parts"][part]["items"], item, result)

    def _record(self, items, item, result):
        if result.get("skipped") == NO_TIME and item in items:
            return  # an earlier result is worth more
        items[item] = result
        self.write()

    def write(self):
        """Replaces the old file by a new one, so that no reader sees a half-written file, even if the machine
        is taken away."""
        draft = self.path.with_name(self.path.name + f".draft-{os.getpid()}")
        with draft.open("w") as file:
            file.write(json.dumps(self.data, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path)

    def failures(self, part):
        """{item: error} of a part; the key "" is the part itself."""
        record = self.data["parts"].get(part, {})
        own = {"": record["error"]} if "error" in record else {}
        return {**own, **{name: item["error"] for name, item in self.items(part).items() if "error" in item}}

    def row(self, part, highlights):
        items = self.items(part)
        failed, skipped = self.failures(part), {name: item["skipped"] for name, item in items.items() if "skipped" in item}
        passed = sum("error" not in item and "skipped" not in item for item in items.values())
        text = f"{passed} passed, {len(skipped)} skipped, {len(failed)} failed"
        if failed:
            name, error = next(iter(failed.items()))
            return f"{text}; {name or 'the part'}: {' '.join(error.split())[:150]}"
        if skipped and not passed:
            return f"{text}: {next(iter(skipped.values()))[:150]}"
        said = "; ".join(highlights(items)) if highlights else ""
        return text + (f"; {said}" if said else "")
