#include <strata/report/report_page.h>

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include <strata/report/chart.h>
#include <strata/report/compare_runs.h>
#include <strata/runtime/figure_text.h>
#include <strata/runtime/config/json.h>

#include "assets.h"
#include "expert_map.h"
#include "of_task.h"
#include "run_json.h"
#include "svg.h"
#include "timeline_svg.h"

namespace strata {
namespace {

using detail::escaped;

std::string fact(const RunRecord& run, const char* name) {
  const auto at = run.facts.find(name);
  return at == run.facts.end() ? std::string() : at->second;
}
std::string setting(const RunRecord& run, const char* key) {
  for (const RunRecord::Setting& each : run.settings)
    if (each.key == key) return each.value;
  return {};
}

struct Figure {
  std::string name, value;
};
std::vector<Figure> key_figures(const RunRecord& run) {
  const auto last = [&](const char* series) {
    const auto* const values = run.find(series);
    return values == nullptr || values->empty() ? kNoValue64 : values->back();
  };
  const std::string steps = run.steps.empty() ? "0" : fmt::format("{}", run.steps.back());
  std::vector<Figure> figures = {
      {"state", run.has_ended ? fact(run, "stop_reason") : "has no summary: running, or killed"},
      {"steps", fmt::format("{} of {}", steps, setting(run, "train.steps"))},
      {"loss", figure_text(last("loss"), "")},
      {"tokens per second", figure_text(run.mean("tokens_per_s"), "")},
      {"step", figure_text(run.mean("step_s"), "s")}};
  if (!run.validations.empty())
    figures.insert(figures.begin() + 3, {"validation loss", figure_text(run.validations.back().loss, "")});
  for (const auto& [series, label] : detail::kOfTask)
    if (std::isfinite(last(series)))
      figures.push_back({series == std::string_view("answer_tokens") ? "tokens of an answer" : label,
                         figure_text(last(series), "")});
  const double step_s = run.mean("step_s"), compute_s = run.mean("compute_s");
  if (std::isfinite(step_s) && step_s > 0)
    figures.push_back({"computing", fmt::format("{:.1f} % of the step", 100 * compute_s / step_s)});
  if (const std::string parameters = fact(run, "parameters"); !parameters.empty())
    figures.push_back({"parameters", figure_text(std::strtod(parameters.c_str(), nullptr), "")});
  if (const std::string dtype = fact(run, "dtype"); !dtype.empty()) figures.push_back({"dtype", dtype});
  return figures;
}

std::string figures_html(const RunRecord& run) {
  std::string html = "<dl class=\"figures\">\n";
  for (const Figure& figure : key_figures(run))
    html += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escaped(figure.name), escaped(figure.value));
  return html + "</dl>\n";
}

// The attribute from which a script tells the figures of a step: number of the run, series and label of each
// line.
std::string lines_attribute(const Chart& chart) {
  std::string json = "[";
  for (const Chart::Line& line : chart.lines)
    if (!line.series.empty())
      json += fmt::format("{}[{},{},{}]", json.size() == 1 ? "" : ",", line.run, json_string(line.series),
                          json_string(line.label));
  return escaped(json + "]");
}

std::string legend_html(const Chart& chart) {
  std::string html = "<ul class=\"legend\">";
  for (const Chart::Line& line : chart.lines)
    html += fmt::format("<li><i{} style=\"border-color:var(--c{})\"></i>{}</li>",
                        line.dashed ? " class=\"dash\"" : "", line.colour, escaped(line.label));
  return html + "</ul>\n";
}

std::string chart_html(const Chart& chart) {
  return fmt::format(
      "<figure><h3>{}{}</h3>\n<div class=\"plot\" tabindex=\"0\" role=\"group\" aria-label=\"{}: arrow keys "
      "choose a step\" "
      "data-unit=\"{}\" data-lines=\"{}\">\n{}</div>\n{}<output aria-live=\"polite\"></output>\n<p "
      "class=\"note\">{}</p></figure>\n",
      escaped(chart.title), chart.unit.size() > 1 ? ", " + escaped(chart.unit) : "", escaped(chart.title),
      escaped(chart.unit), lines_attribute(chart), chart_svg(chart, false), legend_html(chart),
      escaped(chart.text));
}

std::string section(const char* id, const char* title, const std::string& body) {
  return body.empty()
             ? std::string()
             : fmt::format("<section aria-labelledby=\"{0}\"><h2 id=\"{0}\">{1}</h2>\n{2}</section>\n", id,
                           title, body);
}

std::string of_run(const std::vector<RunRecord>& runs, const RunRecord& run) {
  return runs.size() == 1 ? std::string() : "<h3>" + escaped(run.name) + "</h3>\n";
}

std::string timelines_html(const std::vector<RunRecord>& runs) {
  std::string html;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunRecord::Timeline& timeline = runs[i].timeline;
    if (timeline.spans.empty()) continue;
    html += of_run(runs, runs[i]);
    html += fmt::format(
        "<div class=\"timeline\" data-run=\"{}\"><div class=\"tools\"><button data-act=\"in\" "
        "aria-label=\"Enlarge\">+</button>"
        "<button data-act=\"out\" aria-label=\"Reduce\">&minus;</button><button data-act=\"back\" "
        "aria-label=\"Earlier\">&larr;</button><button data-act=\"on\" "
        "aria-label=\"Later\">&rarr;</button><button "
        "data-act=\"all\">All</button></div>\n<div class=\"plot\" tabindex=\"0\" role=\"group\" "
        "aria-label=\"Timeline: plus and "
        "minus enlarge and reduce, arrow keys move\">\n{}</div>\n<output "
        "aria-live=\"polite\"></output></div>\n",
        i, detail::timeline_svg(timeline, fmt::format("timeline-{}", i)));
    std::string legend = "<ul class=\"legend\">";
    for (std::size_t l = 0; l < timeline.labels.size(); ++l)
      legend += fmt::format("<li><i style=\"border-color:var(--c{})\"></i>{}</li>", l % 8,
                            escaped(timeline.labels[l]));
    html += legend + "</ul>\n";
    if (timeline.left_out > 0)
      html += fmt::format("<p class=\"note\">{} older intervals are left out; trace.json has all.</p>\n",
                          timeline.left_out);
  }
  return html;
}

std::string experts_html(const std::vector<RunRecord>& runs) {
  std::string html;
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (const std::string map = detail::expert_map_html(runs[i], fmt::format("experts-{}", i)); !map.empty())
      html += of_run(runs, runs[i]) + map;
  return html;
}

std::string tiers_table(const RunRecord& run) {
  if (run.tiers.empty()) return {};
  std::string html =
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Memory of " + escaped(run.name) +
      "\"><table><caption>Memory: "
      "budget, what the plan "
      "needs at most, what was used at most, and what lives there</caption><thead><tr><th "
      "scope=\"col\">tier</th><th "
      "class=\"n\" scope=\"col\">budget</th><th class=\"n\" scope=\"col\">planned</th><th class=\"n\" "
      "scope=\"col\">measured</th><th "
      "class=\"n\" scope=\"col\">home of</th></tr></thead><tbody>\n";
  for (const RunRecord::TierUse& tier : run.tiers)
    html += fmt::format(
        "<tr><th scope=\"row\">{}</th><td class=\"n\">{}</td><td class=\"n\">{}</td><td "
        "class=\"n\">{}</td><td "
        "class=\"n\">{}</td></tr>\n",
        tier.name,
        tier.budget >= (std::uint64_t{1} << 60) ? "unlimited"
                                                : figure_text(static_cast<double>(tier.budget), "B"),
        figure_text(static_cast<double>(tier.planned), "B"),
        tier.peak ? figure_text(static_cast<double>(*tier.peak), "B") : "-",
        figure_text(static_cast<double>(tier.home), "B"));
  return html + "</tbody></table></div>\n";
}

std::string lanes_table(const RunRecord& run) {
  if (run.lanes.empty()) return {};
  const bool forecast = run.expected_step_s > 0;
  std::string html = fmt::format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
      "aria-label=\"Lanes of {}\"><table><caption>Lanes{}</caption><thead><tr><th "
      "scope=\"col\">lane</th><th class=\"n\" scope=\"col\">busy</th><th class=\"n\" "
      "scope=\"col\">moved</th>{}</tr></thead><tbody>\n",
      escaped(run.name),
      forecast ? fmt::format(": a step was expected to take {}, and took {}",
                             figure_text(run.expected_step_s, "s"), figure_text(run.measured_step_s, "s"))
               : std::string(),
      forecast ? "<th class=\"n\" scope=\"col\">expected per step</th><th class=\"n\" scope=\"col\">measured "
                 "per step</th>"
               : "");
  for (const RunRecord::Lane& lane : run.lanes) {
    html += fmt::format("<tr><th scope=\"row\">{}</th><td class=\"n\">{}</td><td class=\"n\">{}</td>",
                        escaped(lane.name), figure_text(lane.busy_s, "s"),
                        lane.bytes > 0 ? figure_text(static_cast<double>(lane.bytes), "B") : "-");
    if (forecast)
      html += fmt::format("<td class=\"n\">{}</td><td class=\"n\">{}</td>", figure_text(lane.expected_s, "s"),
                          figure_text(lane.measured_s, "s"));
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

// Shown by the script, without which it does nothing.
std::string playback_html(const RunRecord& run, std::size_t number) {
  if (run.playback.us <= 0) return {};
  return fmt::format(
      "<div class=\"playback\" data-run=\"{0}\" hidden><div class=\"tools\"><button "
      "data-act=\"play\">Play</button>"
      "<input type=\"range\" min=\"0\" max=\"1000\" value=\"0\" aria-label=\"Time in step {1}\"></div>\n"
      "<output></output>\n<p class=\"note\">Step {1} as it was traced{2}. A payload that moves has the "
      "colour "
      "of where it comes from below, and of where it goes above.</p></div>\n",
      number, run.playback.step, run.playback.is_cut ? ", without its end" : "");
}

std::string plans_html(const std::vector<RunRecord>& runs) {
  std::string html;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunRecord& run = runs[i];
    const std::string tables = tiers_table(run) + lanes_table(run);
    if (tables.empty()) continue;
    html += of_run(runs, run) + tables;
    if (!run.homes.empty())
      html += "<figure>" + detail::chunk_map_svg(run, fmt::format("chunks-{}", i)) +
              "<ul class=\"legend\"><li><i style=\"border-color:var(--c0)\"></i>device</li><li><i "
              "style=\"border-color:var(--c1)\"></i>pinned RAM</li><li><i "
              "style=\"border-color:var(--c2)\"></i>NVMe</li></ul>"
              "<figcaption class=\"note\">Where each payload of each chunk lives between two uses, chunks "
              "from left to "
              "right.</figcaption>" +
              playback_html(run, i) + "</figure>\n";
  }
  return html;
}

std::string speed_text(const RunRecord& base, const RunRecord& run) {
  const SpeedDifference d = speed_difference(base, run);
  if (d.blocks < 2) return "too few steps to compare";
  const double percent = 100 * (d.ratio - 1);
  return fmt::format("{:.1f} % {} ({:.1f} to {:.1f} %, 95 % confidence{})", std::abs(percent),
                     percent < 0 ? "shorter" : "longer", 100 * (d.low - 1), 100 * (d.high - 1),
                     d.is_significant() ? "" : ": not significant");
}
std::string loss_text(const RunRecord& base, const RunRecord& run) {
  const LossDifference d = loss_difference(base, run);
  if (d.common_steps == 0) return "no step in common";
  if (d.first_step < 0) return fmt::format("the same bits in all {} common steps", d.common_steps);
  return fmt::format("differ from step {} on, by {:.3g} at most", d.first_step, d.largest);
}

std::string comparison_html(const std::vector<RunRecord>& runs) {
  if (runs.size() < 2) return {};
  std::string html =
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
      "aria-label=\"Speed and losses\"><table><caption>Compared with " +
      escaped(runs.front().name) +
      "</caption><thead><tr><th scope=\"col\">run</th><th scope=\"col\">a step takes</th><th "
      "scope=\"col\">losses</th></tr></thead><tbody>\n";
  for (std::size_t i = 1; i < runs.size(); ++i)
    html += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td></tr>\n", escaped(runs[i].name),
                        speed_text(runs.front(), runs[i]), loss_text(runs.front(), runs[i]));
  html += "</tbody></table></div>\n";
  const std::vector<SettingDifference> differences = setting_differences(runs);
  if (differences.empty()) return html + "<p>All keys of the configurations are the same.</p>\n";
  html +=
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Differences\"><table><caption>Keys "
      "that "
      "differ</caption><thead><tr><th scope=\"col\">key</th>";
  for (const RunRecord& run : runs) html += "<th scope=\"col\">" + escaped(run.name) + "</th>";
  html += "</tr></thead><tbody>\n";
  for (const SettingDifference& difference : differences) {
    html += "<tr><th scope=\"row\"><code>" + escaped(difference.key) + "</code></th>";
    for (const std::string& value : difference.values)
      html += "<td class=\"value\">" + escaped(value) + "</td>";
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string samples_html(const std::vector<RunRecord>& runs) {
  std::string html;
  for (const RunRecord& run : runs) {
    if (run.samples.empty()) continue;
    html += of_run(runs, run);
    for (std::size_t i = run.samples.size(); i-- > 0;)
      html += fmt::format("<details{}><summary>step {}</summary><pre>{}</pre></details>\n",
                          i + 1 == run.samples.size() ? " open" : "", run.samples[i].step,
                          escaped(run.samples[i].text));
  }
  return html;
}

std::string settings_html(const std::vector<RunRecord>& runs) {
  const RunRecord& run = runs.front();
  std::string html = of_run(runs, run) +
                     "<p><label for=\"filter\">Show keys that contain </label><input id=\"filter\" "
                     "type=\"search\"></p>\n<div "
                     "class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"All keys\"><table "
                     "id=\"settings\"><thead><tr><th scope=\"col\">key</th><th scope=\"col\">value</th><th "
                     "scope=\"col\">set "
                     "by</th></tr></thead><tbody>\n";
  for (const RunRecord::Setting& each : run.settings)
    html += fmt::format(
        "<tr><th scope=\"row\"><code>{}</code></th><td "
        "class=\"value\"><code>{}</code></td><td>{}</td></tr>\n",
        escaped(each.key), escaped(each.value), escaped(each.origin));
  return html + "</tbody></table></div>\n";
}

std::string title_of(const std::vector<RunRecord>& runs) {
  std::string title;
  for (const RunRecord& run : runs) title += (title.empty() ? "" : ", ") + run.name;
  return title;
}

/// SHA-256 in base 64, as a policy names it.
std::string base64_of_hex(std::string_view hex) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  unsigned bits = 0, n = 0;
  for (const char c : hex) {
    bits = bits << 4U | static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10);
    n += 4;
    if (n < 6) continue;
    n -= 6;
    text += kDigits[(bits >> n) & 63U];
  }
  if (n > 0) text += kDigits[(bits << (6 - n)) & 63U];
  text.append((4 - text.size() % 4) % 4, '=');
  return text;
}

/// The page loads nothing, sends nothing, and runs its own script alone, whatever the runs' texts are.
std::string content_policy() {
  return "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
         "'unsafe-inline'; "
         "script-src 'sha256-" +
         base64_of_hex(assets::kPageScriptSha256) + "'; base-uri 'none'; form-action 'none'\">";
}

/// A part of the page.
struct Section {
  const char *id, *title;
  std::string body;
};

}  // namespace

std::string report_html(const std::vector<RunRecord>& runs) {
  std::string charts;
  for (const Chart& chart : charts_of(runs)) charts += chart_html(chart);
  std::string figures;
  for (const RunRecord& run : runs) figures += of_run(runs, run) + figures_html(run);
  const std::array<Section, 8> sections = {{
      {"figures", "Figures", figures},
      {"comparison", "Comparison", comparison_html(runs)},
      {"charts", "Charts",
       charts.empty() ? "<p>No step has ended yet.</p>\n" : "<div class=\"charts\">\n" + charts + "</div>\n"},
      {"experts", "Load of experts by layer", experts_html(runs)},
      {"timeline", "Lanes of traced steps", timelines_html(runs)},
      {"plan", "Planned and measured", plans_html(runs)},
      {"samples", "Samples", samples_html(runs)},
      {"configuration", "Configuration", settings_html(runs)},
  }};
  std::string nav, body;
  for (const Section& part : sections) {
    if (part.body.empty()) continue;
    nav += fmt::format("<li><a href=\"#{}\">{}</a></li>", part.id, part.title);
    body += section(part.id, part.title, part.body);
  }
  const std::string title = escaped(title_of(runs));
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">" + content_policy() +
         "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>" + title +
         " - strata</title>\n<style>\n" + std::string(assets::kColours) + std::string(assets::kPictures) +
         std::string(assets::kPageStyle) +
         "</style></head>\n<body><a class=\"skip\" href=\"#main\">Skip to the figures</a>\n<header><h1>" +
         title + "</h1><nav aria-label=\"Parts of the page\"><ul>" + nav +
         "</ul></nav></header>\n<main id=\"main\">\n" + body +
         "</main>\n<footer>Written by strata report.</footer>\n<script type=\"application/json\" "
         "id=\"data\">" +
         detail::runs_json(runs) + "</script>\n<script>" + std::string(assets::kPageScript) +
         "</script></body></html>\n";
}

}  // namespace strata
