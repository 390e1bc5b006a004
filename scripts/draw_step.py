#!/usr/bin/env python3
"""Draws one training step over the three tiers from the trace of a real run, as an SVG.

    strata train run.toml log.trace=true
    scripts/draw_step.py runs/NAME/trace.json docs/images/step.svg [--step N]

Each lane shows when it was busy: the device's compute stream, the two directions of the link, the CPU that updates
optimizer states in pinned RAM, and the reads and writes of the NVMe drive. Without --step it draws the step of median
length among those whose events are all in the trace."""
import argparse
import json
import pathlib
import statistics

WIDTH, LEFT, RIGHT, TOP, LANE, GAP = 960, 150, 56, 56, 26, 10
# Lane: the tier it belongs to, and its name in the picture, by track of the trace.
LANES = [("device", "compute", "compute"), ("link", "h2d", "to the device"), ("link", "d2h", "from the device"),
         ("pinned RAM", "cpu", "CPU optimizer"), ("NVMe", "nvme read", "read"), ("NVMe", "nvme write", "write")]  # fmt: skip
COLOURS = {"forward": "#4c78a8", "backward": "#72b7b2", "copy": "#b8b0ac", "gradient": "#eeca3b", "update": "#e45756",
           "read": "#9d755d", "write": "#d8b5a5"}  # fmt: skip


def load(path):
    """{track: [(begin, end, label)]} in milliseconds, of spans, in order of begin."""
    events = json.loads(pathlib.Path(path).read_text())["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    tracks = {}
    for e in events:
        if e["ph"] == "X":
            begin = e["ts"] / 1000
            tracks.setdefault(names[e["tid"]], []).append((begin, begin + e["dur"] / 1000, e["name"]))
    return {name: sorted(spans) for name, spans in tracks.items()}


def steps(tracks):
    """[(begin, end)] of the steps: from the first queued micro-batch to that of the next step."""
    begins, fresh = [], True
    for begin, _, label in tracks.get("engine", []):
        if label == "queue micro-batch" and fresh:
            begins.append(begin)
        fresh = label == "commit"
    first_kept = max((spans[0][0] for name, spans in tracks.items() if name in ("compute", "h2d")), default=0)
    return [(b, e) for b, e in zip(begins, begins[1:], strict=False) if b >= first_kept]


def kind(track, label):
    if track == "compute":
        return "backward" if label.endswith("_backward") or "backward" in label else "forward"
    if track == "cpu":
        return "gradient" if label in ("accumulate", "norm partials") else "update"
    return {"nvme read": "read", "nvme write": "write"}.get(track, "copy")


def spans_of(tracks, track, begin, end):
    """Busy intervals of a lane by kind, clipped to the step; neighbours of one kind are merged, so that the picture stays
    small."""
    merged = []
    found = sorted(span for name, spans in tracks.items() if name == track or name.startswith(track + " ") for span in spans
                   if span[1] > begin and span[0] < end and "stalls" not in name)  # fmt: skip
    smallest = (end - begin) / (WIDTH - LEFT - RIGHT)  # one pixel
    for b, e, label in found:
        b, e, of = max(b, begin), min(e, end), kind(track, label)
        if merged and merged[-1][2] == of and b - merged[-1][1] < smallest:
            merged[-1] = (merged[-1][0], max(e, merged[-1][1]), of)
        else:
            merged.append((b, e, of))
    return merged


def draw(tracks, begin, end, title):
    scale = (WIDTH - LEFT - RIGHT) / (end - begin)
    lanes = [lane for lane in LANES if spans_of(tracks, lane[1], begin, end)]
    height = TOP + len(lanes) * (LANE + GAP) + 58
    text = 'font-family="Helvetica, Arial, sans-serif" fill="#333"'
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">',
           f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
           f'<text x="12" y="26" font-size="16" font-weight="bold" {text}>{title}</text>']  # fmt: skip
    y, last_tier, used = TOP, None, []
    for tier, track, name in lanes:
        spans = spans_of(tracks, track, begin, end)
        busy = sum(e - b for b, e, _ in spans) / (end - begin)
        if tier != last_tier:
            out.append(f'<text x="12" y="{y + 11}" font-size="12" font-weight="bold" {text}>{tier}</text>')
        out.append(f'<text x="12" y="{y + 25}" font-size="12" {text}>{name}</text>')
        out.append(f'<rect x="{LEFT}" y="{y}" width="{WIDTH - LEFT - RIGHT}" height="{LANE}" fill="#f4f4f4"/>')
        for b, e, of in spans:
            used += [of] if of not in used else []
            out.append(f'<rect x="{LEFT + (b - begin) * scale:.1f}" y="{y}" width="{max((e - b) * scale, 0.4):.1f}" '
                       f'height="{LANE}" fill="{COLOURS[of]}"><title>{of}: {e - b:.2f} ms</title></rect>')
        out.append(f'<text x="{WIDTH - RIGHT + 8}" y="{y + 17}" font-size="11" {text}>{busy:.0%}</text>')
        last_tier, y = tier, y + LANE + GAP
    for tick in range(6):
        x = LEFT + tick * (WIDTH - LEFT - RIGHT) / 5
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 4}" y2="{y - GAP + 4}" stroke="#999" stroke-width="0.5"/>')
        anchor = "end" if tick == 5 else "middle"
        out.append(f'<text x="{x:.1f}" y="{y + 10}" font-size="11" text-anchor="{anchor}" {text}>{tick * (end - begin) / 5:.0f} ms</text>')
    x = LEFT
    for of in used:
        out.append(f'<rect x="{x}" y="{y + 24}" width="12" height="12" fill="{COLOURS[of]}"/>')
        out.append(f'<text x="{x + 17}" y="{y + 34}" font-size="12" {text}>{of}</text>')
        x += 40 + 8 * len(of)
    return "\n".join([*out, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("picture")
    parser.add_argument("--step", type=int, help="which of the steps in the trace, from 0")
    parser.add_argument("--title", default="One training step over three tiers")
    options = parser.parse_args()
    tracks = load(options.trace)
    found = steps(tracks)
    if not found:
        parser.error(f"{options.trace} has no whole step: train at least three steps with log.trace=true")
    if options.step is not None and not 0 <= options.step < len(found):
        parser.error(f"--step is {options.step}; the trace has {len(found)} whole steps")
    if options.step is None:
        middle = statistics.median_low([e - b for b, e in found])
        begin, end = next(step for step in found if step[1] - step[0] == middle)
    else:
        begin, end = found[options.step]
    pathlib.Path(options.picture).write_text(draw(tracks, begin, end, options.title))


main()
