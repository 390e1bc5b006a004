// Steps of low-rank adapters, rank 16, of all linear layers over a base of the LLaMA-2-70B shape in NF4 with
// double quantization, in bf16, within budgets: how large a model three tiers train.
//   largest_step LAYERS TOKENS STEPS THREADS DEVICE PINNED NVME DIR
// LAYERS: LLaMA-2-70B has 80; TOKENS: of the one sequence; DEVICE, PINNED, NVME: bytes (1GiB); DIR: a folder
// of the NVMe tier. The codes of the base are random bytes, a MiB of them over and over, and its scales are
// one constant: to draw and quantize values would take longer than the steps. Prints the parameters, the loss
// and seconds of each step, and the planned and the measured peaks, as JSON. The claim `largest` compares it
// with PEFT and bitsandbytes.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <strata/engine/engine.h>
#include <strata/kernels/bf16_gemm.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/units.h>

#include "finetune_program.h"

namespace strata::bench {
namespace {

constexpr float kScale = 0.03f;  // the scale of every block: values up to 0.03

struct Arguments {
  std::int64_t layers = 0, tokens = 0;
  int steps = 0, threads = 0;
  TierBytes budgets{};
  std::string dir;
};

DecoderConfig llama_70b(std::int64_t layers, std::int64_t tokens) {
  DecoderConfig config = decoder_for_family("llama").value();
  config.layers = layers;
  config.hidden = 8192;
  config.heads = 64;
  config.kv_heads = 8;
  config.ffn = 28672;
  config.vocab = 32000;
  config.seq = tokens;
  return config;
}

/// Writes `n` times `value` at byte `at` of a matrix, as far as bytes [offset, offset + bytes.size()) have
/// it.
void put(std::span<std::byte> bytes, std::int64_t offset, std::int64_t at, std::int64_t n, float value) {
  std::byte raw[sizeof(float)];
  std::memcpy(raw, &value, sizeof(float));
  const std::int64_t end =
      std::min(offset + std::ssize(bytes), at + n * static_cast<std::int64_t>(sizeof(float)));
  for (std::int64_t i = std::max(offset, at); i < end; ++i)
    bytes[static_cast<std::size_t>(i - offset)] = raw[static_cast<std::size_t>((i - at) % 4)];
}

const std::vector<std::byte>& random_bytes() {
  static const std::vector<std::byte> all = [] {
    std::vector<std::byte> bytes(std::size_t{1} << 20);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(Rng(2, 0).u32(i));
    return bytes;
  }();
  return all;
}

Result<bool> random_codes(const StatePiece& piece, const kernels::QuantizedMatrix& matrix,
                          std::span<std::byte> bytes) {
  const std::vector<std::byte>& random = random_bytes();
  for (std::size_t i = 0; i < bytes.size();) {
    const std::size_t at = (static_cast<std::size_t>(piece.offset) + i) % random.size();
    const std::size_t n = std::min(bytes.size() - i, random.size() - at);
    std::memcpy(bytes.data() + i, random.data() + at, n);
    i += n;
  }
  for (std::size_t k = 0; k < matrix.n_parts(); ++k) {
    const kernels::QuantizedPart part = matrix.part(k);
    put(bytes, piece.offset, part.group_scales, part.groups, 0.0f);
    put(bytes, piece.offset, part.map, kernels::kScaleCodes, 0.0f);
    put(bytes, piece.offset, part.mean, 1, kScale);
  }
  return true;
}

Status run(const Arguments& args) {
  const DecoderConfig config = llama_70b(args.layers, args.tokens);
  ProgramSet programs = finetune_programs(config, 1, kernels::WeightFormat::nf4_dq, DType::bf16);
  Program& train = programs[ProgramRole::train];
  train = offload_activations(std::move(train), {});  // the input of each block
  SessionOptions options;
  options.clip = 1;
  options.frozen_masters = false;
  options.budgets = args.budgets;
  options.nvme.dirs = {args.dir};
  STRATA_TRY_ASSIGN(const auto plan, Engine::plan(programs, options));
  SteadyClock clock;
  STRATA_TRY_ASSIGN(const auto pool, ThreadPool::create(args.threads));
  STRATA_TRY_ASSIGN(const auto backend, create_host_backend({}, *pool, clock));
  STRATA_TRY_ASSIGN(const auto engine, Engine::create(*plan, {*backend, *pool, clock, posix_io()}));
  const std::int64_t begin = clock.now_ns();
  STRATA_TRY(engine->initialize(1, {}, random_codes));
  const double filled_s = static_cast<double>(clock.now_ns() - begin) * 1e-9;
  fmt::print(stderr, "filled in {:.1f} s\n", filled_s);
  RandomTokens batches(config, 1);
  std::vector<double> seconds, losses;
  for (int step = 0; step < args.steps; ++step) {
    StepReport report;
    STRATA_TRY(engine->train_step(batches, 1e-4, report));
    seconds.push_back(report.seconds);
    losses.push_back(report.loss);
    fmt::print(stderr, "step {}: loss {:.6f}, {:.1f} s\n", step, report.loss, report.seconds);
  }
  std::int64_t n_params = 0, n_trained = 0;
  for (const ParamInfo& param : train.params) {
    n_params += param.quantized.format == kernels::WeightFormat::full ? param.shape.n_elems()
                                                                      : param.quantized.n_elems();
    n_trained += param.trainable ? param.shape.n_elems() : 0;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print(
      "{{\"params\": {}, \"trained\": {}, \"losses\": [{:.6f}], \"seconds\": [{:.3f}], \"filled_s\": {:.1f}, "
      "\"planned\": [{}], \"peak\": [{}], \"resident\": {}}}\n",
      n_params, n_trained, fmt::join(losses, ", "), fmt::join(seconds, ", "), filled_s,
      fmt::join(plan->planned_peak, ", "), fmt::join(engine->peak_bytes(), ", "), usage.ru_maxrss * 1024L);
  return {};
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) {
  if (argc != 9) {
    fmt::print(stderr, "usage: largest_step LAYERS TOKENS STEPS THREADS DEVICE PINNED NVME DIR\n");
    return 2;
  }
  try {
    strata::bench::Arguments args{
        std::atoll(argv[1]), std::atoll(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]), {}, argv[8]};
    for (std::size_t tier = 0; tier < args.budgets.size(); ++tier)
      args.budgets[tier] = strata::must(strata::parse_bytes(argv[5 + tier]));
    strata::kernels::force_widened_bf16_gemm(strata::kernels::measure_bf16_gemm().widened_is_faster());
    strata::must(strata::bench::run(args));
  } catch (const std::exception& error) {
    fmt::print(stderr, "largest_step: {}\n", error.what());
    return 1;
  }
  return 0;
}
