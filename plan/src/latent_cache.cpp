#include <strata/plan/latent_cache.h>

#include <algorithm>

#include <strata/config/decide.h>
#include <strata/config/load_config.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "decide_keys.h"

namespace strata {
namespace {

constexpr std::uint64_t kMostShare = 4;  // an expanded cache may take a quarter of the device

Status refuse_latent_rows(bool has_layers, std::string_view obstacle) {
  if (!has_layers)
    return Status::error(Code::invalid,
                         "memory.latent_cache = latent, but no layer of the model has latent attention");
  if (!obstacle.empty())
    return Status::error(Code::unsupported, str("memory.latent_cache = latent, but ", obstacle,
                                                "; memory.latent_cache=expanded does not need it"));
  return {};
}

struct CacheChoice {
  bool keeps_latents = false;
  std::string why;
};
CacheChoice choose_cache(std::uint64_t expanded, std::uint64_t latent, std::uint64_t device) {
  const bool is_small = expanded <= device / kMostShare;
  return {!is_small, str("keys and values of all heads take ", format_bytes(expanded), ", which is ",
                         is_small ? "at most" : "more than", " a quarter of memory.device",
                         is_small ? std::string() : str(", and latent rows ", format_bytes(latent)))};
}

}  // namespace

Result<bool> keeps_latent_rows(LoadedConfig& loaded, const DecoderConfig& decoder, const CacheShape& shape,
                               DType compute, std::string_view obstacle) {
  const DecoderConfig c = with_derived_sizes(decoder);
  const bool has_layers = std::find(c.mixers.begin(), c.mixers.end(), Mixer::latent) != c.mixers.end();
  const std::string& asked = loaded.config.memory.latent_cache;
  if (asked == "latent") {
    STRATA_TRY(refuse_latent_rows(has_layers, obstacle));
    return true;
  }
  if (asked == "expanded") return false;
  CacheChoice choice{false, has_layers ? std::string(obstacle) : "no layer has latent attention"};
  if (has_layers && obstacle.empty()) {
    STRATA_TRY_ASSIGN(const TierBytes most, decide_machine(loaded));
    CacheShape expanded = shape, latent = shape;
    expanded.latent = false;
    latent.latent = true;
    choice = choose_cache(cache_bytes(c, expanded, compute), cache_bytes(c, latent, compute),
                          std::min(*loaded.config.memory.device_bytes, most[0]));
  }
  decide(loaded, "memory.latent_cache", std::string(choice.keeps_latents ? "latent" : "expanded"),
         choice.why);
  return choice.keeps_latents;
}

}  // namespace strata
