#include <algorithm>

#include <strata/simd/convert.h>
#include <strata/cpuopt/master.h>
#include <strata/cpuopt/moments.h>

#include "state_table.h"

namespace strata::cpuopt {

using namespace simd;
namespace {

const detail::StateTable& state_kernels() noexcept { return STRATA_ACTIVE_TABLE(state_table); }

void encode(StateFormat format, MomentKind kind, std::span<const float> from, const Moment& into,
            bool stochastic, RoundingNoise noise, std::uint32_t index) noexcept {
  const auto n = std::ssize(from);
  const auto which = static_cast<std::size_t>(kind);
  switch (format) {
    case StateFormat::fp32:
      std::copy(from.begin(), from.end(), static_cast<float*>(into.values));
      return;
    case StateFormat::bf16:
      if (stochastic)
        state_kernels().encode_bf16[which](from.data(), static_cast<std::uint16_t*>(into.values), noise,
                                           index, n);
      else
        narrow(from.data(), static_cast<bf16*>(into.values), n);
      return;
    case StateFormat::int8:
      state_kernels().encode_int8[which](from.data(), static_cast<std::uint8_t*>(into.values), into.scales,
                                         stochastic, noise, index, n);
      return;
  }
}

}  // namespace

void split_masters(std::span<const float> from, MasterLayout layout, void* param, void* master) noexcept {
  state_kernels().split[static_cast<std::size_t>(layout)](from.data(), param, master, std::ssize(from));
}
void join_masters(MasterLayout layout, const void* param, const void* master,
                  std::span<float> into) noexcept {
  state_kernels().join[static_cast<std::size_t>(layout)](param, master, into.data(), std::ssize(into));
}

void decode_moment(StateFormat format, MomentKind kind, const Moment& from, std::span<float> into) noexcept {
  switch (format) {
    case StateFormat::fp32:
      std::copy_n(static_cast<const float*>(from.values), into.size(), into.data());
      return;
    case StateFormat::bf16:
      widen(static_cast<const bf16*>(from.values), into.data(), std::ssize(into));
      return;
    case StateFormat::int8:
      state_kernels().decode_int8[static_cast<std::size_t>(kind)](
          static_cast<const std::uint8_t*>(from.values), from.scales, into.data(), std::ssize(into));
      return;
  }
}
void encode_moment(StateFormat format, MomentKind kind, std::span<const float> from,
                   const Moment& into) noexcept {
  encode(format, kind, from, into, false, {}, 0);
}
void encode_moment_stochastic(StateFormat format, MomentKind kind, std::span<const float> from,
                              const Moment& into, RoundingNoise noise, std::uint32_t index) noexcept {
  encode(format, kind, from, into, true, noise, index);
}

}  // namespace strata::cpuopt
