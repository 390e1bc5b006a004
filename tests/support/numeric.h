#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace strata::test {

/// A reproducible stream of values in [-1, 1): splitmix64 of a counter.
class Values {
 public:
  explicit Values(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull) {}
  std::uint64_t next_bits() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  double next() { return static_cast<double>(next_bits() >> 11) * 0x1p-52 - 1.0; }
  std::vector<float> floats(std::int64_t n, double scale = 1.0, double shift = 0.0) {
    std::vector<float> out(static_cast<std::size_t>(n));
    for (float& x : out) x = static_cast<float>(next() * scale + shift);
    return out;
  }
  std::vector<std::int32_t> below(std::int64_t n, std::int64_t bound) {
    std::vector<std::int32_t> out(static_cast<std::size_t>(n));
    for (auto& x : out) x = static_cast<std::int32_t>(next_bits() % static_cast<std::uint64_t>(bound));
    return out;
  }

 private:
  std::uint64_t state_;
};

inline std::vector<double> widen(std::span<const float> x) { return {x.begin(), x.end()}; }

/// |got - want| / |want| in the Euclidean norm; |got| if `want` is all zeros.
template <class A, class B>
double relative_error(const A& got, const B& want) {
  double difference = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double d = static_cast<double>(got[i]) - static_cast<double>(want[i]);
    difference += d * d;
    norm += static_cast<double>(want[i]) * static_cast<double>(want[i]);
  }
  return norm > 0.0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

/// Number of elements whose bits differ. Any two NaNs count as equal, since IEEE 754 leaves a NaN's payload
/// open.
template <class T>
std::size_t differing_bits(std::span<const T> a, std::span<const T> b) {
  if (a.size() != b.size()) return a.size() + b.size();
  std::size_t n = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    n += !(std::isnan(a[i]) && std::isnan(b[i])) && std::memcmp(&a[i], &b[i], sizeof(T)) != 0;
  return n;
}
template <class T>
std::size_t differing_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return differing_bits(std::span<const T>(a), std::span<const T>(b));
}

}  // namespace strata::test
