// AdamW steps of the GPT-2 124M shape (Radford et al. 2019) on random tokens, without memory limits; or only
// the GEMMs of that step, a lower bound of any step's time.
//   gpt2_step MODE f32|bf16|native|widened STEPS THREADS [--sequences N] [--seq N] [--serve] [--ops]
// MODE: step, the engine; pinned, the engine with all states in pinned memory; states and params, the same
// step by a trainer that is linked with strata, whose session holds the optimizer states, or the parameters
// and gradients, too; gemm; products, the GEMMs and those of attention. With bf16, GEMMs use the fastest
// implementation on this CPU, which is measured first; native and widened select one. Prints the seconds of
// each step, after an untimed one, as JSON, and the digest of the states; with --serve as often as there are
// lines on stdin, with --ops the seconds of a step in each kind of operation instead. The claims `gpt2_step`,
// `gpt2_shapes` and `trainer_step` compare them.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/engine/engine.h>
#include <strata/graph/passes.h>
#include <strata/kernels/bf16_gemm.h>
#include <strata/model/decoder.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/rng.h>
#include <strata/runtime/trace/trace.h>

#include "attention_products.h"
#include "engine/program_trainer.h"
#include "step_gemms.h"

namespace {

using strata::must;

constexpr std::int64_t kVocab = 50257;

/// What is measured, as the command line says.
struct Measured {
  std::string mode, dtype;
  int steps = 1, threads = 1;
  std::int64_t sequences = 4, seq = 64;  // in a step
  bool serves = false, shows_ops = false;

  strata::DType compute() const { return dtype == "f32" ? strata::DType::f32 : strata::DType::bf16; }
};

strata::DecoderConfig gpt2_124m(std::int64_t seq) {
  strata::DecoderConfig config;
  config.layers = 12;
  config.hidden = 768;
  config.heads = 12;
  config.ffn = 3072;
  config.vocab = kVocab;
  config.seq = seq;
  config.positions = 1024;
  return config;
}

strata::Program record(const Measured& measured, strata::DecoderHead head) {
  return must(strata::record_decoder(gpt2_124m(measured.seq), measured.sequences, head,
                                     strata::DecoderRows::whole, measured.compute()));
}

double seconds_of(const auto& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class RandomBatches final : public strata::BatchSource {
 public:
  explicit RandomBatches(const Measured& measured) : tokens_(measured.sequences * measured.seq) {}
  strata::Status fill(std::int64_t index, const strata::BatchView& batch) override {
    const strata::Rng rng(1, static_cast<std::uint64_t>(index));
    const std::span<std::int32_t> tokens = batch["tokens"], targets = batch["targets"];
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::int32_t>(rng.below(i, kVocab));
      targets[i] = static_cast<std::int32_t>(rng.below(i + tokens.size(), kVocab));
    }
    return {};
  }
  std::int64_t n_counted(std::int64_t, std::int64_t n) override { return n * tokens_; }

 private:
  std::int64_t tokens_;
};

// No clipping and no weight decay, as in the peers.
strata::SessionOptions step_options() {
  strata::SessionOptions options;
  options.clip = 0;
  options.optimizer.weight_decay = 0;
  return options;
}

/// The objects that a run needs, and the engine.
struct Run {
  explicit Run(const Measured& measured, const strata::SessionOptions& options = step_options())
      : pool(must(strata::ThreadPool::create(measured.threads))),
        backend(must(strata::create_host_backend({.trace = &trace, .queue_depth = 256}, *pool, clock))) {
    trace.set_enabled(false);
    programs[strata::ProgramRole::train] = strata::fuse_add_norm(
        must(strata::derive_backward(record(measured, strata::DecoderHead::loss), "loss")));
    plan = must(strata::Engine::plan(programs, options));
    engine = must(strata::Engine::create(*plan, {*backend, *pool, clock, strata::posix_io()}));
    must(engine->initialize(1));
  }
  strata::ProgramSet programs;
  std::unique_ptr<const strata::RunPlan> plan;
  strata::SteadyClock clock;
  strata::Trace trace{clock};
  std::unique_ptr<strata::ThreadPool> pool;
  std::unique_ptr<strata::Backend> backend;
  std::unique_ptr<strata::Engine> engine;
};

/// Something whose steps are timed. The first step is not.
class Steps {
 public:
  virtual ~Steps() = default;
  virtual void step() = 0;
  virtual std::string digest() { return ""; }
  virtual strata::Trace* trace() { return nullptr; }  // it shows operations
};

class EngineSteps final : public Steps {
 public:
  EngineSteps(const Measured& measured, strata::PlacementPolicy policy)
      : run_(measured, with(policy)), batches_(measured) {}
  void step() override {
    strata::StepReport report;
    must(run_.engine->train_step(batches_, 1e-4, report));
    fmt::print(stderr, "loss {:.4f}\n", report.loss);
  }
  std::string digest() override { return must(run_.engine->state_digest()); }
  strata::Trace* trace() override { return &run_.trace; }

 private:
  static strata::SessionOptions with(strata::PlacementPolicy policy) {
    strata::SessionOptions options = step_options();
    options.policy = policy;
    return options;
  }
  Run run_;
  RandomBatches batches_;
};

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

/// A trainer that is linked with strata, beginning with the engine's parameters.
class TrainerSteps final : public Steps {
 public:
  TrainerSteps(const Measured& measured, strata::TrainerHolds holds)
      : run_(measured), batches_(measured), holds_(holds) {
    auto params = initial_params(*run_.engine);
    run_.engine.reset();
    trainer_.emplace(run_.programs[strata::ProgramRole::train], options_, holds, *run_.backend, *run_.pool);
    plan_ = must(strata::plan_trainer_states(trainer_->params(), options_, holds));
    strata::SessionEnvironment environment{*run_.backend, *run_.pool, run_.clock};
    environment.open_store = [](const strata::NvmeOptions&) {
      return strata::Result<strata::StorePtr<strata::ObjectStore>>(strata::StorePtr<strata::ObjectStore>());
    };
    session_ = must(strata::TrainerSession::create(*plan_, environment, trainer_->addresses()));
    must(
        session_->fill(strata::Payload::param, [&](const strata::StatePiece& piece, std::span<float> values) {
          std::copy_n(params.find(piece.name)->second.begin() + piece.offset, values.size(), values.begin());
          return strata::Status::ok();
        }));
  }
  void step() override {
    fmt::print(stderr, "loss {:.4f}\n", trainer_->step(*session_, batches_, 1e-4).loss);
  }
  std::string digest() override {
    if (holds_ == strata::TrainerHolds::states) must(session_->bind(trainer_->addresses()));
    return must(session_->state_digest());
  }

 private:
  Run run_;
  RandomBatches batches_;
  strata::TrainerHolds holds_;
  strata::SessionOptions options_ = step_options();
  std::optional<strata::test::ProgramTrainer> trainer_;
  std::unique_ptr<strata::StatePlan> plan_;
  std::unique_ptr<strata::TrainerSession> session_;
};

/// The GEMMs of a step, and the products of its attention.
class GemmSteps final : public Steps {
 public:
  explicit GemmSteps(const Measured& measured)
      : pool_(must(strata::ThreadPool::create(measured.threads))),
        backend_(must(strata::create_host_backend({}, *pool_, clock_))),
        linears_(record(measured, strata::DecoderHead::logits), *backend_) {
    const strata::DecoderConfig config = gpt2_124m(measured.seq);
    if (measured.mode == "products")
      attention_.resize(static_cast<std::size_t>(config.layers),
                        {measured.sequences, measured.seq, config.heads, config.hidden / config.heads});
  }
  void step() override {
    linears_.run(*pool_);
    for (strata::bench::AttentionProducts& attention : attention_) attention.run(*pool_);
  }

 private:
  strata::SteadyClock clock_;
  std::unique_ptr<strata::ThreadPool> pool_;
  std::unique_ptr<strata::Backend> backend_;
  strata::bench::StepGemms linears_;
  std::vector<strata::bench::AttentionProducts> attention_;  // one for each layer
};

void choose_gemm(std::string_view dtype) {
  const auto times = strata::kernels::measure_bf16_gemm();
  strata::kernels::force_widened_bf16_gemm(dtype == "widened" ||
                                           (dtype == "bf16" && times.widened_is_faster()));
  fmt::print(stderr, "bf16 with {}: {:.2f} ms per sample, widened to f32 {:.2f}\n",
             strata::kernels::bf16_gemm_kind(), 1e3 * times.native_s, 1e3 * times.widened_s);
}

std::unique_ptr<Steps> steps_of(const Measured& measured) {
  using Holds = strata::TrainerHolds;
  using Policy = strata::PlacementPolicy;
  if (measured.mode == "gemm" || measured.mode == "products") return std::make_unique<GemmSteps>(measured);
  if (measured.mode == "states") return std::make_unique<TrainerSteps>(measured, Holds::states);
  if (measured.mode == "params") return std::make_unique<TrainerSteps>(measured, Holds::params);
  const Policy policy = measured.mode == "pinned" ? Policy::pinned : Policy::automatic;
  return std::make_unique<EngineSteps>(measured, policy);
}

// The seconds of a step in each operation, the longest first. Spans are those of all lanes.
void print_ops(strata::Trace& trace, int steps) {
  std::map<std::string, double> seconds;
  for (const strata::Trace::TrackSpans& track : trace.spans())
    for (const strata::Trace::Span& span : track.spans)
      seconds[track.name + ": " + span.label] +=
          static_cast<double>(span.end_ns - span.begin_ns) * 1e-9 / steps;
  std::vector<std::pair<std::string, double>> rows(seconds.begin(), seconds.end());
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> texts;
  for (const auto& [name, s] : rows) texts.push_back(fmt::format("\"{}\": {:.6f}", name, s));
  fmt::print("{{\"ops\": {{{}}}}}\n", fmt::join(texts, ", "));
}

void measure(const Measured& measured, Steps& steps) {
  if (measured.shows_ops && steps.trace() != nullptr) steps.trace()->set_enabled(true);
  std::vector<double> seconds;
  for (int i = 0; i < measured.steps; ++i) seconds.push_back(seconds_of([&] { steps.step(); }));
  if (measured.shows_ops && steps.trace() != nullptr) return print_ops(*steps.trace(), measured.steps);
  const std::string digest = measured.serves ? "" : steps.digest();
  fmt::print("{{\"seconds\": [{:.6f}], \"digest\": \"{}\"}}\n", fmt::join(seconds, ", "), digest);
  std::fflush(stdout);
}

void run(const Measured& measured) {
  if (measured.compute() == strata::DType::bf16) choose_gemm(measured.dtype);
  const std::unique_ptr<Steps> steps = steps_of(measured);
  steps->step();
  if (!measured.serves) return measure(measured, *steps);
  for (std::string line; std::getline(std::cin, line);) measure(measured, *steps);
  fmt::print("{{\"bf16\": \"{}\"}}\n", strata::kernels::bf16_gemm_kind());
}

}  // namespace

int main(int argc, char** argv) {
  Measured measured;
  CLI::App app{"steps of GPT-2 124M, or their GEMMs alone"};
  app.add_option("MODE", measured.mode)
      ->required()
      ->check(CLI::IsMember({"step", "pinned", "states", "params", "gemm", "products"}));
  app.add_option("DTYPE", measured.dtype)
      ->required()
      ->check(CLI::IsMember({"f32", "bf16", "native", "widened"}));
  app.add_option("STEPS", measured.steps)->required()->check(CLI::PositiveNumber);
  app.add_option("THREADS", measured.threads)->required()->check(CLI::PositiveNumber);
  app.add_option("--sequences", measured.sequences)->check(CLI::PositiveNumber);
  app.add_option("--seq", measured.seq, "tokens of a sequence")->check(CLI::Range(1, 1024));
  app.add_flag("--serve", measured.serves, "measure STEPS steps for each line on stdin");
  app.add_flag("--ops", measured.shows_ops, "print the seconds of a step by operation");
  CLI11_PARSE(app, argc, argv);
  try {
    run(measured);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpt2_step: {}\n", error.what());
    return 1;
  }
  return 0;
}
