#pragma once

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>
#include <strata/runtime/threads/thread_pool.h>

#include "support/numeric.h"
#include "support/reference_ops.h"

namespace strata::test {

/// Values stored in f32, bf16 or f16, rounded when they are stored. They begin off any SIMD boundary, so that
/// every op test is also a test of misaligned spans.
class Tensor {
 public:
  Tensor(Shape shape, const std::vector<float>& values, DType dtype = DType::f32);
  /// A tensor of NaNs, which an op must overwrite.
  static Tensor unwritten(Shape shape, DType dtype = DType::f32) {
    return Tensor(shape, std::vector<float>(static_cast<std::size_t>(shape.n_elems()), std::nanf("")), dtype);
  }
  TensorView view() { return {storage_.data() + size_of(dtype_), shape_, dtype_}; }
  DType dtype() const { return dtype_; }
  std::vector<float> values() const;

 private:
  Shape shape_;
  DType dtype_;
  std::vector<std::byte> storage_;
};

inline TensorView view(std::vector<std::int32_t>& values) {
  return {
      reinterpret_cast<std::byte*>(values.data()), {static_cast<std::int64_t>(values.size())}, DType::i32};
}
inline TensorView view(std::vector<double>& values) {
  return {
      reinterpret_cast<std::byte*>(values.data()), {static_cast<std::int64_t>(values.size())}, DType::f64};
}

/// Workspace that is filled with garbage.
class Workspace {
 public:
  explicit Workspace(std::size_t bytes) : storage_(bytes, std::byte{0xCB}) {}
  BufferView view() { return {storage_.data(), storage_.size()}; }

 private:
  std::vector<std::byte> storage_;
};

inline std::unique_ptr<ThreadPool> pool(int threads = 2) { return must(ThreadPool::create(threads)); }

inline std::vector<float> joined(std::initializer_list<std::vector<float>> parts) {
  std::vector<float> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

/// A backend that runs queued work immediately and records the last call.
class InlineBackend final : public Backend {
 public:
  explicit InlineBackend(DeviceKind kind = DeviceKind::host) : pool_(pool()) { info_.kind = kind; }
  const DeviceInfo& info() const noexcept override { return info_; }
  Result<Buffer> allocate(MemoryKind, std::size_t) override { return absent(); }
  Result<Stream> create_stream(StreamRole role) override { return Stream(this, 0, role); }
  Status copy_async(BufferView, ConstBufferView, Stream&) override { return absent(); }
  Status host_call_async(const HostCall& call, Stream&) override {
    last = call;
    ++calls;
    return call(*pool_);
  }
  Status discard_async(BufferView, Stream&) override { return absent(); }
  Result<Event> record(Stream&) override { return Event{}; }
  Status wait_on_async(const Event&, Stream&) override { return absent(); }
  Status wait(const Event&) override { return {}; }
  bool is_complete(const Event&) noexcept override { return true; }
  Status host_access(const Access&) override { return absent(); }
  BackendCounters counters() const override { return {}; }

  HostCall last;
  int calls = 0;

 protected:
  void release(MemoryKind, BufferView) noexcept override {}
  void abandon(BufferView) noexcept override {}
  void destroy_stream(int) noexcept override {}

 private:
  static Status absent() { return Status::error(Code::unsupported, "not in this fake"); }
  DeviceInfo info_;
  std::unique_ptr<ThreadPool> pool_;
};

}  // namespace strata::test
