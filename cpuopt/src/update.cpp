#include <strata/cpuopt/update.h>

#include <algorithm>
#include <cmath>

#include <strata/simd/convert.h>
#include <strata/simd/norm.h>
#include <strata/cpuopt/prefetch.h>

#include "update_in_f32.h"
#include "update_table.h"

namespace strata::cpuopt {

using namespace simd;
namespace {

const detail::UpdateTable& update_kernels() noexcept { return STRATA_ACTIVE_TABLE(update_table); }

// Elements per tile. Moments and gradients that the kernels cannot read as they are stored are converted to
// f32 in tiles that stay in the L1 cache.
constexpr std::int64_t kTile = 1024;
static_assert(kTile % kMomentBlock == 0 && kNormPartialElems % kTile == 0);

bool is_narrow(MasterLayout layout, DType grad) noexcept {
  const DType narrow = layout == MasterLayout::f16_shadow ? DType::f16 : DType::bf16;
  return layout != MasterLayout::f32 && grad == narrow;
}
bool has_kernel(MasterLayout layout, DType grad) noexcept {
  return grad == DType::f32 || is_narrow(layout, grad);
}

// Calls part(block, n) for each tile: the block from the tile's first element on, and the tile's elements.
template <class Part>
void for_tiles(const UpdateBlock& block, std::int64_t n, const Part& part) {
  for (std::int64_t at = 0; at < n; at += kTile) part(block.at(at), std::min(kTile, n - at));
}

/// One moment of a tile in f32: in place if it is stored in f32, otherwise decoded into a buffer.
class MomentTile {
 public:
  void load(StateFormat format, MomentKind kind, const Moment& moment, std::int64_t n) noexcept {
    if (format == StateFormat::fp32 || moment.values == nullptr) {
      values_ = static_cast<float*>(moment.values);
      return;
    }
    values_ = tile_;
    decode_moment(format, kind, moment, {tile_, static_cast<std::size_t>(n)});
  }
  void store(StateFormat format, MomentKind kind, const Moment& moment, std::int64_t n, RoundingNoise noise,
             std::uint32_t index) const noexcept {
    if (values_ == tile_)
      encode_moment_stochastic(format, kind, {tile_, static_cast<std::size_t>(n)}, moment, noise, index);
  }
  float* values() noexcept { return values_; }

 private:
  float* values_ = nullptr;
  alignas(64) float tile_[kTile];
};

struct Tiles {
  MomentTile m, v;
  alignas(64) float g[kTile];
};

const void* gradient_as_f32(const UpdateBlock& b, std::int64_t n, float* into) noexcept {
  if (has_kernel(b.layout, b.grad)) return b.g;
  if (b.grad == DType::bf16) widen(static_cast<const bf16*>(b.g), into, n);
  if (b.grad == DType::f16) widen(static_cast<const f16*>(b.g), into, n);
  return into;
}

void update_tile(detail::UpdateTable::Update kernel, const UpdateStep& step, const UpdateBlock& b,
                 std::int64_t n, RoundingNoise noise, Tiles& tiles) noexcept {
  tiles.m.load(b.states, MomentKind::first, b.m, n);
  tiles.v.load(b.states, MomentKind::second, b.v, n);
  kernel(step.scalars,
         {b.param, b.master, tiles.m.values(), tiles.v.values(), gradient_as_f32(b, n, tiles.g)}, n);
  tiles.m.store(b.states, MomentKind::first, b.m, n, noise, b.index);
  tiles.v.store(b.states, MomentKind::second, b.v, n, noise, b.index);
}

}  // namespace

void update_block(const UpdateStep& step, const UpdateBlock& b, std::int64_t n,
                  RoundingNoise noise) noexcept {
  // A smaller block is in a cache and not worth the measurement of active_prefetch().
  constexpr std::int64_t kMinPrefetchElems = std::int64_t{1} << 14;
  const bool in_f32 = b.layout == MasterLayout::f32 && b.states == StateFormat::fp32 && b.grad == DType::f32;
  if (in_f32)
    return detail::update_in_f32(step, b, n, n < kMinPrefetchElems ? Prefetch::none : active_prefetch());
  const auto kernel =
      update_kernels()
          .update[step.rule][static_cast<std::size_t>(b.layout)][is_narrow(b.layout, b.grad) ? 1 : 0];
  if (b.states == StateFormat::fp32 && has_kernel(b.layout, b.grad)) {
    kernel(step.scalars,
           {b.param, b.master, static_cast<float*>(b.m.values), static_cast<float*>(b.v.values), b.g}, n);
    return;
  }
  Tiles tiles;
  for_tiles(b, n, [&](const UpdateBlock& tile, std::int64_t len) {
    update_tile(kernel, step, tile, len, noise, tiles);
  });
}

namespace {

// Writes lamb's direction of a tile to `into`, computed from the moments as they are stored.
void direction_of(const UpdateStep& step, const UpdateBlock& b, std::int64_t n, Tiles& tiles,
                  float* into) noexcept {
  tiles.m.load(b.states, MomentKind::first, b.m, n);
  tiles.v.load(b.states, MomentKind::second, b.v, n);
  update_kernels().direction[static_cast<std::size_t>(b.layout)](
      step.scalars, {b.param, b.master, tiles.m.values(), tiles.v.values(), nullptr}, into, n);
}

}  // namespace

void lamb_moments_block(const UpdateStep& step, const UpdateBlock& block, std::int64_t n, RoundingNoise noise,
                        double* master_partials, double* direction_partials) noexcept {
  update_block(step, block, n, noise);
  lamb_partials_block(step, block, n, master_partials, direction_partials);
}

void lamb_partials_block(const UpdateStep& step, const UpdateBlock& block, std::int64_t n,
                         double* master_partials, double* direction_partials) noexcept {
  Tiles tiles;
  alignas(64) float buffer[kNormPartialElems];
  for (std::int64_t at = 0; at < n; at += kNormPartialElems, ++master_partials, ++direction_partials) {
    const std::int64_t len = std::min(kNormPartialElems, n - at);
    const UpdateBlock part = block.at(at);
    join_masters(part.layout, part.param, part.master, {buffer, static_cast<std::size_t>(len)});
    square_sum_partials(DType::f32, buffer, len, master_partials);
    std::int64_t done = 0;
    for_tiles(part, len, [&](const UpdateBlock& tile, std::int64_t tile_len) {
      direction_of(step, tile, tile_len, tiles, buffer + done);
      done += tile_len;
    });
    square_sum_partials(DType::f32, buffer, len, direction_partials);
  }
}

float lamb_trust_ratio(double master_square_sum, double direction_square_sum) noexcept {
  if (!(master_square_sum > 0 && direction_square_sum > 0)) return 1.0f;
  return static_cast<float>(std::sqrt(master_square_sum / direction_square_sum));
}

void lamb_apply_block(const UpdateStep& step, float trust, const UpdateBlock& block,
                      std::int64_t n) noexcept {
  Tiles tiles;
  for_tiles(block, n, [&](const UpdateBlock& tile, std::int64_t len) {
    direction_of(step, tile, len, tiles, tiles.g);
    update_kernels().step_along[static_cast<std::size_t>(tile.layout)](step.scalars.step_size * trust,
                                                                       tiles.g, tile.param, tile.master, len);
  });
}

void update_ema_block(float weight, const UpdateBlock& b, std::int64_t n) noexcept {
  update_kernels().ema[static_cast<std::size_t>(b.layout)](weight, b.param, b.master, b.ema, n);
}

}  // namespace strata::cpuopt
