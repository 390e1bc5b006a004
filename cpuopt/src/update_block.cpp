#include <strata/cpuopt/update_block.h>
#include <strata/cpuopt/optimizer_facts.h>

#include <cstddef>
#include <type_traits>

namespace strata::cpuopt {

UpdateBlock UpdateBlock::at(std::int64_t offset) const noexcept {
  const auto moved = [offset](auto* begin, std::size_t elem_bytes) {
    using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(begin)>>, const std::byte,
                                    std::byte>;
    return begin == nullptr ? begin
                            : static_cast<Byte*>(begin) + static_cast<std::size_t>(offset) * elem_bytes;
  };
  UpdateBlock part = *this;
  part.param = moved(param, param_bytes(layout));
  part.master = moved(master, master_bytes(layout));
  part.m = m.at(states, offset);
  part.v = v.at(states, offset);
  part.g = moved(g, size_of(grad));
  if (ema != nullptr) part.ema = ema + offset;
  part.index += static_cast<std::uint32_t>(offset);
  return part;
}

UpdateStep make_update_step(const OptimizerParams& params) noexcept {
  const bool momentum = params.momentum > 0 && facts_of(params.optimizer).momentum;
  const int rule = momentum ? OptimizerRules::kSize + params.nesterov : static_cast<int>(params.optimizer);
  return {update_scalars(params), static_cast<std::uint8_t>(rule), moments_of(params),
          static_cast<float>(1.0 - params.ema_decay)};
}

}  // namespace strata::cpuopt
