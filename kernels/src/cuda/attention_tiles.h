#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <strata/runtime/float16.h>

#include "cuda/crew.h"

/// What attention's tiles lie in, and how a crew (crew.h) multiplies them in f32.
namespace strata::kernels::detail {

inline constexpr int kCrew = 256;

template <bool kBackwards>
using CrewInTurn = ThreadsInTurn<kCrew, kBackwards>;

/// Rows of a head in shared memory, further apart than they are long, so that columns lie in many banks.
template <class V, int kApart>
struct TileOf {
  V* at;
  std::int64_t d;
  STRATA_HD std::int64_t stride() const { return d + kApart; }
  STRATA_HD V* row(int i) const { return at + i * stride(); }
};
/// What is added up.
using Tile = TileOf<float, 1>;

/// Scores or probabilities of a tile of queries by a tile of keys, rows apart so that eight of them lie in
/// other banks.
template <int kTile>
struct Square {
  static constexpr int kStride = kTile + 4;
  float* at;
  STRATA_HD float& operator()(int i, int j) const { return at[i * kStride + j]; }
};

/// A block's shared memory, given out piece by piece; over null it tells how much there has to be.
class SharedMemory {
 public:
  STRATA_HD explicit SharedMemory(std::byte* begin) : at_(begin) {}
  template <class V>
  STRATA_HD V* take(std::int64_t n) {
    V* const piece = reinterpret_cast<V*>(at_ + bytes_);
    bytes_ += (n * static_cast<std::int64_t>(sizeof(V)) + 15) / 16 * 16;
    return piece;
  }
  template <int kTile, class Rows>
  STRATA_HD Rows rows(std::int64_t d) {
    Rows tile{nullptr, d};
    tile.at = take<std::remove_reference_t<decltype(*tile.at)>>(kTile * tile.stride());
    return tile;
  }
  template <int kTile>
  STRATA_HD Square<kTile> square() {
    return {take<float>(kTile * Square<kTile>::kStride)};
  }
  STRATA_HD std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* at_;
  std::int64_t bytes_ = 0;
};

/// f(i, c) for rows of a tile, each by the threads of a warp in turn.
template <int kTile, class F>
STRATA_LANES_BODY void each_of_rows(int thread, std::int64_t d, const F& f) {
  for (int i = thread / 32; i < kTile; i += kCrew / 32)
    for (std::int64_t c = thread % 32; c < d; c += 32) f(i, c);
}

struct F32Math {
  using Rows = Tile;

  /// Rows [first, first + kTile) of a head; zero past the sequence.
  template <int kTile, class Crew, class T>
  static STRATA_LANES_BODY void load(const Crew& crew, const Rows& tile, const T* head, std::int64_t ld,
                                     std::int64_t first, std::int64_t seq) {
    crew.all([&](int thread) {
      each_of_rows<kTile>(thread, tile.d, [&](int i, std::int64_t c) {
        tile.row(i)[c] = first + i < seq ? to_f32(head[(first + i) * ld + c]) : 0.0f;
      });
    });
  }
  /// square[i, j] = a[i] . b[j].
  template <int kTile, class Crew>
  static STRATA_LANES_BODY void products(const Crew& crew, const Rows& a, const Rows& b,
                                         const Square<kTile>& square) {
    crew.all([&](int thread) {
      for (int e = thread; e < kTile * kTile; e += kCrew) {
        const float *x = a.row(e / kTile), *y = b.row(e % kTile);
        float sum = 0.0f;
        for (std::int64_t c = 0; c < a.d; ++c) sum = sum + x[c] * y[c];
        square(e / kTile, e % kTile) = sum;
      }
    });
  }
  /// to[i] = to[i] * keep[i] (where given) + the sum over j of square[i, j] (or square[j, i]) from[j].
  template <int kTile, bool kTransposed, class Crew>
  static STRATA_LANES_BODY void add(const Crew& crew, const Square<kTile>& square, const Rows& from,
                                    const Tile& to, const float* keep) {
    crew.all([&](int thread) {
      each_of_rows<kTile>(thread, to.d, [&](int i, std::int64_t c) {
        float sum = 0.0f;
        for (int j = 0; j < kTile; ++j)
          sum = sum + (kTransposed ? square(j, i) : square(i, j)) * from.row(j)[c];
        to.row(i)[c] = (keep != nullptr ? to.row(i)[c] * keep[i] : to.row(i)[c]) + sum;
      });
    });
  }
};

template <int kTile, class Crew>
STRATA_LANES_BODY void clear_tile(const Crew& crew, const Tile& tile) {
  crew.all([&](int thread) {
    for (std::int64_t e = thread; e < kTile * tile.stride(); e += kCrew) tile.at[e] = 0.0f;
  });
}

}  // namespace strata::kernels::detail
