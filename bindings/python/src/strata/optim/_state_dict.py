"""state_dict() and load_state_dict() of optimizers whose states are in sessions."""

import contextlib

import torch

from ..errors import InvalidError
from ._state_file import StateFile, copy_out

_LOAD_HOOKS = ("_optimizer_load_state_dict_pre_hooks", "_optimizer_load_state_dict_post_hooks")  # the hooks of torch 2


class StateDicts:
    """A part of Optimizer."""

    def state_dict(self):
        """As that of torch's namesake, with f32 tensors over an unnamed file (in the folder of `nvme`, or the
        system's for temporary files). 16-bit parameters also have their f32 "master"."""
        for sealed in self._sealed:
            self._read_states(sealed)
        try:
            return super().state_dict()
        finally:
            self.state.clear()

    def _read_states(self, sealed):
        sealed.bind()
        sizes = [param.numel() for param in sealed.params]
        keys = dict(self._moments)
        if any(param.dtype != torch.float32 for param in sealed.params):
            keys["param"] = "master"
        files = {key: StateFile(sealed.session, state, sizes, self._folder) for state, key in keys.items()}
        for i, (param, steps) in enumerate(zip(sealed.params, sealed.session.steps()[1])):
            if steps == 0:
                continue
            self.state[param] = {"step": torch.tensor(float(steps), dtype=torch.float32)}
            for key, file in files.items():
                if key != "master" or param.dtype != torch.float32:
                    self.state[param][key] = file.tensor(i, sealed.likes[i])

    def load_state_dict(self, state_dict):
        """Reads the state_dict of this class, of torch's namesake, or of DeepSpeedCPUAdam. Moments that it lacks
        are zero, and masters are the parameters. Settings that it lacks are the defaults."""
        state_dict = self._after_hooks(state_dict)
        params = [param for group in self.param_groups for param in group["params"]]
        ids = [i for group in state_dict["param_groups"] for i in group["params"]]
        states = {id(param): state_dict["state"].get(i, {}) for i, param in zip(ids, params)}
        for group in state_dict["param_groups"]:
            self._check_group({**self.defaults, **group})
        for number, param in enumerate(params):
            self._check_state(states.get(id(param), {}), param, number)
        with self._without_load_hooks():
            super().load_state_dict({"state": {}, "param_groups": state_dict["param_groups"]})
        self._load_states(state_dict, states)
        for hook in list(getattr(self, _LOAD_HOOKS[1], {}).values()):
            hook(self)

    def _after_hooks(self, state_dict):
        """The state_dict as hooks want it, which see the states, too."""
        state_dict = dict(state_dict)
        for hook in list(getattr(self, _LOAD_HOOKS[0], {}).values()):
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        return state_dict

    @contextlib.contextmanager
    def _without_load_hooks(self):
        kept = {name: getattr(self, name) for name in _LOAD_HOOKS if hasattr(self, name)}
        for name, hooks in kept.items():
            setattr(self, name, type(hooks)())
        try:
            yield
        finally:
            for name, hooks in kept.items():
                setattr(self, name, hooks)

    def _load_states(self, state_dict, states):
        for group in self.param_groups:
            for key, value in self.defaults.items():
                group.setdefault(key, value)
        if not state_dict["state"] and not self._sealed:
            return
        self._seal({key for key, state in states.items() if state})
        for sealed in self._sealed:
            self._write_states(sealed, [states.get(id(param), {}) for param in sealed.params])

    def _check_state(self, state, param, number):
        for key in [*self._moments.values(), "master"]:
            if state.get(key) is not None and tuple(state[key].shape) != tuple(param.shape):
                raise InvalidError(f"'{key}' of parameter 'param.{number}' has the shape {tuple(state[key].shape)}, "
                                   f"the parameter {tuple(param.shape)}")  # fmt: skip

    def _steps_of(self, state):
        """How many steps a state is of. torch.optim.SGD and Lion do not count them; it is more than none."""
        has_moments = any(state.get(key) is not None for key in self._moments.values())
        return int(state.get("step", 1 if has_moments else 0))

    def _write_states(self, sealed, states):
        sealed.before_load()
        sealed.bind()
        keys = dict(self._moments)
        if any(param.dtype != torch.float32 for param in sealed.params):
            keys["param"] = "master"
        if sealed.offload is not None and not all("master" in state for state in states if state):
            keys.pop("param", None)  # the session has the masters
        for state, key in keys.items():
            copies = {}

            def fill(index, offset, n, address, key=key, copies=copies):
                if offset == 0:
                    copies.clear()  # the copies of the parameter before
                    value, like = states[index].get(key), sealed.likes[index].detach()
                    missing = like if key == "master" else torch.zeros((), dtype=torch.float32).expand(like.shape)
                    copies[index] = copy_out(missing if value is None else value.detach(), like)
                copies[index](offset, n, address)

            sealed.session.fill(state, fill)
        if "param" in keys:
            sealed.after_load()
        counts = [self._steps_of(state) for state in states]
        sealed.session.set_steps(max(counts, default=0), counts)
