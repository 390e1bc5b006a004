#include <vector>

#include <strata.h>
#include <strata/ds_config/ds_config.h>
#include <strata/runtime/str.h>

#include "c_call.h"

namespace strata::capi {
namespace {

strata_ds_verdict verdict_of(DsVerdict verdict) noexcept {
  switch (verdict) {
    case DsVerdict::taken:
      return STRATA_DS_TAKEN;
    case DsVerdict::automatic:
      return STRATA_DS_AUTO;
    case DsVerdict::meaningless:
      return STRATA_DS_MEANINGLESS;
    case DsVerdict::refused:
      return STRATA_DS_REFUSED;
    case DsVerdict::unknown:
      break;
  }
  return STRATA_DS_UNKNOWN;
}

strata_ds_row row_of(const DsFinding& one) noexcept {
  return {sizeof(strata_ds_row),  one.key.c_str(),        one.value.c_str(),        verdict_of(one.verdict),
          one.is_default ? 1 : 0, one.strata_key.c_str(), one.strata_value.c_str(), one.reason.c_str()};
}

}  // namespace
}  // namespace strata::capi

using namespace strata;

strata_status strata_ds_config_convert(const char* json, strata_ds_row_fn row, void* context) {
  return capi::call([&]() -> Status {
    if (json == nullptr) return Status::error(Code::invalid, "json is null");
    if (row == nullptr) return Status::error(Code::invalid, "row is null");
    STRATA_TRY_ASSIGN(const std::vector<DsFinding> findings, convert_ds_config(json));
    for (const DsFinding& one : findings) {
      const strata_ds_row found = capi::row_of(one);
      if (row(context, &found) != 0)
        return Status::error(Code::cancelled, str("the callback ended the call at ", one.key));
    }
    return ds_config_problems(findings);
  });
}
