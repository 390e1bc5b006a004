#include <strata/graph/shard_annotation.h>

#include <charconv>

#include <strata/runtime/str.h>

namespace strata {

Result<ShardAnnotation> parse_annotation(std::string_view text, std::string& axis) {
  const std::size_t space = text.rfind(' '), colon = text.rfind(':');
  ShardAnnotation annotation;
  const bool has_form = space != std::string_view::npos && space > 0 && colon != std::string_view::npos &&
                        colon > space + 1 && colon + 1 < text.size();
  std::string_view where = has_form ? text.substr(space + 1, colon - space - 1) : std::string_view();
  constexpr std::string_view kGather = "gather-";
  annotation.gathered = where.starts_with(kGather);
  if (annotation.gathered) where.remove_prefix(kGather.size());
  bool is_valid = has_form;
  if (has_form && (where != "whole" || annotation.gathered)) {
    const auto parsed = std::from_chars(where.data(), where.data() + where.size(), annotation.dim);
    is_valid = parsed.ec == std::errc{} && parsed.ptr == where.data() + where.size() && annotation.dim >= 0 &&
               annotation.dim < 2;
  }
  if (!is_valid)
    return Status::error(
        Code::invalid,
        str("'", text,
            "' does not have the form PATTERN DIM:AXIS, PATTERN gather-DIM:AXIS or PATTERN whole:AXIS, "
            "where DIM is 0 or 1, such as 'layers.*.qkv.weight 0:tp'"));
  annotation.pattern = text.substr(0, space);
  axis = text.substr(colon + 1);
  return annotation;
}

}  // namespace strata
