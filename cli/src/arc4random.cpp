// For packages that run with an older C library than the one they are built with: what std::random_device of
// the static libstdc++ calls is in glibc since 2.36 alone. Nothing outside the library sees this one.
#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

extern "C" std::uint32_t arc4random() noexcept {
  std::uint32_t bits = 0;
  if (::getrandom(&bits, sizeof bits, 0) != static_cast<ssize_t>(sizeof bits)) std::abort();
  return bits;
}
