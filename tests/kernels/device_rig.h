#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include <strata/runtime/convert.h>
#include <strata/runtime/cuda_backend.h>

#include "support/numeric.h"

namespace strata::kernels {

/// Tensors that host and device both see, each output twice: of the host's op, and of the device's.
class DeviceOpsTest : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (!cuda_available()) GTEST_SKIP() << cuda_status();
    backend_ = must(create_cuda_backend({}, *pool_));
    stream_ = must(backend_->create_stream(StreamRole::compute));
  }
  void TearDown() override {
    for (void* memory : memory_) (void)cudaFree(memory);
  }

  std::byte* memory(std::size_t bytes) {
    void* data = nullptr;
    EXPECT_EQ(cudaMallocManaged(&data, std::max<std::size_t>(bytes, 1)), cudaSuccess);
    std::memset(data, 0xCB, bytes);
    memory_.push_back(data);
    return static_cast<std::byte*>(data);
  }
  TensorView unwritten(const Shape& shape, DType dtype) {
    return {memory(static_cast<std::size_t>(shape.n_elems()) * size_of(dtype)), shape, dtype};
  }
  TensorView in(const Shape& shape, std::uint64_t seed, double scale = 1.0) {
    return in(shape, seed, scale, GetParam());
  }
  TensorView in(const Shape& shape, std::uint64_t seed, double scale, DType dtype) {
    const TensorView view = unwritten(shape, dtype);
    must(
        narrow_from_f32(test::Values(seed).floats(shape.n_elems(), scale), dtype, {view.data, view.bytes()}));
    return view;
  }
  TensorView integers(const std::vector<std::int32_t>& values) {
    const TensorView view = unwritten({std::ssize(values)}, DType::i32);
    std::memcpy(view.data, values.data(), view.bytes());
    return view;
  }
  BufferView workspace(std::size_t bytes) { return {memory(bytes), bytes}; }

  /// Runs both: `args` with the outputs as they are, and with copies of them; then compares.
  template <class Args>
  void same(const char* what, Args args, void (*host)(const Args&, ThreadPool&),
            Status (*device)(Backend&, Stream&, const Args&),
            const std::vector<TensorView Args::*>& outputs) {
    Args twin = args;
    for (TensorView Args::*output : outputs) {
      (twin.*output).data = memory((args.*output).bytes());
      std::memcpy((twin.*output).data, (args.*output).data, (args.*output).bytes());
    }
    host(args, *pool_);
    must(device(*backend_, stream_, twin));
    must(backend_->synchronize(stream_));
    for (std::size_t i = 0; i < outputs.size(); ++i)
      EXPECT_EQ(std::memcmp((args.*outputs[i]).data, (twin.*outputs[i]).data, (args.*outputs[i]).bytes()), 0)
          << what << ", output " << i;
  }

  /// The same with `output` in the place of `input`, which may be.
  template <class Args>
  void same_in_place(const char* what, Args args, void (*host)(const Args&, ThreadPool&),
                     Status (*device)(Backend&, Stream&, const Args&), TensorView Args::*input,
                     TensorView Args::*output) {
    const auto copy_of = [&](const TensorView& view) {
      std::byte* const data = memory(view.bytes());
      std::memcpy(data, view.data, view.bytes());
      return data;
    };
    Args twin = args;
    (args.*input).data = (args.*output).data = copy_of(args.*input);
    (twin.*input).data = (twin.*output).data = copy_of(twin.*input);
    host(args, *pool_);
    must(device(*backend_, stream_, twin));
    must(backend_->synchronize(stream_));
    EXPECT_EQ(std::memcmp((args.*output).data, (twin.*output).data, (args.*output).bytes()), 0)
        << what << " in place";
  }

  /// Runs both and compares one output by norm.
  template <class Args>
  void close(const char* what, Args args, void (*host)(const Args&, ThreadPool&),
             Status (*device)(Backend&, Stream&, const Args&), TensorView Args::*output, double bar) {
    Args twin = args;
    const TensorView want = args.*output;
    TensorView& got = twin.*output;
    got.data = memory(want.bytes());
    std::memcpy(got.data, want.data, want.bytes());
    host(args, *pool_);
    must(device(*backend_, stream_, twin));
    must(backend_->synchronize(stream_));
    EXPECT_LE(test::relative_error(widened(got), test::widen(widened(want))), bar) << what;
  }
  static std::vector<float> widened(const TensorView& view) {
    std::vector<float> values(static_cast<std::size_t>(view.n_elems()));
    must(widen_to_f32(view.dtype, {view.data, view.bytes()}, values));
    return values;
  }

  const std::unique_ptr<ThreadPool> pool_ = must(ThreadPool::create(2));
  std::unique_ptr<Backend> backend_;
  Stream stream_;
  std::deque<void*> memory_;
};

}  // namespace strata::kernels
