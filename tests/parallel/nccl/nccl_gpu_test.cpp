// On a GPU: the kernel of reductions, and a group of one rank over the real NCCL, which needs a GPU for each.
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include <gtest/gtest.h>

#include <strata/parallel/nccl_group.h>
#include <strata/runtime/backend/cuda_backend.h>
#include <strata/runtime/threads/thread_pool.h>

#include "nccl/cuda/cuda_nccl_device.h"
#include "nccl/nccl_library.h"
#include "reduce.h"

namespace strata {
namespace {

class NcclGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cuda_available()) GTEST_SKIP() << cuda_status();
    backend_ = must(create_cuda_backend({}, *pool_));
    stream_ = must(backend_->create_stream(StreamRole::collective));
  }
  // Pinned memory, which the host and kernels use by the same address.
  Buffer memory(std::size_t bytes) { return must(backend_->allocate(MemoryKind::pinned, bytes)); }
  /// Finite values: the bits of a NaN are the processor's.
  void fill(const Buffer& buffer, DType dtype) {
    const BufferView view = buffer.view();
    for (std::size_t i = 0; i < view.bytes / size_of(dtype); ++i)
      detail::with_types(dtype, Reduction::sum, [&]<class T>(T, auto) {
        const float value = std::ldexp(static_cast<float>(random_() % 4001) - 2000.0f, -7);
        T stored{};
        if constexpr (std::is_arithmetic_v<T>)
          stored = static_cast<T>(value / 3);
        else
          stored = from_f32<T>(value);
        std::memcpy(view.data + i * sizeof(T), &stored, sizeof stored);
      });
  }

  const std::unique_ptr<ThreadPool> pool_ = must(ThreadPool::create(2));
  std::unique_ptr<Backend> backend_;
  Stream stream_;
  std::mt19937 random_{11};
};

TEST_F(NcclGpuTest, TheKernelHasTheBitsOfTheHost) {
  const detail::CudaNcclDevice device;
  constexpr std::size_t kSlot = 1 << 16;
  constexpr int kSize = 5, kRank = 2;
  const Buffer inbox = memory((kSize - 1) * kSlot), own = memory(kSlot + 16), into = memory(kSlot + 16);
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i32})
    for (const Reduction reduction : {Reduction::sum, Reduction::max})
      for (const std::size_t n : {std::size_t{1}, std::size_t{7}, std::size_t{4097}})
        for (const std::size_t shift : {std::size_t{0}, size_of(dtype)}) {
          fill(inbox, dtype);
          fill(own, dtype);
          const std::size_t bytes = n * size_of(dtype);
          must(device.reduce_async({own.view().data + shift, inbox.view().data, kSlot, kRank, kSize,
                                    into.view().data + shift, bytes, dtype, reduction},
                                   stream_));
          must(backend_->synchronize(stream_));
          std::vector<const std::byte*> parts;
          for (int q = 0, slot = 0; q < kSize; ++q)
            parts.push_back(q == kRank ? own.view().data + shift
                                       : inbox.view().data + static_cast<std::size_t>(slot++) * kSlot);
          std::vector<std::byte> want(bytes);
          detail::reduce({parts, want.data(), bytes, dtype, reduction}, *pool_);
          EXPECT_EQ(std::memcmp(into.view().data + shift, want.data(), bytes), 0)
              << to_string(dtype) << " x " << n << ", shifted by " << shift << " bytes";
        }
}

TEST_F(NcclGpuTest, AGroupOfOneRankCopies) {
  if (const auto library = detail::load_nccl(NcclOptions().file); !library.has_value())
    GTEST_SKIP() << library.status().message();
  const auto worlds = must(create_thread_worlds(1));
  const auto group = must(create_nccl_group(*worlds[0], *backend_));
  const std::vector<int> self = {0};
  const auto divided = must(group->split(self));
  constexpr std::size_t kBytes = 4004;
  const auto expect_copy = [&](const std::function<Status(ProcessGroup&, BufferView, BufferView)>& run) {
    for (ProcessGroup* const each : {group.get(), divided.get()}) {
      const Buffer from = memory(kBytes), to = memory(kBytes);
      fill(from, DType::f32);
      must(run(*each, from.view().part(0, kBytes), to.view().part(0, kBytes)));
      must(backend_->synchronize(stream_));
      EXPECT_EQ(std::memcmp(from.view().data, to.view().data, kBytes), 0);
    }
  };
  expect_copy(
      [&](ProcessGroup& g, BufferView from, BufferView to) { return g.all_gather(from, to, stream_); });
  expect_copy(
      [&](ProcessGroup& g, BufferView from, BufferView to) { return g.all_to_all(from, to, stream_); });
  expect_copy([&](ProcessGroup& g, BufferView from, BufferView to) {
    return g.reduce_scatter(from, to, DType::f32, Reduction::sum, stream_);
  });
  expect_copy([&](ProcessGroup& g, BufferView from, BufferView to) {
    STRATA_TRY(g.broadcast(from, 0, stream_));
    STRATA_TRY(g.all_reduce(from, DType::f32, Reduction::sum, stream_));
    return backend_->copy_async(to, from, stream_);
  });
}

}  // namespace
}  // namespace strata
