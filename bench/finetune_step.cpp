// One AdamW step over low-rank adapters of all linear layers of the Qwen2.5-0.5B shape, rank 16, with four
// sequences of 512 random tokens, full recomputation and no memory limits.
//   finetune_step BASE f32|bf16 STEPS THREADS
// BASE: full, or a format of train.base. Prints the seconds of each step, after an untimed one, and
// the peak of the resident memory, as JSON. The claim `finetune_step` compares it with PEFT.
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <strata/engine/engine.h>
#include <strata/kernels/bf16_gemm.h>
#include <strata/runtime/backend/host_backend.h>

#include "finetune_program.h"

namespace {

using strata::must;

constexpr std::int64_t kSequences = 4;

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
  strata::bench::RandomTokens batches(qwen_half_billion(), kSequences);
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
    fmt::print(stderr, "usage: finetune_step full|int8|nf4|nf4-dq|mxfp4|fp8|int4 f32|bf16 STEPS THREADS\n");
    return 2;
  }
  try {
    if (dtype == "bf16")
      strata::kernels::force_widened_bf16_gemm(strata::kernels::measure_bf16_gemm().widened_is_faster());
    const auto programs =
        strata::bench::finetune_programs(qwen_half_billion(), kSequences, strata::bench::base_named(argv[1]),
                                         dtype == "f32" ? strata::DType::f32 : strata::DType::bf16);
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
