#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <strata/runtime/convert.h>
#include <strata/runtime/backend/cuda_backend.h>
#include <strata/runtime/tensor_view.h>

#include "support/numeric.h"

namespace strata::test {

/// Memory of a test on both sides: host ops read and write `host`, device ops `device`, and the fixture
/// copies between them explicitly.
struct MirroredBuffer {
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> host;
  std::byte* device = nullptr;
  std::size_t bytes = 0;

  std::byte* data() const { return host.get(); }
};

/// A fixture for ops on the host and on the device. All addresses in a test are host addresses, also in
/// arguments; run_on_device() translates them for the device.
template <class Parameter>
class DeviceFixture : public ::testing::TestWithParam<Parameter> {
 protected:
  void SetUp() override {
    if (!cuda_available()) GTEST_SKIP() << cuda_status();
    backend_ = must(create_cuda_backend({}, *pool_));
    stream_ = must(backend_->create_stream(StreamRole::compute));
  }
  void TearDown() override {
    for (const MirroredBuffer& memory : memory_) (void)cudaFree(memory.device);
  }

  virtual DType dtype() const = 0;

  /// Allocates `bytes` on both sides, 256-byte aligned; returns the host address.
  std::byte* memory(std::size_t bytes) {
    MirroredBuffer& made = memory_.emplace_back();
    made.bytes = std::max<std::size_t>(bytes, 1);
    made.host.reset(static_cast<std::byte*>(std::aligned_alloc(256, (made.bytes + 255) / 256 * 256)));
    std::memset(made.data(), 0xCB, made.bytes);
    void* data = nullptr;
    EXPECT_EQ(cudaMalloc(&data, made.bytes), cudaSuccess);
    made.device = static_cast<std::byte*>(data);
    return made.data();
  }
  TensorView unwritten(const Shape& shape, DType dtype) {
    return {memory(static_cast<std::size_t>(shape.n_elems()) * size_of(dtype)), shape, dtype};
  }
  TensorView in(const Shape& shape, std::uint64_t seed, double scale = 1.0) {
    return in(shape, seed, scale, dtype());
  }
  TensorView in(const Shape& shape, std::uint64_t seed, double scale, DType dtype) {
    const TensorView view = unwritten(shape, dtype);
    must(narrow_from_f32(Values(seed).floats(shape.n_elems(), scale), dtype, {view.data, view.bytes()}));
    return view;
  }
  TensorView integers(const std::vector<std::int32_t>& values) {
    const TensorView view = unwritten({std::ssize(values)}, DType::i32);
    std::memcpy(view.data, values.data(), view.bytes());
    return view;
  }
  BufferView workspace(std::size_t bytes) { return {memory(bytes), bytes}; }

  /// Runs a device op on the device's copies of all memory that `args` points into; they are copied there
  /// before the op and back after it. Arguments are nested structs of values and addresses, so every word
  /// that falls into one of this test's buffers is taken for an address.
  template <class Args>
  void run_on_device(Status (*op)(Backend&, Stream&, const Args&), const Args& args) {
    static_assert(std::is_trivially_copyable_v<Args>);
    Args there = args;
    std::vector<MirroredBuffer*> used;
    for (std::size_t at = 0; at + sizeof(std::uintptr_t) <= sizeof there; at += alignof(std::uintptr_t)) {
      std::byte* const word = reinterpret_cast<std::byte*>(&there) + at;
      std::uintptr_t address = 0;
      std::memcpy(&address, word, sizeof address);
      MirroredBuffer* const buffer = buffer_of(address);
      if (buffer == nullptr) continue;
      address = reinterpret_cast<std::uintptr_t>(buffer->device) +
                (address - reinterpret_cast<std::uintptr_t>(buffer->data()));
      std::memcpy(word, &address, sizeof address);
      if (std::find(used.begin(), used.end(), buffer) == used.end()) used.push_back(buffer);
    }
    for (MirroredBuffer* buffer : used)
      ASSERT_EQ(cudaMemcpy(buffer->device, buffer->data(), buffer->bytes, cudaMemcpyHostToDevice),
                cudaSuccess);
    // A copy from pageable memory may return before it has arrived, and the stream does not wait for it.
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    must(op(*backend_, stream_, there));
    must(backend_->synchronize(stream_));
    for (MirroredBuffer* buffer : used)
      ASSERT_EQ(cudaMemcpy(buffer->data(), buffer->device, buffer->bytes, cudaMemcpyDeviceToHost),
                cudaSuccess);
  }

  /// Runs the host op with `args` and the device op with copies of the outputs, then compares their bits.
  template <class Args>
  void expect_same_bits(const char* what, Args args, void (*host)(const Args&, ThreadPool&),
                        Status (*device)(Backend&, Stream&, const Args&),
                        const std::vector<TensorView Args::*>& outputs) {
    Args device_args = args;
    for (TensorView Args::*output : outputs) {
      (device_args.*output).data = memory((args.*output).bytes());
      std::memcpy((device_args.*output).data, (args.*output).data, (args.*output).bytes());
    }
    host(args, *pool_);
    run_on_device(device, device_args);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      EXPECT_EQ(
          std::memcmp((args.*outputs[i]).data, (device_args.*outputs[i]).data, (args.*outputs[i]).bytes()), 0)
          << what << ", output " << i;
  }

  /// The same with `output` aliasing `input`, which the op must allow.
  template <class Args>
  void expect_same_bits_in_place(const char* what, Args args, void (*host)(const Args&, ThreadPool&),
                                 Status (*device)(Backend&, Stream&, const Args&), TensorView Args::*input,
                                 TensorView Args::*output) {
    const auto copy_of = [&](const TensorView& view) {
      std::byte* const data = memory(view.bytes());
      std::memcpy(data, view.data, view.bytes());
      return data;
    };
    Args device_args = args;
    (args.*input).data = (args.*output).data = copy_of(args.*input);
    (device_args.*input).data = (device_args.*output).data = copy_of(device_args.*input);
    host(args, *pool_);
    run_on_device(device, device_args);
    EXPECT_EQ(std::memcmp((args.*output).data, (device_args.*output).data, (args.*output).bytes()), 0)
        << what << " in place";
  }

  /// Runs both ops and compares one output by relative error in the Euclidean norm.
  template <class Args>
  void expect_close(const char* what, Args args, void (*host)(const Args&, ThreadPool&),
                    Status (*device)(Backend&, Stream&, const Args&), TensorView Args::*output,
                    double tolerance) {
    Args device_args = args;
    const TensorView want = args.*output;
    TensorView& got = device_args.*output;
    got.data = memory(want.bytes());
    std::memcpy(got.data, want.data, want.bytes());
    host(args, *pool_);
    run_on_device(device, device_args);
    EXPECT_LE(relative_error(widened(got), widen(widened(want))), tolerance) << what;
  }
  static std::vector<float> widened(const TensorView& view) {
    std::vector<float> values(static_cast<std::size_t>(view.n_elems()));
    must(widen_to_f32(view.dtype, {view.data, view.bytes()}, values));
    return values;
  }

  MirroredBuffer* buffer_of(std::uintptr_t address) {
    for (MirroredBuffer& buffer : memory_) {
      const auto begin = reinterpret_cast<std::uintptr_t>(buffer.data());
      if (address >= begin && address < begin + buffer.bytes) return &buffer;
    }
    return nullptr;
  }

  const std::unique_ptr<ThreadPool> pool_ = must(ThreadPool::create(2));
  std::unique_ptr<Backend> backend_;
  Stream stream_;
  std::deque<MirroredBuffer> memory_;
};

}  // namespace strata::test
