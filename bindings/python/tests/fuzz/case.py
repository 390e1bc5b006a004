"""One random program, run by an offloaded model and by PyTorch alone, action by action."""

import collections
import random
import re
import sys

import torch

import strata

from .actions import choose
from .world import Setup, World


class Fault(Exception):
    """A result that must never be: another number, NaN, an error that names nothing, or none where PyTorch has one."""


def _attempt(action, world, seed):
    try:
        return action(world, random.Random(seed)), None
    except Exception as failure:
        return None, failure


def _compare(ours, theirs, tolerance, where):
    if len(ours) != len(theirs):
        raise Fault(f"{where}: {len(ours)} and {len(theirs)} values")
    for i, (found, expected) in enumerate(zip(ours, theirs)):
        found, expected = torch.as_tensor(found), torch.as_tensor(expected)
        if found.shape != expected.shape or found.dtype != expected.dtype:
            raise Fault(f"{where}: value {i} is {found.dtype} {tuple(found.shape)}, PyTorch's {expected.dtype} {tuple(expected.shape)}")
        if not torch.allclose(found.double(), expected.double(), rtol=tolerance, atol=tolerance, equal_nan=True):
            worst = (found.double() - expected.double()).abs().max().item()
            raise Fault(f"{where}: value {i} differs by {worst:g}")


def reason_of(failure):
    """The refusal without names and numbers."""
    return re.sub(r"'[^']*'|\d[\d.,e+-]*", "_", str(failure).split("\n")[0])[:150]


def run(seed, folder, log=None):
    """Runs a case; returns the reason of its refusal, or None. Raises Fault, which names the seed."""
    rng = random.Random(seed)
    setup = Setup(rng, folder)
    worlds = World(setup, False), World(setup, True)
    try:
        return _run(rng, setup, *worlds, log or (lambda text: None))
    except Fault as fault:
        raise Fault(f"seed {seed} ({setup.optimizer}, room {setup.room}): {fault}") from fault.__cause__
    finally:
        for world in worlds:  # gradients that have a graph refer to their parameters, which PyTorch never frees
            for param in world.net.parameters():
                param.grad = None


def _run(rng, setup, theirs, ours, log):
    theirs.log = log
    log(str(theirs.net))
    actions = [choose(rng) for _ in range(rng.randint(3, 7))]
    log(str([action.__name__ for action in actions]))
    for i, action in enumerate([*actions, _all_states]):
        seed, name = rng.randrange(1 << 30), action.__name__
        expected, expected_failure = _attempt(action, theirs, seed)
        found, failure = _attempt(action, ours, seed)
        where = f"action {i} ({name}) of {[a.__name__ for a in actions]}"
        log(f"action {i} {name}: {expected_failure!r} {failure!r}")
        if failure is not None:
            if expected_failure is not None:
                return f"PyTorch refuses it, too: {reason_of(expected_failure)[:90]}"
            if isinstance(failure, strata.errors.StrataError):
                if not re.search(r"'[^']+'|optimizer|model", str(failure)):
                    raise Fault(f"{where}: the refusal names nothing: {failure}") from failure
                log(str(failure))
                return f"{type(failure).__name__}: {reason_of(failure)}"
            raise Fault(f"{where}: {type(failure).__name__}: {failure}") from failure
        if expected_failure is not None:
            raise Fault(f"{where}: PyTorch refuses it: {expected_failure}") from expected_failure
        _compare(found, expected, setup.tolerance, where)
    return None


def _all_states(world, _):
    return [value.clone() for value in world.net.state_dict().values()]


def run_many(first, n, folder, on_fault):
    """Runs cases `first` to `first + n`; returns how often each refusal was seen. `on_fault` is told of faults, of which
    an exception that nobody could catch is one."""
    refusals, lost = collections.Counter(), []
    before, sys.unraisablehook = sys.unraisablehook, lambda found: lost.append(f"{found.err_msg}: {found.exc_value!r}")
    try:
        for seed in range(first, first + n):
            try:
                refusals[run(seed, folder) or "equal"] += 1
                if lost:
                    raise Fault(f"seed {seed}: lost exceptions: {lost[:3]}")
            except Fault as fault:
                on_fault(fault)
                refusals["FAULT"] += 1
            lost.clear()
    finally:
        sys.unraisablehook = before
    return refusals
