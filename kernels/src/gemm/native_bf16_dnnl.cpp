#include "gemm/native_bf16.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include <strata/kernels/bf16_gemm.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/memory/alloc_counter.h>
#include <strata/runtime/thread_annotations.h>

#include "gemm/one_openmp_thread.h"

namespace strata::kernels::detail {
namespace {

/// Everything that a primitive and thus its bits depend on.
struct MatmulKey {
  std::int64_t m, n, k, lda, ldb, ldc;
  bool trans_a, trans_b, accumulate;
  friend bool operator==(const MatmulKey&, const MatmulKey&) = default;
};
struct MatmulKeyHash {
  std::size_t operator()(const MatmulKey& key) const noexcept {
    std::size_t hash = (key.trans_a ? 1u : 0u) + (key.trans_b ? 2u : 0u) + (key.accumulate ? 4u : 0u);
    for (const std::int64_t x : {key.m, key.n, key.k, key.lda, key.ldb, key.ldc})
      hash = hash * 0x9E3779B97F4A7C15ull + std::hash<std::int64_t>()(x);
    return hash;
  }
};

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

dnnl::memory::desc matrix(std::int64_t rows, std::int64_t columns, dnnl::memory::data_type dtype,
                          std::int64_t ld, bool transposed) {
  return {{rows, columns}, dtype, transposed ? dnnl::memory::dims{1, ld} : dnnl::memory::dims{ld, 1}};
}

/// A compiled GEMM. The scratchpad belongs to the calling thread, so several threads may run it at once.
class Matmul {
 public:
  explicit Matmul(const MatmulKey& key)
      : a_(matrix(key.m, key.k, dnnl::memory::data_type::bf16, key.lda, key.trans_a)),
        b_(matrix(key.k, key.n, dnnl::memory::data_type::bf16, key.ldb, key.trans_b)),
        c_(matrix(key.m, key.n, dnnl::memory::data_type::f32, key.ldc, false)) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (key.accumulate) {
      dnnl::post_ops add;
      add.append_sum(1.0f);
      attributes.set_post_ops(add);
    }
    const dnnl::matmul::primitive_desc description({a_, b_, c_}, attributes, engine());
    scratchpad_ = description.scratchpad_desc();
    primitive_ = dnnl::matmul(description);
  }

  void operator()(const void* a, const void* b, void* c) const {
    const ThirdPartyScope scope;  // allocations of the scratchpad and of oneDNN's memory handles
    thread_local const dnnl::stream stream(engine());
    thread_local std::vector<std::byte> scratch;
    if (scratch.size() < scratchpad_.get_size()) scratch.resize(scratchpad_.get_size());
    // oneDNN has no const memory, but it does not write to its source operands.
    primitive_.execute(stream, {{DNNL_ARG_SRC, dnnl::memory(a_, engine(), const_cast<void*>(a))},
                                {DNNL_ARG_WEIGHTS, dnnl::memory(b_, engine(), const_cast<void*>(b))},
                                {DNNL_ARG_DST, dnnl::memory(c_, engine(), c)},
                                {DNNL_ARG_SCRATCHPAD, dnnl::memory(scratchpad_, engine(), scratch.data())}});
  }

 private:
  dnnl::memory::desc a_, b_, c_, scratchpad_;
  dnnl::matmul primitive_;
};

/// Caches primitives: creating one takes 0.1 to 0.5 ms, as long as the GEMM of a small tile. Thread-safe.
class MatmulCache {
 public:
  std::shared_ptr<const Matmul> get(const MatmulKey& key) {
    {
      const MutexLock lock(mutex_);
      if (const auto found = made_.find(key); found != made_.end()) return found->second;
    }
    const auto made = create(key);  // not under the lock, so two threads may create the same primitive
    const MutexLock lock(mutex_);
    // Only varying sequence lengths reach this limit; training needs a few primitives per layer shape.
    if (made_.size() >= kMaxEntries) made_.clear();
    return made_.try_emplace(key, made).first->second;
  }

 private:
  static std::shared_ptr<const Matmul> create(const MatmulKey& key) {
    const ThirdPartyScope scope;
    return std::make_shared<const Matmul>(key);
  }
  static constexpr std::size_t kMaxEntries = 4096;
  Mutex mutex_;
  std::unordered_map<MatmulKey, std::shared_ptr<const Matmul>, MatmulKeyHash> made_ STRATA_GUARDED_BY(mutex_);
};

MatmulCache& cache() {
  static MatmulCache all;  // affects only speed: its content changes no result
  return all;
}

void multiply(const Gemm& g) {
  (*cache().get({g.m, g.n, g.k, g.lda, g.ldb, g.ldc, g.trans_a, g.trans_b, g.accumulate}))(g.a, g.b, g.c);
}

// A row has the same bits among any number of others as long as the distance between rows of C is their
// length in all GEMMs, or in none (oneDNN 2.7, AVX512-BF16: tests of rows). One row at a larger distance is
// summed in another order: it is computed as the first of two.
bool is_row_of_more(const Gemm& g) noexcept { return g.m == 1 && g.ldc > g.n && !g.trans_a; }

void multiply_row(const Gemm& g) {
  const ThirdPartyScope scope;  // allocations of scratch that the thread keeps
  thread_local std::vector<std::uint16_t> rows;
  thread_local std::vector<float> sums;
  Gemm two = g;
  two.m = 2;
  two.lda = g.k;
  two.ldc = g.n + 16;
  rows.assign(static_cast<std::size_t>(2 * g.k), 0);
  sums.assign(static_cast<std::size_t>(2 * two.ldc), 0.0f);
  std::memcpy(rows.data(), g.a, static_cast<std::size_t>(g.k) * sizeof(std::uint16_t));
  auto* const c = static_cast<float*>(g.c);
  if (g.accumulate) std::copy_n(c, g.n, sums.data());
  two.a = rows.data();
  two.c = sums.data();
  multiply(two);
  std::copy_n(sums.data(), g.n, c);
}

}  // namespace

Bf16Gemm detect_native_bf16_gemm() noexcept {
  const auto has = [isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa())](dnnl::cpu_isa wanted) {
    return (isa & static_cast<unsigned>(wanted)) == static_cast<unsigned>(wanted);
  };
  if (has(dnnl::cpu_isa::avx512_core_amx)) return Bf16Gemm::amx;
  return has(dnnl::cpu_isa::avx512_core_bf16) ? Bf16Gemm::avx512_bf16 : Bf16Gemm::widened;
}

void gemm_native_bf16(const Gemm& g) noexcept {
  if (g.k == 0) return write_empty_sums(g);
  const OneOpenMpThread one_thread;
  try {
    is_row_of_more(g) ? multiply_row(g) : multiply(g);
  } catch (const std::exception& error) {
    STRATA_ASSERT(false, "oneDNN: ", error.what(), " for ", g.m, " x ", g.n, " x ", g.k, " in bf16");
  }
}

}  // namespace strata::kernels::detail
