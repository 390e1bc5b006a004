"""What a ds_config.json of DeepSpeed says, for a trainer that uses strata.optim."""

import collections.abc
import json
import os
import pathlib
import typing

from . import _abi
from ._session import check
from .errors import InvalidError, UnsupportedError

_KINDS = {"adamw": "AdamW", "adam": "Adam", "lion": "Lion", "adagrad": "Adagrad", "sgd": "SGD"}
_STATES = {"fp32": "f32", "bf16": "bf16"}
_PLACEMENTS = {"none": "auto", "cpu": "pinned", "nvme": "nvme"}
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
    """A configuration of DeepSpeed. Attributes are None where it says nothing, or "auto".

    rows                          all keys, in their order
    settings                      {key of strata train: value}
    dtype                         "bf16", "f16" or "f32"
    micro_batch_size              sequences of a micro-batch of one rank
    gradient_accumulation_steps   micro-batches of a step of one rank
    gradient_clipping             maximum norm; 0: none
    loss_scale                    the first loss scale of f16
    """

    def __init__(self, rows):
        self.rows = rows
        self.settings = {row.strata_key: row.strata_value for row in rows if row.strata_value is not None}
        self.dtype = self.settings.get("train.dtype")
        self.micro_batch_size = self.settings.get("train.micro_batch")
        # train.grad_accum counts the micro-batches of all ranks.
        self.gradient_accumulation_steps = self._given(
            "gradient_accumulation_steps", self.settings.get("train.grad_accum")
        )
        self.gradient_clipping = self.settings.get("optim.clip")
        self.loss_scale = self.settings.get("optim.loss_scale") if self.dtype == "f16" else None

    def _given(self, key, otherwise=None):
        """The value of a key of DeepSpeed's."""
        for row in self.rows:
            if row.key == key and row.verdict in ("taken", "meaningless") and row.value is not None:
                return row.value
        return otherwise

    def optimizer(self, params, **keywords):
        """The strata.optim class that computes what the configuration asks for, with its settings. The states are
        where `offload_optimizer` says: in RAM (cpu), on NVMe (nvme), else where there is room. `keywords` are those
        of the class and come first; where the configuration says "auto", the class's defaults apply."""
        name = self.settings.get("optim.name")
        if name is None:
            raise InvalidError("the configuration names no optimizer")
        from . import optim

        return getattr(optim, _KINDS[name])(params, **{**self._settings_of(name), **self._placement(), **keywords})

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


def from_ds_config(config, *, ignore=()):
    """Reads a ds_config.json (a path) or a dict with its content, and returns a DsConfig.

    A key that asks for something that strata does not do, and a key that DeepSpeed does not have, raise
    UnsupportedError, which names all of them. `ignore`: keys or sections that the caller takes care of, such as
    ["scheduler"] if it has a scheduler of its own."""
    rows = _rows_of(_text_of(config))
    sections = (ignore,) if isinstance(ignore, str) else tuple(ignore)
    refused = [row for row in rows if row.verdict in ("refused", "unknown") and not _is_in(row.key, sections)]
    if refused:
        raise UnsupportedError("\n".join(f"{row.key}{' (not given)' if row.is_default else ''} = "
                                         f"{json.dumps(row.value)}: {row.reason}" for row in refused))  # fmt: skip
    return DsConfig(rows)
