"""Functions that claims over pairs of settings share: rows that cover all pairs of choices, and what differs between two runs."""
import itertools
import json
import pathlib
import random
import sys

import claim


def _pairs_of(row):
    return set(itertools.combinations(sorted(row.items()), 2))


def covering(factors, is_possible, seed):
    """Rows of one choice for each factor, which together have every pair of possible choices of two factors. `factors`: name ->
    choices; is_possible(choices of some factors): whether they may stand together."""
    rng = random.Random(seed)
    left = {tuple(sorted(((a, x), (b, y)))) for a, b in itertools.combinations(factors, 2) for x in factors[a] for y in factors[b]
            if is_possible({a: x, b: y})}
    while left:
        candidates = []
        for _ in range(40):
            row = dict(rng.choice(sorted(left)))
            for name in rng.sample(sorted(factors), len(factors)):
                if name not in row:
                    gain = {choice: sum(tuple(sorted(((name, choice), other))) in left for other in row.items()) for choice in factors[name]
                            if is_possible(row | {name: choice})}
                    row[name] = rng.choice([choice for choice in gain if gain[choice] == max(gain.values())])
            candidates.append((len(_pairs_of(row) & left), row))
        best = max(candidates, key=lambda found: found[0])[1]
        left -= _pairs_of(best)
        yield best


def outcome(root, words):
    """Trains into `root`/run and returns (summary, metrics)."""
    claim.run(["train", "--out", "run", "--overwrite", *words], root)
    return json.loads((pathlib.Path(root) / "run" / "summary.json").read_text()), claim.metrics(pathlib.Path(root) / "run")


def note_faults(name, row, summary, differs, wrong):
    """Adds a row to `wrong`, and says so, if its run differs from the plain one, if its peaks are not the planned ones, or if its
    resident set is above the limit that strata states."""
    faults = [what for what, bad in {"bits": differs, "peak": summary["peak_bytes"] != summary["planned_bytes"],
                                     "resident": summary["peak_rss_bytes"] > summary["rss_limit_bytes"]}.items() if bad]  # fmt: skip
    if faults:
        wrong.append({"faults": faults, **row})
        print(f"{name}: {wrong[-1]}", file=sys.stderr, flush=True)
