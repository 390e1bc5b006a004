#include <strata/cpuopt/copy.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace strata::cpuopt {

#if defined(__SSE2__)
// Four 16-byte stores fill a cache line, which is then written to memory as a whole; wider stores would not
// be faster.
void copy_streaming(void* to, const void* from, std::size_t bytes) noexcept {
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  constexpr std::size_t kLine = 64, kWord = sizeof(__m128i);
  const std::size_t head = std::min(bytes, (kLine - reinterpret_cast<std::uintptr_t>(out) % kLine) % kLine);
  std::memcpy(out, in, head);
  std::size_t at = head;
  for (; at + kLine <= bytes; at += kLine)
    for (std::size_t word = at; word < at + kLine; word += kWord)
      _mm_stream_si128(reinterpret_cast<__m128i*>(out + word),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + word)));
  std::memcpy(out + at, in + at, bytes - at);
  _mm_sfence();
}
#else
void copy_streaming(void* to, const void* from, std::size_t bytes) noexcept { std::memcpy(to, from, bytes); }
#endif

}  // namespace strata::cpuopt
