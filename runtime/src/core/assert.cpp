#include <strata/runtime/assert.h>

#include <cstdio>
#include <cstdlib>

namespace strata::detail {

void assert_failed(const char* condition, const char* file, int line, std::string_view what) noexcept {
  std::fprintf(stderr, "strata: invariant broken at %s:%d: %s: %.*s\n", file, line, condition,
               static_cast<int>(what.size()), what.data());
  std::abort();
}

}  // namespace strata::detail
