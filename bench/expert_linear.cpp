// Compares the linear layers of experts with one linear layer of the same FLOPs: all rows times one matrix.
//   expert_linear H I THREADS ROUNDS
// For 64 experts with matrices [I, H] and 64, 128 or 512 rows each, or as many in all of which some experts
// have many and others few, it times both in turns and prints for each op the best rates in GFLOP/s and their
// ratio as JSON.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include <fmt/core.h>

#include <strata/kernels/experts/expert_linear.h>
#include <strata/kernels/linear.h>
#include <strata/runtime/convert.h>
#include <strata/runtime/threads/thread_pool.h>

namespace {

using strata::DType;
using strata::Shape;
using strata::TensorView;
namespace kernels = strata::kernels;

constexpr std::int64_t kExperts = 64;

/// A tensor of values near 1, in pages that are present.
class Values {
 public:
  Values(const Shape& shape, DType dtype)
      : memory_(static_cast<std::size_t>(shape.n_elems()) * strata::size_of(dtype)),
        shape_(shape),
        dtype_(dtype) {
    std::vector<float> row(4096);
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = 0.5f + static_cast<float>(i % 97) * 0.01f;
    const std::size_t bytes = row.size() * strata::size_of(dtype);
    for (std::size_t at = 0; at < memory_.size(); at += bytes) {
      const std::size_t n = std::min(bytes, memory_.size() - at);
      strata::must(
          strata::narrow_from_f32({row.data(), n / strata::size_of(dtype)}, dtype, {memory_.data() + at, n}));
    }
  }
  TensorView view() { return {memory_.data(), shape_, dtype_}; }

 private:
  std::vector<std::byte> memory_;
  Shape shape_;
  DType dtype_;
};

/// Offsets of experts that have `rows` each or, if skewed, in proportion to 1 / (e + 4).
std::vector<std::int32_t> offsets_of(std::int64_t rows, bool skewed) {
  std::vector<std::int32_t> at = {0};
  double sum = 0, so_far = 0;
  for (std::int64_t e = 0; e < kExperts; ++e) sum += 1.0 / static_cast<double>(e + 4);
  for (std::int64_t e = 0; e < kExperts; ++e) {
    so_far += skewed ? 1.0 / static_cast<double>(e + 4) / sum : 1.0 / static_cast<double>(kExperts);
    at.push_back(static_cast<std::int32_t>(so_far * static_cast<double>(rows * kExperts) + 0.5));
  }
  return at;
}

double seconds_of(const std::function<void()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Options {
  std::int64_t h, i;
  int rounds;
  strata::ThreadPool& pool;
};

void compare(const Options& o, DType dtype, std::int64_t each, bool skewed) {
  const std::int64_t rows = each * kExperts;
  std::vector<std::int32_t> at = offsets_of(each, skewed);
  const TensorView offsets = {reinterpret_cast<std::byte*>(at.data()), {kExperts + 1}, DType::i32};
  Values x({rows, o.h}, dtype), y({rows, o.i}, dtype), w({kExperts, o.i, o.h}, dtype), one({o.i, o.h}, dtype);
  const kernels::ExpertShape shape = {rows, kExperts, o.i, o.h, dtype};
  std::vector<std::byte> space(std::max(kernels::expert_linear_forward_workspace_bytes(shape),
                                        kernels::expert_linear_backward_input_workspace_bytes(shape)));
  const strata::BufferView scratch = {space.data(), space.size()};
  struct Pair {
    const char* op;
    std::function<void()> experts, linear;
  };
  const Pair pairs[] = {
      {"forward",
       [&] {
         kernels::expert_linear_forward_host({x.view(), w.view(), {}, offsets, y.view(), 0, scratch}, o.pool);
       },
       [&] {
         kernels::linear_forward_host({x.view(), one.view(), {}, y.view()}, o.pool);
       }},
      {"backward_input",
       [&] {
         kernels::expert_linear_backward_input_host({y.view(), w.view(), offsets, x.view(), 0, scratch},
                                                    o.pool);
       },
       [&] {
         kernels::linear_backward_input_host({y.view(), one.view(), x.view()}, o.pool);
       }},
      {"backward_weight",
       [&] {
         kernels::expert_linear_backward_weight_host({y.view(), x.view(), offsets, w.view()}, o.pool);
       },
       [&] {
         kernels::linear_backward_weight_host({y.view(), x.view(), one.view()}, o.pool);
       }}};
  const double flops = 2e-9 * static_cast<double>(rows) * static_cast<double>(o.h * o.i);
  for (const Pair& pair : pairs) {
    double experts = 1e9, linear = 1e9;
    for (int round = 0; round < o.rounds; ++round) {
      experts = std::min(experts, seconds_of(pair.experts));
      linear = std::min(linear, seconds_of(pair.linear));
    }
    fmt::print(
        "{{\"dtype\": \"{}\", \"rows\": {}, \"skewed\": {}, \"op\": \"{}\", \"gflop_per_s\": {:.0f}, "
        "\"linear_gflop_per_s\": {:.0f}, \"ratio\": {:.2f}}}\n",
        to_string(dtype), each, skewed, pair.op, flops / experts, flops / linear, linear / experts);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    fmt::print(stderr, "usage: expert_linear H I THREADS ROUNDS\n");
    return 1;
  }
  const auto pool = strata::must(strata::ThreadPool::create(std::atoi(argv[3])));
  const Options options = {std::atoll(argv[1]), std::atoll(argv[2]), std::atoi(argv[4]), *pool};
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t rows : {64, 128, 512})
      for (const bool skewed : {false, true}) compare(options, dtype, rows, skewed);
  return 0;
}
