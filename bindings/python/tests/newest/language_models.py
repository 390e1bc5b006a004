"""Small random language models of transformers, their data, and where states live; ends the test as skipped if a
package is missing."""

import contextlib
import os
import tempfile

from packages import need

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is looked up
need("torch", "transformers")

import torch  # noqa: E402
import transformers  # noqa: E402

from strata import optim  # noqa: E402

VOCAB, SEQUENCE, SEQUENCES = 128, 16, 4
CHUNK = 4096  # elements: small, so that these models have many chunks
LR = 3e-3


def gpt2(tied=True, vocab=VOCAB):
    config = transformers.GPT2Config(
        vocab_size=vocab, n_positions=SEQUENCE, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0,
        attn_pdrop=0, tie_word_embeddings=tied, use_cache=False, bos_token_id=0, eos_token_id=0)  # fmt: skip
    torch.manual_seed(1)
    return transformers.GPT2LMHeadModel(config)


def llama(tied=True, vocab=VOCAB):
    config = transformers.LlamaConfig(
        vocab_size=vocab, max_position_embeddings=SEQUENCE, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, tie_word_embeddings=tied, use_cache=False)  # fmt: skip
    torch.manual_seed(1)
    return transformers.LlamaForCausalLM(config)


MODELS = {"gpt2": gpt2, "llama": llama}


def token_rows(n, seed=3):
    """`n` sequences that can be learnt: each token is the one before plus a step of the sequence."""
    random = torch.Generator().manual_seed(seed)
    starts, steps = torch.randint(0, VOCAB, (n, 1), generator=random), torch.randint(1, 4, (n, 1), generator=random)
    return (starts + steps * torch.arange(SEQUENCE)) % VOCAB


def batches(n):
    return token_rows(n * SEQUENCES).split(SEQUENCES)


def loss_of(net, tokens):
    return net(input_ids=tokens, labels=tokens).loss


def freeze(net):
    """Freezes the first block and the embedding of positions."""
    for name, param in net.named_parameters():
        if ".0." in name or "wpe" in name:
            param.requires_grad_(False)


class ExactAdamW:
    """AdamW whose moments and arithmetic are f64; parameters are rounded to f32 after each step. It is what the f32
    optimizers are compared with, torch's among them."""

    def __init__(self, params, **settings):
        self._params = list(params)
        self._wide = [param.detach().double() for param in self._params]
        self._optimizer = torch.optim.AdamW(self._wide, foreach=False, **settings)

    @torch.no_grad()
    def step(self):
        for param, wide in zip(self._params, self._wide):
            wide.grad = None if param.grad is None else param.grad.double()
        self._optimizer.step()
        for param, wide in zip(self._params, self._wide):
            wide.copy_(param.copy_(wide))

    def zero_grad(self):
        for param in self._params:
            param.grad = None


def train(net, optimizer, steps=50, accumulation=1, clip=0.25):
    """Losses of all micro-batches. Clipping is torch's own and changes the gradients of most steps."""
    losses, clipped = [], 0
    data = iter(batches(steps * accumulation))
    for _ in range(steps):
        for _ in range(accumulation):
            loss = loss_of(net, next(data))
            (loss / accumulation).backward()
            losses.append(loss.item())
        clipped += torch.nn.utils.clip_grad_norm_(net.parameters(), clip).item() > clip
        optimizer.step()
        optimizer.zero_grad()
    if clipped < steps / 2:
        raise AssertionError(f"only {clipped} of {steps} steps were clipped to {clip}")
    return torch.tensor(losses, dtype=torch.float64)


def values(net):
    return [param.detach().clone() for param in net.parameters()]


def same(first, second):
    return len(first) == len(second) and all(torch.equal(a, b) for a, b in zip(first, second))


def gap(first, second):
    """The largest difference of two lists of losses."""
    return (first - second).abs().max().item()


@contextlib.contextmanager
def placements(params):
    """{name: keywords of strata.optim} for states in RAM, in RAM and on NVMe, and on NVMe."""
    params = list(params)

    def plan(**where):
        return optim.AdamW(params, chunk_elems=CHUNK, threads=1, **where).plan()

    with tempfile.TemporaryDirectory() as folder:
        ram = dict(placement="pinned", pinned="256MiB")
        nvme = dict(placement="nvme", pinned="256MiB", nvme=folder)
        half = (plan(**ram)["pinned_bytes"] + plan(**nvme)["pinned_bytes"]) // 2
        both = dict(placement="auto", pinned=half, nvme=folder)
        found, most = plan(**both)["nvme_bytes"], plan(**nvme)["nvme_bytes"]
        if not 0 < found < most:
            raise AssertionError(
                f"with {half} bytes of RAM, {found} of {most} bytes are on NVMe; some, but not all should be"
            )
        cases = {"RAM": ram, "RAM and NVMe": both, "NVMe": nvme}
        yield {name: dict(chunk_elems=CHUNK, threads=1, **where) for name, where in cases.items()}
