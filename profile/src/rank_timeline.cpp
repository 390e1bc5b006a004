#include <strata/profile/rank_timeline.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace strata {
namespace {

constexpr double kWidth = 960, kLeft = 90, kRight = 20, kTop = 64, kRow = 22, kExchange = 6, kGap = 10;

enum class Kind : std::uint8_t { forward, input_gradient, weight_gradient, exchange };
struct Look {
  const char* colour;
  const char* text;
};
constexpr std::array<Look, 4> kLooks = {{{"#4c78a8", "forward"},
                                         {"#72b7b2", "gradients of inputs"},
                                         {"#eeca3b", "gradients of weights"},
                                         {"#b8b0ac", "exchanges, and waiting for them"}}};

Kind kind_of(std::string_view label) {
  const auto has = [&](std::string_view part) { return label.find(part) != std::string_view::npos; };
  if (has("backward_weight") || has("backward_bias") || has("accumulate")) return Kind::weight_gradient;
  return has("backward") ? Kind::input_gradient : Kind::forward;
}

/// The work of a rank in the window, with neighbours of one kind merged where a gap between them cannot be
/// seen.
struct Piece {
  Kind kind;
  double begin, end;  // positions along the width
};
std::vector<Piece> pieces_of(const Trace::TrackSpans& track, bool is_exchange, std::int64_t begin_ns,
                             std::int64_t end_ns) {
  const double scale = (kWidth - kLeft - kRight) / static_cast<double>(end_ns - begin_ns);
  std::vector<Piece> pieces;
  for (const Trace::Span& span : track.spans) {
    if (span.end_ns <= begin_ns || span.begin_ns >= end_ns) continue;
    const Piece piece{is_exchange ? Kind::exchange : kind_of(span.label),
                      scale * static_cast<double>(std::max(span.begin_ns, begin_ns) - begin_ns),
                      scale * static_cast<double>(std::min(span.end_ns, end_ns) - begin_ns)};
    if (!pieces.empty() && pieces.back().kind == piece.kind && piece.begin - pieces.back().end < 0.5)
      pieces.back().end = piece.end;
    else
      pieces.push_back(piece);
  }
  return pieces;
}

void draw(const std::vector<Piece>& pieces, double top, double height, std::string& svg) {
  for (const Piece& piece : pieces)
    svg += fmt::format("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"{}\"/>\n",
                       kLeft + piece.begin, top, std::max(0.2, piece.end - piece.begin), height,
                       kLooks[static_cast<std::size_t>(piece.kind)].colour);
}

/// The tracks of a rank, whose names are "rank 3 compute" and so on.
struct RankTracks {
  const Trace::TrackSpans *compute = nullptr, *collective = nullptr;
};
std::map<int, RankTracks> by_rank(std::span<const Trace::TrackSpans> tracks) {
  std::map<int, RankTracks> ranks;
  for (const Trace::TrackSpans& track : tracks) {
    constexpr std::string_view kPrefix = "rank ";
    if (!track.name.starts_with(kPrefix)) continue;
    const std::string rest = track.name.substr(kPrefix.size());
    RankTracks& rank = ranks[std::stoi(rest)];
    if (rest.ends_with(" compute")) rank.compute = &track;
    if (rest.ends_with(" collective")) rank.collective = &track;
  }
  return ranks;
}

}  // namespace

std::string rank_timeline_svg(std::span<const Trace::TrackSpans> tracks, double step_s,
                              const std::string& title) {
  const std::map<int, RankTracks> ranks = by_rank(tracks);
  std::int64_t end_ns = 0;
  for (const Trace::TrackSpans& track : tracks)
    for (const Trace::Span& span : track.spans) end_ns = std::max(end_ns, span.end_ns);
  const std::int64_t begin_ns = end_ns - std::max<std::int64_t>(1, static_cast<std::int64_t>(step_s * 1e9));
  const double height = kTop + static_cast<double>(ranks.size()) * (kRow + kExchange + kGap) + 30;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"white\"/>\n<text x=\"{2:.0f}\" "
      "y=\"20\" font-size=\"14\">{3}</text>\n",
      kWidth, height, kLeft, title);
  double x = kLeft;
  for (const Look& look : kLooks) {
    svg += fmt::format(
        "<rect x=\"{0:.0f}\" y=\"32\" width=\"12\" height=\"12\" fill=\"{1}\"/><text x=\"{2:.0f}\" y=\"42\">"
        "{3}</text>\n",
        x, look.colour, x + 17, look.text);
    x += 40 + 6.6 * static_cast<double>(std::string_view(look.text).size());
  }
  double top = kTop;
  for (const auto& [number, rank] : ranks) {
    svg += fmt::format(
        "<text x=\"12\" y=\"{:.0f}\">rank {}</text>\n<rect x=\"{:.0f}\" y=\"{:.0f}\" "
        "width=\"{:.0f}\" height=\"{:.0f}\" fill=\"#f2f2f2\"/>\n",
        top + 15, number, kLeft, top, kWidth - kLeft - kRight, kRow + kExchange);
    if (rank.compute != nullptr) draw(pieces_of(*rank.compute, false, begin_ns, end_ns), top, kRow, svg);
    if (rank.collective != nullptr)
      draw(pieces_of(*rank.collective, true, begin_ns, end_ns), top + kRow, kExchange, svg);
    top += kRow + kExchange + kGap;
  }
  for (const double share : {0.0, 0.25, 0.5, 0.75, 1.0})
    svg += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"{}\" fill=\"#555\">{:.4g} s</text>\n",
                       kLeft + share * (kWidth - kLeft - kRight), top + 14,
                       share == 0   ? "start"
                       : share == 1 ? "end"
                                    : "middle",
                       share * step_s);
  return svg + "</svg>\n";
}

}  // namespace strata
