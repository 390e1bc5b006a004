// One AdamW step of the GPT-2 124M shape (Radford et al. 2019) in f32, four sequences of 64 random tokens,
// with all memory it may want; or the same step's matrix products alone, which is the least any step can
// take.
//   gpt2_step step|gemm STEPS THREADS
// Prints the seconds of each step, after one that is not timed, as JSON. The claim `gpt2_step` compares them.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <strata/engine/engine.h>
#include <strata/graph/passes.h>
#include <strata/kernels/linear.h>
#include <strata/model/decoder.h>
#include <strata/runtime/host_backend.h>
#include <strata/runtime/rng.h>

namespace {

using strata::must;

constexpr std::int64_t kSequences = 4;
constexpr std::int64_t kVocab = 50257;

struct Program {
  strata::Program eval, train;
};
Program record() {
  strata::DecoderConfig config;
  config.layers = 12;
  config.hidden = 768;
  config.heads = 12;
  config.ffn = 3072;
  config.vocab = kVocab;
  config.seq = 64;
  config.positions = 1024;
  Program program;
  program.eval = must(strata::record_decoder(config, kSequences, strata::DecoderHead::loss));
  program.train = must(strata::derive_backward(program.eval, "loss"));
  return program;
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
    for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
      batch.tokens[i] = static_cast<std::int32_t>(rng.below(i, kVocab));
      batch.targets[i] = static_cast<std::int32_t>(rng.below(i + batch.tokens.size(), kVocab));
    }
    return {};
  }
  std::int64_t n_counted(std::int64_t, std::int64_t n) override { return n * kSequences * 64; }
};

// Nothing is clipped or decayed, as by the peers.
std::vector<double> time_steps(int steps, int threads) {
  strata::EngineOptions options;
  options.clip = 0;
  options.adamw.weight_decay = 0;
  strata::ProgramSet programs;
  programs.train = record().train;
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

/// The linear instructions of a program. Parameters and their gradients have memory of their own, as in a
/// step; activations of one size share it, so that no step's can be better placed.
class Products {
 public:
  Products(const strata::Program& program, strata::Backend& backend) : program_(program), backend_(backend) {
    for (const strata::Instr& instr : program.code) {
      if (!is_product(instr.op)) continue;
      code_.push_back(&instr);
      for (const Place& place : places_of(instr)) allocate(place);
    }
  }
  std::size_t size() const { return code_.size(); }
  void run(strata::ThreadPool& pool) {
    for (const strata::Instr* instr : code_) {
      const std::array<Place, 3> places = places_of(*instr);
      const strata::TensorView a = view(places[0]), b = view(places[1]), c = view(places[2]);
      const bool accumulate = (instr->accumulate & 1u) != 0;
      if (instr->op == strata::Op::linear)
        strata::kernels::linear_forward_host({a, b, {}, c}, pool);
      else if (instr->op == strata::Op::linear_backward_input)
        strata::kernels::linear_backward_input_host({a, b, c, accumulate}, pool);
      else
        strata::kernels::linear_backward_weight_host({a, b, c, accumulate}, pool);
    }
  }

 private:
  struct Place {
    strata::ValueId id;
    std::pair<std::int64_t, std::int64_t> key;  // -1 and the value, or the operand and the size
  };
  static bool is_product(strata::Op op) {
    return op == strata::Op::linear || op == strata::Op::linear_backward_input ||
           op == strata::Op::linear_backward_weight;
  }
  std::array<Place, 3> places_of(const strata::Instr& instr) const {
    const auto place = [&](std::int64_t operand, strata::ValueId id) -> Place {
      const strata::ValueInfo& value = program_.value(id);
      if (value.param >= 0) return {id, {-1, id}};
      return {id, {operand, value.shape.n_elems()}};
    };
    return {place(0, instr.in[0]), place(1, instr.in[1]), place(2, instr.out[0])};
  }
  void allocate(const Place& place) {
    if (buffers_.count(place.key) != 0) return;
    const std::size_t bytes = program_.value(place.id).bytes();
    strata::Buffer buffer = must(backend_.allocate(strata::MemoryKind::device, bytes));
    const std::span values(reinterpret_cast<float*>(buffer.view().data), bytes / sizeof(float));
    std::fill(values.begin(), values.end(), 0.01f);
    buffers_.emplace(place.key, std::move(buffer));
  }
  strata::TensorView view(const Place& place) {
    return {buffers_.at(place.key).view().data, program_.value(place.id).shape, strata::DType::f32};
  }

  const strata::Program& program_;
  strata::Backend& backend_;
  std::vector<const strata::Instr*> code_;
  std::map<std::pair<std::int64_t, std::int64_t>, strata::Buffer> buffers_;
};

std::vector<double> time_products(int steps, int threads) {
  const Program program = record();
  strata::SteadyClock clock;
  const auto pool = must(strata::ThreadPool::create(threads));
  const auto backend = must(strata::create_host_backend({}, *pool, clock));
  Products products(program.train, *backend);
  std::vector<double> seconds;
  for (int step = 0; step <= steps; ++step) {
    seconds.push_back(seconds_of([&] { products.run(*pool); }));
    fmt::print(stderr, "{} products: {:.3f} s\n", products.size(), seconds.back());
  }
  return seconds;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc == 4 ? argv[1] : "";
  if (mode != "step" && mode != "gemm") {
    fmt::print(stderr, "usage: gpt2_step step|gemm STEPS THREADS\n");
    return 2;
  }
  try {
    const int steps = std::atoi(argv[2]), threads = std::atoi(argv[3]);
    std::vector<double> seconds = mode == "step" ? time_steps(steps, threads) : time_products(steps, threads);
    seconds.erase(seconds.begin());
    fmt::print("{{\"seconds\": [{:.6f}]}}\n", fmt::join(seconds, ", "));
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpt2_step: {}\n", error.what());
    return 1;
  }
  return 0;
}
