#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <strata/engine/engine.h>
#include <strata/graph/passes.h>
#include <strata/model/decoder.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/rng.h>

#include "support/temp_dir.h"
#include "support/experts/tiny_experts.h"

namespace strata::test {

inline DecoderConfig tiny_config() {
  return {.family = "gpt2", .layers = 2, .hidden = 32, .heads = 2, .ffn = 64, .vocab = 50, .seq = 16};
}

/// One family for each way in which decoders differ: tied tables, biases and learned positions; ALiBi; RoPE
/// with grouped queries and a gated MLP; mixtures of experts; windows, soft caps and norms on both sides;
/// normalized queries, heads wider than hidden / heads, and two RoPE tables. Tests of what is added to a
/// decoder run for these; those of a family's own code run for decoder_families().
inline constexpr std::array<std::string_view, 6> kFamilyKinds = {"gpt2",      "bloom",  "llama",
                                                                 "qwen2_moe", "gemma2", "gemma3_text"};

/// A tiny model of `family`, with grouped queries if the family has them.
inline DecoderConfig tiny_of_family(std::string_view family) {
  DecoderConfig config = decoder_for_family(family).value();
  config.layers = 2;
  config.hidden = 32;
  config.heads = 4;
  config.kv_heads = family_limits(family).grouped_queries ? 2 : 4;
  if (family == "qwen3" || family == "gemma3_text") config.head_dim = 12;  // wider than hidden / heads
  config.ffn = 48;
  config.vocab = 50;
  config.seq = 16;
  if (config.window > 0) config.window = 5;
  if (config.full_every > 0) config.full_every = 2;  // one layer of each kind
  if (config.no_rope_every > 0) config.no_rope_every = 2;
  if (config.score_softcap > 0) config.score_softcap = config.logit_softcap = 2;
  config.frequencies = {.theta = config.frequencies.theta};    // the reference in f64 scales none
  if (config.attention_every > 1) config.attention_every = 2;  // one layer of each kind
  if (config.one_part) config.layers = 4;
  // Keys are divided by their length, which of few elements amplifies what each was rounded by.
  if (family_limits(family).delta) config.delta.key_dim = config.delta.value_dim = 32;
  set_tiny_experts(config);
  return config;
}

/// The programs without fused additions and norms, as recompute_regions() leaves them.
inline ProgramSet unfused_programs(Recompute recompute, std::int64_t batch, const DecoderConfig& config,
                                   DType compute, const std::vector<std::string>& freeze = {}) {
  ProgramSet set;
  set[ProgramRole::eval] =
      must(record_decoder(config, batch, DecoderHead::loss, DecoderRows::whole, compute));
  set[ProgramRole::train] =
      must(derive_backward(must(freeze_parameters(set[ProgramRole::eval], freeze)), "loss"));
  set[ProgramRole::train] = recompute_regions(std::move(set[ProgramRole::train]), recompute);
  set[ProgramRole::infer] = must(record_decoder(config, 1, DecoderHead::logits, DecoderRows::whole, compute));
  return set;
}

inline ProgramSet tiny_programs(Recompute recompute = Recompute::none, std::int64_t batch = 3,
                                const DecoderConfig& config = tiny_config(), DType compute = DType::f32,
                                const std::vector<std::string>& freeze = {}) {
  ProgramSet set = unfused_programs(recompute, batch, config, compute, freeze);
  for (Program* program : {&set[ProgramRole::eval], &set[ProgramRole::train], &set[ProgramRole::infer]})
    *program = fuse_add_norm(std::move(*program));
  return set;
}

/// The programs as a GPU runs them.
inline ProgramSet with_gemm_workspaces(ProgramSet set) {
  for (Program* program : {&set[ProgramRole::eval], &set[ProgramRole::train], &set[ProgramRole::infer]})
    *program = assign_gemm_workspaces(std::move(*program));
  return set;
}

/// Two micro-batches per step, and a single I/O thread, so that I/O calls have a fixed order.
inline SessionOptions swapping_options(const std::string& dir, StepMode mode) {
  SessionOptions options;
  options.step_mode = mode;
  options.grad_accum = 2;
  options.chunk_elems = 8192;
  options.nvme.dirs = {dir};
  options.nvme.engine = IoEngine::threads;
  options.nvme.io_threads = 1;
  return options;
}

/// Random tokens determined by the micro-batch's index, with targets that a model can learn.
class CountingBatches final : public BatchSource {
 public:
  explicit CountingBatches(std::int64_t vocab) : vocab_(vocab) {}
  Status fill(std::int64_t index, const BatchView& batch) override {
    const std::span<std::int32_t> tokens = batch["tokens"], targets = batch["targets"],
                                  doc_start = batch["doc_start"];
    if (!doc_start.empty()) std::copy(starts.begin(), starts.end(), doc_start.begin());
    const Rng rng(7, static_cast<std::uint64_t>(index)), key_rng(8, static_cast<std::uint64_t>(index));
    const std::span<std::int32_t> keys = batch["dropout_keys"];
    for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<std::int32_t>(key_rng.u32(i));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::int32_t>(rng.below(i, static_cast<std::uint64_t>(vocab_)));
      targets[i] = static_cast<std::int32_t>((tokens[i] * 3 + 1) % vocab_);
      if (counts && !counts(index, i)) targets[i] = -1;
    }
    return Status::ok();
  }
  std::int64_t n_counted(std::int64_t index, std::int64_t n) override {
    std::int64_t counted = 0;
    for (std::int64_t k = index; k < index + n; ++k)
      for (std::size_t i = 0; i < kTokens; ++i) counted += !counts || counts(k, i);
    return counted;
  }

  static constexpr std::size_t kTokens = 48;  ///< per micro-batch of tiny_programs()
  /// Which targets are counted; all if not set.
  std::function<bool(std::int64_t index, std::size_t token)> counts;
  std::vector<std::int32_t> starts;  ///< doc_start, the same for every micro-batch

 private:
  std::int64_t vocab_;
};

/// A run with everything that it needs, on a host backend of its own or on the one that `make_backend`
/// creates.
struct TinyRun {
  using MakeBackend = std::function<std::unique_ptr<Backend>(ThreadPool&, Clock&)>;
  explicit TinyRun(std::unique_ptr<const RunPlan> run_plan, int threads = 2,
                   HostBackendOptions backend_options = {.schedule = StreamSchedule::latest_legal,
                                                         .check = true},
                   Io& io = posix_io())
      : TinyRun(std::move(run_plan), must(ThreadPool::create(threads)), backend_options, io) {}
  TinyRun(std::unique_ptr<const RunPlan> run_plan, std::unique_ptr<ThreadPool> run_pool,
          HostBackendOptions backend_options, Io& io = posix_io())
      : TinyRun(
            std::move(run_plan), std::move(run_pool),
            [&](ThreadPool& threads, Clock& time) {
              return must(create_host_backend(backend_options, threads, time));
            },
            io) {}
  TinyRun(std::unique_ptr<const RunPlan> run_plan, std::unique_ptr<ThreadPool> run_pool,
          const MakeBackend& make_backend, Io& io = posix_io())
      : plan(std::move(run_plan)),
        pool(std::move(run_pool)),
        backend(make_backend(*pool, clock)),
        engine(must(Engine::create(*plan, {*backend, *pool, clock, io}))) {}

  std::vector<float> train(int steps, double lr = 1e-2) {
    CountingBatches batches(tiny_config().vocab);
    std::vector<float> losses;
    for (int i = 0; i < steps; ++i) {
      StepReport report;
      must(engine->train_step(batches, lr, report));
      losses.push_back(report.loss);
    }
    return losses;
  }

  std::unique_ptr<const RunPlan> plan;
  SteadyClock clock;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Engine> engine;
};

}  // namespace strata::test
