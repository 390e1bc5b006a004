#include <omp.h>

#include <cstring>
#include <vector>

#include <benchmark/benchmark.h>
#include <oneapi/dnnl/dnnl.h>

#include <strata/kernels/attention.h>
#include <strata/kernels/elementwise.h>
#include <strata/kernels/linear.h>
#include <strata/runtime/threads/thread_pool.h>

// Benchmarks GEMMs with training shapes against one oneDNN call over the whole GEMM, and memory-bound ops
// against memcpy.
namespace strata::kernels {
namespace {

struct Operand {
  explicit Operand(Shape s) : shape(s), values(static_cast<std::size_t>(s.n_elems()), 0.5f) {}
  TensorView view() { return {reinterpret_cast<std::byte*>(values.data()), shape, DType::f32}; }
  Shape shape;
  std::vector<float> values;
};

void report_flops(benchmark::State& state, double flops) {
  state.counters["GFLOP/s"] =
      benchmark::Counter(flops * 1e-9 * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

enum Form : std::int64_t { forward, input, weight };

/// Arguments: form, T, N, K, threads.
void linear(benchmark::State& state) {
  const auto pool = must(ThreadPool::create(static_cast<int>(state.range(4))));
  const std::int64_t t = state.range(1), n = state.range(2), k = state.range(3);
  Operand x({t, k}), w({n, k}), y({t, n});
  for (auto _ : state) {
    if (state.range(0) == forward) linear_forward_host({x.view(), w.view(), {}, y.view()}, *pool);
    if (state.range(0) == input) linear_backward_input_host({y.view(), w.view(), x.view()}, *pool);
    if (state.range(0) == weight) linear_backward_weight_host({y.view(), x.view(), w.view()}, *pool);
  }
  report_flops(state, 2.0 * static_cast<double>(t * n * k));
}

/// The upper bound: the same GEMM as one oneDNN call with that many OpenMP threads.
void one_call(benchmark::State& state) {
  omp_set_num_threads(static_cast<int>(state.range(4)));
  const std::int64_t t = state.range(1), n = state.range(2), k = state.range(3);
  Operand x({t, k}), w({n, k}), y({t, n});
  for (auto _ : state) {
    if (state.range(0) == forward)
      dnnl_sgemm('N', 'T', t, n, k, 1.0f, x.values.data(), k, w.values.data(), k, 0.0f, y.values.data(), n);
    if (state.range(0) == input)
      dnnl_sgemm('N', 'N', t, k, n, 1.0f, y.values.data(), n, w.values.data(), k, 0.0f, x.values.data(), k);
    if (state.range(0) == weight)
      dnnl_sgemm('T', 'N', n, k, t, 1.0f, y.values.data(), n, x.values.data(), k, 0.0f, w.values.data(), k);
  }
  report_flops(state, 2.0 * static_cast<double>(t * n * k));
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"form", "T", "N", "K", "threads"})->UseRealTime();
  for (const std::int64_t threads : {1, 2})
    for (const std::int64_t form : {forward, input, weight}) {
      bench->Args({form, 512, 1024, 256, threads});
      bench->Args({form, 512, 256, 1024, threads});
      bench->Args({form, 512, 3072, 768, threads});
    }
}
BENCHMARK(linear)->Apply(shapes);
BENCHMARK(one_call)->Apply(shapes);

void attention(benchmark::State& state) {
  const auto pool = must(ThreadPool::create(static_cast<int>(state.range(0))));
  const std::int64_t batch = 2, seq = 256, heads = 8, h = 512;
  Operand qkv({batch * seq, 3 * h}), out({batch * seq, h}), lse({batch * heads * seq});
  std::vector<std::byte> scratch(attention_forward_workspace_bytes(batch * seq, {heads, heads, seq}));
  for (auto _ : state)
    attention_forward_host(
        {qkv.view(), out.view(), lse.view(), {}, {heads, heads, seq}, {scratch.data(), scratch.size()}},
        *pool);
  report_flops(state, 4.0 * static_cast<double>(batch * seq * seq * h) / 2.0);  // the causal half
}
BENCHMARK(attention)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

constexpr std::int64_t kElements = 1 << 24;

void gelu(benchmark::State& state) {
  const auto pool = must(ThreadPool::create(static_cast<int>(state.range(0))));
  Operand x({kElements}), y({kElements});
  for (auto _ : state) gelu_forward_host({x.view(), y.view()}, *pool);
  state.SetBytesProcessed(state.iterations() * kElements * 8);
}
BENCHMARK(gelu)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

void copy(benchmark::State& state) {
  Operand x({kElements}), y({kElements});
  for (auto _ : state) {
    std::memcpy(y.values.data(), x.values.data(), kElements * sizeof(float));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * kElements * 8);
}
BENCHMARK(copy);

}  // namespace
}  // namespace strata::kernels
