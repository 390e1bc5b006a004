#include "train_config.h"

namespace strata::cli {
namespace {

constexpr double kMaxDim = 1 << 20;         // of one model dimension: products of two stay far below 2^63
constexpr double kMaxCount = 1 << 30;
constexpr double kMaxSteps = 1e15;

// In the order in which `config show` prints them; the keys of a section stand together.
constexpr KeySpec kKeys[] = {
    {.section = "model", .name = "preset", .default_text = "", .doc = "named set of values below all others",
     .example = "model.preset=austen-5m"},
    {.section = "model", .name = "family", .type = KeyType::choice, .default_text = "gpt2", .doc = "architecture", .choices = "gpt2"},
    {.section = "model", .name = "layers", .type = KeyType::integer, .default_text = "6", .doc = "decoder blocks",
     .example = "model.layers=12", .min = 1, .max = 10000},
    {.section = "model", .name = "hidden", .type = KeyType::integer, .default_text = "256", .doc = "width of the residual stream",
     .example = "model.hidden=768", .min = 1, .max = kMaxDim},
    {.section = "model", .name = "heads", .type = KeyType::integer, .default_text = "4", .doc = "attention heads; divides hidden",
     .example = "model.heads=12", .min = 1, .max = 65536},
    {.section = "model", .name = "ffn", .type = KeyType::integer, .default_text = "1024", .doc = "width of the feed-forward layer",
     .example = "model.ffn=3072", .min = 1, .max = kMaxDim},
    {.section = "model", .name = "vocab", .type = KeyType::integer, .default_text = "1024", .doc = "tokens of the tokenizer",
     .example = "model.vocab=50257", .min = 2, .max = kMaxDim * 4},
    {.section = "model", .name = "seq", .type = KeyType::integer, .default_text = "128", .doc = "tokens of one sequence",
     .example = "model.seq=1024", .min = 1, .max = kMaxDim},

    {.section = "data", .name = "train", .type = KeyType::text_list, .default_text = "", .doc = "text files to learn from",
     .example = "data.train=a.txt,b.txt"},
    {.section = "data", .name = "val", .type = KeyType::text_list, .default_text = "", .doc = "text files for the validation loss",
     .example = "data.val=c.txt"},
    {.section = "data", .name = "tokenizer", .default_text = "auto", .doc = "tokenizer file; auto trains one on data.train",
     .example = "data.tokenizer=tokenizer.json", .allows_auto = true},
    {.section = "data", .name = "cache_dir", .default_text = "runs/cache", .doc = "folder for tokenized data"},

    {.section = "train", .name = "steps", .type = KeyType::integer, .default_text = "1000", .doc = "optimizer steps",
     .example = "train.steps=1500", .min = 0, .max = kMaxSteps},
    {.section = "train", .name = "micro_batch", .type = KeyType::integer, .default_text = "4", .doc = "sequences of one forward pass",
     .example = "train.micro_batch=8", .min = 1, .max = kMaxCount},
    {.section = "train", .name = "grad_accum", .type = KeyType::integer, .default_text = "1", .doc = "micro-batches of one step",
     .example = "train.grad_accum=2", .min = 1, .max = kMaxCount},
    {.section = "train", .name = "max_time", .type = KeyType::seconds, .default_text = "none", .doc = "stop after this time, resumable",
     .example = "train.max_time=90s", .word = "none", .min = 0},
    {.section = "train", .name = "seed", .type = KeyType::integer, .default_text = "1", .doc = "of initial values and data order",
     .example = "train.seed=7", .min = 0, .max = 9007199254740992.0},
    {.section = "train", .name = "dtype", .type = KeyType::choice, .default_text = "f32", .doc = "of parameters and activations",
     .choices = "f32"},
    {.section = "train", .name = "recompute", .type = KeyType::choice, .default_text = "auto",
     .doc = "activations that backward computes again", .allows_auto = true, .choices = "none|block"},
    {.section = "train", .name = "eval_every", .type = KeyType::integer, .default_text = "100", .doc = "steps between validations; 0 = never",
     .example = "train.eval_every=100", .min = 0, .max = kMaxSteps},
    {.section = "train", .name = "eval_batches", .type = KeyType::integer, .default_text = "8", .doc = "micro-batches of one validation",
     .example = "train.eval_batches=8", .min = 1, .max = kMaxCount},

    {.section = "optim", .name = "name", .type = KeyType::choice, .default_text = "adamw", .doc = "optimizer", .choices = "adamw"},
    {.section = "optim", .name = "lr", .type = KeyType::number, .default_text = "0.001", .doc = "peak learning rate",
     .example = "optim.lr=2e-3", .min = 0, .max = 1e6},
    {.section = "optim", .name = "beta1", .type = KeyType::number, .default_text = "0.9", .doc = "decay of the first moment",
     .example = "optim.beta1=0.9", .min = 0, .max = 0.999999999},
    {.section = "optim", .name = "beta2", .type = KeyType::number, .default_text = "0.95", .doc = "decay of the second moment",
     .example = "optim.beta2=0.999", .min = 0, .max = 0.999999999},
    {.section = "optim", .name = "eps", .type = KeyType::number, .default_text = "1e-08", .doc = "added to the root of the second moment",
     .example = "optim.eps=1e-8", .min = 0, .max = 1},
    {.section = "optim", .name = "weight_decay", .type = KeyType::number, .default_text = "0.1", .doc = "decoupled decay",
     .example = "optim.weight_decay=0.1", .min = 0, .max = 1e6},
    {.section = "optim", .name = "clip", .type = KeyType::number, .default_text = "1", .doc = "largest global gradient norm; 0 = none",
     .example = "optim.clip=1.0", .min = 0, .max = 1e30},
    {.section = "optim", .name = "warmup", .type = KeyType::integer, .default_text = "50", .doc = "steps of linear warm-up",
     .example = "optim.warmup=50", .min = 0, .max = kMaxSteps},
    {.section = "optim", .name = "schedule", .type = KeyType::choice, .default_text = "cosine", .doc = "learning rate after the warm-up",
     .choices = "cosine|linear|constant"},
    {.section = "optim", .name = "min_lr_ratio", .type = KeyType::number, .default_text = "0.1", .doc = "last learning rate over lr",
     .example = "optim.min_lr_ratio=0.1", .min = 0, .max = 1},

    {.section = "memory", .name = "backend", .type = KeyType::choice, .default_text = "auto", .doc = "what computes",
     .allows_auto = true, .choices = "host|cuda"},
    {.section = "memory", .name = "device", .type = KeyType::bytes, .default_text = "auto", .doc = "budget of the device tier",
     .example = "memory.device=32MiB", .allows_auto = true, .word = "unlimited", .min = 1},
    {.section = "memory", .name = "pinned", .type = KeyType::bytes, .default_text = "auto", .doc = "budget of the pinned RAM tier",
     .example = "memory.pinned=24MiB", .allows_auto = true, .word = "unlimited", .min = 0},
    {.section = "memory", .name = "nvme", .type = KeyType::bytes, .default_text = "0", .doc = "budget of the NVMe tier; 0 = none",
     .example = "memory.nvme=48MiB", .word = "unlimited", .min = 0},
    {.section = "memory", .name = "nvme_dir", .default_text = "runs/nvme", .doc = "folder of the NVMe tier"},

    {.section = "offload", .name = "chunk", .type = KeyType::integer, .default_text = "auto", .doc = "elements of one chunk",
     .example = "offload.chunk=65536", .allows_auto = true, .min = 1, .max = 1e12},
    {.section = "offload", .name = "prefetch", .type = KeyType::integer, .default_text = "auto", .doc = "chunks fetched ahead",
     .example = "offload.prefetch=2", .allows_auto = true, .min = 0, .max = 65536},
    {.section = "offload", .name = "step_mode", .type = KeyType::choice, .default_text = "auto", .doc = "when the optimizer runs",
     .allows_auto = true, .choices = "serial"},
    {.section = "offload", .name = "states", .type = KeyType::choice, .default_text = "fp32", .doc = "format of optimizer states",
     .choices = "fp32"},
    {.section = "offload", .name = "policy", .type = KeyType::choice, .default_text = "least_moves",
     .doc = "the placement that moves least, or the tier where chunks live if they can", .choices = "least_moves|device|pinned|nvme"},

    {.section = "io", .name = "engine", .type = KeyType::choice, .default_text = "auto", .doc = "how NVMe is read and written",
     .allows_auto = true, .choices = "uring|threads"},
    {.section = "io", .name = "queue_depth", .type = KeyType::integer, .default_text = "32", .doc = "requests in flight",
     .example = "io.queue_depth=32", .min = 1, .max = 4096},
    {.section = "io", .name = "block", .type = KeyType::bytes, .default_text = "1MiB", .doc = "bytes of one request",
     .example = "io.block=1MiB", .min = 4096, .max = 1073741824},
    {.section = "io", .name = "direct", .type = KeyType::boolean, .default_text = "true", .doc = "bypass the page cache (O_DIRECT) where possible"},

    {.section = "cpu", .name = "threads", .type = KeyType::integer, .default_text = "auto", .doc = "compute threads; 0 = all",
     .example = "cpu.threads=2", .allows_auto = true, .min = 0, .max = 1024},
    {.section = "cpu", .name = "isa", .type = KeyType::choice, .default_text = "auto", .doc = "instruction set of the SIMD code",
     .allows_auto = true, .choices = "scalar|sse4|avx2|avx512"},

    {.section = "log", .name = "every", .type = KeyType::integer, .default_text = "10", .doc = "steps between progress lines",
     .example = "log.every=10", .min = 1, .max = kMaxSteps},
    {.section = "log", .name = "sample_every", .type = KeyType::integer, .default_text = "200", .doc = "steps between text samples; 0 = none",
     .example = "log.sample_every=200", .min = 0, .max = kMaxSteps},
    {.section = "log", .name = "sample_prompt", .default_text = "Elizabeth ", .doc = "what a sample continues"},
    {.section = "log", .name = "sample_tokens", .type = KeyType::integer, .default_text = "64", .doc = "tokens of one sample",
     .example = "log.sample_tokens=64", .min = 1, .max = 65536},
    {.section = "log", .name = "progress", .type = KeyType::choice, .default_text = "auto", .doc = "bar on a terminal, else plain lines",
     .allows_auto = true, .choices = "bar|plain|none"},
    {.section = "log", .name = "trace", .type = KeyType::steps, .default_text = "false", .doc = "steps in trace.json: true, false, 10-12",
     .example = "log.trace=10-12"},
    {.section = "log", .name = "level", .type = KeyType::choice, .default_text = "info", .doc = "least severe message shown",
     .choices = "debug|info|warn|error|off"},

    {.section = "checkpoint", .name = "every", .type = KeyType::integer, .default_text = "0", .doc = "steps between checkpoints; 0 = off",
     .example = "checkpoint.every=500", .min = 0, .max = kMaxSteps},
    {.section = "checkpoint", .name = "keep", .type = KeyType::integer, .default_text = "3", .doc = "newest checkpoints that are kept",
     .example = "checkpoint.keep=3", .min = 1, .max = kMaxCount},
    {.section = "checkpoint", .name = "dir", .default_text = "", .doc = "folder; empty = checkpoints/ in the run folder"},
};

constexpr PresetValue kAusten5m[] = {
    {"model.vocab", "1024"}, {"model.layers", "6"}, {"model.hidden", "256"}, {"model.heads", "4"}, {"model.ffn", "1024"},
    {"model.seq", "128"},
    {"data.train", "examples/data/austen/pride_and_prejudice.txt,examples/data/austen/sense_and_sensibility.txt"},
    {"data.val", "examples/data/austen/persuasion.txt"},
    {"train.micro_batch", "2"}, {"train.grad_accum", "4"}, {"train.steps", "400"}, {"train.max_time", "90s"},
    {"train.recompute", "block"},
    {"optim.lr", "0.002"}, {"optim.warmup", "50"}, {"optim.schedule", "cosine"},
    {"memory.device", "32MiB"}, {"memory.pinned", "24MiB"}, {"memory.nvme", "48MiB"},
};
constexpr PresetValue kAustenTiny[] = {
    {"model.vocab", "512"}, {"model.layers", "2"}, {"model.hidden", "64"}, {"model.heads", "2"}, {"model.ffn", "256"},
    {"model.seq", "32"},
    {"data.train", "examples/data/austen/pride_and_prejudice.txt"}, {"data.val", "examples/data/austen/persuasion.txt"},
    {"train.micro_batch", "2"}, {"train.grad_accum", "2"}, {"train.steps", "20"}, {"train.eval_every", "10"},
    {"train.eval_batches", "2"},
    {"optim.lr", "0.003"}, {"optim.warmup", "5"},
    {"memory.device", "2MiB"}, {"memory.pinned", "2MiB"}, {"memory.nvme", "4MiB"},
    {"log.every", "5"}, {"log.sample_every", "10"}, {"log.sample_tokens", "16"},
};
constexpr ConfigPreset kPresets[] = {
    {"austen-5m", "five million parameters on two novels, in 90 seconds", kAusten5m},
    {"austen-tiny", "two layers for tests", kAustenTiny},
};
constexpr EnvName kEnvNames[] = {
    {"STRATA_CONFIG", ""},  // the file where the command names none; read by the command line
    {"STRATA_PROGRESS", "log.progress"},
};

constexpr ConfigSchema kSchema = {kKeys, kPresets, "model.preset", kEnvNames};

}  // namespace

const ConfigSchema& train_schema() noexcept { return kSchema; }

}  // namespace strata::cli
