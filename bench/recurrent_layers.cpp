// Times layers with a recurrence, forward and backward in f32: a gated delta net of Qwen3-Next's form (hidden
// 1024, 8 and 16 heads of 128), and a layer of Mamba-2 (hidden 1024, 32 heads of 64, states of 128).
//   recurrent_layers delta|mamba2 TOKENS THREADS
// For each line on stdin it runs the layer a few times and prints the median seconds as JSON; at the end of
// stdin it prints what it has run. bench/peers/steps/recurrent_layers.py is the same program of transformers.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>

#include <strata/graph/builder.h>
#include <strata/graph/launch.h>
#include <strata/graph/passes.h>
#include <strata/kernels/mixers/divided_columns.h>
#include <strata/kernels/values/delta_heads.h>
#include <strata/kernels/values/scan_heads.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/convert.h>
#include <strata/runtime/threads/thread_pool.h>

namespace {

using strata::Builder;
using strata::ColumnParts;
using strata::Program;
using strata::TensorView;
using strata::Value;
using strata::ValueId;
namespace kernels = strata::kernels;

constexpr std::int64_t kHidden = 1024, kInner = 2048, kTaps = 4;
constexpr strata::ParamOptions kRate = {.is_f32 = true};

Value delta_net(Builder& b, Value x, int tokens) {
  const kernels::DeltaHeads heads = {8, 16, 128, 128, tokens};
  const std::int64_t channels = heads.qkv_width();
  const ColumnParts parts = b.divide_columns(b.linear(x, b.param("in", {channels + kInner, kHidden}, {})),
                                             {.first = channels, .second = kInner});
  const Value ba = b.linear(x, b.param("gates", {32, kHidden}, {}));
  const Value qkv = b.causal_conv(parts.first, b.param("taps", {channels, kTaps}, {}), {}, tokens, true);
  const strata::DeltaGates gates =
      b.delta_gates(ba, b.param("a_log", {16}, kRate), b.param("dt", {16}, kRate));
  return b.gated_rmsnorm(b.delta_rule(qkv, gates, heads), parts.second, b.param("norm", {128}, {}), 1e-6f);
}

Value mamba2(Builder& b, Value x, int tokens) {
  const kernels::ScanHeads heads = {1, 32, 128, 64, tokens};
  const std::int64_t channels = heads.xbc_width();
  const ColumnParts parts =
      b.divide_columns(b.linear(x, b.param("in", {kInner + channels + 32, kHidden}, {})),
                       {.first = kInner, .second = channels + 32});
  const ColumnParts behind = b.divide_columns(parts.second, {.first = channels, .second = 32});
  const Value xbc = b.causal_conv(behind.first, b.param("taps", {channels, kTaps}, {}),
                                  b.param("conv_bias", {channels}, {}), tokens, true);
  const strata::ScanGates gates =
      b.scan_gates(behind.second, b.param("a_log", {32}, kRate), b.param("dt", {32}, kRate), {});
  const Value y = b.state_scan(xbc, gates, b.param("d", {32}, kRate), heads);
  return b.gated_rmsnorm(y, parts.first, b.param("norm", {kInner}, {}), 1e-5f, kInner, true);
}

/// A layer on the rows of a table, whose results are the logits of a loss.
Program record(const std::string& kind, int tokens) {
  Builder b;
  const Value ids = b.input("ids", {tokens}, strata::DType::i32);
  const Value x = b.embedding(ids, b.param("x", {tokens, kHidden}, {}));
  const Value y = kind == "delta" ? delta_net(b, x, tokens) : mamba2(b, x, tokens);
  const Value logits = b.linear(y, b.param("out", {kHidden, kInner}, {}));
  const Program forward = strata::must(b.finish({{"loss", b.cross_entropy(logits, ids)}}));
  return strata::must(strata::derive_backward(forward, "loss"));
}

/// A program in the memory that plan_memory() assigns.
class Layer {
 public:
  explicit Layer(Program program, strata::Backend& backend)
      : program_(std::move(program)),
        plan_(strata::plan_memory(program_)),
        arena_(plan_.arena_bytes / sizeof(double) + 32),
        backend_(backend),
        stream_(strata::must(backend.create_stream(strata::StreamRole::compute))) {
    for (const strata::ParamInfo& param : program_.params) {
      for (const ValueId id : {param.value, param.grad})
        own_[id].resize(program_.value(id).bytes() / sizeof(double) + 1);
      auto* const values = view(param.value).as<float>();
      std::uint32_t state = 1;
      for (std::int64_t i = 0; i < param.shape.n_elems(); ++i) {
        state = state * 1664525u + 1013904223u;
        values[i] = (static_cast<float>(state >> 8) / 16777216.0f - 0.5f) * 0.05f;
      }
    }
    const TensorView ids = view(program_.find("ids"));
    for (std::int64_t i = 0; i < ids.n_elems(); ++i)
      ids.as<std::int32_t>()[i] = static_cast<std::int32_t>(i % kHidden);
  }
  double seconds() {
    const auto begin = std::chrono::steady_clock::now();
    for (const strata::Instr& instr : program_.code) {
      std::vector<TensorView> in, out;
      for (const ValueId id : instr.in) in.push_back(view(id));
      for (const ValueId id : instr.out) out.push_back(view(id));
      strata::must(strata::launch({instr.op, instr.attrs, instr.accumulate, in, out}, backend_, stream_));
    }
    strata::must(backend_.synchronize(stream_));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  float loss() { return *view(program_.find("loss")).as<float>(); }

 private:
  TensorView view(ValueId id) {
    if (id == strata::kNoValue) return {};
    const strata::ValueInfo& info = program_.value(id);
    if (const auto found = own_.find(id); found != own_.end())
      return {reinterpret_cast<std::byte*>(found->second.data()), info.shape, info.dtype};
    const std::size_t at = plan_.offset[static_cast<std::size_t>(id)];
    if (at == strata::MemoryPlan::kUnplaced) return {nullptr, info.shape, info.dtype};
    return {reinterpret_cast<std::byte*>(arena_.data()) + at, info.shape, info.dtype};
  }

  const Program program_;
  const strata::MemoryPlan plan_;
  std::vector<double> arena_;
  std::map<ValueId, std::vector<double>> own_;
  strata::Backend& backend_;
  strata::Stream stream_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "";
  const int tokens = argc > 2 ? std::atoi(argv[2]) : 0, threads = argc > 3 ? std::atoi(argv[3]) : 0;
  if ((kind != "delta" && kind != "mamba2") || tokens < 1 || tokens > kHidden || threads < 1) {
    fmt::print(stderr, "usage: recurrent_layers delta|mamba2 TOKENS THREADS, at most {} tokens\n", kHidden);
    return 2;
  }
  strata::SteadyClock clock;
  const auto pool = strata::must(strata::ThreadPool::create(threads));
  const auto backend = strata::must(strata::create_host_backend({}, *pool, clock));
  Layer layer(record(kind, tokens), *backend);
  const int runs = tokens >= 512 ? 3 : 20;
  for (std::string line; std::getline(std::cin, line);) {
    std::vector<double> seconds;
    for (int i = 0; i < runs; ++i) seconds.push_back(layer.seconds());
    std::nth_element(seconds.begin(), seconds.begin() + runs / 2, seconds.end());
    fmt::print("{{\"seconds\": {}}}\n", seconds[static_cast<std::size_t>(runs / 2)]);
    std::fflush(stdout);
  }
  fmt::print("{{\"layer\": \"{}\", \"tokens\": {}, \"threads\": {}, \"loss\": {}}}\n", kind, tokens, threads,
             layer.loss());
  return 0;
}
