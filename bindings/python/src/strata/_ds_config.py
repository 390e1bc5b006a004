"""What a ds_config.json of DeepSpeed says, for a trainer that uses strata.optim."""

import collections.abc
import json
import math
import os
import pathlib
import sys
import typing

from . import _abi
from ._abi import check
from .errors import InvalidError, UnsupportedError

_KINDS = {"adamw": "AdamW", "adam": "Adam", "lion": "Lion", "adagrad": "Adagrad", "sgd": "SGD"}
_STATES = {"fp32": "f32", "bf16": "bf16"}
_PLACEMENTS = {"none": "auto", "cpu": "pinned", "nvme": "nvme"}
_BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
_SCHEDULE = ("optim.schedule", "optim.warmup", "train.steps", "optim.min_lr_ratio")
_TOTAL = "scheduler.params.total_num_steps"
_OFFLOAD = "zero_optimization.offload_optimizer"


class Row(typing.NamedTuple):
    """What becomes of one key: see the table in ds_config/README.md of strata."""

    key: str  #: as it was written, dotted
    value: object
    verdict: str  #: "taken", "auto", "meaningless", "refused" or "unknown"
    is_default: bool  #: the configuration lacks the key, and DeepSpeed's default is not strata's
    strata_key: str  #: of `strata train`; empty if there is none
    strata_value: object  #: None if nothing is set
    reason: str


class DsConfig:
    """A configuration of DeepSpeed. Attributes are None where it says "auto", or nothing and DeepSpeed has no default.

    rows                          all keys, in their order
    settings                      {key of strata train: value}
    dtype                         "bf16", "f16" or "f32"
    ranks                         processes that train together, of which this is one
    micro_batch_size              sequences of a micro-batch of one rank
    gradient_accumulation_steps   micro-batches of a step of one rank
    gradient_clipping             maximum norm: DeepSpeed's 1.0 if the file has none, and infinity if it is 0
    loss_scale                    the first loss scale of f16
    schedule                      {"optim.schedule": ..., ...}; empty without a scheduler
    """

    def __init__(self, rows, ranks=1, ignored=()):
        self.rows, self.ranks = rows, ranks
        self.settings = {row.strata_key: row.strata_value for row in rows if row.strata_value is not None}
        self.dtype = self.settings.get("train.dtype")
        self.micro_batch_size, self.gradient_accumulation_steps = self._batch()
        self.gradient_clipping = self._clipping()
        self.loss_scale = self.settings.get("optim.loss_scale") if self.dtype == "f16" else None
        has_schedule = self._given("scheduler.type") is not None and not _is_in("scheduler.type", ignored)
        self.schedule = {key: self.settings[key] for key in _SCHEDULE if key in self.settings} if has_schedule else {}

    def _has(self, key):
        return any(row.key == key and not row.is_default for row in self.rows)

    def _clipping(self):
        clip = self._given("gradient_clipping")
        if clip is None:
            return None if self._has("gradient_clipping") else 1.0
        return clip if clip > 0 else math.inf

    def _batch(self):
        """(sequences of a micro-batch, micro-batches of a step) of one rank: batch = both x ranks."""
        batch, micro, steps = (self._given(key) for key in _BATCH)
        if any(self._has(key) and value is None for key, value in zip(_BATCH, (batch, micro, steps))):
            return micro, steps  # "auto"
        if batch is None:
            return micro, steps or (1 if micro is not None else None)
        given = {"the ranks": self.ranks, _BATCH[1]: micro, _BATCH[2]: steps}
        divisor = self.ranks * (micro or 1) * (steps or 1)
        if batch % divisor != 0 or (micro and steps and batch != divisor):
            named = ", ".join(f"{name} ({value})" for name, value in given.items() if value is not None)
            relation = "the product" if micro and steps else "a multiple of the product"
            raise InvalidError(f"{_BATCH[0]} is {batch}; it must be {relation} of {named}, which is {divisor}")
        rest = batch // divisor
        return (micro, steps or rest) if micro else (rest, steps or 1)

    def _written(self, key):
        return next((row.value for row in self.rows if row.key == key), None)

    def _given(self, key, otherwise=None):
        """The value of a key of DeepSpeed's."""
        for row in self.rows:
            if row.key == key and row.verdict in ("taken", "meaningless") and row.value is not None:
                return row.value
        return otherwise

    def optimizer(self, params, **keywords):
        """The strata.optim class that computes what the configuration asks for, with its settings. It sets the learning
        rates of its scheduler itself, step by step, unless from_ds_config() was told to ignore that. The states are
        where `offload_optimizer` says: in RAM (cpu), on NVMe (nvme), else where there is room. `keywords` are those
        of the class and come first; where the configuration says "auto", the class's defaults apply."""
        name = self.settings.get("optim.name")
        if name is None:
            raise InvalidError("the configuration names no optimizer")
        from . import optim

        falls = self.schedule.get("optim.schedule", "constant") != "constant"
        if falls and self.schedule.get("train.steps") is None:
            raise InvalidError(f"{_TOTAL} is {json.dumps(self._written(_TOTAL))}, and the rates of "
                               f"{self._given('scheduler.type')} fall over that many steps: give a number, or "
                               'ignore=["scheduler"] and a scheduler of your own')  # fmt: skip
        made = getattr(optim, _KINDS[name])(params, **{**self._settings_of(name), **self._placement(), **keywords})
        if self.schedule:
            made.set_schedule(self.learning_rate_factor)
        return made

    def learning_rate_factor(self, step):
        """What the scheduler of the configuration multiplies lr with in a step, counted from 1."""
        warmup, total = self.schedule.get("optim.warmup", 0), self.schedule.get("train.steps")
        if step < warmup:
            return step / warmup
        kind, least = self.schedule["optim.schedule"], self.schedule.get("optim.min_lr_ratio", 0.0)
        if kind == "constant" or total is None:
            return 1.0
        done = min(1.0, max(0, step - 1 - warmup) / max(1, total - warmup))
        left = 0.5 * (1 + math.cos(math.pi * done)) if kind == "cosine" else 1 - done
        return least + (1 - least) * left

    def _settings_of(self, name):
        wanted = {"lr": "optim.lr", "weight_decay": "optim.weight_decay", "states": "offload.states"}
        if name in ("adamw", "adam", "adagrad"):
            wanted["eps"] = "optim.eps"
        if name == "sgd":
            wanted.update(momentum="optim.momentum", nesterov="optim.nesterov")
        found = {keyword: self.settings[key] for keyword, key in wanted.items() if key in self.settings}
        if name in ("adamw", "adam", "lion") and "optim.beta1" in self.settings:
            found["betas"] = (self.settings["optim.beta1"], self.settings["optim.beta2"])
        if "states" in found:
            found["states"] = _STATES[found["states"]]
        return found

    def _placement(self):
        device = self._given(f"{_OFFLOAD}.device")
        if device is None:
            device = "cpu" if self._given("zero_optimization.cpu_offload") else "none"
        found = {"placement": _PLACEMENTS[device]}
        if device == "nvme":
            found["nvme"] = self._given(f"{_OFFLOAD}.nvme_path")
        return found


def _text_of(config):
    if isinstance(config, collections.abc.Mapping):
        try:
            return json.dumps(config).encode()
        except (TypeError, ValueError) as error:
            raise InvalidError(f"the configuration is not JSON: {error}") from None
    text = pathlib.Path(os.fspath(config)).read_bytes()
    if b"\0" in text:
        raise InvalidError(f"{os.fspath(config)} is not JSON: it contains a zero byte")
    return text


def _rows_of(text):
    rows = []

    def collect(_, row):
        found = row.contents
        key, value, strata_key, strata_value, reason = (
            part.decode(errors="replace")
            for part in (found.key, found.value, found.strata_key, found.strata_value, found.reason)
        )
        verdict = _abi.DS_VERDICTS[found.verdict]
        set_to = json.loads(strata_value) if strata_value else None
        rows.append(Row(key, json.loads(value), verdict, bool(found.is_default), strata_key, set_to, reason))
        return 0

    status = _abi.load().strata_ds_config_convert(text, _abi.DsRowFunction(collect), None)
    if _abi.STATUSES[status] != "unsupported":  # which says no more than the rows
        check(status)
    return rows


def _is_in(key, sections):
    return any(key == section or key.startswith(section + ".") for section in sections)


def _ranks_here():
    """How many processes train together: as torch.distributed says, or the launcher."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    return int(os.environ.get("WORLD_SIZE") or 1)


def from_ds_config(config, *, ignore=(), ranks=None):
    """Reads a ds_config.json (a path) or a dict with its content, and returns a DsConfig.

    A key that asks for something that strata does not do, and a key that DeepSpeed does not have, raise
    UnsupportedError, which names all of them. `ignore`: keys or sections that the caller takes care of, such as
    ["scheduler"] if it has a scheduler of its own. `ranks`: processes that train together, by which the keys of the batch
    are read; None: as torch.distributed or WORLD_SIZE say, else 1."""
    ranks = _ranks_here() if ranks is None else ranks
    if isinstance(ranks, bool) or not isinstance(ranks, int) or ranks < 1:
        raise InvalidError(f"ranks is {ranks!r}; it must be an integer of at least 1")
    rows = _rows_of(_text_of(config))
    sections = (ignore,) if isinstance(ignore, str) else tuple(ignore)
    refused = [row for row in rows if row.verdict in ("refused", "unknown") and not _is_in(row.key, sections)]
    if refused:
        raise UnsupportedError("\n".join(f"{row.key}{' (not given)' if row.is_default else ''} = "
                                         f"{json.dumps(row.value)}: {row.reason}" for row in refused))  # fmt: skip
    return DsConfig(rows, ranks, sections)
