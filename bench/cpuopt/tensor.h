#pragma once

#include <sys/mman.h>

#include <array>
#include <cstring>

#include <strata/cpuopt/update.h>
#include <strata/runtime/rng.h>
#include <strata/runtime/threads/thread_pool.h>
#include <strata/runtime/units.h>

#include "stream.h"

namespace strata::bench {

/// Anonymous memory on huge pages, if the system has them, that begins `past` bytes after the start of a huge
/// page; `past` is less than a huge page.
class HugeSpan {
 public:
  HugeSpan() = default;
  explicit HugeSpan(std::size_t bytes, std::size_t past)
      : bytes_(round_up(std::max<std::size_t>(bytes + past, 1), std::size_t{2} << 20)) {
    void* const at = ::mmap(nullptr, bytes_ + (std::size_t{2} << 20), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    mapping_ = at;
    data_ =
        reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(at), std::uintptr_t{2} << 20));
    (void)::madvise(data_, bytes_, MADV_HUGEPAGE);
    data_ += past;
  }
  HugeSpan(const HugeSpan&) = delete;
  HugeSpan& operator=(const HugeSpan&) = delete;
  ~HugeSpan() {
    if (mapping_ != nullptr) ::munmap(mapping_, bytes_ + (std::size_t{2} << 20));
  }
  std::byte* data() const { return data_; }

 private:
  std::size_t bytes_ = 0;
  void* mapping_ = nullptr;
  std::byte* data_ = nullptr;
};

/// A flat tensor of random values with its optimizer states and its gradient.
class BenchTensor {
 public:
  static constexpr std::int64_t kBlockElems = 65536;  // elements per work item, as in the engine
  // Each span begins five pages and five cache lines further into its huge page than the previous span. If
  // every second span agreed with another in the low 28 bits of its address (1e8 f32 elements), the step took
  // half as long again on a Zen 5, and a quarter longer with only five lines between them: its L1 cache seems
  // to predict the location of a line from such address bits.
  static constexpr std::size_t kApart = 5 * (4096 + 64);

  BenchTensor(const StreamShape& shape, cpuopt::MomentSet moments, std::int64_t n, ThreadPool& pool)
      : n_(n),
        param_(elems(n) * cpuopt::param_bytes(shape.layout), 0),
        master_(elems(n) * cpuopt::master_bytes(shape.layout), kApart),
        m_(moments.first ? moment_bytes(shape.states, round_up(n, kMomentBlock)) : 0, 2 * kApart),
        v_(moments.second ? moment_bytes(shape.states, round_up(n, kMomentBlock)) : 0, 3 * kApart),
        g_(elems(n) * 4, 4 * kApart) {
    block_.layout = shape.layout;
    block_.states = shape.states;
    block_.grad = !shape.narrow_gradient                             ? DType::f32
                  : shape.layout == cpuopt::MasterLayout::f16_shadow ? DType::f16
                                                                     : DType::bf16;
    block_.param = param_.data();
    block_.master = master_.data();
    const std::int64_t padded = round_up(n, kMomentBlock);
    if (moments.first) block_.m = cpuopt::moment_at(shape.states, m_.data(), padded);
    if (moments.second) block_.v = cpuopt::moment_at(shape.states, v_.data(), padded);
    block_.g = g_.data();
    fill(pool);
  }
  const cpuopt::UpdateBlock& block() const { return block_; }

  /// Calls body(block, elements) for every work item, on the pool.
  template <class Body>
  void for_items(ThreadPool& pool, const Body& body) const {
    pool.parallel_for((n_ + kBlockElems - 1) / kBlockElems, [&](std::int64_t i) {
      const std::int64_t at = i * kBlockElems;
      body(block_.at(at), std::min(kBlockElems, n_ - at));
    });
  }

 private:
  static std::size_t elems(std::int64_t n) { return static_cast<std::size_t>(n); }
  void fill(ThreadPool& pool) {
    for_items(pool, [&](const cpuopt::UpdateBlock& b, std::int64_t n) {
      std::vector<float> x(elems(n));
      const Rng rng(1, b.index / kBlockElems);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = rng.uniform(i) - 0.5f;
      cpuopt::split_masters(x, b.layout, b.param, b.master);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.01f * (rng.uniform(x.size() + i) - 0.5f);
      const cpuopt::MasterLayout as = b.grad == DType::f32    ? cpuopt::MasterLayout::f32
                                      : b.grad == DType::bf16 ? cpuopt::MasterLayout::bf16_shadow
                                                              : cpuopt::MasterLayout::f16_shadow;
      std::vector<float> unused(x.size());
      cpuopt::split_masters(x, as, const_cast<void*>(b.g), unused.data());
      // Moments as in the middle of a run, since updates of zeros could be faster or slower.
      if (b.m.values != nullptr) cpuopt::encode_moment(b.states, cpuopt::MomentKind::first, x, b.m);
      for (float& value : x) value *= value;
      if (b.v.values != nullptr) cpuopt::encode_moment(b.states, cpuopt::MomentKind::second, x, b.v);
    });
  }

  std::int64_t n_;
  HugeSpan param_, master_, m_, v_, g_;
  cpuopt::UpdateBlock block_;
};

}  // namespace strata::bench
