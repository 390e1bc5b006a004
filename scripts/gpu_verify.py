#!/usr/bin/env python3
"""Runs the parts of scripts/gpu_verify.sh over a build, and leaves one JSON and one table.

Where there is no GPU, tests that need one skip themselves and the rest runs on the host backend with small models, so that the
script itself is known to work. A part that fails does not stop the others."""
import argparse
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

PARTS = ("tests", "sanitizer", "rates", "profile", "peers", "losses", "placements", "lifecycle", "choices", "scenarios")


class Failed(Exception):
    pass


def run(command, timeout, environment=None):
    """stdout; what it printed on stderr goes into the failure."""
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=timeout, env=environment)
    except subprocess.TimeoutExpired as late:
        raise Failed(f"{command[0]}: not done after {late.timeout:.0f} s") from late
    if done.returncode != 0:
        raise Failed(f"{command[0]}: exit code {done.returncode}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout


class Verification:
    def __init__(self, options):
        self.build = pathlib.Path(options.build).resolve()
        self.out = pathlib.Path(options.out).resolve()
        self.quick = options.quick
        self.sizes = options.sizes.split(",") if options.sizes else None
        self.end = time.monotonic() + options.minutes * 60
        self.strata = self.build / "cli/strata"
        self.out.mkdir(parents=True, exist_ok=True)
        self.environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(self.search_paths())}
        self.gpu = self.find_gpu() if self.sees_gpu() else None
        self.backend = "cuda" if self.gpu else "host"

    def search_paths(self):
        """Of a packed build its own libraries; of cuBLASLt, which is loaded by name, wherever there is one."""
        places = [self.build / "lib", "/usr/local/cuda/lib64"]
        places += [pathlib.Path(folder) / "nvidia" / part / "lib" for folder in sys.path for part in ("cu13", "cublas", "cudnn")]
        found = [str(place) for place in places if pathlib.Path(place).is_dir()]
        return found + [path for path in [os.environ.get("LD_LIBRARY_PATH")] if path]

    def sees_gpu(self):
        """Whether the build has CUDA and a GPU for it."""
        done = subprocess.run([self.strata, "doctor", "--json"], capture_output=True, text=True, env=self.environment)
        checks = json.loads(done.stdout)["checks"] if done.stdout else []
        return any(check["name"] == "cuda" and check["health"] == "ok" for check in checks)

    @staticmethod
    def find_gpu():
        if shutil.which("nvidia-smi") is None:
            return None
        query = "name,driver_version,memory.total,clocks.max.sm,power.limit"
        done = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True)
        line = done.stdout.strip().split("\n")[0]
        return dict(zip(query.split(","), line.split(", "))) if done.returncode == 0 and line else None

    def left(self):
        return max(1.0, self.end - time.monotonic())

    # --- what is right

    def tests(self):
        """Every test that needs a GPU: ops and steps beside the host's, streams and copies, whole runs."""
        results, failures = {}, []
        for test in (self.build / "gpu_tests.txt").read_text().split():
            report = self.out / (pathlib.Path(test).name + ".json")
            log = self.out / (pathlib.Path(test).name + ".log")
            with log.open("w") as output:
                try:
                    code = subprocess.run([self.build / test, f"--gtest_output=json:{report}"], stdout=output,
                                          stderr=subprocess.STDOUT, timeout=min(180, self.left()),
                                          env=self.environment).returncode  # fmt: skip
                except subprocess.TimeoutExpired:
                    code = "late"
            counts = {"passed": 0, "skipped": 0, "failed": 0}
            cases = json.loads(report.read_text())["testsuites"] if report.exists() else []
            for case in (case for suite in cases for case in suite["testsuite"]):
                state = "failed" if "failures" in case else "skipped" if case["result"] == "SKIPPED" else "passed"
                counts[state] += 1
                if state == "failed":
                    failures.append(f"{case['classname']}.{case['name']}")
            if code != 0 and counts["failed"] == 0:
                failures.append(f"{test}: exit code {code}")
            report.unlink(missing_ok=True)
            results[pathlib.Path(test).name] = counts
        results["failures"] = failures
        if failures:
            results["error"] = f"{len(failures)} failed, the first {failures[0]}"
        return results

    def sanitizer(self):
        """Accesses out of bounds and races in ops, by compute-sanitizer."""
        tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        if not self.gpu or not pathlib.Path(tool).exists():
            return {"skipped": "no GPU" if not self.gpu else "no compute-sanitizer"}
        results = {}
        for check, only in (("memcheck", "*Norms*/bf16:*Attention*/bf16"), ("racecheck", "*Attention*/bf16"), ("initcheck", "*Norms*/f32")):
            command = [tool, "--tool", check, "--error-exitcode", "9", self.build / "tests/kernels/device_ops_test"]
            try:
                done = subprocess.run([*command, f"--gtest_filter={only}"], capture_output=True, text=True, env=self.environment,
                                      timeout=min(90, self.left()))  # fmt: skip
            except subprocess.TimeoutExpired:
                results[check] = "late"
                continue
            said = done.stdout + done.stderr
            unsupported = "Device not supported" in said or "not supported" in said and "ERROR SUMMARY" not in said
            results[check] = "clean" if done.returncode == 0 else "not supported here" if unsupported else "found something"
            if results[check] == "found something":
                results["error"] = f"{check}: {said.strip()[-600:]}"
        return results

    def train(self, name, *settings, backend=None, model=("--preset", "austen-5m"), environment=None, keep=False, limit=math.inf):
        """A run's summary; its folder goes unless it is to be kept."""
        folder = self.out / "run" / name
        shutil.rmtree(folder, ignore_errors=True)
        run([self.strata, "train", *model, "--out", folder, f"memory.backend={backend or self.backend}", "train.max_time=none",
             "log.sample_every=0", "train.eval_every=0", "data.val=[]", f"checkpoint.at_end={str(keep).lower()}", f"memory.nvme_dir={self.out}/nvme",
             f"data.cache_dir={self.out}/cache", *settings], min(limit, self.left()), environment={**self.environment, **(environment or {})})  # fmt: skip
        summary = json.loads((folder / "summary.json").read_text())
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        summary["losses"] = [line["loss"] for line in lines if "loss" in line]
        if not keep:
            shutil.rmtree(folder)
        return summary

    LOSSES = ("optim.warmup=3", "memory.device=256MiB", "memory.pinned=256MiB", "memory.nvme=0")

    def losses_of(self, *settings, **how):
        steps = f"train.steps={12 if self.quick else 30}"
        return self.train("losses", steps, *self.LOSSES, *settings, **how)["losses"]

    def losses(self):
        """The loss curve of the small model, on the host and on what is verified."""
        results = {}
        for dtype, bar in (("f32", 1e-3), ("bf16", 2e-2)):
            here, host = self.losses_of(f"train.dtype={dtype}"), self.losses_of(f"train.dtype={dtype}", backend="host")
            results[dtype] = compared(here, host, bar)
        return with_errors(results)

    def choices(self):
        """What a run has to ask for, beside the host: its losses, and the rates that forecasts of it go by. Each by itself, and
        not for long: what does not work here is told, and stops nothing."""
        if not self.gpu:
            return {"skipped": "no GPU"}
        results = {}
        kinds = {"fp8": ("train.fp8=true",), "cudnn": ("train.attention=cudnn",), "wgmma": ("train.attention=wgmma",)}
        for kind, asked in kinds.items():
            try:
                here = self.losses_of("train.dtype=bf16", *asked, limit=60)
                host = self.losses_of("train.dtype=bf16", *(asked if kind == "fp8" else ()), backend="host")
                results[kind] = compared(here, host, 2e-2)
            except Failed as failure:
                asks = re.search(r"train\.(fp8|attention) = \w+: ", str(failure))  # another GPU, or a build or machine without it
                results[kind] = {"skipped" if asks else "error": str(failure)}
        try:
            rates = run([self.strata, "bench", "--json", "--backend", self.backend, "--quick", "--choices", "--out",
                         self.out / "choices.toml"], min(120, self.left()), self.environment)  # fmt: skip
            device = json.loads(rates)["device"]
            results["rates"] = {key: device.get(key) for key in ("tflops_8bit", "wgmma_attention_tflops", "cudnn_attention_tflops")}
        except Failed as failure:
            results["rates"] = {"error": str(failure)}
        return with_errors(results)

    def placements(self):
        """The small model in several placements, every bit compared: budgets that cap the device among them."""
        text = run([self.strata, "verify", "--preset", "austen-5m", "--steps", "3" if self.quick else "10",
                    f"memory.backend={self.backend}", f"memory.nvme_dir={self.out}/nvme", f"data.cache_dir={self.out}/cache",
                    "log.sample_every=0"], self.left(), self.environment)  # fmt: skip
        return {"said": text.strip().split("\n")[-1]}

    def lifecycle(self):
        """A run in other orders, and stopped and gone on with, ends in the same bits; what is done with it afterwards works."""
        most, less = ("48MiB", "32MiB") if self.backend == "host" else ("80MiB", "64MiB")  # a GPU's products have scratch
        common = ("train.dtype=bf16", "optim.schedule=constant", "optim.warmup=2", "train.micro_batch=2", "train.grad_accum=4",
                  f"memory.device={most}", "memory.pinned=192MiB", "memory.nvme=0")  # fmt: skip
        straight = self.train("straight", *common, "train.steps=6")["state_digest"]
        ways = {"layer by layer": ("offload.order=layer",), "activations in RAM": ("offload.activations=pinned", "train.recompute=none"),
                "updates on trust": ("offload.step_mode=speculative",), "updates at the end": ("offload.step_mode=serial",)}  # fmt: skip
        for way, settings in ways.items():
            if self.train("way", *common, "train.steps=6", *settings)["state_digest"] != straight:
                raise Failed(f"{way}: other bits")
        folder = self.out / "run" / "stopped"
        self.train("stopped", *common, "train.steps=3", keep=True)
        run([self.strata, "train", "--resume", folder, "train.steps=6", f"memory.device={less}"], self.left(), self.environment)
        if json.loads((folder / "summary.json").read_text())["state_digest"] != straight:
            raise Failed("stopped after three steps and gone on with in less memory: other bits")
        novel = "examples/data/austen/persuasion.txt"
        loss = json.loads(run([self.strata, "eval", folder, "--data", novel, "--batches", "4", "--json"], self.left(), self.environment))
        prompts = ("--prompt", "Elizabeth ", "--prompt", "It is a truth ", "--tokens", "24", "--temperature", "0", "--json")
        told = run([self.strata, "generate", folder, *prompts], self.left(), self.environment)
        run([self.strata, "export", folder, "--out", self.out / "run" / "exported", "--check"], self.left(), self.environment)
        again = run([self.strata, "generate", self.out / "run" / "exported", *prompts, f"memory.backend={self.backend}"],
                    self.left(), self.environment)  # fmt: skip
        if texts_of(told) != texts_of(again):
            raise Failed(f"the exported model writes other text: {texts_of(again)}, not {texts_of(told)}")
        return {"digest": straight, "ways": len(ways) + 1, "eval": {key: loss[key] for key in loss if key in ("loss", "bits_per_byte")}, "generated": texts_of(told)}

    # --- what is fast

    def rates(self):
        return json.loads(run([self.build / "bench/machine_rates", *(("--gib", "0.125", "--rounds", "2") if self.quick else ())],
                              min(150, self.left()), self.environment))  # fmt: skip

    def profile(self):
        """What plans for this machine go by; the forecasts of the scenarios do."""
        text = run([self.strata, "bench", "--json", "--backend", self.backend, "--nvme-dir", self.out / "nvme", "--out",
                    self.profile_path(), *(("--quick",) if self.quick else ())], self.left(), self.environment)  # fmt: skip
        return json.loads(text)

    def profile_path(self):
        folder = self.out / "cache-home" / "strata"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / ("machine-cuda.toml" if self.gpu else "machine.toml")

    def peers(self):
        """PyTorch's products and attention, of the shapes that strata bench measures its own by."""
        script = pathlib.Path(__file__).with_name("gpu_peers.py")
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=self.left())
        return json.loads(done.stdout) if done.returncode == 0 else {"skipped": done.stderr.strip()[-300:]}

    def scenarios(self):
        """Steps of models with states on the device, in RAM and on disk, beside their forecasts."""
        usual = USUAL_SIZES if self.gpu and not self.quick else ("small",)
        sizes = [size for size in SIZES if size["name"] in (self.sizes or usual)]
        results = {}
        for size in sizes:
            for name, *budgets in size["placements"]:
                label = f"{size['name']}, {name}"
                if time.monotonic() >= self.end:
                    results[label] = {"skipped": "no time was left"}
                    continue
                try:
                    summary = self.train("scenario", *size["model"], *budgets, model=(),
                                         environment={"XDG_CACHE_HOME": str(self.out / "cache-home")})  # fmt: skip
                except Failed as failure:
                    results[label] = {"error": str(failure)}
                    continue
                results[label] = scenario_figures(summary)
        return with_errors(results)


def with_errors(results):
    """As a part's result, which failed if one of its own did."""
    errors = [f"{label}: {one['error']}" for label, one in results.items() if "error" in one]
    return {**results, "error": errors[0]} if errors else results


def compared(here, host, bar):
    """Losses beside the host's: no further than the bar from any, and falling."""
    off = max(abs(a - b) / abs(b) for a, b in zip(here, host, strict=True))
    result = {"first": here[0], "last": here[-1], "furthest_from_host": off, "bar": bar}
    if not off <= bar or not here[-1] < here[0]:
        result["error"] = f"{off:.2e} from the host's losses, of at most {bar}; from {here[0]} to {here[-1]}"
    return result


def texts_of(generated):
    return [json.loads(line)["text"] for line in generated.splitlines() if line.startswith("{")]


def scenario_figures(summary):
    figures = {key: summary[key] for key in ("tokens_per_s", "peak_bytes", "planned_bytes", "moved_bytes", "bottleneck", "forecast")}
    figures["losses_finite"] = all(math.isfinite(loss) for loss in summary["losses"])
    if not figures["losses_finite"]:
        figures["error"] = "a loss that is no number"
    return figures


def llama(layers, hidden, heads, ffn, seq, micro_batch, grad_accum, vocab, steps):
    return (f"model.layers={layers}", "model.family=llama", f"model.hidden={hidden}", f"model.heads={heads}", f"model.ffn={ffn}",
            f"model.seq={seq}", f"model.vocab={vocab}", f"train.micro_batch={micro_batch}", f"train.grad_accum={grad_accum}",
            f"train.steps={steps}", "optim.warmup=2", "train.dtype=bf16",
            "data.train=examples/data/austen/pride_and_prejudice.txt,examples/data/austen/sense_and_sensibility.txt")  # fmt: skip


SMALL = {"name": "small", "model": llama(4, 128, 4, 352, 128, 2, 2, 1024, 12),
         "placements": (("all on the device", "offload.policy=device", "memory.device=64MiB", "memory.nvme=0"),
                        ("states in RAM", "memory.device=14MiB", "memory.pinned=64MiB", "memory.nvme=0"),
                        ("states on disk", "memory.device=14MiB", "memory.pinned=10MiB", "memory.nvme=64MiB"))}  # fmt: skip
LLAMA_1B = {"name": "1.2B", "model": llama(24, 2048, 16, 5504, 2048, 4, 2, 8192, 12),
            "placements": (("all on the device", "offload.policy=device", "memory.nvme=0"),
                           ("states in RAM", "memory.device=16GiB", "memory.nvme=0"),
                           ("all in RAM", "memory.device=10GiB", "offload.policy=pinned", "memory.nvme=0"),
                           ("states on disk", "memory.device=16GiB", "memory.pinned=8GiB", "memory.nvme=32GiB"))}  # fmt: skip
LLAMA_7B = {"name": "6.5B", "model": llama(32, 4096, 32, 11008, 2048, 4, 2, 8192, 5),
            "placements": (("all on the device", "offload.policy=device", "memory.nvme=0"),
                           ("states in RAM", "memory.device=48GiB", "memory.nvme=0"))}  # fmt: skip
LLAMA_7B_32K = {"name": "6.5B at 32 K", "model": llama(32, 4096, 32, 11008, 2048, 4, 4, 8192, 4), "placements": LLAMA_7B["placements"]}
LLAMA_7B_64K = {"name": "6.5B at 64 K", "model": llama(32, 4096, 32, 11008, 2048, 4, 8, 8192, 4), "placements": LLAMA_7B["placements"]}
LLAMA_13B = {"name": "13B", "model": llama(40, 5120, 40, 13824, 2048, 4, 2, 8192, 4), "placements": (("over the device and RAM", "memory.nvme=0"),)}
LLAMA_20B = {"name": "20B", "model": llama(44, 6144, 48, 16384, 2048, 8, 1, 8192, 4),
             "placements": (("over the device, RAM and disk", "memory.nvme=56GiB"),)}  # fmt: skip
SIZES = (SMALL, LLAMA_1B, LLAMA_7B, LLAMA_7B_32K, LLAMA_7B_64K, LLAMA_13B, LLAMA_20B)
USUAL_SIZES = ("1.2B", "6.5B")  # what ten minutes are enough for


def row_of(name, result):
    if "error" in result:
        return f"FAILED: {result['error'][:150]}"
    if "skipped" in result:
        return f"skipped: {result['skipped'][:150]}"
    if name == "tests":
        counted = [counts for counts in result.values() if isinstance(counts, dict)]
        return ", ".join(f"{sum(counts[state] for counts in counted)} {state}" for state in ("passed", "skipped", "failed"))
    if name in ("losses", "choices"):
        return ", ".join(f"{kind}: " + (f"{one['furthest_from_host']:.1e} from the host's" if "bar" in one else "not here")
                         for kind, one in result.items() if kind != "rates")  # fmt: skip
    if name == "placements":
        return result["said"]
    if name == "lifecycle":
        return f"the same bits {result['ways']} other ways; the export writes the same text"
    if name == "scenarios":
        return "; ".join(f"{label}: {one['tokens_per_s']:.0f} tokens/s" for label, one in result.items() if "tokens_per_s" in one)
    return "done"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--parts", default=",".join(PARTS), help="of " + ",".join(PARTS))
    parser.add_argument("--minutes", type=float, default=9.5, help="what has not begun by then is left out")
    parser.add_argument("--quick", action="store_true", help="small models and short measurements")
    parser.add_argument("--sizes", help="of the scenarios, names of " + ", ".join(size["name"] for size in SIZES))
    parser.add_argument("--commit", default="unknown")
    options = parser.parse_args()
    wanted = options.parts.split(",")
    if unknown := [part for part in wanted if part not in PARTS]:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if unknown := [size for size in (options.sizes or "").split(",") if size and size not in [one["name"] for one in SIZES]]:
        parser.error(f"no size {', '.join(unknown)}; there are {', '.join(one['name'] for one in SIZES)}")
    verification = Verification(options)
    report = {"date": time.strftime("%Y-%m-%d"), "commit": options.commit, "gpu": verification.gpu, "backend": verification.backend,
              "parts": {}}  # fmt: skip
    for name in (part for part in PARTS if part in wanted):
        begin = time.monotonic()
        print(f"== {name}", flush=True)
        if begin >= verification.end:
            result = {"skipped": "no time was left"}
        else:
            try:
                result = getattr(verification, name)()
            except (Failed, OSError, ValueError, KeyError, subprocess.SubprocessError) as failure:
                result = {"error": f"{type(failure).__name__}: {failure}"}
        result["seconds"] = round(time.monotonic() - begin, 1)
        report["parts"][name] = result
        (verification.out / "gpu_verify.json").write_text(json.dumps(report, indent=1) + "\n")  # what there is, should it be cut short
    shutil.rmtree(verification.out / "run", ignore_errors=True)
    print(f"\n{report['gpu']['name'] if report['gpu'] else 'no GPU: the host backend'}, commit {report['commit']}")
    for name, result in report["parts"].items():
        seconds = result.pop("seconds")
        print(f"  {name:<11} {seconds:>6.1f} s  {row_of(name, result)}")
        result["seconds"] = seconds
    failed = [name for name, result in report["parts"].items() if "error" in result]
    print(f"{verification.out}/gpu_verify.json; failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
