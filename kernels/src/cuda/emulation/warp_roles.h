#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <vector>

#include "cuda/attention/warpgroup/warp_roles.h"
#include "cuda/emulation/role_scheduler.h"
#include "cuda/emulation/tma.h"

/// A block of a producer and consumers on the host (attention/warpgroup/warp_roles.h), for tests. What is
/// asynchronous on the device happens as late as it may: a load poisons its destination when it is issued,
/// and its bytes arrive when all roles wait; a product is computed when it is waited for. So a stage that is
/// read too early or overwritten too soon gives wrong results, and a wait for a phase that never comes is
/// found.
namespace strata::kernels::detail {

/// An mbarrier as the PTX ISA specifies it.
struct EmulatedBarrier {
  int arrivals = 0, pending = 0;
  std::int64_t bytes = 0;
  unsigned phase = 0;

  void arrive() {
    --pending;
    complete_if_done();
  }
  void add_bytes(std::int64_t n) {
    bytes += n;
    complete_if_done();
  }
  /// A wait for a parity ends once the phase of that parity has completed, if it is the current one or the
  /// last.
  bool is_complete(unsigned parity) const { return phase % 2 != parity; }

 private:
  void complete_if_done() {
    if (pending != 0 || bytes != 0) return;
    ++phase;
    pending = arrivals;
  }
};

/// `kReversed`: consumers come before the producer in the order, and the last warps before the first.
template <class Barriers, bool kReversed = false>
class EmulatedWarpRoles {
 public:
  TmaTensor matrices[2];

  struct Producer {
    const EmulatedWarpRoles* block;

    struct Loads {
      const EmulatedWarpRoles* block;
      EmulatedBarrier* barrier;
      template <int kBoxes, class T, class Box>
      void tma_load(TmaOperand matrix, const Box& box) const {
        barrier->bytes += kBoxes * TmaTensor::kBoxBytes;
        barrier->arrive();
        for (int i = 0; i < kBoxes; ++i) {
          T* to;
          const BoxCoord at = box(i, to);
          std::memset(to, 0xFF, TmaTensor::kBoxBytes);
          block->loads_.push_back(
              [to, at, from = &block->matrices[static_cast<int>(matrix)], to_count = barrier] {
                for_each_tma_piece(reinterpret_cast<std::uintptr_t>(to), *from, at,
                                   [](void* piece, const void* source, bool valid) {
                                     if (valid)
                                       std::memcpy(piece, source, 16);
                                     else
                                       std::memset(piece, 0, 16);
                                   });
                to_count->add_bytes(-TmaTensor::kBoxBytes);
              });
        }
      }
    };
    Loads completing(int barrier) const { return {block, &block->barrier(barrier)}; }
    void wait(int barrier, unsigned parity) const { block->wait(barrier, parity); }
  };

  struct Consumers {
    const EmulatedWarpRoles* block;
    int group;
    template <class V>
    struct State {
      std::vector<EmulatedWarp::PerLane<V>> values = std::vector<EmulatedWarp::PerLane<V>>(4);
    };

    int index() const { return group; }
    template <class V, class F>
    void for_each_warp(State<V>& state, const F& f) const {
      for (int i = 0; i < 4; ++i) {
        const int of_group = kReversed ? 3 - i : i, warp = group * 4 + of_group;
        f(EmulatedWarp{&block->products_[static_cast<std::size_t>(warp)]}, warp,
          state.values[static_cast<std::size_t>(of_group)]);
      }
    }
    void wait(int barrier, unsigned parity) const { block->wait(barrier, parity); }
    void arrive(int barrier) const {
      for (int warp = 0; warp < 4; ++warp) block->barrier(barrier).arrive();
      block->scheduler_.yield();
    }
    void wait_turn() const {
      int& turns = block->turns_[group];
      block->scheduler_.wait_until([&] { return turns > 0; });
      --turns;
    }
    void pass_turn() const {
      ++block->turns_[1 - group];
      block->scheduler_.yield();
    }
  };

  EmulatedWarpRoles() {
    for (int i = 0; i < Barriers::kCount; ++i) {
      const int arrivals = Barriers::arrivals(i);
      barriers_.push_back({arrivals, arrivals, 0, 0});
    }
  }
  template <class Produce, class Consume>
  void run(const Produce& produce, const Consume& consume) const {
    std::vector<ScoreTileInfo>* const tiles = EmulatedWarp::score_tiles();
    const auto consumers = [&, tiles](int group) {
      return [&, tiles, group] {
        EmulatedWarp::score_tiles() = tiles;
        consume(Consumers{this, group});
      };
    };
    const std::function<void()> loads = [&] { produce(Producer{this}); };
    const auto advance = [&] {
      if (loads_.empty()) return false;
      loads_.front()();
      loads_.pop_front();
      return true;
    };
    if (kReversed)
      scheduler_.run({consumers(1), consumers(0), loads}, advance);
    else
      scheduler_.run({loads, consumers(0), consumers(1)}, advance);
  }
  /// Whether all roles came to their end and left nothing in flight, nor a turn that nobody takes.
  bool is_finished() const {
    bool finished = !scheduler_.is_stuck() && loads_.empty() && turns_[0] == 0 && turns_[1] == 0;
    for (const PendingProducts& products : products_) finished = finished && products.empty();
    return finished;
  }

 private:
  EmulatedBarrier& barrier(int index) const { return barriers_[static_cast<std::size_t>(index)]; }
  void wait(int index, unsigned parity) const {
    const EmulatedBarrier& awaited = barrier(index);
    scheduler_.wait_until([&] { return awaited.is_complete(parity); });
  }

  mutable std::vector<EmulatedBarrier> barriers_;
  mutable std::deque<std::function<void()>> loads_;
  mutable std::vector<PendingProducts> products_ = std::vector<PendingProducts>(kConsumerWarps);
  mutable int turns_[kConsumerGroups] = {};
  mutable RoleScheduler scheduler_;
};

}  // namespace strata::kernels::detail
