"""The signatures of other libraries' optimizers with states in RAM."""

from ..errors import UnsupportedError
from ._optimizer import SGD, Adagrad, Adam, AdamW


def DeepSpeedCPUAdam(model_params, lr=1e-3, bias_correction=True, betas=(0.9, 0.999), eps=1e-8, weight_decay=0,
                     amsgrad=False, adamw_mode=True, fp32_optimizer_states=True, **strata):  # fmt: skip
    """deepspeed.ops.adam.DeepSpeedCPUAdam, with the keywords of strata.optim besides."""
    strata.setdefault("states", "f32" if fp32_optimizer_states else "bf16")
    kind = AdamW if adamw_mode else Adam
    made = kind(model_params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, **strata)
    made.set_default("bias_correction", bias_correction)  # DeepSpeed's groups have it, and its state_dict is read by it
    return made


def CPUOffloadOptimizer(params, optimizer_class=None, *, offload_gradients=False, minimal_size=4096, **kwargs):
    """torchao.optim.CPUOffloadOptimizer, with the keywords of strata.optim besides. `offload_gradients` and
    `minimal_size` say how torchao copies; here they have no meaning."""
    import torch

    kinds = {None: AdamW, torch.optim.AdamW: AdamW, torch.optim.Adam: Adam, torch.optim.SGD: SGD,
             torch.optim.Adagrad: Adagrad}  # fmt: skip
    if optimizer_class not in kinds:
        raise UnsupportedError(f"optimizer_class is {optimizer_class.__name__}; it must be one of "
                               + ", ".join(kind.__name__ for kind in kinds if kind))  # fmt: skip
    return kinds[optimizer_class](params, **kwargs)
