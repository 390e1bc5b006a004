#include <strata/serve/stop_filter.h>

#include <algorithm>
#include <utility>

namespace strata {

std::string StopFilter::push(std::string_view piece) {
  if (stopped_) return {};
  waiting_ += piece;
  std::size_t first_end = std::string::npos, begin = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t at = waiting_.find(stop);
    if (at == std::string::npos) continue;
    const std::size_t end = at + stop.size();
    if (end < first_end || (end == first_end && at < begin)) {
      first_end = end;
      begin = at;
    }
  }
  stopped_ = first_end != std::string::npos;
  const std::size_t certain = stopped_ ? begin : waiting_.size() - held_bytes();
  std::string text = waiting_.substr(0, certain);
  waiting_.erase(0, stopped_ ? waiting_.size() : certain);
  return text;
}

std::string StopFilter::finish() { return std::exchange(waiting_, {}); }

// The longest end of the waiting text that a stop text begins with.
std::size_t StopFilter::held_bytes() const {
  std::size_t held = 0;
  for (const std::string& stop : stops_)
    for (std::size_t n = std::min(stop.size() - 1, waiting_.size()); n > held; --n)
      if (std::string_view(waiting_).substr(waiting_.size() - n) == std::string_view(stop).substr(0, n))
        held = n;  // shorter ones do not matter
  return held;
}

}  // namespace strata
