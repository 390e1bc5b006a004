#pragma once

#include <string>

#include <strata/runtime/assert.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/str.h>

namespace strata::test {

/// Wraps a Backend and refuses the n-th call that can fail, once or from then on. Used by one thread. Buffers
/// and streams it creates belong to `base`, which must outlive it.
class FaultBackend : public Backend {
 public:
  explicit FaultBackend(Backend& base) : base_(base) {}

  /// The `nth` fallible call from now on (counted from 1) is refused with `code`, and all later ones too if
  /// `sticky`.
  void fail(std::uint64_t nth, bool sticky, Code code = Code::out_of_memory) {
    nth_ = calls_ + nth;
    sticky_ = sticky;
    code_ = code;
  }
  void clear() { nth_ = 0; }
  std::uint64_t calls() const { return calls_; }

  const DeviceInfo& info() const noexcept override { return base_.info(); }
  Result<Buffer> allocate(MemoryKind kind, std::size_t bytes) override {
    STRATA_TRY(next("allocate"));
    return base_.allocate(kind, bytes);
  }
  Result<Stream> create_stream(StreamRole role) override {
    STRATA_TRY(next("create_stream"));
    return base_.create_stream(role);
  }
  Status copy_async(BufferView dst, ConstBufferView src, Stream& stream) override {
    STRATA_TRY(next("copy_async"));
    return base_.copy_async(dst, src, stream);
  }
  Status host_call_async(const HostCall& call, Stream& stream) override {
    STRATA_TRY(next("host_call_async"));
    return base_.host_call_async(call, stream);
  }
  Status discard_async(BufferView view, Stream& stream) override {
    STRATA_TRY(next("discard_async"));
    return base_.discard_async(view, stream);
  }
  Result<Event> record(Stream& stream) override {
    STRATA_TRY(next("record"));
    return base_.record(stream);
  }
  Status wait_on_async(const Event& event, Stream& stream) override {
    STRATA_TRY(next("wait_on_async"));
    return base_.wait_on_async(event, stream);
  }
  Status wait(const Event& event) override { return base_.wait(event); }
  bool is_complete(const Event& event) noexcept override { return base_.is_complete(event); }
  Status host_access(const Access& access) override { return base_.host_access(access); }
  BackendCounters counters() const override { return base_.counters(); }

 protected:
  void release(MemoryKind, BufferView) noexcept override { STRATA_ASSERT(false, "nothing is made here"); }
  void abandon(BufferView) noexcept override { STRATA_ASSERT(false, "nothing is made here"); }
  void destroy_stream(int) noexcept override { STRATA_ASSERT(false, "nothing is made here"); }

 private:
  Status next(const char* what) {
    ++calls_;
    if (nth_ == 0 || calls_ < nth_ || (calls_ > nth_ && !sticky_)) return Status::ok();
    return Status::error(code_, str("injected failure of call ", calls_, ", ", what));
  }

  Backend& base_;
  std::uint64_t calls_ = 0, nth_ = 0;
  bool sticky_ = false;
  Code code_ = Code::out_of_memory;
};

}  // namespace strata::test
