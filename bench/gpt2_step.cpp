// One AdamW step of the GPT-2 124M shape (Radford et al. 2019), four sequences of 64 random tokens, without
// memory limits; or only the GEMMs of that step, a lower bound of any step's time.
//   gpt2_step MODE f32|bf16|native|widened STEPS THREADS
// MODE: step, the engine; pinned, the engine with all states in pinned memory; states and params, the same
// step by a trainer that is linked with strata, whose session holds the optimizer states, or the parameters
// and gradients, too; gemm. With bf16, GEMMs use the fastest implementation on this CPU, which is measured
// first; native and widened select one. Prints the seconds of each step, after an untimed one, as JSON, and
// the digest of the states. The claims `gpt2_step` and `trainer_step` compare them.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <strata/engine/engine.h>
#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/passes.h>
#include <strata/kernels/bf16_gemm.h>
#include <strata/kernels/linear.h>
#include <strata/model/decoder.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/rng.h>

#include "engine/program_trainer.h"

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
strata::SessionOptions step_options() {
  strata::SessionOptions options;
  options.clip = 0;
  options.optimizer.weight_decay = 0;
  return options;
}

struct Times {
  std::vector<double> seconds;  // the time of each step
  std::string digest;           // the digest of all states after the last one
};

/// The objects that a run needs, and the engine.
struct Run {
  Run(strata::DType compute, int threads, const strata::SessionOptions& options = step_options())
      : pool(must(strata::ThreadPool::create(threads))) {
    programs[strata::ProgramRole::train] = strata::fuse_add_norm(
        must(strata::derive_backward(record(strata::DecoderHead::loss, compute), "loss")));
    plan = must(strata::Engine::plan(programs, options));
    engine = must(strata::Engine::create(*plan, {*backend, *pool, clock, strata::posix_io()}));
    must(engine->initialize(1));
  }
  strata::ProgramSet programs;
  std::unique_ptr<const strata::RunPlan> plan;
  strata::SteadyClock clock;
  std::unique_ptr<strata::ThreadPool> pool;
  std::unique_ptr<strata::Backend> backend =
      must(strata::create_host_backend({.queue_depth = 256}, *pool, clock));
  std::unique_ptr<strata::Engine> engine;
};

// Times steps that return their loss, after one that is not timed.
std::vector<double> time_each(int steps, const auto& step) {
  std::vector<double> seconds;
  for (int i = 0; i <= steps; ++i) {
    float loss = 0;
    seconds.push_back(seconds_of([&] { loss = step(); }));
    fmt::print(stderr, "step {}: loss {:.4f}, {:.3f} s\n", i, loss, seconds.back());
  }
  return seconds;
}

Times time_steps(strata::PlacementPolicy policy, strata::DType compute, int steps, int threads) {
  strata::SessionOptions options = step_options();
  options.policy = policy;
  Run run(compute, threads, options);
  RandomBatches batches;
  Times times;
  times.seconds = time_each(steps, [&] {
    strata::StepReport report;
    must(run.engine->train_step(batches, 1e-4, report));
    return report.loss;
  });
  times.digest = must(run.engine->state_digest());
  return times;
}

std::map<std::string, std::vector<float>, std::less<>> initial_params(strata::Engine& engine) {
  std::map<std::string, std::vector<float>, std::less<>> params;
  must(engine.visit(strata::Payload::param,
                    [&](const strata::StatePiece& piece, std::span<const float> values) {
                      std::vector<float>& param = params[std::string(piece.name)];
                      param.insert(param.end(), values.begin(), values.end());
                      return strata::Status::ok();
                    }));
  return params;
}

Times time_trainer(strata::TrainerHolds holds, strata::DType compute, int steps, int threads) {
  Run run(compute, threads);
  auto params = initial_params(*run.engine);
  run.engine.reset();
  const strata::SessionOptions options = step_options();
  strata::test::ProgramTrainer trainer(run.programs[strata::ProgramRole::train], options, holds, *run.backend,
                                       *run.pool);
  const auto plan = must(strata::plan_trainer_states(trainer.params(), options, holds));
  strata::SessionEnvironment environment{*run.backend, *run.pool, run.clock};
  environment.open_store = [](const strata::NvmeOptions&) {
    return strata::Result<strata::StorePtr<strata::ObjectStore>>(strata::StorePtr<strata::ObjectStore>());
  };
  const auto session = must(strata::TrainerSession::create(*plan, environment, trainer.addresses()));
  must(session->fill(strata::Payload::param, [&](const strata::StatePiece& piece, std::span<float> values) {
    std::copy_n(params.find(piece.name)->second.begin() + piece.offset, values.size(), values.begin());
    return strata::Status::ok();
  }));
  params.clear();
  RandomBatches batches;
  Times times;
  times.seconds = time_each(steps, [&] { return trainer.step(*session, batches, 1e-4).loss; });
  if (holds == strata::TrainerHolds::states) must(session->bind(trainer.addresses()));
  times.digest = must(session->state_digest());
  return times;
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

Times time_gemms(strata::DType compute, int steps, int threads) {
  strata::SteadyClock clock;
  const auto pool = must(strata::ThreadPool::create(threads));
  const auto backend = must(strata::create_host_backend({}, *pool, clock));
  StepGemms gemms(record(strata::DecoderHead::logits, compute), *backend);
  std::vector<double> seconds;
  for (int step = 0; step <= steps; ++step) {
    seconds.push_back(seconds_of([&] { gemms.run(*pool); }));
    fmt::print(stderr, "{} GEMMs: {:.3f} s\n", gemms.size(), seconds.back());
  }
  return {seconds, ""};
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
  constexpr std::string_view kModes[] = {"step", "pinned", "states", "params", "gemm"};
  constexpr std::string_view kDtypes[] = {"f32", "bf16", "native", "widened"};
  if (std::find(std::begin(kModes), std::end(kModes), mode) == std::end(kModes) ||
      std::find(std::begin(kDtypes), std::end(kDtypes), dtype) == std::end(kDtypes)) {
    fmt::print(stderr,
               "usage: gpt2_step step|pinned|states|params|gemm f32|bf16|native|widened STEPS THREADS\n");
    return 2;
  }
  try {
    const int steps = std::atoi(argv[3]), threads = std::atoi(argv[4]);
    const strata::DType compute = dtype == "f32" ? strata::DType::f32 : strata::DType::bf16;
    if (compute == strata::DType::bf16) choose_gemm(dtype);
    using Holds = strata::TrainerHolds;
    using Policy = strata::PlacementPolicy;
    Times times = mode == "step"     ? time_steps(Policy::automatic, compute, steps, threads)
                  : mode == "pinned" ? time_steps(Policy::pinned, compute, steps, threads)
                  : mode == "states" ? time_trainer(Holds::states, compute, steps, threads)
                  : mode == "params" ? time_trainer(Holds::params, compute, steps, threads)
                                     : time_gemms(compute, steps, threads);
    times.seconds.erase(times.seconds.begin());
    fmt::print("{{\"seconds\": [{:.6f}], \"digest\": \"{}\"}}\n", fmt::join(times.seconds, ", "),
               times.digest);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpt2_step: {}\n", error.what());
    return 1;
  }
  return 0;
}
