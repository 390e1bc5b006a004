"""Placements of a run's states: the memory budgets that lead to each, and how to recognise it in a plan."""
import dataclasses

MIB = 1 << 20
STATES = ("master", "m", "v")  # the optimizer's


class PlanResidency:
    """Bytes whose home is in each tier, according to a plan."""

    def __init__(self, plan):
        self.plan, self.homes = plan, plan["homes"]

    def sum(self, payloads, tiers=("device", "pinned", "nvme")):
        return sum(self.homes[payload][tier] for payload in payloads for tier in tiers)

    def states(self, *tiers):
        return self.sum(STATES, *([tiers] if tiers else []))

    def params(self, *tiers):
        return self.sum(("param",), *([tiers] if tiers else []))

    def params_and_states(self, *tiers):
        return self.sum(("param", *STATES), *([tiers] if tiers else []))

    def gradients(self, *tiers):
        return self.sum(("accum", "grad"), *([tiers] if tiers else []))

    def activations(self):
        return self.plan["activation_bytes"]

    def window(self):
        """Device bytes beyond homes and activations: the window for prefetched and cached parameters."""
        return self.plan["tiers"]["device"]["planned_bytes"] - self.activations() - self.gradients("device") - self.params_and_states("device")

    def text(self):
        def shares(what, of):
            total = max(1, of())
            return f"{what} " + " / ".join(f"{100 * of(tier) / total:.0f}" for tier in ("device", "pinned", "nvme"))

        window = f"{self.window() / MIB:.0f} MiB of window for {self.params() / MIB:.0f} MiB of parameters"
        return f"% on device / in RAM / on NVMe: {shares('parameters', self.params)}, {shares('states', self.states)}; {window}"


@dataclasses.dataclass
class Placement:
    budgets: object  # from a PlanResidency with all in RAM, and the RAM's bytes: settings, likeliest first
    matches: object  # whether a PlanResidency has this placement


def memory(device=None, pinned=None, nvme=0, policy=None):
    settings = [f"memory.nvme={int(nvme)}"]
    settings += [f"memory.device={int(device)}"] if device is not None else []
    settings += [f"memory.pinned={int(pinned)}"] if pinned is not None else []
    return (*settings, *([f"offload.policy={policy}"] if policy else []))


def small_devices(need):
    """Device budgets, from one that is certainly too small for all parameters beside activations and
    gradients."""
    return [need.activations() + part * (need.params() + need.gradients()) for part in (0.15, 0.25, 0.4, 0.6, 0.8)]


def in_ram(need, ram):
    return [memory(policy="pinned")]


def params_in_ram(need, ram):
    return [memory(device, policy="pinned") for device in small_devices(need)]


def on_nvme(need, ram):
    disk = 1.3 * (need.params_and_states() + need.gradients()) + 64 * MIB
    pinned = [part * (need.params() + need.gradients()) + 2 * MIB for part in (1.0, 1.3, 1.6, 0.8)]
    return [memory(device, room, disk) for room in pinned for device in small_devices(need)[1:4] if room < 0.8 * ram]


def across_three_tiers(need, ram):
    disk = 1.3 * (need.params_and_states() + need.gradients()) + 64 * MIB
    fixed = need.activations() + need.gradients()
    return [memory(fixed + on_device * need.params_and_states(), in_pinned * need.params_and_states(), disk)
            for in_pinned in (0.45, 0.6, 0.8) for on_device in (0.35, 0.5, 0.65, 0.2) if in_pinned * need.params_and_states() < 0.8 * ram]  # fmt: skip


def at_least_share(part, whole, share=0.99):
    return part >= share * whole


PLACEMENTS = {
    "where the plan wants": Placement(lambda need, ram: [()], lambda held: True),
    "all in HBM": Placement(lambda need, ram: [memory(policy="device")], lambda held: at_least_share(held.params_and_states("device"), held.params_and_states(), 1)),
    "states in RAM": Placement(in_ram, lambda held: at_least_share(held.states("pinned"), held.states()) and held.window() >= held.params()),
    "states and parameters in RAM": Placement(
        params_in_ram, lambda held: at_least_share(held.params_and_states("pinned"), held.params_and_states()) and held.window() < 0.9 * held.params()),
    "states on NVMe": Placement(
        on_nvme, lambda held: at_least_share(held.states("nvme"), held.states(), 0.8) and not at_least_share(held.params("nvme"), held.params(), 0.2)),
    "three tiers": Placement(across_three_tiers, lambda held: all(at_least_share(held.params_and_states(tier), held.params_and_states(), 0.15) for tier in ("device", "pinned", "nvme"))),
}  # fmt: skip
