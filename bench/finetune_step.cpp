// One AdamW step over low-rank adapters of all linear layers of the Qwen2.5-0.5B shape, rank 16, with four
// sequences of 512 random tokens, full recomputation and no memory limits.
//   finetune_step BASE f32|bf16 STEPS THREADS
// BASE: full, int8, nf4 or nf4-dq (train.base). Prints the seconds of each step, after an untimed one, and
// the peak of the resident memory, as JSON. The claim `finetune_step` compares it with PEFT.
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <strata/engine/engine.h>
#include <strata/graph/passes.h>
#include <strata/kernels/bf16_gemm.h>
#include <strata/model/adapter/lora.h>
#include <strata/model/adapter/weight_parts.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/rng.h>

namespace {

using strata::must;

constexpr std::int64_t kSequences = 4, kRank = 16;

strata::DecoderConfig qwen_half_billion() {
  strata::DecoderConfig config = strata::decoder_for_family("qwen2").value();
  config.layers = 24;
  config.hidden = 896;
  config.heads = 14;
  config.kv_heads = 2;
  config.ffn = 4864;
  config.vocab = 151936;
  config.seq = 512;
  config.tied_head = true;
  return config;
}

class RandomBatches final : public strata::BatchSource {
 public:
  strata::Status fill(std::int64_t index, const strata::BatchView& batch) override {
    const strata::Rng rng(1, static_cast<std::uint64_t>(index));
    const std::span<std::int32_t> tokens = batch["tokens"], targets = batch["targets"];
    const auto vocab = static_cast<std::uint32_t>(qwen_half_billion().vocab);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::int32_t>(rng.below(i, vocab));
      targets[i] = static_cast<std::int32_t>(rng.below(i + tokens.size(), vocab));
    }
    return {};
  }
  std::int64_t n_counted(std::int64_t, std::int64_t n) override {
    return n * kSequences * qwen_half_billion().seq;
  }
};

strata::kernels::WeightFormat format_of(std::string_view name) {
  using enum strata::kernels::WeightFormat;
  for (const auto format : {int8, nf4, nf4_dq})
    if (name == to_string(format)) return format;
  if (name == "full") return full;
  throw std::runtime_error(fmt::format("{} is no base: full, int8, nf4 or nf4-dq", name));
}

strata::ProgramSet programs_of(strata::kernels::WeightFormat base, strata::DType compute) {
  const strata::DecoderConfig config = qwen_half_billion();
  strata::Program program = must(strata::record_decoder(config, kSequences, strata::DecoderHead::loss,
                                                        strata::DecoderRows::whole, compute));
  for (strata::ParamInfo& param : program.params) param.trainable = false;
  const strata::LoraSettings settings{
      .rank = kRank, .alpha = 2 * kRank, .targets = {strata::LoraSettings::kAllLinear}};
  program = must(add_lora(std::move(program), lora_groups(must(strata::lora_targets(config, settings)))));
  if (base != strata::kernels::WeightFormat::full)
    program = must(quantize_weights(std::move(program), base, strata::weight_parts(config)));
  strata::ProgramSet programs;
  programs[strata::ProgramRole::train] = strata::fuse_add_norm(strata::recompute_regions(
      must(strata::derive_backward(std::move(program), "loss")), strata::Recompute::full));
  return programs;
}

std::vector<double> time_steps(const strata::ProgramSet& programs, int steps, int threads) {
  strata::SessionOptions options;
  options.clip = 1;
  options.frozen_masters = false;
  const auto plan = must(strata::Engine::plan(programs, options));
  strata::SteadyClock clock;
  const auto pool = must(strata::ThreadPool::create(threads));
  const auto backend = must(strata::create_host_backend({.queue_depth = 256}, *pool, clock));
  const auto engine = must(strata::Engine::create(*plan, {*backend, *pool, clock, strata::posix_io()}));
  must(engine->initialize(1));
  RandomBatches batches;
  std::vector<double> seconds;
  for (int step = 0; step <= steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    strata::StepReport report;
    must(engine->train_step(batches, 1e-4, report));
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    fmt::print(stderr, "step {}: loss {:.4f}, {:.3f} s\n", step, report.loss, seconds.back());
  }
  seconds.erase(seconds.begin());
  return seconds;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view dtype = argc == 5 ? argv[2] : "";
  if (dtype != "f32" && dtype != "bf16") {
    fmt::print(stderr, "usage: finetune_step full|int8|nf4|nf4-dq f32|bf16 STEPS THREADS\n");
    return 2;
  }
  try {
    if (dtype == "bf16")
      strata::kernels::force_widened_bf16_gemm(strata::kernels::measure_bf16_gemm().widened_is_faster());
    const auto programs =
        programs_of(format_of(argv[1]), dtype == "f32" ? strata::DType::f32 : strata::DType::bf16);
    const std::vector<double> seconds = time_steps(programs, std::atoi(argv[3]), std::atoi(argv[4]));
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    fmt::print("{{\"seconds\": [{:.6f}], \"peak_bytes\": {}, \"gemm\": \"{}\"}}\n", fmt::join(seconds, ", "),
               usage.ru_maxrss * 1024L, strata::kernels::bf16_gemm_kind());
  } catch (const std::exception& error) {
    fmt::print(stderr, "finetune_step: {}\n", error.what());
    return 1;
  }
  return 0;
}
