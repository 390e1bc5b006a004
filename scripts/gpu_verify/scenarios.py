"""Runs steps of large models with states on the GPU, in RAM and on NVMe, and compares them with the peak
measured in the same run and with their forecasts. The plan says where states are; it is checked against the
scenario's name before the run, and against the bytes moved after it."""
import dataclasses
import json
import math
import re
import shutil
import statistics

import rates
from check import folder_removed
from placements import PLACEMENTS, PlanResidency
from processes import CheckFailed
from report import NO_TIME
from training import Run, finished_steps, plain_settings, read_json

WARM_UP = 3  # steps that the averages leave out
STEPS = 8


@dataclasses.dataclass
class Model:
    name: str
    layers: int
    hidden: int
    heads: int
    ffn: int
    seq: int
    vocab: int
    micro_batch: int

    def settings(self, grad_accum):
        novels = ",".join(f"examples/data/austen/{name}.txt" for name in ("pride_and_prejudice", "sense_and_sensibility"))
        return (f"model.layers={self.layers}", "model.family=llama", f"model.hidden={self.hidden}", f"model.heads={self.heads}",
                f"model.ffn={self.ffn}", f"model.seq={self.seq}", f"model.vocab={self.vocab}", f"train.micro_batch={self.micro_batch}",
                f"train.grad_accum={grad_accum}", f"train.steps={STEPS}", "optim.warmup=2", "train.dtype=bf16", f"data.train={novels}")  # fmt: skip

    def flops(self, parameters, tokens):
        """FLOPs of a step: 6 per parameter and token, and causal attention; recomputation does not count."""
        return 6.0 * parameters * tokens + 6.0 * self.layers * self.hidden * self.seq * tokens


SMALL = Model("small", 4, 128, 4, 352, 128, 1024, 2)
LLAMA_1B = Model("1.2B", 24, 2048, 16, 5504, 2048, 8192, 4)
QUARTER_7B = Model("7B/4", 8, 4096, 32, 11008, 2048, 8192, 4)  # a quarter of its layers
LLAMA_7B = Model("6.5B", 32, 4096, 32, 11008, 2048, 8192, 4)
LLAMA_13B = Model("13B", 40, 5120, 40, 13824, 2048, 8192, 4)
LLAMA_20B = Model("20B", 44, 6144, 48, 16384, 2048, 8192, 8)


@dataclasses.dataclass
class Scenario:
    model: Model
    placement: str
    grad_accum: int = 2
    layer_order: bool = False
    recompute: str = "full"
    attention: str = "mma"
    usual: bool = True  # False: only if --scenarios names it
    extra: tuple = ()  # settings
    free: bool = False  # nothing is forced but what `extra` sets

    def tokens(self):
        return self.model.seq * self.model.micro_batch * self.grad_accum

    def name(self):
        tokens = f"{self.tokens() // 1024} Ki tokens" if self.tokens() >= 1024 else f"{self.tokens()} tokens"
        rest = ["layer order"] if self.layer_order else []
        rest += [f"{self.recompute} recomputation"] if self.recompute != "full" else []
        rest += [f"attention by {self.attention}"] if self.attention != "mma" else []
        rest += [" ".join(self.extra)] if self.extra else []
        return ", ".join([self.model.name, self.placement, tokens, *rest])

    def settings(self):
        if self.free:
            return (*self.model.settings(self.grad_accum), *self.extra)
        return (*self.model.settings(self.grad_accum), *self.extra, f"offload.micro_batch_order={'breadth_first' if self.layer_order else 'depth_first'}",
                f"train.recompute={self.recompute}", f"train.attention_backend={self.attention}")  # fmt: skip


ON_A_GPU = (
    Scenario(LLAMA_1B, "all in HBM"),
    Scenario(LLAMA_1B, "three tiers"),
    Scenario(LLAMA_7B, "states in RAM"),
    Scenario(LLAMA_7B, "all in HBM", attention="wgmma"),
    Scenario(LLAMA_7B, "states and parameters in RAM", 8, layer_order=True, attention="wgmma"),
    Scenario(LLAMA_1B, "all in HBM", attention="wgmma"),
    Scenario(LLAMA_1B, "all in HBM", attention="cudnn"),
    Scenario(LLAMA_1B, "all in HBM", recompute="selective", attention="wgmma"),
    Scenario(LLAMA_7B, "states on NVMe", 8, layer_order=True, attention="wgmma"),
    Scenario(LLAMA_7B, "states in RAM", 4, layer_order=True, attention="wgmma"),
    Scenario(LLAMA_7B, "states in RAM", 8, layer_order=True, attention="cudnn"),
    Scenario(LLAMA_7B, "states in RAM", 16, layer_order=True, attention="wgmma"),
    Scenario(LLAMA_1B, "states on NVMe"),
    Scenario(LLAMA_13B, "states in RAM", 8, layer_order=True, attention="wgmma", usual=False),
    Scenario(LLAMA_20B, "three tiers", 4, layer_order=True, attention="wgmma", usual=False),
)
ON_THE_HOST = tuple(Scenario(SMALL, placement) for placement in PLACEMENTS) + (
    Scenario(SMALL, "states in RAM", 4, layer_order=True, recompute="selective"),)  # fmt: skip


def plan_run(check, log, settings):
    """Plans a run with these settings. Returns (plan, None), or (None, ProcessResult) if there is no plan."""
    machine = check.machine
    done = check.run(f"{log}, plan", [machine.strata, "plan", "--json", *plain_settings(machine), *settings], 120,
                     rates.cache_home(machine))  # fmt: skip
    return (rates.parsed(done.out, "strata plan"), None) if done.ok else (None, done)


def place_scenario(check, scenario):
    """Returns settings with which the states are where the scenario wants them, and their plan; or a dict
    that says why there are none."""
    placement = PLACEMENTS[scenario.placement]
    base = scenario.settings()
    if scenario.free:
        plan, refused = plan_run(check, scenario.name(), base)
        if plan is not None:
            return base, plan
        return {"skipped" if refused.code == 3 else "error": f"{refused.describe_exit()}: {refused.output_tail()}"}
    everything, refused = plan_run(check, scenario.name(), (*base, "memory.pinned=unlimited", "memory.nvme=0", "offload.policy=pinned",
                                                           "memory.device=unlimited"))  # fmt: skip
    said = []
    for budgets in placement.budgets(PlanResidency(everything), check.machine.ram_bytes()) if everything else ():
        plan, refused = plan_run(check, scenario.name(), (*base, *budgets))
        if plan is None:
            if refused.code != 3:
                break  # the budgets are not the reason
            said.append(refused.output_tail()[:300])
        elif placement.matches(PlanResidency(plan)):
            return (*base, *budgets), plan
        else:
            said.append(f"{' '.join(budgets)}: {PlanResidency(plan).text()}")
    if refused is not None and refused.code is None and check.remaining_s() < 1:
        return {"skipped": NO_TIME}
    if refused is not None and refused.code != 3:
        asks = re.search(r"train\.(fp8|attention_backend) = [\w,/]+: ", refused.output_tail())  # unsupported by GPU, build or machine
        return {"skipped" if asks else "error": f"{refused.describe_exit()}: {refused.output_tail()}"}
    if refused is not None:
        return {"skipped": f"does not fit on this machine: {said[-1]}"}
    if not said:
        return {"skipped": f"it needs more RAM than the {check.machine.ram_bytes()} bytes available"}
    # There is no other budget to try if all of HBM is used.
    return {"skipped" if scenario.placement == "all in HBM" else "error": f"no memory budgets lead to this placement; {'; '.join(said)}"}


def moved_as_planned(placement, plan, steps):
    """Raises CheckFailed if the bytes moved do not fit the placement."""
    holding, moved = PlanResidency(plan), {}
    for lane in ("h2d", "d2h", "nvme_read", "nvme_write"):
        moved[lane] = min(step["moved_bytes"][lane] for step in steps)
    for lane in ("nvme_read", "nvme_write"):
        if holding.states("nvme") > 0 and moved[lane] < holding.states("nvme") // 2:
            raise CheckFailed(f"{placement}: {holding.states('nvme')} bytes of states are at home on NVMe, but a step moved {moved[lane]} bytes of {lane}")
        if holding.params_and_states("nvme") == 0 and moved[lane] > 0:
            raise CheckFailed(f"{placement}: nothing is at home on NVMe, but a step moved {moved[lane]} bytes of {lane}")
    if holding.params("pinned") > 0 and moved["h2d"] < holding.params("pinned") // 2:
        raise CheckFailed(f"{placement}: {holding.params('pinned')} bytes of parameters are at home in RAM, but a step moved {moved['h2d']} bytes of h2d")
    if placement == "all in HBM" and moved["h2d"] > holding.params_and_states("device") // 100:
        raise CheckFailed(f"all in HBM, but a step moved {moved['h2d']} bytes of h2d")


def summarize_steps(scenario, plan, run, peak):
    """Summarises the steps that finished. All averages leave out the first WARM_UP steps."""
    tokens, steps = scenario.tokens(), run.steps[WARM_UP:]
    result = {"where": PlanResidency(plan).text(), "steps": len(run.steps), "tokens_per_step": tokens,
              "seconds_of_steps": [step["step_s"] for step in run.steps], "planned_bytes": {tier: of["planned_bytes"] for tier, of in plan["tiers"].items()}}  # fmt: skip
    if steps:
        seconds = statistics.median(step["step_s"] for step in steps)
        flops = scenario.model.flops(plan["parameters"], tokens)
        result |= {"step_s": seconds, "tokens_per_s": tokens / seconds, "model_flops_per_step": flops, "model_flops_per_s": flops / seconds,
                   "bf16_peak_flops_per_s": peak, "share_of_peak": flops / seconds / peak if peak else None,
                   "compute_s": statistics.mean(step["compute_s"] for step in steps),
                   "waits_s": {cause: statistics.mean(step["exposed_wait_s"][cause] for step in steps) for cause in steps[0]["exposed_wait_s"]},
                   "moved_bytes": steps[-1]["moved_bytes"], "last_loss": steps[-1]["loss"]}  # fmt: skip
    if run.summary:
        result |= {key: run.summary.get(key) for key in ("peak_bytes", "bottleneck")}
    try:
        if not all(math.isfinite(loss) for loss in run.losses()):
            raise CheckFailed("a loss is not finite")
        if steps:
            moved_as_planned(scenario.placement, plan, steps)
        if run.done.code is None and steps:
            result["cut_off"] = f"after {len(run.steps)} of {STEPS} steps, at {run.done.limit:.0f} s"
        else:
            run.whole()
    except CheckFailed as failure:
        result["error"] = str(failure)
    return result


def config_path(machine, name):
    return machine.out / "logs" / "configs" / (re.sub(r"[^A-Za-z0-9.]+", "_", name) + ".toml")


def scenario_run(check, scenario, peak):
    found = place_scenario(check, scenario)
    if isinstance(found, dict):
        return found
    settings, plan = found
    machine, name = check.machine, scenario.name()
    needed, free = plan["tiers"]["nvme"]["planned_bytes"], shutil.disk_usage(machine.out).free
    if needed > free:
        return {"skipped": f"it needs {needed} bytes of disk, but only {free} are free below {machine.out}"}
    folder = folder_removed(machine.out / "run" / "scenario")
    done = check.run(name, [machine.strata, "train", "--out", folder, *plain_settings(machine), "checkpoint.at_end=false", *settings],
                     machine.run_limit, rates.cache_home(machine))  # fmt: skip
    run = Run(done, finished_steps(folder / "metrics.jsonl"), read_json(folder / "summary.json"), read_json(folder / "plan.json"))
    if (folder / "config.resolved.toml").exists():
        config_path(machine, name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / "config.resolved.toml", config_path(machine, name))
    folder_removed(folder)
    if check.remaining_s() < 1 and not run.steps:
        return {"skipped": NO_TIME}
    # The run's own plan counts, which a profile may have changed: the bytes moved are checked against it.
    if run.plan and not PLACEMENTS[scenario.placement].matches(PlanResidency(run.plan)):
        return {"error": f"the run's plan has another placement than requested: {PlanResidency(run.plan).text()}"}
    return {**summarize_steps(scenario, run.plan or plan, run, peak), "settings": list(settings)}


def select_scenarios(machine):
    every = ON_A_GPU if machine.gpu and not machine.quick else ON_THE_HOST
    if not machine.scenarios:
        return [one for one in every if one.usual]
    return [one for one in every if any(text in one.name() for text in machine.scenarios)]


def scenarios(check):
    chosen = select_scenarios(check.machine)
    if not chosen:
        raise CheckFailed(f"no scenario's name contains {' or '.join(check.machine.scenarios)}")
    run_scenarios(check, chosen)


def run_scenarios(check, chosen):
    peak = []

    def measure():
        peak.append(rates.bf16_peak(check))
        return {"flops_per_s": peak[0]}

    by_name = {one.name(): one for one in chosen}
    check.run_item("bf16 peak", measure)
    for name in check.missing_first(by_name):
        check.run_item(name, lambda: scenario_run(check, by_name[name], peak[0] if peak else None))
    add_forecasts(check, check.part)


def add_forecasts(check, part="scenarios"):
    """Adds the forecast of the same run by this machine's profile, if there is one, to what was measured."""
    if not rates.profile_path(check.machine).exists():
        return
    for name, item in list(check.report.items(part).items()):
        config = config_path(check.machine, name)
        if "step_s" not in item or "forecast" in item or not config.exists() or check.remaining_s() < 1:
            continue
        done = check.run(f"{name}, forecast", [check.machine.strata, "plan", "--json", config], 60, rates.cache_home(check.machine))
        try:
            forecast = json.loads(done.require_stdout())["forecast"]
            result = {"step_s": forecast["step_s"], "tokens_per_s": forecast["tokens_per_s"], "waits_s": forecast["exposed_wait_s"],
                      "measured_by_forecast": item["step_s"] / forecast["step_s"]}  # fmt: skip
        except (CheckFailed, ValueError, KeyError, TypeError, ZeroDivisionError) as error:
            result = {"failed": str(error)[:500]}
        check.report.record(part, name, {**item, "forecast": result})


def profile_and_forecasts(check):
    rates.profile(check)
    add_forecasts(check)


def highlights(items):
    def one(name, item):
        share = f", {100 * item['share_of_peak']:.0f} % of peak" if item.get("share_of_peak") else ""
        return f"{name}: {item['tokens_per_s']:.0f} tokens/s{share}"

    return [one(name, item) for name, item in items.items() if "tokens_per_s" in item]
