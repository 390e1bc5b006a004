#pragma once

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <strata/chunk/mover.h>
#include <strata/runtime/str.h>

namespace strata::test {

/// A Mover with two streams and a store in memory that is as late as the contract allows: a read arrives, and
/// a write is published, only when it is waited for. If the memory of a write changed before, its wait
/// reports that.
class FakeMover final : public Mover {
 public:
  FakeMover(Backend& backend, Stream& h2d, Stream& d2h) : backend_(backend), h2d_(h2d), d2h_(d2h) {}

  Status copy_async(BufferView dst, ConstBufferView src, Direction direction, const Fence& after,
                    Event& done) override {
    if (fail_copies > 0 && --fail_copies == 0)
      return Status::error(Code::internal, "injected failure of a copy");
    Stream& stream = direction == Direction::h2d ? h2d_ : d2h_;
    for (const Event& event : after.events)
      if (event.stream >= 0 && event.stream != stream.id()) STRATA_TRY(backend_.wait_on_async(event, stream));
    STRATA_TRY(backend_.copy_async(dst, src, stream));
    STRATA_TRY_ASSIGN(done, backend_.record(stream));
    ++copies;
    return Status::ok();
  }
  Result<IoTicket> write_async(PayloadKey key, ConstBufferView src, bool snapshot) override {
    ++writes;
    if (snapshot && stored(key)) snapshots_.try_emplace(id(key), stored_[id(key)]);
    return begin({key, true, {}, src, std::vector<std::byte>(src.data, src.data + src.bytes)});
  }
  Result<IoTicket> read_async(PayloadKey key, BufferView dst) override {
    ++reads;
    std::memset(dst.data, 0xEE, dst.bytes);  // garbage, because nothing may read it before the wait
    const auto found = stored_.find(id(key));
    if (found == stored_.end()) return Status::error(Code::not_found, "nothing is stored under this key");
    return begin({key, false, dst, {}, found->second});
  }
  Status wait(IoTicket ticket) override {
    const auto found = in_flight_.find(ticket.sequence);
    if (found == in_flight_.end()) return Status::error(Code::internal, "a ticket was waited for twice");
    const Request request = std::move(found->second);
    in_flight_.erase(found);
    int& failing = request.write ? fail_writes : fail_reads;
    if (failing > 0 && --failing == 0) return Status::error(Code::io_error, "injected failure");
    if (!request.write) {
      std::memcpy(request.dst.data, request.bytes.data(), request.bytes.size());
      return Status::ok();
    }
    if (std::memcmp(request.src.data, request.bytes.data(), request.bytes.size()) != 0)
      return Status::error(Code::corrupt, "the memory of a write changed while it was in flight");
    stored_[id(request.key)] = request.bytes;
    return Status::ok();
  }

  bool wait_for(IoTicket, std::int64_t) override { return ++polls_ % 3 == 0; }

  void commit(PayloadKey key) override {
    expect_idle(key);
    snapshots_.erase(id(key));
  }
  void rollback(PayloadKey key) override {
    expect_idle(key);
    if (auto old = snapshots_.extract(id(key))) stored_[id(key)] = std::move(old.mapped());
  }

  bool stored(PayloadKey key) const { return stored_.count(id(key)) != 0; }
  std::size_t in_flight() const { return in_flight_.size(); }

  // If n > 0, the n-th wait for a read or write, or the n-th copy, from now on fails once.
  int fail_reads = 0, fail_writes = 0, fail_copies = 0;
  int reads = 0, writes = 0, copies = 0;

 private:
  int polls_ = 0;
  struct Request {
    PayloadKey key;
    bool write = false;
    BufferView dst;
    ConstBufferView src;
    std::vector<std::byte> bytes;
  };
  static std::size_t id(PayloadKey key) {
    return key.chunk * kPayloads + static_cast<std::size_t>(key.payload);
  }
  void expect_idle(PayloadKey key) const {
    for (const auto& [sequence, request] : in_flight_)
      EXPECT_FALSE(request.key == key) << "a request for the key is in flight";
  }
  IoTicket begin(Request request) {
    in_flight_.emplace(++sequence_, std::move(request));
    return {0, sequence_};
  }

  Backend& backend_;
  Stream& h2d_;
  Stream& d2h_;
  std::uint64_t sequence_ = 0;
  std::map<std::uint64_t, Request> in_flight_;
  std::map<std::size_t, std::vector<std::byte>> stored_, snapshots_;
};

}  // namespace strata::test
