// One AdamW step of the GPT-2 124M shape (Radford et al. 2019), four sequences of 64 random tokens, without
// memory limits; or only the GEMMs of that step, a lower bound of any step's time.
//   gpt2_step step|gemm f32|bf16|native|widened STEPS THREADS
// With bf16, GEMMs use the fastest implementation on this CPU, which is measured first; native and widened
// select one. Prints the seconds of each step, after an untimed one, as JSON. The claim `gpt2_step` compares
// them.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <strata/engine/engine.h>
#include <strata/graph/passes.h>
#include <strata/kernels/bf16_gemm.h>
#include <strata/kernels/linear.h>
#include <strata/model/decoder.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/rng.h>

namespace {

using strata::must;

constexpr std::int64_t kSequences = 4;
constexpr std::int64_t kVocab = 50257;

strata::DecoderConfig gpt2_124m() {
  strata::DecoderConfig config;
  config.layers = 12;
  config.hidden = 768;
  config.heads = 12;
  config.ffn = 3072;
  config.vocab = kVocab;
  config.seq = 64;
  config.positions = 1024;
  return config;
}
strata::Program record(strata::DecoderHead head, strata::DType compute) {
  return must(strata::record_decoder(gpt2_124m(), kSequences, head, strata::DecoderRows::whole, compute));
}

double seconds_of(const auto& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class RandomBatches final : public strata::BatchSource {
 public:
  strata::Status fill(std::int64_t index, const strata::BatchView& batch) override {
    const strata::Rng rng(1, static_cast<std::uint64_t>(index));
    const std::span<std::int32_t> tokens = batch["tokens"], targets = batch["targets"];
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::int32_t>(rng.below(i, kVocab));
      targets[i] = static_cast<std::int32_t>(rng.below(i + tokens.size(), kVocab));
    }
    return {};
  }
  std::int64_t n_counted(std::int64_t, std::int64_t n) override { return n * kSequences * 64; }
};

// No clipping and no weight decay, as in the peers.
std::vector<double> time_steps(strata::DType compute, int steps, int threads) {
  strata::SessionOptions options;
  options.clip = 0;
  options.optimizer.weight_decay = 0;
  strata::ProgramSet programs;
  programs[strata::ProgramRole::train] = strata::fuse_add_norm(
      must(strata::derive_backward(record(strata::DecoderHead::loss, compute), "loss")));
  const auto plan = must(strata::Engine::plan(programs, options));
  strata::SteadyClock clock;
  const auto pool = must(strata::ThreadPool::create(threads));
  const auto backend = must(strata::create_host_backend({.queue_depth = 256}, *pool, clock));
  const auto engine = must(strata::Engine::create(*plan, {*backend, *pool, clock, strata::posix_io()}));
  must(engine->initialize(1));
  RandomBatches batches;
  std::vector<double> seconds;
  for (int step = 0; step <= steps; ++step) {
    strata::StepReport report;
    seconds.push_back(seconds_of([&] { must(engine->train_step(batches, 1e-4, report)); }));
    fmt::print(stderr, "step {}: loss {:.4f}, {:.3f} s\n", step, report.loss, seconds.back());
  }
  return seconds;
}

/// The GEMMs of a step: y = x w^T, dx = dy w and dw = dy^T x of each linear layer. Weights and their
/// gradients have their own memory, as in a step; activations of one size share a buffer, so that no step has
/// better locality.
class StepGemms {
 public:
  StepGemms(const strata::Program& program, strata::Backend& backend) : backend_(backend) {
    for (const strata::Instr& instr : program.code) {
      if (instr.op != strata::Op::linear) continue;
      const strata::ValueInfo& x = program.value(instr.in[0]);
      const strata::ValueInfo& w = program.value(instr.in[1]);
      const strata::Shape y = program.value(instr.out[0]).shape;
      const bool last = instr.attrs.as<strata::LinearAttrs>()
                            .f32_out;  // the head: the gradient of its weight is f32, as in a step
      layers_.push_back({buffer_view(x, "x"), buffer_view(w, w.name), buffer_view({"", y, x.dtype}, "y"),
                         buffer_view(x, "dx"),
                         buffer_view({"", w.shape, last ? strata::DType::f32 : w.dtype}, "d" + w.name)});
    }
  }
  std::size_t size() const { return 3 * layers_.size(); }
  void run(strata::ThreadPool& pool) {
    for (const Layer& layer : layers_) {
      strata::kernels::linear_forward_host({layer.x, layer.w, {}, layer.y}, pool);
      strata::kernels::linear_backward_input_host({layer.y, layer.w, layer.dx}, pool);
      strata::kernels::linear_backward_weight_host({layer.y, layer.x, layer.dw}, pool);
    }
  }

 private:
  struct Layer {
    strata::TensorView x, w, y, dx, dw;
  };
  strata::TensorView buffer_view(const strata::ValueInfo& value, const std::string& role) {
    const auto [at, fresh] = buffers_.try_emplace({role, value.shape.n_elems()});
    if (fresh) {
      at->second = must(backend_.allocate(strata::MemoryKind::device, value.bytes()));
      std::memset(at->second.view().data, 0x3C, value.bytes());  // about 0.01, both in f32 and in bf16
    }
    return {at->second.view().data, value.shape, value.dtype};
  }

  strata::Backend& backend_;
  std::map<std::pair<std::string, std::int64_t>, strata::Buffer> buffers_;
  std::vector<Layer> layers_;
};

std::vector<double> time_gemms(strata::DType compute, int steps, int threads) {
  strata::SteadyClock clock;
  const auto pool = must(strata::ThreadPool::create(threads));
  const auto backend = must(strata::create_host_backend({}, *pool, clock));
  StepGemms gemms(record(strata::DecoderHead::logits, compute), *backend);
  std::vector<double> seconds;
  for (int step = 0; step <= steps; ++step) {
    seconds.push_back(seconds_of([&] { gemms.run(*pool); }));
    fmt::print(stderr, "{} GEMMs: {:.3f} s\n", gemms.size(), seconds.back());
  }
  return seconds;
}

void choose_gemm(std::string_view dtype) {
  const auto times = strata::kernels::measure_bf16_gemm();
  strata::kernels::force_widened_bf16_gemm(dtype == "widened" ||
                                           (dtype == "bf16" && times.widened_is_faster()));
  fmt::print(stderr, "bf16 with {}: {:.2f} ms per sample, widened to f32 {:.2f}\n",
             strata::kernels::bf16_gemm_kind(), 1e3 * times.native_s, 1e3 * times.widened_s);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc == 5 ? argv[1] : "", dtype = argc == 5 ? argv[2] : "";
  constexpr std::string_view kDtypes[] = {"f32", "bf16", "native", "widened"};
  if ((mode != "step" && mode != "gemm") ||
      std::find(std::begin(kDtypes), std::end(kDtypes), dtype) == std::end(kDtypes)) {
    fmt::print(stderr, "usage: gpt2_step step|gemm f32|bf16|native|widened STEPS THREADS\n");
    return 2;
  }
  try {
    const int steps = std::atoi(argv[3]), threads = std::atoi(argv[4]);
    const strata::DType compute = dtype == "f32" ? strata::DType::f32 : strata::DType::bf16;
    if (compute == strata::DType::bf16) choose_gemm(dtype);
    std::vector<double> seconds =
        mode == "step" ? time_steps(compute, steps, threads) : time_gemms(compute, steps, threads);
    seconds.erase(seconds.begin());
    fmt::print("{{\"seconds\": [{:.6f}]}}\n", fmt::join(seconds, ", "));
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpt2_step: {}\n", error.what());
    return 1;
  }
  return 0;
}
