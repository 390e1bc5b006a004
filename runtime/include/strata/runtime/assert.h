#pragma once

#include <string_view>

#include <strata/runtime/str.h>

namespace strata::detail {
[[noreturn]] void assert_failed(const char* condition, const char* file, int line,
                                std::string_view what) noexcept;
}  // namespace strata::detail

/// Aborts when `cond` is false, in release builds too. Only for broken invariants, never for something that
/// input or the system can cause. The further arguments are joined into the message.
#define STRATA_ASSERT(cond, ...) \
  (static_cast<bool>(cond)       \
       ? void(0)                 \
       : ::strata::detail::assert_failed(#cond, __FILE__, __LINE__, ::strata::str(__VA_ARGS__)))

/// Like STRATA_ASSERT, for checks that are too expensive for release builds; compiled in only with
/// STRATA_DCHECKS.
#ifdef STRATA_DCHECKS
#define STRATA_DCHECK(cond, ...) STRATA_ASSERT(cond, __VA_ARGS__)
#else
#define STRATA_DCHECK(cond, ...) void(0)
#endif
