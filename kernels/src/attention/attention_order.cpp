#include <strata/kernels/values/attention_order.h>

#include <algorithm>
#include <array>

#include <strata/runtime/str.h>

namespace strata::kernels {
namespace {

constexpr std::array kOfGpu = {AttentionBackend::mma, AttentionBackend::wgmma, AttentionBackend::cudnn};

Result<std::vector<AttentionBackend>> parse_names(std::string_view text) {
  std::vector<AttentionBackend> order;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string_view name = text.substr(at, end - at);
    const auto found = std::find_if(kOfGpu.begin(), kOfGpu.end(),
                                    [&](AttentionBackend backend) { return to_string(backend) == name; });
    if (found == kOfGpu.end())
      return Status::error(Code::invalid, str("'", name, "' in '", text,
                                              "' is no attention backend; they are mma, wgmma and cudnn"));
    if (std::find(order.begin(), order.end(), *found) != order.end())
      return Status::error(Code::invalid, str("'", text, "' names ", name, " twice"));
    order.push_back(*found);
    at = end + 1;
  }
  return order;
}

}  // namespace

Result<AttentionOrder> parse_attention_order(std::string_view text) {
  const std::size_t cut = text.find('/');
  AttentionOrder order;
  STRATA_TRY_ASSIGN(order.forward, parse_names(text.substr(0, cut)));
  order.backward = order.forward;
  if (cut != std::string_view::npos) {
    STRATA_TRY_ASSIGN(order.backward, parse_names(text.substr(cut + 1)));
  }
  return order;
}

}  // namespace strata::kernels
