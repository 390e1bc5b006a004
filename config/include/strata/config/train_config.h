#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <strata/model/adapter/adapter_settings.h>
#include <strata/model/decoder_config.h>
#include <strata/runtime/config/config.h>
#include <strata/runtime/threads/core_share.h>
#include <strata/session/ranks/model_parallel.h>
#include <strata/config/frozen_base.h>
#include <strata/config/reward_model.h>
#include <strata/config/chat_choice.h>

namespace strata {

/// The checked configuration of a training run. An empty optional means `auto`: the code that owns the
/// decision makes it and writes it back with ConfigTree::resolve(). Strings are choices of the schema, and
/// may be "auto" if the schema allows that.
struct TrainConfig {
  struct Model {
    std::string preset, from, states, family;
    int layers = 0, hidden = 0, heads = 0, ffn = 0, vocab = 0, seq = 0;
    bool seq_is_most = false;     ///< `seq` is the most that decide_by_data() may choose
    std::optional<int> kv_heads;  ///< auto: equal to heads
    std::optional<int> head_dim;  ///< auto: hidden / heads
    std::optional<int> experts, experts_per_token, expert_ffn, shared_ffn;  ///< auto: see decoder_config()
    std::optional<DecoderConfig> loaded;  ///< from the folder `from`; the numbers above agree with it
    std::string ignored_settings;         ///< training settings of that folder that strata does not implement
    std::string router_aux_by;  ///< the file by which train.router_aux is what it is; empty: another source
  } model;
  struct Data {
    std::vector<std::string> train, val, mixture;  ///< as written; see locate_data_file()
    std::optional<std::string> tokenizer;          ///< auto: train one on `train`
    std::string chat_template;                     ///< the name of a format, or auto
    std::string cache_dir;
    std::string packing;             ///< stream, pack, auto
    std::vector<double> weights;     ///< one for each of `train`, or empty
    ChatChoice chosen_chat;          ///< `chat_template`, resolved; set by load_config() for all commands
    std::vector<std::string> notes;  ///< about folders in `train`, `val` and `mixture`
  } data;
  struct Train {
    std::string objective;         ///< lm, reward, dpo, ppo, grpo
    std::int64_t steps = 0;        ///< 0 until decide_by_data(), if `epochs` decides them
    std::optional<double> epochs;  ///< passes over data.train; empty where `steps` is given
    int micro_batch = 0, grad_accum = 0;
    bool allow_micro_batch_split = false;
    double max_time_s = 0;  ///< +infinity: no limit
    std::uint64_t seed = 0;
    std::vector<std::string> freeze;  ///< patterns of parameter names
    std::optional<bool> frozen_masters;
    std::string dtype, recompute;  ///< dtype: bf16, f16, f32, auto; recompute: a Recompute mode, or auto
    bool fp8 = false;
    std::string base;                     ///< full, or the name of a kernels::WeightFormat
    std::string attention_backend;        ///< an order of kernels/values/attention_order.h, or auto
    double router_aux = 0, router_z = 0;  ///< coefficients of losses of routers of experts
    double router_bias_rate = 0;          ///< the change of a bias of a router by a step; 0: none
    bool digest = true;
    std::int64_t eval_every = 0;  ///< steps; 0: never
    int eval_batches = 0;
  } train;
  struct Adapter {
    std::string method;  ///< none, lora, series, parallel, prompt, p-tuning, prefix
    int rank = 0;
    double alpha = 0;
    bool rslora = false, dora = false;
    std::string init;  ///< default, pissa, pissa-subspace
    std::vector<std::string> targets, target_parameters, exclude, rank_pattern,
        alpha_pattern;  ///< as written; see lora_settings()
    std::vector<double> layers;
    std::vector<std::string> modules_to_save, trainable_tokens;
    std::string bias;  ///< none, all, lora_only
    double dropout = 0;
    int bottleneck = 0;
    std::string placement;   ///< attention_mlp, mlp
    std::string activation;  ///< relu, gelu
    double scale = 0;
    int virtual_tokens = 0, encoder_width = 0;
    std::string prompt_text;
    std::string from;
  } adapter;
  struct Align {
    std::string loss;  ///< sigmoid, ipo, grpo, dr_grpo, dapo, auto
    double beta = 0, label_smoothing = 0;
    std::optional<int> max_pairs;
    std::vector<std::string> reward;  ///< as written; see parse_reward()
    int prompts = 0, samples = 0, mini_batches = 0, epochs = 0;
    std::optional<int> max_prompt;
    int max_tokens = 0;
    std::optional<int> slots;
    double temperature = 0;
    double clip = 0;
    std::optional<double> clip_high;
    std::string kl;             ///< k1, k3, auto
    std::string old_log_probs;  ///< sampler, scored, auto
    double kl_coef = 0, kl_target = 0, kl_horizon = 0;
    double gamma = 0, lambda = 0, value_clip = 0;
    std::optional<double> critic_lr;
    bool whiten = false;
    double mixture_weight = 0;
    int mixture_batches = 0;
    std::optional<RewardModel> reward_model;  ///< the reward model of `reward`; set by load_config()
  } align;
  struct Optim {
    std::string name, schedule;
    std::string non_finite;  ///< stop, skip
    double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0, momentum = 0;
    std::vector<std::string> param_groups;  ///< as written; see parse_param_group()
    bool nesterov = false;
    double ema_decay = 0;  ///< the decay of the moving average of the parameters; 0: there is none
    double clip = 0;       ///< maximum global norm; 0: no clipping
    double loss_scale = 1;
    std::int64_t warmup = 0;
    std::optional<double> warmup_ratio;  ///< decides `warmup`, if it is given
    double min_lr_ratio = 0, decay_ratio = 0;
    int galore_rank = 0;
    double galore_scale = 0;
    std::int64_t galore_gap = 0;              ///< steps
    std::string galore_svd;                   ///< subspace, exact
    std::vector<std::string> galore_targets;  ///< as written; see galore_settings()
  } optim;
  struct Memory {
    std::string backend;  ///< host, cuda, auto
    std::optional<std::uint64_t> device_bytes, pinned_bytes;
    std::uint64_t nvme_bytes = 0;  ///< 0: no NVMe tier; kUnlimitedBytes: as much as the disk has
    std::vector<std::string> nvme_dirs;
    std::vector<double> nvme_rates;  ///< one for each of nvme_dirs, or empty
    std::string latent_cache;        ///< expanded, latent, auto
  } memory;
  struct Offload {
    std::optional<std::int64_t> chunk_elems;
    std::optional<int> prefetch;
    std::string step_mode, states, policy;  ///< policy: auto, min_traffic, device, pinned, nvme
    std::string gradients;                  ///< auto, device, pinned
    std::optional<std::uint64_t> undo_bytes;
    std::string activations;  ///< none, pinned, nvme, auto
    std::optional<double> activation_share;
    std::string micro_batch_order;  ///< depth_first, breadth_first, auto
    std::optional<int> expert_block;
  } offload;
  struct IoSection {
    std::string engine;  ///< uring, threads, auto
    int queue_depth = 0;
    std::uint64_t block_bytes = 0;
    bool direct = false;
    std::uint64_t write_budget_bytes = 0;  ///< kUnlimitedBytes: no limit
  } io;
  struct Cpu {
    std::string isa;          ///< scalar, sse4, avx2, avx512, neon, auto
    std::string bf16_matmul;  ///< native, widened, auto
    CoreShare share;          ///< where the compute threads run; set by load_config()
  } cpu;
  struct Parallel {
    std::optional<int> ranks;  ///< set by the session
    std::string transport;     ///< threads, mpi, auto
    int pp = 1, tp = 1, tp2 = 1, tp3 = 1, cp = 1;
    std::string schedule;  ///< a name, or a file; see pipeline_schedule()
    std::optional<int> virtual_stages;
    std::optional<std::vector<double>> stage_layers;
    std::vector<std::string> shard;  ///< as written; see split_annotations()
    std::optional<int> zero;
    int shard_ranks = 0;
    std::string reduce;  ///< each, once
    int gather_ahead = 2;
    double patience_s = 0;
    int rank = 0;         ///< the rank of this process or thread; set by the session
    int local_rank = 0;   ///< its number among them; set by the session
    int local_ranks = 1;  ///< on this machine, which share its memory; set by the session
  } parallel;
  struct LogSection {
    std::int64_t every = 0, sample_every = 0;
    std::string sample_prompt;
    int sample_tokens = 0;
    bool rollouts = false;
    std::string progress;  ///< bar, plain, none, auto
    StepRange trace;
    bool tensorboard = false, histograms = false;
    std::string prometheus, command;
    double report_every_s = 0;  ///< +infinity: no report
    std::string level;
  } log;
  struct Checkpoint {
    std::int64_t every = 0;  ///< steps; 0: off
    double interval_s = 0;   ///< +infinity: off
    bool at_end = true;
    int keep = 0;
    std::string dir;
  } checkpoint;
};

/// How the ranks of the run divide it; parallel.ranks is the least and parallel.zero is 0 where they are not
/// decided.
DataParallel data_parallel(const TrainConfig& config) noexcept;
ModelParallel model_parallel(const TrainConfig& config) noexcept;
/// All ranks of the run; 1 where they are not decided.
int all_ranks(const TrainConfig& config) noexcept;

/// Resolves the `auto` keys that depend only on this machine: offload.step_mode, cpu.threads,
/// cpu.service_cores.
void resolve_simple_autos(ConfigTree& tree, const CoreShare& share);

/// The tokenizer file or folder that a run reads; empty if the tokenizer is yet to be trained.
std::string tokenizer_source(const TrainConfig& config);

/// Fills the struct and makes the checks that involve several keys. `trains`: whether the model is trained,
/// which a quantized one cannot be. Errors: `invalid`, with one line per problem.
Result<TrainConfig> fill_train_config(const ConfigTree& tree, bool trains = true);

}  // namespace strata
