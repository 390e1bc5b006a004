#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <set>
#include <type_traits>
#include <vector>

#include "cuda/warps.h"

/// The warps of a block (warps.h) on the host, for tests. A warp's instructions are executed as the PTX ISA
/// specifies them, so wrong results reveal code that does not follow the coordinates in mma.h.
namespace strata::kernels::detail {

/// Products of a warp in flight: each is computed when its group is waited for, from the operands that are
/// there then. Until then its accumulators are poisoned.
class PendingProducts {
 public:
  /// A product whose accumulators of each lane and eight columns are `at`.
  void add(const std::vector<float*>& at, bool accumulate, const std::function<void()>& run) {
    std::vector<float> before;
    if (accumulate && in_flight_.count(at.front()) == 0)
      for (const float* four : at) before.insert(before.end(), four, four + 4);
    for (float* four : at) std::fill(four, four + 4, std::numeric_limits<float>::quiet_NaN());
    in_flight_.insert(at.front());
    groups_.back().push_back([this, at, before, run] {
      for (std::size_t i = 0; i < before.size(); ++i) at[i / 4][i % 4] = before[i];
      in_flight_.erase(at.front());
      run();
    });
  }
  void commit() { groups_.emplace_back(); }
  void wait(std::size_t left) {
    for (; groups_.size() > left + 1; groups_.pop_front())
      for (const auto& run : groups_.front()) run();
  }
  bool empty() const { return groups_.size() == 1 && groups_.front().empty(); }

 private:
  std::deque<std::vector<std::function<void()>>> groups_ =
      std::deque<std::vector<std::function<void()>>>(1);  // the last is still open
  std::set<const float*> in_flight_;
};

/// A warp emulated on the host. Without `products`, its wgmma instructions are complete at once.
struct EmulatedWarp {
  PendingProducts* products = nullptr;

  template <class V>
  struct PerLane {
    V values[32];
  };
  template <class V>
  static V& at(PerLane<V>& value, int lane) {
    return value.values[lane];
  }

  /// The tiles of scores of this thread's warps, if a test wants them.
  static std::vector<ScoreTileInfo>*& score_tiles() {
    static thread_local std::vector<ScoreTileInfo>* tiles = nullptr;
    return tiles;
  }
  static void on_scores(const ScoreTileInfo& tile) {
    if (score_tiles() != nullptr) score_tiles()->push_back(tile);
  }
  template <class F>
  void for_each_lane(const F& f) const {
    for (int lane = 0; lane < 32; ++lane) f(lane);
  }
  /// c += a * b.
  template <class T, class C, class A, class B>
  void mma(const C& c, const A& a, const B& b) const {
    const auto half = [](unsigned word, int which) {
      T value;
      value.bits = static_cast<std::uint16_t>(word >> (16 * which));
      return to_f32(value);
    };
    float left[16][16], right[16][8];
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 8; ++i) {
        const FragmentCoord at = fragment_coord_a(lane, i);
        left[at.row][at.column] = half(a(lane)[i / 2], i % 2);
      }
      for (int i = 0; i < 4; ++i) {
        const FragmentCoord at = fragment_coord_b(lane, i);
        right[at.row][at.column] = half(b(lane)[i / 2], i % 2);
      }
    }
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) {
        const FragmentCoord at = fragment_coord_c(lane, i);
        float sum = c(lane)[i];
        for (int k = 0; k < 16; ++k) sum = sum + left[at.row][k] * right[k][at.column];
        c(lane)[i] = sum;
      }
  }
  /// The row address of each lane.
  template <class T>
  struct SharedAddress {
    const T* values[32];
  };
  template <class Row>
  auto shared_address(const Row& row_of) const {
    SharedAddress<std::remove_pointer_t<decltype(row_of(0))>> shared_address;
    for (int lane = 0; lane < 32; ++lane) shared_address.values[lane] = row_of(lane);
    return shared_address;
  }
  /// ldmatrix.x4: row r of matrix j is the eight values at `offset` from the address of lane 8 j + r. A lane
  /// gets the two values of row lane / 4 at columns 2 (lane % 4) and the next, with rows and columns swapped
  /// if transposed.
  template <bool kTransposed, class Into, class T>
  void ldmatrix_x4(const Into& into, const SharedAddress<T>& shared_address, int offset) const {
    for (int lane = 0; lane < 32; ++lane)
      for (int j = 0; j < 4; ++j) {
        const int outer = lane / 4, inner = lane % 4 * 2;
        const auto element = [&](int row, int column) {
          return unsigned{(shared_address.values[8 * j + row] + offset)[column].bits};
        };
        const unsigned low = kTransposed ? element(inner, outer) : element(outer, inner);
        const unsigned high = kTransposed ? element(inner + 1, outer) : element(outer, inner + 1);
        into(lane)[j] = low | high << 16;
      }
  }
  /// Combines the values of four neighbouring lanes; all four get the result.
  template <class At, class Combine>
  void quad_reduce(const At& at, const Combine& combine) const {
    for (const int apart : {1, 2}) {
      float others[32];
      for (int lane = 0; lane < 32; ++lane) others[lane] = at(lane ^ apart);
      for (int lane = 0; lane < 32; ++lane) at(lane) = combine(at(lane), others[lane]);
    }
  }
  /// Two values, rounded and packed into one register.
  template <class T>
  static unsigned pack2(float low, float high) {
    return static_cast<unsigned>(from_f32<T>(low).bits) | static_cast<unsigned>(from_f32<T>(high).bits) << 16;
  }
};

/// Copies in flight on the host: their destinations are poisoned until their group is waited for.
struct PendingCopies {
  struct Copy {
    void* to;
    const void* from;
    bool valid;
  };
  std::deque<std::vector<Copy>> groups = std::deque<std::vector<Copy>>(1);  ///< the last is still open

  static PendingCopies& for_this_thread() {
    static thread_local PendingCopies copies;
    return copies;
  }
  void wait_group(std::size_t left) {
    for (; groups.size() > left + 1; groups.pop_front())
      for (const Copy& copy : groups.front()) {
        if (copy.valid)
          std::memcpy(copy.to, copy.from, 16);
        else
          std::memset(copy.to, 0, 16);
      }
  }
};

/// The warps of a block, one after the other. `kReversed`: the last warp runs first, because results must not
/// depend on the order of warps.
template <int kWarps, bool kReversed = false>
struct EmulatedWarps {
  static constexpr int kThreads = kWarps * 32;
  template <class V>
  struct State {
    std::vector<EmulatedWarp::PerLane<V>> values = std::vector<EmulatedWarp::PerLane<V>>(kWarps);
  };

  template <class V, class F>
  void for_each_warp(State<V>& state, const F& f) const {
    for (int i = 0; i < kWarps; ++i) {
      const int warp = kReversed ? kWarps - 1 - i : i;
      f(EmulatedWarp(), warp, state.values[static_cast<std::size_t>(warp)]);
    }
  }
  template <class F>
  void for_each_thread(const F& f) const {
    for (int i = 0; i < kThreads; ++i) f(kReversed ? kThreads - 1 - i : i);
  }
  static void cp_async(void* to, const void* from, bool valid) {
    std::memset(to, 0xFF, 16);
    PendingCopies::for_this_thread().groups.back().push_back({to, from, valid});
  }
  static void commit_group() { PendingCopies::for_this_thread().groups.emplace_back(); }
  template <int kLeft>
  static void wait_group() {
    PendingCopies::for_this_thread().wait_group(kLeft);
  }
  static void sync() {}
};

}  // namespace strata::kernels::detail
