#!/usr/bin/env python3
"""Passes tiny folders of models that also read images through runs of strata and back to transformers.

    whole_models.py --strata PATH --probe PATH [--family NAME ...] [--json]

transformers writes each of them, with random weights. strata tunes its text model for two steps, and exports the run whole: with all
parameters trained, or with an adapter merged. transformers loads the export with AutoModelForImageTextToText. Compared are its
logits of a text with those of strata for the export's text model, and the tensors of what reads images with those of the first folder, byte by
byte. An adapter is also exported by itself: PEFT loads it over the first folder's whole class, and strata reads it back as it wrote it, as PEFT
writes it, and with the names of the text model (`--text-only`). Exit code: 0 if all figures are within LIMITS, 1 if one is not, 77 without PyTorch, transformers and PEFT."""
import dataclasses
import pathlib
import sys
from contextlib import chdir

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import adapter_table  # ends the program where PEFT is missing
import make_folders
import peft
import tensors
import torch
import transformers
from adapter_batch import strata
from compare import run_probe
from expert_folders import TEXT, VOCAB, by_max, stored
from reference import Batches
from safetensors.torch import load_file, save_file

# The largest difference of logits / the largest logit, of float32 from float32; tensors of other parts that differ; matrices of the
# text model that the run has left as they were.
LIMITS = {"logits": 4e-5, "other_tensors": 0, "untrained": 0}
# The same of PEFT's logits from those of the export; tensors that differ where an adapter is read back and merged.
ADAPTER_LIMITS = {"peft": 4e-5, "read_back": 0}
SEES = dict(hidden_size=32, intermediate_size=48, patch_size=4)
LAYERS_SEE = SEES | dict(num_hidden_layers=1, num_attention_heads=2)
QWEN_SEES = SEES | dict(depth=1, num_heads=2, spatial_merge_size=2, temporal_patch_size=2, num_position_embeddings=16)
GEMMA_SEES = LAYERS_SEE | dict(num_key_value_heads=2, head_dim=16, position_embedding_size=16, pooling_kernel_size=2)
KIMI_SEES = LAYERS_SEE | dict(pos_emb_height=4, pos_emb_width=4, pos_emb_time=2)
# The type, the case of make_folders.py that is its text model, what reads images, and further keys of the whole.
KINDS = {
    "mistral3": ("mistral3", "ministral3", LAYERS_SEE | dict(model_type="pixtral", image_size=16, head_dim=16), {}),
    "qwen3_5": ("qwen3_5", "qwen3_5", QWEN_SEES, {}),
    "qwen3_5_moe": ("qwen3_5_moe", "qwen3_5_moe", QWEN_SEES, {}),
    "gemma4": ("gemma4", "gemma4", GEMMA_SEES, dict(audio_config=None)),
    "gemma4-experts": ("gemma4", "gemma4-experts", GEMMA_SEES, dict(audio_config=None)),
    "kimi_k25": ("kimi_k25", "deepseek_v3", KIMI_SEES, dict(projection_hidden_size=128)),
    "kimi_k25-saved": ("kimi_k25", "deepseek_v3", KIMI_SEES, dict(projection_hidden_size=128)),
}  # fmt: skip
# transformers applies a rule for the names of Kimi's vision tower to those of its text model, and to the norm between them.
KIMI_SAVED = {"language_model.model.blocks.": "language_model.model.layers.", "model.mm_projector.": "mm_projector."}
RUN = ["data.train=text.txt", "data.val=", "model.seq=16", "train.steps=2", "optim.lr=0.01", "memory.device=256MiB", "memory.pinned=256MiB", "memory.nvme=0"]
TRAINED = ("full", "lora")


class Kind:
    """A kind of whole model, with a text model of make_folders.py."""

    def __init__(self, name):
        self.name, (model_type, case, sees, more) = name, KINDS[name]
        case = next(each for each in make_folders.CASES if each.name == case)
        text = case.config | {"vocab_size": VOCAB}
        if model_type == "gemma4":
            text = text | {"pad_token_id": 0}  # which its class puts in place of images
        self.case = dataclasses.replace(case, config=text)
        if "depth" in sees:
            sees = sees | {"out_hidden_size": text["hidden_size"]}
        tied = text.get("tie_word_embeddings", False)
        self.config = transformers.AutoConfig.for_model(model_type, text_config=text, vision_config=sees, tie_word_embeddings=tied, **more)
        self.targets = ("q_b_proj", "o_proj") if "q_lora_rank" in text else ("q_proj", "k_proj")

    def keys(self, trained):
        return ["adapter.method=lora", "adapter.targets=" + ",".join(self.targets)] if trained == "lora" else []

    def write(self, args, folder):
        torch.manual_seed(args.seed)
        model = transformers.AutoModelForImageTextToText.from_config(self.config)
        model.save_pretrained(folder / "source")
        if self.name == "kimi_k25":
            path = folder / "source" / "model.safetensors"
            save_file({released(name): tensor for name, tensor in load_file(path).items()}, path, {"format": "pt"})
        (folder / "source" / "preprocessor_config.json").write_text('{"size": 14}')
        (folder / "text.txt").write_text(TEXT * 30)
        strata(args, ["tokenizer", "train", "text.txt", "--vocab", VOCAB, "--out", "source/tokenizer.json"], folder)
        make_folders.make_case(self.case, folder / "plain", args.seed, own=True)  # for its tokens
        (folder / "whole.safetensors").write_bytes((folder / "plain" / "whole.safetensors").read_bytes())


def released(name):
    """The name in a release of Kimi K2.5, from that in a folder which transformers has saved."""
    for saved, release in KIMI_SAVED.items():
        if name.startswith(saved):
            return release + name.removeprefix(saved)
    return name


def load(folder):
    load_model = transformers.AutoModelForImageTextToText.from_pretrained
    model, report = load_model(folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    if report["missing_keys"] or report["unexpected_keys"] or report["mismatched_keys"]:
        raise ValueError(f"transformers loads {folder.name} with {report}")
    return model.eval()


def is_text(name):
    return "language_model." in name or name.startswith("lm_head.")


def text_name(name):
    """Exports have the text model under the names of releases, and all else under those of the folder."""
    return released(name) if name.startswith("language_model.") else name


def compare_adapter(args, folder, model, tokens, row):
    """Exports the run's adapter, loads it with PEFT and reads it back. `model`: with the adapter merged."""
    strata(args, ["export", "run", "--out", "adapter", "--check"], folder)
    strata(args, ["export", "run", "--out", "text-adapter", "--check", "--text-only"], folder)
    with chdir(folder):  # which base_model_name_or_path is relative to
        over = peft.AutoPeftModel.from_pretrained("adapter", dtype=torch.float32, attn_implementation="eager").eval()
    over.save_pretrained(folder / "of-peft")
    with torch.no_grad():
        row["figures"]["peft"] = by_max(over(input_ids=tokens).logits, model(input_ids=tokens).logits)
    if type(over.get_base_model()) is not type(model):
        row["problems"].append(f"PEFT loads {type(over.get_base_model()).__name__}, not {type(model).__name__}")
    row["figures"]["read_back"] = 0
    for adapter in ("adapter", "of-peft", "text-adapter"):
        strata(args, ["export", "source", "--adapter", adapter, "--out", f"by-{adapter}"], folder)
        merged, again = stored(folder / "hf"), stored(folder / f"by-{adapter}")
        row["figures"]["read_back"] += sum(merged.get(name) != again.get(name) for name in merged.keys() | again.keys())


def compare(kind, trained, scratch, args):
    row = {"case": kind.name, "adapter": trained, "figures": {}, "problems": [], "limits": dict(LIMITS)}
    folder, figures = scratch / f"{kind.name}-{trained}", row["figures"]
    folder.mkdir()
    kind.write(args, folder)
    try:
        strata(args, ["train", "--init", "source", "--out", "run", *RUN, *kind.keys(trained)], folder)
        strata(args, ["export", "run", "--out", "hf", "--check", *(["--format", "merged"] if trained == "lora" else [])], folder)
        model, tokens = load(folder / "hf"), Batches(folder / "whole.safetensors")[0][0]
        with torch.no_grad():
            want = model(input_ids=tokens).logits
        run_probe(folder, "whole", folder / "out", 0, args)
        if trained == "lora":
            row["limits"] |= ADAPTER_LIMITS
            compare_adapter(args, folder, model, tokens, row)
        figures["logits"] = by_max(torch.from_numpy(tensors.read(folder / "out" / "logits.safetensors")["logits"].copy()), want)
    except ValueError as error:
        row["problems"].append(str(error))
        return row
    was, now = ({text_name(name): tensor for name, tensor in stored(folder / part).items()} for part in ("source", "hf"))
    figures["other_tensors"] = sum(was.get(name) != now.get(name) for name in was.keys() | now.keys() if not is_text(name))
    targets = tuple(target + ".weight" for target in kind.targets) if trained == "lora" else ("_proj.weight", "_up_proj", ".down_proj")
    figures["untrained"] = sum(was[name] == now.get(name) for name in was if is_text(name) and name.endswith(targets))
    if (folder / "hf" / "preprocessor_config.json").read_text() != '{"size": 14}':
        row["problems"].append("preprocessor_config.json is another one")
    row["problems"] += adapter_table.above_limits(row)
    return row


def main():
    parser = adapter_table.parser_of(__doc__)
    adapter_table.add_probe(parser)
    parser.add_argument("--strata", type=pathlib.Path, required=True, metavar="PATH", help="the program strata")
    args = parser.parse_args()
    args.probe, args.strata, args.dtype, args.lr, args.widened = args.probe.absolute(), args.strata.absolute(), "f32", 0.0, False
    chosen = [Kind(name) for name in KINDS if not args.family or name in args.family]
    return adapter_table.run("whole_models", args, TRAINED, compare, {"limits": LIMITS}, chosen)


if __name__ == "__main__":
    sys.exit(main())
